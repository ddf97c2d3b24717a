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

typedef struct judge {
    kolo_session *session;
    kolo_exec *exec; /* the evaluation's, of `graph` */
    const kolo_graph *graph;
    kolo_detect_config fit;
    const kolo_detect_truth *truth;
    float *head[KOLO_MAX_HEADS]; /* what the network put out for a micro-batch */
    kolo_found_list list;        /* of one image */
    kolo_ap_found *found;        /* of all */
    int64_t founds, capacity;
} judge;

static int open_judge(judge *j, kolo_session *s)
{
    *j = (judge){.session = s,
                 .fit = kolo_session_loader(s, false).detect,
                 .exec = s->eval_exec ? s->eval_exec : s->exec,
                 .graph = s->eval_exec ? s->eval_graph : s->graph};
    const kolo_graph *g = j->graph;
    for (int i = 0; i < g->heads; i++) {
        j->head[i] = kolo_alloc((size_t)kolo_tensor_count(&g->tensor[g->head[i]]) * sizeof(float));
        if (!j->head[i]) return KOLO_ENOMEM;
    }
    if (!s->truth) KOLO_TRY(kolo_detect_truth_read(&s->truth, s->val_set));
    j->truth = s->truth;
    return 0;
}

static void close_judge(judge *j)
{
    for (int i = 0; i < KOLO_MAX_HEADS; i++) free(j->head[i]);
    kolo_found_free(&j->list);
    free(j->found);
}

/* From the network's input back to the source. */
static int detect_evaluate_keep(judge *j, int64_t sample, const kolo_found *f)
{
    double stored[4];
    int height, width;
    KOLO_TRY(kolo_grow(&j->found, &j->capacity, j->founds, sizeof *j->found));
    kolo_dataset_size(j->session->val_set, sample, &height, &width);
    kolo_detect_unfit(&j->fit, height, width, f->box, stored);
    kolo_ap_found *to = &j->found[j->founds++];
    *to = (kolo_ap_found){.image = j->truth->image[sample], .cls = f->cls, .score = f->score};
    kolo_detect_to_source(j->session->val_set, sample, stored, to->box);
    kolo_ap_round(to->box, &to->score);
    return 0;
}

static int detect_judge_batch(void *argument, const kolo_batch *batch)
{
    judge *j = argument;
    const kolo_session *s = j->session;
    const kolo_graph *g = j->graph;
    KOLO_TRY(kolo_exec_answer(j->exec, batch));
    for (int i = 0; i < g->heads; i++) KOLO_TRY(kolo_exec_get(j->exec, "activation", g->head[i], j->head[i]));
    for (int64_t n = 0; n < batch->valid; n++) {
        KOLO_TRY(kolo_detect_find(g, (const float *const *)j->head, n, s->options->conf, s->options->nms,
                                  &j->list));
        for (int64_t i = 0; i < j->list.count; i++)
            KOLO_TRY(detect_evaluate_keep(j, batch->samples[n], &j->list.found[i]));
    }
    return 0;
}

/* Both rules of VOC, of boxes that are not COCO's. */
static int judge_voc(const judge *j, double voc[2])
{
    const kolo_session *s = j->session;
    const int classes = kolo_dataset_get_info(s->val_set)->classes;
    double *ap = kolo_alloc((size_t)(classes + 1) * sizeof *ap);
    int rc = ap ? 0 : KOLO_ENOMEM;
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = kolo_ap_voc(ap, &voc[i], j->truth->truth, j->truth->truths, j->found, j->founds, classes, 0.5,
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

static int judge_openimages(const judge *j, double *mean)
{
    kolo_session *s = j->session;
    const kolo_detect_truth *t = j->truth;
    const int classes = kolo_dataset_get_info(s->val_set)->classes;
    double *ap = kolo_alloc((size_t)(classes + 1) * sizeof *ap);
    int rc = ap ? read_hierarchy(s) : KOLO_ENOMEM;
    if (rc == 0)
        rc = kolo_ap_openimages(ap, mean, t->truth, t->truths, j->found, j->founds, t->verified, t->labels,
                                t->hierarchy, classes, 0.5);
    free(ap);
    return rc;
}

static int judge_all(judge *j, const char *results, kolo_evaluation *result)
{
    kolo_session *s = j->session;
    const double begin = kolo_time();
    kolo_ap ap = {0};
    *result =
        (kolo_evaluation){.rows = s->val_samples, .top1 = -1, .top5 = -1, .voc = {-1, -1}, .openimages = -1};
    KOLO_TRY(session_each_val_batch(j->session, detect_judge_batch, j));
    KOLO_TRY(session_gather(s, &j->found, &j->founds, sizeof *j->found));
    if (results && *results && s->launch->rank == 0)
        KOLO_TRY(kolo_ap_write(results, j->found, j->founds, j->truth->category));
    const int rc = kolo_ap_coco(&ap, j->truth->truth, j->truth->truths, j->found, j->founds,
                                kolo_dataset_get_info(s->val_set)->classes);
    memcpy(result->line, ap.line, sizeof result->line);
    kolo_ap_free(&ap);
    KOLO_TRY(rc);
    const int rule = rule_of(s);
    if (rule == KOLO_ap_voc || strcmp(kolo_dataset_targets(s->val_set)->box_form, "xywh"))
        KOLO_TRY(judge_voc(j, result->voc));
    if (rule == KOLO_ap_openimages) KOLO_TRY(judge_openimages(j, &result->openimages));
    result->measure = rule == KOLO_ap_voc          ? result->voc[1]
                      : rule == KOLO_ap_openimages ? result->openimages
                                                   : result->line[0];
    result->seconds = kolo_time() - begin;
    return 0;
}

int kolo_detect_evaluate(kolo_session *s, bool ema, const char *results, kolo_evaluation *result)
{
    judge j;
    int rc = open_judge(&j, s);
    kolo_exec_use_ema(j.exec, ema);
    if (rc >= 0) rc = judge_all(&j, results, result);
    close_judge(&j);
    return rc;
}
