/* A pipeline that is not drained behind a step (plan/order.h): the list of step t has forward turns of later
 * batches, and is the same for every step, but for which batches there are and at which of their places what
 * outlives a step stands. */
#include <string.h>

#include "base/thread.h"
#include "exec/parts.h"
#include "kolo/error.h"

static int64_t batch_of(const kolo_exec *e, const kolo_action *a) { return e->list + a->ahead; }

bool exec_has_batch(const kolo_exec *e, const kolo_action *a)
{
    const int64_t batch = batch_of(e, a);
    return batch >= e->first_batch && batch < e->last_batch;
}

kolo_step *exec_block_of(const kolo_exec *e, const kolo_action *a)
{
    return e->plan->ring ? &e->block[batch_of(e, a) % e->blocks] : &e->step[e->written_version];
}

int exec_transfer_of(const kolo_exec *e, const kolo_action *a)
{
    const plan_variant *v = e->current;
    const int *number = &v->transfer_number[a->transfer * v->transfer_places];
    if (!v->plan->ring) return *number;
    const int tensor = v->plan->transfer[a->transfer].tensor;
    const kolo_ring pairs = {.places = v->transfer_pairs[a->transfer],
                             .by_batch = tensor == v->plan->graph->metrics};
    return number[kolo_ring_place(&pairs, batch_of(e, a), v->plan->config.slots, a->slot)];
}

/* It is bound to what its weights will be, behind the versions. */
static bool is_predicted(const kolo_plan *p, const kolo_binding *b)
{
    return kolo_plan_predicts(p) && b->arena == KOLO_ARENA_VERSION &&
           b->offset >= (size_t)kolo_plan_weight_versions(p) * p->param_bytes;
}

static char *foreseen(const kolo_exec *e)
{
    return e->arena[KOLO_ARENA_VERSION] + (size_t)kolo_plan_weight_versions(e->plan) * e->plan->param_bytes;
}

/* Where the operands of the list are. While the pipeline fills the newest weights are those of a step
 * before the first, which stand among the versions. */
static void set_places(kolo_exec *e)
{
    const kolo_plan *p = e->current->plan;
    const int versions = kolo_plan_weight_versions(p);
    const bool fills = e->list < e->first_batch;
    const kolo_ring version = {.places = versions, .by_batch = true, .stride = p->param_bytes};
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        const int n = exec_has_batch(e, a) ? kolo_action_bindings(p, a) : 0;
        for (int64_t k = a->binding; k < a->binding + n; k++) {
            const kolo_binding *b = &p->binding[k];
            const bool predicted = is_predicted(p, b),
                       old = fills && versions > 0 && (predicted || b->arena == KOLO_ARENA_PARAM);
            const kolo_ring *ring = old ? &version : &p->ring[k];
            if (b->arena < 0 || (!ring->places && !predicted && b->arena != KOLO_ARENA_PARAM)) continue;
            const size_t offset = b->offset - (old && predicted ? (size_t)versions * p->param_bytes : 0);
            e->view->args[k] =
                e->arena[old ? KOLO_ARENA_VERSION : b->arena] + offset +
                (size_t)kolo_ring_place(ring, batch_of(e, a), p->config.slots, a->slot) * ring->stride;
        }
    }
}

/* Linear weight prediction: w - lr D v, for SGD's momentum v, D updates ahead; host memory. */
void exec_predict(kolo_exec *e, int bucket)
{
    const kolo_updater_config *u = &e->updater[e->applied_version]->config;
    float *weights = (float *)(void *)e->arena[KOLO_ARENA_PARAM], *predicted = (float *)(void *)foreseen(e);
    for (int s = e->first_slice[bucket]; s < e->first_slice[bucket + 1]; s++) {
        const kolo_slice *k = &u->slice[s];
        kolo_sgd_predict(k, &e->step[e->applied_version], kolo_plan_staleness(e->plan),
                         predicted + (k->param - weights));
    }
}

int exec_stash(kolo_exec *e, int bucket)
{
    const kolo_plan *p = e->plan;
    const kolo_bucket *b = &p->bucket[bucket];
    const char *now = kolo_plan_predicts(p) ? foreseen(e) : e->arena[KOLO_ARENA_PARAM];
    const size_t from = (size_t)b->param * sizeof(float),
                 place = (size_t)(e->list % kolo_plan_weight_versions(p)) * p->param_bytes;
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_VERSION] + place + from,
                             now + from, (size_t)b->params * sizeof(float));
}

/* All versions of a run that begins are its first weights; a checkpoint has set them. */
static int begin_versions(kolo_exec *e)
{
    for (int v = 0; !e->has_versions && v < kolo_plan_weight_versions(e->plan); v++)
        KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE,
                                   e->arena[KOLO_ARENA_VERSION] + (size_t)v * e->plan->param_bytes,
                                   e->arena[KOLO_ARENA_PARAM], e->plan->param_bytes));
    e->has_versions = true;
    if (!kolo_plan_predicts(e->plan)) return 0;
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, foreseen(e), e->arena[KOLO_ARENA_PARAM],
                             e->plan->param_bytes); /* what is not trained stays so */
}

/* The batch goes in, or there is none any more. */
static int take_batch(kolo_exec *e, const kolo_batch *batch, const kolo_step *step)
{
    const int64_t number = e->list + kolo_exec_batches_ahead(e);
    if (!batch) {
        if (number < e->last_batch) e->last_batch = number;
        return 0;
    }
    if (step->step != number || e->last_batch < INT64_MAX)
        return kolo_fail(KOLO_EINTERNAL, "executor: batch %lld comes where batch %lld is due",
                         (long long)step->step, (long long)number);
    KOLO_TRY(exec_choose(e, batch));
    KOLO_TRY(exec_send_block(e, batch, step, &e->in_flight[number % e->flights].step,
                             &e->block[number % e->blocks]));
    return exec_offer(e, batch);
}

static int do_list(kolo_exec *e)
{
    set_places(e);
    if (e->list >= e->first_batch) e->step = &e->block[e->list % e->blocks];
    return exec_act_all(e, e->list > e->first_batch ? e->list : e->first_batch);
}

/* Behind the last step what was sent is still to be waited for. */
static int end_lists(kolo_exec *e)
{
    int behind = 0;
    for (int64_t i = 0; i < e->current->plan->actions; i++)
        if (-e->current->plan->action[i].ahead > behind) behind = -e->current->plan->action[i].ahead;
    for (int i = 0; i < behind; i++, e->list++) {
        set_places(e);
        KOLO_TRY(exec_act_all(e, e->last_batch - 1));
    }
    return 0;
}

int exec_step_late(kolo_exec *e, const kolo_batch *batch, const kolo_step *step, kolo_metrics *metrics)
{
    const double start = kolo_time();
    if (e->first_batch < 0 && batch) {
        e->first_batch = step->step;
        e->list = e->first_batch - kolo_exec_batches_ahead(e);
        KOLO_TRY(begin_versions(e));
    }
    if (e->first_batch < 0 || e->list >= e->last_batch)
        return kolo_fail(KOLO_EINTERNAL, "executor: a step behind the last batch");
    exec_begin_step(e);
    KOLO_TRY(take_batch(e, batch, step));
    KOLO_TRY(do_list(e));
    const int64_t done = e->list++;
    if (done >= e->first_batch) {
        e->begun++;
        KOLO_TRY(exec_end_step(e));
    }
    if (batch) KOLO_TRY(exec_taken(e));
    if (e->list == e->last_batch) KOLO_TRY(end_lists(e));
    e->issuing += kolo_time() - start;
    if (e->issued > e->reported) KOLO_TRY(exec_report_next(e, metrics));
    if (e->comm) kolo_comm_publish(e->comm, done < 0 ? 1 : done + 1, -1);
    return 0;
}
