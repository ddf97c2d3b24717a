/* Shards (ZeRO, arXiv 1910.02054; FSDP): ranks that would hold the same hold parts of it. The elements of
 * PARAM stay numbered as they are; a bucket's parameters are a unit, which is cut into a part for every
 * shard, at leaf borders of tensors, so that a sum over leaves is formed by whole leaves. What a rank stores
 * (optimizer state, averages, sums of gradients, parameters) are its parts, one behind the other, then what
 * no unit has: parameters without a gradient, which all have.
 * optimizer    a bucket's sum reaches each rank in its part, which it updates; then the parts are gathered
 * gradients    and buckets stand in windows, two at a time, from where a rank takes its part of the sum
 * parameters   and units of parameters stand in windows, two at a time, while operations read them */
#ifndef KOLO_PLAN_SHARD_H
#define KOLO_PLAN_SHARD_H

#include "launch/launch.h"
#include "plan/plan.h"

/* The ranks that have the parts: rank[groups][shards], of the world, where `ranks`, ascending, share the
 * buckets of a stage; returns how many groups. One of all that can own parts of comm's buckets, or (nodes)
 * groups of `shards` ranks of a node, which have copies. KOLO_ECONFIG: nodes have different numbers of ranks,
 * or no multiple of the shards. */
int kolo_shard_groups(const kolo_launch *launch, const int *ranks, int count, int shards, bool nodes,
                      int *rank);

static inline bool kolo_plan_shards(const kolo_plan *plan, int what)
{
    return plan->config.shards > 1 && plan->config.shard >= what;
}
static inline const kolo_part *kolo_plan_part(const kolo_plan *plan, int unit, int shard)
{
    return &plan->part[(int64_t)unit * plan->config.shards + shard];
}
/* The unit of a parameter; -1: another tensor, or one that all ranks have. */
int kolo_plan_unit_of(const kolo_plan *plan, int tensor);
/* Parameters that no unit has: the element with which they begin. */
static inline int64_t kolo_plan_rest(const kolo_plan *plan)
{
    return plan->units ? plan->unit[plan->units - 1].param + plan->unit[plan->units - 1].params : 0;
}
/* Bytes of an array that holds one number for every parameter that a rank stores. */
size_t kolo_plan_stored_bytes(const kolo_plan *plan);
/* The same for every parameter that is trained: of a state of the optimizer. */
size_t kolo_plan_state_bytes(const kolo_plan *plan);

/* Where operations read what has its fixed binding at `offset` of PARAM; half: its 16-bit copy. */
kolo_binding kolo_plan_param(const kolo_plan *plan, size_t offset, bool half);
/* Of SHADOW with shard=parameters: windows, then what all ranks have. */
size_t kolo_plan_shadow_bytes(const kolo_plan *plan);

/* Where gradients stand before they are summed over ranks. Levels 0, 1, ... hold sums of micro-batches;
 * KOLO_WINDOW is where a bucket is written that is folded at once, and where its whole sum is formed. */
enum { KOLO_WINDOW = -1 };
/* The place of what has its fixed binding at `offset` of the gradients: in GRADIENT or PART. */
kolo_binding kolo_plan_level(const kolo_plan *plan, size_t offset, int level);
/* The level that micro-batch `slot` writes, gradients of parameters or (front) what stands before them. */
int kolo_plan_write_level(const kolo_plan *plan, int slot, bool front);

#endif
