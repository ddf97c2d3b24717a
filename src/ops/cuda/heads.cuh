/* What losses of detectors share: the maps that a network puts out, and the true boxes that the loader gives.
 * A block takes a row where boxes are dealt out, a warp a cell where gradients are written. */
#ifndef KOLO_OPS_CUDA_HEADS_CUH
#define KOLO_OPS_CUDA_HEADS_CUH

#include "ops/cuda/rows.cuh"

typedef struct kolo_head {
    int height, width, stored;
    int stride; /* pixels of the image in one of the map, along each axis */
    int first;  /* cells of the heads before this one */
} kolo_head;

typedef struct kolo_heads {
    int count, rows, cells; /* cells of a row, all heads */
    int classes, words;     /* words of a row of labels */
    int height, width;      /* of the image */
    kolo_head head[KOLO_MAX_HEADS];
    enum kolo_dtype dtype;
} kolo_heads;

/* The arguments that are maps; NULL: not there. */
typedef struct kolo_maps {
    void *at[KOLO_MAX_HEADS];
} kolo_maps;
static inline kolo_maps kolo_maps_of(const kolo_heads *h, void *const *args)
{
    kolo_maps m = {};
    for (int i = 0; i < h->count; i++) m.at[i] = args[i];
    return m;
}

/* From the inputs of a loss: heads, then labels; anchors: a cell has. */
static inline int kolo_heads_fill(kolo_heads *h, const kolo_kernel_request *r, int count, int anchors)
{
    const kolo_graph *g = r->graph;
    if (g->input < 0 || g->tensor[g->input].rank != 4)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has no images that its heads could be of", g->name);
    h->count = count;
    h->words = (int)kolo_request_in(r, count)->dim[1];
    h->height = (int)g->tensor[g->input].dim[1], h->width = (int)g->tensor[g->input].dim[2];
    for (int i = 0; i < count; i++) {
        const kolo_cuda_view v = kolo_cuda_view_in(r, i);
        const int stride = h->height / (int)v.height;
        if (stride < 1 || stride * v.height != h->height || stride * v.width != h->width)
            return kolo_fail(KOLO_ECONFIG,
                             "images of %d x %d do not divide into the %ld x %ld cells of %s: sides must be "
                             "multiples of 32 (size=)",
                             h->height, h->width, (long)v.height, (long)v.width, kolo_request_in(r, i)->name);
        if (v.rows * v.pixels * v.stored > (int64_t)INT32_MAX * 32)
            return kolo_fail(KOLO_ECONFIG, "heads of %ld rows are too large; use a smaller micro_batch",
                             (long)v.rows);
        h->head[i] = {(int)v.height, (int)v.width, (int)v.stored, stride, h->cells};
        h->cells += (int)v.pixels;
        h->rows = (int)v.rows;
        h->classes = (int)v.channels / anchors - 5;
        h->dtype = v.dtype;
    }
    return 0;
}

/* ---- in a kernel --------------------------------------------------------------------------------------- */

KOLO_INLINE int kolo_heads_valid(const kolo_heads &h, const kolo_step *step, int slot)
{
    return step->valid[slot] < h.rows ? step->valid[slot] : h.rows;
}

/* The head of cell `cell` of a row, which becomes that head's cell. */
KOLO_INLINE int kolo_heads_find(const kolo_heads &h, int *cell)
{
    int i = 0;
    while (i + 1 < h.count && *cell >= h.head[i + 1].first) i++;
    *cell -= h.head[i].first;
    return i;
}

/* Where a cell's channels begin. */
KOLO_INLINE int64_t kolo_head_at(const kolo_head &h, int n, int cell)
{
    return ((int64_t)n * h.height * h.width + cell) * h.stored;
}

/* Boxes of a row; 0 where they are none that a loss could be formed with, and *bad says why. */
KOLO_INLINE int kolo_label_boxes(const kolo_heads &h, const int32_t *label, kolo_bad_label *bad)
{
    return kolo_boxes_fit(label, h.words, h.classes, bad) ? label[0] : 0;
}

/* A row's sums: the parts of the loss, anchors that have a box, boxes. */
enum { KOLO_HEAD_PARTS = 4 };
typedef struct kolo_head_sums {
    double part[KOLO_HEAD_PARTS];
    int32_t foreground, boxes;
    kolo_bad_label bad;
} kolo_head_sums;

/* The sums of all threads become the row's; by all of them. */
static __device__ void kolo_head_sums_write(kolo_head_sums *to, const double (&part)[KOLO_HEAD_PARTS],
                                            int foreground, int boxes, const kolo_bad_label *bad)
{
    kolo_head_sums s = {};
    for (int k = 0; k < KOLO_HEAD_PARTS; k++) s.part[k] = kolo_row_sum(part[k]);
    s.foreground = kolo_row_sum(foreground);
    s.boxes = boxes;
    s.bad = *bad;
    if (threadIdx.x == 0) *to = s;
}

enum { KOLO_HEAD_FINISH = 256 };

/* One block: the metrics of all valid rows; parts count times rows over foreground anchors
 * (mean), or as they are. */
static __global__ void __launch_bounds__(KOLO_HEAD_FINISH)
    kolo_heads_finish_kernel(float *metric, const kolo_head_sums *sums, kolo_heads h, bool mean,
                             const kolo_step *step, int slot)
{
    const int rows = kolo_heads_valid(h, step, slot);
    double part[KOLO_HEAD_PARTS] = {}, whole = 0;
    int foreground = 0, boxes = 0, bad = 0; /* bad: rows - number of the first such row */
    for (int n = (int)threadIdx.x; n < rows; n += KOLO_HEAD_FINISH) {
        for (int k = 0; k < KOLO_HEAD_PARTS; k++) part[k] += sums[n].part[k];
        foreground += sums[n].foreground;
        boxes += sums[n].boxes;
        if (sums[n].bad.kind && rows - n > bad) bad = rows - n;
    }
    for (int k = 0; k < KOLO_HEAD_PARTS; k++) part[k] = kolo_row_sum(part[k]);
    foreground = kolo_row_sum(foreground);
    boxes = kolo_row_sum(boxes);
    bad = kolo_row_max(bad);
    if (threadIdx.x) return;
    for (int k = 0; k < KOLO_HEAD_PARTS; k++) {
        if (mean) part[k] *= (double)rows / (double)(foreground > 1 ? foreground : 1);
        whole += part[k];
        metric[4 + k] = (float)part[k];
    }
    metric[0] = (float)whole;
    metric[1] = (float)foreground;
    metric[2] = (float)boxes;
    metric[3] = (float)(rows > 0 ? rows : 0);
    if (bad) kolo_report_bad(step, sums[rows - bad].bad, slot, rows - bad);
}

#endif
