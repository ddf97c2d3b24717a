/* Inside ops/cpu: the backend's state, and the view that every own kernel takes of a tensor. */
#ifndef KOLO_OPS_CPU_CPU_H
#define KOLO_OPS_CPU_CPU_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/cpu/dnnl.h"
#include "ops/kernel.h"

typedef struct kolo_cpu {
    kolo_dnnl *dnnl;
    char machine[160];
} kolo_cpu;

static inline kolo_dnnl *kolo_cpu_dnnl(const kolo_backend *backend)
{
    return ((kolo_cpu *)backend->state)->dnnl;
}

/* The rows, one for each operation of ops.def: a missing one does not link. */
#define OP(name, ...) extern const kolo_op_row kolo_cpu_##name;
#include "graph/ops.def"
#undef OP
/* prepare of detect_loss and detect_loss_grad for each detector */
#define DETECTOR(name, ...) \
    int kolo_cpu_##name##_loss(const kolo_kernel_request *request, kolo_kernel *kernel);
#include "ops/detectors.def"
#undef DETECTOR

/* A tensor as (rows, blocks, pixels, block): an activation (N, C, H, W) in channel blocks; (N, F) is one
 * block of F channels and one pixel. A plane is the pixels x block elements of one row and block. */
typedef struct kolo_view {
    int64_t rows, channels, height, width;
    int64_t blocks, block, pixels;
    bool bf16;
} kolo_view;

kolo_view kolo_cpu_view(const kolo_tensor *tensor, const kolo_layout *layout);
static inline int64_t kolo_view_plane(const kolo_view *v) { return v->pixels * v->block; }
static inline int64_t kolo_view_count(const kolo_view *v) { return v->rows * v->blocks * kolo_view_plane(v); }
kolo_view kolo_cpu_view_in(const kolo_kernel_request *request, int i);
kolo_view kolo_cpu_view_out(const kolo_kernel_request *request, int i);

/* Writes zeros to the channels beyond the last one, which the last block has. */
void kolo_cpu_clear_padding(const kolo_view *view, void *base);

/* Threads worth starting for work on `elements`; results never depend on it. */
int kolo_cpu_threads(const kolo_backend *backend, int64_t elements);

static inline const void *kolo_at(const void *base, int64_t i, bool bf16)
{
    return (const char *)base + (i << (bf16 ? 1 : 2));
}
static inline void *kolo_at_out(void *base, int64_t i, bool bf16)
{
    return (char *)base + (i << (bf16 ? 1 : 2));
}

/* blocks.c */
int kolo_cpu_blocks(kolo_backend *backend, const kolo_graph *graph, const kolo_graph *like,
                    const kolo_layout *like_layout, kolo_layout *layout);
/* The layout function of a row that works with all channels of a pixel together: a graph whose maps meet such
 * a row is laid out as NHWC, and anything else is refused. */
int kolo_cpu_channels_last(const kolo_kernel_request *request, kolo_layout *layout);
bool kolo_cpu_wants_channels_last(const kolo_graph *graph);
/* conv.c: seconds of this node of the graph under `layout`, its algorithms chosen; negative status on
 * failure */
double kolo_cpu_conv_seconds(const kolo_kernel_request *request);
/* What of its FLOP is left to oneDNN's reference code, by the rule: all or none. */
double kolo_cpu_conv_reference(const kolo_kernel_request *request);
/* element.c: out may be a */
void kolo_cpu_sum(void *out, const void *a, const void *b, int64_t count, bool bf16, int threads);
/* convert.c */
int kolo_cpu_to_canonical(kolo_backend *b, const kolo_tensor *tensor, const kolo_layout *layout,
                          const void *from, float *to);
int kolo_cpu_from_canonical(kolo_backend *b, const kolo_tensor *tensor, const kolo_layout *layout,
                            const float *from, void *to);
void kolo_cpu_widen(float *to, const void *from_bf16, int64_t count, int threads);
void kolo_cpu_narrow(void *to_bf16, const float *from, int64_t count, int threads);
/* reduce.c */
int kolo_cpu_fold(kolo_backend *backend, float *sum, const float *part, int64_t count);
int kolo_cpu_divide(kolo_backend *backend, float *to, const float *from, float by, int64_t count);
int kolo_cpu_narrow_arena(kolo_backend *backend, void *half, enum kolo_dtype dtype, const float *from,
                          int64_t count);
/* form.c */
void kolo_cpu_encode(kolo_backend *backend, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                     const void *from, int64_t count);
void kolo_cpu_decode(kolo_backend *backend, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                     const void *from, int64_t count);

#endif
