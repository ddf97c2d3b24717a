#include "train/image_evaluate.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "metrics/image_ap.h"
#include "ops/element.h"
#include "train/gather.h"
#include "train/mirror.h"
#include "train/parts.h"

typedef struct image_evaluator {
    kolo_session *session;
    const kolo_graph *graph;
    kolo_mirror mirror; /* val_flip */
    float *logits;      /* of two batches */
    kolo_image_score *score;
    int64_t scores, capacity;
    double loss, rows;
} image_evaluator;

static int image_evaluator_open(image_evaluator *e, kolo_session *s)
{
    *e = (image_evaluator){.session = s, .graph = kolo_session_eval_graph(s)};
    e->logits =
        kolo_alloc((size_t)(2 * kolo_tensor_count(&e->graph->tensor[e->graph->logits])) * sizeof *e->logits);
    if (!e->logits) return KOLO_ENOMEM;
    return s->options->val_flip ? kolo_mirror_open(&e->mirror, s) : 0;
}

static void image_evaluator_close(image_evaluator *e)
{
    kolo_mirror_close(&e->mirror);
    free(e->logits);
    free(e->score);
}

/* weight: as kolo_image_labels_row has it, without smoothing: a class is known if one of its terms counts. */
static int add_row(image_evaluator *e, const float *x, const float *weight, int64_t classes)
{
    for (int64_t c = 0; c < classes; c++) {
        const float yes = weight[c], no = weight[classes + c];
        if (yes + no == 0) continue;
        e->loss += kolo_bce_weighed(x[c], yes, no);
        KOLO_TRY(kolo_grow(&e->score, &e->capacity, e->scores, sizeof *e->score));
        e->score[e->scores++] = (kolo_image_score){.score = x[c], .cls = (int32_t)(yes > 0 ? c : ~c)};
    }
    e->rows++;
    return 0;
}

static int image_evaluate_batch(void *argument, const kolo_batch *batch)
{
    image_evaluator *e = argument;
    const kolo_graph *g = e->graph;
    const int64_t classes = g->tensor[g->logits].dim[1];
    kolo_exec *exec = kolo_session_eval_exec(e->session);
    const bool answers = kolo_session_answers(e->session, g->logits);
    if (e->session->options->val_flip) {
        KOLO_TRY(kolo_mirror_logits(&e->mirror, e->session, batch, e->logits));
    } else {
        KOLO_TRY(kolo_exec_infer(exec, batch));
        if (answers) KOLO_TRY(kolo_exec_get(exec, "activation", g->logits, e->logits));
    }
    for (int64_t i = 0; answers && i < batch->valid; i++)
        KOLO_TRY(
            add_row(e, e->logits + i * classes, (const float *)(batch->labels + i * batch->words), classes));
    return 0;
}

static int write_results(const kolo_session *s, const char *path, const kolo_image_ap *all, const double *ap)
{
    const kolo_image_labels *l = s->image_labels[1];
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return kolo_fail(KOLO_ENOMEM, "out of memory for %s", path);
    fprintf(f, "{\"map\":%.9g,\"ap_micro\":%.9g,\"classes\":[", all->map, all->micro);
    for (int c = 0; c < l->classes; c++) {
        fprintf(f, "%s\n {\"class\":%d,\"name\":", c ? "," : "", c);
        kolo_json_string(f, kolo_dataset_class_name(s->val_set, c));
        fprintf(f, ",\"positives\":%lld,\"negatives\":%lld,\"ap\":", (long long)l->positives[c],
                (long long)l->negatives[c]);
        if (ap[c] < 0) fputs("null}", f);
        else fprintf(f, "%.9g}", ap[c]);
    }
    fputs("]}\n", f);
    int rc = fclose(f) == 0 ? 0 : kolo_fail(KOLO_ENOMEM, "out of memory for %s", path);
    if (rc == 0) rc = kolo_file_write_atomic(path, text, bytes);
    free(text);
    return rc;
}

static int keep_classes(const kolo_session *s, const double *ap, int64_t classes, kolo_by_class *by)
{
    KOLO_TRY(kolo_by_class_create(by, classes, true));
    for (int64_t c = 0; c < classes; c++) {
        by->images[c] = s->image_labels[1]->positives[c];
        by->ap[c] = ap[c];
    }
    return 0;
}

static int image_measure(image_evaluator *e, const char *results, kolo_by_class *by, kolo_evaluation *result)
{
    kolo_session *s = e->session;
    const int classes = (int)e->graph->tensor[e->graph->logits].dim[1];
    const double begin = kolo_time();
    KOLO_TRY(session_each_val_batch(s, image_evaluate_batch, e));
    double sum[2] = {e->loss, e->rows};
    KOLO_TRY(kolo_comm_allreduce(s->comm, sum, 2, KOLO_F64, KOLO_SUM));
    KOLO_TRY(session_gather(s, &e->score, &e->scores, sizeof *e->score));
    double *ap = kolo_alloc((size_t)classes * sizeof *ap);
    kolo_image_ap all;
    int rc = ap ? kolo_image_ap_form(&all, ap, e->score, e->scores, classes) : KOLO_ENOMEM;
    if (rc == 0 && results && *results && s->launch->rank == 0) rc = write_results(s, results, &all, ap);
    if (rc == 0 && by) rc = keep_classes(s, ap, classes, by);
    free(ap);
    KOLO_TRY(rc);
    if ((int64_t)sum[1] != s->val_samples)
        return kolo_fail(KOLO_EINTERNAL, "evaluation counted %.0f images, the validation set holds %ld",
                         sum[1], (long)s->val_samples);
    *result = (kolo_evaluation){.loss = sum[0] / sum[1],
                                .map = all.map,
                                .ap_micro = all.micro,
                                .classes = all.classes,
                                .rows = s->val_samples,
                                .top1 = -1,
                                .top5 = -1,
                                .seconds = kolo_time() - begin};
    return 0;
}

int kolo_image_evaluate(kolo_session *s, bool ema, const char *results, kolo_by_class *by,
                        kolo_evaluation *result)
{
    image_evaluator e;
    int rc = image_evaluator_open(&e, s);
    kolo_exec_use_ema(kolo_session_eval_exec(s), ema);
    if (rc >= 0) rc = image_measure(&e, results, by, result);
    image_evaluator_close(&e);
    return rc;
}
