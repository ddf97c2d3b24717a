/* PMIx: srun --mpi=pmix, and any other launcher that brings a PMIx server. MPI is started
 * over it by the bridge.
 *
 * Time limits: PMIX_TIMEOUT on a get is kept by the server; on a fence it covers only the arrival of this
 * node's ranks, after that the launcher's own limit holds (Slurm: 300 s, SLURM_PMIX_TIMEOUT). PMIx_Init takes
 * no limit: the watchdog above watches it. */
#include "launch/method.h"

#include "kolo/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The variables of Slurm's namespace "slurm.pmix.JOB.STEP" survive in what its tasks start, an
 * inner srun included. */
static bool of_another_step(const char *space)
{
    const char *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    int rank, size;
    char ours[128];
    if (strncmp(space, "slurm.pmix.", 11) != 0 || getenv("SLURM_HET_SIZE")) return false;
    if (!job || !step || !kolo_slurm_step(&rank, &size)) return false;
    snprintf(ours, sizeof ours, "slurm.pmix.%s.%s", job, step);
    return strcmp(space, ours) != 0;
}

static bool pmix_fits(void)
{
    const char *space = getenv("PMIX_NAMESPACE");
    return space && getenv("PMIX_RANK") && !of_another_step(space);
}

#if defined(KOLO_PMIX) && KOLO_PMIX
#include "base/memory.h"
#include "launch/pmi_bridge.h"

#include <pmix.h>
#include <pthread.h>
#include <stdatomic.h>

enum { WAIT_SECONDS = 300 };

typedef struct pmix_own {
    pmix_proc_t me;
    uint32_t epoch; /* keys are never used twice: not every PMIx updates them reliably */
    kolo_pmi_bridge *bridge;
    kolo_launch *launch;
    _Atomic bool mpi_starts;
} pmix_own;

static const char *cure(pmix_status_t status)
{
    if (status == PMIX_ERR_TIMEOUT)
        return "; a rank did not arrive: did it die, or does a firewall stand between the nodes?";
    if (status == PMIX_ERR_OUT_OF_RESOURCE)
        return "; PMIx's store in shared memory is full (known of 5.0.1): PMIX_MCA_gds=hash in the job and "
               "where slurmd starts does without it";
    return "";
}

static int fail(const char *what, pmix_status_t status, const pmix_own *own)
{
    return kolo_fail(KOLO_ELAUNCH, "launch: %s failed on rank %u of %s: %s%s", what, own->me.rank,
                     own->me.nspace, PMIx_Error_string(status), cure(status));
}

static int get_number(const pmix_own *own, const char *key, uint32_t *number)
{
    pmix_proc_t job;
    pmix_value_t *value = NULL;
    pmix_info_t local;
    bool yes = true;
    PMIX_LOAD_PROCID(&job, own->me.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_CONSTRUCT(&local);
    /* asking the server for a missing key waits for ever */
    PMIX_INFO_LOAD(&local, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    pmix_status_t status = PMIx_Get(&job, key, &local, 1, &value);
    PMIX_INFO_DESTRUCT(&local);
    if (status == PMIX_SUCCESS) PMIX_VALUE_GET_NUMBER(status, value, *number, uint32_t);
    if (value) PMIX_VALUE_RELEASE(value);
    return status == PMIX_SUCCESS ? 0 : fail(key, status, own);
}

static int put_bytes(const pmix_own *own, const char *key, const void *data, size_t bytes)
{
    pmix_value_t value;
    value.type = PMIX_BYTE_OBJECT; /* copied by PMIx_Put */
    value.data.bo.bytes = (char *)(uintptr_t)data;
    value.data.bo.size = bytes;
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (status == PMIX_SUCCESS) status = PMIx_Commit();
    return status == PMIX_SUCCESS ? 0 : fail("PMIx_Put", status, own);
}

/* All ranks meet; what each has put can then be read by all. */
static int fence(const pmix_own *own)
{
    pmix_proc_t job;
    pmix_info_t info[2];
    int seconds = WAIT_SECONDS;
    bool yes = true;
    PMIX_LOAD_PROCID(&job, own->me.nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_CONSTRUCT(&info[0]);
    PMIX_INFO_CONSTRUCT(&info[1]);
    PMIX_INFO_LOAD(&info[0], PMIX_TIMEOUT, &seconds, PMIX_INT);
    /* its presence counts, not its value */
    PMIX_INFO_LOAD(&info[1], PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    pmix_status_t status = PMIx_Fence(&job, 1, info, 2);
    PMIX_INFO_DESTRUCT(&info[0]);
    PMIX_INFO_DESTRUCT(&info[1]);
    return status == PMIX_SUCCESS ? 0 : fail("PMIx_Fence", status, own);
}

/* *value is to be released; its bytes are value->data.bo */
static int get_bytes(const pmix_own *own, int rank, const char *key, pmix_value_t **value)
{
    pmix_proc_t peer;
    pmix_info_t limit;
    int seconds = WAIT_SECONDS;
    PMIX_LOAD_PROCID(&peer, own->me.nspace, (pmix_rank_t)rank);
    PMIX_INFO_CONSTRUCT(&limit);
    PMIX_INFO_LOAD(&limit, PMIX_TIMEOUT, &seconds, PMIX_INT);
    pmix_status_t status = PMIx_Get(&peer, key, &limit, 1, value);
    PMIX_INFO_DESTRUCT(&limit);
    if (status != PMIX_SUCCESS) return fail("PMIx_Get", status, own);
    if ((*value)->type == PMIX_BYTE_OBJECT) return 0;
    PMIX_VALUE_RELEASE(*value);
    return kolo_fail(KOLO_ELAUNCH, "launch: PMIx gave back something else than was put under %s", key);
}

static int pmix_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all)
{
    pmix_own *own = kolo_state(launch)->own;
    char key[32];
    if (launch->size == 1) {
        memcpy(all, mine, bytes);
        return 0;
    }
    snprintf(key, sizeof key, "kolo.%u", own->epoch++);
    KOLO_TRY(put_bytes(own, key, mine, bytes));
    KOLO_TRY(fence(own));
    for (int r = 0; r < launch->size; r++) {
        pmix_value_t *value = NULL;
        KOLO_TRY(get_bytes(own, r, key, &value));
        bool fits = value->data.bo.size == bytes;
        if (fits) memcpy((char *)all + (size_t)r * bytes, value->data.bo.bytes, bytes);
        PMIX_VALUE_RELEASE(value);
        if (!fits)
            return kolo_fail(KOLO_ELAUNCH,
                             "launch: rank %d published another number of bytes than %zu; are all ranks the "
                             "same version of kolo?",
                             r, bytes);
    }
    return 0;
}

/* ---- for the watchdog ---- */

static void call_key(uint32_t wait, char *key, size_t bytes) { snprintf(key, bytes, "kolo.call.%u", wait); }

/* What is put and committed can be read by every rank, without a fence. */
static void pmix_call(kolo_launch *launch, uint32_t wait)
{
    const pmix_own *own = kolo_state(launch)->own;
    char key[32];
    if (!own || !own->me.nspace[0]) return; /* PMIx_Init itself does not come back */
    call_key(wait, key, sizeof key);
    put_bytes(own, key, "w", 1);
}

/* The answers of many ranks, which come by PMIx's own thread; freed by the last of it and the asker. */
typedef struct inquiry {
    pthread_mutex_t lock;
    int users;
    bool came[];
} inquiry;
typedef struct asked {
    inquiry *of;
    int rank;
} asked;

static void release_inquiry(inquiry *q)
{
    pthread_mutex_lock(&q->lock);
    const bool last = --q->users == 0;
    pthread_mutex_unlock(&q->lock);
    if (last) free(q);
}

static void pmix_hear(pmix_status_t status, pmix_value_t *value, void *of)
{
    asked *a = of;
    (void)value;
    pthread_mutex_lock(&a->of->lock);
    a->of->came[a->rank] = status == PMIX_SUCCESS;
    pthread_mutex_unlock(&a->of->lock);
    release_inquiry(a->of);
    free(a);
}

static void pmix_request(const pmix_own *own, inquiry *q, int rank, const char *key, const pmix_info_t *limit)
{
    pmix_proc_t peer;
    asked *a = kolo_alloc(sizeof *a);
    if (!a) return;
    *a = (asked){q, rank};
    PMIX_LOAD_PROCID(&peer, own->me.nspace, (pmix_rank_t)rank);
    pthread_mutex_lock(&q->lock);
    q->users++;
    pthread_mutex_unlock(&q->lock);
    if (PMIx_Get_nb(&peer, key, limit, 1, pmix_hear, a) == PMIX_SUCCESS) return;
    release_inquiry(q);
    free(a);
}

static bool pmix_absent(kolo_launch *launch, uint32_t wait, const bool *here, bool *absent)
{
    enum { ANSWER_SECONDS = 2 };
    const pmix_own *own = kolo_state(launch)->own;
    const int size = launch->size;
    inquiry *q =
        own && own->me.nspace[0] && size > 1 ? kolo_alloc(sizeof *q + (size_t)size * sizeof *q->came) : NULL;
    if (!q) return false;
    pmix_info_t limit;
    int seconds = ANSWER_SECONDS;
    char key[32];
    pthread_mutex_init(&q->lock, NULL);
    q->users = 1;
    call_key(wait, key, sizeof key);
    PMIX_INFO_CONSTRUCT(&limit);
    PMIX_INFO_LOAD(&limit, PMIX_TIMEOUT, &seconds, PMIX_INT);
    for (int r = 0; r < size; r++)
        if (!here[r]) pmix_request(own, q, r, key, &limit);
    launch_watch_nap(kolo_state(launch)->watch, ANSWER_SECONDS);
    PMIX_INFO_DESTRUCT(&limit);
    pthread_mutex_lock(&q->lock);
    for (int r = 0; r < size; r++) absent[r] = !here[r] && !q->came[r];
    pthread_mutex_unlock(&q->lock);
    release_inquiry(q);
    return true;
}

static void pmix_host(kolo_launch *launch, int rank, char *text, size_t bytes)
{
    const pmix_own *own = kolo_state(launch)->own;
    pmix_value_t *value = NULL;
    pmix_proc_t peer;
    pmix_info_t local;
    bool yes = true;
    PMIX_LOAD_PROCID(&peer, own->me.nspace, (pmix_rank_t)rank);
    PMIX_INFO_CONSTRUCT(&local);
    PMIX_INFO_LOAD(&local, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    snprintf(text, bytes, "?");
    if (PMIx_Get(&peer, PMIX_HOSTNAME, &local, 1, &value) == PMIX_SUCCESS && value->type == PMIX_STRING)
        snprintf(text, bytes, "%s", value->data.string);
    PMIX_INFO_DESTRUCT(&local);
    if (value) PMIX_VALUE_RELEASE(value);
}

/* ---- the bridge's lower side ---- */

static int bridge_fence(void *context, uint32_t epoch, const char *lines, size_t bytes)
{
    char key[32];
    snprintf(key, sizeof key, "kolo.pmi.%u", epoch);
    /* PMIx dislikes empty objects */
    KOLO_TRY(put_bytes(context, key, bytes ? lines : "\n", bytes ? bytes : 1));
    return fence(context);
}

static int bridge_fetch(void *context, uint32_t epoch, int rank, char **lines, size_t *bytes)
{
    char key[32];
    pmix_value_t *value = NULL;
    snprintf(key, sizeof key, "kolo.pmi.%u", epoch);
    KOLO_TRY(get_bytes(context, rank, key, &value));
    *bytes = value->data.bo.size;
    *lines = kolo_alloc(*bytes);
    if (*lines) memcpy(*lines, value->data.bo.bytes, *bytes);
    PMIX_VALUE_RELEASE(value);
    return *lines ? 0 : KOLO_ENOMEM;
}

static void bridge_abort(void *context, int exit_status)
{
    pmix_own *own = context;
    if (atomic_load(&own->mpi_starts)) kolo_mpi_failed(own->launch);
    PMIx_Abort(exit_status, "", NULL, 0);
}

/* ---- start and end ---- */

/* Undone before return: all ranks see the same, and each should report it with its own exit code. */
static int disagree(const kolo_launch *launch, int step_rank, int step_size)
{
    PMIx_Finalize(NULL, 0);
    return kolo_fail(KOLO_ELAUNCH,
                     "launch: srun started task %d of %d, but PMIx says rank %d of %d: the PMIX_* variables "
                     "are of another step, and this srun was given no --mpi=pmix; %s",
                     step_rank, step_size, launch->rank, launch->size, kolo_launch_cure());
}

static void name_host(kolo_identity *me, const pmix_own *own, bool in_step)
{
    const char *node = getenv("SLURMD_NODENAME");
    if (in_step && node && *node) { /* our step's own word */
        snprintf(me->name, sizeof me->name, "%s", node);
        return;
    }
    pmix_value_t *value = NULL;
    pmix_info_t local;
    bool yes = true;
    PMIX_INFO_CONSTRUCT(&local);
    PMIX_INFO_LOAD(&local, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    if (PMIx_Get(&own->me, PMIX_HOSTNAME, &local, 1, &value) == PMIX_SUCCESS && value->type == PMIX_STRING)
        snprintf(me->name, sizeof me->name, "%s", value->data.string);
    PMIX_INFO_DESTRUCT(&local);
    if (value) PMIX_VALUE_RELEASE(value);
}

static int pmix_start(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    int step_rank, step_size;
    uint32_t size;
    pmix_own *own = kolo_alloc(sizeof *own);
    if (!own) return KOLO_ENOMEM;
    state->own = own;
    own->launch = launch;
    launch_watch_begin(state->watch, "PMIx_Init", LAUNCH_START);
    pmix_status_t status = PMIx_Init(&own->me, NULL, 0);
    launch_watch_end(state->watch);
    if (status == PMIX_ERR_UNREACH ||
        (status == PMIX_SUCCESS && strncmp(own->me.nspace, "singleton.", 10) == 0))
        return kolo_fail(KOLO_ELAUNCH, "launch: no PMIx server answers; %s", kolo_launch_cure());
    if (status != PMIX_SUCCESS)
        return kolo_fail(KOLO_ELAUNCH,
                         "launch: PMIx_Init failed: %s (this side %s, the server %s); if they use different "
                         "security modules, PMIX_MCA_psec=native may help",
                         PMIx_Error_string(status), PMIx_Get_version(),
                         getenv("PMIX_VERSION") ? getenv("PMIX_VERSION") : "?");
    KOLO_TRY(get_number(own, PMIX_JOB_SIZE, &size));
    launch->rank = (int)own->me.rank;
    launch->size = (int)size;
    bool in_step = kolo_slurm_step(&step_rank, &step_size);
    if (in_step && (step_rank != launch->rank || step_size != launch->size))
        return disagree(launch, step_rank, step_size);
    name_host(&state->me, own, in_step);
    return 0;
}

/* MPI over the bridge, once it is known who sits where. */
static int pmix_wired(kolo_launch *launch)
{
    pmix_own *own = kolo_state(launch)->own;
    int rank = -1, size = 0;
    if (launch->size == 1 || !kolo_mpi_built()) return 0;
    kolo_pmi_below below = {
        .context = own, .fence = bridge_fence, .fetch = bridge_fetch, .abort = bridge_abort};
    char *mapping = kolo_node_vector(launch->node_of, launch->size, KOLO_PMI_VALUE - 1);
    int rc = kolo_pmi_bridge_open(&own->bridge, launch->rank, launch->size, mapping, below);
    free(mapping);
    KOLO_TRY(rc);
    launch_watch_begin(kolo_state(launch)->watch, "MPI_Init", LAUNCH_START);
    atomic_store(&own->mpi_starts, true);
    rc = kolo_mpi_start(launch, &rank, &size);
    atomic_store(&own->mpi_starts, false);
    launch_watch_end(kolo_state(launch)->watch);
    kolo_pmi_bridge_hide(own->bridge);
    KOLO_TRY(rc);
    launch->mpi = true;
    if (rank == launch->rank && size == launch->size) return 0;
    kolo_mpi_finish();
    launch->mpi = false;
    PMIx_Finalize(NULL, 0); /* all ranks see this alike */
    return kolo_fail(KOLO_ELAUNCH,
                     "launch: PMIx says rank %d of %d, but MPI says rank %d of %d: this MPI library does not "
                     "take its ranks from PMI_FD; link kolo with MPICH or with an MPI that knows PMIx, or "
                     "start it by srun --mpi=pmi2 or mpiexec",
                     launch->rank, launch->size, rank, size);
}

static void pmix_finish(kolo_launch *launch)
{
    kolo_launch_state *state = kolo_state(launch);
    pmix_own *own = state->own;
    if (!own) return;
    if (!state->broken) {
        if (launch->mpi) kolo_mpi_finish();
        kolo_pmi_bridge_close(&own->bridge);
        PMIx_Finalize(NULL, 0);
    }
    free(own);
    state->own = NULL;
}

static void pmix_abort(kolo_launch *launch, int exit_status)
{
    (void)launch;
    PMIx_Abort(exit_status, "", NULL, 0);
}

#define WATCHED .call = pmix_call, .absent = pmix_absent, .host = pmix_host,
#else
#define WATCHED

static int pmix_start(kolo_launch *launch)
{
    (void)launch;
    return kolo_fail(
        KOLO_ELAUNCH,
        "launch: started by PMIx (srun --mpi=pmix), but kolo was built without it; build it with "
        "PMIX=1, or %s",
        kolo_launch_cure());
}

static int pmix_exchange(kolo_launch *launch, const void *mine, size_t bytes, void *all)
{
    return kolo_method_single.exchange(launch, mine, bytes, all);
}

static int pmix_wired(kolo_launch *launch)
{
    (void)launch;
    return 0;
}
static void pmix_finish(kolo_launch *launch) { (void)launch; }
static void pmix_abort(kolo_launch *launch, int exit_status)
{
    (void)launch;
    (void)exit_status;
}
#endif

const kolo_method kolo_method_pmix = {.name = "pmix",
                                      .fits = pmix_fits,
                                      .start = pmix_start,
                                      .wired = pmix_wired,
                                      .exchange = pmix_exchange,
                                      .finish = pmix_finish,
                                      .abort = pmix_abort,
                                      WATCHED};
