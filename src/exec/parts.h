/* The executor's inside: everything is resolved to pointers when it is made. "Backend memory" is
 * the host's on "cpu". */
#ifndef KOLO_EXEC_PARTS_H
#define KOLO_EXEC_PARTS_H

#include "exec/exec.h"
#include "exec/offloaded.h"
#include "plan/program.h"

/* A step on its way, in pinned host memory: the host fills the first part of `step`, the backend sends back
 * the second and the metrics. */
typedef struct exec_step_in_flight {
    kolo_step step;
    float metrics[4];
} exec_step_in_flight;

/* A plan's actions on the weights themselves, or on their averages. */
typedef struct exec_view {
    void **args;         /* [plan->bindings] backend memory */
    kolo_replay *replay; /* the actions recorded, once they have been carried out a few times */
    int eager_steps;     /* so far done action by action, without replay */
} exec_view;

enum { EXEC_ACTION_TEXT = 52 }; /* as much as comm's reports take */

/* One of the plans, and what follows from the shape of its batches. */
typedef struct plan_variant {
    const kolo_plan *plan;
    exec_view *weights; /* [versions] of gradients */
    exec_view average;  /* args: NULL without EMA */
    size_t input_bytes; /* of one micro-batch */
    size_t label_bytes; /* likewise */
    /* numbers instead of images in the input's layout, host memory; NULL: images */
    char *converted;
    const char *pixels;    /* where LOAD reads: the batch itself, or on a device its copy in STAGE */
    const int32_t *labels; /* likewise */
    /* backend memory: 4, summed over micro-batches (and ranks, in training), or NULL: another stage's */
    const float *metrics;
    /* [plan->transfers][transfer_places] in comm: of every pair of places that a late pipeline's transfer
     * has, in the order of batches or micro-batches */
    int *transfer_number;
    int transfer_places, *transfer_pairs; /* pairs: [plan->transfers] */
    int64_t *copy; /* [slots][graph->tensors] of what is offloaded: the last begun; NULL: nothing does */
    /* [plan->actions] what each is, for failure reports; NULL: its number says it, as all ranks have the
     * plan */
    char (*action_text)[EXEC_ACTION_TEXT];
} plan_variant;

/* A sum of so many f64 over the ranks of this stage (SUM) or of this pipeline (NORM), its number in comm. */
typedef struct exec_sum {
    enum kolo_action_kind kind;
    int64_t count;
    int number;
} exec_sum;

/* Some of the ranks, ascending, and of every bucket its number in comm among them; NULL: no plan has such
 * sums. */
typedef struct exec_set {
    int *number, *rank, ranks;
} exec_set;

typedef struct exec_backup exec_backup;
typedef struct exec_async exec_async;

/* What a server updates (async.c): elements [first, last) of PARAM, these and their gradients where they
 * stand; front: the statistics in front of the gradients of all, NULL: another's. */
typedef struct exec_served {
    int64_t first, last;
    float *param, *grad;
    const char *front;
} exec_served;

struct kolo_exec {
    /* the first; weights, gradients, buckets and the sizes of arenas are those of all */
    const kolo_plan *plan;
    kolo_backend *backend;
    kolo_comm *comm; /* NULL: one process */
    const kolo_options *options;
    kolo_exec *owner;  /* of PARAM, BUFFER and EMA: this one, or the training executor that shares them */
    bool dynamic;      /* the loss scale follows overflows */
    bool replays;      /* steps are to be recorded */
    bool shares_cores; /* this rank computes in turns with others of its node, where they lack cores */

    char *arena[KOLO_ARENAS]; /* backend memory */
    bool own[KOLO_ARENAS];
    exec_offloaded *offloaded; /* the arena OFFLOADED; NULL: there is none */
    plan_variant *variant;     /* [variants] */
    int variants;
    plan_variant *current;       /* the variant of the step at hand */
    exec_view *view;             /* its pointers */
    enum kolo_exchange exchange; /* of the plans that steps are taken by */
    bool averages;               /* steps use the averaged weights */
    /* versions of the gradients that steps take in turn (kolo_plan_versions), and of what is of each; with
     * backup ranks steps compute in the first, and take the others in turn for their sums */
    int versions;
    /* [versions] backend memory; of a late pipeline the block of its step, one of [blocks] */
    kolo_step *step;
    kolo_step *block;
    int blocks; /* batches that may be under way, or versions */
    /* late pipelines: the first batch, and the first that is not there any more; the list that is next, of
     * step `list`; whether older versions of the parameters were set */
    int64_t first_batch, last_batch, list;
    bool has_versions;
    kolo_updater **updater; /* [versions] */
    bool *arrived;          /* [versions] its sums were waited for ahead of the step that applies them */
    /* the version of the gradients that the step at hand writes, and that it applies; -1: none yet */
    int written_version, applied_version;
    exec_backup *backup;  /* which ranks' gradients count in a step (backup.c); NULL: all */
    exec_async *async;    /* servers of the weights (async.c); NULL: every rank has all updates */
    bool is_summed;       /* of the step at hand all sums are there, and its block is that of what counts */
    bool flushes;         /* it writes none */
    int read_version;     /* that "gradient" is of (values.c) */
    int *first_slice;     /* the updater's slices of bucket b: [first_slice[b], first_slice[b + 1]) */
    double *squares;      /* [kolo_plan_leaves] backend memory: of gradients (NORM); pairs (LAYERS) */
    int *bucket_number;   /* [versions][plan->buckets] in comm */
    exec_set node, group; /* this node's ranks, and those whose gradients are summed (plan->config.group) */
    int *pair_number; /* [ranks][2][2] likewise: to or from that rank, a whole piece or what is left of one */
    /* shards: which is this rank's, of which group of ranks that have them all (-1: it has none); the ranks
     * of all, [stages][groups][shards]; numbers in comm: of what groups give each other of a bucket's sum,
     * [buckets], and of what is gathered, [units] */
    int shard, shard_group, shard_groups;
    int *shard_rank, *share_number, *unit_number;
    int file[KOLO_ARENAS]; /* that an arena lies in, STATE or PARAM; -1: in memory */
    bool swapped;          /* of shards: in PARAM stand averages, and weights in their place */
    /* [sums] with stages: what is summed in f64 in the middle of a step, by kind of action and length */
    exec_sum *sum;
    int64_t sums;

    /* SHADOW is a copy of PARAM, or of EMA: of which state of them */
    int64_t changes; /* of PARAM, BUFFER and EMA so far; the owner's counts */
    int64_t copied;  /* owner->changes that SHADOW shows; -1: none */

    kolo_event *full, *emptied; /* STAGE holds the batch; its last LOAD is done. NULL on the host */

    exec_step_in_flight *in_flight; /* [flights] step number i in in_flight[i % flights] */
    kolo_event **done;              /* likewise */
    int flights;
    /* steps since the start: begun; issued to their end, the update applied; metrics returned to the
     * caller */
    int64_t begun, issued, reported;
    int ahead;      /* steps that may be issued and not yet reported */
    double issuing; /* seconds */
    double waiting; /* of the host for other ranks, seconds */

    kolo_exec_profile *profile;
    kolo_event **mark; /* [plan->actions + 1], made with the first profile */
    double *used;     /* [plan->actions + 1] seconds that this thread has computed by then; NULL: not asked */
    double used_cost; /* of them what asking takes */
};

/* pipeline.c: the step of a pipeline whose weights are late (order.h). */
int exec_step_late(kolo_exec *exec, const kolo_batch *batch, const kolo_step *step, kolo_metrics *metrics);
/* The batch that an action is of is there. */
bool exec_has_batch(const kolo_exec *exec, const kolo_action *action);
/* The step block that an action goes by, and the number in comm of its transfer. */
kolo_step *exec_block_of(const kolo_exec *exec, const kolo_action *action);
int exec_transfer_of(const kolo_exec *exec, const kolo_action *action);
int exec_stash(kolo_exec *exec, int bucket);
void exec_predict(kolo_exec *exec, int bucket);
/* exec.c, for it: the plan for the batch, and the block of the step. */
int exec_choose(kolo_exec *exec, const kolo_batch *batch);
int exec_send_block(kolo_exec *exec, const kolo_batch *batch, const kolo_step *step, kolo_step *block,
                    kolo_step *to);
/* load.c: the batch where LOAD finds it; the host waits until it may be changed again; LOAD. */
int exec_offer(kolo_exec *exec, const kolo_batch *batch);
int exec_taken(kolo_exec *exec);
int exec_load(kolo_exec *exec, const kolo_action *action);

/* memory.c: arenas, pointers, slices, steps in flight. */
int exec_allocate(kolo_exec *exec, kolo_exec *share);
int exec_resolve(kolo_exec *exec);
int exec_add_variant(kolo_exec *exec, const kolo_plan *plan);
/* served: NULL, or that part alone, without norms of gradients. */
int exec_make_updater(kolo_exec *exec, int version, const exec_served *served, kolo_updater **updater);
size_t exec_squares_bytes(const kolo_exec *exec); /* that NORM and LAYERS add up in */
/* Pairs of places that a plan's transfer has at both ends. */
int exec_transfer_pairs(const kolo_plan *plan, int transfer);
int exec_declare(kolo_exec *exec); /* declare.c: buckets, groups and transfers to comm */
void exec_release(kolo_exec *exec);
/* shard.c: parts of what ranks share, where the plan has shards. */
bool exec_is_sharded(const kolo_exec *exec);
int exec_open_shards(kolo_exec *exec);
int exec_declare_shards(kolo_exec *exec, int stage);
/* Of elements of a unit (as fixed bindings count them): which are this rank's, and where it stores one;
 * without shards all, and in their places. */
void exec_own_range(const kolo_exec *exec, int unit, int64_t *from, int64_t *to);
int64_t exec_stored_at(const kolo_exec *exec, int unit, int64_t element);
/* Actions WAIT, CLEAR, COLLECT, GATHER, GATHERED. */
int exec_wait_sum(kolo_exec *exec, int bucket);
int exec_clear_gaps(kolo_exec *exec, int bucket);
int exec_collect(kolo_exec *exec, int bucket);
int exec_gather(kolo_exec *exec, int unit);
int exec_gathered(kolo_exec *exec, int unit);
/* In PARAM of shards stand averages, or (false) weights, which change places with them: collective. */
int exec_show_averages(kolo_exec *exec, bool averages);
int exec_begin_averages(kolo_exec *exec);
/* Where a version of the gradients is. */
static inline char *exec_gradients(const kolo_exec *e, int version)
{
    return version ? e->arena[KOLO_ARENA_LATE] + (size_t)(version - 1) * kolo_plan_version_bytes(e->plan)
                   : e->arena[KOLO_ARENA_GRADIENT];
}
/* average.c: the number in comm of a bucket's sum in this step; actions SHARE and TAKE. */
int exec_sum_number(const kolo_exec *exec, int bucket, int version);
/* SHARE: copies what ranks average (KOLO_SHARE_*) of a bucket to the place of its gradients. */
int exec_share(kolo_exec *exec, int bucket, int what);
int exec_take(kolo_exec *exec, int bucket, int what);
int exec_declare_pairs(kolo_exec *exec); /* transfer_state.c */
/* offload.c: STATE and PARAM in files, after all else is known of the plan; FETCH and EVICT, which drops
 * pages from memory; exec_evict_pages: of a range, where it is in one of the two files. */
int exec_offload_open(kolo_exec *exec);
/* *file: a new one without a name, of so many bytes, in that folder ("": /tmp). KOLO_EIO: no room for `what`,
 * or no such folder; *file -1 or the caller's. */
int exec_offload_file(const char *folder, size_t bytes, const char *what, int *file);
void exec_offload_close(kolo_exec *exec);
void exec_fetch(kolo_exec *exec, enum kolo_arena arena, int unit);
void exec_evict(kolo_exec *exec, enum kolo_arena arena, int unit);
/* All of an arena, where it is in a file. */
void exec_evict_all(kolo_exec *exec, enum kolo_arena arena);
void exec_evict_pages(kolo_exec *exec, const void *at, size_t bytes);
/* As kolo_exec_get_parts and kolo_exec_set; 0: it is whole on every rank of its stage; 1: done. */
int exec_get_sharded(kolo_exec *exec, const char *which, int tensor, float *values);
int exec_set_sharded(kolo_exec *exec, const char *which, int tensor, const float *values);
/* This rank has all of it, or a part. */
bool exec_stores(const kolo_exec *exec, const char *which, int tensor);
/* agree.c: the same plan on all ranks. Collective. */
int exec_agree(kolo_exec *exec, const kolo_plan *plan);
/* values.c: of the stage that has the tensor, one replica's. Collective. */
int exec_get_of(kolo_exec *exec, const char *which, int tensor, int replica, float *values);
/* act.c: all actions of the step at hand. */
int exec_act_all(kolo_exec *exec, int64_t step);
/* The sum or transfer of that number in comm is there; the time counts as one of waiting for other ranks. */
int exec_await_ranks(kolo_exec *exec, int number);
double exec_used_seconds(void); /* that this thread has computed */
/* What a call of it takes, which the difference of two contains: as long as a short operation. */
double exec_used_cost(void);
/* exec.c: a profile is then of these seconds, whatever else the machine does meanwhile: of a host's rank of
 * one thread. */
int exec_profile_used(kolo_exec *exec);
/* late.c: which versions a step writes and applies; whether it does actions of that kind; what follows its
 * actions. */
void exec_begin_step(kolo_exec *exec);
bool exec_does(const kolo_exec *exec, enum kolo_action_kind kind);
int exec_end_step(kolo_exec *exec);
/* backup.c: transfers, before comm is committed; step number `step` is at hand; REDUCE; WAIT; what it still
 * computes does not count; it is applied. close: also where ranks are still at it, which breaks comm. */
int exec_backup_open(kolo_exec *exec);
int exec_backup_begin(kolo_exec *exec, int64_t step);
int exec_backup_offer(kolo_exec *exec, int bucket);
int exec_backup_wait(kolo_exec *exec);
bool exec_backup_drops(const kolo_exec *exec);
void exec_backup_end(kolo_exec *exec);
void exec_backup_close(kolo_exec *exec);
/* async.c: transfers, before comm is committed. */
int exec_async_open(kolo_exec *exec);
int exec_async_finish(kolo_exec *exec);
void exec_async_close(kolo_exec *exec);
/* results.c: results on their way back. */
/* enqueues them behind the step; it counts as issued */
int exec_send_back(kolo_exec *exec);
int exec_await(kolo_exec *exec, kolo_event *event); /* the host waits, as long as there is hope */
/* waits for the oldest unreported step; its errors are returned */
int exec_report_next(kolo_exec *exec, kolo_metrics *metrics);

#endif
