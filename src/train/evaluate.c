#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "train/detect_evaluate.h"
#include "train/image_evaluate.h"
#include "train/mirror.h"
#include "train/train.h"

enum { LOSS, TOP1, TOP5, ROWS, SUMS };

static void add(double *sum, const kolo_metrics *m)
{
    if (m->step < 0) return;
    sum[LOSS] += m->loss, sum[TOP1] += m->top1, sum[TOP5] += m->top5, sum[ROWS] += m->rows;
}

/* The network's own metrics, told behind its steps. */
static int sum_metrics(kolo_session *s, kolo_exec *exec, double *sum)
{
    kolo_step step = {0};
    kolo_metrics m;
    for (;;) {
        kolo_batch batch;
        int rc = kolo_loader_next(s->val_loader, &batch);
        if (rc == 1) break;
        KOLO_TRY(rc);
        rc = kolo_exec_step(exec, &batch, &step, &m);
        kolo_loader_release(s->val_loader, &batch);
        KOLO_TRY(rc);
        add(sum, &m);
        step.step++;
    }
    do {
        KOLO_TRY(kolo_exec_drain(exec, &m));
        add(sum, &m);
    } while (m.step >= 0);
    return 0;
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
    sum[LOSS] += binary ? (total - (double)x[label]) / (double)classes : log(total) + largest - (double)x[label];
    if (isnan(x[label])) before = classes;
    sum[TOP1] += before < 1;
    sum[TOP5] += before < 5;
    sum[ROWS]++;
}

/* Of the mean of a picture's logits and its mirror image's. */
static int sum_mirrored(kolo_session *s, kolo_exec *exec, double *sum)
{
    const kolo_graph *g = s->eval_exec ? s->eval_graph : s->graph;
    const int64_t classes = g->tensor[g->logits].dim[1];
    float *logits = kolo_alloc((size_t)(2 * g->rows * classes) * sizeof *logits);
    kolo_mirror mirror = {0};
    int rc = logits ? kolo_mirror_open(&mirror, s) : KOLO_ECONFIG;
    while (rc == 0) {
        kolo_batch batch;
        rc = kolo_loader_next(s->val_loader, &batch);
        if (rc != 0) break;
        rc = kolo_mirror_ask(&mirror, exec, g, &batch, logits);
        for (int64_t i = 0; rc == 0 && i < batch.valid; i++) add_row(sum, logits + i * classes, classes, batch.labels[i], s->options->loss == KOLO_loss_bce);
        kolo_loader_release(s->val_loader, &batch);
    }
    kolo_mirror_close(&mirror);
    free(logits);
    return rc < 0 ? rc : 0;
}

const char *kolo_session_metric(const kolo_session *s)
{
    return s->detector ? "ap" : kolo_session_tags(s) ? "map" : "top1";
}

double kolo_evaluation_metric(const kolo_session *s, const kolo_evaluation *e)
{
    return s->detector ? e->measure : kolo_session_tags(s) ? e->map : e->top1;
}

int kolo_evaluate(kolo_session *s, bool ema, const char *results, kolo_evaluation *result)
{
    if (s->detector) return kolo_detect_evaluate(s, ema, results, result);
    if (kolo_session_tags(s)) return kolo_image_evaluate(s, ema, results, result);
    double sum[SUMS] = {0}, begin = kolo_time();
    kolo_exec *exec = s->eval_exec ? s->eval_exec : s->exec;
    kolo_exec_use_ema(exec, ema);
    KOLO_TRY(kolo_loader_seek(s->val_loader, 0, 0));
    KOLO_TRY((s->options->val_flip ? sum_mirrored : sum_metrics)(s, exec, sum));
    KOLO_TRY(kolo_comm_allreduce(s->comm, sum, SUMS, KOLO_F64, KOLO_SUM));
    if ((int64_t)sum[ROWS] != s->val_samples)
        return kolo_fail(KOLO_EINTERNAL, "evaluation counted %.0f pictures, the validation set holds %ld", sum[ROWS], (long)s->val_samples);
    *result = (kolo_evaluation){
        .loss = sum[LOSS] / sum[ROWS], .top1 = sum[TOP1] / sum[ROWS], .top5 = sum[TOP5] / sum[ROWS], .rows = s->val_samples, .seconds = kolo_time() - begin};
    return 0;
}
