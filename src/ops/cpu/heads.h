/* What losses of detectors share: the maps that a network puts out, and the true boxes that the loader
 * gives. */
#ifndef KOLO_OPS_CPU_HEADS_H
#define KOLO_OPS_CPU_HEADS_H

#include "kolo/error.h"
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"
#include "ops/target.h"

typedef struct kolo_head {
    kolo_view view;
    int64_t stride; /* pixels of the image in one of the map, along each axis */
    int64_t first;  /* cells of the heads before this one */
} kolo_head;

typedef struct kolo_heads {
    int count;
    kolo_head head[KOLO_MAX_HEADS];
    int64_t rows, cells; /* cells of a row, all heads */
    int64_t classes;
    int64_t words;         /* of a row of labels */
    int64_t height, width; /* of the image */
    int threads;
} kolo_heads;

/* From the inputs of a loss: heads, then labels; anchors: a cell has. KOLO_EINTERNAL: the graph has no
 * images, or their sides no whole stride. */
int kolo_heads_fill(kolo_heads *heads, const kolo_kernel_request *request, int count, int64_t anchors);
/* Refuses labels with which a loss cannot be formed. */
int kolo_heads_check(const kolo_heads *heads, const int32_t *labels, int64_t rows, int slot);

/* Where channel c of a cell is. */
static inline int64_t kolo_head_at(const kolo_head *h, int64_t n, int64_t c, int64_t cell)
{
    const kolo_view *v = &h->view;
    return ((n * v->blocks + c / v->block) * v->pixels + cell) * v->block + c % v->block;
}

static inline double kolo_head_get(const kolo_head *h, const void *map, int64_t n, int64_t c, int64_t cell)
{
    return (double)kolo_load(map, kolo_head_at(h, n, c, cell), h->view.bf16);
}

static inline void kolo_head_put(const kolo_head *h, void *map, int64_t n, int64_t c, int64_t cell,
                                 double value)
{
    kolo_store(map, kolo_head_at(h, n, c, cell), (float)value, h->view.bf16);
}

static inline int64_t kolo_heads_valid(const kolo_heads *h, const kolo_step *step, int slot)
{
    return step->valid[slot] < h->rows ? step->valid[slot] : h->rows;
}

/* All of a row's gradient, padding included, becomes 0. */
static inline void kolo_head_clear(const kolo_head *h, void *map, int64_t n)
{
    const int64_t each = h->view.blocks * kolo_view_plane(&h->view);
    memset(kolo_at_out(map, n * each, h->view.bf16), 0, (size_t)each << (h->view.bf16 ? 1 : 2));
}

#endif
