/* Finds the launcher, wires the ranks up, and builds the node map that everything above relies on. */
#include "launch/launch.h"

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "launch/method.h"
#include "launch/watch.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* First that fits. MPI's own launcher stands first, because it is always the innermost: mpiexec inside
 * a Slurm job leaves the variables of its proxies' step in sight, but nothing that srun --mpi=pmix
 * starts carries PMI_FD. */
static const kolo_method *const methods[] = {
    &kolo_method_mpi,
    &kolo_method_pmix,
    &kolo_method_slurm,
    &kolo_method_single,
};
enum { METHODS = sizeof methods / sizeof *methods, ABORT_SECONDS = 3, HEARD_MS = 1000 };

static const kolo_method *find_method(const char *name)
{
    bool any = !name || !*name || strcmp(name, "auto") == 0;
    for (int i = 0; i < METHODS; i++)
        if (any ? methods[i]->fits() : strcmp(methods[i]->name, name) == 0) return methods[i];
    return NULL;
}

static uint64_t random_token(void)
{
    uint64_t token;
    if (getrandom(&token, sizeof token, 0) == (ssize_t)sizeof token) return token;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return ((uint64_t)now.tv_sec << 32) ^ (uint64_t)now.tv_nsec << 12 ^ (uint64_t)getpid();
}

static void name_job(kolo_launch *launch, uint64_t token)
{
    const char *job = getenv("SLURM_JOB_ID");
    char number[32] = "0";
    if (job && strspn(job, "0123456789") == strlen(job)) snprintf(number, sizeof number, "%s", job);
    snprintf(launch->job, sizeof launch->job, "kolo.%s.%016llx", number, (unsigned long long)token);
}

/* Every rank publishes who it is; from that the node map and the name of the job. Collective. */
static int introduce(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    kolo_identity *all = kolo_alloc((size_t)launch->size * sizeof *all);
    if (!all) return KOLO_ENOMEM;
    int rc;
    launch_watch_begin(state->watch, "the exchange of names", LAUNCH_START);
    KOLO_TRY_GOTO(rc, state->method->exchange(launch, &state->me, sizeof state->me, all));
    launch_watch_end(state->watch);
    for (int r = 0; r < launch->size; r++) all[r].name[sizeof all[r].name - 1] = 0;
    name_job(launch, all[0].token);
    rc = kolo_node_map(launch, all);
fail:
    free(all);
    return rc;
}

static void identify_log(const kolo_launch *launch, const kolo_launch_state *state)
{
    int rank, size;
    const char *node = getenv("SLURMD_NODENAME");
    if (launch->size > 0) kolo_log_identity(launch->rank, launch->size, state->me.name);
    else if (kolo_slurm_step(&rank, &size)) kolo_log_identity(rank, size, node ? node : state->me.name);
}

static void warn_alone(const kolo_launch *launch)
{
    int tasks = kolo_env_int("SLURM_NTASKS", 1);
    if (launch->size == 1 && strcmp(launch->method, "single") == 0 && getenv("SLURM_JOB_ID") && tasks > 1)
        kolo_warn(
            "this job has %d tasks but kolo was started without srun: one rank works, the others idle; %s",
            tasks, kolo_launch_cure());
}

static int start(kolo_launch *launch, const kolo_method *found, const kolo_launch_limits *limits, bool adopt,
                 const void *comm)
{
    kolo_launch_state *state = kolo_alloc(sizeof *state);
    if (!state) return KOLO_ENOMEM;
    launch->state = state;
    state->method = found;
    state->me.group = -1;
    state->me.pid = (uint32_t)getpid();
    state->me.token = random_token();
    kolo_env_host(state->me.name, sizeof state->me.name);

    int rc;
    if (limits) state->limits = *limits;
    state->watch = launch_watch_open(launch, limits);
    KOLO_TRY_GOTO(rc, adopt ? kolo_mpi_adopt(launch, comm) : found->start(launch));
    launch->method = found->name;
    identify_log(launch, state);
    KOLO_TRY_GOTO(rc, introduce(launch));
    if (state->method->wired) KOLO_TRY_GOTO(rc, state->method->wired(launch));
    launch_watch_complete(state->watch);
    if (!adopt) warn_alone(launch);
    return 0;
fail:
    state->broken = true;
    launch_watch_close(&state->watch);
    identify_log(launch, state);
    return rc;
}

int kolo_launch_start(kolo_launch *launch, const char *method, const kolo_launch_limits *limits)
{
    memset(launch, 0, sizeof *launch);
    const kolo_method *found = find_method(method);
    if (!found)
        return kolo_fail(KOLO_ECONFIG,
                         "launch: method \"%s\" is not known; use auto, pmix, mpi, slurm or single", method);
    return start(launch, found, limits, false, NULL);
}

int kolo_launch_adopt(kolo_launch *launch, const void *mpi_comm)
{
    memset(launch, 0, sizeof *launch);
    return start(launch, &kolo_method_mpi, NULL, true, mpi_comm);
}

void kolo_launch_finish(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    if (state) {
        launch_watch_begin(state->watch, "the end", LAUNCH_PATIENT);
        state->method->finish(launch);
        launch_watch_close(&state->watch);
    }
    kolo_node_map_free(launch);
    free(state);
    launch->state = NULL;
    launch->mpi = false;
}

/* Ends the process where MPI or PMIx do not come back. */
static void *end_late(void *status)
{
    struct timespec left = {.tv_sec = ABORT_SECONDS};
    while (nanosleep(&left, &left) != 0) continue;
    _exit((int)(intptr_t)status);
}

/* Bytes that we wrote and the launcher has not read: a launcher that ends the job on request drops what
 * is still in its pipes. */
static int unheard(int fd)
{
    struct stat what;
    int bytes = 0;
    if (fstat(fd, &what) != 0) return 0;
    if (S_ISFIFO(what.st_mode) && ioctl(fd, FIONREAD, &bytes) == 0) return bytes;
    if (S_ISSOCK(what.st_mode) && ioctl(fd, TIOCOUTQ, &bytes) == 0) return bytes;
    return 0;
}

static void wait_until_heard(void)
{
    for (int ms = 0; ms < HEARD_MS && (unheard(STDOUT_FILENO) > 0 || unheard(STDERR_FILENO) > 0); ms++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

void kolo_launch_abort(kolo_launch *launch, int exit_status)
{
    pthread_t late;
    if (exit_status < 1 || exit_status > 255) exit_status = -KOLO_EINTERNAL;
    kolo_launch_state *state = launch ? kolo_state(launch) : NULL;
    if (state && pthread_create(&late, NULL, end_late, (void *)(intptr_t)exit_status) == 0) {
        wait_until_heard();
        state->method->abort(launch, exit_status);
    }
    _exit(exit_status);
}

void kolo_launch_abort_unstarted(int exit_status)
{
    char line[64];
    const int fd = kolo_env_int("PMI_FD", -1);
    if (fd < 0 || !getenv("MPI_LOCALNRANKS")) return; /* not Hydra's */
    wait_until_heard();
    const int bytes = snprintf(line, sizeof line, "cmd=abort exitcode=%d\n", exit_status);
    if (send(fd, line, (size_t)bytes, MSG_NOSIGNAL) == bytes) sleep(1); /* Hydra ends this process, too */
}

void kolo_launch_wait_begin(kolo_launch *launch, const char *where)
{
    kolo_launch_state *state = kolo_state(launch);
    if (state) launch_watch_begin(state->watch, where, LAUNCH_LATER);
}

void kolo_launch_wait_end(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    if (state) launch_watch_end(state->watch);
}

int kolo_launch_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all)
{
    kolo_launch_state *state = kolo_state(launch);
    if (!state) return kolo_fail(KOLO_EINTERNAL, "launch: exchange after the end");
    kolo_launch_wait_begin(launch, "an exchange");
    const int rc = state->method->exchange(launch, mine, bytes, all);
    kolo_launch_wait_end(launch);
    return rc;
}

void kolo_launch_beat_at(kolo_launch *launch, const char *path)
{
    kolo_launch_state *state = kolo_state(launch);
    if (state && state->watch && launch->nodes > 1) launch_watch_beat_at(state->watch, path);
}
