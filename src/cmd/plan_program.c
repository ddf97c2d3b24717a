#include "cmd/plan_program.h"

#include <stdio.h>

#include "base/json.h"
#include "train/pipeline.h"

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

/* Bytes of a micro-batch that leave a stage, forward and back. */
static size_t stage_sends(const kolo_plan *p)
{
    size_t bytes = 0;
    for (int i = 0; i < p->transfers; i++)
        if (p->transfer[i].sends && p->transfer[i].slot == 0) bytes += p->transfer[i].bytes;
    return bytes;
}

static void print_stage(const kolo_session *s, int stage, double seconds)
{
    const kolo_grid *grid = &s->grid;
    const kolo_plan *p = s->program->plan[stage];
    char ranks[32];
    if (grid->replicas == 1) snprintf(ranks, sizeof ranks, "%d", kolo_grid_rank(grid, stage, 0));
    else
        snprintf(ranks, sizeof ranks, "%d..%d", kolo_grid_rank(grid, stage, 0),
                 kolo_grid_rank(grid, stage, grid->replicas - 1));
    printf("%5d  %-7s  %16.3f  %9d  %12zu  %18zu ", stage, ranks, seconds * 1e3 / p->config.slots,
           kolo_turns_in_flight(p->turn, p->turns, -1), kolo_plan_bytes(p), stage_sends(p));
    for (int q = stage; q < grid->stages * s->placement->chunks; q += grid->stages) {
        const char *first, *last;
        part_ends(s, q, &first, &last);
        printf("%s %s .. %s", q > stage ? "," : "", first, last);
    }
    printf("\n");
}

/* Which weights a batch is computed with, where that is not the newest. */
static void print_late(const kolo_session *s)
{
    if (!kolo_plan_is_late(s->plan)) return;
    printf("late weights, stage by stage: batches ahead, updates by which the weights are old (forward, "
           "backward), versions kept\n");
    for (int k = 0; k < s->grid.stages; k++) {
        const kolo_plan *p = s->program->plan[k];
        const int late = kolo_plan_staleness(p);
        printf("%5d  %5d  %5d  %5d  %5d\n", k, kolo_plan_ahead(p), late,
               kolo_pipeline[s->placement->order].stashes ? late : 0, kolo_plan_weight_versions(p) + 1);
    }
    const int how = s->options->late_correction;
    if (how == KOLO_late_correction_spike || how == KOLO_late_correction_both)
        printf("spike compensation: a gradient of D updates ago counts (1 - m^D) / (1 - m) times at once, "
               "and the momentum m^D times\n");
    if (how == KOLO_late_correction_predict || how == KOLO_late_correction_both)
        printf("weight prediction: forward turns read weights of D updates on, by the momentum; one more "
               "copy\n");
}

void kolo_plan_program_print(const kolo_session *s, const kolo_play *play)
{
    const kolo_grid *grid = &s->grid;
    char across[128] = "";
    if (s->across > 1) {
        char parts[64];
        session_parts_text(s, parts);
        snprintf(across, sizeof across, "%d stages side by side for %s x ", s->across, parts);
    }
    printf("pipeline: %d ranks = %s%d stages x %d replicas, pipeline=%s, %d micro-batches of %ld rows\n",
           s->ranks, across, grid->stages / s->across, grid->replicas,
           kolo_pipeline[s->placement->order].name, s->plan->config.slots, (long)s->graph->rows);
    printf("stage  ranks    ms a micro-batch  in flight         bytes  sent a micro-batch  layers\n");
    for (int k = 0; k < grid->stages; k++) print_stage(s, k, play->stage[k].busy);
    print_late(s);
}

void kolo_plan_program_layers(const kolo_session *s, int stage)
{
    printf(",\"layers\":[");
    for (int q = stage; q < s->grid.stages * s->placement->chunks; q += s->grid.stages) {
        const char *first, *last;
        part_ends(s, q, &first, &last);
        printf("%s[", q > stage ? "," : "");
        kolo_json_string(stdout, first);
        printf(",");
        kolo_json_string(stdout, last);
        printf("]");
    }
    printf("]");
    const kolo_plan *p = s->program->plan[stage];
    if (kolo_plan_is_late(p))
        printf(",\"staleness\":%d,\"versions\":%d", kolo_plan_staleness(p), kolo_plan_weight_versions(p) + 1);
}
