/* Depthwise convolution, one filter a channel, and its gradients: own loops, since a library's weight
 * gradients are many times slower than memory. Vectors are 16 channels of a pixel. Rows of a map are copied,
 * as f32 and with their border of zeros, into a ring that the first-level cache holds, and every output row
 * is computed from there; so there are no edges, and any kernel, stride, border and dilation. */
#ifndef KOLO_OPS_CPU_CONV_DEPTHWISE_H
#define KOLO_OPS_CPU_CONV_DEPTHWISE_H

#include <stdbool.h>

#include "ops/cpu/cpu.h"

typedef struct kolo_conv_depthwise {
    kolo_view x, y; /* channels lie in blocks of 8 or 16, or all together */
    int64_t kernel[2], stride[2], pad[2], dilation[2];
    int threads;
} kolo_conv_depthwise;

bool kolo_conv_depthwise_fits(const kolo_conv_depthwise *shape);
/* Bytes of workspace of any pass. */
size_t kolo_conv_depthwise_bytes(const kolo_conv_depthwise *shape, enum kolo_dnnl_pass pass);

/* w (C, 1, KH, KW) and bias (C) in f32; maps as their views say. bias, dbias may be NULL. */
void kolo_conv_depthwise_forward(const kolo_conv_depthwise *shape, const void *x, const float *w,
                                 const float *bias, void *y, void *workspace);
void kolo_conv_depthwise_data(const kolo_conv_depthwise *shape, void *dx, const float *w, const void *dy,
                              void *workspace);
void kolo_conv_depthwise_weight(const kolo_conv_depthwise *shape, const void *x, float *dw, float *dbias,
                                const void *dy, void *workspace);

#endif
