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

typedef struct judge {
    kolo_session *session;
    kolo_exec *exec;
    const kolo_graph *graph;
    kolo_mirror mirror; /* val_flip */
    float *logits;      /* of two batches */
    kolo_image_score *score;
    int64_t scores, capacity;
    double loss, rows;
} judge;

static int open_judge(judge *j, kolo_session *s)
{
    *j = (judge){.session = s,
                 .exec = s->eval_exec ? s->eval_exec : s->exec,
                 .graph = s->eval_exec ? s->eval_graph : s->graph};
    j->logits =
        kolo_alloc((size_t)(2 * kolo_tensor_count(&j->graph->tensor[j->graph->logits])) * sizeof *j->logits);
    if (!j->logits) return KOLO_ENOMEM;
    return s->options->val_flip ? kolo_mirror_open(&j->mirror, s) : 0;
}

static void close_judge(judge *j)
{
    kolo_mirror_close(&j->mirror);
    free(j->logits);
    free(j->score);
}

/* weight: as kolo_image_labels_row has it, without smoothing: a class is known if one of its terms counts. */
static int add_row(judge *j, const float *x, const float *weight, int64_t classes)
{
    for (int64_t c = 0; c < classes; c++) {
        const float yes = weight[c], no = weight[classes + c];
        if (yes + no == 0) continue;
        j->loss += kolo_bce_weighed(x[c], yes, no);
        KOLO_TRY(kolo_grow(&j->score, &j->capacity, j->scores, sizeof *j->score));
        j->score[j->scores++] = (kolo_image_score){.score = x[c], .cls = (int32_t)(yes > 0 ? c : ~c)};
    }
    j->rows++;
    return 0;
}

static int image_judge_batch(void *argument, const kolo_batch *batch)
{
    judge *j = argument;
    const kolo_graph *g = j->graph;
    const int64_t classes = g->tensor[g->logits].dim[1];
    if (j->session->options->val_flip) {
        KOLO_TRY(kolo_mirror_ask(&j->mirror, j->exec, g, batch, j->logits));
    } else {
        KOLO_TRY(kolo_exec_answer(j->exec, batch));
        KOLO_TRY(kolo_exec_get(j->exec, "activation", g->logits, j->logits));
    }
    for (int64_t i = 0; i < batch->valid; i++)
        KOLO_TRY(
            add_row(j, j->logits + i * classes, (const float *)(batch->labels + i * batch->words), classes));
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

static int judge_all(judge *j, const char *results, kolo_evaluation *result)
{
    kolo_session *s = j->session;
    const int classes = (int)j->graph->tensor[j->graph->logits].dim[1];
    const double begin = kolo_time();
    KOLO_TRY(session_each_val_batch(s, image_judge_batch, j));
    double sum[2] = {j->loss, j->rows};
    KOLO_TRY(kolo_comm_allreduce(s->comm, sum, 2, KOLO_F64, KOLO_SUM));
    KOLO_TRY(session_gather(s, &j->score, &j->scores, sizeof *j->score));
    double *ap = kolo_alloc((size_t)classes * sizeof *ap);
    kolo_image_ap all;
    int rc = ap ? kolo_image_ap_form(&all, ap, j->score, j->scores, classes) : KOLO_ENOMEM;
    if (rc == 0 && results && *results && s->launch->rank == 0) rc = write_results(s, results, &all, ap);
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

int kolo_image_evaluate(kolo_session *s, bool ema, const char *results, kolo_evaluation *result)
{
    judge j;
    int rc = open_judge(&j, s);
    kolo_exec_use_ema(j.exec, ema);
    if (rc >= 0) rc = judge_all(&j, results, result);
    close_judge(&j);
    return rc;
}
