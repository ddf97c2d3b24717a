/* Kernels are measured: every stage of a session, or all of its network, in steps of one rank by itself, and
 * of as many as fill the cores. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/rehearse.h"
#include "kolo/error.h"
#include "plan/price.h"
#include "train/known_times.h"
#include "train/parts.h"
#include "train/times.h"

enum { STEPS = 9 };

static bool is_priced(enum kolo_action_kind kind)
{
    return kind == KOLO_ACTION_LOAD || kind == KOLO_ACTION_FOLD || kind == KOLO_ACTION_NORM ||
           kind == KOLO_ACTION_LAYERS || kind == KOLO_ACTION_UPDATE || kind == KOLO_ACTION_BUFFERS ||
           kind == KOLO_ACTION_SQUARE || kind == KOLO_ACTION_ENCODE || kind == KOLO_ACTION_DECODE;
}

/* Seconds of equal kernels, and how many; of other actions of a kind, and their bytes. */
typedef struct tally {
    char key[128];
    bool runs;
    kolo_play_time sum;
    double count;
} tally;

typedef struct tallies {
    tally *of;
    int64_t count, room;
    double varies[2]; /* alone, beside others: of all stages the most */
} tallies;

static tally *tally_of(tallies *t, const char *key)
{
    for (int64_t i = 0; i < t->count; i++)
        if (!strcmp(t->of[i].key, key)) return &t->of[i];
    if (kolo_grow(&t->of, &t->room, t->count, sizeof *t->of) < 0) return NULL;
    tally *one = &t->of[t->count++];
    *one = (tally){.count = 0};
    snprintf(one->key, sizeof one->key, "%s", key);
    return one;
}

static int count_actions(tallies *t, const kolo_plan *p, const double *alone, const double *crowded)
{
    kolo_cost *cost = kolo_alloc((size_t)(p->actions + 1) * sizeof *cost);
    int rc = cost ? kolo_plan_costs(p, cost) : KOLO_ENOMEM;
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        const bool runs = a->kind == KOLO_ACTION_RUN;
        char key[128];
        if (!runs && !is_priced(a->kind)) continue;
        if (runs) known_kernel_key(p, a->node, key, sizeof key);
        else known_action_key(p, a->kind, key, sizeof key);
        tally *one = tally_of(t, key);
        if (!one) {
            rc = KOLO_ENOMEM;
            break;
        }
        one->runs = runs;
        one->sum.alone += alone[i];
        one->sum.crowded += crowded[i];
        one->count += runs ? 1 : cost[i].read + cost[i].written;
    }
    free(cost);
    return rc;
}

/* Of equal kernels the mean; of other actions of a kind a byte's; and how much longer all take beside others,
 * for what is not measured. */
static int keep_tallies(kolo_choices *known, const tallies *t)
{
    kolo_play_time all = {0, 0};
    for (int64_t i = 0; i < t->count; i++) {
        const tally *one = &t->of[i];
        const kolo_play_time sum = {one->sum.alone, fmax(one->sum.crowded, one->sum.alone)};
        if (one->count <= 0) continue;
        KOLO_TRY(known_times_keep(known, one->key,
                                  (kolo_play_time){sum.alone / one->count, sum.crowded / one->count}));
        all.alone += one->runs ? sum.alone : 0;
        all.crowded += one->runs ? sum.crowded : 0;
    }
    if (all.alone > 0)
        KOLO_TRY(known_times_keep(known, "others beside", (kolo_play_time){1, all.crowded / all.alone}));
    return known_times_keep(known, "a step varies by",
                            (kolo_play_time){t->varies[0], fmax(t->varies[0], t->varies[1])});
}

/* Stages are carried out by themselves, each with its share of the network in the caches. */
static int stages_of(const kolo_session *s) { return s->program ? s->grid.stages : 1; }

/* A stage, or the whole network, on one rank, as one of `ranks` that share the cores. What is dropped leaves
 * the caches to others, and is made again from what has just been read, so it has the forms of its plan.
 * Micro-batches of a late pipeline come from steps before: its stages do theirs in an order within a step.
 * placement: the caller's, to be filled in. */
static kolo_rehearsal rehearsal_of(const kolo_session *s, int stage, char *choices, kolo_placement *placement)
{
    const bool whole = stages_of(s) == 1;
    kolo_plan_config config = (whole ? s->plan : s->program->plan[stage])->config;
    if (!whole) {
        *placement = *config.placement;
        if (kolo_plan_is_late(s->plan)) placement->order = KOLO_PIPELINE_1F1B;
        config.placement = placement;
        config.predict = false;
    }
    config.ranks = config.shards = 1;
    config.shard = KOLO_shard_none;
    config.shard_groups = config.offload = 0;
    config.adasum = config.noise = config.reshard = config.local = false;
    config.late = config.lag = config.backup = 0;
    config.exchange = KOLO_EXCHANGE_GRADIENTS;
    if (s->program && whole) config.form = NULL;
    if (whole) config.placement = NULL, config.stage = 0;
    if (whole && config.slots > 2) config.slots = 2;
    return (kolo_rehearsal){.graph = s->graph,
                            .config = config,
                            .backend = s->backend,
                            .how = {.threads = (int)s->options->threads,
                                    .direct = s->options->conv == KOLO_conv_direct,
                                    .deterministic = s->options->deterministic,
                                    .choices = choices},
                            .options = s->options,
                            .steps = STEPS};
}

static int check_room(const kolo_session *s, const kolo_rehearsal *r, int beside)
{
    size_t arena[KOLO_ARENAS], bytes = 0;
    const char *source = "";
    KOLO_TRY(kolo_plan_least(r->graph, &r->config, arena));
    for (int a = 0; a < KOLO_ARENAS; a++) bytes += arena[a];
    const size_t all = bytes * (size_t)(1 + beside) * 5 / 4, limit = kolo_memory_limit(&source);
    if (all <= limit) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "measuring kernels takes %zu bytes (%d ranks, each with %s), %s allows %zu; "
                     "lower micro_batch (now %ld)",
                     all, 1 + beside, r->config.placement ? "a stage" : "the whole network", source, limit,
                     (long)s->graph->rows);
}

static int rehearse_stage(const kolo_session *s, int stage, tallies *t, char *choices)
{
    const int beside = node_times_beside(s);
    kolo_placement placement;
    kolo_rehearsal r = rehearsal_of(s, stage, choices, &placement);
    kolo_plan *plan = NULL, *same = NULL;
    double *alone = NULL, *crowded = NULL, varies[2] = {0};
    KOLO_TRY(check_room(s, &r, beside));
    int rc = kolo_exec_rehearse(&r, &plan, &alone, &varies[0]);
    r.beside = beside;
    if (rc == 0 && beside) rc = kolo_exec_rehearse(&r, &same, &crowded, &varies[1]);
    if (rc == 0) rc = count_actions(t, plan, alone, beside ? crowded : alone);
    for (int i = 0; i < 2; i++) t->varies[i] = fmax(t->varies[i], varies[i]);
    free(alone);
    free(crowded);
    kolo_plan_destroy(&same);
    kolo_plan_destroy(&plan);
    return rc;
}

static int rehearse(const kolo_session *s, kolo_choices *known, char *choices)
{
    node_times node;
    tallies t = {0};
    int rc = 0;
    for (int k = 0; rc == 0 && k < stages_of(s); k++) rc = rehearse_stage(s, k, &t, choices);
    if (rc == 0) rc = keep_tallies(known, &t);
    if (rc == 0) rc = node_times_measure(s, known, true, &node);
    free(t.of);
    return rc;
}

static int lacking_of(const kolo_session *s, kolo_choices *known)
{
    int lacking = 0;
    for (int64_t i = 0; i < s->graph->nodes; i++) {
        char key[128];
        kolo_play_time time;
        known_kernel_key(s->plan, i, key, sizeof key);
        lacking += !known_times_find(known, key, &time);
    }
    return lacking;
}

int kolo_session_rehearse(const kolo_session *s, bool again)
{
    kolo_choices known;
    if (s->cuda || s->gpu || s->untimed || !s->plan->config.optimizer)
        return kolo_fail(KOLO_ECONFIG,
                         "kernels are measured where a training step can be made: on CPUs, with "
                         "the memory that it needs");
    int rc = known_times_open(s, &known);
    const int lacking = rc == 0 ? lacking_of(s, &known) : 0;
    if (rc == 0 && (lacking || again)) {
        char *choices = kolo_backend_choices(s->backend);
        rc = choices ? rehearse(s, &known, choices) : KOLO_ENOMEM;
        free(choices);
    }
    kolo_choices_close(&known);
    return rc < 0 ? rc : again ? (int)s->graph->nodes : lacking;
}
