/* Convolution of 1 x 1 and stride 1 in f32, which is a product of matrices: of pixels x channels by channels
 * x channels. Maps lie in blocks of 16 channels. */
#ifndef KOLO_OPS_CPU_CONV_POINTWISE_H
#define KOLO_OPS_CPU_CONV_POINTWISE_H

#include "ops/cpu/cpu.h"

typedef struct kolo_conv_pointwise {
    kolo_view x, y;
    int threads;
} kolo_conv_pointwise;

/* Whether the maps lie so, and what is made has an even number of blocks; kernel and stride are 1. */
bool kolo_conv_pointwise_fits(const kolo_conv_pointwise *shape, enum kolo_dnnl_pass pass);
size_t kolo_conv_pointwise_bytes(const kolo_conv_pointwise *shape,
                                 enum kolo_dnnl_pass pass); /* of workspace */

/* w and dw: (O/16, C/16, 16 C, 16 O); bias and dbias (O), or NULL. other: what is added to dx, and may be it,
 * or NULL; arranged: the workspace is as the same pass left it, and the weight the same. */
void kolo_conv_pointwise_forward(const kolo_conv_pointwise *shape, const float *x, const float *w,
                                 const float *bias, float *y);
void kolo_conv_pointwise_data(const kolo_conv_pointwise *shape, float *dx, const float *w, const float *dy,
                              const float *other, void *workspace, bool arranged);
void kolo_conv_pointwise_weight(const kolo_conv_pointwise *shape, const float *x, float *dw, float *dbias,
                                const float *dy);

/* Also for conv_direct.h: w (O/16, C/16, taps, 16 C, 16 O) to (C/16, O/16, taps, 16 O, 16 C), where C/16 and
 * O/16 are in and out; the sums over dy's pixels. */
void kolo_conv_turn(const float *w, float *to, int64_t in, int64_t out, int64_t taps, int threads);
void kolo_conv_bias_gradient(const kolo_view *y, const float *dy, float *dbias, int threads);

#endif
