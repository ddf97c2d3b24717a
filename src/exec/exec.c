/* The executor: one step is the plan's list, from front to back (act.c). */
#include "exec/exec.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "exec/parts.h"
#include "plan/shard.h"

/* one by one, before a step is recorded: libraries set themselves up at first use */
enum { EAGER_STEPS = 2 };

bool kolo_exec_takes_turns(const kolo_plan *plan, const kolo_options *options)
{
    const kolo_plan_config *c = &plan->config;
    return options->threads == 1 && !c->servers && !(c->lag && c->optimizer);
}

int kolo_exec_create(kolo_exec **exec, kolo_plan *const *plans, int count, kolo_backend *backend,
                     kolo_comm *comm, const kolo_options *options, kolo_exec *share)
{
    const kolo_plan *plan = plans[0];
    int rc;
    *exec = NULL;
    if (plan->config.ranks > 1 && plan->config.optimizer && !comm)
        return kolo_fail(KOLO_EINTERNAL, "executor: a plan of %d ranks needs their communication",
                         plan->config.ranks);
    if (plan->shares && !share)
        return kolo_fail(KOLO_EINTERNAL, "executor: this plan uses another's parameters");
    kolo_exec *e = kolo_alloc(sizeof *e);
    if (!e) return KOLO_ENOMEM;
    e->plan = plan;
    e->backend = backend;
    e->comm = comm;
    e->options = options;
    e->owner = share ? share : e;
    e->copied = -1;
    e->exchange = plan->config.exchange;
    e->blocks = 1 + kolo_plan_feed(plan);
    e->first_batch = -1;
    e->last_batch = INT64_MAX;
    for (int a = 0; a < KOLO_ARENAS; a++) e->file[a] = -1;
    e->dynamic = plan->config.scaled && options->loss_scale == 0;
    e->versions = plan->config.optimizer ? kolo_plan_versions(plan) : 1;
    /* what is recorded cannot wait for sums that were started before, nor the host for other ranks in it */
    e->replays = options->replay && e->versions == 1 && !(comm && kolo_comm_host_waits(comm));
    e->ahead = kolo_backend_is_host(backend) ? 0 : KOLO_EXEC_AHEAD;
    KOLO_TRY_GOTO(rc, exec_open_shards(e));
    KOLO_TRY_GOTO(rc, exec_offload_open(e));
    KOLO_TRY_GOTO(rc, exec_allocate(e, share));
    KOLO_TRY_GOTO(rc, exec_resolve(e));
    for (int i = 0; i < count; i++) KOLO_TRY_GOTO(rc, exec_add_variant(e, plans[i]));
    if (comm && (plan->config.optimizer || plan->program || plan->arena_bytes[KOLO_ARENA_GATHERED])) {
        KOLO_TRY_GOTO(rc, exec_declare(e));
        KOLO_TRY_GOTO(rc, exec_backup_open(e));
        KOLO_TRY_GOTO(rc, exec_async_open(e));
        e->shares_cores = kolo_backend_is_host(backend) && kolo_exec_takes_turns(plan, options);
        KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
        for (int i = 0; i < count; i++) KOLO_TRY_GOTO(rc, exec_agree(e, plans[i]));
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
    kolo_failure before;
    kolo_error_keep(&before);
    exec_release(*exec);
    free(*exec);
    *exec = NULL;
    kolo_error_restore(&before, before.status);
}

int kolo_exec_batches_ahead(const kolo_exec *exec) { return kolo_plan_feed(exec->plan); }

double kolo_exec_issue_seconds(const kolo_exec *exec) { return exec->issuing; }
double kolo_exec_comm_seconds(const kolo_exec *exec) { return exec->waiting; }

void kolo_exec_use_ema(kolo_exec *exec, bool ema)
{
    const bool wanted = ema && exec->arena[KOLO_ARENA_EMA];
    if (wanted != exec->averages) exec->copied = -1;
    exec->averages = wanted;
}

/* ---- a step ---- */

static bool takes(const plan_variant *f, const kolo_batch *batch, bool alone)
{
    const kolo_graph *g = f->plan->graph;
    if (batch->rows != g->rows * f->plan->config.slots) return false;
    if (alone || g->input < 0) return true;
    const int64_t *side = g->input_grid[0] ? g->image : &g->tensor[g->input].dim[1];
    return side[0] == batch->height && side[1] == batch->width;
}

/* The plan that is for batches of this shape, and for what ranks exchange now. */
int exec_choose(kolo_exec *e, const kolo_batch *batch)
{
    int alike = 0;
    for (int i = 0; i < e->variants; i++) alike += e->variant[i].plan->config.exchange == e->exchange;
    for (e->current = e->variant; e->current < e->variant + e->variants; e->current++) {
        if (e->current->plan->config.exchange != e->exchange || !takes(e->current, batch, alike == 1))
            continue;
        e->view = e->averages ? &e->current->average : &e->current->weights[e->written_version];
        return 0;
    }
    return kolo_fail(KOLO_EINTERNAL,
                     "executor: a batch of %" PRId64 " rows of %d x %d for %d micro-batches of %" PRId64 "%s",
                     batch->rows, batch->width, batch->height, e->plan->config.slots, e->plan->graph->rows,
                     e->variants > 1 ? ", or another plan" : "");
}

/* Rows of those whose gradients are summed with this rank's. */
static int64_t rows_summed(const kolo_exec *e, const kolo_batch *batch)
{
    int64_t rows = 0;
    if (kolo_plan_steps_alone(&e->current->plan->config)) return batch->valid;
    if (!e->group.number) return batch->valid_global;
    for (int i = 0; i < e->group.ranks; i++) {
        const int64_t left = batch->valid_global - e->group.rank[i] * batch->rows;
        rows += left < 0 ? 0 : left > batch->rows ? batch->rows : left;
    }
    return rows;
}

/* The host's part of the step block: the caller's, and which rows count. It goes by way of `block`, which is
 * page-locked, to `to`, in backend memory. */
int exec_send_block(kolo_exec *e, const kolo_batch *batch, const kolo_step *step, kolo_step *block,
                    kolo_step *to)
{
    const kolo_plan *p = e->current->plan;
    int64_t rows = p->graph->rows;
    memcpy(block, step, KOLO_STEP_HOST_BYTES);
    for (int s = 0; s < p->config.slots; s++) {
        int64_t valid = batch->valid - s * rows;
        block->valid[s] = (int32_t)(valid < 0 ? 0 : valid > rows ? rows : valid);
        block->row[s] = (int32_t)(batch->first + s * rows);
    }
    block->valid_global = rows_summed(e, batch); /* a rank's own mean, or its part of all */
    if (p->config.local) block->ema_decay = 1;   /* what is there is not of steps */
    return kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, to, block, KOLO_STEP_HOST_BYTES);
}

/* SHADOW follows its weights by itself in UPDATE; here after any other change of them. Outside
 * of what is recorded. */
static int copy_weights(kolo_exec *e)
{
    const kolo_plan *p = e->plan;
    if (!e->arena[KOLO_ARENA_SHADOW] || e->copied == e->owner->changes) return 0;
    const bool windows = p->arena_bytes[KOLO_ARENA_GATHERED];
    enum kolo_arena from = e->averages && !exec_is_sharded(e) ? KOLO_ARENA_EMA : KOLO_ARENA_PARAM;
    const size_t units = windows ? (size_t)kolo_plan_rest(p) * sizeof(float) : 0;
    const size_t bytes = p->param_bytes - units;
    const size_t skip = windows ? p->arena_bytes[KOLO_ARENA_PARAM] - bytes : 0;
    if (bytes > 0) /* units are copied when they are gathered */
        KOLO_TRY(kolo_backend_narrow(
            e->backend, e->arena[KOLO_ARENA_SHADOW] + p->arena_bytes[KOLO_ARENA_GATHERED] / 2,
            p->graph->dtype, (float *)(e->arena[from] + skip), (int64_t)(bytes / sizeof(float))));
    exec_evict_all(e, from);
    e->copied = e->owner->changes;
    return 0;
}

/* Ends a recording that failed; the error text stays the first one. */
static int give_up(kolo_exec *e, int rc)
{
    kolo_failure first;
    kolo_replay *none = NULL;
    kolo_error_keep(&first);
    kolo_backend_capture_end(e->backend, &none);
    kolo_replay_destroy(&none);
    return kolo_error_restore(&first, rc);
}

static int carry_out(kolo_exec *e, int64_t step)
{
    exec_view *v = e->view;
    if (e->profile || !e->replays || v->eager_steps < EAGER_STEPS) {
        v->eager_steps++;
        return exec_act_all(e, step);
    }
    if (!v->replay) {
        int rc = kolo_backend_capture(e->backend);
        KOLO_TRY(rc);
        if (rc == 1) {
            e->replays = false;
            return exec_act_all(e, step);
        }
        rc = exec_act_all(e, step);
        if (rc < 0) return give_up(e, rc);
        KOLO_TRY(kolo_backend_capture_end(e->backend, &v->replay));
    }
    if (e->comm) kolo_comm_publish(e->comm, step + 1, 0);
    return kolo_replay_run(v->replay);
}

static int add_times(kolo_exec *e)
{
    KOLO_TRY(exec_await(e, e->done[(e->issued - 1) % e->flights]));
    for (int64_t i = 0; i < e->current->plan->actions; i++) {
        e->profile[i].seconds += e->used ? fmax(e->used[i + 1] - e->used[i] - e->used_cost, 0)
                                         : kolo_event_seconds(e->mark[i], e->mark[i + 1]);
        e->profile[i].calls++;
    }
    return 0;
}

int kolo_exec_step(kolo_exec *e, const kolo_batch *batch, const kolo_step *step, kolo_metrics *metrics)
{
    const double start = kolo_time();
    *metrics = (kolo_metrics){.step = -1};
    if (e->plan->ring) return exec_step_late(e, batch, step, metrics);
    KOLO_TRY(exec_show_averages(e->owner, e->averages));
    exec_begin_step(e);
    if (e->backup) KOLO_TRY(exec_backup_begin(e, step->step));
    KOLO_TRY(exec_choose(e, batch));
    KOLO_TRY(exec_send_block(e, batch, step, &e->in_flight[e->begun % e->flights].step,
                             &e->step[e->written_version]));
    KOLO_TRY(exec_offer(e, batch));
    KOLO_TRY(copy_weights(e));
    KOLO_TRY(carry_out(e, step->step));
    e->begun++;
    KOLO_TRY(exec_end_step(e));
    e->issuing += kolo_time() - start;
    if (e->profile && e->issued) KOLO_TRY(add_times(e));
    KOLO_TRY(exec_taken(e));
    if (e->issued - e->reported > e->ahead) KOLO_TRY(exec_report_next(e, metrics));
    if (e->comm) kolo_comm_publish(e->comm, step->step + 1, -1);
    return 0;
}

int kolo_exec_statistics(kolo_exec *e, const kolo_batch *batch, const kolo_step *step, int64_t number)
{
    kolo_step own = *step;
    kolo_metrics m;
    own.swa = 1.0f / (float)(number + 1);
    kolo_exec_use_ema(e, true);
    int rc = kolo_exec_step(e, batch, &own, &m);
    while (rc >= 0 && e->reported < e->issued) rc = exec_report_next(e, &m);
    kolo_exec_use_ema(e, false);
    return rc;
}

int kolo_exec_infer(kolo_exec *e, const kolo_batch *batch)
{
    const kolo_step step = {0};
    kolo_metrics m;
    KOLO_TRY(kolo_exec_step(e, batch, &step, &m));
    do KOLO_TRY(kolo_exec_drain(e, &m));
    while (m.step >= 0);
    return 0;
}

/* ---- times ---- */

int exec_profile_used(kolo_exec *e)
{
    if (!e->used) e->used = kolo_alloc((size_t)(e->plan->actions + 1) * sizeof *e->used);
    e->used_cost = exec_used_cost();
    return e->used ? 0 : KOLO_ENOMEM;
}

int kolo_exec_set_profile(kolo_exec *e, kolo_exec_profile *profile)
{
    int64_t marks = e->plan->actions + 1;
    for (int i = 0; i < e->variants && profile; i++)
        if (e->variant[i].plan->actions != e->plan->actions)
            return kolo_fail(KOLO_ECONFIG,
                             "a profile is of steps that do the same: leave batch_ramp and local_steps out");
    if (profile && !e->mark) {
        e->mark = kolo_alloc((size_t)marks * sizeof *e->mark);
        if (!e->mark) return KOLO_ENOMEM;
        for (int64_t i = 0; i < marks; i++) KOLO_TRY(kolo_event_create(e->backend, &e->mark[i], true));
    }
    e->profile = profile;
    return 0;
}
