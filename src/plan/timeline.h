/* Timeline: one step of a pipeline, simulated: when every turn of every stage starts and ends, what the links
 * between stages do meanwhile, and how long the stages idle. A stage does its turns in their order, each as
 * soon as what it reads is there. Transfers run beside compute; a link, from one stage to another, carries
 * them one after the other, in the order in which they are produced, and each way has a link of its own.
 * Times are seconds from the start of the step. */
#ifndef KOLO_PLAN_TIMELINE_H
#define KOLO_PLAN_TIMELINE_H

#include <stdint.h>
#include <stdio.h>

#include "plan/order.h"

/* What part `to` reads of part `from` (from < to, any two: a skip goes straight to its consumer). Backward,
 * `from` waits for its gradient. Parts of one stage hand it over in memory, at once. */
typedef struct kolo_edge {
    int from, to;
    /* seconds from when the link has sent it until it is there; the link is free meanwhile */
    double latency;
    /* seconds that it and its gradient take the link, for one slot */
    double forward, backward;
} kolo_edge;

/* What is simulated. The caller's, and to be kept for kolo_timeline_write. */
typedef struct kolo_timeline_input {
    int stages, chunks, slots;
    /* [stages][turns[stage]]: order.h's, or any other */
    kolo_turn *const *turn;
    const int *turns;
    /* [stages * chunks]: of every pass of every part on one slot. A stage without weight turns does both in
     * its backward turns. */
    const double (*seconds)[KOLO_PASSES];
    /* [edges]: those between neighbours too */
    const kolo_edge *edge;
    int edges;
} kolo_timeline_input;

typedef struct kolo_span {
    double start, end;
} kolo_span;

/* One transfer between stages. */
typedef struct kolo_hop {
    int edge, slot;
    /* FORWARD: what the edge carries; BACKWARD: its gradient */
    enum kolo_pass pass;
    /* on the link, and when it is there */
    kolo_span link;
    double arrival;
} kolo_hop;

typedef struct kolo_timeline {
    int stages;
    /* [stages][turns[stage]] */
    kolo_span **turn;
    /* [hops], those of a link in their order */
    kolo_hop *hop;
    int64_t hops;
    /* when the last turn ends */
    double makespan;
    /* seconds in turns [stages]; share of the makespan in none [stages], and of all stages */
    double *busy, *idle, bubble;
    /* [stages]: kolo_turns_in_flight of all chunks */
    int *in_flight;
} kolo_timeline;

/* Simulates. KOLO_EINTERNAL: turns that can never start, with the first of them and what it waits for; a turn
 * that is not of the pipeline, or there twice. KOLO_ECONFIG: seconds that are none. */
int kolo_timeline_create(kolo_timeline **timeline, const kolo_timeline_input *input);
void kolo_timeline_destroy(kolo_timeline **timeline);

/* As a Chrome trace (chrome://tracing, ui.perfetto.dev): a row for every stage and for every link in use.
 * KOLO_EIO: the file cannot be written. */
int kolo_timeline_write(const kolo_timeline *timeline, const kolo_timeline_input *input, FILE *file);

#endif
