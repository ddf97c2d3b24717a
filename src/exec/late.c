/* Gradients that are applied late: a step writes one version of them and starts its sums, and applies the
 * version that was begun plan->config.late steps before, so that sums have so many steps to come in. In the
 * first steps there is none to apply yet; what is left in the end is applied by kolo_exec_flush. Between
 * steps all that is under way can be waited for and taken out, so that a run that is taken up again has the
 * bits of one that never stopped. */
#include <string.h>

#include "exec/parts.h"
#include "kolo/error.h"

void exec_begin_step(kolo_exec *e)
{
    e->written_version = (int)(e->begun % e->versions);
    e->applied_version = e->begun - e->issued >= e->versions - 1 ? (int)(e->issued % e->versions) : -1;
}

bool exec_does(const kolo_exec *e, enum kolo_action_kind kind)
{
    if (e->async)
        return kind != KOLO_ACTION_LAYERS && kind != KOLO_ACTION_UPDATE && kind != KOLO_ACTION_BUFFERS;
    if (e->versions == 1) return true;
    if (e->backup) return kolo_action_applies(kind) || !exec_backup_drops(e);
    if (!kolo_action_applies(kind)) return !e->flushes;
    return e->applied_version >= 0 && !(kind == KOLO_ACTION_WAIT && e->arrived[e->applied_version]);
}

int exec_end_step(kolo_exec *e)
{
    if (e->applied_version < 0) return 0;
    e->arrived[e->applied_version] = false;
    if (e->backup) exec_backup_end(e);
    KOLO_TRY(exec_send_back(e));
    if (e->plan->config.optimizer) e->copied = ++e->changes;
    return 0;
}

int kolo_exec_flush(kolo_exec *e)
{
    if (e->begun == e->issued) return 0;
    if (!e->current) e->current = e->variant; /* lists end alike, whatever the shape */
    e->view = &e->current->weights[0];
    e->applied_version = (int)(e->issued % e->versions);
    e->flushes = true;
    int rc = exec_act_all(e, e->in_flight[e->issued % e->flights].step.step);
    e->flushes = false;
    if (rc >= 0) rc = exec_end_step(e);
    return rc < 0 ? rc : 1;
}

int kolo_exec_wait_late(kolo_exec *e)
{
    for (int64_t i = e->issued; i < e->begun; i++) {
        const int v = (int)(i % e->versions);
        for (int b = 0; b < e->plan->buckets && e->plan->config.ranks > 1 && !e->arrived[v]; b++)
            KOLO_TRY(exec_await_ranks(e, e->bucket_number[v * e->plan->buckets + b]));
        e->arrived[v] = true;
    }
    return e->begun > e->issued ? kolo_backend_finish(e->backend) : 0;
}

int64_t kolo_exec_late_count(const kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    int64_t count = 0;
    for (int t = 0; t < p->graph->tensors && p->config.late; t++)
        if (p->fixed[t].arena == KOLO_ARENA_GRADIENT) count += kolo_tensor_count(&p->graph->tensor[t]);
    return count * p->config.late;
}

typedef int late_one(kolo_exec *e, int tensor, float *values);
static int late_get(kolo_exec *e, int tensor, float *values)
{
    return kolo_exec_get_own(e, "gradient", tensor, values);
}
static int late_set(kolo_exec *e, int tensor, float *values)
{
    return kolo_exec_set(e, "gradient", tensor, values);
}

/* All reduced tensors of the step number `step`, one behind the other. */
static int late_each(kolo_exec *e, int64_t step, late_one *one, float **values)
{
    const kolo_plan *p = e->plan;
    int rc = 0;
    e->read_version = (int)(step % e->versions);
    for (int t = 0; rc >= 0 && t < p->graph->tensors; t++) {
        if (p->fixed[t].arena != KOLO_ARENA_GRADIENT) continue;
        rc = one(e, t, *values);
        *values += kolo_tensor_count(&p->graph->tensor[t]);
    }
    e->read_version = 0;
    return rc < 0 ? rc : 0;
}

int kolo_exec_late_read(kolo_exec *e, float *to)
{
    memset(to, 0, (size_t)kolo_exec_late_count(e) * sizeof *to);
    KOLO_TRY(kolo_exec_wait_late(e));
    for (int64_t i = e->issued; i < e->begun; i++) KOLO_TRY(late_each(e, i, late_get, &to));
    return 0;
}

int kolo_exec_late_write(kolo_exec *e, const kolo_step *step, int steps, const float *from)
{
    float *values = (float *)(uintptr_t)from;
    if (steps >= e->versions || e->begun)
        return kolo_fail(KOLO_EINTERNAL, "executor: %d steps under way, of at most %d", steps,
                         e->versions - 1);
    if (!steps) return 0;
    e->issued = e->reported = step[0].step;
    e->begun = step[0].step + steps;
    for (int i = 0; i < steps; i++) {
        const int v = (int)(step[i].step % e->versions);
        memcpy(&e->in_flight[step[i].step % e->flights].step, &step[i], KOLO_STEP_HOST_BYTES);
        KOLO_TRY(kolo_backend_write(e->backend, &e->step[v], &step[i], KOLO_STEP_HOST_BYTES));
        KOLO_TRY(late_each(e, step[i].step, late_set, &values));
        e->arrived[v] = true;
    }
    return kolo_backend_finish(e->backend);
}
