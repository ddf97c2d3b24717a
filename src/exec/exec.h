/* Executor: carries out a plan on a backend, or several in turn. Allocates at creation, then neither
 * allocates nor decides while stepping. */
#ifndef KOLO_EXEC_H
#define KOLO_EXEC_H

#include "comm/buckets/trainer.h"
#include "data/loader.h"
#include "plan/plan.h"

typedef struct kolo_exec kolo_exec;

typedef struct kolo_exec_profile {
    double seconds;
    int64_t calls;
} kolo_exec_profile; /* per action */

/* Bytes of backend memory that an executor of `plan` takes for itself; share: the plan of the executor that
 * it will share with, or NULL. */
size_t kolo_exec_bytes(const kolo_plan *plan, const kolo_plan *share);

/* Allocates the arenas (GRADIENT comes from `comm`, which must have been made with
 * arena_bytes[KOLO_ARENA_GRADIENT] and is given the plans' buckets and transfers and committed here),
 * compares the plans' hashes over ranks (a mismatch names the first differing action). plan: [plans]; [1]
 * and later are for batches of other shapes, made like [0] (kolo_plan_create) and laid in one memory with
 * it (kolo_plan_share): a step takes the plan whose input is (rows, height, width) of its batch. On a
 * device each is recorded and replayed by itself. The plans outlive the executor, the array need not.
 * `share`: NULL, or the training executor whose PARAM, BUFFER and EMA arenas an evaluation executor uses,
 * and which outlives it. Collective if ranks > 1. comm: may be NULL of one rank; of a stage without a program
 * too, which then sends nothing and receives zeros. */
int kolo_exec_create(kolo_exec **exec, kolo_plan *const *plan, int plans, kolo_backend *backend,
                     kolo_comm *comm, const kolo_options *options, kolo_exec *share);
/* Do ranks on the host that are more than its cores compute in turns (kolo_comm_acquire_core)? Not with
 * several threads, nor in steps that wait for threads of their own, which comm does not see. */
bool kolo_exec_takes_turns(const kolo_plan *plan, const kolo_options *options);
void kolo_exec_destroy(kolo_exec **exec);

/* Initial values of all parameters and buffers, from the seed; state, EMA (= parameters). Not collective:
 * the same on all ranks. */
int kolo_exec_initialise(kolo_exec *exec, uint64_t seed);

/* One step on this rank's rows of a global batch. `step` holds the rate etc.; its valid[] and row[] are
 * filled here from the batch. A graph whose input is f32 (N,C,H,W) instead of u8 images takes batch->pixels
 * as such floats. On return the batch has been read and may be released. On a device the step itself may
 * still run: *metrics are those of metrics->step, an earlier one (at most KOLO_EXEC_AHEAD before), or of none
 * (-1); on the CPU always of this one. Training: metrics are sums over the global batch; evaluation: over
 * this rank's rows only.
 * KOLO_ELAUNCH: a peer is gone; KOLO_ECONFIG (evaluation: KOLO_EINPUT): the loss is not finite. */
enum { KOLO_EXEC_AHEAD = 3 };
typedef struct kolo_metrics {
    int64_t step; /* whose these are; -1: nothing to tell yet */
    double loss, top1, top5, rows;
    double grad_norm; /* 0: not computed */
    /* with the plan's `noise`: sum over all micro-batches of the squared norms of their parts of the
     * gradient; 0: not computed */
    double square;
    double loss_scale; /* after the step */
    int64_t skipped;   /* updates left out so far (loss scaling) */
} kolo_metrics;        /* sums, not means */
int kolo_exec_step(kolo_exec *exec, const kolo_batch *batch, const kolo_step *step, kolo_metrics *metrics);
/* Steps from here on are taken by the plans with this exchange (plan.h); without a call by those with the
 * first plan's. Metrics of steps in which ranks exchange nothing are of this rank's rows, of those in which
 * they exchange weights within a node of the node's, and of those in which groups sum gradients
 * (plan->config.group: ranks in the order of their nodes) of the group's. */
void kolo_exec_exchange(kolo_exec *exec, enum kolo_exchange exchange);
/* Between steps, all reported, where plans are `local`: EMA becomes the mean of all ranks' weights and
 * running statistics. Those stay as they are. Collective. */
int kolo_exec_average(kolo_exec *exec);
/* Likewise, but the weights are those that an outer optimizer has as its anchor: of easgd the centre. */
int kolo_exec_average_at_anchor(kolo_exec *exec);
/* Between steps, before the first that a rank does by itself: an outer optimizer goes out from these weights.
 * Nothing without one. */
int kolo_exec_anchor(kolo_exec *exec);
/* As kolo_exec_average those of replica `replica`. */
int kolo_exec_average_of(kolo_exec *exec, int replica);
/* Between steps, all reported, where plans have `pairs`: rank `to` gets the weights, buffers and optimizer's
 * state of rank `from`, so many bytes in so many messages. Called by these two alone, in one order where
 * there are several. */
int kolo_exec_transfer_state(kolo_exec *exec, int from, int to);
size_t kolo_exec_transfer_state_bytes(const kolo_plan *plan, int *messages);
/* The other way: the weights and running statistics of this rank become what is in EMA. */
int kolo_exec_adopt_average(kolo_exec *exec);
/* Between steps: sets the optimizer's state to 0. */
int kolo_exec_reset_optimizer(kolo_exec *exec);
/* Of plans that apply gradients late (plan->config.late): steps are begun ahead, and *metrics of
 * kolo_exec_step are of a step that is applied. Between steps, collective: applies the oldest of those
 * under way, as the step behind it would have: 1, or 0 where there is none; its metrics are reported in
 * their turn. */
int kolo_exec_flush(kolo_exec *exec);
/* Waits for the sums of all steps under way; they stay to be applied. */
int kolo_exec_wait_late(kolo_exec *exec);
/* What the steps under way have summed, for a checkpoint: so many elements, 0 where nothing is late. */
int64_t kolo_exec_late_count(const kolo_exec *exec);
int kolo_exec_late_read(kolo_exec *exec, float *to); /* collective: waits as kolo_exec_wait_late does */
/* Into an executor that has done no step: step[steps] are those under way, in their order, numbered as by
 * kolo_step.step, and the next that is begun follows them. */
int kolo_exec_late_write(kolo_exec *exec, const kolo_step *step, int steps, const float *from);
/* Of plans with backup ranks (plan->config.lag): which ranks' gradients count in a step is agreed on beside
 * the steps, so that a rank that lags keeps nobody waiting. reach: before step number `step`, its first or
 * one behind those done; steps below `limit` may be agreed on and summed before this rank comes to them: up
 * to the next one before which all ranks meet in comm. Without a call that is the step itself. Not
 * collective, but limits are the same on all ranks. */
int kolo_exec_reach(kolo_exec *exec, int64_t step, int64_t limit);
/* Before the first step, on all ranks: what counts is decided by a record, not by which ranks come first.
 * counted: [steps][(ranks + 63) / 64] words with a bit for each rank; borrowed; only rank 0 reads it. */
void kolo_exec_replay(kolo_exec *exec, const uint64_t *counted, int64_t steps);
/* Of the step done last: ranks whose gradients did not count, ascending, at most plan->config.backup; their
 * number, -1: of other plans. */
int kolo_exec_dropped(const kolo_exec *exec, int64_t step, int *ranks);
/* Of plans with servers (plan->config.servers): ranks push the gradients of blocks of rows, numbered over
 * the run: block b is of step b / workers, the rows of worker b % workers. open: blocks [first, end) are to
 * be done, of whole steps; collective, in that rank 0 must do it, too; a rank that only serves gets none,
 * and closes at once. Then as long as this rank holds any: kolo_exec_step of the first, which changes no
 * weights, and push, which has its gradients applied, brings the newest weights, and may give more blocks:
 * then others to read meanwhile. close: when no block is held; collective; all are applied, and every rank
 * has weights, averages and state as after a step. */
enum { KOLO_MOST_BLOCKS = 2 };
typedef struct kolo_blocks {
    int given;                       /* by this call */
    int64_t block[KOLO_MOST_BLOCKS]; /* [given] */
    int held;                        /* all that this rank was given and has not pushed */
    int64_t update, staleness; /* of a push: which one it is in the run, and how many its weights lacked */
} kolo_blocks;
int kolo_exec_open_blocks(kolo_exec *exec, int64_t first, int64_t end, kolo_blocks *blocks);
int kolo_exec_push(kolo_exec *exec, int64_t block, const kolo_metrics *metrics, kolo_blocks *blocks);
int kolo_exec_close_blocks(kolo_exec *exec);
/* At rank 0, from open on until the next: 1: of the next step all blocks are pushed: *metrics are of the
 * step, (*staleness)[workers] updates that the weights of each lacked, valid until the next open; 0: not
 * yet. */
int kolo_exec_pushed(kolo_exec *exec, kolo_metrics *metrics, const int64_t **staleness);
/* Collective, after the last step: ends the threads of backup ranks and servers; of other plans nothing. */
int kolo_exec_finish(kolo_exec *exec);
/* Batches that the executor takes in front of the step that it carries out: of a pipeline whose weights
 * are late (plan/order.h), else 0. Then kolo_exec_step is given batch t + feed with its own kolo_step, and
 * carries out step t; the first `feed` calls of a start fill the pipeline, and have no metrics. Behind the
 * last batch it is given NULL, as often, until the last step is done: steps end with the last batch that
 * was given. Between steps batches are under way; an evaluation, a checkpoint leave them alone. A later
 * start goes on from a checkpoint by the batch of the next step: what was under way is done again, by the
 * versions of the weights that it was done with ("version0" .. of kolo_exec_set), to the same bits. */
int kolo_exec_batches_ahead(const kolo_exec *exec);
/* The next metrics still to be reported, waited for; metrics->step -1 when there are none left: then all
 * steps are done and the arenas at rest. Before a checkpoint, an evaluation's result, the end. */
int kolo_exec_drain(kolo_exec *exec, kolo_metrics *metrics);
/* An evaluation of one batch whose outputs are to be read (kolo_exec_get "activation"): done when it returns;
 * the metrics are nobody's. */
int kolo_exec_infer(kolo_exec *exec, const kolo_batch *batch);

/* Seconds that the host has spent on steps since creation, without waiting for a device:
 * what launching costs. */
double kolo_exec_issue_seconds(const kolo_exec *exec);
/* Seconds that the host has waited in steps for sums and transfers between ranks, since creation: what
 * computing did not hide. A device waits by itself: nothing is counted there. */
double kolo_exec_comm_seconds(const kolo_exec *exec);

/* The executor's communicator; NULL: it has none. */
kolo_comm *kolo_exec_comm(const kolo_exec *exec);

/* The whole of an arena (plan->arena_bytes of it), to host memory, after all that was issued. */
int kolo_exec_read_arena(kolo_exec *exec, enum kolo_arena arena, void *to);
/* Loss scaling's state, part of a checkpoint. */
int kolo_exec_get_scaler(kolo_exec *exec, kolo_scaler *scaler);
int kolo_exec_set_scaler(kolo_exec *exec, const kolo_scaler *scaler);
/* Canonical copies of one tensor by name, for checkpoints, export, tests; between steps. In a pipeline get is
 * collective, and set leaves alone what is another stage's. which: "param"
 * (parameters and buffers), "ema", "gradient" (of a parameter; or a statistic or metric itself), an optimizer
 * state's name, or, in a plan with `keep`, "activation" (micro-batch 0), which an evaluation has of its
 * outputs always: not collective, on a stage that computes or receives it. count = kolo_tensor_count. */
int kolo_exec_get(kolo_exec *exec, const char *which, int tensor, float *values);
/* The same of a tensor that this rank has, by itself. */
int kolo_exec_get_own(kolo_exec *exec, const char *which, int tensor, float *values);
/* Of what ranks have parts of (shards), collective: as kolo_exec_get, NULL: this rank only gives its part. 1:
 * done; 0: it is none of that, and nothing was done. */
int kolo_exec_get_parts(kolo_exec *exec, const char *which, int tensor, float *values);
int kolo_exec_set(kolo_exec *exec, const char *which, int tensor, const float *values);
/* Between steps: the optimizer's state (with local steps weights and running statistics, too) of the whole
 * network as one vector of canonical tensors in the graph's order. read: in a pipeline collective, of all
 * stages of a replica, to rank 0's memory `to`, which others do not read; else of this rank. write: in a
 * pipeline what is another stage's is left alone. */
int64_t kolo_exec_state_count(kolo_exec *exec);
int kolo_exec_state_read(kolo_exec *exec, int replica, float *to);
int kolo_exec_state_write(kolo_exec *exec, const float *from);
/* Running statistics that belong to the averaged weights: batch after batch (number 0, 1, ...) the
 * forward half of a training step is done with them, and their statistics become the plain mean of the
 * batches' (Izmailov et al. 2018, section 3; torch's update_bn). Nothing else changes. Between steps,
 * all reported; collective. */
int kolo_exec_statistics(kolo_exec *exec, const kolo_batch *batch, const kolo_step *step, int64_t number);
/* Evaluate with the averaged weights (EMA) instead of PARAM and BUFFER; for evaluation executors. */
void kolo_exec_use_ema(kolo_exec *exec, bool ema);

/* Times every action from now on (per action of the plan; several plans must have as many); NULL
 * stops. profile: [plan->actions], zeroed by the caller. Meanwhile every step is waited for, and
 * nothing is replayed. */
int kolo_exec_set_profile(kolo_exec *exec, kolo_exec_profile *profile);

#endif
