/* Optimizers and schedules. An optimizer is a row of a table: how much state it keeps, and an update of a slice of the
 * arenas. The arithmetic of an element is an inline function that a C loop and a CUDA kernel share (optim/rules.h). */
#ifndef KOLO_OPTIM_H
#define KOLO_OPTIM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "ops/backend.h"

/* A run of elements that are treated alike: consecutive parameters with the same decay. */
typedef struct kolo_segment {
    int64_t begin, count;
    bool decay;
} kolo_segment;

/* One slice of the arenas; all pointers already at its begin; count elements. */
typedef struct kolo_slice {
    float *param;      /* f32 master */
    const float *grad; /* mean over the global batch */
    float *state[4];   /* optimizer state, `states` of them */
    float *ema;        /* or NULL */
    int64_t count;
    bool decay;
} kolo_slice;

typedef struct kolo_optimizer {
    const char *name, *help;
    int states;                /* f32 state arrays of the parameters' size */
    const char *state_name[4]; /* in checkpoints: "momentum" */
    void (*update)(const kolo_slice *slice, const kolo_options *options, const kolo_step *step);
} kolo_optimizer;

#define OPTIMIZER(name, ...) void kolo_##name##_update(const kolo_slice *, const kolo_options *, const kolo_step *);
#include "optim/optimizers.def"
#undef OPTIMIZER
extern const kolo_optimizer kolo_optimizer_table[];
extern const int kolo_optimizer_count;
const kolo_optimizer *kolo_optimizer_find(const char *name); /* NULL: error text, nearest offered */

/* Learning rate of step t = 0, 1, ... of `steps` in all. steps_per_epoch turns epochs into steps (1 if the run is given in steps). */
typedef struct kolo_schedule {
    const char *name, *help;
    double (*rate)(const kolo_options *options, double t, double steps, double warmup,
                   double unit); /* after warm-up; unit: steps in one epoch (or 1) */
} kolo_schedule;
extern const kolo_schedule kolo_schedule_table[];
extern const int kolo_schedule_count;
const kolo_schedule *kolo_schedule_find(const char *name);
double kolo_learning_rate(const kolo_options *options, int64_t step, int64_t steps, int64_t steps_per_epoch);
/* Known names, readable milestones, combinations that torch refuses too: KOLO_ECONFIG. */
int kolo_optim_check(const kolo_options *options);
int kolo_milestones_check(const char *milestones);
/* e = d e + (1-d) w: d of update t = 1, 2, ... (ramp applied). */
double kolo_ema_decay(const kolo_options *options, int64_t t);
/* min(1, max / (norm + 1e-6)), torch's rule. */
double kolo_clip_factor(double max_norm, double norm);

#endif
