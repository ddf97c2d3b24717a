#include "metrics/detect_find.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/boxes.h"
#include "ops/detector.h"

/* pixels: the exponential of a network that has come apart soon goes beyond what later sums and products
 * hold */
static const double FARTHEST = 1e9;

/* One anchor of one cell, its channels `pixels` apart. */
typedef struct anchor {
    const float *at;
    int64_t pixels, column, row, stride, classes;
    double conf;
} anchor;

static double raw_of(const anchor *a, int64_t channel) { return (double)a->at[channel * a->pixels]; }

void kolo_found_free(kolo_found_list *list)
{
    free(list->found);
    *list = (kolo_found_list){0};
}

static int detect_find_add(kolo_found_list *list, const double *corner, double score, int64_t cls)
{
    for (int k = 0; k < 4; k++)
        if (!(fabs(corner[k]) < FARTHEST)) return 0;
    KOLO_TRY(kolo_grow(&list->found, &list->capacity, list->count, sizeof *list->found));
    kolo_found *f = &list->found[list->count++];
    *f = (kolo_found){.score = score, .cls = (int32_t)cls};
    memcpy(f->box, corner, sizeof f->box);
    return 0;
}

/* shape: of the anchor */
static int find_in_cell(const anchor *a, const kolo_detector *d, const float *shape, kolo_found_list *list)
{
    const double object = kolo_sigmoid(raw_of(a, 4));
    double raw[4], corner[4];
    int64_t best = 0;
    if (object < a->conf) return 0;
    for (int64_t c = 1; c < a->classes; c++)
        if (raw_of(a, 5 + c) > raw_of(a, 5 + best)) best = c;
    for (int k = 0; k < 4; k++) raw[k] = raw_of(a, k);
    d->decode(raw, a->column, a->row, a->stride, shape, corner);
    const int64_t first = d->every_class ? 0 : best, last = d->every_class ? a->classes - 1 : best;
    for (int64_t c = first; c <= last; c++) {
        const double score = object * kolo_sigmoid(raw_of(a, 5 + c));
        if (score >= a->conf) KOLO_TRY(detect_find_add(list, corner, score, c));
    }
    return 0;
}

static int find_in_head(const kolo_graph *g, int i, const float *map, int64_t row, double conf,
                        kolo_found_list *list)
{
    const kolo_tensor *t = &g->tensor[g->head[i]];
    const kolo_detector *d = kolo_detector_find(g->detector);
    const int64_t pixels = t->dim[2] * t->dim[3], channels = 5 + g->classes, anchors = t->dim[1] / channels;
    for (int64_t k = 0; k < anchors; k++)
        for (int64_t cell = 0; cell < pixels; cell++) {
            const anchor a = {.at = map + (row * t->dim[1] + k * channels) * pixels + cell,
                              .pixels = pixels,
                              .column = cell % t->dim[3],
                              .row = cell / t->dim[3],
                              .stride = g->tensor[g->input].dim[1] / t->dim[2],
                              .classes = g->classes,
                              .conf = conf};
            KOLO_TRY(find_in_cell(&a, d, g->anchor[g->mask[i][k]], list));
        }
    return 0;
}

int kolo_detect_find(const kolo_graph *g, const float *const *head, int64_t row, double conf, double nms,
                     kolo_found_list *list)
{
    list->count = 0;
    for (int i = 0; i < g->heads; i++) KOLO_TRY(find_in_head(g, i, head[i], row, conf, list));
    list->count = kolo_nms(list->found, list->count, nms, true, KOLO_MOST_FOUND);
    return 0;
}
