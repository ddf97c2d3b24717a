/* Recomputation: which activations a step keeps for its backward half, and which it drops and makes again
 * there. The operations of the forward half are a chain of steps, cut into spans (spans.h): a span that is
 * done again keeps what later operations of the forward half read of it, and partial sums; of the rest its
 * own operations make again what gradients read. Only those run again that are needed for it: of norms and
 * activations between two convolutions the convolutions' own results may stay. A residual branch is a tensor
 * that goes past several steps, and is kept where it goes past a span's end.
 *
 * Costs are those of one micro-batch: bytes of the arena ACTIVATION alive at every operation, without what
 * placement loses, and the seconds of operations. */
#ifndef KOLO_PLAN_RECOMPUTE_H
#define KOLO_PLAN_RECOMPUTE_H

#include "plan/plan.h"

typedef struct kolo_recompute kolo_recompute;

/* plan: borrowed, one that drops nothing (of a stage: its own operations alone are considered).
 * seconds: [graph->nodes] of one micro-batch (kolo_exec_clock). */
int kolo_recompute_create(kolo_recompute **recompute, const kolo_plan *plan, const double *seconds);
void kolo_recompute_destroy(kolo_recompute **recompute);

/* The most bytes alive at once in ACTIVATION, as counted here: with nothing dropped, and the least of all
 * cuts (of very long chains: of those without long spans). */
int64_t kolo_recompute_plain(const kolo_recompute *recompute);
int kolo_recompute_least(kolo_recompute *recompute, int64_t *bytes);

typedef struct kolo_recompute_choice {
    double seconds; /* of a micro-batch, to do again */
    bool exact;     /* no other cut into spans takes less */
} kolo_recompute_choice;

/* form: [graph->tensors] set to dropped or kept for the tensors of the plan's forward operations, others are
 * left as they are. The cut of least seconds within `budget` bytes. 1: none fits. */
int kolo_recompute_choose(kolo_recompute *recompute, int64_t budget, kolo_form *form,
                          kolo_recompute_choice *choice);
/* Every block of the network is done again from what goes into it. Blocks are those of kolo_plan_depths:
 * layers by the name of their parameters. The last is kept, as its gradients come at once. */
int kolo_recompute_blocks(const kolo_recompute *recompute, kolo_form *form, kolo_recompute_choice *choice);

/* A lower bound of the seconds of any set of dropped activations that fits, cut into spans or not: what must
 * go where most is alive, each by the operation that makes it, the cheapest a byte first and the last in
 * part. */
int kolo_recompute_bound(const kolo_recompute *recompute, int64_t budget, double *seconds);

/* What a plan with dropped activations does, one micro-batch of it. */
typedef struct kolo_recomputed {
    int activations, kept; /* that gradients read: all, and those that are there still */
    double bytes, kept_bytes;
    int operations;      /* that run again */
    double seconds, all; /* to do so, and of all operations with it */
} kolo_recomputed;
int kolo_plan_recomputed(const kolo_plan *plan, const double *seconds, kolo_recomputed *count);

#endif
