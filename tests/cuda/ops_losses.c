/* Losses of classes with all forms of labels, the layer of cosines and its margin, and losses of detectors on
 * the CUDA backend, against the CPU backend's. */
#include "cuda_pair.h"
#include "detect_rig.h"

/* ---- classes ------------------------------------------------------------------------------------------- */

enum form { ONE, WEIGHED, TWO, NUMBERS, FORMS, IMAGE = FORMS };
static const char *const form_name[] = {"classes", "classes and their weights", "pairs of classes", "numbers",
                                        "image labels"};

typedef struct shape {
    int64_t rows, classes;
    int32_t valid;
    double smoothing;
    enum fill fill;
} shape;
static const shape shapes[] = {
    {5, 10, 5, 0, SMOOTH}, {7, 33, 4, 0.1, LEVELS}, {2, 3000, 2, 0.1, SMOOTH}, {9, 17, 9, 0.2, STRANGE}};

static int make_labels(rig *r, const shape *s, enum form form)
{
    if (form == IMAGE)
        return kolo_graph_tensor(r->g, "targets", KOLO_ROLE_LABEL, KOLO_F32, 3,
                                 (const int64_t[]){s->rows, 2, s->classes});
    if (form != NUMBERS) {
        rig_check(kolo_input(r->g, s->rows, 1, 1, 1, form == ONE ? 1 : form == WEIGHED ? 2 : 3), "input");
        return r->g->label;
    }
    const int64_t dim[2] = {s->rows, s->classes};
    return kolo_graph_tensor(r->g, "targets", KOLO_ROLE_LABEL, KOLO_F32, 2, dim);
}

/* Classes, pairs with any weight (of the same class, too), numbers of which few are not 0, or image labels: a
 * quarter of the classes unknown, an eighth mixed. */
static void set_labels(pair *p, int t, const shape *s, enum form form)
{
    const int64_t each = form == ONE       ? 1
                         : form == WEIGHED ? 2
                         : form == TWO     ? 3
                         : form == IMAGE   ? 2 * s->classes
                                           : s->classes;
    int32_t *label = calloc((size_t)(s->rows * each), sizeof *label);
    for (int64_t n = 0; n < s->rows; n++) {
        int32_t *row = label + n * each;
        const uint32_t a = next(&p->seed), b = next(&p->seed);
        const float weight = (float)(a >> 8) * 0x1p-24f;
        for (int64_t c = 0; form == IMAGE && c < s->classes; c++) {
            const uint32_t kind = next(&p->seed) % 8;
            row[c] = (int32_t)kolo_float_bits(kind < 3 ? weight : 0);
            row[s->classes + c] = (int32_t)kolo_float_bits(kind >= 2 && kind < 6 ? 1 - weight / 2 : 0);
        }
        if (form < NUMBERS) row[0] = (int32_t)(a % (uint32_t)s->classes);
        if (form == WEIGHED) {
            const float factor = .25f * (float)(1 + a % 9);
            memcpy(&row[1], &factor, sizeof factor);
        }
        if (form == TWO) {
            row[1] = n % 3 == 2 ? row[0] : (int32_t)(b % (uint32_t)s->classes);
            row[2] = (int32_t)kolo_float_bits(n % 4 == 3 ? 1.0f : weight);
        }
        for (int k = 0; form == NUMBERS && k < 3; k++)
            row[next(&p->seed) % (uint32_t)s->classes] =
                (int32_t)kolo_float_bits(weight * (float)(k + 1) / 4);
    }
    for (int i = 0; i < 2; i++)
        rig_check(
            kolo_backend_write(p->side[i].backend, p->side[i].buffer[t], label, (size_t)(s->rows * each) * 4),
            "labels");
    free(label);
}

static void step_of(rig *r, const shape *s)
{
    r->step.valid[0] = s->valid;
    r->step.valid_global = 3 * s->rows;
}

static void loss(enum kolo_dtype dtype, const shape *s, bool binary, enum form form)
{
    pair p = pair_open(dtype, binary ? "bce" : "cross_entropy");
    const int64_t dim[2] = {s->rows, s->classes};
    const bool two = (form + binary) % 2; /* auxiliary logits */
    int x = 0, second = 0, labels = 0, dx = 0, dsecond = 0, metrics = 0;
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        labels = make_labels(r, s, form);
        x = rig_input(r, "logits", 2, dim);
        dx = rig_input(r, "dlogits", 2, dim);
        second = rig_input(r, "second", 2, dim);
        dsecond = rig_input(r, "dsecond", 2, dim);
        const int in[] = {x, labels, second}, of_second[] = {second, labels};
        const kolo_attributes a = {.smoothing = s->smoothing},
                              weighed = {.smoothing = s->smoothing, .weight = .4};
        const enum kolo_op back = binary ? KOLO_OP_bce_grad : KOLO_OP_cross_entropy_grad;
        int node = kolo_graph_node(r->g, binary ? KOLO_OP_bce : KOLO_OP_cross_entropy, two ? 3 : 2, in, 1,
                                   two ? &weighed : &a, "metrics");
        rig_check(node, "loss");
        metrics = r->g->node[node].out[0];
        rig_check(kolo_graph_node_with(r->g, back, 2, in, 1, &dx, &a), "grad");
        rig_check(kolo_graph_node_with(r->g, back, 2, of_second, 1, &dsecond, &weighed), "auxiliary grad");
        step_of(r, s);
        rig_layout(r);
    }
    snprintf(p.shape, sizeof p.shape, "%ld rows of %ld classes, %s", (long)s->rows, (long)s->classes,
             form_name[form]);
    pair_fill(&p, x, s->fill);
    pair_fill(&p, second, s->fill);
    set_labels(&p, labels, s, form);
    for (int i = 0; i < 2; i++) rig_run(&p.side[i]);
    failures += unlike(&p, metrics, 4e-6, 1) > 0;
    failures += unlike(&p, dsecond, 2 * ulp(dtype), form == IMAGE ? .1 : 1e-3) > 0;
    /* of image labels a difference of two weights */
    failures += unlike(&p, dx, 2 * ulp(dtype), form == IMAGE ? .1 : 1e-3) > 0;
    pair_close(&p);
}

static void losses(enum kolo_dtype dtype)
{
    failures = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int form = 0; form < FORMS; form++)
            for (int binary = 0; binary < 2; binary++) loss(dtype, &shapes[k], binary, (enum form)form);
    is_int(failures, 0, "%s: cross entropy and binary cross entropy, of classes, pairs and numbers",
           kolo_dtype_name(dtype));
    failures = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++) loss(dtype, &shapes[k], true, IMAGE);
    is_int(failures, 0, "%s: binary cross entropy of image labels", kolo_dtype_name(dtype));
}

/* ---- classes in parts ---------------------------------------------------------------------------------- */

enum { PARTS = 2 };

/* A tensor (N, width) that op makes of `in`, of part i of the classes. */
static int part_node(rig *r, const shape *s, enum kolo_op op, int i, int n_in, const int *in,
                     enum kolo_dtype dtype, int64_t width)
{
    const int64_t dim[] = {s->rows, width}, first = i * (s->classes / 3);
    const kolo_attributes a = {.smoothing = s->smoothing, .first = first, .count = s->classes};
    char name[40];
    snprintf(name, sizeof name, "%s:%d", kolo_op_table[op].name, i);
    const int made = kolo_graph_tensor(r->g, name, dtype == KOLO_F64 ? KOLO_ROLE_TERM : KOLO_ROLE_ACTIVATION,
                                       dtype, 2, dim);
    rig_check(made, name);
    rig_check(kolo_graph_node_with(r->g, op, n_in, in, 1, &made, &a), name);
    return made;
}

static void loss_in_parts(enum kolo_dtype dtype, const shape *s, enum form form)
{
    pair p = pair_open(dtype, "class_loss");
    int x[PARTS], dx[PARTS], labels = 0, metrics = 0;
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        const int64_t size[PARTS] = {s->classes / 3, s->classes - s->classes / 3}, four = 4;
        int peaks[PARTS], terms[PARTS];
        labels = make_labels(r, s, form);
        for (int k = 0; k < PARTS; k++)
            x[k] = rig_input(r, k ? "second" : "first", 2, (const int64_t[]){s->rows, size[k]});
        for (int k = 0; k < PARTS; k++)
            peaks[k] =
                part_node(r, s, KOLO_OP_class_peaks, k, 2, (const int[]){x[k], labels}, KOLO_F32, KOLO_PEAKS);
        const int all = part_node(r, s, KOLO_OP_largest, 0, PARTS, peaks, KOLO_F32, KOLO_PEAKS);
        for (int k = 0; k < PARTS; k++)
            terms[k] = part_node(r, s, KOLO_OP_class_terms, k, 3, (const int[]){x[k], labels, all}, KOLO_F64,
                                 KOLO_TERMS);
        const int sums = part_node(r, s, KOLO_OP_total, 0, PARTS, terms, KOLO_F64, KOLO_TERMS);
        const kolo_attributes a = {.smoothing = s->smoothing, .count = s->classes};
        metrics = kolo_graph_tensor(r->g, "metrics", KOLO_ROLE_METRIC, KOLO_F32, 1, &four);
        rig_check(kolo_graph_node_with(r->g, KOLO_OP_class_loss, 3, (const int[]){sums, all, labels}, 1,
                                       &metrics, &a),
                  "loss");
        for (int k = 0; k < PARTS; k++)
            dx[k] = part_node(r, s, KOLO_OP_class_grad, k, 4, (const int[]){x[k], labels, all, sums},
                              r->g->tensor[x[k]].dtype, size[k]);
        step_of(r, s);
        rig_layout(r);
    }
    snprintf(p.shape, sizeof p.shape, "%ld rows of %ld classes in parts, %s", (long)s->rows, (long)s->classes,
             form_name[form]);
    for (int k = 0; k < PARTS; k++) pair_fill(&p, x[k], s->fill);
    set_labels(&p, labels, s, form);
    for (int i = 0; i < 2; i++) rig_run(&p.side[i]);
    failures += unlike(&p, metrics, 4e-6, 1) > 0;
    for (int k = 0; k < PARTS; k++) failures += unlike(&p, dx[k], 2 * ulp(dtype), 1e-3) > 0;
    pair_close(&p);
}

static void parts_of_classes(enum kolo_dtype dtype)
{
    failures = 0;
    for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
        for (int form = 0; form < FORMS; form++) loss_in_parts(dtype, &shapes[k], (enum form)form);
    is_int(failures, 0, "%s: cross entropy of classes in two parts", kolo_dtype_name(dtype));
}

/* ---- faces --------------------------------------------------------------------------------------------- */

static void margin(enum kolo_dtype dtype, const shape *s, enum form form)
{
    pair p = pair_open(dtype, "arc_margin");
    const int64_t dim[2] = {s->rows, s->classes};
    int x = 0, labels = 0;
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        labels = make_labels(r, s, form);
        x = rig_input(r, "cosines", 2, dim);
        const int in[] = {x, labels};
        const kolo_attributes a = {.margin = 0.5, .scale = 64};
        int node = kolo_graph_node(r->g, KOLO_OP_arc_margin, 2, in, 1, &a, "y");
        rig_check(node, "margin");
        rig_backward(r, r->g->node[node].out[0]);
        step_of(r, s);
        rig_layout(r);
    }
    for (int t = 0; t < (int)p.side[0].g->tensors; t++)
        if (p.side[0].g->tensor[t].producer < 0 && t != labels) pair_fill(&p, t, SMOOTH);
    float *v = malloc((size_t)(s->rows * s->classes) * sizeof *v);
    rig_get(&p.side[0], x, v);
    for (int64_t i = 0; i < s->rows * s->classes; i++) v[i] /= 2; /* -1 to 1 */
    for (int i = 0; i < 2; i++) rig_set(&p.side[i], x, v);
    free(v);
    set_labels(&p, labels, s, form);
    pair_check_above(&p, dtype == KOLO_F32 ? 1e-5 : 2 * ulp(dtype), 1);
}

static void cosine(enum kolo_dtype dtype, int64_t rows, int64_t width, int64_t out)
{
    pair p = pair_open(dtype, "cosine");
    const int64_t dim[2] = {rows, width};
    int x = 0;
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        x = rig_input(r, "x", 2, dim);
        rig_backward(r, kolo_cosine(r->g, "y", x, out, rig_init));
        rig_layout(r);
    }
    for (int t = 0; t < (int)p.side[0].g->tensors; t++)
        if (p.side[0].g->tensor[t].producer < 0) pair_fill(&p, t, SMOOTH);
    /* in 16-bit types the units themselves are rounded, and what of dx lies along x cancels */
    pair_check_above(&p, dtype == KOLO_F32 ? 2e-5 : 4 * ulp(dtype), 1);
}

static void faces(enum kolo_dtype dtype)
{
    failures = 0;
    for (size_t k = 0; k < 3; k++)
        for (int form = 0; form < FORMS; form++) margin(dtype, &shapes[k], (enum form)form);
    is_int(failures, 0, "%s: the margin of the own class, and its gradient", kolo_dtype_name(dtype));
    failures = 0;
    cosine(dtype, 5, 40, 16);
    cosine(dtype, 3, 33, 7);
    cosine(dtype, 8, 512, 24);
    is_int(failures, 0, "%s: cosines and the gradients of both sides", kolo_dtype_name(dtype));
}

/* ---- detectors ----------------------------------------------------------------------------------------- */

enum { ROWS = 4, BOXES = 5, CLASSES = 3 };
static const float anchors[9][2] = {{6, 8},   {10, 14}, {14, 10}, {20, 30}, {30, 20},
                                    {36, 40}, {48, 40}, {40, 56}, {60, 60}};
static const int32_t masks[3][3] = {{1, 2, 3}, {3, 4, 5}, {6, 7, 8}}; /* two have anchor 3 */
static const int counts[ROWS] = {5, 1, 4, 1};                         /* of class -1: crowds */
static const float boxes[ROWS][BOXES][5] = {
    {{0, 20.5f, 21, 20, 18},
     {2, 40, 33, 36, 41},
     {1, 41, 33.5f, 37, 40},
     {1, 41, 33.5f, 38, 40},
     {2, 8, 60, 9, 7}},
    {{-1, 48, 32, 64, 63}},
    {{1, 9, 50, 14, 11}, {1, 33, 31, 60, 62}, {-1, 80, 16, 30, 31}, {-1, 20, 20, 20, 24}},
    {{2, 30, 30, 30, 30}},
};

typedef struct kind {
    const char *name;
    bool yolox, centre, l1;
    int32_t valid;
    enum kolo_overlap overlap;
} kind;
static const kind kinds[] = {{"YOLOX", true, true, false, ROWS, KOLO_OVERLAP_IOU},
                             {"YOLOX with L1, short", true, true, true, 3, KOLO_OVERLAP_IOU},
                             {"YOLOX 0.3.0", true, false, true, ROWS, KOLO_OVERLAP_IOU},
                             {"YOLOX by GIoU", true, true, false, ROWS, KOLO_OVERLAP_GIOU},
                             {"YOLOX by CIoU", true, true, false, ROWS, KOLO_OVERLAP_CIOU},
                             {"YOLOv3", false, false, false, ROWS, KOLO_OVERLAP_IOU},
                             {"YOLOv3, short", false, false, false, 2, KOLO_OVERLAP_IOU}};

static detect_rig open_kind(const kind *k, kolo_backend *backend, enum kolo_dtype dtype)
{
    const detect_shape s = {ROWS, 64, 96, BOXES, CLASSES, k->yolox ? 1 : 3, dtype};
    detect_rig d = detect_open(backend, &s, backend == cpu ? 8 : RIG_OWN);
    detect_finish(&d, k->yolox ? detect_yolox(&d, k->overlap, k->centre, false)
                               : detect_yolov3(&d, anchors, masks));
    d.rig.step.l1 = k->l1; /* as the last epochs have it */
    d.rig.step.valid[0] = k->valid;
    d.rig.step.scaler.scale = 8;
    detect_boxes(&d, counts, &boxes[0][0][0]);
    return d;
}

static void detector(const kind *k, enum kolo_dtype dtype)
{
    detect_rig d[2] = {open_kind(k, cpu, KOLO_F32), open_kind(k, gpu, dtype)};
    pair p = {.side = {d[0].rig, d[1].rig}, .dtype = dtype, .what = k->name, .seed = 3};
    for (int i = 0; i < DETECT_HEADS; i++) pair_fill(&p, d[0].head[i], SMOOTH);
    for (int i = 0; i < 2; i++) rig_run(&p.side[i]);
    failures += unlike(&p, d[0].metrics, 1e-5, 1) > 0;
    if (k->yolox) {
        failures += unlike(&p, d[0].match, 0, 1) > 0;
        /* what is compared is rounded */
        failures += unlike(&p, d[0].overlap, dtype == KOLO_F32 ? 1e-6 : 1, 1e-3) > 0;
    }
    for (int i = 0; i < DETECT_HEADS; i++)
        failures +=
            unlike(&p, p.side[0].g->grad[d[0].head[i]], dtype == KOLO_F32 ? 1e-5 : 2 * ulp(dtype), 1e-3) > 0;
    failures += !rig_padding_is_zero(&p.side[1]);
    pair_close(&p);
}

/* What the host is told of boxes that cannot be, in the words that the CPU would use. */
static void bad_boxes(const kind *k)
{
    static const struct {
        int field, count;
        float value;
        const char *text;
    } bad[] = {{0, 2, CLASSES, "row 2 of micro-batch 0 has label 3, but the network has 3 classes"},
               {3, 2, 0, "width 0, height 20 is no box"},
               {1, 2, INFINITY, "centre inf, 40, "},
               {0, BOXES + 1, 0, "has 6 boxes"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        detect_rig d = open_kind(k, gpu, KOLO_F32);
        float wrong[ROWS][BOXES][5], metric[KOLO_METRICS];
        int count[ROWS];
        memcpy(wrong, boxes, sizeof wrong);
        memcpy(count, counts, sizeof count);
        const float box[5] = {0, 30, 40, 16, 20};
        memcpy(wrong[2][1], box, sizeof box);
        wrong[2][1][bad[i].field] = bad[i].value;
        count[2] = bad[i].count;
        detect_boxes(&d, count, &wrong[0][0][0]);
        for (int h = 0; h < DETECT_HEADS; h++) {
            float *v = calloc((size_t)detect_count(&d, d.head[h]), sizeof *v);
            rig_set(&d.rig, d.head[h], v);
            free(v);
        }
        rig_check(detect_forward(&d, metric), "loss");
        is_int(kolo_bad_label_fail(&d.rig.step.bad, CLASSES), KOLO_EINPUT, "%s: bad boxes are reported",
               k->name);
        ok(strstr(kolo_error_text(), bad[i].text) != NULL, "in these words: %s", kolo_error_text());
        ok(isfinite(metric[0]) && (int)metric[2] == count[0] + count[3], "and their row has no boxes");
        rig_close(&d.rig);
    }
}

int main(void)
{
    cuda_rig();
    pair_backends();
    for (int i = 0; i < 3; i++) {
        losses(types[i]);
        parts_of_classes(types[i]);
        faces(types[i]);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            failures = 0;
            detector(&kinds[k], types[i]);
            is_int(failures, 0, "%s: %s: the same anchors, the same loss and gradients",
                   kolo_dtype_name(types[i]), kinds[k].name);
        }
    }
    bad_boxes(&kinds[0]);
    bad_boxes(&kinds[5]);
    pair_backends_close();
    return done_testing();
}
