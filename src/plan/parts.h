/* The steps in which a plan is made; each file is one. */
#ifndef KOLO_PLAN_PARTS_H
#define KOLO_PLAN_PARTS_H

#include "plan/plan.h"

/* turns.c: the stage's operations, turns and transfers. */
int kolo_plan_create_turns(kolo_plan *plan);
/* A number for every kind of turn, (pass, chunk), in the order of completion: that of operation `node`. */
int kolo_plan_class(const kolo_plan *plan, int64_t node);

/* fixed.c: PARAM, BUFFER, GRADIENT fixed bindings, segments, reduced_front, the arenas' sizes. */
int kolo_plan_bind_fixed(kolo_plan *plan, const kolo_plan *like);

/* buckets.c: cuts GRADIENT into slices. */
int kolo_plan_buckets(kolo_plan *plan);
int kolo_plan_bucket_of(const kolo_plan *plan, size_t offset); /* bytes in GRADIENT */

/* instantiate.c: the list of actions, with bindings of everything but the ACTIVATION arena. */
int kolo_plan_instantiate(kolo_plan *plan);
/* levels that hold sums of micro-batches; that which a slot's gradients are written to; how many folds follow
 * when they are complete */
int kolo_plan_levels(const kolo_plan_config *config);
int kolo_plan_level_of(const kolo_plan_config *config, int slot);
int kolo_plan_folds_after(const kolo_plan_config *config, int slot);

/* shard.c: units, parts and windows; the arenas become what a rank stores. */
int kolo_plan_make_shards(kolo_plan *plan, const kolo_plan *like);
/* Every unit has a window of its own; bytes of GATHERED. */
size_t kolo_plan_windows_apart(kolo_plan *plan);
/* gather.c: units are gathered (shard=parameters) or fetched (offload=parameters) before they are read. */
int kolo_plan_gathers(kolo_plan *plan);
/* offload=parameters: bytes of PARAM that are in memory, of so many units at a time. */
size_t kolo_plan_resident_param(const kolo_plan *plan, int units);

/* forms.c: encodings and copies of what is offloaded are put around what lies between the two halves. */
int kolo_plan_add_forms(kolo_plan *plan);
/* Bytes of an activation in the form in which it is kept, rounded up to KOLO_ALIGN. */
size_t kolo_plan_form_bytes(const kolo_plan *plan, int tensor);

/* place.c: lifetimes over the actions, offsets in the ACTIVATION arena. */
int kolo_plan_place(kolo_plan *plan);

/* rings.c: the same for late pipelines, whose values live on over steps. */
int kolo_plan_place_rings(kolo_plan *plan);
/* Values (kolo_plan_value) that an action binds, in the order of its bindings: at most 2 * KOLO_MAX_ARGS. */
int kolo_plan_action_values(const kolo_plan *plan, const kolo_action *action, int *value);

/* print_sent.c: a table of the transfers. */
void kolo_plan_print_transfers(const kolo_plan *plan, void *file);

int kolo_plan_set_hash(kolo_plan *plan);

/* check/still.c: the part of kolo_plan_check that knows no action. */
int kolo_plan_check_still(const kolo_plan *plan);

/* A piece of memory that is alive in [begin, end] (both included). */
typedef struct kolo_piece {
    int64_t begin, end;
    size_t bytes, offset;
} kolo_piece;
/* Sets the offsets so that no two pieces alive together overlap; *peak: bytes needed; *least:
 * a lower bound of it. */
int kolo_place_pieces(int64_t n, kolo_piece *piece, size_t *peak, size_t *least);

/* Where operations read a parameter: its fixed binding, or its 16-bit copy, element for element at half
 * the offset. */
kolo_binding kolo_plan_read_binding(const kolo_plan *plan, int tensor);

/* Bytes of a tensor in its layout, rounded up to KOLO_ALIGN. */
size_t kolo_plan_tensor_bytes(const kolo_plan *plan, int tensor);
static inline bool kolo_plan_placed(enum kolo_role role) /* lives in ACTIVATION */
{
    return role == KOLO_ROLE_INPUT || role == KOLO_ROLE_LABEL || role == KOLO_ROLE_ACTIVATION ||
           role == KOLO_ROLE_PARTIAL || role == KOLO_ROLE_TERM;
}
/* The arena of a tensor that has no fixed place: TRANSFER, where it comes from another stage or goes there.
 * What is sent and has a fixed place is sent from there. -1: it has one. */
static inline int kolo_plan_placed_in(const kolo_plan *plan, int tensor)
{
    const enum kolo_role role = plan->graph->tensor[tensor].role;
    const bool received = plan->crosses[tensor] && !kolo_plan_owns(plan, tensor);
    if (plan->sum && plan->sum[tensor] >= 0) return -1;
    if (!kolo_plan_placed(role) && !received) return -1;
    return plan->crosses[tensor] ? KOLO_ARENA_TRANSFER : KOLO_ARENA_ACTIVATION;
}
/* A copy of a parameter for other parts: made in the step's first micro-batch for all of them. Where weights
 * are late those of a step differ. */
static inline bool kolo_plan_is_shared(const kolo_plan *plan, int tensor)
{
    const kolo_graph *g = plan->graph;
    return g->tensor[tensor].role == KOLO_ROLE_TERM && g->tensor[tensor].producer >= 0 &&
           g->node[g->tensor[tensor].producer].op == KOLO_OP_share && !kolo_plan_is_late(plan);
}
/* What operations of this stage read for tensor `tensor`: for a copy of a parameter that is its own, the
 * parameter, as long as that stands there all step. */
static inline int kolo_plan_read(const kolo_plan *plan, int tensor)
{
    if (!kolo_plan_is_shared(plan, tensor) || !kolo_plan_owns(plan, tensor) || plan->config.shards > 1 ||
        plan->config.offload)
        return tensor;
    const int of = plan->graph->tensor[tensor].of;
    const kolo_layout *a = &plan->layout[tensor], *b = &plan->layout[of];
    return a->bytes == b->bytes && a->hash == b->hash && a->half == b->half ? of : tensor;
}
/* The micro-batch whose value of tensor `tensor` micro-batch `slot` reads. */
static inline int kolo_plan_slot(const kolo_plan *plan, int tensor, int slot)
{
    return kolo_plan_is_shared(plan, tensor) ? 0 : slot;
}
/* How activation `tensor` is kept for the backward half. What crosses a stage's border has a place until
 * then, so that exact forms would spare nothing (and it cannot be made again); where everything is to be
 * inspected nothing is offloaded. */
static inline enum kolo_form_kind kolo_plan_form(const kolo_plan *plan, int tensor)
{
    const kolo_graph *g = plan->graph;
    const enum kolo_form_kind form = plan->config.form ? plan->config.form[tensor] : KOLO_FORM_KEPT;
    if (form == KOLO_FORM_KEPT || (kolo_form_is_exact(form) && plan->crosses[tensor]) ||
        (form == KOLO_FORM_OFFLOADED && plan->config.keep))
        return KOLO_FORM_KEPT;
    const int producer = g->tensor[tensor].producer;
    const bool may =
        g->tensor[tensor].role == KOLO_ROLE_ACTIVATION && producer >= 0 && !g->node[producer].backward;
    return may ? form : KOLO_FORM_KEPT;
}
/* The backward half has a value of its own of it. */
static inline bool kolo_plan_returns(const kolo_plan *plan, int tensor)
{
    return kolo_plan_form(plan, tensor) != KOLO_FORM_KEPT;
}
/* What action `a` reads or writes of a tensor: the tensor as the forward half makes it has its own number, as
 * it is made again, or comes back from another form, graph->tensors more, and in that form
 * (kolo_action_changes_form) twice as many. Outputs that nobody reads again (statistics, which were counted
 * before) are values like any, which end at once. Where a late pipeline's forward turns are ahead, statistics
 * wait as such values for the backward turn of their micro-batch, and metrics as one until they are sent. */
static inline int kolo_plan_value(const kolo_plan *plan, const kolo_action *a, int tensor, bool output)
{
    if (tensor < 0 || a->kind != KOLO_ACTION_RUN) return tensor;
    const kolo_node *n = &plan->graph->node[a->node];
    if (output && !n->backward && kolo_plan_ahead(plan) > 0 &&
        plan->graph->tensor[tensor].role == KOLO_ROLE_STATISTIC)
        return tensor + (int)plan->graph->tensors;
    if (!output) tensor = kolo_plan_read(plan, tensor);
    const bool later = output ? a->again : (a->again || n->backward) && kolo_plan_returns(plan, tensor);
    return later ? tensor + (int)plan->graph->tensors : tensor;
}
/* The arena of a value that is not the tensor as it is first made. */
static inline int kolo_plan_value_arena(const kolo_plan *plan, int value)
{
    return value - plan->graph->tensors == plan->graph->metrics ? KOLO_ARENA_TRANSFER : KOLO_ARENA_ACTIVATION;
}
static inline bool kolo_plan_is_reduced(enum kolo_role role) /* lives in GRADIENT and its levels */
{
    return role == KOLO_ROLE_GRADIENT || role == KOLO_ROLE_STATISTIC || role == KOLO_ROLE_METRIC;
}

#endif
