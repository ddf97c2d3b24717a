/* Plans of a session: one for every shape that a training step's batch has in the run, and that of the
 * evaluation. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "optim/outer.h"
#include "train/async.h"
#include "train/forms.h"
#include "train/late.h"
#include "train/local.h"
#include "train/parts.h"
#include "train/pipeline.h"
#include "train/plan_file.h"
#include "train/shard.h"

char *session_cache_file(const char *name)
{
    const char *cache = getenv("KOLO_CACHE"), *home = getenv("HOME");
    char *folder = cache && *cache ? kolo_strdup(cache)
                   : home && *home ? kolo_format("%s/.cache/kolo", home)
                                   : NULL;
    char *file = folder && kolo_folder_make(folder) == 0 ? kolo_format("%s/%s", folder, name) : NULL;
    free(folder);
    return file;
}

static int make_backend(kolo_session *s, const char *choices)
{
    const kolo_options *o = s->options;
    char *cache = choices ? NULL : session_cache_file("choices");
    const kolo_backend_config config = {.threads = (int)o->threads,
                                        .direct = o->conv == KOLO_conv_direct,
                                        .deterministic = o->deterministic || s->untimed,
                                        .tf32 = o->precision == KOLO_precision_tf32,
                                        .device = s->device_index,
                                        .gpu = s->gpu,
                                        .cache = cache,
                                        .choices = choices};
    const int rc = kolo_backend_create(&s->backend, s->cuda ? "cuda" : "cpu", &config);
    free(cache);
    return rc;
}

/* optimizer: NULL for an evaluation */
static kolo_plan_config plan_config(const kolo_session *s, const kolo_optimizer *optimizer, int slots)
{
    const kolo_options *o = s->options;
    const bool trains = optimizer != NULL, async = trains && kolo_is_async(s);
    const int apart = async ? (int)o->servers : 0;
    return (kolo_plan_config){.ranks = async ? 1 : s->replicas,
                              .servers = !async  ? 0
                                         : apart ? apart
                                                 : s->replicas,
                              .first_server = apart ? s->replicas - apart : 0,
                              .bound = async ? o->staleness : 0,
                              .slots = slots,
                              .bn = o->bn,
                              .canonical = o->reduce == KOLO_reduce_canonical,
                              .bucket_bytes = o->bucket_mb * 1048576,
                              .shard = (int)o->shard,
                              .shards = s->shards,
                              .shard_groups = s->shard_groups,
                              .reshard = o->reshard,
                              .offload = (s->parts & KOLO_SESSION_TRAIN) ? session_offloads(o) : 0,
                              .optimizer = optimizer,
                              .ema = kolo_averages(o),
                              .swa = trains && o->swa > 0,
                              .late = trains && o->sync == KOLO_sync_stale ? (int)o->staleness : 0,
                              .lag = trains && s->replicas > 1 ? kolo_lag(o) : 0,
                              .backup = trains && s->replicas > 1 && kolo_lag(o) ? (int)o->backup : 0,
                              .local = trains && kolo_is_local(o),
                              .average_state = o->local_momentum == KOLO_local_momentum_averaged,
                              .outer = trains && kolo_is_local(o) ? kolo_outer_kind(o) : 0,
                              .group = trains && o->tournament ? (int)o->tournament_group : 0,
                              .pairs = trains && o->tournament > 0,
                              .lookahead = o->lookahead > 0,
                              .clip_norm = trains && o->clip_norm > 0,
                              .scaled = trains && (o->loss_scale > 0 || o->precision == KOLO_precision_fp16),
                              .adasum = trains && s->replicas > 1 && kolo_is_adasum(o),
                              .average = trains && s->replicas > 1 && o->reduce == KOLO_reduce_adasum_nodes,
                              .noise = trains && o->noise_scale && s->replicas * slots > 1,
                              .predict = trains && (o->late_correction == KOLO_late_correction_predict ||
                                                    o->late_correction == KOLO_late_correction_both),
                              .decay_norms = o->decay_norms,
                              .layer_decay = o->layer_decay};
}

static int make_plan(kolo_session *s, const kolo_optimizer *optimizer, kolo_shape *shape,
                     const kolo_plan *like)
{
    const kolo_plan_config config = plan_config(s, optimizer, shape->slots);
    return kolo_plan_create(&shape->plan, shape->graph, s->backend, &config, like);
}

static int find_optimizer(const kolo_session *s, const kolo_optimizer **optimizer)
{
    *optimizer = session_evaluates_only(s) ? NULL : kolo_optimizer_find(s->options->optimizer);
    return *optimizer || session_evaluates_only(s) ? 0 : KOLO_ECONFIG;
}

/* All plans are laid in one memory: of what they share the first's counts, of scratch the largest of each.
 * Of activations that are not kept as they are few may be left. */
int session_least_arenas(const kolo_session *s, size_t arena_bytes[KOLO_ARENAS])
{
    const kolo_optimizer *optimizer;
    size_t bytes[KOLO_ARENAS];
    KOLO_TRY(find_optimizer(s, &optimizer));
    for (int i = 0; i < s->shapes + (s->eval_graph != NULL); i++) {
        const bool evaluation = i == s->shapes;
        const kolo_plan_config config =
            plan_config(s, evaluation ? NULL : optimizer, evaluation ? 1 : s->shape[i].slots);
        KOLO_TRY(kolo_plan_least(evaluation ? s->eval_graph : s->shape[i].graph, &config, bytes));
        for (int a = 0; a < KOLO_ARENAS; a++) {
            if (i == 0 || (kolo_plan_is_scratch((enum kolo_arena)a) && bytes[a] > arena_bytes[a]))
                arena_bytes[a] = bytes[a];
        }
    }
    if (!session_has_forms(s)) return 0;
    const size_t least = arena_bytes[KOLO_ARENA_ACTIVATION], encoded = s->shape[0].encodable;
    arena_bytes[KOLO_ARENA_ACTIVATION] = encoded && encoded < least ? least - encoded : 0;
    return 0;
}

static int make_plans(kolo_session *s, const char *choices)
{
    const kolo_optimizer *optimizer;
    KOLO_TRY(make_backend(s, choices));
    KOLO_TRY(find_optimizer(s, &optimizer));
    kolo_plan **all = kolo_alloc((size_t)s->shapes * sizeof *all);
    int rc = all ? 0 : KOLO_ENOMEM;
    for (int i = 0; i < s->shapes && rc == 0; i++) {
        kolo_shape *shape = &s->shape[i];
        rc = make_plan(s, optimizer, shape, i ? s->shape[0].plan : NULL);
        if (rc < 0) break;
        all[i] = shape->plan;
        shape->scratch = kolo_plan_scratch(shape->plan);
    }
    if (rc == 0) rc = kolo_plan_share(all, s->shapes);
    free(all);
    KOLO_TRY(rc);
    s->plan = s->shape[0].plan;
    if (!s->eval_graph) return 0;
    kolo_shape evaluation = {.slots = 1, .graph = s->eval_graph};
    rc = make_plan(s, NULL, &evaluation, s->plan);
    s->eval_plan = evaluation.plan;
    return rc;
}

/* Of the whole network, then of stages. cut: [parts - 1]; below 0: still to be chosen. */
static int make_all(kolo_session *s, const char *choices, int *cut)
{
    KOLO_TRY(make_plans(s, choices));
    if (!s->forms_given) session_weigh_process(s, true);
    if (s->grid.stages * s->options->chunks <= 1) {
        KOLO_TRY(session_choose_forms(s));
        return session_make_exchanges(s);
    }
    if (cut[0] < 0) KOLO_TRY(session_choose_cut(s, cut));
    return session_place(s, cut);
}

static int hand_out_forms(kolo_session *s, kolo_comm *comm)
{
    int64_t process = (int64_t)s->process_bytes;
    KOLO_TRY(kolo_comm_broadcast(comm, &process, sizeof process, 0));
    s->process_bytes = (size_t)process;
    for (int i = 0; i < s->shapes; i++)
        if (s->shape[i].form)
            KOLO_TRY(kolo_comm_broadcast(comm, s->shape[i].form, (size_t)s->shape[i].graph->tensors, 0));
    s->forms_given = true;
    return 0;
}

/* One rank chooses the algorithms for all, where stages are cut, and how activations are kept: rank 0 times
 * them, the others take its choices. */
static int agree_with_all(kolo_session *s, int *cut, int parts)
{
    kolo_comm *comm = NULL;
    char *choices = NULL;
    int64_t bytes = 0, in_place;
    int rc;
    kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                               .timeout = s->options->comm_timeout,
                               .heartbeat_timeout = s->options->heartbeat_timeout,
                               .table = s->options->comm_table,
                               .spin = -1};
    KOLO_TRY_GOTO(rc, kolo_comm_create(&comm, s->launch, &config));
    KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
    if (s->launch->rank == 0) {
        KOLO_TRY_GOTO(rc, make_all(s, s->plan_file->choices, cut));
        choices = kolo_backend_choices(s->backend);
        if (!choices) {
            rc = KOLO_ENOMEM;
            goto fail;
        }
        bytes = (int64_t)strlen(choices) + 1;
    }
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, &bytes, sizeof bytes, 0));
    if (!choices && !(choices = kolo_alloc((size_t)bytes))) {
        rc = KOLO_ENOMEM;
        goto fail;
    }
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, choices, (size_t)bytes, 0));
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, cut, (size_t)parts * sizeof *cut, 0));
    KOLO_TRY_GOTO(rc, hand_out_forms(s, comm));
    if (s->launch->rank != 0) KOLO_TRY_GOTO(rc, make_all(s, choices, cut));
    KOLO_TRY_GOTO(rc, session_choose_copy(s));
    in_place = s->plan->config.in_place;
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, &in_place, sizeof in_place, 0));
    s->plan->config.in_place = in_place;
    rc = kolo_comm_barrier(comm);
fail:
    free(choices);
    kolo_comm_destroy(&comm);
    return rc;
}

int session_make_plans(kolo_session *s)
{
    const int parts = session_cut_parts(s);
    int *cut = kolo_alloc((size_t)parts * sizeof *cut);
    if (!cut) return KOLO_ENOMEM;
    cut[0] = -1;
    const bool alone = (s->parts & KOLO_SESSION_PLAN_ONLY) || s->launch->size == 1;
    int rc = alone ? make_all(s, s->plan_file->choices, cut) : agree_with_all(s, cut, parts);
    if (rc == 0 && alone) rc = session_choose_copy(s);
    free(cut);
    kolo_trim(); /* plans that were tried, and memory that was timed */
    return rc;
}

int session_plan_trial(kolo_session *s)
{
    KOLO_TRY(make_plans(s, NULL));
    return session_choose_forms(s);
}

void session_free_plans(kolo_session *s)
{
    session_free_programs(s);
    kolo_plan_destroy(&s->eval_plan);
    for (int i = 0; i < s->shapes; i++) {
        for (int x = 0; x < KOLO_EXCHANGES; x++) kolo_plan_destroy(&s->shape[i].exchange[x]);
        kolo_plan_destroy(&s->shape[i].plan);
    }
    kolo_backend_destroy(&s->backend);
    kolo_graph_destroy(&s->eval_graph);
    for (int i = 0; i < s->shapes; i++) {
        kolo_graph_destroy(&s->shape[i].graph);
        free(s->shape[i].form);
    }
    free(s->shape);
    s->forms_given = false;
    s->shape = NULL;
    s->shapes = 0;
    s->plan = NULL;
    s->graph = NULL;
}
