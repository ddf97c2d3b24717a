/* YOLOv3's loss. Each true box belongs to the anchor that is most like it, in the cell that holds its centre,
 * of every head that has this anchor; other anchors are background unless they lie over a box. The arithmetic
 * is ops/yolov3.h. As darknet sums over a batch and divides its rate by the batch, so a row here counts as it
 * is, and the global batch is their mean.
 *
 * Of boxes that meet in one anchor the last gives the place; its classes are those of all of them. A row
 * belongs to one thread; sums are taken in the order of rows. So the bits do not depend on threads. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/heads.h"
#include "ops/yolov3.h"

typedef struct yolov3 {
    kolo_heads heads;
    float anchor[9][2];
    int32_t mask[KOLO_MAX_HEADS][3];
    int64_t boxes; /* most of a row */
    size_t row_bytes, thread_bytes;
} yolov3;

enum { BOX, OBJECT, CLASS, PARTS };
typedef struct row_sums {
    double part[PARTS];
    int64_t foreground;
} row_sums;

typedef kolo_yolov3_target target;

typedef struct row {
    const yolov3 *y;
    const void *const *map;
    const int32_t *label; /* objects, then regions of crowds */
    int64_t n;
    int targets; /* objects */
    target *target;
} row;

static void assign(row *r, const int32_t *label)
{
    const yolov3 *y = r->y;
    r->label = label;
    r->targets = kolo_label_objects(label);
    for (int g = 0; g < r->targets; g++) {
        target *t = &r->target[g];
        t->cls = kolo_label_box(label, g, t->box);
        kolo_box_corners(t->box, t->corner);
        for (int i = 0; i < y->heads.count; i++) {
            const kolo_head *h = &y->heads.head[i];
            t->place[i] =
                kolo_yolov3_place(t->box, y->anchor, y->mask[i], h->stride, h->view.height, h->view.width);
        }
    }
    for (int g = 0; g < r->targets; g++) kolo_yolov3_find_last(r->target, r->targets, g, y->heads.count);
}

static double get(const row *r, int head, int slot, int64_t channel, int64_t cell)
{
    const int64_t c = slot * (5 + r->y->heads.classes) + channel;
    return kolo_head_get(&r->y->heads.head[head], r->map[head], r->n, c, cell);
}

static const float *anchor_of(const yolov3 *y, int head, int slot) { return y->anchor[y->mask[head][slot]]; }

static void get_raw(const row *r, int head, int slot, int64_t cell, double *raw)
{
    for (int k = 0; k < 4; k++) raw[k] = get(r, head, slot, k, cell);
}

/* As kolo_yolov3_kind. */
static int kind_of(const row *r, int head, int slot, int64_t cell)
{
    const kolo_head *h = &r->y->heads.head[head];
    double raw[4], corner[4], most = 0;
    get_raw(r, head, slot, cell, raw);
    kolo_yolov3_decode(raw, cell % h->view.width, cell / h->view.width, h->stride,
                       anchor_of(r->y, head, slot), corner);
    for (int g = 0; g < r->targets; g++) {
        const target *t = &r->target[g];
        if (t->place[head] == 3 * cell + slot) return kolo_yolov3_kind(true, 1);
        most = kolo_max(most, kolo_box_iou(corner, t->corner));
    }
    if (kolo_box_in_crowd(corner, r->label, r->targets, r->label[0], 1)) most = 1;
    return kolo_yolov3_kind(false, most);
}

static bool has_class(const row *r, int head, int32_t place, int64_t cls)
{
    return kolo_yolov3_has_class(r->target, r->targets, head, place, cls);
}

/* The loss of a box in a head, and (d: may be NULL) its derivative by x, y, w, h. */
static double box_loss(const row *r, int head, const target *t, double *d)
{
    const kolo_heads *all = &r->y->heads;
    const kolo_head *h = &all->head[head];
    const int slot = t->place[head] % 3;
    const int64_t cell = t->place[head] / 3;
    double raw[4];
    get_raw(r, head, slot, cell, raw);
    return kolo_yolov3_box_loss(raw, cell % h->view.width, cell / h->view.width, h->stride,
                                anchor_of(r->y, head, slot), t->box, (double)(all->height * all->width), d);
}

static void add_boxes(const row *r, int head, row_sums *sums)
{
    for (int g = 0; g < r->targets; g++) {
        const target *t = &r->target[g];
        const int32_t place = t->place[head];
        if (!t->last[head]) continue;
        sums->foreground++;
        sums->part[BOX] += box_loss(r, head, t, NULL);
        for (int64_t k = 0; k < r->y->heads.classes; k++)
            sums->part[CLASS] +=
                kolo_bce1(get(r, head, place % 3, 5 + k, place / 3), has_class(r, head, place, k));
    }
}

static row_sums add_row(const row *r)
{
    row_sums sums = {{0}, 0};
    for (int i = 0; i < r->y->heads.count; i++) {
        for (int slot = 0; slot < 3; slot++)
            for (int64_t cell = 0; cell < r->y->heads.head[i].view.pixels; cell++) {
                const int kind = kind_of(r, i, slot, cell);
                if (kind >= 0) sums.part[OBJECT] += kolo_bce1(get(r, i, slot, 4, cell), kind);
            }
        add_boxes(r, i, &sums);
    }
    return sums;
}

static void write_metrics(float *metric, const row_sums *sums, int64_t rows, const int32_t *labels,
                          int64_t words)
{
    double part[PARTS] = {0}, boxes = 0, foreground = 0;
    for (int64_t n = 0; n < rows; n++) {
        for (int k = 0; k < PARTS; k++) part[k] += sums[n].part[k];
        foreground += (double)sums[n].foreground;
        boxes += kolo_label_objects(labels + n * words);
    }
    const double all[KOLO_METRICS] = {part[BOX] + part[OBJECT] + part[CLASS],
                                      foreground,
                                      boxes,
                                      (double)rows,
                                      part[BOX],
                                      part[OBJECT],
                                      part[CLASS],
                                      0};
    for (int k = 0; k < KOLO_METRICS; k++) metric[k] = (float)all[k];
}

static row open_row(const yolov3 *y, void *const *args, void *workspace, int64_t n)
{
    const kolo_heads *h = &y->heads;
    char *own = (char *)workspace + y->row_bytes + (size_t)omp_get_thread_num() * y->thread_bytes;
    row r = {.y = y, .map = (const void *const *)args, .n = n, .target = (target *)own};
    assign(&r, (const int32_t *)args[h->count] + n * h->words);
    return r;
}

/* in: heads, labels; out: metrics */
static int yolov3_loss_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                           int slot)
{
    const yolov3 *y = k->state;
    const kolo_heads *h = &y->heads;
    const int64_t rows = kolo_heads_valid(h, step, slot);
    row_sums *sums = workspace;
    KOLO_TRY(kolo_heads_check(h, args[h->count], rows, slot));
#pragma omp parallel for schedule(dynamic, 1) num_threads(h->threads)
    for (int64_t n = 0; n < rows; n++) {
        const row r = open_row(y, args, workspace, n);
        sums[n] = add_row(&r);
    }
    write_metrics(args[h->count + 1], sums, rows, args[h->count], h->words);
    return 0;
}

static void grad_box(const row *r, int head, const target *t, double scale, void *to)
{
    const kolo_head *h = &r->y->heads.head[head];
    const int32_t place = t->place[head];
    const int64_t first = place % 3 * (5 + r->y->heads.classes), cell = place / 3;
    double d[4];
    box_loss(r, head, t, d);
    for (int k = 0; k < 4; k++) kolo_head_put(h, to, r->n, first + k, cell, d[k] * scale);
    for (int64_t k = 0; k < r->y->heads.classes; k++) {
        const double p = kolo_sigmoid(get(r, head, place % 3, 5 + k, cell));
        kolo_head_put(h, to, r->n, first + 5 + k, cell, (p - has_class(r, head, place, k)) * scale);
    }
}

static void grad_row(const row *r, double scale, void *const *to)
{
    for (int i = 0; i < r->y->heads.count; i++) {
        const kolo_head *h = &r->y->heads.head[i];
        if (!to[i]) continue;
        for (int slot = 0; slot < 3; slot++)
            for (int64_t cell = 0; cell < h->view.pixels; cell++) {
                const int kind = kind_of(r, i, slot, cell);
                if (kind < 0) continue;
                const double p = kolo_sigmoid(get(r, i, slot, 4, cell));
                kolo_head_put(h, to[i], r->n, slot * (5 + r->y->heads.classes) + 4, cell, (p - kind) * scale);
            }
        for (int g = 0; g < r->targets; g++)
            if (r->target[g].last[i]) grad_box(r, i, &r->target[g], scale, to[i]);
    }
}

/* in: heads, labels; out: dheads */
static int yolov3_loss_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                                const kolo_step *step, int slot)
{
    const yolov3 *y = k->state;
    const kolo_heads *h = &y->heads;
    void *const *to = args + h->count + 1;
    const int64_t rows = kolo_heads_valid(h, step, slot);
    const double scale = step->valid_global > 0 ? (double)step->scaler.scale / (double)step->valid_global : 0;
#pragma omp parallel for schedule(dynamic, 1) num_threads(h->threads)
    for (int64_t n = 0; n < h->rows; n++) {
        for (int i = 0; i < h->count; i++)
            if (to[i]) kolo_head_clear(&h->head[i], to[i], n);
        if (n >= rows) continue;
        const row r = open_row(y, args, workspace, n);
        grad_row(&r, scale, to);
    }
    return 0;
}

int kolo_cpu_yolov3_loss(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_detect_loss_grad;
    yolov3 *y = kolo_alloc(sizeof *y);
    if (!y) return KOLO_ENOMEM;
    k->state = y;
    k->release = free;
    k->run = backward ? yolov3_loss_run_grad : yolov3_loss_run;
    KOLO_TRY(kolo_heads_fill(&y->heads, r, r->node->n_in - 1, 3));
    memcpy(y->anchor, r->node->a.anchor, sizeof y->anchor);
    memcpy(y->mask, r->node->a.mask, sizeof y->mask);
    y->boxes = (y->heads.words - 1) / 5;
    y->row_bytes = kolo_round_up((size_t)y->heads.rows * sizeof(row_sums), KOLO_ALIGN);
    y->thread_bytes = kolo_round_up((size_t)y->boxes * sizeof(target), KOLO_ALIGN);
    k->workspace = y->row_bytes + (size_t)y->heads.threads * y->thread_bytes;
    snprintf(k->name, sizeof k->name, "own%s", y->heads.head[0].view.bf16 ? " bf16" : "");
    return 0;
}
