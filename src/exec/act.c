/* Actions: what each of a plan's list does. Each only enqueues, or is done at once by a backend that lives in
 * host memory. */
#include <inttypes.h>
#include <time.h>

#include "base/thread.h"
#include "exec/parts.h"
#include "kolo/error.h"
#include "plan/shard.h"

/* The host's time counts; a device waits by itself. */
int exec_await_ranks(kolo_exec *e, int number)
{
    const double start = kolo_time();
    const int rc = kolo_comm_wait(e->comm, number);
    e->waiting += kolo_time() - start;
    return rc;
}

/* Over the ranks of this stage, or of this pipeline; without stages over all. The sum is formed in comm's
 * memory. */
static int sum_among(kolo_exec *e, enum kolo_action_kind kind, double *data, int64_t count)
{
    const kolo_program *program = e->plan->program;
    if (!program) return kolo_comm_sum(e->comm, data, count);
    const exec_sum *sum = e->sum;
    while (sum->kind != kind || sum->count != count) sum++;
    char *place = kolo_comm_arena(e->comm);
    const size_t bytes = (size_t)count * sizeof *data;
    KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, place, data, bytes));
    KOLO_TRY(kolo_comm_start(e->comm, sum->number));
    KOLO_TRY(exec_await_ranks(e, sum->number));
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, data, place, bytes);
}

static int sum(kolo_exec *e, const kolo_action *a)
{
    return sum_among(e, a->kind, e->view->args[a->binding], kolo_plan_sum_count(e->current->plan, a));
}

static float *level(const kolo_exec *e, int number, size_t offset)
{
    const kolo_binding b = kolo_plan_level(e->plan, offset, number);
    char *arena = b.arena == KOLO_ARENA_GRADIENT ? exec_gradients(e, e->written_version) : e->arena[b.arena];
    return (float *)(arena + b.offset);
}

/* Every sum of a leaf is formed by one rank; of copies by the first group's. */
static int sum_leaves(kolo_exec *e, enum kolo_action_kind kind, int64_t count)
{
    if (!e->plan->program && !exec_is_sharded(e)) return 0;
    return sum_among(e, kind, e->squares, count);
}

/* Of every leaf by itself, then all in the graph's order: so the bits do not depend on who has it. */
static int norm(kolo_exec *e)
{
    const int64_t n = kolo_plan_leaves(e->plan);
    const size_t bytes = (size_t)n * sizeof *e->squares;
    if (e->plan->program || exec_is_sharded(e))
        KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->squares, 0, bytes));
    KOLO_TRY(kolo_updater_measure(e->updater[e->applied_version], e->squares));
    KOLO_TRY(sum_leaves(e, KOLO_ACTION_NORM, n));
    return kolo_updater_decide(e->updater[e->applied_version], e->squares, n, &e->step[e->applied_version]);
}

static int layers(kolo_exec *e)
{
    const int64_t n = 2 * kolo_plan_leaves(e->plan);
    const size_t bytes = (size_t)n * sizeof *e->squares;
    const bool apart = exec_is_sharded(e) || kolo_plan_meets(e->plan, KOLO_ACTION_LAYERS);
    if (apart) KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->squares, 0, bytes));
    KOLO_TRY(kolo_updater_layers_measure(e->updater[e->applied_version], &e->step[e->applied_version],
                                         e->squares));
    if (e->shard_group > 0) KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->squares, 0, bytes));
    if (apart) KOLO_TRY(sum_leaves(e, KOLO_ACTION_LAYERS, n));
    return kolo_updater_layers_decide(e->updater[e->applied_version], &e->step[e->applied_version],
                                      e->squares);
}

/* A stage without parameters has measured nothing: what is there is the sum of the step before. */
static int sum_noise(kolo_exec *e, const kolo_action *a)
{
    double *mine = &e->step->square;
    if (!a->to) KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, mine, 0, sizeof *mine));
    return kolo_comm_sum(e->comm, mine, 1);
}

static int square(kolo_exec *e, const kolo_action *a)
{
    const kolo_bucket *b = &e->plan->bucket[a->bucket];
    size_t begin = e->plan->reduced_front + (size_t)b->param * sizeof(float);
    return kolo_updater_square(e->updater[0], level(e, a->from, begin), b->params, a->to != 0, e->step);
}

static enum kolo_update how_of(const kolo_action *a)
{
    return a->kind == KOLO_ACTION_DELTA   ? KOLO_UPDATE_DELTA
           : a->kind == KOLO_ACTION_APPLY ? KOLO_UPDATE_APPLY
                                          : KOLO_UPDATE;
}

/* Whether this step leaves the action out. A training step on averaged weights (kolo_exec_statistics) does
 * the forward half alone; gradients are still those of the step before, reduced already. */
static bool is_skipped(const kolo_exec *e, const kolo_action *a)
{
    const kolo_plan *p = e->current->plan;
    if (!e->averages || !e->plan->config.optimizer) return false;
    switch (a->kind) {
    case KOLO_ACTION_RUN:
    case KOLO_ACTION_SUM: return a->again || p->graph->node[a->node].backward;
    case KOLO_ACTION_FOLD:
    case KOLO_ACTION_REDUCE:
    case KOLO_ACTION_WAIT:
    case KOLO_ACTION_CLEAR:
    case KOLO_ACTION_COLLECT: return p->bucket[a->bucket].offset >= p->reduced_front;
    case KOLO_ACTION_GATHER:
    case KOLO_ACTION_GATHERED: return !p->arena_bytes[KOLO_ARENA_GATHERED];
    case KOLO_ACTION_SEND:
    case KOLO_ACTION_RECEIVE:
    case KOLO_ACTION_TRANSFERRED: {
        const int maker = p->graph->tensor[p->transfer[a->transfer].tensor].producer;
        return maker >= 0 && p->graph->node[maker].backward;
    }
    case KOLO_ACTION_LOAD:
    case KOLO_ACTION_FETCH_PARAM:
    case KOLO_ACTION_EVICT_PARAM:
    case KOLO_ACTION_BUFFERS: return false;
    case KOLO_ACTION_FETCH:
    case KOLO_ACTION_EVICT:
    case KOLO_ACTION_COPY:
    case KOLO_ACTION_PREDICT:
    case KOLO_ACTION_STASH:
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE:
    case KOLO_ACTION_NORM:
    case KOLO_ACTION_LAYERS:
    case KOLO_ACTION_UPDATE:
    case KOLO_ACTION_DELTA:
    case KOLO_ACTION_APPLY:
    case KOLO_ACTION_SQUARE:
    case KOLO_ACTION_NOISE:
    case KOLO_ACTION_ENCODE:
    case KOLO_ACTION_DECODE:
    case KOLO_ACTION_STORE:
    case KOLO_ACTION_STORED:
    case KOLO_ACTION_RETRIEVE:
    case KOLO_ACTION_RETRIEVED: return true;
    }
    return false;
}

/* To the form in which an activation is kept, or back. */
static int change_form(kolo_exec *e, const kolo_action *a)
{
    const kolo_plan *p = e->current->plan;
    void *const *args = &e->view->args[a->binding];
    return (a->kind == KOLO_ACTION_ENCODE ? kolo_backend_encode : kolo_backend_decode)(
        e->backend, (enum kolo_form_kind)p->config.form[a->tensor], p->graph->tensor[a->tensor].dtype,
        args[1], args[0], kolo_plan_form_count(p, a->tensor));
}

static int copy_tensor(kolo_exec *e, const kolo_action *a)
{
    void *const *args = &e->view->args[a->binding];
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, args[1], args[0],
                             e->current->plan->layout[a->tensor].bytes);
}

/* Begins the copy of an activation to its offloaded place, or back. */
static int copy_offloaded(kolo_exec *e, const kolo_action *a)
{
    const kolo_plan *p = e->current->plan;
    const bool store = a->kind == KOLO_ACTION_STORE;
    void *memory = e->view->args[a->binding + !store];
    const kolo_binding *b = &p->binding[a->binding + store];
    int64_t *copy = &e->current->copy[(int64_t)a->slot * p->graph->tensors + a->tensor];
    return (store ? exec_offloaded_write : exec_offloaded_read)(e->offloaded, memory, b->offset,
                                                                p->layout[a->tensor].bytes, copy);
}

static int await_offloaded(kolo_exec *e, const kolo_action *a)
{
    const kolo_plan *p = e->current->plan;
    return exec_offloaded_wait(e->offloaded,
                               e->current->copy[(int64_t)a->slot * p->graph->tensors + a->tensor]);
}

/* Of a stage that is carried out by itself. */
static int receive_zeros(kolo_exec *e, const kolo_action *a)
{
    const kolo_plan *p = e->current->plan;
    const kolo_transfer *t = &p->transfer[a->transfer];
    if (t->sends) return 0;
    return kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE,
                             e->arena[KOLO_ARENA_TRANSFER] + t->offset - kolo_plan_transfer_base(p), 0,
                             t->bytes);
}

static int act(kolo_exec *e, const kolo_action *a)
{
    if (is_skipped(e, a) || !exec_does(e, a->kind)) return 0;
    const kolo_plan *p = e->current->plan;
    const kolo_bucket *b = a->bucket >= 0 && p->buckets ? &p->bucket[a->bucket] : NULL;
    const int *slice = e->first_slice;
    switch (a->kind) {
    case KOLO_ACTION_LOAD: return exec_load(e, a);
    case KOLO_ACTION_RUN:
        return kolo_kernel_run(p->kernel[a->node], &e->view->args[a->binding], e->arena[KOLO_ARENA_WORKSPACE],
                               exec_block_of(e, a), a->slot);
    case KOLO_ACTION_SUM: return sum(e, a);
    case KOLO_ACTION_FOLD:
        return kolo_backend_fold(e->backend, level(e, a->to, b->offset), level(e, a->from, b->offset),
                                 b->count);
    case KOLO_ACTION_REDUCE:
        return e->backup ? exec_backup_offer(e, a->bucket)
                         : kolo_comm_start(e->comm, exec_sum_number(e, a->bucket, e->written_version));
    case KOLO_ACTION_WAIT: return e->backup ? exec_backup_wait(e) : exec_wait_sum(e, a->bucket);
    case KOLO_ACTION_SHARE: return exec_share(e, a->bucket, a->from);
    case KOLO_ACTION_TAKE: return exec_take(e, a->bucket, a->from);
    case KOLO_ACTION_CLEAR: return exec_clear_gaps(e, a->bucket);
    case KOLO_ACTION_COLLECT: return exec_collect(e, a->bucket);
    case KOLO_ACTION_COPY: return copy_tensor(e, a);
    case KOLO_ACTION_STASH: return exec_stash(e, a->bucket);
    case KOLO_ACTION_PREDICT: exec_predict(e, a->bucket); return 0;
    case KOLO_ACTION_FETCH: exec_fetch(e, KOLO_ARENA_STATE, a->unit); return 0;
    case KOLO_ACTION_EVICT: exec_evict(e, KOLO_ARENA_STATE, a->unit); return 0;
    case KOLO_ACTION_FETCH_PARAM: exec_fetch(e, KOLO_ARENA_PARAM, a->unit); return 0;
    case KOLO_ACTION_EVICT_PARAM: exec_evict(e, KOLO_ARENA_PARAM, a->unit); return 0;
    case KOLO_ACTION_GATHER: return exec_gather(e, a->unit);
    case KOLO_ACTION_GATHERED: return exec_gathered(e, a->unit);
    case KOLO_ACTION_SEND:
    case KOLO_ACTION_RECEIVE:
        return e->comm ? kolo_comm_start(e->comm, exec_transfer_of(e, a)) : receive_zeros(e, a);
    case KOLO_ACTION_TRANSFERRED: return e->comm ? exec_await_ranks(e, exec_transfer_of(e, a)) : 0;
    case KOLO_ACTION_NORM: return norm(e);
    case KOLO_ACTION_LAYERS: return layers(e);
    case KOLO_ACTION_UPDATE:
    case KOLO_ACTION_DELTA:
    case KOLO_ACTION_APPLY:
        return kolo_updater_update(e->updater[e->applied_version], slice[a->bucket],
                                   slice[a->bucket + 1] - slice[a->bucket], how_of(a),
                                   &e->step[e->applied_version]);
    case KOLO_ACTION_SQUARE: return square(e, a);
    case KOLO_ACTION_NOISE: return sum_noise(e, a);
    case KOLO_ACTION_BUFFERS:
        return kolo_updater_running(e->updater[e->applied_version], &e->step[e->applied_version]);
    case KOLO_ACTION_ENCODE:
    case KOLO_ACTION_DECODE: return change_form(e, a);
    case KOLO_ACTION_STORE:
    case KOLO_ACTION_RETRIEVE: return copy_offloaded(e, a);
    case KOLO_ACTION_STORED:
    case KOLO_ACTION_RETRIEVED: return await_offloaded(e, a);
    }
    return kolo_fail(KOLO_EINTERNAL, "unknown action");
}

double exec_used_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double exec_used_cost(void)
{
    double least = 1;
    for (int i = 0; i < 100; i++) {
        const double begin = exec_used_seconds(), took = exec_used_seconds() - begin;
        if (took < least) least = took;
    }
    return least;
}

static int mark(kolo_exec *e, int64_t at)
{
    if (!e->used) return kolo_event_record(e->mark[at], KOLO_LANE_COMPUTE);
    e->used[at] = exec_used_seconds();
    return 0;
}

static bool is_wait(enum kolo_action_kind kind)
{
    return kind == KOLO_ACTION_WAIT || kind == KOLO_ACTION_GATHERED || kind == KOLO_ACTION_TRANSFERRED;
}

static int act_each(kolo_exec *e, int64_t step)
{
    const kolo_plan *p = e->current->plan;
    if (e->profile) KOLO_TRY(mark(e, 0));
    for (int64_t i = 0; i < p->actions; i++) {
        if (p->ring && !exec_has_batch(e, &p->action[i])) continue;
        if (e->comm) /* as errors and progress count them */
            kolo_comm_publish_text(e->comm, step + 1, i,
                                   e->current->action_text ? e->current->action_text[i] : "");
        if (e->shares_cores && !is_wait(p->action[i].kind)) kolo_comm_acquire_core(e->comm);
        int rc = act(e, &p->action[i]);
        if (rc >= 0 && e->profile) rc = mark(e, i + 1);
        if (rc < 0) {
            char text[256];
            kolo_plan_action_text(p, i, text, sizeof text);
            return kolo_fail_in(rc, "step %" PRId64 ", action %" PRId64 " (%s): ", step + 1, i, text);
        }
    }
    return 0;
}

int exec_act_all(kolo_exec *e, int64_t step)
{
    const int rc = act_each(e, step);
    if (e->shares_cores) kolo_comm_release_core(e->comm);
    return rc;
}
