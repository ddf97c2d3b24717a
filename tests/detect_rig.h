/* A loss of a detector in the rig: heads of numbers, boxes, the loss, the gradients of the heads. */
#ifndef TESTS_DETECT_RIG_H
#define TESTS_DETECT_RIG_H

#include "ops_rig.h"

enum { DETECT_HEADS = 3 };

typedef struct detect_rig {
    rig rig;
    int head[DETECT_HEADS], metrics, match, overlap;
    int64_t rows, boxes, classes;
} detect_rig;

typedef struct detect_shape {
    int64_t rows, height, width, boxes, classes, anchors; /* boxes: most of a row */
    enum kolo_dtype dtype;
} detect_shape;

/* Heads of strides 8, 16, 32; then the test adds the loss and calls detect_finish. */
static detect_rig detect_open(kolo_backend *backend, const detect_shape *s, int64_t block)
{
    detect_rig d = {
        .rig = rig_open(backend, s->dtype, block), .rows = s->rows, .boxes = s->boxes, .classes = s->classes};
    rig_check(kolo_input(d.rig.g, s->rows, s->height, s->width, 3, 1 + 5 * s->boxes), "input");
    for (int i = 0; i < DETECT_HEADS; i++) {
        int64_t dim[] = {s->rows, s->anchors * (5 + s->classes), s->height / (8 << i), s->width / (8 << i)};
        char name[8];
        snprintf(name, sizeof name, "raw%d", i);
        d.head[i] = rig_input(&d.rig, name, 4, dim);
    }
    return d;
}

static int detect_yolox(const detect_rig *d, enum kolo_overlap overlap, bool centre, bool l1)
{
    return kolo_detect_loss(d->rig.g, "yolox", DETECT_HEADS, d->head, 1, true,
                            &(kolo_attributes){.overlap = overlap, .centre = centre, .l1 = l1});
}

static int detect_yolov3(const detect_rig *d, const float anchor[9][2], const int32_t mask[DETECT_HEADS][3])
{
    kolo_attributes a = {0};
    memcpy(a.anchor, anchor, sizeof a.anchor);
    memcpy(a.mask, mask, DETECT_HEADS * sizeof *mask);
    return kolo_detect_loss(d->rig.g, "yolov3", DETECT_HEADS, d->head, 3, false, &a);
}

static void detect_finish(detect_rig *d, int metrics)
{
    kolo_graph *g = d->rig.g;
    rig_check(metrics, "loss");
    d->metrics = metrics;
    d->match = g->node[0].out[1];
    d->overlap = g->node[0].out[2];
    g->grad = malloc(64 * sizeof *g->grad);
    for (int i = 0; i < 64; i++) g->grad[i] = -1;
    rig_check(kolo_op_table[g->node[0].op].gradient(g, 0), "gradient rule");
    rig_layout(&d->rig);
    d->rig.step.valid_global = d->rows;
}

/* box: [rows][boxes][5] class, centre x, y, width, height; count: [rows] */
static void detect_boxes(detect_rig *d, const int *count, const float *box)
{
    const int64_t words = 1 + 5 * d->boxes;
    int32_t *label = calloc((size_t)(d->rows * words), sizeof *label);
    for (int64_t n = 0; n < d->rows; n++) {
        label[n * words] = count[n];
        for (int64_t i = 0; i < 5 * d->boxes; i++) {
            const float x = box[n * 5 * d->boxes + i];
            label[n * words + 1 + i] = i % 5 ? (int32_t)kolo_float_bits(x) : (int32_t)x;
        }
    }
    rig_check(kolo_backend_write(d->rig.backend, d->rig.buffer[d->rig.g->label], label,
                                 (size_t)(d->rows * words) * sizeof *label),
              "labels");
    free(label);
}

static int64_t detect_count(const detect_rig *d, int tensor)
{
    return kolo_tensor_count(&d->rig.g->tensor[tensor]);
}

/* The loss alone, metrics [8]; the status of its run. */
static int detect_forward(detect_rig *d, float *metrics)
{
    int rc = rig_run_node(&d->rig, 0);
    if (rc >= 0) rig_get(&d->rig, d->metrics, metrics);
    return rc;
}

/* The gradient of head i; caller frees. */
static float *detect_gradient(detect_rig *d, int i)
{
    float *v = malloc((size_t)detect_count(d, d->head[i]) * sizeof *v);
    rig_get(&d->rig, d->rig.g->grad[d->head[i]], v);
    return v;
}

#endif
