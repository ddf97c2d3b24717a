/* Executor: carries out a plan on a backend. Allocates at creation, then neither allocates nor decides while stepping. */
#ifndef KOLO_EXEC_H
#define KOLO_EXEC_H

#include "comm/comm.h"
#include "data/loader.h"
#include "plan/plan.h"

typedef struct kolo_exec kolo_exec;

typedef struct kolo_exec_profile {
    double seconds;
    int64_t calls;
} kolo_exec_profile; /* per action */

/* Allocates the arenas (GRADIENT comes from `comm`, which must have been made with arena_bytes[KOLO_ARENA_GRADIENT] and is
 * given this plan's buckets and committed here), compares the plan's hash over ranks (a mismatch names the first differing action).
 * `share`: NULL, or the training executor whose PARAM, BUFFER and EMA arenas an evaluation executor uses. Collective if ranks > 1. */
int kolo_exec_create(kolo_exec **exec, const kolo_plan *plan, kolo_backend *backend, kolo_comm *comm,
                     const kolo_options *options, kolo_exec *share);
void kolo_exec_destroy(kolo_exec **exec);

/* Initial values of all parameters and buffers, from the seed; state, EMA (= parameters). Not collective: the same on all ranks. */
int kolo_exec_initialise(kolo_exec *exec, uint64_t seed);

/* One step on this rank's rows of a global batch. `step` holds the rate etc.; valid[] is filled here from the batch.
 * A graph whose input is f32 (N,C,H,W) instead of u8 pictures takes batch->pixels as such floats.
 * Training: metrics are sums over the global batch; evaluation: over this rank's rows only.
 * KOLO_ELAUNCH: a peer is gone; KOLO_ECONFIG (evaluation: KOLO_EINPUT): the loss is not finite. */
typedef struct kolo_metrics {
    double loss, top1, top5, rows;
    double grad_norm;
} kolo_metrics; /* sums, not means */
int kolo_exec_step(kolo_exec *exec, const kolo_batch *batch, kolo_step *step, kolo_metrics *metrics);

/* Where the executor stands, for the watchdog; readable from another thread. */
int64_t kolo_exec_position(const kolo_exec *exec); /* action, -1 between steps */

/* Pointer to an arena (bytes: plan->arena_bytes), and canonical copies of one tensor by name, for checkpoints, export, tests.
 * which: "param" (parameters and buffers), "ema", "gradient" (of a parameter; or a statistic or metric itself), an optimizer
 * state's name, or, in a plan with `keep`, "activation" (micro-batch 0). count = kolo_tensor_count. */
void *kolo_exec_arena(kolo_exec *exec, enum kolo_arena arena);
int kolo_exec_get(kolo_exec *exec, const char *which, int tensor, float *values);
int kolo_exec_set(kolo_exec *exec, const char *which, int tensor, const float *values);
/* Evaluate with the averaged weights (EMA) instead of PARAM and BUFFER; for evaluation executors. */
void kolo_exec_use_ema(kolo_exec *exec, bool ema);

/* Times every action from now on (per action of the plan); NULL stops. profile: [plan->actions], zeroed by the caller. */
void kolo_exec_set_profile(kolo_exec *exec, kolo_exec_profile *profile);

#endif
