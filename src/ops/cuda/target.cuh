/* What a row is to be told apart as: one class, two with weights, or a number for each class. A block has one row. */
#ifndef KOLO_OPS_CUDA_TARGET_CUH
#define KOLO_OPS_CUDA_TARGET_CUH

#include "ops/cuda/rows.cuh"

typedef struct kolo_target {
    int heavier, lighter; /* of numbers: the largest and -1; of one class: it and -1 */
    float weight;         /* of the heavier class; the lighter has 1 - weight */
    const float *number;  /* [classes] or NULL */
    bool fits;            /* the classes are among the network's */
    int32_t bad;          /* else: one that is not */
} kolo_target;

/* Words of a label as the loader gives it (1 or 3); 0: numbers. */
static inline int kolo_target_words(const kolo_tensor *labels)
{
    return labels->dtype == KOLO_F32 ? 0 : labels->rank == 1 ? 1 : (int)labels->dim[1];
}

/* The first of the largest. */
static __device__ int kolo_row_first_largest(const float *v, int n)
{
    const float most = kolo_row_largest(v, n);
    int left = 0; /* of the row, from the first such number on */
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x) left = v[i] == most && n - i > left ? n - i : left;
    left = kolo_row_max(left);
    return left ? n - left : 0;
}

/* All threads of the block call it together. */
static __device__ kolo_target kolo_target_of(const void *labels, int row, int words, int classes)
{
    kolo_target t = {0, -1, 1, NULL, true, 0};
    if (words == 0) {
        t.number = (const float *)labels + (int64_t)row * classes;
        t.heavier = kolo_row_first_largest(t.number, classes);
        return t;
    }
    const int32_t *label = (const int32_t *)labels + (int64_t)row * words;
    t.heavier = label[0];
    if (words == 3) {
        t.lighter = label[1];
        t.weight = kolo_bits_float((uint32_t)label[2]);
        if (!(t.weight >= 0.5f)) {
            t.weight = 1 - t.weight;
            t.heavier = label[1];
            t.lighter = label[0];
        }
    }
    const bool first = t.heavier >= 0 && t.heavier < classes,
               second = words < 3 || (t.lighter >= 0 && t.lighter < classes);
    t.fits = first && second;
    t.bad = first ? t.lighter : t.heavier;
    return t;
}

/* The target of class i. */
KOLO_INLINE float kolo_target_at(const kolo_target &t, int i)
{
    if (t.number) return t.number[i];
    return (i == t.heavier ? t.weight : 0) + (i == t.lighter ? 1 - t.weight : 0);
}

#endif
