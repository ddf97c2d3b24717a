/* What the stand-in for a GPU does not let pass: orders that were not stated, memory of the other side,
 * barriers that not all threads reach, calls that a capture forbids. A test that relies on it relies on
 * this. */
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "cuda_rig.h"
#include "standin/ask.h"
#include "standin/kernel.h"

#define CALLS(X)                 \
    X(cudaMalloc)                \
    X(cudaFree)                  \
    X(cudaHostAlloc)             \
    X(cudaFreeHost)              \
    X(cudaStreamCreateWithFlags) \
    X(cudaStreamDestroy)         \
    X(cudaStreamSynchronize)     \
    X(cudaMemcpyAsync)           \
    X(cudaMemsetAsync)           \
    X(cudaEventCreateWithFlags)  \
    X(cudaEventDestroy)          \
    X(cudaEventRecord)           \
    X(cudaEventRecordWithFlags)  \
    X(cudaStreamWaitEvent)       \
    X(cudaEventQuery)            \
    X(cudaStreamBeginCapture)    \
    X(cudaStreamEndCapture)      \
    X(cudaGraphInstantiate)      \
    X(cudaGraphLaunch)           \
    X(cudaGraphExecDestroy)      \
    X(cudaGraphDestroy)          \
    X(cudaLaunchHostFunc)        \
    X(cudaGetLastError)          \
    X(kolo_emulate_launch)       \
    X(kolo_emulate_barrier)      \
    X(kolo_emulate_exchange)     \
    X(kolo_emulate_shared)
static struct {
#define CALL(name) __typeof__(name) *name;
    CALLS(CALL)
#undef CALL
    kolo_emulate_thread **now;
} gpu;

static cudaStream_t a, b;
static cudaEvent_t event;
static float *device, *pinned; /* N each */
enum { N = 1024, BYTES = N * sizeof(float), ROUNDS = 40 };

static void must(cudaError_t rc, const char *what)
{
    if (rc == cudaSuccess) return;
    printf("Bail out! %s: error %d\n", what, (int)rc);
    exit(1);
}
#define MUST(call) must(gpu.call, #call)

static void open_all(void)
{
    void *library = dlopen(getenv("KOLO_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!library || !dlsym(library, "standin_count")) skip_all("KOLO_CUDA_LIBRARY is not the stand-in");
#define CALL(name) *(void **)&gpu.name = dlsym(library, #name);
    CALLS(CALL)
#undef CALL
    *(void **)&gpu.now = dlsym(library, "kolo_emulate_now");
    MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
    MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
    MUST(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    MUST(cudaMalloc((void **)&device, BYTES));
    MUST(cudaHostAlloc((void **)&pinned, BYTES, 0));
}

static void breach(const char *what)
{
    int64_t defects = ask_count("defects");
    const char *text = ask_defect(0);
    ok(defects > 0, "%s is a defect: %s", what, text ? text : "");
    ask_forgive();
}

/* ---- order ---- */

/* Stream a writes, stream b reads; how often the reader came too early. */
static int early(bool ordered)
{
    int wrong = 0;
    for (int round = 0; round < ROUNDS; round++) {
        MUST(cudaMemsetAsync(device, 0, BYTES, a));
        MUST(cudaStreamSynchronize(a));
        MUST(cudaMemsetAsync(device, 0x11, BYTES, a));
        if (ordered) {
            MUST(cudaEventRecord(event, a));
            MUST(cudaStreamWaitEvent(b, event, 0));
        }
        MUST(cudaMemcpyAsync(pinned, device, BYTES, cudaMemcpyDeviceToHost, b));
        MUST(cudaStreamSynchronize(b));
        wrong += pinned[0] == 0;
        MUST(cudaStreamSynchronize(a));
    }
    return wrong;
}

static void check_order(void)
{
    int wrong = early(false);
    ok(wrong > 0 && wrong < ROUNDS, "without an event between two streams either may be first (%d of %d)",
       wrong, ROUNDS);
    is_int(early(true), 0, "with one the order holds");
    pinned[0] = 1;
    MUST(cudaMemcpyAsync(device, pinned, BYTES, cudaMemcpyHostToDevice, a));
    pinned[0] = 2; /* too soon */
    MUST(cudaMemcpyAsync(pinned + 1, device, sizeof(float), cudaMemcpyDeviceToHost, a));
    MUST(cudaStreamSynchronize(a));
    is_int(pinned[1], 2, "a pinned buffer that is written before its copy is done shows in the copy");
    MUST(cudaMemsetAsync(device, 0, BYTES, a));
    MUST(cudaEventRecord(event, a));
    is_int(gpu.cudaEventQuery(event), cudaErrorNotReady, "what was just enqueued is not done");
    MUST(cudaStreamSynchronize(a));
    is_int(gpu.cudaEventQuery(event), cudaSuccess, "after a wait it is");
}

/* ---- graphs ---- */

static char order[8];
static void put_a(void *unused) { (void)unused, strcat(order, "a"); }
static void put_b(void *unused) { (void)unused, strcat(order, "b"); }

/* a and b of one capture, side by side or one after another: the orders seen in replays. */
static int orders_seen(bool joined_first)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t fork;
    int seen[2] = {0, 0};
    MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    if (!joined_first) MUST(cudaEventRecord(fork, a));
    MUST(cudaLaunchHostFunc(a, put_a, NULL));
    if (joined_first) MUST(cudaEventRecord(fork, a));
    MUST(cudaStreamWaitEvent(b, fork, 0));
    MUST(cudaLaunchHostFunc(b, put_b, NULL));
    MUST(cudaEventRecord(event, b));
    MUST(cudaStreamWaitEvent(a, event, 0));
    MUST(cudaStreamEndCapture(a, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < ROUNDS; round++) {
        order[0] = 0;
        MUST(cudaGraphLaunch(exec, a));
        MUST(cudaStreamSynchronize(a));
        if (strlen(order) == 2) seen[order[0] == 'b'] = 1;
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
    MUST(cudaEventDestroy(fork));
    MUST(cudaEventRecord(event, a)); /* means something outside again */
    return seen[0] + 2 * seen[1];
}

enum forbidden { ALLOCATION, SYNCHRONISATION, QUERY, FOREIGN_EVENT, NO_JOIN };
static const char *const forbidden_name[] = {"an allocation", "a synchronisation",
                                             "a question about an event", "an event from outside",
                                             "a stream that does not join"};

static cudaError_t spoil(enum forbidden how)
{
    cudaGraph_t graph = NULL;
    cudaEvent_t fork;
    void *memory = NULL;
    MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    MUST(cudaEventRecord(event, b));
    MUST(cudaStreamSynchronize(b));
    MUST(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal));
    MUST(cudaMemsetAsync(device, 0, BYTES, a));
    if (how == ALLOCATION) gpu.cudaMalloc(&memory, 16);
    if (how == SYNCHRONISATION) gpu.cudaStreamSynchronize(a);
    if (how == QUERY) gpu.cudaEventQuery(event);
    if (how == FOREIGN_EVENT) gpu.cudaStreamWaitEvent(a, event, 0);
    if (how == NO_JOIN) {
        MUST(cudaEventRecord(fork, a));
        MUST(cudaStreamWaitEvent(b, fork, 0));
        MUST(cudaMemsetAsync(device, 1, BYTES, b));
    }
    cudaError_t rc = gpu.cudaStreamEndCapture(a, &graph);
    gpu.cudaGetLastError();
    if (graph) gpu.cudaGraphDestroy(graph);
    MUST(cudaEventDestroy(fork));
    return rc;
}

static void check_graphs(void)
{
    is_int(orders_seen(false), 3, "in a graph, what is side by side is done in either order");
    is_int(orders_seen(true), 1, "and what follows is not");
    for (int how = ALLOCATION; how <= NO_JOIN; how++) {
        ok(spoil((enum forbidden)how) != cudaSuccess, "%s spoils a capture", forbidden_name[how]);
        breach("that");
    }
}

/* ---- memory ---- */

static void check_memory(void)
{
    float first;
    MUST(cudaMemcpyAsync(pinned, device, BYTES, cudaMemcpyDeviceToHost, a));
    MUST(cudaStreamSynchronize(a));
    void *fresh = NULL;
    MUST(cudaMalloc(&fresh, 64));
    MUST(cudaMemcpyAsync(&pinned[7], fresh, sizeof(float), cudaMemcpyDeviceToHost, a));
    MUST(cudaStreamSynchronize(a));
    ok(isnan(pinned[7]), "device memory that was never written is not a number");
    MUST(cudaFree(fresh));
    is_int(gpu.cudaMemcpyAsync(pinned, device, BYTES + 4, cudaMemcpyDeviceToHost, a), cudaErrorInvalidValue,
           "a copy beyond its memory is refused");
    breach("that");
    is_int(gpu.cudaMemcpyAsync(pinned, device, 4, cudaMemcpyHostToDevice, a), cudaErrorInvalidValue,
           "so is one that goes another way than it says");
    breach("that");
    gpu.cudaGetLastError();
    int64_t before = ask_count("pageable");
    MUST(cudaMemcpyAsync(&first, device, sizeof first, cudaMemcpyDeviceToHost, a));
    is_int(ask_count("pageable") - before, 1, "a copy of memory that is not pinned is counted");
    MUST(cudaStreamSynchronize(a));
#if !defined(__SANITIZE_ADDRESS__) /* which takes device memory from malloc */
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fclose(stderr);
        signal(SIGSEGV, SIG_DFL);
        _exit(*(volatile float *)device == 0 ? 3 : 4);
    }
    int status = 0;
    waitpid(child, &status, 0);
    ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, "a host that follows a device pointer dies");
#endif
}

/* ---- kernels ---- */

static void keep(void *body) { (void)body; }

static cudaError_t launch(const char *name, void (*body)(void *), int64_t grid, int64_t block, size_t shared,
                          void *argument)
{
    kolo_emulate_config c = {name, __FILE__, __LINE__, grid, block, shared, a, (const void *)(uintptr_t)body};
    gpu.kolo_emulate_launch(&c, argument, body, keep);
    return gpu.cudaGetLastError();
}

static unsigned self(void) { return (*gpu.now)->thread.x; }

/* Sum over the block of 0, 1, ...: shuffles, shared memory, a barrier. */
static void sum_body(void *out)
{
    float *part = gpu.kolo_emulate_shared(), sum = (float)self();
    for (unsigned lanes = 16; lanes; lanes /= 2) {
        uint64_t word = 0;
        memcpy(&word, &sum, sizeof sum);
        float other;
        memcpy(&other, &gpu.kolo_emulate_exchange(word, 0xffffffffu, 1)[(self() % 32) ^ lanes], sizeof other);
        sum += other;
    }
    if (self() % 32 == 0) part[self() / 32] = sum;
    gpu.kolo_emulate_barrier(2);
    if (self() > 0) return;
    sum = 0;
    for (unsigned w = 0; w < (*gpu.now)->threads.x / 32; w++) sum += part[w];
    ((float *)out)[(*gpu.now)->block.x] = sum;
}

static void blank_body(void *out)
{
    if (self() == 0) *(float *)out = *(float *)gpu.kolo_emulate_shared();
}

static void early_body(void *unused)
{
    (void)unused;
    if (self() >= 40) gpu.kolo_emulate_barrier(3);
}

static void check_kernels(void)
{
    must(launch("sum", sum_body, 5, 96, 64, device), "launch");
    MUST(cudaMemcpyAsync(pinned, device, 5 * sizeof(float), cudaMemcpyDeviceToHost, a));
    MUST(cudaStreamSynchronize(a));
    int right = 0;
    for (int i = 0; i < 5; i++) right += pinned[i] == 96 * 95 / 2;
    is_int(right, 5, "threads of a block meet at shuffles and barriers");
    must(launch("blank", blank_body, 1, 32, 64, device), "launch");
    MUST(cudaMemcpyAsync(pinned, device, sizeof(float), cudaMemcpyDeviceToHost, a));
    MUST(cudaStreamSynchronize(a));
    ok(isnan(pinned[0]), "shared memory begins as no number");
    ok(launch("none", sum_body, 0, 96, 64, device) == cudaErrorInvalidConfiguration, "no blocks are refused");
    breach("that");
    ok(launch("much", sum_body, 1, 96, 50000, device) == cudaErrorInvalidValue,
       "so is more shared memory than was allowed");
    breach("that");
    ok(launch("wide", sum_body, 1, 1056, 64, device) == cudaErrorInvalidConfiguration,
       "so are more than 1,024 threads");
    ask_forgive();
}

static void check_end(void)
{
    MUST(cudaFreeHost(pinned));
    MUST(cudaEventDestroy(event));
    is_int(ask_count("alive"), 3, "a stream, another and a piece of memory are still there");
    must(launch("early", early_body, 1, 64, 0, device), "launch");
    is_int(gpu.cudaStreamSynchronize(a), cudaErrorLaunchFailure,
           "a barrier that some threads do not reach fails the kernel");
    ok(strstr(ask_defect(0) ? ask_defect(0) : "", "kernel early") != NULL, "which is named: %s",
       ask_defect(0));
    is_int(gpu.cudaMemsetAsync(device, 0, 4, b), cudaErrorLaunchFailure, "and nothing works any more");
    gpu.cudaFree(device);
    gpu.cudaStreamDestroy(a);
    gpu.cudaStreamDestroy(b);
    is_int(ask_count("alive"), 0, "but all can be given back");
}

int main(void)
{
    cuda_rig();
    open_all();
    check_order();
    check_graphs();
    check_memory();
    check_kernels();
    check_end();
    return done_testing();
}
