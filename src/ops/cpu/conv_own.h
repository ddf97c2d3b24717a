/* The convolutions that own loops compute better than a library: of few channels (conv_small.h), depthwise
 * ones (conv_depthwise.h), 1 x 1 (conv_pointwise.h), of stride 2 (conv_direct.h), and 3 x 3 by Winograd's
 * minimal filtering (conv_winograd.h). */
#ifndef KOLO_OPS_CPU_CONV_OWN_H
#define KOLO_OPS_CPU_CONV_OWN_H

#include "ops/cpu/conv_depthwise.h"
#include "ops/cpu/conv_direct.h"
#include "ops/cpu/conv_pointwise.h"
#include "ops/cpu/conv_small.h"
#include "ops/cpu/conv_winograd.h"

enum kolo_conv_own_kind {
    KOLO_CONV_LIBRARY,
    KOLO_CONV_SMALL,
    KOLO_CONV_DEPTHWISE,
    KOLO_CONV_POINTWISE,
    KOLO_CONV_DIRECT,
    KOLO_CONV_WINOGRAD
};
typedef struct kolo_conv_own {
    enum kolo_conv_own_kind kind;
    enum kolo_dnnl_pass pass;
    union {
        kolo_conv_small small;
        kolo_conv_depthwise depthwise;
        kolo_conv_pointwise pointwise;
        kolo_conv_direct direct;
        kolo_conv_winograd winograd;
    };
} kolo_conv_own;

/* A convolution of x by w to y, or one of its gradients; the weight lies plainly, or in
 * blocks of 16 x 16 channels (kolo_dnnl_blocked_weight) if kolo_conv_own_blocks(). Whether loops of this kind
 * are for it, and *own, which knows all they need. */
typedef struct kolo_conv_shape {
    enum kolo_dnnl_pass pass;
    const kolo_tensor *x, *w, *y;
    const kolo_layout *lx, *ly;
    const kolo_attributes *a;
    int threads;
} kolo_conv_shape;
bool kolo_conv_own_blocks(enum kolo_conv_own_kind kind);
bool kolo_conv_own_adds(enum kolo_conv_own_kind kind); /* something to the gradient of x while it is made */
bool kolo_conv_own_fits(const kolo_conv_shape *shape, enum kolo_conv_own_kind kind, kolo_conv_own *own);
size_t kolo_conv_own_bytes(const kolo_conv_own *own); /* of workspace */
/* pointer: x, w, y and bias or NULL, or their gradients; for that of x what is added to it, or NULL, in place
 * of the bias. arranged: the workspace is as the last run left it, whose weight was the same */
void kolo_conv_own_run(const kolo_conv_own *own, void *const pointer[4], void *workspace, bool arranged);
const char *kolo_conv_own_name(enum kolo_conv_own_kind kind);

#endif
