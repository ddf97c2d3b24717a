/* embed: tokens of a map, a first one of its own, then the pixels, each with its position; and its
 * gradients. */
#include "ops/cuda/cells.cuh"

extern "C" {
#include "base/memory.h"
}

enum { THREADS = 256 };

typedef struct embed {
    int rows, tokens, channels, stored;
    kolo_divisor lanes, sequence; /* by `stored`, by `tokens` */
    enum kolo_dtype dtype;
} embed;

/* A thread an element of y. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    embed_kernel(T *y, const T *x, const float *first, const float *position, embed p)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    const uint32_t pixel = kolo_quotient(i, p.lanes), n = kolo_quotient(pixel, p.sequence);
    const int c = (int)(i - pixel * p.lanes.by), t = (int)(pixel - n * p.sequence.by);
    if ((int)n >= p.rows) return;
    float v = 0;
    if (c < p.channels) {
        v = t ? kolo_widen(x[((int64_t)n * (p.tokens - 1) + t - 1) * p.stored + c]) : first[c];
        v += position[(int64_t)t * p.channels + c];
    }
    kolo_round(v, y + i);
}

/* A thread a token's channel in all rows, which it adds in their order. dx, dfirst, dposition may be NULL. */
template <typename T>
__global__ void __launch_bounds__(THREADS)
    embed_grad_kernel(T *dx, float *dfirst, float *dposition, const T *dy, embed p)
{
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x, token = kolo_quotient(i, p.lanes);
    const int c = (int)(i - token * p.lanes.by), t = (int)token;
    float sum = 0;
    if (t >= p.tokens) return;
    for (int n = 0; n < p.rows; n++) {
        const T v = dy[((int64_t)n * p.tokens + t) * p.stored + c];
        sum += kolo_widen(v);
        if (dx && t) dx[((int64_t)n * (p.tokens - 1) + t - 1) * p.stored + c] = v;
    }
    if (c >= p.channels) return;
    if (dposition) dposition[(int64_t)t * p.channels + c] = sum;
    if (dfirst && t == 0) dfirst[c] = sum;
}

static unsigned blocks(int64_t threads) { return (unsigned)((threads + THREADS - 1) / THREADS); }

/* in: x, first, position; out: y */
static int cuda_embed_run(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const embed *p = (const embed *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(embed_kernel<T>, blocks((int64_t)p->rows * p->tokens * p->stored),
                                      THREADS, 0, kolo_cuda_stream(k), (T *)args[3], (const T *)args[0],
                                      (const float *)args[1], (const float *)args[2], *p));
}

/* in: dy; out: dx, dfirst, dposition */
static int cuda_embed_run_grad(const kolo_kernel *k, void *const *args, void *, const kolo_step *, int)
{
    const embed *p = (const embed *)k->state;
    KOLO_FOR_DTYPE(p->dtype, T,
                   return KOLO_LAUNCH(embed_grad_kernel<T>, blocks((int64_t)p->tokens * p->stored), THREADS,
                                      0, kolo_cuda_stream(k), (T *)args[1], (float *)args[2],
                                      (float *)args[3], (const T *)args[0], *p));
}

static int cuda_embed_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool back = r->node->op == KOLO_OP_embed_grad;
    const kolo_cuda_view y = back ? kolo_cuda_view_in(r, 0) : kolo_cuda_view_out(r, 0);
    if (y.rows * y.pixels * y.stored > INT32_MAX - THREADS)
        return kolo_fail(KOLO_ECONFIG, "%ld rows of %ld tokens are too large; use a smaller micro_batch",
                         (long)y.rows, (long)y.pixels);
    embed *p = (embed *)kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->rows = (int)y.rows, p->tokens = (int)y.pixels;
    p->channels = (int)y.channels, p->stored = (int)y.stored;
    p->lanes = kolo_divisor_of(y.stored), p->sequence = kolo_divisor_of(y.pixels);
    p->dtype = y.dtype;
    k->state = p;
    k->release = free;
    k->run = back ? cuda_embed_run_grad : cuda_embed_run;
    snprintf(k->name, sizeof k->name, "own %s", kolo_dtype_name(p->dtype));
    return 0;
}

const kolo_op_row kolo_cuda_embed = {NULL, cuda_embed_prepare};
const kolo_op_row kolo_cuda_embed_grad = {NULL, cuda_embed_prepare};
