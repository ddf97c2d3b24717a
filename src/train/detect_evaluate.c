#include "train/detect_evaluate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "metrics/ap.h"
#include "metrics/detect_find.h"
#include "metrics/detect_truth.h"
#include "train/gather.h"
#include "train/parts.h"

enum { EXAMPLES = 6 };

typedef struct detect_evaluator {
    kolo_session *session;
    const kolo_graph *graph; /* the evaluation's */
    kolo_detect_config fit;
    const kolo_detect_truth *truth;
    float *head[KOLO_MAX_HEADS]; /* what the network put out for a micro-batch */
    kolo_found_list list;        /* of one image */
    kolo_by_class *by;           /* NULL: examples are not kept */
    kolo_ap_found *found;        /* of all */
    int64_t founds, capacity;
} detect_evaluator;

static int detect_evaluator_open(detect_evaluator *e, kolo_session *s)
{
    *e = (detect_evaluator){
        .session = s, .fit = kolo_session_loader(s, false).detect, .graph = kolo_session_eval_graph(s)};
    const kolo_graph *g = e->graph;
    for (int i = 0; i < g->heads; i++) {
        e->head[i] = kolo_alloc((size_t)kolo_tensor_count(&g->tensor[g->head[i]]) * sizeof(float));
        if (!e->head[i]) return KOLO_ENOMEM;
    }
    if (!s->truth) KOLO_TRY(kolo_detect_truth_read(&s->truth, s->val_set));
    e->truth = s->truth;
    return 0;
}

static void detect_evaluator_close(detect_evaluator *e)
{
    for (int i = 0; i < KOLO_MAX_HEADS; i++) free(e->head[i]);
    kolo_found_free(&e->list);
    free(e->found);
}

int kolo_detect_answer(const kolo_session *s, const kolo_batch *batch, float *const *head)
{
    const kolo_graph *g = kolo_session_eval_graph(s);
    kolo_exec *exec = kolo_session_eval_exec(s);
    KOLO_TRY(kolo_exec_infer(exec, batch));
    for (int i = 0; i < g->heads && kolo_session_answers(s, g->head[i]); i++)
        KOLO_TRY(kolo_exec_get(exec, "activation", g->head[i], head[i]));
    return 0;
}

/* From the network's input back to the source. */
static int detect_evaluate_keep(detect_evaluator *e, int64_t sample, const kolo_found *f)
{
    double stored[4];
    int height, width;
    KOLO_TRY(kolo_grow(&e->found, &e->capacity, e->founds, sizeof *e->found));
    kolo_dataset_size(e->session->val_set, sample, &height, &width);
    kolo_detect_unfit(&e->fit, height, width, f->box, stored);
    kolo_ap_found *to = &e->found[e->founds++];
    *to = (kolo_ap_found){.image = e->truth->image[sample], .cls = f->cls, .score = f->score};
    kolo_detect_to_source(e->session->val_set, sample, stored, to->box);
    kolo_ap_round(to->box, &to->score);
    return 0;
}

/* The surest of what was found in an example: `list` is by falling score. */
static int keep_examples(detect_evaluator *e, int64_t sample)
{
    enum { MOST = 20 };
    static const double least = 0.25;
    int height, width;
    if (!e->by || sample % e->by->apart) return 0;
    kolo_dataset_size(e->session->val_set, sample, &height, &width);
    for (int64_t i = 0; i < e->list.count && i < MOST && e->list.found[i].score >= least; i++) {
        const kolo_found *f = &e->list.found[i];
        kolo_example example = {.sample = sample, .cls = f->cls, .score = f->score};
        kolo_detect_unfit(&e->fit, height, width, f->box, example.box);
        KOLO_TRY(kolo_by_class_keep(e->by, &example));
    }
    return 0;
}

static int detect_evaluate_batch(void *argument, const kolo_batch *batch)
{
    detect_evaluator *e = argument;
    const kolo_session *s = e->session;
    const kolo_graph *g = e->graph;
    KOLO_TRY(kolo_detect_answer(s, batch, e->head));
    if (!kolo_session_answers(s, g->head[0])) return 0;
    for (int64_t n = 0; n < batch->valid; n++) {
        KOLO_TRY(kolo_detect_find(g, (const float *const *)e->head, n, s->options->conf, s->options->nms,
                                  &e->list));
        KOLO_TRY(keep_examples(e, batch->samples[n]));
        for (int64_t i = 0; i < e->list.count; i++)
            KOLO_TRY(detect_evaluate_keep(e, batch->samples[n], &e->list.found[i]));
    }
    return 0;
}

/* Both rules of VOC, of boxes that are not COCO's. */
static int measure_voc(const detect_evaluator *e, double voc[2])
{
    const kolo_session *s = e->session;
    const int classes = kolo_dataset_get_info(s->val_set)->classes;
    double *ap = kolo_alloc((size_t)(classes + 1) * sizeof *ap);
    int rc = ap ? 0 : KOLO_ENOMEM;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = kolo_ap_voc(ap, &voc[i], e->truth->truth, e->truth->truths, e->found, e->founds, classes, 0.5,
                         i == 0);
    free(ap);
    return rc;
}

/* Which rule's figure is the measure. */
static int rule_of(const kolo_session *s)
{
    if (s->options->ap != KOLO_ap_auto) return s->options->ap;
    return strcmp(kolo_dataset_targets(s->val_set)->box_form, "norm_xyxy") ? KOLO_ap_coco
                                                                           : KOLO_ap_openimages;
}

static int read_hierarchy(kolo_session *s)
{
    const kolo_options *o = s->options;
    const int classes = kolo_dataset_get_info(s->val_set)->classes;
    if (!*o->hierarchy || s->truth->hierarchy) return 0;
    const char **name = kolo_alloc((size_t)classes * sizeof *name);
    if (!name) return KOLO_ENOMEM;
    for (int c = 0; c < classes; c++) name[c] = kolo_dataset_class_name(s->val_set, c);
    const int rc = kolo_hierarchy_read(&s->truth->hierarchy, o->hierarchy, o->hierarchy_names, name, classes);
    free(name);
    return rc;
}

static int measure_openimages(const detect_evaluator *e, double *mean)
{
    kolo_session *s = e->session;
    const kolo_detect_truth *t = e->truth;
    const int classes = kolo_dataset_get_info(s->val_set)->classes;
    double *ap = kolo_alloc((size_t)(classes + 1) * sizeof *ap);
    int rc = ap ? read_hierarchy(s) : KOLO_ENOMEM;
    if (rc == 0)
        rc = kolo_ap_openimages(ap, mean, t->truth, t->truths, e->found, e->founds, t->verified, t->labels,
                                t->hierarchy, classes, 0.5);
    free(ap);
    return rc;
}

/* COCO's AP, whatever rule the measure has. */
static void keep_classes(const detect_evaluator *e, const kolo_ap *ap, kolo_by_class *by)
{
    for (int64_t i = 0; i < e->truth->truths; i++) {
        const kolo_ap_truth *t = &e->truth->truth[i];
        by->images[t->cls] += !t->crowd && !t->ignore;
    }
    for (int c = 0; c < ap->classes; c++) {
        const double *at = ap->cls[c].ap[0];
        double sum = 0;
        for (int i = 0; i < KOLO_AP_IOUS; i++) sum += at[i];
        by->ap[c] = at[0] < 0 ? -1 : sum / KOLO_AP_IOUS;
    }
}

static int detect_measure(detect_evaluator *e, const char *results, kolo_by_class *by,
                          kolo_evaluation *result)
{
    kolo_session *s = e->session;
    const double begin = kolo_time();
    kolo_ap ap = {0};
    *result =
        (kolo_evaluation){.rows = s->val_samples, .top1 = -1, .top5 = -1, .voc = {-1, -1}, .openimages = -1};
    e->by = by;
    if (by) {
        KOLO_TRY(kolo_by_class_create(by, kolo_dataset_get_info(s->val_set)->classes, true));
        by->apart = (s->val_samples + EXAMPLES - 1) / EXAMPLES;
    }
    KOLO_TRY(session_each_val_batch(e->session, detect_evaluate_batch, e));
    KOLO_TRY(session_gather(s, &e->found, &e->founds, sizeof *e->found));
    if (by) KOLO_TRY(session_gather(s, &by->example, &by->examples, sizeof *by->example));
    if (results && *results && s->launch->rank == 0)
        KOLO_TRY(kolo_ap_write(results, e->found, e->founds, e->truth->category));
    int rc = kolo_ap_coco(&ap, e->truth->truth, e->truth->truths, e->found, e->founds,
                          kolo_dataset_get_info(s->val_set)->classes);
    memcpy(result->line, ap.line, sizeof result->line);
    if (rc == 0 && by) keep_classes(e, &ap, by);
    kolo_ap_free(&ap);
    KOLO_TRY(rc);
    const int rule = rule_of(s);
    if (rule == KOLO_ap_voc || strcmp(kolo_dataset_targets(s->val_set)->box_form, "xywh"))
        KOLO_TRY(measure_voc(e, result->voc));
    if (rule == KOLO_ap_openimages) KOLO_TRY(measure_openimages(e, &result->openimages));
    result->measure = rule == KOLO_ap_voc          ? result->voc[1]
                      : rule == KOLO_ap_openimages ? result->openimages
                                                   : result->line[0];
    result->seconds = kolo_time() - begin;
    return 0;
}

int kolo_detect_evaluate(kolo_session *s, bool ema, const char *results, kolo_by_class *by,
                         kolo_evaluation *result)
{
    detect_evaluator e;
    int rc = detect_evaluator_open(&e, s);
    kolo_exec_use_ema(kolo_session_eval_exec(s), ema);
    if (rc >= 0) rc = detect_measure(&e, results, by, result);
    detect_evaluator_close(&e);
    return rc;
}
