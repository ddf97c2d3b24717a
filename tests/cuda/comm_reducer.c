/* Sums in a GPU's memory: ranks as processes, each with a GPU of its own (or one for all), against the documented sums;
 * enqueued one by one and as a replayed graph; which reducer is chosen and why; dead, late and failing ranks. On a real
 * GPU only what one GPU can show.
 * mpiexec -n 2, 3 or 4 comm_reducer apart: ranks on several nodes, simulated by a node map, so that the sums cross MPI. */
#include <cuda_runtime_api.h>
#ifdef KOLO_MPI
#include <mpi.h>
#endif
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "../unit/comm_world.h"
#include "base/log.h"
#include "base/plugin.h"
#include "base/thread.h"
#include "comm/reducer.h"
#include "cuda_rig.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

enum { DOUBLES = 20000, BUCKETS = 4, ROUNDS = 3 };
/* Elements; the last is less than a slice, so that one rank sums it alone. */
static const int64_t counts[BUCKETS] = {70001, 3, 40000, 517};
enum { COUNT = 70001 + 3 + 40000 + 517 };

static bool standin;
static char job[64];

/* The CUDA calls of the library under test, whichever that is. */
static struct {
    __typeof__(cudaSetDevice) *set_device;
    __typeof__(cudaStreamCreateWithFlags) *stream_create;
    __typeof__(cudaStreamDestroy) *stream_destroy;
    __typeof__(cudaStreamQuery) *stream_query;
    __typeof__(cudaMemcpyAsync) *copy;
    __typeof__(cudaMalloc) *alloc;
    __typeof__(cudaFree) *release;
    __typeof__(cudaStreamBeginCapture) *capture;
    __typeof__(cudaStreamEndCapture) *capture_end;
    __typeof__(cudaGraphInstantiate) *instantiate;
    __typeof__(cudaGraphLaunch) *launch;
    __typeof__(cudaGraphDestroy) *graph_destroy;
    __typeof__(cudaGraphExecDestroy) *exec_destroy;
} cuda;

static pthread_once_t found = PTHREAD_ONCE_INIT;
static void find_calls(void)
{
    static const struct {
        const char *name;
        void *call;
    } entry[] = {{"cudaSetDevice", &cuda.set_device},
                 {"cudaStreamCreateWithFlags", &cuda.stream_create},
                 {"cudaStreamDestroy", &cuda.stream_destroy},
                 {"cudaStreamQuery", &cuda.stream_query},
                 {"cudaMemcpyAsync", &cuda.copy},
                 {"cudaMalloc", &cuda.alloc},
                 {"cudaFree", &cuda.release},
                 {"cudaStreamBeginCapture", &cuda.capture},
                 {"cudaStreamEndCapture", &cuda.capture_end},
                 {"cudaGraphInstantiate", &cuda.instantiate},
                 {"cudaGraphLaunch", &cuda.launch},
                 {"cudaGraphDestroy", &cuda.graph_destroy},
                 {"cudaGraphExecDestroy", &cuda.exec_destroy}};
    for (size_t i = 0; i < sizeof entry / sizeof *entry; i++) {
        void *call = kolo_cuda_symbol(entry[i].name);
        if (call) memcpy(entry[i].call, &call, sizeof call);
    }
}

static int open_cuda(void)
{
    pthread_once(&found, find_calls);
    return cuda.exec_destroy ? 0 : KOLO_ELAUNCH;
}

static int check(cudaError_t rc) { return rc == cudaSuccess ? 0 : kolo_fail(KOLO_ELAUNCH, "CUDA error %d", (int)rc); }

/* ---- ranks ----------------------------------------------------------------------------------------------------- */

/* How a group of ranks is set up. */
typedef struct setting {
    const char *reducer;
    bool one_gpu, canonical, one_lacks_nccl;
    double timeout, patience;
    const char *variable, *value; /* of the environment, on rank `odd` alone */
    int odd;
} setting;

typedef struct rank {
    world w;
    setting set;
    kolo_comm *comm;
    cudaStream_t compute, side;
    float *arena;
    double *doubles; /* device memory */
    float *host;
} rank;

typedef struct outcome {
    _Atomic int64_t value;
    double seconds;
    char text[1024], name[64], left[256]; /* left: on the GPU, or how it was misused */
} outcome;
static outcome *outcomes;
static int64_t ranks_that_left;

static int rank_create(rank *r)
{
    char uuid[48];
    int number = r->set.one_gpu ? 0 : r->w.launch.rank;
    snprintf(uuid, sizeof uuid, "GPU-%d", number);
    KOLO_TRY(open_cuda());
    KOLO_TRY(check(cuda.set_device(standin ? number : 0)));
    KOLO_TRY(check(cuda.stream_create(&r->compute, cudaStreamNonBlocking)));
    KOLO_TRY(check(cuda.stream_create(&r->side, cudaStreamNonBlocking)));
    const kolo_comm_device device = {.compute = r->compute, .comm = r->side, .uuid = uuid, .reducer = r->set.reducer};
    kolo_comm_config config = {.arena_bytes = (size_t)COUNT * 4,
                               .canonical = r->set.canonical,
                               .timeout = r->set.timeout > 0 ? r->set.timeout : 60,
                               .patience = r->set.patience,
                               .spin = -1};
    KOLO_TRY(kolo_comm_create_on(&r->comm, &r->w.launch, &config, &device));
    snprintf(outcomes[r->w.launch.rank].name, sizeof outcomes->name, "%s", kolo_comm_name(r->comm));
    return 0;
}

static int rank_commit(rank *r)
{
    size_t at = 0;
    r->arena = kolo_comm_arena(r->comm);
    for (int b = 0; b < BUCKETS; at += (size_t)counts[b++] * 4) KOLO_TRY(kolo_comm_bucket(r->comm, at, counts[b]));
    return kolo_comm_commit(r->comm);
}

static int rank_open(rank *r)
{
    void *doubles;
    KOLO_TRY(rank_create(r));
    KOLO_TRY(rank_commit(r));
    KOLO_TRY(check(cuda.alloc(&doubles, DOUBLES * sizeof(double))));
    r->doubles = doubles;
    r->host = malloc((size_t)COUNT * 4 > DOUBLES * 8 ? (size_t)COUNT * 4 : DOUBLES * 8);
    return r->host ? 0 : KOLO_ECONFIG;
}

static void rank_close(rank *r)
{
    kolo_comm_destroy(&r->comm);
    if (r->doubles) cuda.release(r->doubles);
    if (r->compute) cuda.stream_destroy(r->compute);
    if (r->side) cuda.stream_destroy(r->side);
    free(r->host);
}

/* The host waits for the stream, however long it takes; then believes the communicator. */
static int rank_wait(rank *r)
{
    while (cuda.stream_query(r->compute) == cudaErrorNotReady) usleep(100);
    return kolo_comm_status(r->comm);
}

typedef int64_t (*work)(rank *r, int argument);
static struct {
    int size, argument;
    setting set;
    work what;
} task;

/* What the stand-in has against this process. */
static void ask_standin(outcome *o)
{
    int64_t (*count)(const char *);
    const char *(*defect)(int);
    void *of_count = kolo_cuda_symbol("standin_count"), *of_defect = kolo_cuda_symbol("standin_defect_text");
    if (!of_count || !of_defect) return;
    memcpy(&count, &of_count, sizeof count);
    memcpy(&defect, &of_defect, sizeof defect);
    const char *text = defect(0);
    if (text || count("alive")) snprintf(o->left, sizeof o->left, "%ld objects alive; %s", (long)count("alive"), text ? text : "no defect");
}

static void *be_rank(void *number)
{
    int i = (int)(intptr_t)number;
    rank r = {.set = task.set};
    world_fill(&r.w, i, task.size, NULL, job);
    double begin = kolo_time();
    int64_t value = task.what(&r, task.argument);
    outcomes[i].seconds = kolo_time() - begin;
    if (value < 0) snprintf(outcomes[i].text, sizeof outcomes[i].text, "%s", kolo_error_text());
    rank_close(&r);
    outcomes[i].value = value;
    return NULL;
}

#ifdef __SANITIZE_THREAD__
/* A thread sanitizer sees one process: there ranks are threads. Their GPUs have one thread in the stand-in, which no
 * rank's host function may hold up; so no staged sums of several ranks. */
static void start_and_join(void)
{
    pthread_t thread[WORLD_MAX];
    for (intptr_t i = 0; i < task.size; i++) pthread_create(&thread[i], NULL, be_rank, (void *)i);
    for (int i = 0; i < task.size; i++) pthread_join(thread[i], NULL);
    ask_standin(&outcomes[0]);
}
#else
static void start_and_join(void)
{
    pid_t child[WORLD_MAX];
    for (intptr_t i = 0; i < task.size; i++) {
        const setting *set = &task.set;
        child[i] = fork();
        if (child[i]) continue;
        alarm(120);
        if (set->variable && set->odd == i) setenv(set->variable, set->value, 1);
        be_rank((void *)i);
        if (standin) ask_standin(&outcomes[i]);
        exit(0);
    }
    for (int i = 0; i < task.size; i++) {
        int status;
        waitpid(child[i], &status, 0);
        if (status != 0 && outcomes[i].value == 0) outcomes[i].value = 1;
    }
}
#endif

static int64_t run_ranks(int size, const setting *set, work what, int argument)
{
    int64_t sum = 0;
    char devices[16];
    snprintf(devices, sizeof devices, "%d", set->one_gpu ? 1 : size);
    setenv("STANDIN_DEVICES", devices, 1);
    for (int i = 0; i < size; i++) outcomes[i] = (outcome){.value = -1000};
    task.size = size;
    task.argument = argument;
    task.set = *set;
    task.what = what;
    fflush(stdout);
    start_and_join();
    for (int i = 0; i < size; i++) {
        sum += outcomes[i].value < 0 ? 1000000 : outcomes[i].value;
        ranks_that_left += outcomes[i].left[0] != 0;
        if (outcomes[i].left[0]) diag("rank %d: %s", i, outcomes[i].left);
    }
    return sum;
}

static void say_outcomes(int size)
{
    for (int i = 0; i < size; i++)
        if (outcomes[i].value) diag("rank %d, %s: %ld %s", i, outcomes[i].name, (long)outcomes[i].value, outcomes[i].text);
}

/* ---- sums ------------------------------------------------------------------------------------------------------ */

static int fill(rank *r, int round, bool exact)
{
    for (int64_t i = 0; i < COUNT; i++) r->host[i] = world_value(r->w.launch.rank, i, round, exact);
    KOLO_TRY(check(cuda.copy(r->arena, r->host, (size_t)COUNT * 4, cudaMemcpyHostToDevice, r->compute)));
    KOLO_TRY(rank_wait(r));
    for (int64_t i = 0; i < DOUBLES; i++) ((double *)(void *)r->host)[i] = (double)(i % 1009) + 0x1p40 * (r->w.launch.rank + round);
    KOLO_TRY(check(cuda.copy(r->doubles, r->host, DOUBLES * 8, cudaMemcpyHostToDevice, r->compute)));
    return rank_wait(r);
}

static int64_t compare(rank *r, int round, bool exact)
{
    int64_t bad = 0;
    int n = r->w.launch.size;
    KOLO_TRY(check(cuda.copy(r->host, r->arena, (size_t)COUNT * 4, cudaMemcpyDeviceToHost, r->compute)));
    KOLO_TRY(rank_wait(r));
    for (int64_t i = 0; i < COUNT; i += i < 2000 || i > COUNT - 2000 ? 1 : 7) {
        float want = world_sum(&r->w, i, round, exact, r->set.canonical);
        bad += memcmp(&r->host[i], &want, 4) != 0;
    }
    KOLO_TRY(check(cuda.copy(r->host, r->doubles, DOUBLES * 8, cudaMemcpyDeviceToHost, r->compute)));
    KOLO_TRY(rank_wait(r));
    for (int64_t i = 0; i < DOUBLES; i++) bad += ((double *)(void *)r->host)[i] != (double)(n * (i % 1009)) + 0x1p40 * (n * (n - 1) / 2 + n * round);
    return bad;
}

/* What a step asks for: buckets as they are completed, a sum in the midst of them, waits in another order. */
static int enqueue(rank *r)
{
    KOLO_TRY(kolo_comm_start(r->comm, 2));
    KOLO_TRY(kolo_comm_start(r->comm, 0));
    KOLO_TRY(kolo_comm_sum(r->comm, r->doubles, DOUBLES));
    KOLO_TRY(kolo_comm_wait(r->comm, 2));
    KOLO_TRY(kolo_comm_start(r->comm, 1));
    KOLO_TRY(kolo_comm_start(r->comm, 3));
    KOLO_TRY(kolo_comm_wait(r->comm, 3));
    KOLO_TRY(kolo_comm_wait(r->comm, 0));
    return kolo_comm_wait(r->comm, 1);
}

static int64_t one_by_one(rank *r, int exact)
{
    int64_t bad = 0, some;
    KOLO_TRY(rank_open(r));
    for (int round = 0; round < ROUNDS; round++) {
        KOLO_TRY(fill(r, round, exact));
        KOLO_TRY(enqueue(r));
        KOLO_TRY(rank_wait(r));
        KOLO_TRY(some = compare(r, round, exact));
        bad += some;
        double host = 1; /* the host's own collectives go on beside */
        KOLO_TRY(kolo_comm_allreduce(r->comm, &host, 1, KOLO_WIRE_F64, KOLO_SUM));
        bad += host != r->w.launch.size;
    }
    return bad;
}

static int64_t as_graph(rank *r, int exact)
{
    cudaGraph_t graph;
    cudaGraphExec_t step;
    int64_t bad = 0, some;
    KOLO_TRY(rank_open(r));
    KOLO_TRY(check(cuda.capture(r->compute, cudaStreamCaptureModeThreadLocal)));
    int rc = enqueue(r);
    KOLO_TRY(check(cuda.capture_end(r->compute, &graph)));
    KOLO_TRY(rc);
    KOLO_TRY(check(cuda.instantiate(&step, graph, 0)));
    for (int round = 0; round < ROUNDS; round++) {
        KOLO_TRY(fill(r, round, exact));
        KOLO_TRY(check(cuda.launch(step, r->compute)));
        KOLO_TRY(rank_wait(r));
        KOLO_TRY(some = compare(r, round, exact));
        bad += some;
    }
    KOLO_TRY(check(cuda.exec_destroy(step)));
    KOLO_TRY(check(cuda.graph_destroy(graph)));
    return bad;
}

static void check_sums(const char *reducer, int size, bool one_gpu)
{
    const setting set = {.reducer = reducer, .one_gpu = one_gpu};
    bool exact = reducer && !strncmp(reducer, "nccl", 4); /* it has an order of its own */
    is_int(run_ranks(size, &set, one_by_one, exact), 0, "%s, %d ranks: the right sums, one by one", reducer, size);
    say_outcomes(size);
    is_int(run_ranks(size, &set, as_graph, exact), 0, "%s, %d ranks: the right sums, as a replayed graph", reducer, size);
    say_outcomes(size);
    ok(!strncmp(outcomes[0].name, reducer, strlen(reducer)), "it is %s (%s)", reducer, outcomes[0].name);
}

/* ---- which reducer --------------------------------------------------------------------------------------------- */

static int64_t only_create(rank *r, int argument)
{
    (void)argument;
    return rank_create(r);
}

static bool has_nccl(void)
{
    const setting set = {.reducer = "nccl", .one_gpu = true};
    return run_ranks(1, &set, only_create, 0) == 0 || !strstr(outcomes[0].text, "no NCCL");
}

static void check_choice(void)
{
    setting set = {.one_gpu = true};
    const char *reason = has_nccl() ? "ranks 0 and 1 share GPU-0" : "no NCCL";
    is_int(run_ranks(2, &set, only_create, 0), 0, "two ranks with one GPU");
    is_text(outcomes[1].name, "staged", "go through host memory");
    set.reducer = "nccl";
    run_ranks(2, &set, only_create, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && outcomes[1].value == KOLO_ECONFIG && strstr(outcomes[1].text, reason),
       "reducer=nccl is refused there on all ranks: %s", outcomes[1].text);
    set.reducer = "ncll";
    run_ranks(2, &set, only_create, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && strstr(outcomes[0].text, "nccl, staged"), "a reducer that is none: %s", outcomes[0].text);
    set = (setting){.one_gpu = true};
    is_int(run_ranks(1, &set, only_create, 0), 0, "one rank");
    is_text(outcomes[0].name, "none", "has nothing to sum");
    if (!standin) return;
    set = (setting){.canonical = true};
    is_int(run_ranks(3, &set, one_by_one, false), 0, "three ranks, three GPUs, reduce=canonical: the bits of the tree");
    say_outcomes(3);
    is_text(outcomes[2].name, "staged", "through host memory, where the order is ours");
    set = (setting){.variable = "KOLO_NCCL_LIBRARY", .value = "/nowhere/libnccl.so.2", .odd = 1};
    is_int(run_ranks(2, &set, one_by_one, false), 0, "one of two ranks has no NCCL");
    is_text(outcomes[0].name, "staged", "so both go through host memory");
    set.reducer = "nccl";
    run_ranks(2, &set, only_create, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && strstr(outcomes[0].text, "rank 1: no NCCL") && strstr(outcomes[0].text, "/nowhere/"),
       "reducer=nccl says who lacks what: %s", outcomes[0].text);
}

/* ---- failure --------------------------------------------------------------------------------------------------- */

static int64_t never_comes(rank *r, int argument)
{
    (void)argument;
    if (r->w.launch.rank == 1) return 0;
    return rank_create(r);
}

/* Stops this process; a child of it ends it in the end. */
static void stop(void)
{
    if (fork() == 0) {
        usleep(6000000);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

enum { KILLED, STOPPED, LATE };
/* Rank 1 does its part of the first step, and none of the second. */
static int64_t missing(rank *r, int how)
{
    KOLO_TRY(rank_open(r));
    KOLO_TRY(fill(r, 0, true));
    KOLO_TRY(enqueue(r));
    KOLO_TRY(rank_wait(r));
    kolo_comm_publish(r->comm, 17, 88);
    KOLO_TRY(kolo_comm_barrier(r->comm));
    if (r->w.launch.rank == 1) {
        if (how == KILLED) kill(getpid(), SIGKILL);
        if (how == STOPPED) stop();
        for (int i = 0; i < 90 && outcomes[0].value == -1000; i++) usleep(100000);
        return 0;
    }
    kolo_comm_publish(r->comm, 18, 5);
    int rc = enqueue(r);
    if (rc == 0) rc = rank_wait(r);
    if (rc == 0) return 0;
    char text[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    bool again = kolo_comm_status(r->comm) < 0 && kolo_comm_start(r->comm, 0) < 0; /* stays broken */
    kolo_fail(rc, "%s", text);
    return again ? rc : 0;
}

static void check_late(const char *reducer)
{
    const setting set = {.reducer = reducer, .timeout = 3};
    run_ranks(2, &set, missing, LATE);
    ok(outcomes[0].value == KOLO_ELAUNCH && strstr(outcomes[0].text, "rank 1") && strstr(outcomes[0].text, "action 88 of step number 17") &&
           outcomes[0].seconds < 8.5,
       "%s: a rank stands still; after the timeout it is named (%.1f s): %s", reducer, outcomes[0].seconds, outcomes[0].text);
}

static void check_gone(const char *reducer, int how)
{
    const setting set = {.reducer = reducer, .timeout = 30, .patience = how == STOPPED ? 2 : 0};
    run_ranks(3, &set, missing, how);
    int named = 0;
    for (int i = 0; i < 3; i += 2)
        named += outcomes[i].value == KOLO_ELAUNCH && strstr(outcomes[i].text, "rank 1 on host n0") &&
                 strstr(outcomes[i].text, how == STOPPED ? "gave no sign of life for " : "died") && strstr(outcomes[i].text, "action 88 of step number 17") &&
                 outcomes[i].seconds < 15;
    is_int(named, 2, "%s: a rank is %s; the others end soon and name it, its step and action", reducer, how == STOPPED ? "stopped" : "killed");
    if (named < 2) say_outcomes(3);
}

/* A call that fails on rank 1 only, while the communicator is made: nobody is left waiting. */
static void check_open_failure(const char *reducer, int odd, const char *call)
{
    setting set = {.reducer = reducer, .timeout = 20, .variable = "STANDIN_FAIL", .value = call, .odd = odd};
    char name[64], who[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(call, ":"), call);
    snprintf(who, sizeof who, "rank %d on host n0", odd);
    run_ranks(2, &set, one_by_one, true);
    const outcome *one = &outcomes[odd], *other = &outcomes[1 - odd];
    int told = ok(one->value < 0 && other->value < 0 && strstr(other->text, who) && strstr(one->text, name) && other->seconds < 10,
                  "%s: %s fails on one rank: both end at once, both say so", reducer, name);
    if (!told) say_outcomes(2);
}

/* Rank 1 dies while NCCL joins the ranks. */
static int64_t dies_joining(rank *r, int argument)
{
    (void)argument;
    if (r->w.launch.rank == 1) alarm(1);
    return rank_create(r);
}

/* Three steps, which something interrupts. */
static int64_t steps(rank *r, int argument)
{
    int rc = rank_open(r);
    (void)argument;
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        kolo_comm_publish(r->comm, round, 4);
        rc = fill(r, round, true);
        if (rc == 0) rc = enqueue(r);
        if (rc == 0) rc = rank_wait(r);
    }
    return rc;
}

/* Faults that NCCL knows more or less of: what rank `who` says of them, and within how many seconds. */
static void check_nccl_fault(const char *fault, work what, int who, double timeout, double within, const char *says, const char *and)
{
    setting set = {.reducer = "nccl", .timeout = timeout};
    setenv("STANDIN_NCCL", fault, 1);
    run_ranks(2, &set, what, 0);
    unsetenv("STANDIN_NCCL");
    const outcome *o = &outcomes[who];
    ok(o->value == KOLO_ELAUNCH && strstr(o->text, says) && strstr(o->text, and) && o->seconds < within, "nccl, %s: rank %d says (%.1f s): %s", fault, who,
       o->seconds, o->text);
}

static void never_coming(void)
{
    setting set = {.timeout = 3};
    run_ranks(2, &set, never_comes, 0);
    ok(outcomes[0].value == KOLO_ELAUNCH && strstr(outcomes[0].text, "rank 1 on host n0") && outcomes[0].seconds < 10,
       "a rank that does not come is named by the deadline (%.1f s): %s", outcomes[0].seconds, outcomes[0].text);
}

static void killed_staged(void) { check_gone("staged", KILLED); }
static void killed_nccl(void) { check_gone("nccl", KILLED); }
static void stopped_staged(void) { check_gone("staged", STOPPED); }
static void stopped_nccl(void) { check_gone("nccl", STOPPED); }
static void late_staged(void) { check_late("staged"); }
static void late_nccl(void) { check_late("nccl"); }
static void opening_staged(void)
{
    check_open_failure("staged", 1, "cudaMalloc:1");
    check_open_failure("staged", 1, "cudaHostRegister:1");
}
static void opening_nccl(void)
{
    check_open_failure("nccl", 0, "ncclGetUniqueId:1");
    check_open_failure("nccl", 1, "ncclCommInitRankConfig:1");
    check_open_failure("nccl", 1, "ncclAllReduce:1");
}
static void dies_in_nccl(void)
{
    check_nccl_fault("absent:1", dies_joining, 0, 30, 15, "rank 1 on host n0", "died");
    check_nccl_fault("die:1:9", steps, 0, 30, 15, "rank 1 on host n0", "action 4 of step number 0");
}
static void absent_in_nccl(void) { check_nccl_fault("absent:1", only_create, 0, 3, 12, "ncclCommInitRankConfig did not end within 3 s", "NCCL_SOCKET_IFNAME"); }
static void fails_in_nccl(void)
{
    check_nccl_fault("error:1:9", steps, 0, 30, 15, "rank 1 on host n0", "unhandled system error");
    check_nccl_fault("error:1:9", steps, 1, 30, 15, "rank 1 on host n0", "unhandled system error");
}
static void hangs_in_nccl(void) { check_nccl_fault("hang:1:9", steps, 1, 3, 12, "no progress", "action 4 of step number 0"); }

static void (*const drills[])(void) = {never_coming, killed_staged,  late_staged,   opening_staged, killed_nccl,    late_nccl,   opening_nccl,
                                       dies_in_nccl, absent_in_nccl, fails_in_nccl, hangs_in_nccl,  stopped_staged, stopped_nccl};
enum { DRILLS = sizeof drills / sizeof *drills };

/* The drills mostly wait, so they go side by side: each in a process of its own that begins ranks of its own; its lines are told again in order. */
static void check_failures(void)
{
    FILE *lines[DRILLS];
    pid_t child[DRILLS];
    int64_t *left = mmap(NULL, DRILLS * sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    for (int d = 0; d < DRILLS; d++) {
        lines[d] = tmpfile();
        if ((child[d] = fork()) != 0) continue;
        dup2(fileno(lines[d]), STDOUT_FILENO);
        tap_count = tap_failed = 0;
        ranks_that_left = 0;
        outcomes = mmap(NULL, WORLD_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        snprintf(job + strlen(job), sizeof job - strlen(job), ".%d", d);
        drills[d]();
        left[d] = ranks_that_left;
        fflush(stdout);
        _exit(tap_failed != 0);
    }
    for (int d = 0; d < DRILLS; d++) {
        char line[4096];
        int status = 0, number, text;
        waitpid(child[d], &status, 0);
        rewind(lines[d]);
        while (fgets(line, sizeof line, lines[d])) {
            line[strcspn(line, "\n")] = 0;
            bool good = sscanf(line, "ok %d - %n", &number, &text) == 1;
            if (good || sscanf(line, "not ok %d - %n", &number, &text) == 1) ok(good, "%s", line + text);
            else puts(line);
        }
        if (!WIFEXITED(status)) ok(false, "drill %d came to its end", d);
        ranks_that_left += left[d];
        fclose(lines[d]);
    }
    munmap(left, DRILLS * sizeof *left);
}

/* ---- several nodes ---------------------------------------------------------------------------------------------- */

#ifdef KOLO_MPI
static void together(int me, int size, const int *node_of, const char *where, const setting *set, work what, int exact, const char *how)
{
    static int serial;
    rank r = {.set = *set};
    snprintf(job, sizeof job, "test-reducer.%d.%d", (int)getpid(), serial++);
    MPI_Bcast(job, sizeof job, MPI_CHAR, 0, MPI_COMM_WORLD);
    world_fill(&r.w, me, size, node_of, job);
    r.w.launch.mpi = true;
    long long value = what(&r, exact), bad = value < 0 ? 1000000 : value, all = 0;
    if (value < 0) diag("rank %d: %s", me, kolo_error_text());
    rank_close(&r);
    MPI_Allreduce(&bad, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (me == 0) is_int(all, 0, "%s, %d ranks as %s: the right sums, %s", set->reducer, size, where, how);
}

static int main_apart(int argc, char **argv)
{
    static const struct {
        int size;
        const char *name;
        int node_of[4];
    } maps[] = {{2, "1+1", {0, 1}}, {3, "2+1", {0, 0, 1}}, {3, "1+1+1", {0, 1, 2}}, {4, "2+2 cyclic", {0, 1, 0, 1}}};
    int provided, me, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++) {
        if (maps[m].size != size) continue;
        setting set = {.reducer = "staged"};
        together(me, size, maps[m].node_of, maps[m].name, &set, one_by_one, false, "one by one");
        together(me, size, maps[m].node_of, maps[m].name, &set, as_graph, false, "as a replayed graph");
        set.canonical = true;
        together(me, size, maps[m].node_of, maps[m].name, &set, one_by_one, false, "in the canonical order");
        set = (setting){.reducer = "nccl"};
        together(me, size, maps[m].node_of, maps[m].name, &set, one_by_one, true, "one by one");
    }
    MPI_Finalize();
    return me == 0 ? done_testing() : tap_failed;
}
#endif

int main(int argc, char **argv)
{
    standin = cuda_rig();
    kolo_log_set_level(KOLO_LOG_WARN);
    snprintf(job, sizeof job, "test-reducer.%d", (int)getpid());
    if (argc > 1 && strcmp(argv[1], "apart") == 0) {
        setenv("STANDIN_DEVICES", "4", 1);
        outcomes = calloc(WORLD_MAX, sizeof *outcomes);
#ifdef KOLO_MPI
        return main_apart(argc, argv);
#else
        skip_all("built without MPI");
#endif
    }
    outcomes = mmap(NULL, WORLD_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED) skip_all("no shared memory");
#ifdef __SANITIZE_THREAD__
    check_sums("staged", 1, true);
    for (int n = 2; n <= 3; n++) check_sums("nccl", n, false);
    check_late("nccl");
    return done_testing();
#endif
    for (int n = 1; n <= 3; n++) check_sums("staged", n, true);
    check_choice();
    if (standin) {
        for (int n = 1; n <= 3; n++) check_sums("nccl", n, false);
        check_failures();
    } else if (has_nccl()) {
        check_sums("nccl", 1, true);
    } else {
        skip("no NCCL on this system");
    }
    ok(!world_leftovers(job), "nothing is left in /dev/shm");
    if (standin) is_int(ranks_that_left, 0, "no rank, however it ended, left anything on its GPU or misused it");
    return done_testing();
}
