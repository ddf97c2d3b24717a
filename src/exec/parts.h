/* The executor's inside: everything is resolved to pointers when it is made. "Backend memory" is
 * the host's on "cpu". */
#ifndef KOLO_EXEC_PARTS_H
#define KOLO_EXEC_PARTS_H

#include <stdatomic.h>

#include "exec/exec.h"
#include "exec/aside.h"
#include "plan/program.h"

/* A step on its way, in pinned host memory: the host fills the first part of `step`, the backend sends back
 * the second and the metrics. */
typedef struct exec_step_in_flight {
    kolo_step step;
    float metrics[4];
} exec_step_in_flight;
enum { EXEC_STEPS_IN_FLIGHT = KOLO_EXEC_AHEAD + 1 };

/* A plan's actions on the weights themselves, or on their averages. */
typedef struct exec_view {
    void **args;         /* [plan->bindings] backend memory */
    kolo_replay *replay; /* the actions recorded, once they have been carried out a few times */
    int times;           /* carried out one by one */
} exec_view;

enum { EXEC_ACTION_TEXT = 52 }; /* as much as comm's reports take */

/* One of the plans, and what follows from the shape of its batches. */
typedef struct plan_variant {
    const kolo_plan *plan;
    exec_view weights, average; /* average.args: NULL without EMA */
    size_t input_bytes;         /* of one micro-batch */
    size_t label_bytes;         /* likewise */
    /* numbers instead of images in the input's layout, host memory; NULL: images */
    char *converted;
    const char *pixels;    /* where LOAD reads: the batch itself, or on a device its copy in STAGE */
    const int32_t *labels; /* likewise */
    /* backend memory: 4, summed over micro-batches (and ranks, in training), or NULL: another stage's */
    const float *metrics;
    int *transfer_number; /* [plan->transfers] in comm */
    int64_t *copy;        /* [slots][graph->tensors] of what goes aside: the last begun; NULL: nothing does */
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

struct kolo_exec {
    /* the first; weights, gradients, buckets and the sizes of arenas are those of all */
    const kolo_plan *plan;
    kolo_backend *backend;
    kolo_comm *comm; /* NULL: one process */
    const kolo_options *options;
    kolo_exec *owner; /* of PARAM, BUFFER and EMA: this one, or the training executor that shares them */
    bool dynamic;     /* the loss scale follows overflows */
    bool replays;     /* steps are to be recorded */

    char *arena[KOLO_ARENAS]; /* backend memory */
    bool own[KOLO_ARENAS];
    exec_aside *aside; /* the arena OFFLOADED; NULL: there is none */
    plan_variant *form;
    int forms;
    plan_variant *at; /* of the step that is carried out */
    exec_view *now;   /* likewise */
    bool averages;    /* steps use the averaged weights */
    kolo_step *step;  /* backend memory */
    kolo_updater *updater;
    int *first_slice;   /* the updater's slices of bucket b: [first_slice[b], first_slice[b + 1]) */
    double *squares;    /* [kolo_plan_leaves] backend memory: of gradients (NORM); pairs (LAYERS) */
    int *bucket_number; /* [plan->buckets] in comm */
    /* shards: which is this rank's, of which group of ranks that have them all (-1: it has none); the ranks
     * of all, [stages][groups][shards]; numbers in comm: of what groups give each other of a bucket's sum,
     * [buckets], and of what is gathered, [units] */
    int shard, shard_group, shard_groups;
    int *shard_rank, *share_number, *unit_number;
    int offload;  /* the file that STATE lies in; -1: in memory */
    bool swapped; /* of shards: in PARAM stand averages, and weights in their place */
    /* [sums] with stages: what is summed in f64 in the middle of a step, by kind of action and length */
    exec_sum *sum;
    int64_t sums;

    /* SHADOW is a copy of PARAM, or of EMA: of which state of them */
    int64_t changes; /* of PARAM, BUFFER and EMA so far; the owner's counts */
    int64_t copied;  /* owner->changes that SHADOW shows; -1: none */

    kolo_event *full, *emptied; /* STAGE holds the batch; its last LOAD is done. NULL on the host */

    exec_step_in_flight *turn; /* [EXEC_STEPS_IN_FLIGHT] step number i in turn[i % EXEC_STEPS_IN_FLIGHT] */
    kolo_event *done[EXEC_STEPS_IN_FLIGHT];
    int64_t issued, told; /* steps since the start; steps whose metrics were given out */
    int ahead;            /* steps that may be issued and not told */
    double issuing;       /* seconds */
    double waiting;       /* of the host for other ranks, seconds */

    kolo_exec_profile *profile;
    kolo_event **mark; /* [plan->actions + 1], made with the first profile */
    _Atomic int64_t position;
};

/* memory.c: arenas, pointers, slices, steps in flight. */
int exec_allocate(kolo_exec *exec, kolo_exec *share);
int exec_resolve(kolo_exec *exec);
int exec_add_variant(kolo_exec *exec, const kolo_plan *plan);
int exec_declare(kolo_exec *exec); /* declare.c: buckets, groups and transfers to comm */
void exec_release(kolo_exec *exec);
/* shard.c: parts of what ranks share, where the plan has shards. */
bool exec_is_sharded(const kolo_exec *exec);
int exec_open_shards(kolo_exec *exec);
int exec_declare_shards(kolo_exec *exec, int stage);
/* Of elements of a unit (as homes count them): which are this rank's, and where it stores one; without shards
 * all, and in their places. */
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
/* offload.c: STATE in a file, after all else is known of the plan; FETCH and LET_GO; what was read or written
 * beside them is let go, where it is in STATE. */
int exec_offload_open(kolo_exec *exec);
/* *file: a new one without a name, of so many bytes, in that folder ("": /tmp). KOLO_EIO: no room for `what`,
 * or no such folder; *file -1 or the caller's. */
int exec_offload_file(const char *folder, size_t bytes, const char *what, int *file);
void exec_offload_close(kolo_exec *exec);
void exec_fetch(kolo_exec *exec, int unit);
void exec_let_go(kolo_exec *exec, int unit);
void exec_let_go_of(kolo_exec *exec, const void *at, size_t bytes);
/* As kolo_exec_get_parts and kolo_exec_set; 0: it is whole on every rank of its stage; 1: done. */
int exec_get_sharded(kolo_exec *exec, const char *which, int tensor, float *values);
int exec_set_sharded(kolo_exec *exec, const char *which, int tensor, const float *values);
/* agree.c: the same plan on all ranks. Collective. */
int exec_agree(kolo_exec *exec, const kolo_plan *plan);
/* values.c: of the stage that has the tensor, one replica's. Collective. */
int exec_get_of(kolo_exec *exec, const char *which, int tensor, int replica, float *values);
/* turn.c: results on their way back. */
/* enqueues them behind the step; it counts as issued */
int exec_send_back(kolo_exec *exec);
/* The sum or transfer of that number in comm is there; the time counts as one of waiting for other ranks. */
int exec_await_ranks(kolo_exec *exec, int number);
int exec_await(kolo_exec *exec, kolo_event *event); /* the host waits, as long as there is hope */
/* waits for the oldest untold step; its errors are returned */
int exec_report_next(kolo_exec *exec, kolo_metrics *metrics);

#endif
