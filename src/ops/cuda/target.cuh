/* The target of a row. A block has one row. */
#ifndef KOLO_OPS_CUDA_TARGET_CUH
#define KOLO_OPS_CUDA_TARGET_CUH

#include "ops/cuda/rows.cuh"

/* The first of the largest. */
static __device__ int kolo_row_first_largest(const float *v, int n)
{
    const float most = kolo_row_largest(v, n);
    int left = 0; /* of the row, from the first such number on */
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        left = v[i] == most && n - i > left ? n - i : left;
    left = kolo_row_max(left);
    return left ? n - left : 0;
}

/* All threads of the block call it together. */
static __device__ kolo_target kolo_target_of(const void *labels, int row, int words, int classes)
{
    if (words) return kolo_target_of_classes((const int32_t *)labels + (int64_t)row * words, words);
    const float *number = (const float *)labels + (int64_t)row * classes;
    const kolo_target t = {kolo_row_first_largest(number, classes), -1, 1, number, 1};
    return t;
}

/* The target of class i. */
KOLO_INLINE float kolo_target_at(const kolo_target &t, int i)
{
    if (t.number) return t.number[i];
    return (i == t.heavier ? t.weight : 0) + (i == t.lighter ? 1 - t.weight : 0);
}

/* Rows' metrics, loss and hits, from each thread's share, and the number of rows; all threads of the block.
 * bad: the rows less the number of the first with a bad label, 0 for none. Returns that of the block in its
 * first thread, 0 in the others. */
static __device__ int kolo_class_metrics(float *metric, double loss, int top1, int top5, int bad, int rows)
{
    loss = kolo_row_sum(loss);
    top1 = kolo_row_sum(top1);
    top5 = kolo_row_sum(top5);
    bad = kolo_row_max(bad);
    if (threadIdx.x) return 0;
    metric[0] = (float)loss;
    metric[1] = (float)top1;
    metric[2] = (float)top5;
    metric[3] = (float)(rows > 0 ? rows : 0);
    return bad;
}

#endif
