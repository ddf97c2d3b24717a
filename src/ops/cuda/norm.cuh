/* Batch norm on a GPU: what its files share. norm_stats.cu, norm_apply.cu, norm_pool.cu, norm_grad.cu,
 * norm_mask.cu; the meaning of the operations stands in graph/ops.def, their arithmetic in ops/element.h, the
 * order of their work in columns.cuh. Only valid rows count; the others come out as zeros.
 *
 * Bytes that pass through the memory for each element of x, in 16-bit types (f32: twice), sums and parameters
 * being too few to count:
 *
 *   norm_stats        2    x                     none where the convolution forms the sums (conv_norm.c)
 *   norm_apply        4    x, y                  6 with a residual, 6 1/8 where it keeps the signs of y
 *                          0 where the convolution behind it does it, in f16 (conv_norm.c): x
 *                          is read instead of y
 *   norm_infer        4 as norm_apply
 *   norm_grad_stats   4    dy, x                 6 where the relu's sign comes from y (a residual was added),
 *                          4 1/8 from signs
 *   norm_grad_apply   6    dy, x, dx            10 with a residual: y, dresidual; 8 1/8 with signs
 *   norms_grad_apply 10    dy, x and dx of two norms whose results were added; with signs 10 1/8
 *
 *   with a max pool behind that makes one pixel of four:
 *   norm_max_pool             2 3/4    x, y, index
 *   norm_max_pool_grad_stats  2 3/4    dy, x, index
 *   norm_max_pool_grad_apply  4 3/4    dy, x, index, dx
 *
 * In fp16 on sm_90 most of these gradients begin in the convolution behind (conv_grad_norm.c): it reads x,
 * and the residual, 2 or 4, norm_grad_apply moves 6 in any case, and there are no signs.
 *
 * Signs: a byte for each vector of 16 bytes, bit k for its channel k; where there are no vectors ((N, F) of
 * odd F) a byte for each element.
 *
 * Where the residual has a norm of its own, norm_apply reads it before that norm, and both norms' sums of
 * gradients read dy and the sign; g is not written then.
 *
 * ResNet-50 at 224 pixels has 11.11 M such elements an image, 5.52 M of them with a residual, 1.51 M with
 * one that is normed. At batch 256 in bf16 a step moves 5.7 + 12.6 + 30.4 = 48.7 GB, which at the 4.3 TB/s of
 * an H200 takes 11.3 ms; what the cache saves comes off. Partial sums add 1 % to 3 % to the two sums, and
 * each kernel a few microseconds to begin and end: 204 launches a step, a sum being one, whose last blocks
 * add the partial sums (columns.cuh). Where a convolution forms the sums one launch makes f64 of them.
 *
 * Registers leave room for 4 blocks of 256 threads on a multiprocessor in norm_stats and norm_apply, 3 with a
 * residual, 2 with a normed one and in the gradients, so that 64 to 98 KiB of loads may be under way; 30 KiB
 * would fill that memory at a latency of a microsecond. */
#ifndef KOLO_OPS_CUDA_NORM_CUH
#define KOLO_OPS_CUDA_NORM_CUH

#include "ops/cuda/columns.cuh"
#include "ops/cuda/pool.cuh"

typedef struct kolo_norm {
    kolo_columns columns;
    enum kolo_dtype dtype;
    double epsilon;
    bool relu, signs;    /* signs: the gradients read them instead of y */
    bool pooled;         /* dy is that of a max pool between */
    int inputs, outputs; /* args[inputs] is the first output */
    uint32_t *tickets;   /* of sums */
    kolo_pool pool;      /* of norm_max_pool and its gradients */
} kolo_norm;

/* Makes kernel->state, a kolo_norm; over: whose lines its threads take, x or y. norm_stats.cu */
int kolo_norm_prepare(const kolo_kernel_request *request, kolo_kernel *kernel, kolo_cuda_view over);
/* After it, for a kernel that makes sums: their workspace and tickets. */
int kolo_norm_prepare_sums(const kolo_kernel_request *request, kolo_kernel *kernel);

/* Of a channel. Every block begins with these, so there is one division and nothing that waits for a
 * comparison. No valid line: all sums are 0. */
typedef struct kolo_moments {
    double mean, variance, inverse, share; /* inverse: of the deviation; share: of one line in a mean */
} kolo_moments;

KOLO_INLINE kolo_moments kolo_moments_of(double sum, double square, double count, double epsilon)
{
    kolo_moments m;
    m.share = 1 / fmax(count, 1.0);
    m.mean = sum * m.share;
    m.variance = fmax(0.0, square * m.share - m.mean * m.mean);
    m.inverse = rsqrt(m.variance + epsilon);
    return m;
}

/* ---- forward ---------------------------------------------------------------------------------------- */

typedef struct kolo_norm_forward {
    const double *sums;      /* of a batch, or NULL, and then */
    const float *running[2]; /* norm_infer's mean and variance */
    const float *w, *b;
    float *statistic; /* (2C + 1), of a batch; may be NULL */
    double epsilon;
    bool relu;
    const kolo_step *step;
    int slot;
} kolo_norm_forward;

static inline kolo_norm_forward kolo_norm_forward_of(const kolo_norm *n, void *const *sums_w_b,
                                                     void *statistic, const kolo_step *step, int slot)
{
    return {(const double *)sums_w_b[0],
            {NULL, NULL},
            (const float *)sums_w_b[1],
            (const float *)sums_w_b[2],
            (float *)statistic,
            n->epsilon,
            n->relu,
            step,
            slot};
}

/* What one channel is moved and scaled by. */
typedef struct kolo_affine {
    float mean, scale, bias;
} kolo_affine;

/* writes: this block is the one that writes the statistic of its channels. All loads come first. */
static inline __device__ kolo_affine kolo_affine_of(const kolo_norm_forward &f, int channels, int channel,
                                                    bool writes)
{
    const bool real = channel < channels;
    const int c = real ? channel : 0;
    const float w = f.w[c], b = f.b[c];
    kolo_affine a = {0, 0, 0};
    if (!f.sums) {
        const float mean = f.running[0][c], variance = f.running[1][c];
        if (real) a = {mean, (float)((double)w * rsqrt((double)variance + f.epsilon)), b};
        return a;
    }
    const double sum = f.sums[c], square = f.sums[channels + c], count = f.sums[2 * channels];
    const kolo_moments m = kolo_moments_of(sum, square, count, f.epsilon);
    if (!real) return a;
    a = {(float)m.mean, (float)(m.inverse * (double)w), b};
    if (!writes || !f.statistic) return a;
    f.statistic[c] = a.mean;
    f.statistic[channels + c] = (float)(m.variance * (count / fmax(count - 1, 1.0)));
    if (c == 0) f.statistic[2 * channels] = count > 0 ? 1.0f : 0.0f;
    return a;
}

#endif
