/* The windows of adaptive average pooling, shared by C and CUDA: the axis of n pixels seen from one of m
 * pixels. Pixel i of the m has the window [i n / m rounded down, (i + 1) n / m rounded up) of the n, of at
 * least one pixel, whichever is the larger; windows overlap where n / m is no whole number. Pixel i of the n
 * lies in the windows of exactly those of the m that are its own window in them: the gradient has the same
 * windows the other way round. */
#ifndef KOLO_OPS_ADAPTIVE_H
#define KOLO_OPS_ADAPTIVE_H

#include "ops/element.h"

typedef struct kolo_span {
    int begin, end;
} kolo_span;

KOLO_INLINE kolo_span kolo_span_of(int i, int m, int n)
{
    const kolo_span s = {(int)((int64_t)i * n / m), (int)(((int64_t)(i + 1) * n + m - 1) / m)};
    return s;
}

/* What a pixel of y divides the sum of its window (height, width) by. */
KOLO_INLINE float kolo_span_share(kolo_span height, kolo_span width)
{
    return 1.0f / ((float)(height.end - height.begin) * (float)(width.end - width.begin));
}

#endif
