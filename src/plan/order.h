/* Order: which passes a pipeline stage does in one step, and in which order. A network is a chain of parts;
 * stage s of p holds the parts c * p + s, its chunks c = 0, 1, ... A turn is one pass of one chunk on one
 * micro-batch (slot). Pure functions of their arguments: every rank can ask for the turns of every stage.
 *
 * Late orders are not drained behind a step. Step t of a stage has the forward turns of a later batch,
 * t + ahead, beside the backward turns of batch t, and then updates by batch t. So a batch is computed with
 * weights that are some updates old, by the stage and the order alone; no clock decides:
 *   pipedream     forward and backward turns of batch t by the weights after max(0, t - (p-1-s)) updates, of
 *                 which a stage keeps copies (Narayanan et al. 2019, "PipeDream", weight stashing)
 *   pipedream_vertical  all stages: after max(0, t - (p-1)), so that a batch sees one version everywhere
 *                 (PipeDream's vertical sync)
 *   two_buffered  all stages: after max(0, t-1) updates (Narayanan et al. 2021, "Memory-efficient
 *                 pipeline-parallel DNN training", PipeDream-2BW)
 *   pipelined     forward turns after max(0, t - 2(p-1-s)) updates, backward turns by the newest weights
 *                 (Petrowski et al. 1993; Kosson et al. 2021, "Pipelined backpropagation at scale") */
#ifndef KOLO_PLAN_ORDER_H
#define KOLO_PLAN_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum kolo_pass {
    KOLO_PASS_FORWARD,
    /* gradients of inputs, and those of weights too unless the order has WEIGHT turns */
    KOLO_PASS_BACKWARD,
    /* gradients of weights alone */
    KOLO_PASS_WEIGHT,
    KOLO_PASSES
};
extern const char *const kolo_pass_name[KOLO_PASSES];

typedef struct kolo_turn {
    enum kolo_pass pass;
    int chunk, slot;
    int ahead; /* batches: of step t this turn is of batch t + ahead; 0 but in late orders */
} kolo_turn;

enum kolo_pipeline {
    KOLO_PIPELINE_GPIPE,
    KOLO_PIPELINE_1F1B,
    KOLO_PIPELINE_INTERLEAVED,
    KOLO_PIPELINE_ZERO_BUBBLE,
    KOLO_PIPELINE_PIPEDREAM,
    KOLO_PIPELINE_PIPEDREAM_VERTICAL,
    KOLO_PIPELINE_TWO_BUFFERED,
    KOLO_PIPELINE_PIPELINED,
    KOLO_PIPELINES
};

/* How far a stage's forward turns run ahead of its backward turns, and its weight turns behind them. */
typedef struct kolo_lead {
    /* forward turns before the first pair of one forward and one backward turn */
    int64_t forward;
    /* backward turns done whose weight turns are still to do */
    int64_t weight;
} kolo_lead;

typedef struct kolo_pipeline_order {
    const char *name;
    /* all: forward turns of the stage, places left empty included (order.c) */
    kolo_lead (*lead)(int stages, int stage, int chunks, int64_t all);
    /* several chunks a stage; the others take one */
    bool takes_chunks;
    /* has WEIGHT turns */
    bool weights_apart;
    /* late orders, else NULL: batches by which forward turns are ahead; and updates by which the weights of a
     * batch's forward turns are behind those that its gradients are added to, at least as many */
    int (*ahead)(int stages, int stage);
    int (*staleness)(int stages, int stage);
    /* backward turns read the weights that the batch's forward turns have read; else the newest */
    bool stashes;
} kolo_pipeline_order;

/* One row an order: gpipe, 1f1b, interleaved, zero_bubble; late ones: pipedream, pipedream_vertical,
 * two_buffered, pipelined. */
extern const kolo_pipeline_order kolo_pipeline[KOLO_PIPELINES];

static inline bool kolo_pipeline_is_late(enum kolo_pipeline order) { return kolo_pipeline[order].ahead; }

/* The turns of `stage` in a training step. Any stages, slots >= 1 (slots < stages too), chunks >= 1 where the
 * order takes them. Of every chunk the turns of a pass come in ascending order of slots, in every order: sums
 * of gradients over slots are formed in that order. The turns of all stages together never wait for each
 * other in a circle. *turn: [*turns], the caller's (free). KOLO_ECONFIG names what is out of range. */
int kolo_turns_create(enum kolo_pipeline order, int stages, int stage, int chunks, int slots,
                      kolo_turn **turn, int *turns);

/* The same without gradients: the forward turns alone, for an evaluation. */
int kolo_turns_create_forward(enum kolo_pipeline order, int stages, int stage, int chunks, int slots,
                              kolo_turn **turn, int *turns);

/* The most slots whose activations are held at once, each chunk counted by itself; chunk -1: of all chunks
 * together. What a forward turn leaves is held until the backward turn of its slot has ended, or the weight
 * turn where there are any. Forward turns alone leave nothing behind them: 1. */
int kolo_turns_in_flight(const kolo_turn *turn, int turns, int chunk);

#endif
