/* Convolution of 3 x 3 or less and stride 1 or 2 in f32, tap by tap. Maps lie in blocks of 16 channels. */
#ifndef KOLO_OPS_CPU_CONV_DIRECT_H
#define KOLO_OPS_CPU_CONV_DIRECT_H

#include "ops/cpu/cpu.h"

typedef struct kolo_conv_direct {
    kolo_view x, y;
    int64_t kernel[2], stride, pad[2];
    int threads;
} kolo_conv_direct;

/* Whether the maps lie so, what is computed has an even number of blocks, and the kernel has 2 to 9 taps. */
bool kolo_conv_direct_fits(const kolo_conv_direct *shape, enum kolo_dnnl_pass pass);
size_t kolo_conv_direct_bytes(const kolo_conv_direct *shape, enum kolo_dnnl_pass pass); /* of workspace */

/* w and dw: (O/16, C/16, KH, KW, 16 C, 16 O); bias and dbias (O), or NULL. other: what is added to dx, and
 * may be it, or NULL; arranged: the workspace is as the same pass left it, and the weight the same. */
void kolo_conv_direct_forward(const kolo_conv_direct *shape, const float *x, const float *w,
                              const float *bias, float *y, void *workspace);
void kolo_conv_direct_data(const kolo_conv_direct *shape, float *dx, const float *w, const float *dy,
                           const float *other, void *workspace, bool arranged);
void kolo_conv_direct_weight(const kolo_conv_direct *shape, const float *x, float *dw, float *dbias,
                             const float *dy, void *workspace);

#endif
