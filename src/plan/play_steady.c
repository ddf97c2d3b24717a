/* Pipelines with late weights: a stage's list is its steady state, in which batches of several steps are
 * under way, so the step is what one more of them adds to the timeline of many. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "plan/partition.h"
#include "plan/play_ranks.h"
#include "plan/timeline.h"

/* Seconds of a micro-batch on each stage, by pass; what is done once a step is part of the backward turns.
 * seconds: [stages] */
static void steady_seconds(const kolo_play *play, int slots, double (*seconds)[KOLO_PASSES])
{
    for (int64_t i = 0; i < play->spans; i++) {
        const kolo_play_span *s = &play->span[i];
        if (s->lane == KOLO_PLAY_COMPUTE)
            seconds[s->stage][s->pass >= 0 ? s->pass : KOLO_PASS_BACKWARD] += (s->end - s->start) / slots;
    }
}

/* How long so many steps take, filling included. */
static int steady_run(const kolo_play *play, const kolo_placement *p, int slots, int steps,
                      const double (*seconds)[KOLO_PASSES], double *makespan)
{
    const int stages = play->stages;
    kolo_turn **turn = kolo_alloc((size_t)stages * sizeof *turn);
    int *turns = kolo_alloc((size_t)stages * sizeof *turns);
    kolo_edge *edge = kolo_alloc((size_t)stages * sizeof *edge);
    kolo_timeline *timeline = NULL;
    int rc = turn && turns && edge ? 0 : KOLO_ENOMEM;
    for (int k = 0; rc == 0 && k < stages; k++) {
        rc = kolo_turns_create_run(p->order, stages, k, slots, steps, &turn[k], &turns[k]);
        edge[k] = (kolo_edge){.from = k, .to = k + 1, .latency = kolo_link_assumed.latency};
    }
    const kolo_timeline_input in = {.stages = stages,
                                    .chunks = 1,
                                    .slots = slots * steps,
                                    .turn = turn,
                                    .turns = turns,
                                    .seconds = seconds,
                                    .edge = edge,
                                    .edges = stages - 1};
    if (rc == 0) rc = kolo_timeline_create(&timeline, &in);
    if (rc == 0) *makespan = timeline->makespan;
    kolo_timeline_destroy(&timeline);
    for (int k = 0; turn && k < stages; k++) free(turn[k]);
    free(turn);
    free(turns);
    free(edge);
    return rc;
}

int kolo_play_steady(kolo_play *play, const kolo_plan *plan)
{
    const int slots = plan->config.slots, few = 4 * play->stages;
    double(*seconds)[KOLO_PASSES] = kolo_alloc((size_t)play->stages * sizeof *seconds), first = 0, both = 0;
    double busy = 0;
    int rc = seconds ? 0 : KOLO_ENOMEM;
    if (rc == 0) steady_seconds(play, slots, seconds);
    if (rc == 0) rc = steady_run(play, plan->config.placement, slots, few, seconds, &first);
    if (rc == 0) rc = steady_run(play, plan->config.placement, slots, 2 * few, seconds, &both);
    free(seconds);
    KOLO_TRY(rc);
    play->step = (both - first) / few;
    for (int k = 0; k < play->stages; k++) {
        kolo_play_stage *s = &play->stage[k];
        busy += s->busy;
        s->end = play->step;
        s->idle = play->step > s->busy + s->exposed ? play->step - s->busy - s->exposed : 0;
    }
    play->bubble = play->step > 0 ? 1 - busy / (play->stages * play->step) : 0;
    return 0;
}
