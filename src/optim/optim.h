/* Optimizers and schedules. An optimizer is a row of a table: how much state it keeps, and an update of a
 * slice of the arenas. The arithmetic of an element is an inline function that a C loop and a CUDA kernel
 * share (optim/rules.h). */
#ifndef KOLO_OPTIM_H
#define KOLO_OPTIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "ops/backend.h"
#include "optim/rules.h"

/* Norms are sums over leaves: runs of so many elements of a tensor, in the order of its layout, with its
 * padding; the last one is shorter. A leaf is summed by one thread or block of threads in an order that its
 * length alone decides, and leaves are added in their order, so that a rank that has any whole leaves forms
 * the same bits of them. Leaves are numbered through all gradients of a network, in the graph's order; those
 * of the slabs of a parameter follow each other, in the order of its parts, as if it were whole. */
enum { KOLO_LEAF = 4096 };
static inline int64_t kolo_leaves(int64_t count) { return (count + KOLO_LEAF - 1) / KOLO_LEAF; }
/* Leaves that follow each other. */
typedef struct kolo_leaf_run {
    int64_t first, count;
} kolo_leaf_run;

/* A run of elements that are treated alike: consecutive parameters with the same decay and rate; of
 * layer-wise optimizers one parameter, whose number among the segments is that of its kolo_layer. */
typedef struct kolo_segment {
    int64_t begin, count;
    bool decay;
    float rate; /* times the learning rate: layer_decay */
} kolo_segment;

/* One slice of the arenas; all pointers already at its begin; count elements. */
typedef struct kolo_slice {
    float *param; /* f32 master */
    /* mean over the global batch; with KOLO_UPDATE_DELTA the step stands here afterwards */
    float *grad;
    float *state[4];   /* optimizer state, `states` of them */
    float *ema;        /* or NULL */
    float *slow;       /* Lookahead's slow weights, or NULL */
    kolo_layer *layer; /* of the tensor this is a part of, or NULL: not layer-wise */
    int64_t leaf;      /* with it: number of this slice's first leaf; it holds whole leaves of the tensor */
    void *half;        /* the parameters' 16-bit copy, rounded anew by every update, or NULL */
    enum kolo_dtype half_type;
    int64_t count;
    bool decay, delta; /* delta: the step goes to grad, and param stays (set by an updater) */
    float rate;        /* times the learning rate */
    int late;          /* updates that its gradients lack and the rule makes up for; 0: none (sgd alone) */
} kolo_slice;
/* The learning rate of a slice in this step. */
KOLO_INLINE float kolo_slice_rate(const kolo_slice *slice, const kolo_step *step)
{
    return step->lr * slice->rate;
}

typedef struct kolo_optimizer {
    const char *name, *help;
    const char *options;       /* that it reads and not all others do: words */
    int states;                /* f32 state arrays of the parameters' size */
    const char *state_name[4]; /* in checkpoints: "momentum" */
    void (*update)(const kolo_slice *slice, const kolo_options *options, const kolo_step *step);
    double beta1, beta2, epsilon; /* its own values; beta1 0: its momentum is momentum= */
    /* Layer-wise ones: a first pass writes two sums of every leaf of a slice, counted from its first:
     * sum[2 * leaf], sum[2 * leaf + 1] (and may bring state up to date); kolo_layer_decide makes a factor of
     * those of a whole tensor, then update. */
    void (*measure)(const kolo_slice *slice, const kolo_options *options, const kolo_step *step, double *sum);
    kolo_rule_layer layer; /* of kind NONE: element by element */
} kolo_optimizer;

static inline bool kolo_is_layerwise(const kolo_optimizer *optimizer)
{
    return optimizer && optimizer->measure;
}
/* The rule that makes factors, with the options of this run. */
kolo_rule_layer kolo_layer_rule(const kolo_optimizer *optimizer, const kolo_options *options);
/* An option whose standard depends on the optimizer: below 0 its own. */
static inline double kolo_own(double option, double own) { return option < 0 ? own : option; }
static inline double kolo_beta2(const kolo_optimizer *own, const kolo_options *o)
{
    return kolo_own(o->beta2, own->beta2);
}
static inline double kolo_epsilon(const kolo_optimizer *own, const kolo_options *o)
{
    return kolo_own(o->epsilon, own->epsilon);
}
/* A channel's running statistic after a batch, and its average (or NULL); statistic: a sum of `weight`, 0
 * without a valid row. */
KOLO_INLINE void kolo_running_add(float *running, float *ema, float statistic, float weight, float momentum,
                                  const kolo_step *step)
{
    if (step->swa > 0) {
        if (ema && weight > 0) *ema = kolo_rule_running(*ema, statistic / weight, step->swa);
        return;
    }
    if (weight > 0) *running = kolo_rule_running(*running, statistic / weight, momentum);
    if (ema) *ema = kolo_rule_ema(*ema, *running, step->ema_decay);
}
/* Updates done before this step since the optimizer's state began: steps that were skipped for an overflow do
 * not count (Adam's t - 1). */
KOLO_INLINE int64_t kolo_step_updates(const kolo_step *step)
{
    return step->step - step->origin - step->scaler.skipped;
}

/* ---- updates, on the memory of any backend ---- */

/* An updater knows all slices of a plan in advance (on a GPU their table lies in its memory: one launch
 * updates any number of them). */

/* A norm's running statistics and where this step's are; all in backend memory. */
typedef struct kolo_running {
    const float *statistic;     /* 2C + 1: means, unbiased variances, weight; sums over blocks and ranks */
    float *running[2], *ema[2]; /* C each: mean, variance; ema: NULL without */
    int64_t channels;
    float momentum;
} kolo_running;

/* A leaf whose norm counts, and which of the sums of squares is its. */
typedef struct kolo_measured {
    const float *value; /* in backend memory */
    int64_t count;      /* at most KOLO_LEAF */
    int64_t sum;        /* number of the leaf */
} kolo_measured;

typedef struct kolo_updater_config {
    kolo_backend *backend;
    const kolo_optimizer *optimizer;
    const kolo_options *options;
    const kolo_slice *slice; /* [slices] copied */
    int slices;
    const kolo_running *running; /* [runnings] copied */
    int runnings;
    kolo_layer *layer;           /* [layers] in backend memory: every tensor's; NULL with 0 layers */
    const kolo_segment *segment; /* [layers] copied: their decay and rate */
    /* [layers] copied: leaves of each one's tensor, also of those parts of it that are elsewhere */
    const kolo_leaf_run *leaf;
    int layers;
    const kolo_measured *measured; /* [measures] copied: leaves of gradients */
    int64_t measures;
    bool dynamic_scale; /* the loss scale follows overflows (fp16); else it stays as it is */
} kolo_updater_config;

typedef struct kolo_updater kolo_updater;
int kolo_updater_create(kolo_updater **updater, const kolo_updater_config *config);
void kolo_updater_destroy(kolo_updater **updater);
/* All enqueue on COMPUTE (cpu: do at once). step: in backend memory. Slices [first, first + count). */
enum kolo_update {
    KOLO_UPDATE, /* new weights, averages, 16-bit copies */
    /* only state changes; what would be added to the weights stands in the place of the gradients */
    KOLO_UPDATE_DELTA,
    KOLO_UPDATE_APPLY, /* that is added to the weights; averages, 16-bit copies */
};
int kolo_updater_update(kolo_updater *updater, int first, int count, enum kolo_update how,
                        const kolo_step *step);
/* What weights will be so many updates on, by SGD's momentum as it is: to[slice->count]; host memory. */
void kolo_sgd_predict(const kolo_slice *slice, const kolo_step *step, int updates, float *to);
/* SQUARE: the sum of squares of grad[count], in f64 in a fixed order, to step->square: in the place of what
 * stands there, or added. */
int kolo_updater_square(kolo_updater *updater, const float *grad, int64_t count, bool more, kolo_step *step);
int kolo_updater_running(kolo_updater *updater, const kolo_step *step);
/* LAYERS, in two parts; a step that is skipped has neither. The first pass: two sums of every leaf of the
 * slices, to sum[2 * leaf] and sum[2 * leaf + 1] (backend memory, f64); then those of all leaves of every
 * tensor, also of slices that are elsewhere, added in an order that their number alone decides -> its
 * factor. */
int kolo_updater_layers_measure(kolo_updater *updater, const kolo_step *step, double *sum);
int kolo_updater_layers_decide(kolo_updater *updater, const kolo_step *step, const double *sum);
/* NORM, in two parts. The sum of squares of every measured leaf, each to its place in sum (backend memory,
 * f64), in an order that its count alone decides; then sum[sums], added in an order that their number alone
 * decides -> kolo_grad_scaler (grad_scaler.h) -> step->clip, skip, norm, scaler. */
int kolo_updater_measure(kolo_updater *updater, double *sum);
int kolo_updater_decide(kolo_updater *updater, const double *sum, int64_t sums, kolo_step *step);

/* The sum of squares in host memory, f64, in an order that the count alone decides. */
double kolo_square_sum(const float *x, int64_t count);
/* Likewise of a leaf, by the thread that calls. */
double kolo_square_leaf(const float *x, int64_t count);

/* One row for each kind of memory: kolo_cpu_updater, and kolo_cuda_updater of libkolo_cuda.so. */
typedef struct kolo_updater_type {
    int (*create)(kolo_updater *updater); /* updater->config is set; sets updater->state */
    void (*destroy)(kolo_updater *updater);
    int (*update)(kolo_updater *updater, int first, int count, enum kolo_update how, const kolo_step *step);
    int (*running)(kolo_updater *updater, const kolo_step *step);
    int (*measure)(kolo_updater *updater, double *sum);
    int (*decide)(kolo_updater *updater, const double *sum, int64_t sums, kolo_step *step);
    int (*layers_measure)(kolo_updater *updater, const kolo_step *step, double *sum);
    int (*layers_decide)(kolo_updater *updater, const kolo_step *step, const double *sum);
    int (*square)(kolo_updater *updater, const float *grad, int64_t count, bool more, kolo_step *step);
} kolo_updater_type;
extern const kolo_updater_type kolo_cpu_updater;
struct kolo_updater {
    const kolo_updater_type *type;
    kolo_updater_config config; /* its tables: own copies */
    void *state;
};

/* KOLO_UPDATE_APPLY on the host: no state, no clipping. */
void kolo_apply_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step);

#define OPTIMIZER(name, ...) \
    void kolo_##name##_update(const kolo_slice *, const kolo_options *, const kolo_step *);
#define LAYERWISE(name, ...) \
    OPTIMIZER(name)          \
    void kolo_##name##_measure(const kolo_slice *, const kolo_options *, const kolo_step *, double *);
#include "optim/optimizers.def"
#undef OPTIMIZER
#undef LAYERWISE
/* KOLO_OPTIMIZER_NAME: its row. */
#define OPTIMIZER(name, ...) KOLO_OPTIMIZER_##name,
#define LAYERWISE OPTIMIZER
enum {
#include "optim/optimizers.def"
};
#undef OPTIMIZER
#undef LAYERWISE
extern const kolo_optimizer kolo_optimizer_table[];
extern const int kolo_optimizer_count;
/* The row of a table whose first member is the name; NULL: error text, nearest offered. */
const void *kolo_optim_row(const char *what, const char *name, const void *table, int rows, size_t size);
const kolo_optimizer *kolo_optimizer_find(const char *name);

/* Learning rate at time t = 0, 1, ... of `steps` in all; `unit` turns epochs into steps (1 if the run is
 * given in steps). Where the batch changes within a run all three are in steps of its first batch, so that
 * schedules are functions of the epoch. */
typedef struct kolo_schedule {
    const char *name, *help;
    /* after warm-up; unit: steps in one epoch (or 1) */
    double (*rate)(const kolo_options *options, double t, double steps, double warmup, double unit);
} kolo_schedule;
extern const kolo_schedule kolo_schedule_table[];
extern const int kolo_schedule_count;
const kolo_schedule *kolo_schedule_find(const char *name);
double kolo_learning_rate(const kolo_options *options, double t, double steps, double unit);
/* What a batch of this size makes of it: lr_scaling (linear: arXiv 1706.02677; sqrt: 1404.5997). */
double kolo_rate_scale(const kolo_options *options, int64_t batch);
/* Known names, readable milestones, combinations that torch refuses too: KOLO_ECONFIG. */
int kolo_optim_check(const kolo_options *options);
/* Momentum (or beta1) at time t: moved by schedule=onecycle only. */
double kolo_momentum(const kolo_options *options, double t, double steps);
int kolo_milestones_check(const char *milestones);
/* e = d e + (1-d) w: d of update 1, 2, ..., which ends at time t: ema with its ramp; or swa (arXiv
 * 1803.05407), where the average of n + 1 weights has d = n / (n + 1) at the end of an epoch and 1 within. */
double kolo_ema_decay(const kolo_options *options, int64_t update, double t, double unit);
static inline bool kolo_is_adasum(const kolo_options *o)
{
    return o->reduce == KOLO_reduce_adasum || o->reduce == KOLO_reduce_adasum_nodes;
}
/* Ranks have weights of their own. */
static inline bool kolo_is_local(const kolo_options *o)
{
    return o->local_steps > 0 || o->swap > 0 || o->tournament > 0;
}
/* An average of the weights is kept beside them, of steps or of ranks. */
static inline bool kolo_averages(const kolo_options *o)
{
    return o->ema > 0 || o->swa > 0 || kolo_is_local(o);
}

#endif
