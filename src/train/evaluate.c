#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "train/detect_evaluate.h"
#include "train/image_evaluate.h"
#include "train/mirror.h"
#include "train/parts.h"
#include "train/train.h"

enum { LOSS, TOP1, TOP5, ROWS, SUMS };

static void evaluate_add(double *sum, const kolo_metrics *m)
{
    if (m->step < 0) return;
    sum[LOSS] += m->loss, sum[TOP1] += m->top1, sum[TOP5] += m->top5, sum[ROWS] += m->rows;
}

typedef struct counted {
    const kolo_session *session;
    kolo_exec *exec;
    kolo_step step;
    double *sum;
    kolo_by_class *by; /* NULL: classes are not counted */
    float *logits;     /* of a batch */
} counted;

static int drain(counted *c)
{
    kolo_metrics m;
    do {
        KOLO_TRY(kolo_exec_drain(c->exec, &m));
        evaluate_add(c->sum, &m);
    } while (m.step >= 0);
    return 0;
}

static int count_classes(counted *c, const kolo_batch *batch)
{
    const int logits = kolo_session_eval_graph(c->session)->logits;
    KOLO_TRY(drain(c));
    if (!kolo_session_answers(c->session, logits)) return 0;
    KOLO_TRY(kolo_exec_get(c->exec, "activation", logits, c->logits));
    for (int64_t i = 0; i < batch->valid; i++)
        kolo_by_class_count(c->by, c->logits + i * c->by->classes, batch->labels[i]);
    return 0;
}

static int counted_batch(void *argument, const kolo_batch *batch)
{
    counted *c = argument;
    kolo_metrics m;
    KOLO_TRY(kolo_exec_step(c->exec, batch, &c->step, &m));
    evaluate_add(c->sum, &m);
    c->step.step++;
    return c->by ? count_classes(c, batch) : 0;
}

/* The network's own metrics, which come some steps after their batch. */
static int sum_metrics(kolo_session *s, kolo_loader *loader, kolo_by_class *by, double *sum)
{
    const kolo_graph *g = kolo_session_eval_graph(s);
    counted c = {.session = s, .exec = kolo_session_eval_exec(s), .sum = sum, .by = by};
    int rc = 0;
    if (by && !(c.logits = kolo_alloc((size_t)kolo_tensor_count(&g->tensor[g->logits]) * sizeof *c.logits)))
        return KOLO_ENOMEM;
    rc = session_each_batch(loader, counted_batch, &c);
    if (rc >= 0) rc = drain(&c);
    free(c.logits);
    return rc;
}

/* What the loss of the graph makes of a row, without smoothing (ops/cpu/loss.c). */
static void add_row(double *sum, const float *x, int64_t classes, int64_t label, bool binary)
{
    double total = 0, largest = (double)x[label];
    int64_t before = 0;
    for (int64_t c = 0; c < classes; c++) {
        if ((double)x[c] > largest) largest = (double)x[c];
        before += x[c] > x[label] || (x[c] == x[label] && c < label);
    }
    for (int64_t c = 0; c < classes; c++) {
        const double v = (double)x[c];
        total += binary ? (v > 0 ? v : 0) + log1p(exp(-fabs(v))) : exp(v - largest);
    }
    sum[LOSS] +=
        binary ? (total - (double)x[label]) / (double)classes : log(total) + largest - (double)x[label];
    if (isnan(x[label])) before = classes;
    sum[TOP1] += before < 1;
    sum[TOP5] += before < 5;
    sum[ROWS]++;
}

typedef struct mirrored {
    const kolo_session *session;
    const kolo_graph *graph;
    kolo_mirror mirror;
    float *logits; /* of two batches */
    bool binary;
    double *sum;
    kolo_by_class *by;
} mirrored;

static int mirrored_batch(void *argument, const kolo_batch *batch)
{
    mirrored *m = argument;
    const int64_t classes = m->graph->tensor[m->graph->logits].dim[1];
    KOLO_TRY(kolo_mirror_logits(&m->mirror, m->session, batch, m->logits));
    if (!kolo_session_answers(m->session, m->graph->logits)) return 0;
    for (int64_t i = 0; i < batch->valid; i++) {
        add_row(m->sum, m->logits + i * classes, classes, batch->labels[i], m->binary);
        if (m->by) kolo_by_class_count(m->by, m->logits + i * classes, batch->labels[i]);
    }
    return 0;
}

/* Of the mean of an image's logits and its mirror image's. */
static int sum_mirrored(kolo_session *s, kolo_by_class *by, double *sum)
{
    const kolo_graph *g = kolo_session_eval_graph(s);
    mirrored m = {
        .session = s, .graph = g, .binary = s->options->loss == KOLO_loss_bce, .sum = sum, .by = by};
    m.logits = kolo_alloc((size_t)(2 * kolo_tensor_count(&g->tensor[g->logits])) * sizeof *m.logits);
    int rc = m.logits ? kolo_mirror_open(&m.mirror, s) : KOLO_ENOMEM;
    if (rc >= 0) rc = session_each_val_batch(s, mirrored_batch, &m);
    kolo_mirror_close(&m.mirror);
    free(m.logits);
    return rc;
}

const char *kolo_session_metric(const kolo_session *s)
{
    return s->detector ? "ap" : kolo_session_tags(s) ? "map" : "top1";
}

double kolo_evaluation_metric(const kolo_session *s, const kolo_evaluation *e)
{
    return s->detector ? e->measure : kolo_session_tags(s) ? e->map : e->top1;
}

int kolo_evaluate_alone(kolo_session *s, kolo_loader *loader, double *loss, double *rows)
{
    double sum[SUMS] = {0};
    kolo_exec_use_ema(kolo_session_eval_exec(s), false);
    KOLO_TRY(sum_metrics(s, loader, NULL, sum));
    *loss = sum[LOSS];
    *rows = sum[ROWS];
    return 0;
}

int kolo_evaluate(kolo_session *s, bool ema, const char *results, kolo_by_class *by, kolo_evaluation *result)
{
    if (s->detector) return kolo_detect_evaluate(s, ema, results, by, result);
    if (kolo_session_tags(s)) return kolo_image_evaluate(s, ema, results, by, result);
    const kolo_graph *g = kolo_session_eval_graph(s);
    double sum[SUMS] = {0}, begin = kolo_time();
    kolo_exec_use_ema(kolo_session_eval_exec(s), ema);
    if (by) KOLO_TRY(kolo_by_class_create(by, g->tensor[g->logits].dim[1], false));
    KOLO_TRY(s->options->val_flip ? sum_mirrored(s, by, sum) : sum_metrics(s, s->val_loader, by, sum));
    if (by) KOLO_TRY(kolo_by_class_sum(by, s->comm));
    KOLO_TRY(kolo_comm_allreduce(s->comm, sum, SUMS, KOLO_F64, KOLO_SUM));
    if ((int64_t)sum[ROWS] != s->val_samples)
        return kolo_fail(KOLO_EINTERNAL, "evaluation counted %.0f images, the validation set holds %ld",
                         sum[ROWS], (long)s->val_samples);
    *result = (kolo_evaluation){.loss = sum[LOSS] / sum[ROWS],
                                .top1 = sum[TOP1] / sum[ROWS],
                                .top5 = sum[TOP5] / sum[ROWS],
                                .rows = s->val_samples,
                                .seconds = kolo_time() - begin};
    return 0;
}
