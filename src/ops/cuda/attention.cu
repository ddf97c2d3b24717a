/* window_attention: y = softmax(q k' / sqrt(depth) + relative bias [- 100 across regions]) v. */
#include "ops/cuda/attention.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = KOLO_ATTENTION_THREADS, WARPS = KOLO_ATTENTION_WARPS, TURNS = KOLO_ATTENTION_TURNS };

template <typename T>
__global__ void __launch_bounds__(THREADS)
    attention_kernel(T *y, const T *qkv, const float *table, kolo_attention a)
{
    KOLO_SHARED(float, q);
    __shared__ kolo_window_pixel pixel[KOLO_ATTENTION_PIXELS];
    float *k = q + kolo_quads_floats(a), *v = k + kolo_quads_floats(a);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float *weight = v + kolo_quads_floats(a) + warp * 16 * a.quads,
          *bias = v + kolo_quads_floats(a) + WARPS * 16 * a.quads;
    const int head = (int)blockIdx.x % a.heads, window = (int)blockIdx.x / a.heads,
              origin = kolo_window_origin(a);
    for (int i = (int)threadIdx.x; i < a.pixels; i += THREADS) pixel[i] = kolo_window_at(a, window, i);
    for (int i = (int)threadIdx.x; i < a.bins; i += THREADS) bias[i] = table[(int64_t)i * a.heads + head];
    __syncthreads();
    kolo_quads_load(q, qkv, a.stored_qkv, head * a.depth, pixel, a, a.scale);
    kolo_quads_load(k, qkv, a.stored_qkv, a.channels + head * a.depth, pixel, a, 1);
    kolo_quads_load(v, qkv, a.stored_qkv, 2 * a.channels + head * a.depth, pixel, a, 1);
    __syncthreads();
    for (int g = warp; g < a.quads; g += WARPS) {
        float s[TURNS][4] = {};
        kolo_quads_product(s, q, g, k, a, lane);
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const kolo_window_pixel own = pixel[4 * g + r < a.pixels ? 4 * g + r : 0];
            float most = kolo_bits_float(0xFF800000u), sum = 0; /* -infinity */
#pragma unroll
            for (int u = 0; u < TURNS; u++) {
                const int j = lane + 32 * u;
                s[u][r] = j < a.pixels ? s[u][r] + kolo_window_bias(bias, own, pixel[j], origin)
                                       : kolo_bits_float(0xFF800000u);
                most = s[u][r] > most ? s[u][r] : most;
            }
            most = kolo_lanes_max(most);
#pragma unroll
            for (int u = 0; u < TURNS; u++)
                sum += s[u][r] = lane + 32 * u < a.pixels ? expf(s[u][r] - most) : 0;
            const float share = 1 / kolo_lanes_sum(sum);
#pragma unroll
            for (int u = 0; u < TURNS; u++)
                if (lane + 32 * u < 4 * a.quads) weight[4 * (lane + 32 * u) + r] = s[u][r] * share;
        }
        __syncwarp();
        for (int c = lane; c < a.depth; c += 32) {
            float sum[4];
            kolo_quads_sum(sum, weight, v, c, a);
            for (int r = 0; r < 4 && 4 * g + r < a.pixels; r++)
                kolo_round(sum[r], y + (int64_t)pixel[4 * g + r].at * a.stored + head * a.depth + c);
        }
        __syncwarp();
    }
    const int padding = head == 0 ? a.stored - a.channels : 0;
    for (int i = (int)threadIdx.x; i < a.pixels * padding; i += THREADS)
        kolo_round(0.0f, y + (int64_t)pixel[i / padding].at * a.stored + a.channels + i % padding);
}

/* in: qkv, table; out: y */
static int cuda_attention_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const kolo_attention *a = (const kolo_attention *)k->state;
    if (a->tensor)
        return kolo_attention_tensor_run(a, kolo_cuda_stream(k), args[2], args[0], (const float *)args[1]);
    KOLO_FOR_DTYPE(a->dtype, T,
                   return KOLO_LAUNCH(attention_kernel<T>, a->windows * a->heads, THREADS, a->shared,
                                      kolo_cuda_stream(k), (T *)args[2], (const T *)args[0],
                                      (const float *)args[1], *a));
}

/* ---- what both directions ask -------------------------------------------------------------------------- */

static void cuda_attention_describe(kolo_attention *a, const kolo_attributes *n, const kolo_cuda_view *qkv,
                                    const kolo_cuda_view *y)
{
    for (int i = 0; i < 2; i++) {
        a->window[i] = (int)n->kernel[i];
        a->shift[i] = (int)n->pad[i];
        a->round[i] = (int)n->beyond[i];
    }
    a->height = (int)qkv->height, a->width = (int)qkv->width;
    a->heads = (int)n->groups;
    a->channels = (int)y->channels;
    a->depth = a->channels / a->heads;
    a->stored_qkv = (int)qkv->stored, a->stored = (int)y->stored;
    a->pixels = a->window[0] * a->window[1];
    a->quads = (a->pixels + 3) / 4;
    a->down = a->height / a->window[0], a->across = a->width / a->window[1];
    a->windows = (int)qkv->rows * a->down * a->across;
    a->bins = (2 * a->window[0] - 1) * (2 * a->window[1] - 1);
    a->scale = (float)(1 / sqrt((double)a->depth));
    a->dtype = qkv->dtype;
}

int kolo_attention_prepare(const kolo_kernel_request *r, kolo_kernel *k, const kolo_cuda_view *qkv,
                           const kolo_cuda_view *y, int arrays, int wide, int tables)
{
    const kolo_attributes *n = &r->node->a;
    const int64_t area = n->kernel[0] * n->kernel[1], depth = y->channels / n->groups;
    if (area > KOLO_ATTENTION_PIXELS || depth > KOLO_ATTENTION_DEPTH)
        return kolo_fail(KOLO_ECONFIG,
                         "attention of windows of %ld x %ld pixels and heads of %ld channels: on a GPU at "
                         "most %d pixels and %d channels; use device=cpu",
                         (long)n->kernel[0], (long)n->kernel[1], (long)depth, KOLO_ATTENTION_PIXELS,
                         KOLO_ATTENTION_DEPTH);
    if (qkv->rows * qkv->pixels > INT32_MAX / 2 || qkv->rows * qkv->pixels / area * n->groups > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "attention of %ld maps of %ld pixels is too large; use a smaller micro_batch",
                         (long)qkv->rows, (long)qkv->pixels);
    kolo_attention *a = (kolo_attention *)kolo_alloc(sizeof *a);
    if (!a) return KOLO_ENOMEM;
    k->state = a;
    k->release = free;
    cuda_attention_describe(a, n, qkv, y);
    a->shared = sizeof(float) * ((size_t)arrays * (size_t)kolo_quads_floats(*a) +
                                 (size_t)(wide * 4 * a->quads * WARPS + tables * a->bins));
    a->allowed = kolo_cuda_of(r->backend)->shared;
    a->allowed -= (int)(sizeof(kolo_window_pixel) + 16) * KOLO_ATTENTION_PIXELS; /* of the kernels' own */
    if (a->allowed < 0 || a->shared > (size_t)a->allowed)
        return kolo_fail(KOLO_ECONFIG,
                         "attention of windows of %ld x %ld pixels and heads of %ld channels takes %zu bytes "
                         "of shared memory, and this GPU has %d; use device=cpu or smaller windows",
                         (long)n->kernel[0], (long)n->kernel[1], (long)depth, a->shared, a->allowed);
    snprintf(k->name, sizeof k->name, "own %s, %zu KiB a window and head", kolo_dtype_name(a->dtype),
             (a->shared + 1023) / 1024);
    return 0;
}

static int cuda_attention_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const kolo_cuda_view qkv = kolo_cuda_view_in(r, 0), y = kolo_cuda_view_out(r, 0);
    if (!kolo_request_in(r, 1)) return kolo_attention_all_prepare(r, k, &qkv, &y);
    KOLO_TRY(kolo_attention_prepare(r, k, &qkv, &y, 3, 4, 1));
    const kolo_attention *a = (const kolo_attention *)k->state;
    k->run = cuda_attention_run;
    if (kolo_attention_tensor_prepare(k, false) || r->backend->gpu) return 0; /* gpu: it is not there */
    KOLO_FOR_DTYPE(a->dtype, T,
                   return KOLO_CUDA(cudaFuncSetAttribute(
                       attention_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, a->allowed)));
}

const kolo_op_row kolo_cuda_window_attention = {NULL, cuda_attention_prepare};
