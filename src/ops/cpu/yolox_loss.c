/* YOLOX's loss: which anchors are to find which box (SimOTA), and what they and all others are off. The
 * arithmetic is ops/yolox.h.
 *
 * The sums of a micro-batch are divided by its number N of anchors that have a box, as every process of the
 * reference divides by its own; then it counts by its share of the valid rows of the global batch. With a
 * rank's rows in one micro-batch that is the reference's mean over processes, and otherwise each
 * micro-batch is such a process.
 *
 * A row belongs to one thread; sums are taken in the order of rows. So the bits do not depend on threads. */
#include <inttypes.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/cpu/heads.h"
#include "ops/yolox.h"

typedef struct yolox {
    kolo_heads heads;
    bool centre, l1;
    enum kolo_overlap overlap;
    size_t row_bytes, thread_bytes; /* of the workspace: sums of a row; what a thread assigns with */
} yolox;

enum { BOX, OBJECT, CLASS, L1, PARTS };
typedef struct row_sums {
    double part[PARTS];
    int64_t foreground;
} row_sums;

/* A cell that may get an object. */
typedef struct candidate {
    double corner[4], object, others; /* p(object); cross entropies as if it had no object */
    int32_t cell, head, owner, claims;
} candidate;

/* One row under way. */
typedef struct row {
    const yolox *y;
    const void *const *map; /* [heads] */
    const int32_t *label;
    int32_t objects; /* boxes of the label that are no regions */
    int64_t n;
    candidate *list; /* [cells] */
    int64_t candidates;
} row;

static void get_raw(const row *r, int head, int64_t cell, double *raw)
{
    for (int k = 0; k < 4; k++) raw[k] = kolo_head_get(&r->y->heads.head[head], r->map[head], r->n, k, cell);
}

static double class_logit(const row *r, int head, int64_t cell, int64_t cls)
{
    return kolo_head_get(&r->y->heads.head[head], r->map[head], r->n, 5 + cls, cell);
}

static void yolox_loss_place(const row *r, const double *box, int head, int64_t cell, bool *is_candidate,
                             bool *inside)
{
    const kolo_head *h = &r->y->heads.head[head];
    const double s = (double)h->stride;
    const double x = ((double)(cell % h->view.width) + 0.5) * s,
                 y = ((double)(cell / h->view.width) + 0.5) * s;
    kolo_simota_place(r->y->centre, box, x, y, h->stride, is_candidate, inside);
}

static void add_candidate(row *r, int head, int64_t cell)
{
    const kolo_head *h = &r->y->heads.head[head];
    candidate *c = &r->list[r->candidates++];
    double raw[4];
    *c = (candidate){.cell = (int32_t)cell, .head = head, .owner = -1};
    get_raw(r, head, cell, raw);
    kolo_yolox_decode(raw, cell % h->view.width, cell / h->view.width, h->stride, c->corner);
    c->object = kolo_sigmoid(kolo_head_get(h, r->map[head], r->n, 4, cell));
    for (int64_t k = 0; k < r->y->heads.classes; k++)
        c->others -= kolo_log_bounded(1 - sqrt(kolo_sigmoid(class_logit(r, head, cell, k)) * c->object));
}

static void find_candidates(row *r)
{
    const kolo_heads *h = &r->y->heads;
    r->candidates = 0;
    for (int i = 0; i < h->count; i++)
        for (int64_t cell = 0; cell < h->head[i].view.pixels; cell++)
            for (int64_t g = 0; g < r->objects; g++) {
                double box[4];
                bool yes, inside;
                kolo_label_box(r->label, g, box);
                yolox_loss_place(r, box, i, cell, &yes, &inside);
                if (!yes) continue;
                add_candidate(r, i, cell);
                break;
            }
}

static double overlap(const candidate *c, const double *box)
{
    double goal[4];
    kolo_box_corners(box, goal);
    return kolo_box_iou(c->corner, goal);
}

static double cost(const row *r, const candidate *c, int64_t cls, const double *box)
{
    bool yes, inside;
    yolox_loss_place(r, box, c->head, c->cell, &yes, &inside);
    const double p = sqrt(kolo_sigmoid(class_logit(r, c->head, c->cell, cls)) * c->object);
    return kolo_simota_cost(r->y->centre, c->others, p, overlap(c, box), inside);
}

/* Puts a value into a list, sorted from its best end, of at most `most`. */
static int insert(double *value, int32_t *which, int n, int most, double v, int32_t w)
{
    int i = n < most ? n : most - 1;
    if (n == most && !(v < value[i])) return n;
    for (; i > 0 && v < value[i - 1]; i--) value[i] = value[i - 1], which[i] = which[i - 1];
    value[i] = v;
    which[i] = w;
    return n < most ? n + 1 : n;
}

/* A truth gets so many candidates as its ten largest overlaps add up to: those that cost least. */
static void yolox_loss_claim(row *r, int64_t g)
{
    double box[4], best[KOLO_SIMOTA_MOST], sum = 0;
    int32_t which[KOLO_SIMOTA_MOST];
    const int64_t cls = kolo_label_box(r->label, g, box);
    int n = 0, wanted;
    for (int64_t i = 0; i < r->candidates; i++)
        n = insert(best, which, n, KOLO_SIMOTA_MOST, -overlap(&r->list[i], box), (int32_t)i);
    for (int i = 0; i < n; i++) sum -= best[i];
    wanted = sum >= 2 ? (int)sum : 1;
    n = 0;
    for (int64_t i = 0; i < r->candidates; i++)
        n = insert(best, which, n, wanted, cost(r, &r->list[i], cls, box), (int32_t)i);
    for (int i = 0; i < n; i++) {
        r->list[which[i]].owner = (int32_t)g;
        r->list[which[i]].claims++;
    }
}

/* Several want it: whom it costs least, of all. */
static void yolox_loss_settle(const row *r, candidate *c)
{
    double least = INFINITY;
    for (int64_t g = 0; g < r->objects; g++) {
        double box[4];
        const int64_t cls = kolo_label_box(r->label, g, box);
        const double is = cost(r, c, cls, box);
        if (!(is < least)) continue;
        least = is;
        c->owner = (int32_t)g;
    }
}

/* Cells without an object whose box lies mostly in a crowd are no background either: -2. */
static void pass_over_crowds(const row *r, int32_t *match)
{
    if (r->objects == r->label[0]) return;
    for (int i = 0; i < r->y->heads.count; i++) {
        const kolo_head *h = &r->y->heads.head[i];
        for (int64_t cell = 0; cell < h->view.pixels; cell++) {
            double raw[4], corner[4];
            int32_t *is = &match[h->first + cell];
            get_raw(r, i, cell, raw);
            kolo_yolox_decode(raw, cell % h->view.width, cell / h->view.width, h->stride, corner);
            if (*is < 0 && kolo_box_in_crowd(corner, r->label, r->objects, r->label[0], 1)) *is = -2;
        }
    }
}

static void assign(row *r, int32_t *match, float *share)
{
    for (int64_t a = 0; a < r->y->heads.cells; a++) match[a] = -1, share[a] = 0;
    find_candidates(r);
    for (int64_t g = 0; g < r->objects; g++) yolox_loss_claim(r, g);
    for (int64_t i = 0; i < r->candidates; i++) {
        candidate *c = &r->list[i];
        if (c->claims > 1) yolox_loss_settle(r, c);
        if (c->owner < 0) continue;
        const int64_t a = r->y->heads.head[c->head].first + c->cell;
        double box[4];
        kolo_label_box(r->label, c->owner, box);
        match[a] = c->owner;
        share[a] = (float)overlap(c, box);
    }
    pass_over_crowds(r, match);
}

static void add_cell(const row *r, bool l1, int head, int64_t cell, int32_t owner, double share,
                     row_sums *sums)
{
    const kolo_head *h = &r->y->heads.head[head];
    const int64_t column = cell % h->view.width, line = cell / h->view.width;
    double raw[4], box[4], goal[4];
    get_raw(r, head, cell, raw);
    const int64_t cls = kolo_label_box(r->label, owner, box);
    sums->foreground++;
    sums->part[BOX] += kolo_yolox_box_loss(r->y->overlap, raw, column, line, h->stride, box, NULL);
    for (int64_t k = 0; k < r->y->heads.classes; k++)
        sums->part[CLASS] += kolo_bce1(class_logit(r, head, cell, k), k == cls ? share : 0);
    if (!l1) return;
    kolo_yolox_encode(box, column, line, h->stride, goal);
    for (int k = 0; k < 4; k++) sums->part[L1] += fabs(raw[k] - goal[k]);
}

static row_sums add_row(const row *r, bool l1, const int32_t *match, const float *share)
{
    row_sums sums = {{0}, 0};
    for (int i = 0; i < r->y->heads.count; i++) {
        const kolo_head *h = &r->y->heads.head[i];
        for (int64_t cell = 0; cell < h->view.pixels; cell++) {
            const int64_t a = h->first + cell;
            if (match[a] >= -1)
                sums.part[OBJECT] += kolo_bce1(kolo_head_get(h, r->map[i], r->n, 4, cell), match[a] >= 0);
            if (match[a] >= 0) add_cell(r, l1, i, cell, match[a], (double)share[a], &sums);
        }
    }
    return sums;
}

static void write_metrics(float *metric, const row_sums *sums, int64_t rows, const int32_t *labels,
                          int64_t words)
{
    double part[PARTS] = {0}, boxes = 0, foreground = 0, whole = 0;
    for (int64_t n = 0; n < rows; n++) {
        for (int k = 0; k < PARTS; k++) part[k] += sums[n].part[k];
        foreground += (double)sums[n].foreground;
        boxes += kolo_label_objects(labels + n * words);
    }
    for (int k = 0; k < PARTS; k++) {
        part[k] *= (double)rows / fmax(foreground, 1);
        whole += part[k];
        metric[4 + k] = (float)part[k];
    }
    metric[0] = (float)whole;
    metric[1] = (float)foreground;
    metric[2] = (float)boxes;
    metric[3] = (float)rows;
}

/* in: heads, labels; out: metrics, match, overlap */
static int yolox_loss_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                          int slot)
{
    const yolox *y = k->state;
    const kolo_heads *h = &y->heads;
    const int32_t *labels = args[h->count];
    const int64_t rows = kolo_heads_valid(h, step, slot);
    row_sums *sums = workspace;
    int32_t *match = args[h->count + 2];
    float *share = args[h->count + 3];
    KOLO_TRY(kolo_heads_check(h, labels, rows, slot));
    memset(match + rows * h->cells, 0xFF, (size_t)((h->rows - rows) * h->cells) * sizeof *match);
    memset(share + rows * h->cells, 0, (size_t)((h->rows - rows) * h->cells) * sizeof *share);
#pragma omp parallel for schedule(dynamic, 1) num_threads(h->threads)
    for (int64_t n = 0; n < rows; n++) {
        char *own = (char *)workspace + y->row_bytes + (size_t)omp_get_thread_num() * y->thread_bytes;
        const int32_t *label = labels + n * h->words;
        row r = {y, (const void *const *)args, label, kolo_label_objects(label), n, (candidate *)own, 0};
        assign(&r, match + n * h->cells, share + n * h->cells);
        sums[n] = add_row(&r, y->l1 || step->l1, match + n * h->cells, share + n * h->cells);
    }
    write_metrics(args[h->count + 1], sums, rows, labels, h->words);
    return 0;
}

static void grad_cell(const row *r, bool l1, int head, int64_t cell, int32_t owner, double share,
                      double scale, void *to)
{
    const kolo_head *h = &r->y->heads.head[head];
    const int64_t column = cell % h->view.width, line = cell / h->view.width;
    double raw[4], box[4], goal[4], d[4];
    get_raw(r, head, cell, raw);
    const int64_t cls = kolo_label_box(r->label, owner, box);
    kolo_yolox_box_loss(r->y->overlap, raw, column, line, h->stride, box, d);
    kolo_yolox_encode(box, column, line, h->stride, goal);
    for (int k = 0; k < 4; k++) {
        if (l1) d[k] += (raw[k] > goal[k]) - (raw[k] < goal[k]);
        kolo_head_put(h, to, r->n, k, cell, d[k] * scale);
    }
    for (int64_t k = 0; k < r->y->heads.classes; k++)
        kolo_head_put(h, to, r->n, 5 + k, cell,
                      (kolo_sigmoid(class_logit(r, head, cell, k)) - (k == cls ? share : 0)) * scale);
}

static void grad_row(const row *r, bool l1, const int32_t *match, const float *share, double scale,
                     void *const *to)
{
    for (int i = 0; i < r->y->heads.count; i++) {
        const kolo_head *h = &r->y->heads.head[i];
        if (!to[i]) continue;
        for (int64_t cell = 0; cell < h->view.pixels; cell++) {
            const int64_t a = h->first + cell;
            const double p = kolo_sigmoid(kolo_head_get(h, r->map[i], r->n, 4, cell));
            if (match[a] >= -1) kolo_head_put(h, to[i], r->n, 4, cell, (p - (match[a] >= 0)) * scale);
            if (match[a] >= 0) grad_cell(r, l1, i, cell, match[a], (double)share[a], scale, to[i]);
        }
    }
}

/* in: heads, labels, match, overlap; out: dheads */
static int yolox_loss_run_grad(const kolo_kernel *k, void *const *args, void *workspace,
                               const kolo_step *step, int slot)
{
    (void)workspace;
    const yolox *y = k->state;
    const kolo_heads *h = &y->heads;
    const int32_t *labels = args[h->count], *match = args[h->count + 1];
    const float *share = args[h->count + 2];
    void *const *to = args + h->count + 3;
    const int64_t rows = kolo_heads_valid(h, step, slot);
    int64_t foreground = 0;
    for (int64_t a = 0; a < rows * h->cells; a++) foreground += match[a] >= 0;
    double scale = step->valid_global > 0 ? (double)rows / (double)step->valid_global : 0;
    scale *= (double)step->scaler.scale / fmax((double)foreground, 1);
#pragma omp parallel for schedule(static) num_threads(h->threads)
    for (int64_t n = 0; n < h->rows; n++) {
        const row r = {y, (const void *const *)args, labels + n * h->words, 0, n, NULL, 0};
        for (int i = 0; i < h->count; i++)
            if (to[i]) kolo_head_clear(&h->head[i], to[i], n);
        if (n < rows) grad_row(&r, y->l1 || step->l1, match + n * h->cells, share + n * h->cells, scale, to);
    }
    return 0;
}

int kolo_cpu_yolox_loss(const kolo_kernel_request *r, kolo_kernel *k)
{
    const bool backward = r->node->op == KOLO_OP_detect_loss_grad;
    yolox *y = kolo_alloc(sizeof *y);
    if (!y) return KOLO_ENOMEM;
    k->state = y;
    k->release = free;
    k->run = backward ? yolox_loss_run_grad : yolox_loss_run;
    KOLO_TRY(kolo_heads_fill(&y->heads, r, r->node->n_in - (backward ? 3 : 1), 1));
    y->centre = r->node->a.centre;
    y->overlap = r->node->a.overlap;
    y->l1 = r->node->a.l1;
    y->row_bytes = kolo_round_up((size_t)y->heads.rows * sizeof(row_sums), KOLO_ALIGN);
    y->thread_bytes = kolo_round_up((size_t)y->heads.cells * sizeof(candidate), KOLO_ALIGN);
    k->workspace = backward ? 0 : y->row_bytes + (size_t)y->heads.threads * y->thread_bytes;
    snprintf(k->name, sizeof k->name, "own%s", y->heads.head[0].view.bf16 ? " bf16" : "");
    return 0;
}
