/* The "cuda" backend: its table of operations, and its opening and closing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "launch/device.h"
#include "ops/cuda/dnn.h"

extern const kolo_backend_type kolo_cuda_backend;
int kolo_cuda_devices(kolo_device *list, int *driver, int *runtime);

static const kolo_op_row *const cuda_rows[KOLO_OP_COUNT] = {
#define OP(name, ...) [KOLO_OP_##name] = &kolo_cuda_##name,
#include "graph/ops.def"
#undef OP
};

static const char *version(void)
{
    static __thread char text[96];
    size_t dnn = cudnnGetVersion(), blas = cublasLtGetVersion();
    int cuda = CUDART_VERSION;
    cudaRuntimeGetVersion(&cuda);
    snprintf(text, sizeof text, "CUDA %d.%d, cuDNN %zu.%zu.%zu, cuBLASLt %zu.%zu.%zu", cuda / 1000,
             cuda % 1000 / 10, dnn / 10000, dnn / 100 % 100, dnn % 100, blas / 10000, blas / 100 % 100,
             blas % 100);
    return text;
}

/* What is chosen on such a GPU has the same key whether it is there or not. */
static void set_machine(kolo_cuda *c, const char *name, int capability, int driver)
{
    c->major = capability / 10;
    c->minor = capability % 10;
    snprintf(c->name, sizeof c->name, "%s", name);
    snprintf(c->machine, sizeof c->machine, "%s, sm_%d%d, %s, driver %d.%d", name, c->major, c->minor,
             version(), driver / 1000, driver % 1000 / 10);
}

/* Which GPU it is, and whether it can do what this backend takes for granted. */
static int find_device(kolo_cuda *c, int device)
{
    kolo_device list[KOLO_MAX_DEVICES];
    int driver, runtime, n = kolo_cuda_devices(list, &driver, &runtime);
    KOLO_TRY(n);
    if (device < 0 || device >= n)
        return kolo_fail(KOLO_ELAUNCH, "GPU %d was chosen, but %d can be seen (CUDA_VISIBLE_DEVICES=%s)",
                         device, n, getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "");
    const kolo_device *d = &list[device];
    c->device = device;
    snprintf(c->place, sizeof c->place, "GPU %d (%s, %s)", device, d->name, d->bus);
    set_machine(c, d->name, d->major * 10 + d->minor, driver);
    kolo_cuda_check_name(c->place);
    if (d->major < 8)
        return kolo_fail(
            KOLO_ELAUNCH,
            "%s has compute capability %d.%d; kolo needs 8.0 (A100, RTX 30) or later: use device=cpu",
            c->place, d->major, d->minor);
    return 0;
}

/* Streams that do not wait for the default one. Messages go first: what they wait for is on
 * its way to other ranks. */
static int open_streams(kolo_cuda *c)
{
    int least, greatest;
    KOLO_TRY(KOLO_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest)));
    for (int lane = 0; lane < KOLO_LANES; lane++) {
        int priority = lane == KOLO_LANE_COMM ? greatest : least;
        KOLO_TRY(KOLO_CUDA(cudaStreamCreateWithPriority(&c->stream[lane], cudaStreamNonBlocking, priority)));
    }
    return 0;
}

/* To plan for it alone: no driver is asked, no memory or stream made. */
static int open_described(kolo_cuda *c, const kolo_gpu *gpu)
{
    if (!gpu->json)
        return kolo_fail(KOLO_ECONFIG, "cuDNN has no description of %s (%s.json beside its table)", gpu->name,
                         gpu->name);
    c->device = -1;
    c->processors = gpu->processors;
    c->shared = gpu->shared;
    set_machine(c, gpu->device, gpu->capability, gpu->driver);
    snprintf(c->place, sizeof c->place, "%s", gpu->name);
    return kolo_dnn_profile(&c->dnn_profile, gpu->json);
}

static int open_cuda(kolo_backend *b)
{
    kolo_cuda *c = b->state = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    if (b->gpu) return open_described(c, b->gpu);
    c->compile_seconds = 60;
    c->trial_seconds = b->trial_seconds > 0 ? b->trial_seconds : 2;
    KOLO_TRY(find_device(c, b->device));
    /* a host that waits for the GPU sleeps: the readers need the cores */
    KOLO_TRY(
        KOLO_CUDA(cudaInitDevice(c->device, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid)));
    KOLO_TRY(KOLO_CUDA(cudaSetDevice(c->device)));
    KOLO_TRY(KOLO_CUDA(cudaDeviceGetAttribute(&c->processors, cudaDevAttrMultiProcessorCount, c->device)));
    KOLO_TRY(
        KOLO_CUDA(cudaDeviceGetAttribute(&c->shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, c->device)));
    KOLO_TRY(open_streams(c));
    KOLO_TRY(kolo_cuda_ready(c));
    KOLO_TRY(KOLO_DNN(cudnnCreate(&c->dnn)));
    KOLO_TRY(KOLO_DNN(cudnnSetStream(c->dnn, c->stream[KOLO_LANE_COMPUTE])));
    return KOLO_BLAS(cublasLtCreate(&c->blas));
}

/* After a failure of the device every call here fails too, and changes nothing. */
static void close_device(kolo_backend *b, kolo_cuda *c)
{
    kolo_cuda_enter(b);
    kolo_cuda_order_close(c);
    kolo_cuda_trial_end(b);
    kolo_cuda_tickets_close(c);
    if (c->blas) cublasLtDestroy(c->blas);
    if (c->dnn) cudnnDestroy(c->dnn);
    for (int lane = 0; lane < KOLO_LANES; lane++)
        if (c->stream[lane]) cudaStreamDestroy(c->stream[lane]);
    cudaGetLastError(); /* nobody asks any more */
}

static void close_cuda(kolo_backend *b)
{
    kolo_cuda *c = b->state;
    if (!c) return;
    if (c->dnn_profile) cudnnBackendDestroyDescriptor(c->dnn_profile);
    if (!b->gpu) close_device(b, c);
    free(c);
    b->state = NULL;
}

static const char *machine(kolo_backend *b) { return kolo_cuda_of(b)->machine; }

const kolo_backend_type kolo_cuda_backend = {
    .name = "cuda",
    .version = version,
    .rows = cuda_rows,
    .open = open_cuda,
    .machine = machine,
    .close = close_cuda,
    .enter = kolo_cuda_enter,
    .blocks = kolo_nhwc_blocks,
    .to_canonical = kolo_nhwc_to_canonical,
    .from_canonical = kolo_nhwc_from_canonical,
    .fold = kolo_cuda_fold,
    .divide = kolo_cuda_divide,
    .narrow = kolo_cuda_narrow,
    .device = &kolo_cuda_device,
};
