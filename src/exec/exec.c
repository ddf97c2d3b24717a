/* The executor: one step is the plan's list, from front to back. */
#include "exec/exec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "exec/parts.h"
#include "kolo/error.h"
#include "optim/rules.h"

int kolo_exec_create(kolo_exec **exec, const kolo_plan *plan, kolo_backend *backend, kolo_comm *comm,
                     const kolo_options *options, kolo_exec *share)
{
    int rc;
    *exec = NULL;
    if (plan->config.ranks > 1 && plan->config.optimizer && !comm)
        return kolo_fail(KOLO_EINTERNAL, "executor: a plan of %d ranks needs their communication", plan->config.ranks);
    if (plan->shares && !share) return kolo_fail(KOLO_EINTERNAL, "executor: this plan uses another's parameters");
    kolo_exec *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ECONFIG;
    e->plan = plan;
    e->backend = backend;
    e->comm = comm;
    e->options = options;
    atomic_init(&e->position, -1);
    KOLO_TRY_GOTO(rc, exec_allocate(e, share));
    KOLO_TRY_GOTO(rc, exec_resolve(e));
    if (comm && plan->config.optimizer) {
        for (int b = 0; b < plan->buckets; b++)
            KOLO_TRY_GOTO(rc, kolo_comm_bucket(comm, plan->bucket[b].offset, plan->bucket[b].count));
        KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
        KOLO_TRY_GOTO(rc, exec_agree(e));
    }
    *exec = e;
    return 0;
fail:
    kolo_exec_destroy(&e);
    return rc;
}

void kolo_exec_destroy(kolo_exec **exec)
{
    if (!*exec) return;
    exec_release(*exec);
    free(*exec);
    *exec = NULL;
}

int64_t kolo_exec_position(const kolo_exec *exec)
{
    return atomic_load_explicit(&exec->position, memory_order_relaxed);
}
void *kolo_exec_arena(kolo_exec *exec, enum kolo_arena arena) { return exec->arena[arena]; }
void kolo_exec_use_ema(kolo_exec *exec, bool ema) { exec->now = ema && exec->ema_args ? exec->ema_args : exec->args; }
void kolo_exec_set_profile(kolo_exec *exec, kolo_exec_profile *profile) { exec->profile = profile; }

/* ---- actions ---- */

static int load(kolo_exec *e, const kolo_action *a, const kolo_batch *batch)
{
    const kolo_graph *g = e->plan->graph;
    if (g->input >= 0) {
        const uint8_t *from = batch->pixels + (size_t)a->slot * e->input_bytes;
        const kolo_tensor *x = &g->tensor[g->input];
        if (x->dtype == KOLO_U8) memcpy(e->now[a->binding], from, e->input_bytes);
        else
            KOLO_TRY(kolo_backend_from_canonical(e->backend, x, &e->plan->layout[g->input], (const float *)from,
                                                 e->now[a->binding]));
    }
    if (g->label >= 0)
        memcpy(e->now[a->binding + 1], batch->labels + (int64_t)a->slot * g->rows,
               (size_t)g->rows * sizeof *batch->labels);
    return 0;
}

static int sum(kolo_exec *e, const kolo_action *a)
{
    const kolo_graph *g = e->plan->graph;
    const kolo_node *n = &g->node[a->node];
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0 && g->tensor[n->out[k]].role == KOLO_ROLE_PARTIAL)
            return kolo_comm_allreduce(e->comm, e->now[a->binding], kolo_tensor_count(&g->tensor[n->out[k]]),
                                       KOLO_WIRE_F64, KOLO_SUM);
    return kolo_fail(KOLO_EINTERNAL, "nothing to sum");
}

static float *level(const kolo_exec *e, int number, size_t offset)
{
    if (number == 0) return (float *)(e->arena[KOLO_ARENA_GRADIENT] + offset);
    return (float *)(e->arena[KOLO_ARENA_PART] + (size_t)(number - 1) * e->plan->arena_bytes[KOLO_ARENA_GRADIENT] +
                     offset);
}

static int clip(kolo_exec *e, kolo_step *step, kolo_metrics *metrics)
{
    const kolo_plan *p = e->plan;
    int64_t count = (int64_t)((p->arena_bytes[KOLO_ARENA_GRADIENT] - p->reduced_front) / sizeof(float));
    double norm = sqrt(kolo_backend_norm2(e->backend, level(e, 0, p->reduced_front), count));
    if (!isfinite(norm))
        return kolo_fail(KOLO_EINPUT, "the gradient norm is %s; try a smaller lr, a longer warmup, or precision=f32",
                         isnan(norm) ? "not a number" : "infinite");
    metrics->grad_norm = norm;
    step->clip = (float)kolo_clip_factor(e->options->clip_norm, norm);
    return 0;
}

/* running = (1 - m) running + m mean; blocks without a valid row have weight 0. */
static void update_buffers(kolo_exec *e, const kolo_step *step)
{
    for (int i = 0; i < e->buffers_count; i++) {
        const exec_buffers *k = &e->buffers[i];
        float weight = k->statistic[2 * k->channels];
        for (int j = 0; j < 2; j++)
            for (int64_t c = 0; c < k->channels; c++) {
                float *r = &k->running[j][c];
                if (weight > 0)
                    *r = (1 - k->momentum) * *r + k->momentum * (k->statistic[j * k->channels + c] / weight);
                if (k->ema[j]) k->ema[j][c] = kolo_rule_ema(k->ema[j][c], *r, step->ema_decay);
            }
    }
}

static int act(kolo_exec *e, const kolo_action *a, const kolo_batch *batch, kolo_step *step, kolo_metrics *metrics)
{
    const kolo_plan *p = e->plan;
    const kolo_bucket *b = a->bucket >= 0 && p->buckets ? &p->bucket[a->bucket] : NULL;
    switch (a->kind) {
    case KOLO_ACTION_LOAD: return load(e, a, batch);
    case KOLO_ACTION_RUN:
        return kolo_kernel_run(p->kernel[a->node], &e->now[a->binding], e->arena[KOLO_ARENA_WORKSPACE], step, a->slot);
    case KOLO_ACTION_SUM: return sum(e, a);
    case KOLO_ACTION_FOLD:
        kolo_backend_fold(e->backend, level(e, a->to, b->offset), level(e, a->from, b->offset), b->count);
        return 0;
    case KOLO_ACTION_REDUCE: return kolo_comm_start(e->comm, a->bucket);
    case KOLO_ACTION_WAIT: return kolo_comm_wait(e->comm, a->bucket);
    case KOLO_ACTION_CLIP: return clip(e, step, metrics);
    case KOLO_ACTION_UPDATE:
        for (int s = e->first_slice[a->bucket]; s < e->first_slice[a->bucket + 1]; s++)
            p->config.optimizer->update(&e->slice[s], e->options, step);
        return 0;
    case KOLO_ACTION_BUFFERS: update_buffers(e, step); return 0;
    }
    return kolo_fail(KOLO_EINTERNAL, "unknown action");
}

/* ---- a step ---- */

static int begin(const kolo_exec *e, const kolo_batch *batch, kolo_step *step)
{
    const kolo_plan *p = e->plan;
    int64_t rows = p->graph->rows;
    if (batch->rows != rows * p->config.slots)
        return kolo_fail(KOLO_EINTERNAL, "executor: a batch of %" PRId64 " rows for %d micro-batches of %" PRId64,
                         batch->rows, p->config.slots, rows);
    for (int s = 0; s < p->config.slots; s++) {
        int64_t valid = batch->valid - s * rows;
        step->valid[s] = (int32_t)(valid < 0 ? 0 : valid > rows ? rows : valid);
    }
    step->valid_global = batch->valid_global;
    step->clip = 1;
    return 0;
}

static int finish(const kolo_exec *e, const kolo_step *step, kolo_metrics *metrics)
{
    if (!e->metrics) return 0;
    metrics->loss = (double)e->metrics[0];
    metrics->top1 = (double)e->metrics[1];
    metrics->top5 = (double)e->metrics[2];
    metrics->rows = (double)e->metrics[3];
    if (isfinite(metrics->loss)) return 0;
    const char *loss = isnan(metrics->loss) ? "not a number" : "infinite";
    if (!e->plan->config.optimizer)
        return kolo_fail(KOLO_EINPUT, "the validation loss is %s: these weights have diverged", loss);
    return kolo_fail(KOLO_ECONFIG,
                     "step %" PRId64 ": the loss is %s (lr %g): training has diverged; begin another run folder with a "
                     "smaller lr, a longer warmup, clip_norm=1, or precision=f32",
                     step->step, loss, (double)step->lr);
}

static int fail_at(const kolo_exec *e, int rc, int64_t action, int64_t step)
{
    char text[256];
    kolo_plan_action_text(e->plan, action, text, sizeof text);
    return kolo_fail_in(rc, "step %" PRId64 ", action %" PRId64 " (%s): ", step, action, text);
}

int kolo_exec_step(kolo_exec *e, const kolo_batch *batch, kolo_step *step, kolo_metrics *metrics)
{
    KOLO_TRY(begin(e, batch, step));
    *metrics = (kolo_metrics){0};
    int rc = 0;
    for (int64_t i = 0; i < e->plan->actions; i++) {
        atomic_store_explicit(&e->position, i, memory_order_relaxed);
        if (e->comm) kolo_comm_publish(e->comm, step->step, i);
        double start = e->profile ? kolo_time() : 0;
        rc = act(e, &e->plan->action[i], batch, step, metrics);
        if (rc < 0) return fail_at(e, rc, i, step->step); /* the position stays, for whoever asks where */
        if (e->profile) {
            e->profile[i].seconds += kolo_time() - start;
            e->profile[i].calls++;
        }
    }
    atomic_store_explicit(&e->position, -1, memory_order_relaxed);
    return finish(e, step, metrics);
}
