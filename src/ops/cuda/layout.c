/* How tensors lie in the GPU's memory, and the way between that and canonical order (logical row-major f32), on the host. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "ops/cuda/cuda.h"
#include "ops/number.h"

/* ---- activations --------------------------------------------------------------------------------------------------- */

/* All maps of a graph are padded by the graph's type, a max-pool's index (u8) too, so that it and its y have one geometry. */
int kolo_cuda_blocks(kolo_backend *backend, const kolo_graph *g, const kolo_graph *like, const kolo_layout *like_layout, kolo_layout *layout)
{
    (void)backend;
    (void)like_layout;
    if (like && like->dtype != g->dtype) /* their parameters could not have one layout */
        return kolo_fail(KOLO_EINTERNAL, "graph %s computes in %s, but %s, whose parameters it shares, in %s", g->name, kolo_dtype_name(g->dtype), like->name,
                         kolo_dtype_name(like->dtype));
    for (int64_t t = 0; t < g->tensors; t++)
        if (kolo_tensor_is_map(&g->tensor[t])) layout[t] = kolo_layout_blocked(&g->tensor[t], kolo_cuda_padded(g->tensor[t].dim[1], g->dtype));
    return 0;
}

kolo_cuda_view kolo_cuda_view_of(const kolo_tensor *t, const kolo_layout *layout)
{
    kolo_cuda_view v = {.rows = t->dim[0], .channels = 1, .height = 1, .width = 1, .dtype = t->dtype};
    bool map = kolo_tensor_is_map(t), picture = t->rank == 4 && t->role == KOLO_ROLE_INPUT && !map;
    if (t->rank > 1) v.channels = t->dim[picture ? 3 : 1];
    if (map || picture) {
        v.height = t->dim[picture ? 1 : 2];
        v.width = t->dim[picture ? 2 : 3];
    }
    v.stored = map ? (v.channels + layout->block - 1) / layout->block * layout->block : v.channels;
    v.pixels = v.height * v.width;
    return v;
}

kolo_cuda_view kolo_cuda_view_in(const kolo_kernel_request *r, int i) { return kolo_cuda_view_of(kolo_request_in(r, i), &r->layout[r->node->in[i]]); }

kolo_cuda_view kolo_cuda_view_out(const kolo_kernel_request *r, int i) { return kolo_cuda_view_of(kolo_request_out(r, i), &r->layout[r->node->out[i]]); }

/* ---- weights of convolutions and of linear layers over maps --------------------------------------------------------------------------------------- */

static int weight_find(kolo_cuda *cuda, const kolo_cuda_weight *wanted, const kolo_cuda_weight **found)
{
    for (int64_t i = 0; i < cuda->weights; i++)
        if (!memcmp(cuda->weight[i], wanted, sizeof *wanted)) {
            *found = cuda->weight[i];
            return 0;
        }
    KOLO_TRY(kolo_grow(&cuda->weight, &cuda->weight_capacity, cuda->weights, sizeof *cuda->weight));
    kolo_cuda_weight *made = kolo_alloc(sizeof *made);
    if (!made) return KOLO_ECONFIG;
    *made = *wanted;
    cuda->weight[cuda->weights++] = made;
    *found = made;
    return 0;
}

void kolo_cuda_weights_free(kolo_cuda *cuda)
{
    for (int64_t i = 0; i < cuda->weights; i++) free(cuda->weight[i]);
    free(cuda->weight);
    cuda->weight = NULL;
    cuda->weights = cuda->weight_capacity = 0;
}

/* Equal on all ranks, whatever their addresses and byte order. */
static uint64_t weight_hash(const kolo_cuda_weight *w)
{
    const int64_t number[] = {w->out, w->in, w->height, w->width, w->out_stored, w->in_stored};
    uint64_t hash = KOLO_HASH;
    for (size_t i = 0; i < sizeof number / sizeof *number; i++) hash = kolo_hash_number(hash, (uint64_t)number[i]);
    return hash;
}

static size_t weight_bytes(const kolo_cuda_weight *w) { return (size_t)(w->out_stored * w->height * w->width * w->in_stored) * sizeof(float); }

int kolo_cuda_weight_layout(const kolo_kernel_request *r, int tensor, kolo_layout *layout)
{
    if (tensor < 0) return 0;
    const kolo_tensor *t = &r->graph->tensor[tensor];
    int param = t->role == KOLO_ROLE_GRADIENT && t->of >= 0 ? t->of : tensor;
    enum kolo_dtype dtype = r->graph->dtype;
    if (!layout[param].opaque) {
        bool grouped = r->node->a.groups > 1;
        kolo_cuda_weight w = {.out = t->dim[0], .in = t->dim[1], .height = 1, .width = 1};
        if (t->rank == 4) w.height = t->dim[2], w.width = t->dim[3];
        w.out_stored = grouped ? w.out : kolo_cuda_padded(w.out, dtype);
        w.in_stored = grouped ? w.in : kolo_cuda_padded(w.in, dtype);
        const kolo_cuda_weight *shared;
        KOLO_TRY(weight_find(kolo_cuda_of(r->backend), &w, &shared));
        layout[param] = (kolo_layout){.block = 1, .opaque = shared, .hash = weight_hash(&w), .bytes = weight_bytes(&w), .half = dtype != KOLO_F32};
    }
    layout[tensor] = layout[param];
    return 0;
}

/* ---- canonical order ----------------------------------------------------------------------------------------------- */

/* A stored tensor as rows of pixels of channels: channel c of pixel i of row n lies at (n pixels + i) stored + c, and stands at
 * (n channels + c) pixels + i of the canonical order. Plain tensors are one row of one channel. */
typedef struct order {
    int64_t rows, channels, stored, pixels;
} order;

static int order_of(const kolo_tensor *t, const kolo_layout *layout, order *o)
{
    if (layout->opaque) {
        const kolo_cuda_weight *w = layout->opaque;
        if (t->dtype != KOLO_F32 || t->rank < 2 || t->dim[0] != w->out || t->dim[1] != w->in)
            return kolo_fail(KOLO_EINTERNAL, "%s is not the f32 weight that its layout describes", t->name);
        *o = (order){w->out, w->in, w->in_stored, w->height * w->width};
    } else if (kolo_tensor_is_map(t)) {
        kolo_cuda_view v = kolo_cuda_view_of(t, layout);
        *o = (order){v.rows, v.channels, v.stored, v.pixels};
    } else {
        *o = (order){1, 1, 1, kolo_tensor_count(t)};
    }
    return 0;
}

int kolo_cuda_to_canonical(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout, const void *from, float *to)
{
    (void)b;
    order o;
    KOLO_TRY(order_of(t, layout, &o));
    for (int64_t n = 0; n < o.rows; n++)
        for (int64_t c = 0; c < o.channels; c++)
            for (int64_t i = 0; i < o.pixels; i++) *to++ = kolo_number_read(from, (n * o.pixels + i) * o.stored + c, t->dtype);
    return 0;
}

int kolo_cuda_from_canonical(kolo_backend *b, const kolo_tensor *t, const kolo_layout *layout, const float *from, void *to)
{
    (void)b;
    order o;
    KOLO_TRY(order_of(t, layout, &o));
    memset(to, 0, layout->bytes);
    for (int64_t n = 0; n < o.rows; n++)
        for (int64_t c = 0; c < o.channels; c++)
            for (int64_t i = 0; i < o.pixels; i++) kolo_number_write(to, (n * o.pixels + i) * o.stored + c, t->dtype, *from++);
    return 0;
}
