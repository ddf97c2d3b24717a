/* Sums in a GPU's memory between ranks: processes, each with a GPU of its own (or one for all), on the
 * stand-in or on a real one; what they sum, what a step asks for, and what became of each. For the programs
 * comm_reducer*.c of tests/cuda. */
#ifndef TESTS_CUDA_RANKS_H
#define TESTS_CUDA_RANKS_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/plugin.h"
#include "base/thread.h"
#include "comm/buckets/trainer.h"
#include "comm/buckets/reducer.h"
#include "cuda_rig.h"
#include "unit/comm_world.h"

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
    __typeof__(cudaHostAlloc) *alloc_host;
    __typeof__(cudaFreeHost) *release_host;
    __typeof__(cudaFree) *release;
    __typeof__(cudaStreamBeginCapture) *capture;
    __typeof__(cudaStreamEndCapture) *capture_end;
    __typeof__(cudaGraphInstantiate) *instantiate;
    __typeof__(cudaGraphLaunch) *launch;
    __typeof__(cudaGraphDestroy) *graph_destroy;
    __typeof__(cudaGraphExecDestroy) *exec_destroy;
} cuda;

static pthread_once_t found = PTHREAD_ONCE_INIT;
static inline void find_calls(void)
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
                 {"cudaHostAlloc", &cuda.alloc_host},
                 {"cudaFreeHost", &cuda.release_host},
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

static inline int open_cuda(void)
{
    pthread_once(&found, find_calls);
    return cuda.exec_destroy ? 0 : KOLO_ELAUNCH;
}

static inline int check(cudaError_t rc)
{
    return rc == cudaSuccess ? 0 : kolo_fail(KOLO_ELAUNCH, "CUDA error %d", (int)rc);
}

/* ---- ranks --------------------------------------------------------------------------------------------- */

/* How a group of ranks is set up. */
typedef struct setting {
    const char *reducer;
    bool one_gpu, canonical, one_lacks_nccl;
    double timeout, heartbeat_timeout;
    size_t arena_bytes;           /* 0: for COUNT elements */
    int compression;              /* enum comm_compression; as ranks_compress has it */
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

/* Bucket 0 is a matrix, what else there is goes as it is. */
static inline int ranks_compress(kolo_comm *comm, int kind)
{
    const comm_compress config = {
        .kind = kind, .density = 0.05, .rank = 2, .start = kind == COMM_TOPK, .seed = 11};
    const comm_matrix matrix = {.groups = 1, .columns = 700, .lanes = 100};
    return kolo_comm_compress(comm, 0, &config, &matrix, 1);
}

static inline int rank_create(rank *r)
{
    char uuid[48];
    int number = r->set.one_gpu ? 0 : r->w.launch.rank;
    snprintf(uuid, sizeof uuid, "GPU-%d", number);
    KOLO_TRY(open_cuda());
    KOLO_TRY(check(cuda.set_device(standin ? number : 0)));
    KOLO_TRY(check(cuda.stream_create(&r->compute, cudaStreamNonBlocking)));
    KOLO_TRY(check(cuda.stream_create(&r->side, cudaStreamNonBlocking)));
    const kolo_comm_device device = {.compute = r->compute,
                                     .comm = r->side,
                                     .uuid = uuid,
                                     .reducer = r->set.reducer,
                                     .host = r->set.compression && !r->set.reducer};
    kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                               .arena_bytes = r->set.arena_bytes ? r->set.arena_bytes : (size_t)COUNT * 4,
                               .canonical = r->set.canonical,
                               .timeout = r->set.timeout > 0 ? r->set.timeout : 60,
                               .heartbeat_timeout = r->set.heartbeat_timeout,
                               .spin = -1};
    KOLO_TRY(kolo_comm_create_on(&r->comm, &r->w.launch, &config, &device));
    if (r->set.compression) KOLO_TRY(ranks_compress(r->comm, r->set.compression));
    snprintf(outcomes[r->w.launch.rank].name, sizeof outcomes->name, "%s", kolo_comm_name(r->comm));
    return 0;
}

static inline int rank_commit(rank *r)
{
    size_t at = 0;
    r->arena = kolo_comm_arena(r->comm);
    for (int b = 0; b < BUCKETS; at += (size_t)counts[b++] * 4)
        KOLO_TRY(kolo_comm_bucket(r->comm, at, counts[b]));
    return kolo_comm_commit(r->comm);
}

static inline int rank_open(rank *r)
{
    void *doubles;
    KOLO_TRY(rank_create(r));
    KOLO_TRY(rank_commit(r));
    KOLO_TRY(check(cuda.alloc(&doubles, DOUBLES * sizeof(double))));
    r->doubles = doubles;
    r->host = malloc((size_t)COUNT * 4 > DOUBLES * 8 ? (size_t)COUNT * 4 : DOUBLES * 8);
    return r->host ? 0 : KOLO_ECONFIG;
}

static inline void rank_close(rank *r)
{
    kolo_comm_destroy(&r->comm);
    if (r->doubles) cuda.release(r->doubles);
    if (r->compute) cuda.stream_destroy(r->compute);
    if (r->side) cuda.stream_destroy(r->side);
    free(r->host);
}

/* The host waits for the stream, however long it takes; then believes the communicator. */
static inline int rank_wait(rank *r)
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
static inline void ask_standin(outcome *o)
{
    int64_t (*count)(const char *);
    const char *(*defect)(int);
    void *of_count = kolo_cuda_symbol("standin_count"), *of_defect = kolo_cuda_symbol("standin_defect_text");
    if (!of_count || !of_defect) return;
    memcpy(&count, &of_count, sizeof count);
    memcpy(&defect, &of_defect, sizeof defect);
    const char *text = defect(0);
    if (text || count("alive"))
        snprintf(o->left, sizeof o->left, "%ld objects alive; %s", (long)count("alive"),
                 text ? text : "no defect");
}

static inline void *be_rank(void *number)
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
/* A thread sanitizer sees one process: there ranks are threads. Their GPUs have one thread in the stand-in,
 * which no rank's host function may hold up; so no staged sums of several ranks. */
static inline void start_and_join(void)
{
    pthread_t thread[WORLD_MAX];
    for (intptr_t i = 0; i < task.size; i++) pthread_create(&thread[i], NULL, be_rank, (void *)i);
    for (int i = 0; i < task.size; i++) pthread_join(thread[i], NULL);
    ask_standin(&outcomes[0]);
}
#else
static inline void start_and_join(void)
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

static inline int64_t run_ranks(int size, const setting *set, work what, int argument)
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

static inline void say_outcomes(int size)
{
    for (int i = 0; i < size; i++)
        if (outcomes[i].value)
            diag("rank %d, %s: %ld %s", i, outcomes[i].name, (long)outcomes[i].value, outcomes[i].text);
}

/* ---- sums ---------------------------------------------------------------------------------------------- */

static inline int fill(rank *r, int round, bool exact)
{
    for (int64_t i = 0; i < COUNT; i++) r->host[i] = world_value(r->w.launch.rank, i, round, exact);
    KOLO_TRY(check(cuda.copy(r->arena, r->host, (size_t)COUNT * 4, cudaMemcpyHostToDevice, r->compute)));
    KOLO_TRY(rank_wait(r));
    for (int64_t i = 0; i < DOUBLES; i++)
        ((double *)(void *)r->host)[i] = (double)(i % 1009) + 0x1p40 * (r->w.launch.rank + round);
    KOLO_TRY(check(cuda.copy(r->doubles, r->host, DOUBLES * 8, cudaMemcpyHostToDevice, r->compute)));
    return rank_wait(r);
}

static inline int64_t compare(rank *r, int round, bool exact)
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
    for (int64_t i = 0; i < DOUBLES; i++)
        bad += ((double *)(void *)r->host)[i] !=
               (double)(n * (i % 1009)) + 0x1p40 * (n * (n - 1) / 2 + n * round);
    return bad;
}

/* What a step asks for: buckets as they are completed, a sum in the midst of them, waits in another order. */
static inline int enqueue(rank *r)
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

static inline int64_t one_by_one(rank *r, int exact)
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
        KOLO_TRY(kolo_comm_allreduce(r->comm, &host, 1, KOLO_F64, KOLO_SUM));
        bad += host != r->w.launch.size;
    }
    return bad;
}

static inline int64_t only_create(rank *r, int argument)
{
    (void)argument;
    return rank_create(r);
}

/* At the beginning of main. False: no memory to share. */
static inline bool ranks_begin(const char *name)
{
    standin = cuda_rig();
    kolo_log_set_level(KOLO_LOG_WARN);
    snprintf(job, sizeof job, "test-%s.%d", name, (int)getpid());
    outcomes =
        mmap(NULL, WORLD_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return outcomes != MAP_FAILED;
}

static inline int ranks_end(void)
{
    ok(!world_leftovers(job), "nothing is left in /dev/shm");
    if (standin)
        is_int(ranks_that_left, 0, "no rank, however it ended, left anything on its GPU or misused it");
    return done_testing();
}

#endif
