/* How tensors lie in a GPU's memory, and the way between that and canonical order (logical row-major f32), on
 * the host. No device is asked: the CUDA backend and the one of a GPU that is only described (described.c)
 * lay everything out alike.
 *
 * Activations are NHWC with channels padded to a multiple of 8 (16-bit types) or 4 (f32): block = that padded
 * number (ops/backend.h), padding is zero. Convolution weights (O,I,KH,KW) are stored (O', KH, KW, I') with
 * O', I' padded alike, f32; operations in 16-bit types read the SHADOW copy (layout.half). All else is
 * plain. */
#ifndef KOLO_OPS_NHWC_H
#define KOLO_OPS_NHWC_H

#include "ops/kernel.h"

/* Channels as they are stored. */
static inline int64_t kolo_nhwc_padded(int64_t channels, enum kolo_dtype dtype)
{
    const int64_t v = dtype == KOLO_F32 ? 4 : 8;
    return (channels + v - 1) / v * v;
}

/* A tensor as (rows, pixels, stored channels); (N, F) has one pixel and stored == channels. */
typedef struct kolo_nhwc_view {
    int64_t rows, channels, stored, height, width, pixels;
    enum kolo_dtype dtype;
} kolo_nhwc_view;
kolo_nhwc_view kolo_nhwc_view_of(const kolo_tensor *tensor, const kolo_layout *layout);

/* A weight's layout.opaque is one of these; the backend keeps them. */
typedef struct kolo_nhwc_weight {
    int64_t out, in, height, width; /* (O, I, KH, KW) */
    int64_t out_stored, in_stored;  /* stored (out_stored, KH, KW, in_stored) */
} kolo_nhwc_weight;
int kolo_nhwc_blocks(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                     const kolo_layout *like_layout, kolo_layout *layout);
void kolo_nhwc_free(kolo_backend *backend); /* when the backend closes */

/* The layout of any operation's row (kernel.h): what is not laid out by its shape alone. Rows of
 * ops/cuda have no other. */
int kolo_nhwc_layout(const kolo_kernel_request *request, kolo_layout *layout);

int kolo_nhwc_to_canonical(kolo_backend *b, const kolo_tensor *tensor, const kolo_layout *layout,
                           const void *from, float *to);
int kolo_nhwc_from_canonical(kolo_backend *b, const kolo_tensor *tensor, const kolo_layout *layout,
                             const float *from, void *to);

#endif
