#include "ops/nhwc.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "ops/number.h"

/* ---- activations --------------------------------------------------------------------------------------- */

/* All maps of a graph are padded by the graph's type, a max-pool's index (u8) too, so that it and its
 * y have one geometry. */
int kolo_nhwc_blocks(kolo_backend *backend, const kolo_graph *g, const kolo_graph *like,
                     const kolo_layout *like_layout, kolo_layout *layout)
{
    (void)backend;
    (void)like_layout;
    if (like && like->dtype != g->dtype) /* their parameters could not have one layout */
        return kolo_fail(KOLO_EINTERNAL, "graph %s computes in %s, but %s, whose parameters it shares, in %s",
                         g->name, kolo_dtype_name(g->dtype), like->name, kolo_dtype_name(like->dtype));
    for (int64_t t = 0; t < g->tensors; t++)
        if (kolo_tensor_is_map(&g->tensor[t]))
            layout[t] = kolo_layout_blocked(&g->tensor[t], kolo_nhwc_padded(g->tensor[t].dim[1], g->dtype));
    return 0;
}

kolo_nhwc_view kolo_nhwc_view_of(const kolo_tensor *t, const kolo_layout *layout)
{
    kolo_nhwc_view v = {.rows = t->dim[0], .channels = 1, .height = 1, .width = 1, .dtype = t->dtype};
    bool map = kolo_tensor_is_map(t), image = t->rank == 4 && t->role == KOLO_ROLE_INPUT && !map;
    if (t->rank > 1) v.channels = t->dim[image ? 3 : 1];
    if (map || image) {
        v.height = t->dim[image ? 1 : 2];
        v.width = t->dim[image ? 2 : 3];
    }
    v.stored = map ? (v.channels + layout->block - 1) / layout->block * layout->block : v.channels;
    v.pixels = v.height * v.width;
    return v;
}

/* ---- weights of convolutions and of linear layers over maps -------------------------------------------- */

static int weight_find(kolo_backend *b, const kolo_nhwc_weight *wanted, const kolo_nhwc_weight **found)
{
    for (int64_t i = 0; i < b->weights; i++)
        if (!memcmp(b->weight[i], wanted, sizeof *wanted)) {
            *found = b->weight[i];
            return 0;
        }
    KOLO_TRY(kolo_grow(&b->weight, &b->weight_capacity, b->weights, sizeof *b->weight));
    kolo_nhwc_weight *made = kolo_alloc(sizeof *made);
    if (!made) return KOLO_ENOMEM;
    *made = *wanted;
    b->weight[b->weights++] = made;
    *found = made;
    return 0;
}

void kolo_nhwc_free(kolo_backend *b)
{
    for (int64_t i = 0; i < b->weights; i++) free(b->weight[i]);
    free(b->weight);
    b->weight = NULL;
    b->weights = b->weight_capacity = 0;
}

/* Equal on all ranks, whatever their addresses and byte order. */
static uint64_t weight_hash(const kolo_nhwc_weight *w)
{
    const int64_t number[] = {w->out, w->in, w->height, w->width, w->out_stored, w->in_stored};
    uint64_t hash = KOLO_HASH;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        hash = kolo_hash_number(hash, (uint64_t)number[i]);
    return hash;
}

static size_t weight_bytes(const kolo_nhwc_weight *w)
{
    return (size_t)(w->out_stored * w->height * w->width * w->in_stored) * sizeof(float);
}

/* Of a convolution's weight or its gradient; sets half too. The request is the convolution or one of its
 * gradients. With groups the channels of one group lie side by side, so the weight is stored
 * (O, KH, KW, I/groups) without padding; the maps keep theirs at the end of all channels. A layout that is
 * there already (of another graph's parameter) stays. */
static int weight_layout(const kolo_kernel_request *r, int tensor, kolo_layout *layout)
{
    if (tensor < 0) return 0;
    const kolo_tensor *t = &r->graph->tensor[tensor];
    int param = kolo_tensor_is_gradient(t) ? t->of : tensor;
    enum kolo_dtype dtype = r->graph->dtype;
    if (!layout[param].opaque) {
        bool grouped = r->node->a.groups > 1;
        kolo_nhwc_weight w = {.out = t->dim[0], .in = t->dim[1], .height = 1, .width = 1};
        if (t->rank == 4) w.height = t->dim[2], w.width = t->dim[3];
        w.out_stored = grouped ? w.out : kolo_nhwc_padded(w.out, dtype);
        w.in_stored = grouped ? w.in : kolo_nhwc_padded(w.in, dtype);
        const kolo_nhwc_weight *shared;
        KOLO_TRY(weight_find(r->backend, &w, &shared));
        layout[param] = (kolo_layout){.block = 1,
                                      .opaque = shared,
                                      .hash = weight_hash(&w),
                                      .bytes = weight_bytes(&w),
                                      .half = dtype != KOLO_F32};
    }
    layout[tensor] = layout[param];
    return 0;
}

/* The weight of rows is row-major. So is that of pixels if their channels fill whole vectors. */
static int linear_layout(const kolo_kernel_request *r, int weight, kolo_layout *layout)
{
    const kolo_tensor *x = kolo_request_in(r, 0), *w = weight < 0 ? NULL : &r->graph->tensor[weight];
    if (!w) return 0;
    const enum kolo_dtype dtype = r->graph->dtype;
    if (x->rank == 4 &&
        (kolo_nhwc_padded(w->dim[0], dtype) != w->dim[0] || kolo_nhwc_padded(w->dim[1], dtype) != w->dim[1]))
        return weight_layout(r, weight, layout);
    layout[weight].half = dtype != KOLO_F32;
    return 0;
}

/* The signs of y: a byte for every vector of it (columns.cuh), a bit for each of its numbers. */
static int signs_layout(const kolo_kernel_request *r, kolo_layout *layout)
{
    if (!kolo_request_out(r, 2)) return 0;
    const kolo_nhwc_view y = kolo_nhwc_view_of(kolo_request_out(r, 0), &layout[r->node->out[0]]);
    const int64_t full = kolo_nhwc_padded(1, y.dtype), width = y.stored % full ? 1 : full;
    layout[r->node->out[2]].bytes = (size_t)(y.rows * y.pixels * (y.stored / width));
    return 0;
}

int kolo_nhwc_layout(const kolo_kernel_request *r, kolo_layout *layout)
{
    const kolo_node *n = r->node;
    switch (n->op) {
    case KOLO_OP_conv:
    case KOLO_OP_conv_stats:
    case KOLO_OP_norm_conv_stats: return weight_layout(r, n->in[1], layout);
    case KOLO_OP_conv_grad_weight:
    case KOLO_OP_norm_conv_grad_weight: return weight_layout(r, n->out[0], layout);
    case KOLO_OP_linear: return linear_layout(r, n->in[1], layout);
    case KOLO_OP_linear_grad_weight:
        return linear_layout(r, n->out[0] < 0 ? -1 : r->graph->tensor[n->out[0]].of, layout);
    case KOLO_OP_norm_apply: return signs_layout(r, layout);
    default: return 0;
    }
}

/* ---- canonical order ----------------------------------------------------------------------------------- */

/* A stored tensor as rows of pixels of channels: channel c of pixel i of row n lies at (n pixels +
 * i) stored + c, and stands at (n channels + c) pixels + i of the canonical order. Plain tensors are
 * one row of one channel. */
typedef struct order {
    int64_t rows, channels, stored, pixels;
} order;

static int order_of(const kolo_tensor *t, const kolo_layout *layout, order *o)
{
    if (layout->opaque) {
        const kolo_nhwc_weight *w = layout->opaque;
        if (t->dtype != KOLO_F32 || t->rank < 2 || t->dim[0] != w->out || t->dim[1] != w->in)
            return kolo_fail(KOLO_EINTERNAL, "%s is not the f32 weight that its layout describes", t->name);
        *o = (order){w->out, w->in, w->in_stored, w->height * w->width};
    } else if (kolo_tensor_is_map(t)) {
        kolo_nhwc_view v = kolo_nhwc_view_of(t, layout);
        *o = (order){v.rows, v.channels, v.stored, v.pixels};
    } else {
        *o = (order){1, 1, 1, kolo_tensor_count(t)};
    }
    return 0;
}

int kolo_nhwc_to_canonical(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout, const void *from,
                           float *to)
{
    (void)b;
    order o;
    KOLO_TRY(order_of(t, layout, &o));
    for (int64_t n = 0; n < o.rows; n++)
        for (int64_t c = 0; c < o.channels; c++)
            for (int64_t i = 0; i < o.pixels; i++)
                *to++ = kolo_number_read(from, (n * o.pixels + i) * o.stored + c, t->dtype);
    return 0;
}

int kolo_nhwc_from_canonical(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout,
                             const float *from, void *to)
{
    (void)b;
    order o;
    KOLO_TRY(order_of(t, layout, &o));
    memset(to, 0, layout->bytes);
    for (int64_t n = 0; n < o.rows; n++)
        for (int64_t c = 0; c < o.channels; c++)
            for (int64_t i = 0; i < o.pixels; i++)
                kolo_number_write(to, (n * o.pixels + i) * o.stored + c, t->dtype, *from++);
    return 0;
}
