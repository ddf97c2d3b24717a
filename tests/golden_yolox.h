/* Golden cases of detection: overlaps, suppression, COCO's figures, YOLOX's loss. */
#ifndef TESTS_GOLDEN_YOLOX_H
#define TESTS_GOLDEN_YOLOX_H

#include "detect_rig.h"
#include "golden_file.h"
#include "metrics/ap.h"
#include "metrics/nms.h"
#include "ops/boxes.h"

/* Numbers of a list; caller frees. */
static double *golden_list(const cJSON *list, int *count)
{
    int n = cJSON_GetArraySize(list), i = 0;
    double *v = malloc((size_t)(n + 1) * sizeof *v);
    const cJSON *item;
    cJSON_ArrayForEach(item, list) v[i++] = item->valuedouble;
    if (count) *count = n;
    return v;
}

static void golden_overlap_case(const char *label, const cJSON *json)
{
    static const char *const parts[] = {"formula", "hand"}, *const kinds[] = {"iou", "giou"};
    const uint64_t seed = golden_seed(json);
    for (int p = 0; p < 2; p++) {
        const cJSON *part = golden_at(json, parts[p]);
        golden_worst w = {0};
        int n, m;
        double *a = golden_list(golden_at(part, "a"), &n), *b = golden_list(golden_at(part, "b"), &m);
        double *v = malloc((size_t)(n * m) * sizeof *v);
        n /= 4, m /= 4;
        for (int kind = 0; kind < 2; kind++) {
            for (int i = 0; i < n; i++)
                for (int j = 0; j < m; j++)
                    v[i * m + j] = kolo_box_overlap((enum kolo_overlap)kind, a + 4 * i, b + 4 * j, NULL);
            golden_values(&w, golden_at(part, kinds[kind]), kinds[kind], seed, v, n * m);
        }
        golden_result(label, parts[p], &w);
        free(a);
        free(b);
        free(v);
    }
}

/* found[].cls and [].place: class, and number in the file. */
static bool golden_nms_same(kolo_found *found, int n, double threshold, bool by_class, const cJSON *want)
{
    int64_t kept = kolo_nms(found, n, threshold, by_class, n), i = 0;
    bool same = kept == cJSON_GetArraySize(want);
    const cJSON *item;
    cJSON_ArrayForEach(item, want) same = same && found[i++].place == (int32_t)item->valuedouble;
    return same;
}

static void golden_nms_case(const char *label, const cJSON *json)
{
    int n;
    double *box = golden_list(golden_at(json, "boxes"), NULL),
           *score = golden_list(golden_at(json, "scores"), &n);
    double *cls = golden_list(golden_at(json, "classes"), NULL);
    kolo_found *found = malloc((size_t)n * sizeof *found);
    const cJSON *result;
    cJSON_ArrayForEach(result, golden_at(json, "results")) for (int by_class = 0; by_class < 2; by_class++)
    {
        for (int i = 0; i < n; i++) {
            found[i] = (kolo_found){.score = score[i], .cls = (int32_t)cls[i]};
            memcpy(found[i].box, box + 4 * i, sizeof found[i].box);
        }
        const cJSON *want = golden_at(result, by_class ? "class_aware" : "agnostic");
        ok(golden_nms_same(found, n, atof(result->string), by_class, want), "%s at %s, %s: the same %d boxes",
           label, result->string, by_class ? "class by class" : "all together", cJSON_GetArraySize(want));
    }
    free(box);
    free(score);
    free(cls);
    free(found);
}

/* ---- COCO ---- */

static int golden_by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int32_t golden_class(const double *id, int count, double wanted)
{
    const double *at = bsearch(&wanted, id, (size_t)count, sizeof *id, golden_by_number);
    return at ? (int32_t)(at - id) : -1;
}

static void golden_box(const cJSON *entry, double *box)
{
    int k = 0;
    const cJSON *n;
    cJSON_ArrayForEach(n, golden_at(entry, "bbox")) if (k < 4) box[k++] = n->valuedouble;
}

/* Categories' numbers, rising; caller frees. */
static double *golden_categories(const cJSON *annotations, int *count)
{
    const cJSON *list = golden_at(annotations, "categories"), *item;
    double *id = malloc((size_t)(cJSON_GetArraySize(list) + 1) * sizeof *id);
    *count = 0;
    cJSON_ArrayForEach(item, list) id[(*count)++] = golden_number(item, "id", -1);
    qsort(id, (size_t)*count, sizeof *id, golden_by_number);
    return id;
}

static kolo_ap_truth *golden_truth(const cJSON *annotations, const double *id, int classes, int *count)
{
    const cJSON *list = golden_at(annotations, "annotations"), *item;
    kolo_ap_truth *t = malloc((size_t)(cJSON_GetArraySize(list) + 1) * sizeof *t);
    *count = 0;
    cJSON_ArrayForEach(item, list)
    {
        kolo_ap_truth *x = &t[(*count)++];
        *x = (kolo_ap_truth){.image = (int64_t)golden_number(item, "image_id", -1),
                             .cls = golden_class(id, classes, golden_number(item, "category_id", -1)),
                             .crowd = golden_number(item, "iscrowd", 0) != 0,
                             .area = golden_number(item, "area", 0)};
        golden_box(item, x->box);
    }
    return t;
}

static kolo_ap_found *golden_found(const cJSON *list, const double *id, int classes, int *count)
{
    const cJSON *item;
    kolo_ap_found *f = malloc((size_t)(cJSON_GetArraySize(list) + 1) * sizeof *f);
    *count = 0;
    cJSON_ArrayForEach(item, list)
    {
        kolo_ap_found *x = &f[(*count)++];
        *x = (kolo_ap_found){.image = (int64_t)golden_number(item, "image_id", -1),
                             .cls = golden_class(id, classes, golden_number(item, "category_id", -1)),
                             .score = golden_number(item, "score", 0)};
        golden_box(item, x->box);
    }
    return f;
}

static void golden_coco_classes(const char *label, const cJSON *json, const kolo_ap *ap, const double *id)
{
    double worst = 0, by_iou[KOLO_AP_IOUS] = {0};
    int compared = 0, classes = 0;
    for (int c = 0; c < ap->classes; c++) {
        char name[32];
        double mean = 0;
        snprintf(name, sizeof name, "%.0f", id[c]);
        const cJSON *want = golden_at(golden_at(json, "per_category"), name);
        if (ap->cls[c].ap[0][0] < 0) continue;
        for (int i = 0; i < KOLO_AP_IOUS; i++) {
            mean += ap->cls[c].ap[0][i] / KOLO_AP_IOUS;
            by_iou[i] += ap->cls[c].ap[0][i];
        }
        classes++;
        if (!want) continue;
        compared++;
        worst = fmax(worst, fabs(mean - golden_number(want, "AP", NAN)));
        worst = fmax(worst, fabs(ap->cls[c].ap[0][0] - golden_number(want, "AP50", NAN)));
    }
    for (int i = 0; i < KOLO_AP_IOUS; i++) {
        const cJSON *want = cJSON_GetArrayItem(golden_at(json, "per_iou_AP"), i);
        worst = fmax(worst, fabs(by_iou[i] / classes - (want ? want->valuedouble : NAN)));
    }
    ok(compared > 0 && worst <= 1e-9, "%s: %d classes and %d IoUs, worst %.1g away", label, compared,
       KOLO_AP_IOUS, worst);
}

static void golden_coco_case(const char *label, const cJSON *json)
{
    const char *shared = getenv("KOLO_SHARED");
    char path[4096];
    snprintf(path, sizeof path, "%s/data/%s", shared && *shared ? shared : "../shared",
             golden_text(golden_at(json, "config"), "annotations", ""));
    cJSON *annotations = golden_read(path);
    if (!annotations) {
        skip("%s: no %s here", label, path);
        return;
    }
    int classes, truths, founds;
    double *id = golden_categories(annotations, &classes);
    kolo_ap_truth *truth = golden_truth(annotations, id, classes, &truths);
    kolo_ap_found *found = golden_found(golden_at(json, "detections"), id, classes, &founds);
    kolo_ap ap;
    int rc = kolo_ap_coco(&ap, truth, truths, found, founds, classes);
    static const char *const line[12] = {"AP",  "AP50", "AP75",  "AP_small", "AP_medium", "AP_large",
                                         "AR1", "AR10", "AR100", "AR_small", "AR_medium", "AR_large"};
    for (int k = 0; k < 12 && rc == 0; k++)
        is_near(ap.line[k], golden_number(golden_at(json, "stats"), line[k], NAN), 1e-9, "%s: %s", label,
                line[k]);
    if (rc == 0) golden_coco_classes(label, json, &ap, id);
    else ok(0, "%s: %s", label, kolo_error_text());
    kolo_ap_free(&ap);
    free(id);
    free(truth);
    free(found);
    cJSON_Delete(annotations);
}

/* ---- YOLOX's loss ---- */

static detect_rig golden_yolox_open(const cJSON *config, kolo_backend *backend, int64_t block,
                                    const char *rule)
{
    const cJSON *truth = golden_at(config, "truth"), *size = golden_at(config, "size"), *row, *box, *number;
    detect_shape s = {.rows = cJSON_GetArraySize(truth),
                      .height = (int64_t)cJSON_GetArrayItem(size, 0)->valuedouble,
                      .width = (int64_t)cJSON_GetArrayItem(size, 1)->valuedouble,
                      .boxes = 8,
                      .classes = (int64_t)golden_number(config, "classes", 0),
                      .anchors = 1,
                      .dtype = KOLO_F32};
    detect_rig d = detect_open(backend, &s, block);
    detect_finish(&d, detect_yolox(&d, KOLO_OVERLAP_IOU, !strncmp(rule, "centre", 6), strstr(rule, "_l1")));
    float *all = calloc((size_t)(s.rows * s.boxes * 5), sizeof *all);
    int *count = calloc((size_t)s.rows, sizeof *count), n = 0;
    cJSON_ArrayForEach(row, truth)
    {
        float *to = all + n * s.boxes * 5;
        cJSON_ArrayForEach(box, row)
        {
            cJSON_ArrayForEach(number, box) *to++ = (float)number->valuedouble;
            count[n]++;
        }
        n++;
    }
    detect_boxes(&d, count, all);
    free(all);
    free(count);
    return d;
}

static void golden_yolox_fill(detect_rig *d, const cJSON *json)
{
    const cJSON *config = golden_at(json, "config"), *reg = golden_at(config, "reg");
    const uint64_t seed = golden_seed(json);
    for (int i = 0; i < DETECT_HEADS; i++) {
        const kolo_tensor *t = &d->rig.g->tensor[d->head[i]];
        const int64_t count = kolo_tensor_count(t), pixels = t->dim[2] * t->dim[3];
        float *v = malloc((size_t)count * sizeof *v), *box = malloc((size_t)count * sizeof *box);
        char name[16];
        snprintf(name, sizeof name, "loss.raw%d", i);
        golden_fill(name, seed, 0, golden_number(config, "b", 1), v, count);
        golden_fill(name, seed, cJSON_GetArrayItem(reg, 0)->valuedouble,
                    cJSON_GetArrayItem(reg, 1)->valuedouble, box, count);
        for (int64_t k = 0; k < count; k++)
            if (k / pixels % t->dim[1] < 4) v[k] = box[k];
        rig_set(&d->rig, d->head[i], v);
        free(v);
        free(box);
    }
}

/* Which anchors are to find which box, and how far they lie over it. */
static bool golden_yolox_match(golden_worst *w, const detect_rig *d, const cJSON *assignment, uint64_t seed)
{
    const int64_t cells = detect_count(d, d->match) / d->rows;
    const int32_t *match = rig_raw(&d->rig, d->match);
    const float *overlap = rig_raw(&d->rig, d->overlap);
    bool same = true;
    for (int64_t n = 0; n < d->rows; n++) {
        const cJSON *want = cJSON_GetArrayItem(assignment, (int)n), *fg = golden_at(want, "fg"), *item;
        double iou[256];
        int64_t found = 0, i = 0;
        for (int64_t a = 0; a < cells; a++)
            if (match[n * cells + a] >= 0 && found < 256) iou[found++] = (double)overlap[n * cells + a];
        same = same && found == cJSON_GetArraySize(fg);
        cJSON_ArrayForEach(item, fg)
        {
            const int32_t is = match[n * cells + (int64_t)item->valuedouble];
            same = same && is == (int32_t)cJSON_GetArrayItem(golden_at(want, "gt"), (int)i++)->valuedouble;
        }
        if (found) golden_values(w, golden_at(want, "iou"), "overlaps", seed, iou, found);
    }
    free((void *)(uintptr_t)match);
    free((void *)(uintptr_t)overlap);
    return same;
}

static void golden_yolox_compare(const char *label, detect_rig *d, const cJSON *json, const cJSON *result)
{
    static const char *const parts[] = {"total", "iou", "obj", "cls", "l1"};
    static const int place[] = {0, 4, 5, 6, 7};
    const cJSON *loss = golden_at(result, "loss");
    const uint64_t seed = golden_seed(json);
    golden_worst w = {0};
    float metrics[KOLO_METRICS];
    golden_yolox_fill(d, json);
    rig_run(&d->rig);
    rig_get(&d->rig, d->metrics, metrics);
    ok(golden_yolox_match(&w, d, golden_at(result, "assignment"), seed),
       "%s: the same anchors for the same boxes", label);
    golden_result(label, "overlaps", &w);
    w = (golden_worst){0};
    for (int k = 0; k < 5; k++)
        if (golden_at(loss, parts[k]))
            golden_scalar(&w, golden_at(loss, parts[k]), parts[k],
                          (double)metrics[place[k]] / (double)metrics[3]);
    golden_note(&w, "anchors", fabs((double)metrics[1] - golden_number(result, "fg_total", -1)), 0.5);
    golden_result(label, "loss", &w);
    w = (golden_worst){0};
    for (int i = 0; i < DETECT_HEADS; i++) {
        char name[24];
        snprintf(name, sizeof name, "loss.raw%d", i);
        float *v = detect_gradient(d, i);
        golden_floats(&w, golden_at(golden_at(result, "grads"), name + 5), name, seed, v,
                      detect_count(d, d->head[i]));
        const cJSON *whole = golden_at(golden_at(result, "grads_full"), name + 5);
        if (whole) golden_floats(&w, whole, name, seed, v, detect_count(d, d->head[i]));
        free(v);
    }
    golden_result(label, "gradients", &w);
    ok(rig_padding_is_zero(&d->rig), "%s: padding is zero", label);
}

static void golden_yolox_case(const char *label, const cJSON *json, kolo_backend *backend)
{
    static const int64_t block[] = {1, 8, 16, RIG_NHWC};
    const cJSON *result;
    const bool host = kolo_backend_is_host(backend);
    cJSON_ArrayForEach(result, golden_at(json, "results")) for (int i = 0; i < (host ? 4 : 1); i++)
    {
        char name[300];
        detect_rig d =
            golden_yolox_open(golden_at(json, "config"), backend, host ? block[i] : RIG_OWN, result->string);
        snprintf(name, sizeof name, "%.200s %.40s, layout %d", label, result->string, i);
        golden_yolox_compare(name, &d, json, result);
        rig_close(&d.rig);
    }
}

static void golden_detect_case(const char *label, const cJSON *json, kolo_backend *backend)
{
    if (!strcmp(label, "detect/overlap")) golden_overlap_case(label, json);
    else if (!strcmp(label, "detect/nms")) golden_nms_case(label, json);
    else if (!strcmp(label, "detect/yolox_loss")) golden_yolox_case(label, json, backend);
    else if (!strncmp(label, "detect/coco_", 12)) golden_coco_case(label, json);
    else skip("%s: no check of this case here", label);
}

#endif
