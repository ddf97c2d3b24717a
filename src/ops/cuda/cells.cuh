/* Where in a map an index lies, without divisions: a GPU has none for integers, and a map's sizes are known
 * when the plan is made. */
#ifndef KOLO_OPS_CUDA_CELLS_CUH
#define KOLO_OPS_CUDA_CELLS_CUH

#include "ops/cuda/vector.cuh"

/* n / by for n < 2^31 as a multiplication and a shift (Granlund and Montgomery, PLDI 1994). */
typedef struct kolo_divisor {
    uint32_t by, factor, shift;
} kolo_divisor;

static inline kolo_divisor kolo_divisor_of(int64_t by)
{
    kolo_divisor d = {(uint32_t)by, 0, 0};
    while ((UINT64_C(1) << d.shift) < d.by) d.shift++;
    d.factor = (uint32_t)((((UINT64_C(1) << d.shift) - d.by) << 32) / d.by + 1);
    return d;
}

KOLO_INLINE uint32_t kolo_quotient(uint32_t n, kolo_divisor d)
{
    return ((uint32_t)(((uint64_t)n * d.factor) >> 32) + n) >> d.shift;
}

/* A map as cells of 16 bytes: `items` of them, (rows, height, width, vectors). */
typedef struct kolo_cells {
    uint32_t items;
    kolo_divisor vectors, width, height;
} kolo_cells;
typedef struct kolo_cell {
    int n, h, w, v; /* row, pixel, vector of channels */
} kolo_cell;

/* Fails for maps of 2^31 cells (32 GiB) or more. */
static inline int kolo_cells_of(const kolo_cuda_view *v, kolo_cells *cells)
{
    int64_t vectors = v->stored / (v->dtype == KOLO_F32 ? 4 : 8), items = v->rows * v->pixels * vectors;
    if (items > INT32_MAX)
        return kolo_fail(KOLO_ECONFIG,
                         "a tensor of %ld x %ld x %ld x %ld elements is too large; use a smaller micro_batch",
                         (long)v->rows, (long)v->channels, (long)v->height, (long)v->width);
    cells->items = (uint32_t)items;
    cells->vectors = kolo_divisor_of(vectors);
    cells->width = kolo_divisor_of(v->width);
    cells->height = kolo_divisor_of(v->height);
    return 0;
}

/* Vector v of a pixel, which is counted over all rows. */
KOLO_INLINE kolo_cell kolo_cell_of(const kolo_cells *cells, uint32_t pixel, int v)
{
    uint32_t line = kolo_quotient(pixel, cells->width), row = kolo_quotient(line, cells->height);
    kolo_cell c = {(int)row, (int)(line - row * cells->height.by), (int)(pixel - line * cells->width.by), v};
    return c;
}

KOLO_INLINE kolo_cell kolo_cell_at(const kolo_cells *cells, uint32_t item)
{
    uint32_t pixel = kolo_quotient(item, cells->vectors);
    return kolo_cell_of(cells, pixel, (int)(item - pixel * cells->vectors.by));
}

#endif
