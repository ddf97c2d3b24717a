/* Plan: who does what, when, in which memory. The list of actions of one training (or evaluation) step of
 * this rank, made before step 1 from the graph and the options; printed, checked and executed.
 *
 *   graph --layouts, algorithms (ops/)--> --instantiate--> actions --buckets--> --place--> arenas and
 *   bindings --hash--> compared over ranks
 *
 * Data parallel, accumulation, sync batch norm, Adasum and compression differ only in the list. */
#ifndef KOLO_PLAN_H
#define KOLO_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "graph/graph.h"
#include "ops/backend.h"
#include "optim/optim.h"
#include "plan/placement.h"

enum kolo_arena {
    /* f32 parameters, in the order in which their gradients are completed. Where ranks shard the optimizer or
     * gradients: in comm's memory, behind TRANSFER; where they shard parameters: this rank's parts
     * (shard.h) */
    KOLO_ARENA_PARAM,
    /* running statistics */
    KOLO_ARENA_BUFFER,
    /* statistics, metrics, then gradients, in order of production: the reduced arena (comm's memory). With
     * shard=gradients, parameters: windows in the place of gradients, which buckets use in turns */
    KOLO_ARENA_GRADIENT,
    /* gradients of micro-batches before they are folded: levels (shard.h, kolo_plan_level) */
    KOLO_ARENA_PART,
    /* optimizer state: kolo_plan_states x kolo_plan_state_bytes, then a kolo_layer for every segment if
     * layer-wise */
    KOLO_ARENA_STATE,
    /* moving average: of parameters (kolo_plan_stored_bytes), then BUFFER */
    KOLO_ARENA_EMA,
    /* late pipelines: copies of PARAM before its last updates, kolo_plan_weight_versions of them; that
     * after v updates lies at place v modulo their number. Where weights are predicted these are copies of
     * predictions, and behind them is that of this step */
    KOLO_ARENA_VERSION,
    /* shard=gradients, parameters: sums of this rank's parts of the gradients */
    KOLO_ARENA_SUM,
    /* gradients that are applied late: `late` times the room of GRADIENT, for the steps before this one;
     * comm's memory, behind GRADIENT */
    KOLO_ARENA_LATE,
    /* 16-bit copy of PARAM, or of GATHERED (layout.half), element for element; an evaluation has its own */
    KOLO_ARENA_SHADOW,
    /* pipelines: what is sent to other stages or comes from them, by lifetime; comm's memory, behind
     * GRADIENT */
    KOLO_ARENA_TRANSFER,
    /* shard=parameters: windows in which units of parameters stand while they are read; comm's memory, behind
     * TRANSFER */
    KOLO_ARENA_GATHERED,
    /* device backends: images, then labels, of a rank's batch as the loader gave them */
    KOLO_ARENA_INPUT,
    /* input, labels, activations and their gradients, by lifetime */
    KOLO_ARENA_ACTIVATION,
    /* scratch of one running operation */
    KOLO_ARENA_WORKSPACE,
    /* activations while they are offloaded (KOLO_FORM_OFFLOADED), by lifetime: a file, of GPUs host memory */
    KOLO_ARENA_OFFLOADED,
    KOLO_ARENAS
};
extern const char *const kolo_arena_name[KOLO_ARENAS];

enum kolo_action_kind {
    /* copy rows of micro-batch `slot` to the input and label tensors */
    KOLO_ACTION_LOAD,
    /* operation `node` on micro-batch `slot` */
    KOLO_ACTION_RUN,
    /* blocking allreduce of the PARTIAL that binding[0] names */
    KOLO_ACTION_SUM,
    /* slice `bucket`: level `to` += level `from` (level 0 is GRADIENT, i > 0 is PART level i-1) */
    KOLO_ACTION_FOLD,
    /* start the reduction over ranks of bucket `bucket` */
    KOLO_ACTION_REDUCE,
    /* until it is done */
    KOLO_ACTION_WAIT,
    /* ranks exchange weights: what `from` says of bucket `bucket` (KOLO_SHARE_*) is copied to the place of
     * its gradients, of a bucket of statistics the running ones to that of the batch's; REDUCE follows */
    KOLO_ACTION_SHARE,
    /* the mean of the ranks comes back from there */
    KOLO_ACTION_TAKE,
    /* pipelines: start transfer `transfer` to another stage: the tensor is written. Never waits */
    KOLO_ACTION_SEND,
    /* likewise from another stage: the place that binding[0] names is free */
    KOLO_ACTION_RECEIVE,
    /* until it is done: sent, the place may be written again; received, the tensor is there */
    KOLO_ACTION_TRANSFERRED,
    /* squares of micro-batch `slot` in slice `bucket`, level `from`, for the noise scale */
    KOLO_ACTION_SQUARE,
    /* their allreduce; to: this rank has measured some */
    KOLO_ACTION_NOISE,
    /* global gradient norm -> step->clip, step->skip, loss scale */
    KOLO_ACTION_NORM,
    /* layer-wise optimizers: norms of every tensor -> its factor */
    KOLO_ACTION_LAYERS,
    /* optimizer (EMA, SHADOW) on the parameters of bucket `bucket` */
    KOLO_ACTION_UPDATE,
    /* optimizer on this rank's own gradients of bucket `bucket`: the step takes their place */
    KOLO_ACTION_DELTA,
    /* what Adasum made of the ranks' steps is added to the weights (EMA, SHADOW) */
    KOLO_ACTION_APPLY,
    /* running statistics from the averaged batch statistics; their EMA */
    KOLO_ACTION_BUFFERS,
    /* shards: bucket `bucket` is complete in its window; what lies between its tensors becomes zero */
    KOLO_ACTION_CLEAR,
    /* shards: this rank's part of bucket `bucket`, which is summed, goes from its window to SUM */
    KOLO_ACTION_COLLECT,
    /* late pipelines: `tensor` as it was made, binding[0], to where sums of it are formed or from where it is
     * sent, binding[1] */
    KOLO_ACTION_COPY,
    /* late pipelines: parameters of bucket `bucket` to VERSION, before they are updated */
    KOLO_ACTION_STASH,
    /* late pipelines: what those parameters will be when gradients of this step's forward turns come in, by
     * their momentum: what the turns read */
    KOLO_ACTION_PREDICT,
    /* offload: the optimizer's state of unit `unit` is asked for; never waits */
    KOLO_ACTION_FETCH,
    /* it is written in the background, and no longer here */
    KOLO_ACTION_EVICT,
    /* offload: likewise the parameters of unit `unit`, ahead of what reads or updates them; never waits */
    KOLO_ACTION_FETCH_PARAM,
    KOLO_ACTION_EVICT_PARAM,
    /* shards: start to bring the parts of unit `unit` together on all ranks */
    KOLO_ACTION_GATHER,
    /* until it is done */
    KOLO_ACTION_GATHERED,
    /* activation `tensor` of micro-batch `slot` to the form it is kept in: binding[0] to binding[1] */
    KOLO_ACTION_ENCODE,
    /* and back, for the backward half */
    KOLO_ACTION_DECODE,
    /* the same for a form that is offloaded: the copy is started and, */
    KOLO_ACTION_STORE,
    /* until binding[0] may be written again, waited for */
    KOLO_ACTION_STORED,
    /* likewise back, */
    KOLO_ACTION_RETRIEVE,
    /* until binding[1] may be read */
    KOLO_ACTION_RETRIEVED,
};
enum { KOLO_ACTIONS = KOLO_ACTION_RETRIEVED + 1 };
const char *kolo_action_name(enum kolo_action_kind kind); /* "update" */

/* What changes its place from batch to batch or from micro-batch to micro-batch, in turns: micro-batch
 * number g, counted through all batches, or batch number g has place g modulo `places`, `stride` bytes
 * behind the one before. */
typedef struct kolo_ring {
    int places; /* 0: it has one place */
    bool by_batch;
    size_t stride;
} kolo_ring;

static inline int64_t kolo_ring_place(const kolo_ring *r, int64_t batch, int slots, int slot)
{
    return r->places ? (r->by_batch ? batch : batch * slots + slot) % r->places : 0;
}

static inline bool kolo_action_transfers(enum kolo_action_kind kind)
{
    return kind == KOLO_ACTION_SEND || kind == KOLO_ACTION_RECEIVE || kind == KOLO_ACTION_TRANSFERRED;
}

/* It binds an activation and the form in which that waits: makes the form from it, or (restores) it from the
 * form. */
static inline bool kolo_action_changes_form(enum kolo_action_kind kind) { return kind >= KOLO_ACTION_ENCODE; }
static inline bool kolo_action_restores(enum kolo_action_kind kind)
{
    return kind == KOLO_ACTION_DECODE || kind == KOLO_ACTION_RETRIEVE || kind == KOLO_ACTION_RETRIEVED;
}

typedef struct kolo_binding {
    int16_t arena;
    size_t offset;
} kolo_binding; /* arena -1: tensor not there */

typedef struct kolo_action {
    enum kolo_action_kind kind;
    int node, slot, bucket;
    int from, to; /* FOLD: levels; SUM, from: which output of its node */
    int transfer;
    int unit;   /* GATHER, GATHERED, FETCH, EVICT */
    int tensor; /* COPY, ENCODE .. RETRIEVED */
    /* of late pipelines: in the list of step t it is of batch t + ahead, and is left out where there is none;
     * and which turn it belongs to (plan->turns: behind the last) */
    int ahead, turn;
    /* RUN: of a forward operation a second time in its slot, for the backward half: its outputs are values
     * of their own (kolo_plan_value) */
    bool again;
    /* first of n_in + n_out bindings (RUN), of two (LOAD: input, label; COPY, ENCODE .. RETRIEVED: from, to),
     * of one (SUM, transfers) */
    int64_t binding;
} kolo_action;

/* A tensor of one micro-batch that this stage sends to another one or receives from it. */
typedef struct kolo_transfer {
    int tensor, slot, peer; /* peer: stage */
    int from, to;           /* parts; of metrics 0 */
    bool sends;
    /* indices of turns: RECEIVE stands before turn `start`; of what is sent TRANSFERRED before turn `end`,
     * or behind the last one */
    int start, end;
    /* of late pipelines: RECEIVE, and the TRANSFERRED of what is sent, stand in the list of step t for batch
     * t + these */
    int start_ahead, end_ahead;
    /* between stages side by side (spatial=, tensor=), which do the same turns: in turn `start` RECEIVE
     * stands before this stage's first operation from number `post` on, in turn `end` the TRANSFERRED of what
     * is sent before its first one behind number `gone`; -1: before all of them */
    int64_t post, gone;
    size_t offset; /* bytes from the beginning of comm's memory: GRADIENT, then TRANSFER */
    kolo_ring ring;
    size_t bytes;
} kolo_transfer;

typedef struct kolo_bucket {
    size_t offset;         /* bytes in GRADIENT */
    int64_t count;         /* f32 elements, a multiple of 16 except where the arena ends */
    int64_t param, params; /* elements of PARAM it covers: [param, param + params) */
    int unit;              /* of shards: that has them; -1: none */
} kolo_bucket;

/* Of shards and offload: parameters that are brought together at once, those of a bucket. Elements are those
 * of PARAM as fixed bindings count them. */
typedef struct kolo_unit {
    int64_t param, params;
    size_t gradient, gathered; /* bytes behind reduced_front, and in GATHERED: where its windows begin */
} kolo_unit;
/* What a shard holds of a unit, from leaf border to leaf border of tensors (KOLO_LEAF); maybe nothing. */
typedef struct kolo_part {
    int64_t first, count; /* elements as of kolo_unit */
    int64_t at;           /* in what the shard stores */
} kolo_part;

enum { KOLO_OFFLOAD_STATE = 1, KOLO_OFFLOAD_PARAM = 2 };

/* What the ranks of a plan exchange in a step. Plans of a run that differ in nothing else take turns: local
 * SGD (arXiv 1808.07217) */
enum kolo_exchange {
    KOLO_EXCHANGE_GRADIENTS,
    /* every rank steps by its own gradients, metrics and statistics alone */
    KOLO_EXCHANGE_NOTHING,
    /* likewise, then the weights and running statistics become their mean over the ranks of each node, */
    KOLO_EXCHANGE_NODE,
    /* or over all ranks */
    KOLO_EXCHANGE_WEIGHTS,
    KOLO_EXCHANGES
};
/* Steps by which gradients may be applied late, or by which a rank may lag behind the others (backup). */
enum { KOLO_MOST_LATE = 8 };
/* What SHARE and TAKE move: weights, or the optimizer's state number `from` - 1. */
enum { KOLO_SHARE_WEIGHTS, KOLO_SHARE_STATE };

typedef struct kolo_plan_config {
    int ranks;
    int slots; /* micro-batches a rank and step */
    int bn;    /* KOLO_bn_* */
    bool canonical;
    double bucket_bytes;
    const kolo_optimizer *optimizer; /* NULL: evaluation */
    bool ema, clip_norm, lookahead;
    /* running statistics of the average are formed anew (exec.h): what they are summed in holds no
     * gradients */
    bool swa;
    bool scaled; /* the loss is scaled: NORM checks every step for overflow */
    /* several ranks: each forms its own step, and the steps are combined by Adasum (comm/core/adasum.h) */
    bool adasum;
    bool average; /* with it: between nodes; those of a node are averaged */
    bool noise;   /* squares of every micro-batch's gradients are measured */
    /* stale gradients: what is summed is waited for and applied so many steps later, to the newest weights.
     * The list is that of a step without: from the first WAIT on it works on the sums of an earlier step */
    int late;
    /* backup ranks (arXiv 1604.00981): above 0 the sum of a step is of the gradients of the first ranks -
     * backup, and the others go so many steps on before they wait for a rank that lags. The list is that of a
     * step without: what REDUCE sums is a copy, whether WAIT finds this rank's in it is decided meanwhile */
    int lag, backup;
    /* asynchronous: above 0 so many ranks, of which each serves a part of the parameters (servers.h). `ranks`
     * is then 1, for a rank waits for no other. The list is that of one rank alone, but LAYERS, UPDATE and
     * BUFFERS are the servers', of the gradients of any rank in the order in which they are there. bound: the
     * most updates of others between the weights of a gradient and its own update; 0: any number.
     * first_server: above 0 the ranks before it compute, and the servers, which follow, do not */
    int servers, first_server;
    int64_t bound;
    enum kolo_exchange exchange;
    /* there are plans of this run with another exchange: ranks have weights of their own, and EMA is for
     * their mean, which no step touches (kolo_exec_average) */
    bool local;
    bool average_state; /* with the weights the optimizer's state becomes its mean */
    int outer;          /* KOLO_local_outer_*: what weights become where those of all ranks are averaged */
    /* with `local`: gradients are summed among groups of so many ranks, which share a network; 0, 1: all */
    int group;
    bool pairs;   /* with `local`: a rank may give all it has to any other (kolo_exec_transfer_state) */
    bool predict; /* late pipelines that stash nothing: forward turns read predicted weights */
    bool decay_norms;
    /* the learning rate falls by this factor from block to block, from the head down; 0 or 1: not */
    double layer_decay;
    /* KOLO_shard_*: what ranks hold parts of, and how many parts there are; 1: nothing is sharded */
    int shard, shards;
    int shard_groups; /* of a stage's ranks that have copies of all parts; 0 is 1 */
    int offload;      /* KOLO_OFFLOAD_* (a mask): in a file, of which units are fetched and evicted */
    bool in_place;    /* checkpoints are written from where things are (kolo_checkpoint_in_place) */
    bool reshard;     /* parameters leave their windows between forward and backward half */
    bool keep;        /* every value has its own memory until the step ends: for inspection and tests */
    /* [graph->tensors] how activations are kept for the backward half (ops/form.h): dropped ones are made
     * again from what is kept (recompute.h), others change their form (stash.h). Borrowed, outlives the plan.
     * NULL: all are kept as they are. Exact forms change no bit */
    const kolo_form *form;
    /* pipelines: where each operation is computed, and the stage that this plan is of; ranks: those of the
     * stage, which sum gradients. NULL: one stage */
    const kolo_placement *placement;
    int stage;
} kolo_plan_config;

typedef struct kolo_plan {
    const kolo_graph *graph;
    kolo_layout *layout;  /* [graph->tensors] */
    kolo_kernel **kernel; /* [graph->nodes] */
    size_t *scratch;      /* [graph->nodes] bytes of WORKSPACE */
    bool on_device;
    kolo_plan_config config;
    /* [nodes] the graph's operations that are this stage's, in the order in which their reduced tensors lie
     * in GRADIENT: that of their completion */
    int *node;
    int64_t nodes;
    kolo_turn *turn; /* [turns] */
    int turns;
    kolo_transfer
        *transfer; /* [transfers] what is received, then what is sent; of a peer in its sender's order */
    int transfers;
    bool *crosses; /* [graph->tensors] it is in some transfer */
    kolo_action *action;
    int64_t actions;
    kolo_binding *binding;
    int64_t bindings;
    kolo_ring *ring; /* [bindings] of late pipelines, else NULL */
    kolo_bucket *bucket;
    int buckets;
    kolo_segment *segment; /* of PARAM, ascending */
    int segments;
    kolo_unit *unit; /* [units] ascending; of shards */
    int units;
    kolo_part *part;      /* [units][shards] */
    int64_t stored;       /* elements of the largest shard */
    size_t param_bytes;   /* of all parameters, as fixed bindings count them */
    size_t trained_bytes; /* of those that have a gradient; they come first */
    size_t arena_bytes[KOLO_ARENAS];
    /* [graph->tensors] PARAM, BUFFER, GRADIENT, STATISTIC, METRIC tensors; arena -1: others */
    kolo_binding *fixed;
    /* [graph->tensors] of a term of a gradient that stands in the gradient's own place until they are added:
     * the gradient; of others -1 */
    int *sum;
    bool shares;             /* made with `like`: PARAM, BUFFER and EMA belong to the training plan */
    size_t least_activation; /* lower bound of the ACTIVATION arena: the most bytes alive at one action */
    size_t reduced_front;    /* bytes of GRADIENT before the first parameter gradient (statistics, metrics) */
    uint64_t hash;           /* bindings, layouts, algorithms, buckets, order */
    const struct kolo_program *program; /* of a pipeline that it is part of (program.h), or NULL */
} kolo_plan;

/* Makes the plan. `like`: NULL, or the training plan whose parameters and buffers it shares (same fixed
 * bindings and layouts): an evaluation's, or one for batches of another shape. */
int kolo_plan_create(kolo_plan **plan, const kolo_graph *graph, kolo_backend *backend,
                     const kolo_plan_config *config, const kolo_plan *like);
void kolo_plan_destroy(kolo_plan **plan);
/* The plan of the same network with other forms of its activations: layouts and algorithms of `of`. like: as
 * for kolo_plan_create. */
int kolo_plan_create_forms(kolo_plan **plan, const kolo_plan *of, const kolo_form *form,
                           const kolo_plan *like);
/* The plan of the same network and batch in which ranks exchange something else: layouts, algorithms and
 * fixed bindings of `of`, which must be `local`. */
int kolo_plan_create_exchange(kolo_plan **plan, const kolo_plan *of, enum kolo_exchange exchange);
/* The plan of a stage of that network: `of` is of all of it, or of another stage. like: the same stage's, as
 * for kolo_plan_create. */
int kolo_plan_create_stage(kolo_plan **plan, const kolo_plan *of, const kolo_placement *placement, int stage,
                           const kolo_plan *like);
/* Operation `node` is this plan's. */
static inline bool kolo_plan_has_node(const kolo_plan *plan, int64_t node)
{
    const kolo_placement *p = plan->config.placement;
    return !p || kolo_placement_stage(p, p->part[node]) == plan->config.stage;
}
/* Parameter, buffer or other tensor `tensor` belongs to this plan's stage. */
static inline bool kolo_plan_owns(const kolo_plan *plan, int64_t tensor)
{
    const kolo_placement *p = plan->config.placement;
    return !p || kolo_placement_stage(p, p->owner[tensor]) == plan->config.stage;
}
/* Copies of GRADIENT that steps take in turn, bytes from one to the next. */
static inline int kolo_plan_versions(const kolo_plan *plan)
{
    return plan->config.late + plan->config.lag + 1;
}
static inline size_t kolo_plan_version_bytes(const kolo_plan *plan)
{
    const int copies = kolo_plan_versions(plan) - 1;
    return copies ? plan->arena_bytes[KOLO_ARENA_LATE] / (size_t)copies : 0;
}
/* Of backup ranks, in comm's memory: bytes of an arrival, which says a step; of a decision, which says a step
 * and has a bit for each rank that counts; and of all that a rank has, from where LATE ends: its arrival, the
 * decision it gets, and as the first rank the one that it sends, and everybody's arrivals. */
enum { KOLO_ARRIVAL_BYTES = 64 };
static inline size_t kolo_decision_bytes(int ranks) { return 64 * (size_t)(1 + (ranks + 511) / 512); }
static inline size_t kolo_agreement_bytes(int ranks)
{
    return KOLO_ARRIVAL_BYTES * (size_t)(1 + ranks) + 2 * kolo_decision_bytes(ranks);
}
/* An action of the second part of a step, which a late plan does for an earlier one. */
static inline bool kolo_action_applies(enum kolo_action_kind kind)
{
    return kind == KOLO_ACTION_WAIT || kind == KOLO_ACTION_NORM || kind == KOLO_ACTION_LAYERS ||
           kind == KOLO_ACTION_UPDATE || kind == KOLO_ACTION_BUFFERS;
}
/* Buckets are summed over ranks. */
static inline bool kolo_plan_reduces(const kolo_plan_config *c)
{
    return c->ranks > 1 && c->exchange != KOLO_EXCHANGE_NOTHING;
}
/* Ranks whose gradients are summed. */
static inline int kolo_plan_summed(const kolo_plan_config *c) { return c->group > 1 ? c->group : c->ranks; }
/* Ranks exchange their weights, each having stepped by itself. */
static inline bool kolo_plan_exchanges_weights(const kolo_plan_config *c)
{
    return c->ranks > 1 && c->exchange >= KOLO_EXCHANGE_NODE;
}
/* A rank's gradients are of its own batch, not of all ranks'. */
static inline bool kolo_plan_steps_alone(const kolo_plan_config *c)
{
    return c->adasum || c->servers || c->exchange != KOLO_EXCHANGE_GRADIENTS;
}
/* What LOAD brings to this rank's stage, in its order: of the image the tensors that are here, and with the
 * first stage the labels. Their number; tensor: [KOLO_MAX_LOADED] or NULL. */
enum { KOLO_MAX_LOADED = KOLO_MAX_ARGS + 1 };
int kolo_plan_loaded(const kolo_plan *plan, int *tensor);
/* This rank's stage takes the batch. */
static inline bool kolo_plan_loads(const kolo_plan *plan)
{
    return plan->config.stage == 0 || kolo_plan_loaded(plan, NULL) > 0;
}
/* Pipelines whose weights are late (order.h): batches by which the forward turns of this stage are ahead;
 * updates by which the weights are old that these read; how many older versions of the parameters are kept;
 * and by how much the furthest stage is ahead, which is the batch that a step takes. Otherwise 0. */
bool kolo_plan_is_late(const kolo_plan *plan);
int kolo_plan_ahead(const kolo_plan *plan);
int kolo_plan_staleness(const kolo_plan *plan);
int kolo_plan_weight_versions(const kolo_plan *plan);
bool kolo_plan_predicts(const kolo_plan *plan); /* of this stage */
int kolo_plan_feed(const kolo_plan *plan);
/* In checkpoints: of place `place` of VERSION. text: [16] */
void kolo_plan_version_name(int place, char *text);
/* "pipedream, 3 stages, cut=layer2.0.conv1,layer3.0.conv1": what decides which weights a batch is computed
 * with; "" for a plan that is not late. text: [size] */
void kolo_plan_late_text(const kolo_plan *plan, char *text, size_t size);
/* How many bindings an action has, from `binding` on. */
int kolo_action_bindings(const kolo_plan *plan, const kolo_action *action);
/* In which turns operation `node` is done. */
enum kolo_pass kolo_plan_pass(const kolo_plan *plan, int64_t node);
/* Bytes of comm's memory: GRADIENT where it is reduced, then TRANSFER or LATE, then where units are gathered;
 * with servers PARAM, then LATE. */
size_t kolo_plan_comm_bytes(const kolo_plan *plan);
/* Elements of an activation in its layout, with its padding: what changes its form. */
int64_t kolo_plan_form_count(const kolo_plan *plan, int tensor);
/* Elements of the largest parameter or buffer that is this plan's; at least 1. */
int64_t kolo_plan_largest(const kolo_plan *plan);
size_t kolo_plan_transfer_base(const kolo_plan *plan);
size_t kolo_plan_gather_base(const kolo_plan *plan);
size_t kolo_plan_late_base(const kolo_plan *plan);

/* Lower bounds of the arenas of any plan of `graph`, whatever layouts and algorithms a backend chooses for
 * it: those of a plan in row-major layouts, ACTIVATION as the most bytes alive at one action, and none for
 * STAGE, SHADOW and WORKSPACE. No operation is prepared, nothing is timed. */
int kolo_plan_least(const kolo_graph *graph, const kolo_plan_config *config, size_t arena_bytes[KOLO_ARENAS]);

/* What of plans that take turns is used by one alone, and holds nothing from step to step. */
static inline bool kolo_plan_is_scratch(enum kolo_arena arena)
{
    return arena == KOLO_ARENA_PART || arena >= KOLO_ARENA_TRANSFER;
}
size_t kolo_plan_scratch(const kolo_plan *plan); /* bytes of it */
/* Plans that take turns, [1] and later made `like` [0]: every arena becomes as large as the largest needs.
 * KOLO_EINTERNAL: their gradients, statistics or buckets lie elsewhere, so one communicator and one optimizer
 * could not serve them. */
int kolo_plan_share(kolo_plan *const *plan, int plans);

/* The arena has at least so many bytes: another plan works in it too. */
int kolo_plan_reserve(kolo_plan *plan, enum kolo_arena arena, size_t bytes);

/* Every tensor is written before it is read, no two live values overlap, every gradient is complete before
 * its bucket starts, every bucket is started, waited for and updated once. KOLO_EINTERNAL names the first
 * breach. Run by tests and `kolo plan`. */
int kolo_plan_check(const kolo_plan *plan);

/* The hash as it grows: cumulative[0] covers layouts, kernels, arenas, buckets; [i + 1] also action i with
 * its bindings; [actions] is plan->hash. cumulative: [plan->actions + 1]. The first difference between two
 * ranks names the action. */
void kolo_plan_hashes(const kolo_plan *plan, uint64_t *cumulative);

/* Where slot `slot` keeps `tensor` (its binding in the action that makes or receives it); arena -1:
 * nowhere. */
kolo_binding kolo_plan_binding(const kolo_plan *plan, int tensor, int slot);

/* Elements that an action sums in f64, over the ranks of this plan's stage (SUM), or with stages over
 * those of a pipeline (kolo_plan_meets; NORM: one for every leaf of the network's gradients, LAYERS two);
 * 0: it does no such thing. */
int64_t kolo_plan_sum_count(const kolo_plan *plan, const kolo_action *action);
/* Elements of a gradient in its layout with its padding, of whichever stage it is; 0: it is no gradient. */
int64_t kolo_plan_gradient_count(const kolo_plan *plan, int tensor);
/* Leaves (KOLO_LEAF) of all gradients of the network, of whichever stages they are. */
int64_t kolo_plan_leaves(const kolo_plan *plan);
/* own: [tensors] of every gradient its leaves; whole: [tensors] those of the parameter that it is a slab's
 * gradient of, else the same. */
int kolo_plan_number_leaves(const kolo_plan *plan, kolo_leaf_run *own, kolo_leaf_run *whole);
/* What an action of this kind sums is formed by all stages of a pipeline together. */
bool kolo_plan_meets(const kolo_plan *plan, enum kolo_action_kind kind);

/* Optimizer states of PARAM's size (Lookahead's slow weights among them), their names in checkpoints, and
 * where the layers' records begin in STATE. */
int kolo_plan_states(const kolo_plan *plan);
int kolo_plan_own_states(const kolo_plan *plan); /* of them, first, those of a rank's own steps */
const char *kolo_plan_state_name(const kolo_plan *plan, int state);
size_t kolo_plan_layers_offset(const kolo_plan *plan);
/* which layer (segment) a parameter is; -1: the optimizer is not layer-wise */
int kolo_plan_layer(const kolo_plan *plan, int tensor);

/* With Adasum: the tensors of a bucket of gradients, elements of each with its padding, in their order;
 * count[graph->tensors], returns how many. */
int kolo_plan_bucket_tensors(const kolo_plan *plan, int bucket, int64_t *count);
/* How deep every parameter stands: depth[graph->tensors], 0 for what comes first (stem, embedding), then
 * one more for every block, the head last; -1: no parameter. Returns the number of depths. A block is
 * what a name with a number in it holds ("layer1.0", "features.5.2"); a network without such names has a
 * depth for every matrix. */
int kolo_plan_depths(const kolo_graph *graph, int *depth);

/* Of an arena, what is in memory: with offload a unit's state, two units' parameters, of OFFLOADED
 * nothing. */
static inline bool kolo_arena_is_memory(int arena) { return arena != KOLO_ARENA_OFFLOADED; }
size_t kolo_plan_resident(const kolo_plan *plan, enum kolo_arena arena);
/* What of offloaded parameters and state is not in memory at the same time: a unit is updated when one unit's
 * parameters are left. */
size_t kolo_plan_resident_apart(const kolo_plan *plan);
size_t kolo_plan_bytes(const kolo_plan *plan); /* in memory, of the arenas that are its own */
/* FILE *: actions (all of them, or folded), arenas, buckets, peak, what is sent a step */
int kolo_plan_print(const kolo_plan *plan, void *file, bool all);
/* One line for action `i` ("reduce bucket 3 (2.1 MiB, layer4.1.conv2.weight .. fc.bias)"), to `text`. */
void kolo_plan_action_text(const kolo_plan *plan, int64_t i, char *text, size_t size);

#endif
