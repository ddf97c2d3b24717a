/* Replicate: a chain of layers cut into stages that have unequally many ranks, for pipelines that are always
 * full (pipeline=pipedream): the planner of Narayanan et al., SOSP 2019, on one level of bandwidth. A rank
 * of a stage does every `ranks`-th batch, and sums its gradients with the others of the stage. Found
 * exactly, by dynamic programming. Plans of Kolo have equally many ranks a stage: this says what another
 * division would be worth. What is missing to carry one out: a transfer whose peer follows from the number of
 * the batch (kolo_transfer has one, and kolo_program_match pairs lists by it), a grid whose stages have sizes
 * of their own (kolo_grid_rank), rings of versions and places as deep as the round through unequal stages
 * (order.h's ahead and staleness know stages alone), and a loader that hands a first stage's rank every r-th
 * batch. */
#ifndef KOLO_PLAN_REPLICATE_H
#define KOLO_PLAN_REPLICATE_H

#include <stdbool.h>

typedef struct kolo_replicate_layer {
    double seconds;    /* of a batch, both halves */
    double activation; /* bytes of a batch that go on to the next layer */
    double weights;    /* bytes */
    bool cut;          /* a stage may begin here */
} kolo_replicate_layer;

typedef struct kolo_replicate_input {
    const kolo_replicate_layer *layer;
    int layers, ranks;
    int most;         /* stages; 0: as many as there are ranks */
    double bandwidth; /* bytes a second between any two ranks */
} kolo_replicate_input;

typedef struct kolo_replicate_stage {
    int first, ranks; /* its first layer */
} kolo_replicate_stage;

/* Seconds from one batch to the next: of the slowest stage, whose batches and sums its ranks share, or of the
 * slowest transfer in front of one. Stages are in the order of layers. */
double kolo_replicate_seconds(const kolo_replicate_input *in, const kolo_replicate_stage *stage, int stages);

/* The division with the least seconds that uses all ranks. stage: [ranks]. KOLO_ENOMEM. */
int kolo_replicate(const kolo_replicate_input *in, kolo_replicate_stage *stage, int *stages, double *seconds);

#endif
