#include "kolo/error.h"
#include "base/thread.h"
#include "train/detect_evaluate.h"
#include "train/train.h"

static void add(double *sum, const kolo_metrics *m)
{
    if (m->step < 0) return;
    sum[0] += m->loss, sum[1] += m->top1, sum[2] += m->top5, sum[3] += m->rows;
}

int kolo_evaluate(kolo_session *s, bool ema, kolo_evaluation *result)
{
    if (s->task != KOLO_TASK_CLASSIFY) return kolo_detect_evaluate(s, ema, result);
    double sum[4] = {0, 0, 0, 0}, begin = kolo_time(); /* loss, top-1, top-5, rows */
    kolo_step step = {0};
    kolo_metrics m;
    kolo_exec *exec = s->eval_exec ? s->eval_exec : s->exec;
    kolo_exec_use_ema(exec, ema);
    KOLO_TRY(kolo_loader_seek(s->val_loader, 0, 0));
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
    KOLO_TRY(kolo_comm_allreduce(s->comm, sum, 4, KOLO_WIRE_F64, KOLO_SUM));
    if ((int64_t)sum[3] != s->val_samples)
        return kolo_fail(KOLO_EINTERNAL, "evaluation counted %.0f pictures, the validation set holds %ld", sum[3],
                         (long)s->val_samples);
    *result = (kolo_evaluation){.loss = sum[0] / sum[3],
                                .top1 = sum[1] / sum[3],
                                .top5 = sum[2] / sum[3],
                                .rows = s->val_samples,
                                .seconds = kolo_time() - begin};
    return 0;
}
