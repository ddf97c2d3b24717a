/* Ranks that share a batch: local SGD, SWAP, and gradients that are applied late. */
#ifndef TESTS_DELAYED_RANKS_H
#define TESTS_DELAYED_RANKS_H

#include "delayed_case.h"
#include "train/local.h"

static kolo_plan *delayed_exchange[KOLO_EXCHANGES]; /* beside net.plan, in which gradients are summed */

static int delayed_ranks_of(const cJSON *config, const delayed_how *how)
{
    (void)how;
    return (int)golden_number(config, "ranks", 2);
}

static int delayed_all_ranks(const delayed_case *c) { return c->launch->size; }

static bool delayed_is_swap(const delayed_case *c)
{
    return !strcmp(golden_text(c->config, "mode", ""), "swap");
}

/* What the case makes of averages. */
static int delayed_outer(delayed_case *c)
{
    const cJSON *outer = golden_at(c->config, "outer");
    if (!outer) return 0;
    c->options.local_outer = !strcmp(golden_text(outer, "kind", ""), "nesterov") ? KOLO_local_outer_nesterov
                                                                                 : KOLO_local_outer_slowmo;
    c->options.local_outer_rate = golden_number(outer, "rate", 1);
    c->options.local_outer_momentum = golden_number(outer, "momentum", 0);
    return strcmp(c->how.wrong, "mean") ? c->options.local_outer : 0;
}

static int delayed_local_plans(delayed_case *c)
{
    const kolo_plan_config config = {.ranks = c->launch->size,
                                     .slots = c->how.slots ? c->how.slots : 1,
                                     .bucket_bytes = 1 << 17,
                                     .decay_norms = c->options.decay_norms,
                                     .clip_norm = c->options.clip_norm > 0,
                                     .ema = true,
                                     .local = true,
                                     .outer = delayed_outer(c),
                                     .optimizer = kolo_optimizer_find(c->options.optimizer)};
    KOLO_TRY(kolo_plan_create(&c->net.plan, c->net.graph, c->backend, &config, NULL));
    KOLO_TRY(kolo_plan_check(c->net.plan));
    for (int x = KOLO_EXCHANGE_NOTHING; x < KOLO_EXCHANGES; x++) {
        KOLO_TRY(kolo_plan_create_exchange(&delayed_exchange[x], c->net.plan, (enum kolo_exchange)x));
        KOLO_TRY(kolo_plan_check(delayed_exchange[x]));
    }
    return 0;
}

static int delayed_ranks_comm(delayed_case *c)
{
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = kolo_plan_comm_bytes(c->net.plan),
                                     .timeout = 60,
                                     .spin = -1};
    return kolo_comm_create(&c->comm, c->launch, &config);
}

static int delayed_local_open(delayed_case *c)
{
    kolo_plan *all[KOLO_EXCHANGES];
    KOLO_TRY(delayed_local_plans(c));
    memcpy(all, delayed_exchange, sizeof all);
    all[KOLO_EXCHANGE_GRADIENTS] = c->net.plan;
    KOLO_TRY(kolo_plan_share(all, KOLO_EXCHANGES));
    KOLO_TRY(delayed_ranks_comm(c));
    return kolo_exec_create(&c->net.exec, all, KOLO_EXCHANGES, c->backend, c->comm, &c->options, NULL);
}

/* The mean over ranks of what each tells of its own rows; in a step of all it is told of all. */
static int delayed_mean_loss(delayed_case *c, double own, double *loss)
{
    *loss = own;
    return kolo_comm_allreduce(c->comm, loss, 1, KOLO_F64, KOLO_SUM);
}

static int delayed_local_run(delayed_case *c)
{
    const bool swap = delayed_is_swap(c);
    const int64_t batch = (int64_t)golden_number(c->config, "batch", 1), rows = batch / c->launch->size;
    const int64_t start = (int64_t)golden_number(c->config, "sync_steps", 0);
    if (swap) c->options.swap = 1;
    else c->options.local_steps = (int64_t)golden_number(c->config, "every", 1);
    for (int t = 0; t < c->steps; t++) {
        kolo_batch b = delayed_batch(c, t, c->launch->rank * rows, rows, batch);
        kolo_step step = delayed_step(c, t);
        kolo_metrics m;
        enum kolo_exchange exchange = kolo_local_exchange(&c->options, start, t, c->steps);
        if (!strcmp(c->how.wrong, "always")) exchange = KOLO_EXCHANGE_GRADIENTS;
        kolo_exec_exchange(c->net.exec, exchange);
        if (swap && t >= start && strcmp(c->how.wrong, "remember")) step.origin = start;
        if (t == start) KOLO_TRY(kolo_exec_anchor(c->net.exec));
        if (step.origin && t == start) KOLO_TRY(kolo_exec_reset_optimizer(c->net.exec));
        delayed_sleep(c, t);
        KOLO_TRY(kolo_exec_step(c->net.exec, &b, &step, &m));
        const bool own = exchange == KOLO_EXCHANGE_NOTHING;
        KOLO_TRY(delayed_mean_loss(c, m.loss / (double)batch / (own ? 1 : c->launch->size), &c->losses[t]));
    }
    return 0;
}

static void delayed_local_close(delayed_case *c)
{
    (void)c;
    for (int x = 0; x < KOLO_EXCHANGES; x++) kolo_plan_destroy(&delayed_exchange[x]);
}

/* ---- late gradients ---- */

/* Any number will do that divides the batch. */
static int delayed_stale_ranks(const cJSON *config, const delayed_how *how)
{
    const int batch = (int)golden_number(config, "batch", 1), ranks = delayed_ranks_of(config, how);
    return batch % ranks ? 1 : ranks;
}

static int delayed_stale_open(delayed_case *c)
{
    const int tau = (int)golden_number(c->config, "tau", 1);
    const kolo_plan_config config = {.ranks = c->launch->size,
                                     .bn = KOLO_bn_sync, /* norms are of the whole batch */
                                     .slots = c->how.slots ? c->how.slots : 1,
                                     .bucket_bytes = 1 << 17,
                                     .late = strcmp(c->how.wrong, "newest") ? tau : 0,
                                     .decay_norms = c->options.decay_norms,
                                     .clip_norm = c->options.clip_norm > 0,
                                     .optimizer = kolo_optimizer_find(c->options.optimizer)};
    KOLO_TRY(kolo_plan_create(&c->net.plan, c->net.graph, c->backend, &config, NULL));
    KOLO_TRY(kolo_plan_check(c->net.plan));
    KOLO_TRY(delayed_ranks_comm(c));
    return kolo_exec_create(&c->net.exec, &c->net.plan, 1, c->backend, c->comm, &c->options, NULL);
}

static void delayed_tell(delayed_case *c, const kolo_metrics *m)
{
    if (m->step >= 0) c->losses[m->step] = m->loss / golden_number(c->config, "batch", 1);
}

/* All that is under way is applied. */
static int delayed_flush(delayed_case *c)
{
    kolo_metrics m;
    int rc;
    while ((rc = kolo_exec_flush(c->net.exec)) > 0) continue;
    KOLO_TRY(rc);
    do {
        KOLO_TRY(kolo_exec_drain(c->net.exec, &m));
        delayed_tell(c, &m);
    } while (m.step >= 0);
    return 0;
}

static int delayed_stale_run(delayed_case *c)
{
    const int64_t batch = (int64_t)golden_number(c->config, "batch", 1), rows = batch / c->launch->size;
    for (int t = 0; t < c->steps; t++) {
        kolo_batch b = delayed_batch(c, t, c->launch->rank * rows, rows, batch);
        kolo_step step = delayed_step(c, t);
        kolo_metrics m;
        delayed_sleep(c, t);
        KOLO_TRY(kolo_exec_step(c->net.exec, &b, &step, &m));
        delayed_tell(c, &m);
        if (!strcmp(c->how.wrong, "drain")) KOLO_TRY(delayed_flush(c));
    }
    return delayed_flush(c);
}

static const delayed_mode delayed_stale = {
    "stale", delayed_stale_ranks, delayed_stale_open, delayed_stale_run, NULL, delayed_all_ranks};
static const delayed_mode delayed_local_sgd = {"local_sgd",       delayed_ranks_of,    delayed_local_open,
                                               delayed_local_run, delayed_local_close, delayed_all_ranks};
static const delayed_mode delayed_swap = {
    "swap", delayed_ranks_of, delayed_local_open, delayed_local_run, delayed_local_close, delayed_all_ranks};

#endif
