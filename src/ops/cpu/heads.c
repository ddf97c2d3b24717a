#include "ops/cpu/heads.h"

#include <inttypes.h>

int kolo_heads_fill(kolo_heads *h, const kolo_kernel_request *r, int count, int64_t anchors)
{
    const kolo_graph *g = r->graph;
    if (g->input < 0 || g->tensor[g->input].rank != 4)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has no images that its heads could be of", g->name);
    *h = (kolo_heads){.count = count, .words = kolo_request_in(r, count)->dim[1]};
    h->height = g->tensor[g->input].dim[1];
    h->width = g->tensor[g->input].dim[2];
    for (int i = 0; i < count; i++) {
        const kolo_tensor *t = kolo_request_in(r, i);
        const int64_t stride = h->height / t->dim[2];
        if (stride < 1 || stride * t->dim[2] != h->height || stride * t->dim[3] != h->width)
            return kolo_fail(KOLO_ECONFIG,
                             "images of %" PRId64 " x %" PRId64 " do not divide into the %" PRId64
                             " x %" PRId64 " cells of %s: sides must be multiples of 32 (size=)",
                             h->height, h->width, t->dim[2], t->dim[3], t->name);
        h->head[i] = (kolo_head){kolo_cpu_view_in(r, i), stride, h->cells};
        h->cells += t->dim[2] * t->dim[3];
        h->rows = t->dim[0];
        h->classes = t->dim[1] / anchors - 5;
    }
    h->threads = kolo_cpu_threads(r->backend, h->rows * h->cells * 8);
    if (h->threads > h->rows) h->threads = (int)h->rows;
    return 0;
}

int kolo_heads_check(const kolo_heads *h, const int32_t *labels, int64_t rows, int slot)
{
    for (int64_t n = 0; n < rows; n++) {
        kolo_bad_label bad = {.slot = slot, .row = (int32_t)n};
        if (!kolo_boxes_fit(labels + n * h->words, h->words, h->classes, &bad))
            return kolo_bad_label_fail(&bad, h->classes);
    }
    return 0;
}
