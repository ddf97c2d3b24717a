/* Play: the lists of actions of all ranks carried out on a clock, on GPUs and a fabric that are elsewhere or
 * on the cores of this node. Ranks of one stage do the same at the same time, so a stage is a class of equal
 * ranks, and the time that this takes depends on the number of stages, not of ranks. A rank has a lane for
 * computing and one for sums; a message between two stages has the link between them, each way its own. What
 * goes on at the same time shares cores and network of its node: where they are asked for more than there is,
 * all of it is slower by as much. */
#ifndef KOLO_PLAN_PLAY_H
#define KOLO_PLAN_PLAY_H

#include "plan/fabric.h"
#include "plan/plan.h"
#include "plan/program.h"

/* What an action takes that computes: alone on its node, and with all cores of it busy. */
typedef struct kolo_play_time {
    double alone, crowded;
} kolo_play_time;

typedef struct kolo_play_input {
    const kolo_program *program; /* NULL: one stage, whose plan `plan` is */
    const kolo_plan *plan;
    int ranks; /* all; those of node n are [n * gpus, (n + 1) * gpus) */
    const kolo_fabric *fabric;
    kolo_play_time *const *time; /* [stages][actions]; of messages nothing counts */
    /* how much a rank's step differs from others, on average, as a share of it: all wait for the slowest */
    double varies;
} kolo_play_input;

enum kolo_play_lane { KOLO_PLAY_COMPUTE, KOLO_PLAY_SUM, KOLO_PLAY_LINK };

/* What a lane of a stage does from one moment to another. */
typedef struct kolo_play_span {
    int stage;
    enum kolo_play_lane lane;
    enum kolo_action_kind kind; /* of the first action */
    int pass;                   /* enum kolo_pass of operations; -1: others */
    int slot;
    double start, end; /* seconds from the start of the step */
} kolo_play_span;

typedef struct kolo_play_stage {
    double busy;    /* seconds of computing */
    double sums;    /* of communication, beside it or not */
    double exposed; /* in which nothing is done but wait for sums */
    double idle;    /* likewise for other stages */
    double sent;    /* bytes that leave a rank of it */
    double end;     /* when its step has ended */
} kolo_play_stage;

typedef struct kolo_play {
    kolo_play_stage *stage; /* [stages] */
    int stages;
    kolo_play_span *span; /* [spans]; neighbours that are alike are one */
    int64_t spans, room;
    double step;   /* seconds until the last stage has ended */
    double bubble; /* share of all stages' step that is waited for other stages */
} kolo_play;

/* KOLO_EINTERNAL: lists that never end. */
int kolo_play_create(kolo_play **play, const kolo_play_input *input);
void kolo_play_destroy(kolo_play **play);

#endif
