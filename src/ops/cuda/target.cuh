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

#endif
