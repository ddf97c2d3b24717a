/* Losses of detectors: gradients beside differences of the loss, short micro-batches, threads, labels that
 * cannot be. YOLOX's own figures are a golden case; YOLOv3's assignment is checked by hand. */
#include "detect_rig.h"
#include "ops/yolox.h"

enum { ROWS = 3, BOXES = 4, CLASSES = 3 };
static const float anchors[9][2] = {{6, 8},   {10, 14}, {14, 10}, {20, 30}, {30, 20},
                                    {36, 40}, {48, 40}, {40, 56}, {60, 60}};
static const int32_t masks[3][3] = {{0, 1, 2}, {3, 4, 5}, {6, 7, 8}};
static const int counts[ROWS] = {3, 0, 3};
static const float boxes[ROWS][BOXES][5] = {
    {{0, 20.5f, 21, 20, 18}, {2, 40, 33, 36, 41}, {1, 41, 33.5f, 37, 40}, {0}},
    {{0}},
    {{1, 9, 50, 14, 11}, {1, 33, 31, 60, 62}, {-1, 48, 16, 32, 32}, {0}}, /* the last a crowd */
};

typedef struct kind {
    const char *name;
    bool yolox, centre, l1;
    enum kolo_overlap overlap;
} kind;
static const kind kinds[] = {{"YOLOX", true, true, false, KOLO_OVERLAP_IOU},
                             {"YOLOX with L1", true, true, true, KOLO_OVERLAP_IOU},
                             {"YOLOX 0.3.0", true, false, true, KOLO_OVERLAP_IOU},
                             {"YOLOX by GIoU", true, true, false, KOLO_OVERLAP_GIOU},
                             {"YOLOX by DIoU", true, true, false, KOLO_OVERLAP_DIOU},
                             {"YOLOv3", false, false, false, KOLO_OVERLAP_IOU}};

static detect_rig open_masks(const kind *k, kolo_backend *backend, enum kolo_dtype dtype, int64_t block,
                             const int32_t mask[3][3])
{
    const detect_shape s = {ROWS, 64, 64, BOXES, CLASSES, k->yolox ? 1 : 3, dtype};
    detect_rig d = detect_open(backend, &s, block);
    detect_finish(&d, k->yolox ? detect_yolox(&d, k->overlap, k->centre, false)
                               : detect_yolov3(&d, anchors, mask));
    d.rig.step.l1 = k->l1; /* as the last epochs have it */
    detect_boxes(&d, counts, &boxes[0][0][0]);
    return d;
}

static detect_rig open_kind(const kind *k, kolo_backend *backend, enum kolo_dtype dtype, int64_t block)
{
    return open_masks(k, backend, dtype, block, masks);
}

static float *numbers(const detect_rig *d, int i)
{
    const int64_t n = detect_count(d, d->head[i]);
    float *v = malloc((size_t)n * sizeof *v);
    uint32_t state = 12345u + (uint32_t)i;
    for (int64_t k = 0; k < n; k++) {
        state = state * 1664525u + 1013904223u;
        v[k] = ((float)(state >> 8) / 16777216.0f - 0.5f) * 1.5f;
    }
    return v;
}

/* Of the loss, what the channels of boxes (box) or the others decide. The overlap that a class is to be as
 * sure of is a number, whatever it comes from. */
static double part_of(detect_rig *d, bool box)
{
    float m[KOLO_METRICS];
    rig_check(detect_forward(d, m), "loss");
    return (box ? (double)m[4] + (double)m[7] : (double)m[5] + (double)m[6]) / (double)m[3];
}

static bool is_box(const detect_rig *d, int i, int64_t e)
{
    const kolo_tensor *t = &d->rig.g->tensor[d->head[i]];
    return e / (t->dim[2] * t->dim[3]) % t->dim[1] % (5 + CLASSES) < 4;
}

static void set_numbers(detect_rig *d)
{
    for (int i = 0; i < DETECT_HEADS; i++) {
        float *v = numbers(d, i);
        rig_set(&d->rig, d->head[i], v);
        free(v);
    }
}

/* Are the same anchors to find the same boxes? YOLOv3's never depend on numbers. */
static bool same_match(const detect_rig *d, const void *before)
{
    if (!before) return true;
    void *now = rig_raw(&d->rig, d->match);
    const bool same = !memcmp(before, now, d->rig.layout[d->match].bytes);
    free(now);
    return same;
}

/* Every element of head i that has a gradient, moved a little to both sides, if that gives no
 * box to another anchor. */
static double differences(detect_rig *d, int i, int *moved)
{
    float *v = numbers(d, i), *g = detect_gradient(d, i), step = 8e-3f;
    void *before = d->rig.g->node[0].n_out > 1 ? rig_raw(&d->rig, d->match) : NULL;
    double worst = 0, side[2];
    for (int64_t e = 0; e < detect_count(d, d->head[i]); e++) {
        const float was = v[e];
        bool same = true;
        if (fabsf(g[e]) < 1e-3f) continue;
        for (int s = 0; s < 2; s++) {
            v[e] = was + (s ? step : -step);
            rig_set(&d->rig, d->head[i], v);
            side[s] = part_of(d, is_box(d, i, e));
            same = same && same_match(d, before);
        }
        v[e] = was;
        rig_set(&d->rig, d->head[i], v);
        if (!same) continue;
        worst = fmax(worst, fabs((side[1] - side[0]) / (2 * (double)step) - (double)g[e]));
        (*moved)++;
    }
    free(before);
    free(v);
    free(g);
    return worst;
}

static void check_gradient(const kind *k, kolo_backend *backend)
{
    detect_rig d = open_kind(k, backend, KOLO_F32, 16);
    double worst = 0;
    int moved = 0;
    set_numbers(&d);
    rig_run(&d.rig);
    for (int i = 0; i < DETECT_HEADS; i++) worst = fmax(worst, differences(&d, i, &moved));
    ok(worst < 3e-3 && moved > 250, "%s: %d elements of the gradient agree with differences (%.1g off)",
       k->name, moved, worst);
    rig_close(&d.rig);
}

/* In any layout, number of threads and with fewer rows than there is room: the same bits; half
 * the rows weigh half. */
static void check_bits(const kind *k, kolo_backend *one, kolo_backend *two)
{
    float *first[DETECT_HEADS] = {NULL}, metrics[2][KOLO_METRICS];
    bool same = true, zero = true;
    for (int pass = 0; pass < 3; pass++) {
        detect_rig d = open_kind(k, pass == 1 ? two : one, KOLO_F32, pass == 1 ? RIG_NHWC : 8);
        if (pass == 2) d.rig.step.valid[0] = 1;
        set_numbers(&d);
        rig_run(&d.rig);
        rig_get(&d.rig, d.metrics, metrics[pass == 1]);
        for (int i = 0; i < DETECT_HEADS; i++) {
            const int64_t n = detect_count(&d, d.head[i]), row = n / ROWS;
            float *g = detect_gradient(&d, i);
            if (pass == 0) first[i] = g;
            if (pass == 1) same = same && !memcmp(first[i], g, (size_t)n * sizeof *g);
            for (int64_t e = row; pass == 2 && e < n; e++) zero = zero && g[e] == 0;
            if (pass) free(g);
        }
        if (pass == 1) same = same && !memcmp(metrics[0], metrics[1], sizeof metrics[0]);
        if (pass == 2)
            ok(metrics[0][3] == 1 && metrics[0][2] == 3, "%s: counts the rows that are there", k->name);
        zero = zero && rig_padding_is_zero(&d.rig);
        rig_close(&d.rig);
    }
    ok(same, "%s: the same bits in another layout, with other threads", k->name);
    ok(zero, "%s: rows that are not there, and padding, have no gradient", k->name);
    for (int i = 0; i < DETECT_HEADS; i++) free(first[i]);
}

/* A region over the left half of an image without objects, and heads that say cells of their stride
 * (YOLOX), anchors (YOLOv3). */
static void check_crowd(const kind *k, kolo_backend *backend)
{
    float metrics[2][KOLO_METRICS];
    const float region[ROWS][BOXES][5] = {{{-1, 16, 32, 32, 64}}};
    bool right = true;
    int none = 0;
    for (int pass = 0; pass < 2; pass++) {
        detect_rig d = open_kind(k, backend, KOLO_F32, 1);
        detect_boxes(&d, (const int[ROWS]){pass, 0, 0}, &region[0][0][0]);
        for (int i = 0; i < DETECT_HEADS; i++) {
            float *v = calloc((size_t)detect_count(&d, d.head[i]), sizeof *v);
            rig_set(&d.rig, d.head[i], v);
            free(v);
        }
        rig_run(&d.rig);
        rig_get(&d.rig, d.metrics, metrics[pass]);
        float *g = detect_gradient(&d, 0); /* 8 x 8 cells of 8 pixels, all three anchors within 24 */
        for (int64_t cell = 0; cell < 64; cell++) {
            /* YOLOX: its box begins at the cell's corner as its centre; YOLOv3: at its middle */
            const double x = (double)(cell % 8) * 8 + (k->yolox ? 0 : 4),
                         wide = k->yolox ? 8 : (double)anchors[0][0];
            const double y = (double)(cell / 8) * 8 + (k->yolox ? 0 : 4),
                         tall = k->yolox ? 8 : (double)anchors[0][1];
            const double across = fmin(x + wide / 2, 32) - fmax(x - wide / 2, 0),
                         down = fmin(y + tall / 2, 64) - fmax(y - tall / 2, 0);
            const bool crowd = pass && 2 * fmax(across, 0) * down > wide * tall;
            right = right && (g[4 * 64 + cell] == 0) == crowd;
            none += crowd;
        }
        free(g);
        rig_close(&d.rig);
    }
    ok(right && none > 20,
       "%s: cells whose box lies mostly in a crowd learn no background, all others do (%d)", k->name, none);
    ok(metrics[1][5] < metrics[0][5] && metrics[1][1] == 0 && metrics[1][2] == 0 && metrics[1][4] == 0,
       "%s: a crowd is no object to be found", k->name);
}

static void check_half(const kind *k, kolo_backend *backend)
{
    float metrics[2][KOLO_METRICS];
    for (int pass = 0; pass < 2; pass++) {
        detect_rig d = open_kind(k, backend, pass ? KOLO_BF16 : KOLO_F32, 16);
        for (int i = 0; i < DETECT_HEADS; i++) {
            float *v = numbers(&d, i);
            for (int64_t e = 0; e < detect_count(&d, d.head[i]); e++)
                v[e] = kolo_from_bf16(kolo_to_bf16(v[e]));
            rig_set(&d.rig, d.head[i], v);
            free(v);
        }
        rig_run(&d.rig);
        rig_get(&d.rig, d.metrics, metrics[pass]);
        rig_close(&d.rig);
    }
    ok(!memcmp(metrics[0], metrics[1], sizeof metrics[0]),
       "%s: heads in bf16 have the loss of the same numbers in f32", k->name);
}

static void check_labels(kolo_backend *backend)
{
    float metrics[KOLO_METRICS];
    detect_rig d = open_kind(&kinds[0], backend, KOLO_F32, 1);
    set_numbers(&d);
    const float bad[ROWS][BOXES][5] = {{{CLASSES, 20, 20, 10, 10}}},
                flat[ROWS][BOXES][5] = {{{0, 20, 20, 10, 0}}};
    const int one[ROWS] = {1, 0, 0}, many[ROWS] = {BOXES + 1, 0, 0}, none[ROWS] = {0, 0, 0};
    detect_boxes(&d, one, &bad[0][0][0]);
    is_int(detect_forward(&d, metrics), KOLO_EINPUT, "a class that the network lacks is refused");
    const float below[ROWS][BOXES][5] = {{{-2, 20, 20, 10, 10}}};
    detect_boxes(&d, one, &below[0][0][0]);
    is_int(detect_forward(&d, metrics), KOLO_EINPUT, "so is class -2; -1 is a region");
    detect_boxes(&d, one, &bad[0][0][0]);
    detect_forward(&d, metrics);
    ok(strstr(kolo_error_text(), "classes=") != NULL, "and the cure named: %s", kolo_error_text());
    detect_boxes(&d, one, &flat[0][0][0]);
    is_int(detect_forward(&d, metrics), KOLO_EINPUT, "so is a box without height");
    ok(strstr(kolo_error_text(), "height 0 is no box") != NULL, "in these words: %s", kolo_error_text());
    detect_boxes(&d, many, &boxes[0][0][0]);
    is_int(detect_forward(&d, metrics), KOLO_EINPUT, "and more boxes than there is room for");
    ok(strstr(kolo_error_text(), "has 5 boxes") != NULL, "in these words: %s", kolo_error_text());
    detect_boxes(&d, none, &boxes[0][0][0]);
    is_int(detect_forward(&d, metrics), 0, "images without boxes are a batch");
    ok(metrics[1] == 0 && metrics[5] > 0 && metrics[4] == 0 && metrics[6] == 0,
       "whose anchors are all background");
    rig_close(&d.rig);
}

/* One box of 20 x 28, centre (41, 23), and heads that say nothing. */
static void run_one_box(detect_rig *d, float *metrics)
{
    const int one[ROWS] = {1, 0, 0};
    const float box[ROWS][BOXES][5] = {{{2, 41, 23, 20, 28}}};
    detect_boxes(d, one, &box[0][0][0]);
    for (int i = 0; i < DETECT_HEADS; i++) {
        float *v = calloc((size_t)detect_count(d, d->head[i]), sizeof *v);
        rig_set(&d->rig, d->head[i], v);
        free(v);
    }
    rig_run(&d->rig);
    rig_get(&d->rig, d->metrics, metrics);
}

/* That box is most like anchor 3, 20 x 30, of the head of stride 16: cell (2, 1). */
static void check_yolov3(kolo_backend *backend)
{
    float metrics[KOLO_METRICS];
    detect_rig d = open_kind(&kinds[sizeof kinds / sizeof *kinds - 1], backend, KOLO_F32, 1);
    run_one_box(&d, metrics);
    float *g = detect_gradient(&d, 1);
    const int64_t cells = 16, at = 1 * 4 + 2;
    const double weight = 2 - 20.0 * 28 / (64 * 64), third = 1.0 / ROWS;
    is_near(g[0 * cells + at], third * weight * (0.5 - (41 / 16.0 - 2)), 1e-7,
            "YOLOv3: x of the cell that holds the centre");
    is_near(g[3 * cells + at], third * weight * -log(28 / 30.0), 1e-7, "h beside its anchor's");
    is_near(g[4 * cells + at], third * -0.5, 1e-7, "an object there");
    is_near(g[(5 + 2) * cells + at], third * -0.5, 1e-7, "of its class");
    is_near(g[5 * cells + at], third * 0.5, 1e-7, "and no other");
    is_near((double)metrics[6], CLASSES * log(2), 1e-5, "a cross entropy for each class");
    ok(metrics[1] == 1 && metrics[2] == 1 && metrics[3] == 3, "one anchor, one box, three rows");
    free(g);
    rig_close(&d.rig);
}

/* Five times torchvision's generalized_box_iou_loss, distance_box_iou_loss, complete_box_iou_loss (in double,
 * eps=0) of the box that a cell says, and what autograd makes of its raw numbers. */
static const struct figure {
    enum kolo_overlap kind;
    double raw[4];
    int64_t column, row, stride;
    double truth[4], loss, grad[4];
} figures[] = {
    {KOLO_OVERLAP_GIOU,
     {0.3, 0.7, 1.1, 0.4},
     3,
     2,
     8,
     {30, 20, 26, 18},
     2.594117691202,
     {-1.873767165343, 0, -0.058157858535, -2.702939759898}},
    {KOLO_OVERLAP_DIOU,
     {0.3, 0.7, 1.1, 0.4},
     3,
     2,
     8,
     {30, 20, 26, 18},
     2.507955694813,
     {-1.670614860354, 0.111994480803, -0.741815750561, -2.399806040293}},
    {KOLO_OVERLAP_CIOU,
     {0.3, 0.7, 1.1, 0.4},
     3,
     2,
     8,
     {30, 20, 26, 18},
     2.508679538094,
     {-1.670614859949, 0.111994480793, -0.737828477112, -2.403793313293}},
    {KOLO_OVERLAP_GIOU,
     {0.5, 0.1, -0.2, 0.9},
     1,
     4,
     16,
     {90, 20, 26, 58},
     8.745549657497,
     {-0.234614162535, 0.212896493954, -0.223546161736, -0.057768637281}},
    {KOLO_OVERLAP_DIOU,
     {0.5, 0.1, -0.2, 0.9},
     1,
     4,
     16,
     {90, 20, 26, 58},
     6.985377105275,
     {-0.316213632847, 0.080607564867, -0.137285125879, -0.454499209089}},
    {KOLO_OVERLAP_CIOU,
     {0.5, 0.1, -0.2, 0.9},
     1,
     4,
     16,
     {90, 20, 26, 58},
     6.985459178643,
     {-0.316213632847, 0.080607564869, -0.137776603151, -0.454007731810}},
    {KOLO_OVERLAP_GIOU,
     {-0.4, 0.2, 0.3, -0.6},
     0,
     1,
     32,
     {11, 41, 64, 12},
     4.170400938403,
     {-2.510148556967, 0, -1.092282847381, 2.502175153317}},
    {KOLO_OVERLAP_DIOU,
     {-0.4, 0.2, 0.3, -0.6},
     0,
     1,
     32,
     {11, 41, 64, 12},
     3.925641115617,
     {-2.996051180635, -0.132087956164, -0.696636160625, 0.947868428983}},
    {KOLO_OVERLAP_CIOU,
     {-0.4, 0.2, 0.3, -0.6},
     0,
     1,
     32,
     {11, 41, 64, 12},
     3.927520770023,
     {-2.996051180401, -0.132087956162, -0.703167801432, 0.954400069612}},
};

static void check_torchvision(void)
{
    static const char *const names[] = {"1 - IoU^2", "GIoU", "DIoU", "CIoU"};
    double worst[4] = {0};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const struct figure *f = &figures[i];
        double grad[4], *w = &worst[f->kind];
        *w =
            fmax(*w, fabs(kolo_yolox_box_loss(f->kind, f->raw, f->column, f->row, f->stride, f->truth, grad) -
                          f->loss));
        for (int k = 0; k < 4; k++) *w = fmax(*w, fabs(grad[k] - f->grad[k]));
    }
    for (int o = KOLO_OVERLAP_GIOU; o <= KOLO_OVERLAP_CIOU; o++)
        ok(worst[o] < 1e-8, "torchvision's loss by %s, and its gradient (%.1g off)", names[o], worst[o]);
}

/* The box of above where two heads have anchor 3: each learns it, as in darknet every layer looks for
 * itself. */
static void check_shared_anchor(kolo_backend *backend)
{
    static const int32_t shared[3][3] = {{1, 2, 3}, {3, 4, 5}, {6, 7, 8}};
    float metrics[KOLO_METRICS];
    detect_rig d = open_masks(&kinds[sizeof kinds / sizeof *kinds - 1], backend, KOLO_F32, 1, shared);
    run_one_box(&d, metrics);
    float *fine = detect_gradient(&d, 0), *coarse = detect_gradient(&d, 1);
    const double weight = 2 - 20.0 * 28 / (64 * 64), third = 1.0 / ROWS;
    const int64_t third_anchor = 2 * (5 + CLASSES); /* of the head of stride 8: cell (5, 2) of 8 x 8 */
    is_near(fine[third_anchor * 64 + 2 * 8 + 5], third * weight * (0.5 - (41 / 8.0 - 5)), 1e-7,
            "an anchor of two heads: x in the finer one");
    is_near(fine[(third_anchor + 4) * 64 + 2 * 8 + 5], third * -0.5, 1e-7, "an object there");
    is_near(coarse[1 * 4 + 2], third * weight * (0.5 - (41 / 16.0 - 2)), 1e-7, "x in the coarser one");
    is_near(coarse[4 * 16 + 1 * 4 + 2], third * -0.5, 1e-7, "and an object there");
    is_near((double)metrics[6], 2 * CLASSES * log(2), 1e-5, "its classes count in both");
    ok(metrics[1] == 2 && metrics[2] == 1, "two anchors, one box");
    free(fine);
    free(coarse);
    rig_close(&d.rig);
}

int main(void)
{
    check_torchvision();
    kolo_backend *one = rig_backend(1), *two = rig_backend(2);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        check_gradient(&kinds[i], two);
        check_bits(&kinds[i], one, two);
        check_half(&kinds[i], two);
        check_crowd(&kinds[i], two);
    }
    check_labels(two);
    check_yolov3(two);
    check_shared_anchor(two);
    kolo_backend_destroy(&one);
    kolo_backend_destroy(&two);
    return done_testing();
}
