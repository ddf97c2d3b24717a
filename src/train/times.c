#include "train/times.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/algorithm/algorithm.h"
#include "exec/clock.h"
#include "exec/node_clock.h"
#include "exec/rehearse.h"
#include "kolo/error.h"
#include "ops/choices.h"
#include "plan/partition.h"
#include "plan/price.h"
#include "plan/shard.h"
#include "train/parts.h"

enum { STEPS = 9 };

/* ---- what is kept ---- */

/* $KOLO_CACHE/kernels: seconds alone and with all cores busy, of a kernel; of other actions of a byte. */
static int open_known(const kolo_session *s, kolo_choices *known)
{
    char *path = session_cache_file("kernels");
    const int rc = kolo_choices_open(known, kolo_backend_machine(s->backend), path, NULL);
    free(path);
    known->announced = true; /* that algorithms are timed, which they are not here */
    return rc;
}

static void kernel_key(const kolo_plan *p, int64_t node, char *key, size_t size)
{
    const kolo_kernel *k = p->kernel[node];
    const char *name = kolo_kernel_name(k);
    const uint64_t hash = kolo_hash_bytes(kolo_hash_text(kolo_kernel_key(k)), name, strlen(name));
    snprintf(key, size, "%s %016llx", kolo_op_table[p->graph->node[node].op].name, (unsigned long long)hash);
}

static void action_key(const kolo_plan *p, enum kolo_action_kind kind, char *key, size_t size)
{
    snprintf(key, size, "a byte of %s, %s", kolo_action_name(kind),
             p->config.optimizer ? p->config.optimizer->name : "-");
}

static bool find(kolo_choices *known, const char *key, kolo_play_time *t)
{
    const char *text = kolo_choices_find(known, key);
    return text && sscanf(text, "%lf %lf", &t->alone, &t->crowded) == 2 && t->alone >= 0 &&
           t->crowded >= t->alone / 2 && t->crowded < 1e6;
}

static int keep(kolo_choices *known, const char *key, kolo_play_time t)
{
    char text[64];
    snprintf(text, sizeof text, "%.5g %.5g", t.alone, t.crowded);
    return kolo_choices_add(known, key, text);
}

/* ---- of a plan ---- */

typedef struct times {
    const kolo_session *session;
    kolo_choices known;
    kolo_play_time *node; /* [graph->nodes] */
    double crowd;         /* how much longer things take with all cores busy, where that is not known */
    kolo_byte_seconds byte;
    double varies; /* share of a step, on average; 0: not known */
    kolo_times_from from;
} times;

/* Operations that were measured; of the rest those of all. */
static void find_nodes(times *t)
{
    const kolo_plan *p = t->session->plan;
    double alone = 0, crowded = 0;
    for (int i = 0; i < p->graph->nodes; i++) {
        char key[128];
        kernel_key(p, i, key, sizeof key);
        if (!find(&t->known, key, &t->node[i])) continue;
        t->from.measured++;
        alone += t->node[i].alone;
        crowded += t->node[i].crowded;
    }
    t->from.operations = (int)p->graph->nodes;
    kolo_play_time varies, beside;
    if (find(&t->known, "a step varies by", &varies)) t->varies = fmin(varies.crowded, .2);
    if (find(&t->known, "others beside", &beside)) t->crowd = beside.crowded;
    if (alone > 0) t->crowd = crowded / alone;
}

/* ---- alone ---- */

static void alone_key(const kolo_plan *p, int64_t node, char *key, size_t size)
{
    char kernel[96];
    kernel_key(p, node, kernel, sizeof kernel);
    snprintf(key, size, "alone %s", kernel);
}

/* What was timed now; of equal kernels one. */
static int keep_alone(kolo_choices *known, const kolo_plan *p, const double *seconds, const bool *timed)
{
    int rc = 0;
    for (int64_t i = 0; rc == 0 && i < p->graph->nodes; i++) {
        char key[128];
        kolo_play_time was;
        alone_key(p, i, key, sizeof key);
        if (timed[i] && !find(known, key, &was))
            rc = keep(known, key, (kolo_play_time){seconds[i], seconds[i]});
    }
    return rc;
}

static int clock_rest(const kolo_session *s, kolo_choices *known, const kolo_plan *p, int tries,
                      double *seconds, bool *timed)
{
    const int64_t nodes = p->graph->nodes;
    bool *now = kolo_alloc((size_t)(nodes + 1) * sizeof *now);
    if (!now) return KOLO_ENOMEM;
    for (int64_t i = 0; i < nodes; i++) {
        char key[128];
        kolo_play_time t;
        alone_key(p, i, key, sizeof key);
        timed[i] = seconds[i] <= 0 && find(known, key, &t) && t.alone > 0;
        if (timed[i]) seconds[i] = t.alone;
    }
    int rc = kolo_exec_clock(p, s->backend, s->untimed ? 0 : tries, seconds, now);
    if (rc == 0) rc = keep_alone(known, p, seconds, now);
    for (int64_t i = 0; i < nodes; i++) timed[i] = timed[i] || now[i];
    free(now);
    return rc;
}

/* In steps; where ranks fill the cores, with all of them busy. Returns how many. */
static int find_measured(const kolo_session *s, kolo_choices *known, const kolo_plan *p, double *seconds,
                         bool *measured)
{
    const bool crowded = s->ranks * s->options->threads >= kolo_node_cpu_count();
    int count = 0;
    for (int64_t i = 0; i < p->graph->nodes; i++) {
        char key[128];
        kolo_play_time t;
        kernel_key(p, i, key, sizeof key);
        measured[i] = seconds[i] <= 0 && find(known, key, &t) && t.alone > 0;
        if (measured[i]) seconds[i] = crowded ? t.crowded : t.alone;
        count += measured[i];
    }
    return count;
}

int kolo_session_clock(const kolo_session *s, const kolo_plan *p, int tries, double *seconds, bool *timed)
{
    kolo_choices known;
    const size_t nodes = (size_t)p->graph->nodes;
    bool *all = kolo_alloc((nodes + 1) * sizeof *all), *measured = kolo_alloc((nodes + 1) * sizeof *measured);
    int rc = all && measured ? open_known(s, &known) : KOLO_ENOMEM;
    if (rc == 0 && find_measured(s, &known, p, seconds, measured) < (int)nodes)
        rc = clock_rest(s, &known, p, tries, seconds, all);
    for (size_t i = 0; rc == 0 && timed && i < nodes; i++) timed[i] = all[i] || measured[i];
    if (all && measured) kolo_choices_close(&known);
    free(all);
    free(measured);
    return rc;
}

/* What was not measured in steps. */
static int clock_nodes(times *t)
{
    const kolo_session *s = t->session;
    const int nodes = (int)s->graph->nodes;
    double *seconds = kolo_alloc((size_t)(nodes + 1) * sizeof *seconds);
    bool *timed = kolo_alloc((size_t)(nodes + 1) * sizeof *timed);
    int rc = seconds && timed ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < nodes; i++) seconds[i] = t->node[i].alone;
    if (rc == 0) rc = clock_rest(s, &t->known, s->plan, 3, seconds, timed);
    for (int i = 0; rc == 0 && i < nodes; i++) {
        t->from.timed += timed[i];
        if (t->node[i].alone <= 0) t->node[i] = (kolo_play_time){seconds[i], seconds[i] * t->crowd};
    }
    free(seconds);
    free(timed);
    return rc;
}

static int times_open(times *t, const kolo_session *s)
{
    *t = (times){.session = s, .crowd = 1};
    t->node = kolo_alloc((size_t)(s->graph->nodes + 1) * sizeof *t->node);
    if (!t->node) return KOLO_ENOMEM;
    KOLO_TRY(open_known(s, &t->known));
    find_nodes(t);
    return 0;
}

static void times_close(times *t)
{
    kolo_choices_close(&t->known);
    free(t->node);
}

/* A byte that is copied: memory is read, and what is written is read, too, before it is written. */
enum { COPIED = 3 };

/* Bytes through memory of what is no operation. A rank first copies its own part of what it gathers. */
static double bytes_of(const kolo_plan *p, const kolo_action *a, const kolo_cost *cost)
{
    switch (a->kind) {
    case KOLO_ACTION_GATHER:
        if (!kolo_plan_shards(p, KOLO_shard_parameters)) return 0;
        return COPIED * (double)p->unit[a->unit].params * sizeof(float) / p->config.shards;
    case KOLO_ACTION_COLLECT:
    case KOLO_ACTION_SHARE:
    case KOLO_ACTION_TAKE:
    case KOLO_ACTION_COPY:
    case KOLO_ACTION_STASH: return COPIED * cost->written;
    default: return cost->read + cost->written;
    }
}

/* By what was measured of it, or by the rate of memory. */
static kolo_play_time other(times *t, const kolo_plan *p, const kolo_action *a, const kolo_cost *cost)
{
    char key[128];
    kolo_play_time byte;
    const double bytes = bytes_of(p, a, cost);
    if (bytes <= 0) return (kolo_play_time){0, 0};
    action_key(p, a->kind, key, sizeof key);
    if (!find(&t->known, key, &byte)) byte = (kolo_play_time){t->byte.alone, t->byte.crowded};
    return (kolo_play_time){byte.alone * bytes, byte.crowded * bytes};
}

static int time_plan(times *t, const kolo_plan *p, kolo_play_time *time)
{
    const kolo_session *s = t->session;
    const bool rates = s->gpu && s->gpu->rates;
    kolo_cost *cost = kolo_alloc((size_t)(p->actions + 1) * sizeof *cost);
    int rc = KOLO_ENOMEM;
    if (cost)
        rc = rates ? kolo_plan_roofline(p, s->gpu->rates, s->options->precision == KOLO_precision_tf32, cost)
                   : kolo_plan_costs(p, cost);
    for (int64_t i = 0; rc == 0 && i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (rates && a->kind == KOLO_ACTION_GATHER) time[i] = (kolo_play_time){0, 0};
        else if (rates) time[i] = (kolo_play_time){cost[i].seconds, cost[i].seconds};
        else if (a->kind == KOLO_ACTION_RUN) time[i] = t->node[a->node];
        else time[i] = other(t, p, a, &cost[i]);
    }
    free(cost);
    return rc;
}

/* ---- the node ---- */

/* A byte read or written, and a wake from one rank to another, which all messages of a node go by; and how
 * more ranks than processors share them (kolo_exec_sharing), where there are more: measured once and kept, so
 * that all plans are priced by the same. */
typedef struct node_times {
    kolo_byte_seconds byte;
    double wake;
    double sharing[2]; /* between meetings that are SHORT, LONG apart */
} node_times;

enum { BYTE, WAKE, SHARING, NODE_KEYS };
/* The kernel needs some 100 ms to spread ranks evenly. */
static const double SHORT = 10e-3, LONG = 160e-3;
static const char *const node_key[NODE_KEYS] = {"a byte of memory", "a wake", "processors shared"};

static int beside_one(const kolo_session *s)
{
    const int cores = kolo_node_cpu_count(), threads = (int)s->options->threads;
    return cores > threads ? cores / threads - 1 : 0;
}

static int node_keys(const kolo_session *s)
{
    return s->ranks * s->options->threads > kolo_node_cpu_count() ? NODE_KEYS : SHARING;
}

static int keep_node(const kolo_session *s, kolo_choices *known, kolo_play_time time[NODE_KEYS])
{
    const kolo_byte_seconds byte = kolo_exec_byte_seconds(s->backend, 5, beside_one(s));
    const double wake = kolo_exec_wake_seconds();
    const int cpus = kolo_node_cpu_count();
    time[BYTE] = (kolo_play_time){byte.alone, byte.crowded};
    time[WAKE] = (kolo_play_time){wake, wake};
    if (node_keys(s) > SHARING)
        time[SHARING] =
            (kolo_play_time){1 + kolo_exec_sharing(cpus, LONG, 9), 1 + kolo_exec_sharing(cpus, SHORT, 25)};
    for (int i = 0; i < node_keys(s); i++) KOLO_TRY(keep(known, node_key[i], time[i]));
    return 0;
}

static int measure_node(const kolo_session *s, kolo_choices *known, bool again, node_times *node)
{
    kolo_play_time time[NODE_KEYS] = {[SHARING] = {1, 1}};
    bool all = true;
    for (int i = 0; i < node_keys(s); i++) all = all && find(known, node_key[i], &time[i]);
    *node = (node_times){.byte = kolo_exec_byte_seconds(s->backend, 0, 0)};
    if (!s->untimed) {
        if (!all || again) KOLO_TRY(keep_node(s, known, time));
        *node = (node_times){{time[BYTE].alone, time[BYTE].crowded},
                             time[WAKE].alone,
                             {time[SHARING].crowded - 1, time[SHARING].alone - 1}};
    }
    if (node->wake <= 0) node->wake = kolo_link_assumed.latency / 2;
    return 0;
}

/* What a rank computes from one meeting with others to the next, on average: seconds. */
static double between_meetings(const times *t)
{
    const kolo_plan *p = t->session->plan;
    double seconds = 0;
    int meetings = 1;
    for (int64_t i = 0; i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        if (a->kind == KOLO_ACTION_RUN) seconds += t->node[a->node].alone;
        meetings += a->kind == KOLO_ACTION_RECEIVE;
    }
    return seconds / meetings;
}

static double sharing_of(const times *t, const node_times *node)
{
    const double far = log(between_meetings(t) / SHORT) / log(LONG / SHORT), at = fmin(1, fmax(0, far));
    return node->sharing[0] + at * (node->sharing[1] - node->sharing[0]);
}

/* What is added and copied between ranks: as `kolo bench --tune` found it, or by the rate of memory. A
 * thread that copies is woken, and then wakes the thread that waits for the copy. */
static int describe_node(times *t, kolo_fabric *fabric)
{
    const kolo_session *s = t->session;
    comm_selector *selector = NULL;
    node_times node;
    KOLO_TRY(measure_node(s, &t->known, false, &node));
    t->byte = node.byte;
    kolo_fabric_host h = {.cores = kolo_node_cpu_count(),
                          .threads = (int)s->options->threads,
                          .copy = COPIED * node.byte.alone,
                          .add = 3 * node.byte.alone,
                          .crowd = node.byte.crowded / node.byte.alone,
                          .latency = 2 * node.wake,
                          .sharing = sharing_of(t, &node)};
    KOLO_TRY(comm_table_open(&selector, s->options->comm_table, NULL));
    const comm_cost *c = comm_selector_costs(selector);
    if (comm_selector_is_measured(selector)) {
        h.copy = c->beta[0];
        h.add = c->gamma;
        h.crowd = 1; /* they were measured between ranks */
        if (c->alpha[0] > h.latency) h.latency = c->alpha[0];
    }
    comm_selector_close(&selector);
    *fabric = kolo_fabric_node(&h);
    return 0;
}

/* ---- playing ---- */

static int play(times *t, const kolo_fabric *fabric, kolo_play **play)
{
    const kolo_session *s = t->session;
    const int stages = s->program ? s->grid.stages : 1;
    kolo_play_time **time = kolo_alloc((size_t)stages * sizeof *time);
    int rc = time ? 0 : KOLO_ENOMEM;
    for (int k = 0; rc == 0 && k < stages; k++) {
        const kolo_plan *p = s->program ? s->program->plan[k] : s->plan;
        time[k] = kolo_alloc((size_t)(p->actions + 1) * sizeof **time);
        rc = time[k] ? time_plan(t, p, time[k]) : KOLO_ENOMEM;
    }
    const kolo_play_input in = {.program = s->program,
                                .plan = s->plan,
                                .ranks = s->ranks,
                                .fabric = fabric,
                                .time = time,
                                .varies = t->varies};
    if (rc == 0) rc = kolo_play_create(play, &in);
    for (int k = 0; time && k < stages; k++) free(time[k]);
    free(time);
    return rc;
}

int kolo_session_play(const kolo_session *s, kolo_play **out, kolo_times_from *from)
{
    times t = {.session = s};
    kolo_fabric node;
    const bool there = s->gpu && s->gpu->rates;
    *out = NULL;
    if (s->cuda && !there)
        return kolo_fail(KOLO_ECONFIG, "a step on GPUs is played for a cluster: give cluster=NAME ranks=N");
    int rc = there ? 0 : times_open(&t, s);
    if (rc == 0 && !there) rc = clock_nodes(&t);
    if (rc == 0 && !there) rc = describe_node(&t, &node);
    if (rc == 0) rc = play(&t, there ? s->gpu->fabric : &node, out);
    if (from) *from = t.from;
    times_close(&t);
    return rc;
}

int kolo_session_work(const kolo_session *s, double *seconds)
{
    const int nodes = (int)s->graph->nodes;
    const bool rates = s->gpu && s->gpu->rates;
    times t = {.session = s};
    double *each = kolo_alloc((size_t)(nodes + 1) * sizeof *each);
    int rc = each ? 0 : KOLO_ENOMEM;
    if (rc == 0 && rates)
        rc = kolo_plan_roofline_nodes(s->plan, s->gpu->rates, s->options->precision == KOLO_precision_tf32,
                                      each);
    if (rc == 0 && !rates) rc = times_open(&t, s);
    if (rc == 0 && !rates) rc = clock_nodes(&t);
    *seconds = 0;
    for (int i = 0; rc == 0 && i < nodes; i++) *seconds += rates ? each[i] : t.node[i].alone;
    times_close(&t);
    free(each);
    return rc;
}

/* What steps of the whole network have not, such as halos, `kolo bench --tune kernels` has timed alone. */
static bool all_known(times *t)
{
    const kolo_plan *p = t->session->plan;
    for (int64_t i = 0; t->from.measured && i < p->graph->nodes; i++) {
        char key[128];
        kolo_play_time alone;
        if (t->node[i].alone > 0) continue;
        alone_key(p, i, key, sizeof key);
        if (!find(&t->known, key, &alone)) return false;
    }
    return t->from.measured > 0;
}

bool kolo_session_is_measured(const kolo_session *s)
{
    times t = {0};
    if (s->cuda || s->gpu || s->launch->nodes > 1 || !s->plan->config.optimizer) return false;
    const bool all = times_open(&t, s) == 0 && all_known(&t);
    times_close(&t);
    return all;
}

/* ---- measuring ---- */

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
        if (runs) kernel_key(p, a->node, key, sizeof key);
        else action_key(p, a->kind, key, sizeof key);
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
        KOLO_TRY(
            keep(known, one->key, (kolo_play_time){sum.alone / one->count, sum.crowded / one->count}));
        all.alone += one->runs ? sum.alone : 0;
        all.crowded += one->runs ? sum.crowded : 0;
    }
    if (all.alone > 0)
        KOLO_TRY(keep(known, "others beside", (kolo_play_time){1, all.crowded / all.alone}));
    return keep(known, "a step varies by",
                (kolo_play_time){t->varies[0], fmax(t->varies[0], t->varies[1])});
}

/* Stages are carried out by themselves, each with its share of the network in the caches; not those with late
 * weights, whose micro-batches come from steps before. */
static int stages_of(const kolo_session *s)
{
    return s->program && !kolo_plan_is_late(s->plan) ? s->grid.stages : 1;
}

/* A stage, or the whole network, on one rank, as one of `ranks` that share the cores. What is dropped leaves
 * the caches to others, and is made again from what has just been read, so it has the forms of its plan. */
static kolo_rehearsal rehearsal_of(const kolo_session *s, int stage, char *choices)
{
    const bool whole = stages_of(s) == 1;
    kolo_plan_config config = (whole ? s->plan : s->program->plan[stage])->config;
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
    return kolo_fail(
        KOLO_ECONFIG,
        "measuring kernels takes %zu bytes (%d ranks, each with %s), %s allows %zu; "
        "lower micro_batch (now %ld)",
        all, 1 + beside, r->config.placement ? "a stage" : "the whole network", source, limit,
        (long)s->graph->rows);
}

static int rehearse_stage(const kolo_session *s, int stage, tallies *t, char *choices)
{
    const int beside = beside_one(s);
    kolo_rehearsal r = rehearsal_of(s, stage, choices);
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
    if (rc == 0) rc = measure_node(s, known, true, &node);
    free(t.of);
    return rc;
}

int kolo_session_rehearse(const kolo_session *s, bool again)
{
    times t = {0};
    char *choices = NULL;
    if (s->cuda || s->gpu || s->untimed || !s->plan->config.optimizer)
        return kolo_fail(KOLO_ECONFIG,
                         "kernels are measured where a training step can be made: on CPUs, with "
                         "the memory that it needs");
    int rc = times_open(&t, s);
    const int lacking = t.from.operations - t.from.measured;
    if (rc == 0 && (lacking || again)) {
        choices = kolo_backend_choices(s->backend);
        rc = choices ? rehearse(s, &t.known, choices) : KOLO_ENOMEM;
    }
    free(choices);
    times_close(&t);
    return rc < 0 ? rc : again ? t.from.operations : lacking;
}
