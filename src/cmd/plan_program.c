#include "cmd/plan_program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "exec/clock.h"
#include "kolo/error.h"
#include "plan/partition.h"
#include "plan/price.h"
#include "plan/timeline.h"

typedef struct simulation {
    const kolo_session *session;
    const kolo_program *program;
    const kolo_placement *placement;
    int parts;
    double (*seconds)[KOLO_PASSES]; /* [parts] */
    double *last;                   /* [stages] behind the last turn: norms, updates */
    double step, bubble;            /* of all */
    kolo_edge *edge;                /* [parts * parts] at most */
    int edges;
    kolo_turn **turn; /* [stages] the plans' */
    int *turns;
    kolo_timeline_input input;
    kolo_timeline *timeline;
} simulation;

static kolo_edge *edge_of(simulation *m, int from, int to)
{
    for (int i = 0; i < m->edges; i++)
        if (m->edge[i].from == from && m->edge[i].to == to) return &m->edge[i];
    m->edge[m->edges] = (kolo_edge){.from = from, .to = to, .latency = kolo_link_assumed.latency};
    return &m->edge[m->edges++];
}

/* What a stage sends of a micro-batch. A gradient goes the way back. */
static void add_edges(simulation *m, const kolo_plan *plan)
{
    for (int i = 0; i < plan->transfers; i++) {
        const kolo_transfer *t = &plan->transfer[i];
        const double seconds = (double)t->bytes / kolo_link_assumed.bandwidth;
        if (!t->sends || t->slot > 0) continue;
        if (t->from < t->to) edge_of(m, t->from, t->to)->forward += seconds;
        if (t->from > t->to) edge_of(m, t->to, t->from)->backward += seconds;
    }
}

/* What the plan of a stage does beside computing each operation once: gradients are folded behind every
 * backward turn, dropped activations made again in it, weights updated at the end. */
static int add_rest(simulation *m, int stage, double rate)
{
    const kolo_plan *plan = m->program->plan[stage];
    const int slots = plan->config.slots, chunks = m->placement->chunks;
    kolo_cost *cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cost);
    bool *done = kolo_alloc((size_t)(plan->graph->nodes + 1) * sizeof *done);
    int rc = cost && done ? kolo_plan_costs(plan, cost) : KOLO_ENOMEM;
    double folds = 0;
    for (int64_t i = 0; rc == 0 && i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        const double seconds = (cost[i].read + cost[i].written) / rate;
        switch (a->kind) {
        case KOLO_ACTION_FOLD:
        case KOLO_ACTION_SQUARE: folds += seconds; break;
        case KOLO_ACTION_NORM:
        case KOLO_ACTION_LAYERS:
        case KOLO_ACTION_DELTA:
        case KOLO_ACTION_APPLY:
        case KOLO_ACTION_BUFFERS:
        case KOLO_ACTION_UPDATE: m->last[stage] += seconds; break;
        case KOLO_ACTION_RUN:
            if (a->slot == 0 && done[a->node])
                m->seconds[m->placement->part[a->node]][KOLO_PASS_BACKWARD] +=
                    m->session->node_seconds[a->node];
            if (a->slot == 0) done[a->node] = true;
            break;
        default: break;
        }
    }
    for (int c = 0; c < chunks; c++)
        m->seconds[c * m->placement->stages + stage][KOLO_PASS_WEIGHT] += folds / slots / chunks;
    free(cost);
    free(done);
    return rc;
}

/* The step ends with the last stage's update. */
static void add_ends(simulation *m)
{
    double busy = 0;
    for (int k = 0; k < m->placement->stages; k++) {
        const double end = m->turns[k] ? m->timeline->turn[k][m->turns[k] - 1].end + m->last[k] : 0;
        if (end > m->step) m->step = end;
        busy += m->timeline->busy[k] + m->last[k];
    }
    if (m->step > 0) m->bubble = 1 - busy / (m->placement->stages * m->step);
}

static int simulation_open(simulation *m, const kolo_session *s)
{
    const kolo_graph *g = s->graph;
    *m = (simulation){.session = s, .program = s->program, .placement = s->placement};
    m->parts = s->placement->stages * s->placement->chunks;
    m->seconds = kolo_alloc((size_t)m->parts * sizeof *m->seconds);
    m->edge = kolo_alloc((size_t)m->parts * (size_t)m->parts * sizeof *m->edge);
    m->turn = kolo_alloc((size_t)s->placement->stages * sizeof *m->turn);
    m->turns = kolo_alloc((size_t)s->placement->stages * sizeof *m->turns);
    m->last = kolo_alloc((size_t)s->placement->stages * sizeof *m->last);
    if (!m->seconds || !m->edge || !m->turn || !m->turns || !m->last) return KOLO_ENOMEM;
    for (int64_t i = 0; i < g->nodes; i++)
        m->seconds[s->placement->part[i]][kolo_plan_pass(s->plan, i)] += s->node_seconds[i];
    for (int q = 0; q + 1 < m->parts; q++) edge_of(m, q, q + 1);
    const double rate = kolo_exec_memory_rate(s->backend, s->untimed ? 0 : 3);
    for (int k = 0; k < s->placement->stages; k++) {
        KOLO_TRY(add_rest(m, k, rate));
        add_edges(m, s->program->plan[k]);
        m->turn[k] = s->program->plan[k]->turn;
        m->turns[k] = s->program->plan[k]->turns;
    }
    m->input = (kolo_timeline_input){.stages = s->placement->stages,
                                     .chunks = s->placement->chunks,
                                     .slots = s->plan->config.slots,
                                     .turn = m->turn,
                                     .turns = m->turns,
                                     .seconds = (const double(*)[KOLO_PASSES])m->seconds,
                                     .edge = m->edge,
                                     .edges = m->edges};
    KOLO_TRY(kolo_timeline_create(&m->timeline, &m->input));
    add_ends(m);
    return 0;
}

static void simulation_close(simulation *m)
{
    kolo_timeline_destroy(&m->timeline);
    free(m->seconds);
    free(m->last);
    free(m->edge);
    free(m->turn);
    free(m->turns);
}

/* ---- what a stage holds ---- */

static const char *operation_name(const kolo_graph *g, int64_t node)
{
    for (int k = 0; k < g->node[node].n_out; k++)
        if (g->node[node].out[k] >= 0) return g->tensor[g->node[node].out[k]].name;
    return "";
}

/* First and last forward operation of a part. */
static void part_ends(const kolo_session *s, int part, const char **first, const char **last)
{
    *first = *last = "";
    for (int64_t i = 0; i < s->graph->nodes && !s->graph->node[i].backward; i++) {
        if (s->placement->part[i] != part) continue;
        if (!**first) *first = operation_name(s->graph, i);
        *last = operation_name(s->graph, i);
    }
}

static double stage_seconds(const simulation *m, int stage)
{
    double sum = 0;
    for (int q = stage; q < m->parts; q += m->placement->stages)
        for (int pass = 0; pass < KOLO_PASSES; pass++) sum += m->seconds[q][pass];
    return sum;
}

/* Bytes of a micro-batch that leave a stage, forward and back. */
static size_t stage_sends(const simulation *m, int stage)
{
    const kolo_plan *p = m->program->plan[stage];
    size_t bytes = 0;
    for (int i = 0; i < p->transfers; i++)
        if (p->transfer[i].sends && p->transfer[i].slot == 0) bytes += p->transfer[i].bytes;
    return bytes;
}

static size_t stage_bytes(const simulation *m, int stage) { return kolo_plan_bytes(m->program->plan[stage]); }

/* ---- output ---- */

static void print_table(const simulation *m)
{
    const kolo_session *s = m->session;
    const kolo_grid *grid = &s->grid;
    printf("pipeline: %d ranks = %d stages x %d replicas, pipeline=%s, %d micro-batches of %ld rows\n",
           s->ranks, grid->stages, grid->replicas, kolo_pipeline[s->placement->order].name,
           s->plan->config.slots, (long)s->graph->rows);
    printf("stage  ranks    ms a micro-batch  in flight         bytes  sent a micro-batch  layers\n");
    for (int k = 0; k < grid->stages; k++) {
        char ranks[32];
        if (grid->replicas == 1) snprintf(ranks, sizeof ranks, "%d", kolo_grid_rank(grid, k, 0));
        else
            snprintf(ranks, sizeof ranks, "%d..%d", kolo_grid_rank(grid, k, 0),
                     kolo_grid_rank(grid, k, grid->replicas - 1));
        printf("%5d  %-7s  %16.3f  %9d  %12zu  %18zu ", k, ranks, stage_seconds(m, k) * 1e3,
               m->timeline->in_flight[k], stage_bytes(m, k), stage_sends(m, k));
        for (int q = k; q < m->parts; q += grid->stages) {
            const char *first, *last;
            part_ends(s, q, &first, &last);
            printf("%s %s .. %s", q > k ? "," : "", first, last);
        }
        printf("\n");
    }
    printf("step, simulated: %.3f ms, bubble %.1f %% (links: %g us, %g GB/s assumed); without sums over "
           "replicas\n",
           m->step * 1e3, m->bubble * 100, kolo_link_assumed.latency * 1e6,
           kolo_link_assumed.bandwidth * 1e-9);
}

static void print_json(const simulation *m)
{
    const kolo_session *s = m->session;
    const kolo_grid *grid = &s->grid;
    printf("{\"grid\":{\"stage\":%d,\"data\":%d,\"shard\":%d,\"space\":1,\"tensor\":1},\"ranks\":[",
           grid->stages, grid->replicas / s->shards, s->shards);
    for (int r = 0; r < s->ranks; r++) {
        const int stage = kolo_grid_stage(grid, r);
        printf("%s{\"rank\":%d,\"stage\":%d,\"layers\":[", r ? "," : "", r, stage);
        for (int q = stage; q < m->parts; q += grid->stages) {
            const char *first, *last;
            part_ends(s, q, &first, &last);
            printf("%s[", q > stage ? "," : "");
            kolo_json_string(stdout, first);
            printf(",");
            kolo_json_string(stdout, last);
            printf("]");
        }
        printf("],\"bytes\":%zu}", stage_bytes(m, stage));
    }
    printf("],\"step_seconds\":");
    kolo_json_number(stdout, m->step, 9);
    printf(",\"bubble\":");
    kolo_json_number(stdout, m->bubble, 9);
    printf("}\n");
}

static int write_timeline(const simulation *m)
{
    const char *path = m->session->options->timeline;
    if (!*path) return 0;
    FILE *file = fopen(path, "w");
    if (!file) return kolo_fail(KOLO_EIO, "timeline=%s: %s", path, strerror(errno));
    int rc = kolo_timeline_write(m->timeline, &m->input, file);
    if (fclose(file) != 0 && rc == 0) rc = kolo_fail(KOLO_EIO, "timeline=%s: %s", path, strerror(errno));
    return rc;
}

int kolo_plan_program_step(const kolo_session *s, double *seconds)
{
    simulation m;
    const int rc = simulation_open(&m, s);
    *seconds = m.step;
    simulation_close(&m);
    return rc;
}

int kolo_plan_program_print(const kolo_session *s, bool json)
{
    simulation m;
    int rc = simulation_open(&m, s);
    if (rc == 0) (json ? print_json : print_table)(&m);
    if (rc == 0) rc = write_timeline(&m);
    simulation_close(&m);
    return rc;
}
