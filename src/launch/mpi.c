/* MPI as the launcher (mpiexec, srun --mpi=pmi2), and MPI as a library that another method has started. */
#include "launch/method.h"

#include "base/log.h"
#include "kolo/error.h"
#include "launch/pmi_relay.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

static bool mpi_fits(void) { return getenv("PMI_FD") || getenv("PMI_PORT") || getenv("PMI_RANK"); }

#if defined(KOLO_MPI) && KOLO_MPI
#include <limits.h>
#include <mpi.h>

static struct {
    bool started;        /* we called MPI_Init, so we finalise */
    _Atomic bool ending; /* within MPI_Finalize: MPI_Abort is no more, it would end this process with 5 */
    _Atomic(kolo_pmi_relay *) relay; /* NULL: MPI talks to its launcher itself; read by the watch */
} library;

bool kolo_mpi_built(void) { return true; }

static int check_level(int level)
{
    if (level >= MPI_THREAD_SERIALIZED) return 0;
    return kolo_fail(KOLO_ELAUNCH,
                     "launch: MPI runs at thread level %d, kolo needs SERIALIZED (%d): ask MPI_Init_thread "
                     "for it; if that gives less, use an MPI built with threads",
                     level, MPI_THREAD_SERIALIZED);
}

enum { LITTLE_SHM = 16 }; /* MiB: two ranks of MPICH 4 over UCX take 10 */

/* Where MPI finds no room for its own segments, it ends the process with words about itself alone. */
static void warn_of_little_shm(void)
{
    struct statvfs fs;
    if (statvfs("/dev/shm", &fs) != 0) return;
    const double mib = (double)fs.f_bavail * (double)fs.f_frsize / 0x1p20;
    if (mib < LITTLE_SHM)
        kolo_warn("/dev/shm has %.1f MiB free, MPI needs some 5 MiB for each rank of a node: if it fails "
                  "now, enlarge it (mount -o remount,size=...) or remove leftovers there",
                  mib);
}

void kolo_mpi_failed(void *of)
{
    kolo_launch *launch = of;
    const kolo_launch_state *state = kolo_state(launch);
    char text[640];
    if (!state->limits.end) return;
    snprintf(text, sizeof text,
             "launch: MPI could not start on host %s, and has said why above. Mostly /dev/shm is full (df "
             "/dev/shm; MPI takes some 5 MiB for each rank of a node: remove leftovers, or mount -o "
             "remount,size=...), or the network that it chose does not work here (UCX_TLS=, FI_PROVIDER= "
             "choose another)",
             state->me.name);
    state->limits.end(launch, text);
}

int kolo_mpi_start(kolo_launch *launch, int *rank, int *size)
{
    int there = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&there);
    if (there) {
        MPI_Query_thread(&level);
    } else {
        warn_of_little_shm();
        if (!atomic_load(&library.relay) && kolo_state(launch)->method == &kolo_method_mpi &&
            kolo_state(launch)->limits.end)
            atomic_store(&library.relay, kolo_pmi_relay_open(kolo_mpi_failed, launch));
        /* UCX's tcp waits in MPI_Finalize for the receiver's word that a put has come, while the
         * receiver already sits in the barrier behind it and does not look: both wait for ever (UCX
         * 1.13 under MPICH 4.0). */
        setenv("UCX_TCP_PUT_ENABLE", "n", 0);
        if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level) != MPI_SUCCESS)
            return kolo_fail(KOLO_ELAUNCH, "launch: MPI_Init_thread failed; %s", kolo_launch_cure());
        kolo_pmi_relay_started(atomic_load(&library.relay));
        library.started = true;
    }
    KOLO_TRY(check_level(level));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    return 0;
}

bool kolo_launch_mpi_runs(void)
{
    int there = 0, over = 0;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    return there && !over;
}

void kolo_mpi_finish(void)
{
    int over = 0;
    MPI_Finalized(&over);
    if (library.started && !over) {
        atomic_store(&library.ending, true);
        MPI_Finalize();
    }
    library.started = false;
}

typedef struct mpi_own {
    MPI_Comm comm;
} mpi_own; /* apart from other users of MPI */

/* The lowest rank of those that share memory with us, or -1 where the library cannot say. */
static int shared_group(MPI_Comm comm, int rank)
{
    MPI_Comm node = MPI_COMM_NULL;
    int lowest = rank;
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node) != MPI_SUCCESS) return -1;
    if (MPI_Bcast(&lowest, 1, MPI_INT, 0, node) != MPI_SUCCESS) lowest = -1;
    MPI_Comm_free(&node);
    return lowest;
}

/* mpiexec hands its own SLURMD_NODENAME to all ranks, so Slurm's word counts only under srun --mpi=pmi2;
 * Hydra's name of the host is Slurm's inside a job. Otherwise the host name stands. */
static void name_host(kolo_identity *me)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"), *pmi = getenv("PMI_JOBID");
    const char *node = getenv("SLURMD_NODENAME"), *hydra = getenv("MPIR_CVAR_CH3_INTERFACE_HOSTNAME");
    char id[128] = "";
    if (job && step) snprintf(id, sizeof id, "%s.%s", job, step);
    if (pmi && *id && node && strcmp(pmi, id) == 0) snprintf(me->name, sizeof me->name, "%s", node);
    else if (job && hydra && *hydra) snprintf(me->name, sizeof me->name, "%s", hydra);
}

/* An MPI that does not know its launcher makes every rank the only one. */
static int check_alone(int size, const char *cure)
{
    int rank, tasks;
    if (size > 1 || kolo_env_int("PMI_SIZE", -1) >= 0 || !kolo_slurm_step(&rank, &tasks) || tasks == 1)
        return 0;
    return kolo_fail(KOLO_ELAUNCH, "launch: srun started %d tasks but MPI says rank 0 of 1; %s", tasks, cure);
}

static int mpi_start(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    int promised = kolo_env_int("PMI_SIZE", -1);
    name_host(&state->me);
    if (promised == 1) {
        launch->rank = 0;
        launch->size = 1;
        return 0;
    }
    launch_watch_begin(state->watch, "MPI_Init", LAUNCH_START);
    KOLO_TRY(kolo_mpi_start(launch, &launch->rank, &launch->size));
    int size = launch->size;
    if (promised > 1 && promised != size) {
        kolo_mpi_finish();
        return kolo_fail(
            KOLO_ELAUNCH,
            "launch: the launcher started %d ranks but MPI says rank %d of %d: mpiexec or srun "
            "belongs to another MPI than the one kolo is linked with; use its own mpiexec, or %s",
            promised, launch->rank, size, kolo_launch_cure());
    }
    if (check_alone(size, kolo_launch_cure()) < 0) {
        kolo_mpi_finish();
        return KOLO_ELAUNCH;
    }
    mpi_own *own = malloc(sizeof *own);
    if (!own) return kolo_fail(KOLO_ENOMEM, "launch: out of memory");
    own->comm = MPI_COMM_NULL;
    state->own = own;
    if (MPI_Comm_dup(MPI_COMM_WORLD, &own->comm) != MPI_SUCCESS)
        return kolo_fail(KOLO_ELAUNCH, "launch: MPI_Comm_dup failed on rank %d of %d", launch->rank, size);
    state->me.group = shared_group(own->comm, launch->rank);
    launch_watch_end(state->watch);
    launch->mpi = true;
    return 0;
}

int kolo_mpi_adopt(kolo_launch *launch, const void *mpi_comm)
{
    kolo_launch_state *state = kolo_state(launch);
    int level = MPI_THREAD_SINGLE, size = 1;
    if (!kolo_launch_mpi_runs())
        return kolo_fail(KOLO_ELAUNCH,
                         "launch: a communicator is given, but MPI_Init was not called, or MPI_Finalize was");
    MPI_Query_thread(&level);
    KOLO_TRY(check_level(level));
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    KOLO_TRY(check_alone(size,
                         "start it by srun --mpi=pmi2, or by the mpiexec of the MPI that it is linked with"));
    name_host(&state->me);
    mpi_own *own = malloc(sizeof *own);
    if (!own) return kolo_fail(KOLO_ENOMEM, "launch: out of memory");
    own->comm = MPI_COMM_NULL;
    state->own = own;
    if (MPI_Comm_dup(mpi_comm ? *(const MPI_Comm *)mpi_comm : MPI_COMM_WORLD, &own->comm) != MPI_SUCCESS)
        return kolo_fail(KOLO_ELAUNCH, "launch: MPI_Comm_dup failed");
    MPI_Comm_set_errhandler(own->comm, MPI_ERRORS_RETURN);
    MPI_Comm_rank(own->comm, &launch->rank);
    MPI_Comm_size(own->comm, &launch->size);
    state->me.group = shared_group(own->comm, launch->rank);
    launch->mpi_comm = &own->comm;
    /* the program calls MPI whenever it likes, so ours may do so only at MULTIPLE, on all ranks */
    if (MPI_Allreduce(MPI_IN_PLACE, &level, 1, MPI_INT, MPI_MIN, own->comm) != MPI_SUCCESS)
        return kolo_fail(
            KOLO_ELAUNCH,
            "launch: MPI_Allreduce failed: a rank may have died; look for the first error of this job");
    launch->mpi = level == MPI_THREAD_MULTIPLE;
    return 0;
}

static int mpi_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all)
{
    mpi_own *own = kolo_state(launch)->own;
    if (launch->size == 1) {
        memcpy(all, mine, bytes);
        return 0;
    }
    if (bytes > INT_MAX) return kolo_fail(KOLO_EINTERNAL, "launch: exchange of %zu bytes a rank", bytes);
    if (MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, own->comm) != MPI_SUCCESS)
        return kolo_fail(KOLO_ELAUNCH,
                         "launch: MPI_Allgather of %zu bytes a rank failed: a rank may have died; look for "
                         "the first error of this job",
                         bytes);
    return 0;
}

static void mpi_finish(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    mpi_own *own = state->own;
    if (own && own->comm != MPI_COMM_NULL && !state->broken && kolo_launch_mpi_runs())
        MPI_Comm_free(&own->comm);
    free(own);
    state->own = NULL;
    if (!state->broken) kolo_mpi_finish();
}

static void mpi_abort(kolo_launch *launch, int exit_status)
{
    int there = 0, over = 0;
    (void)launch;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    const bool ending = atomic_load(&library.ending);
    if (!there || (ending && !over)) kolo_pmi_relay_abort(atomic_load(&library.relay), exit_status);
    if (!there || over || ending) return;
    /* the library's own words would bury our one message */
    int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (quiet >= 0) dup2(quiet, STDERR_FILENO);
    MPI_Abort(MPI_COMM_WORLD, exit_status);
}

#else

bool kolo_mpi_built(void) { return false; }

void kolo_mpi_failed(void *launch) { (void)launch; }

int kolo_mpi_start(kolo_launch *launch, int *rank, int *size)
{
    (void)launch;
    (void)rank;
    (void)size;
    return kolo_fail(KOLO_ELAUNCH, "launch: kolo was built without MPI");
}

int kolo_mpi_adopt(kolo_launch *launch, const void *mpi_comm)
{
    (void)launch;
    (void)mpi_comm;
    return kolo_fail(KOLO_ELAUNCH, "launch: kolo was built without MPI");
}

bool kolo_launch_mpi_runs(void) { return false; }
void kolo_mpi_finish(void) {}

static int mpi_start(kolo_launch *launch)
{
    launch->rank = kolo_env_int("PMI_RANK", 0);
    launch->size = kolo_env_int("PMI_SIZE", 0);
    if (launch->size == 1) return 0;
    return kolo_fail(
        KOLO_ELAUNCH,
        "launch: started by mpiexec or srun --mpi=pmi2, but kolo was built without MPI; build it "
        "with MPI=1, or %s",
        kolo_launch_cure());
}

static int mpi_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all)
{
    return kolo_method_single.exchange(launch, mine, bytes, all);
}

static void mpi_finish(kolo_launch *launch) { (void)launch; }
static void mpi_abort(kolo_launch *launch, int exit_status)
{
    (void)launch;
    (void)exit_status;
}
#endif

const kolo_method kolo_method_mpi = {
    .name = "mpi",
    .fits = mpi_fits,
    .start = mpi_start,
    .exchange = mpi_exchange,
    .finish = mpi_finish,
    .abort = mpi_abort,
};
