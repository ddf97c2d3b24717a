/* Convolution of 3 x 3 and stride 1 in f32 by Winograd's minimal filtering (winograd.h): what oneDNN 2 has
 * for AVX-512 and oneDNN 3 has no more. Maps lie in channel blocks of whole vectors. */
#ifndef KOLO_OPS_CPU_CONV_WINOGRAD_H
#define KOLO_OPS_CPU_CONV_WINOGRAD_H

#include "ops/cpu/cpu.h"

typedef struct kolo_conv_winograd {
    kolo_view x, y;
    int64_t pad[2];
    int threads;
} kolo_conv_winograd;

/* Whether the maps lie so; the kernel is 3 x 3, the stride 1. */
bool kolo_conv_winograd_fits(const kolo_conv_winograd *shape);
size_t kolo_conv_winograd_bytes(const kolo_conv_winograd *shape, enum kolo_dnnl_pass pass); /* of workspace */

/* w and dw: (O/16, C/16, 3, 3, 16 C, 16 O); bias and dbias (O), or NULL. arranged: the workspace is as the
 * same pass left it, and the weight the same. */
void kolo_conv_winograd_forward(const kolo_conv_winograd *shape, const float *x, const float *w,
                                const float *bias, float *y, void *workspace, bool arranged);
void kolo_conv_winograd_data(const kolo_conv_winograd *shape, float *dx, const float *w, const float *dy,
                             void *workspace, bool arranged);
void kolo_conv_winograd_weight(const kolo_conv_winograd *shape, const float *x, float *dw, float *dbias,
                               const float *dy, void *workspace);

#endif
