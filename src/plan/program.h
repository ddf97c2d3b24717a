/* Program: what all ranks do in a step, the plan of every stage and which rank is where. One stage is the
 * program of data-parallel training. Every rank knows all of it: comm's transfers are declared by all, and
 * two ranks that do not fit together are found before the first step. */
#ifndef KOLO_PLAN_PROGRAM_H
#define KOLO_PLAN_PROGRAM_H

#include "launch/launch.h"
#include "plan/plan.h"

/* Ranks by (stage, replica). The ranks of a stage, ascending, are its replicas 0, 1, ..., and replica r of
 * all stages form one pipeline. */
typedef struct kolo_grid {
    int stages, replicas;
    int *rank;          /* [stages * replicas] of (stage, replica): rank[stage * replicas + replica] */
    int stage, replica; /* this rank's */
} kolo_grid;

static inline int kolo_grid_rank(const kolo_grid *g, int stage, int replica)
{
    return g->rank[stage * g->replicas + replica];
}
static inline int kolo_grid_stage(const kolo_grid *g, int rank)
{
    int i = 0;
    while (g->rank[i] != rank) i++;
    return i / g->replicas;
}
/* By the map of nodes. within: the stages of a pipeline are ranks of one node, else of different ones where
 * there are several, replicas of a stage side by side. KOLO_ECONFIG: the ranks, or those of a node, are no
 * multiple of the stages, or the ranks are spread over the nodes so that no pipeline can stay in one. */
int kolo_grid_create(kolo_grid *grid, const kolo_launch *launch, int stages, bool within);
void kolo_grid_free(kolo_grid *grid);

typedef struct kolo_program {
    const kolo_grid *grid; /* the caller's */
    kolo_plan **plan;      /* [stages]; that of this rank's stage is the caller's, the others its own */
    size_t comm_bytes;     /* of comm's arena, what the largest stage uses of it */
    size_t sum_bytes;      /* of them, in front of what a plan reduces and sends: for sums of f64 */
    uint64_t hash;         /* of the plans of all stages */
} kolo_program;

/* own: the plan of this rank's stage, which then names the program. like: the program whose parameters an
 * evaluation shares, or NULL. KOLO_EINTERNAL: sends and receives do not match. */
int kolo_program_create(kolo_program **program, const kolo_grid *grid, kolo_plan *own,
                        const kolo_program *like);
/* Programs that take turns, [1] and later made `like` [0]: the plans of every stage in one memory
 * (kolo_plan_share), and comm's as large as the largest needs. */
int kolo_program_share(kolo_program *const *program, int programs);
/* Every plan by itself (kolo_plan_check), and that they fit together. KOLO_EINTERNAL names the first
 * breach. */
int kolo_program_check(const kolo_program *program);
void kolo_program_destroy(kolo_program **program);
/* The plan of the stage that has a parameter or buffer. */
static inline const kolo_plan *kolo_program_owner(const kolo_plan *plan, int64_t tensor)
{
    const kolo_placement *p = plan->config.placement;
    return plan->program ? plan->program->plan[kolo_placement_stage(p, p->owner[tensor])] : plan;
}
/* What the stages of one replica send each other in a step. */
int64_t kolo_program_transfers(const kolo_program *program);
/* The transfer of plan `stage` at the other end of transfer `number` of plan `peer`; -1: none. */
int kolo_program_match(const kolo_program *program, int peer, int number);

#endif
