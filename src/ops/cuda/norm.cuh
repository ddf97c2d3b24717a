/* Batch norm on a GPU: what its files share. norm_stats.cu, norm_apply.cu, norm_grad.cu; the meaning of the operations
 * stands in graph/ops.def, their arithmetic in ops/element.h, the order of their work in columns.cuh. Only valid rows
 * count; the others come out as zeros.
 *
 * Bytes that pass through the memory for each element of x, in 16-bit types (f32: twice), sums and parameters being too
 * few to count:
 *
 *   norm_stats        2    x                     none where the convolution forms the sums (conv_stats.c)
 *   norm_apply        4    x, y                  6 with a residual, 6 1/8 where it keeps the signs of y
 *   norm_infer        4    as norm_apply
 *   norm_grad_stats   4    dy, x                 6 where the relu's sign comes from y (a residual was added), 4 1/8 from signs
 *   norm_grad_apply   6    dy, x, dx            10 with a residual: y, dresidual; 8 1/8 with signs
 *
 * Signs: a byte for each vector of 16 bytes, bit k for its channel k; where there are no vectors ((N, F) of odd F) a
 * byte for each element.
 *
 * Where the residual has a norm of its own, norm_apply reads it before that norm, and both norms' gradients read dy and
 * the sign; g is not written then.
 *
 * ResNet-50 at 224 pixels has 11.11 M such elements a picture, 5.52 M of them with a residual, 1.51 M with one that is
 * normed. At batch 256 in bf16 a step moves 5.7 + 12.8 + 31.0 = 49.5 GB, which at the 4.3 TB/s of an H200 takes 11.5 ms;
 * what the cache saves comes off. Partial sums add 1 % to 3 % to the two sums, and each kernel a few microseconds to
 * begin and end: 314 launches a step.
 *
 * Registers (nothing spills) leave room for 4 blocks of 256 threads on a multiprocessor in norm_stats and norm_apply, 3
 * with a residual, 2 with a normed one and in the gradients, so that 64 to 98 KiB of loads may be under way; 30 KiB
 * would fill that memory at a latency of a microsecond. */
#ifndef KOLO_OPS_CUDA_NORM_CUH
#define KOLO_OPS_CUDA_NORM_CUH

#include "ops/cuda/columns.cuh"

typedef struct kolo_norm {
    kolo_columns columns;
    enum kolo_dtype dtype;
    double epsilon;
    bool relu, signs;    /* signs: the gradients read them instead of y */
    int inputs, outputs; /* args[inputs] is the first output */
} kolo_norm;

/* Makes kernel->state; input: the one whose shape is normalised. norm_stats.cu */
int kolo_norm_prepare(const kolo_kernel_request *request, kolo_kernel *kernel, int input);

/* Of a channel. Every block begins with these, so there is one division and nothing that waits for a comparison. No
 * valid line: all sums are 0. */
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

#endif
