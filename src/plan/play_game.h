/* A game: the lists of all stages, how far each has come, and what is under way (play.c keeps the time,
 * play_act.c says what an action begins or waits for, play_cores.c who has a core). A late pipeline plays the
 * list of several steps one after the other, in which batches overlap; what is there of a batch is counted by
 * it. */
#ifndef KOLO_PLAN_PLAY_GAME_H
#define KOLO_PLAN_PLAY_GAME_H

#include "plan/play.h"
#include "plan/price.h"

/* What is under way. Of a stage's lane one, of a link one, and any number of messages that have left it. */
typedef struct task {
    kolo_play_span span; /* its end is open */
    double latency;      /* seconds to come in which it uses nothing */
    double left;         /* of its work, in seconds at full rate */
    double crowded;      /* computing: how many times slower with all cores busy */
    double network, cores;
    double *done; /* where its end is noted; NULL: nobody asks */
    int link;     /* of a message: the number of its link; -1 */
    bool noted;   /* among what is seen */
} task;

/* A sum or a message that waits for its lane. */
typedef struct queued {
    task task;
    const double *ready; /* of a message: when the other side is ready for it; NULL: it is */
    double flight;       /* seconds behind the link */
} queued;

typedef struct queue {
    queued *item;
    int64_t count, next, room;
    bool busy;
} queue;

/* A stage while it plays. Times are -1 until they have come. */
typedef struct player {
    const kolo_plan *plan;
    const kolo_play_time *time; /* [actions] */
    kolo_cost *cost;            /* [actions] */
    int64_t step, at;           /* next action, of which step's list */
    double begun;               /* when the first step that counts has */
    bool computes;
    int held;       /* cores that it computes on: one for each of its ranks, or fewer */
    double since;   /* when it was given the first of them */
    int64_t ticket; /* its place among those that want one */
    queue sums;
    double *bucket, *unit; /* [buckets], [units] when each is there */
    /* [transfers][batches] the receiver's place is free; it has left; it is there */
    double *posted, *sent, *there;
    double sum; /* a blocking one, which has been started (summing) */
    bool summing;
    bool copied; /* its own part of the unit that is gathered next */
    double *waits;                /* for what it waits; NULL: it does not */
    double waiting;               /* since when */
    bool for_sums;                /* likewise: a sum, not another stage */
    bool met;                     /* it is in a sum in which all stages meet */
    kolo_fabric_group group, all; /* ranks of the stage, those of a shard's group or all of it */
    int here;                     /* its ranks on a node */
} player;

typedef struct game {
    const kolo_play_input *in;
    int stages;
    int64_t batches, last; /* that are there; the step that is played last */
    int64_t begin, end;    /* steps that count */
    double now;
    kolo_play *play;
    player *player;
    queue *link;      /* [stages * stages] */
    int *open, opens; /* links on which something waits */
    task *task;       /* under way */
    int64_t tasks, room;
    bool turns;    /* ranks take turns, being more than cores */
    int free;      /* cores that nobody has */
    int64_t asked; /* tickets for them */
} game;

/* As far as all stages come by themselves at this moment; *any: something has begun. */
int game_advance(game *g, bool *any);
int game_start(game *g, const task *t); /* now */
void game_next(game *g, int stage);     /* the action is done */
/* When a stage goes on computing, and when it does no more. The first returns the seconds that it is slower
 * for, of each of its ranks, because a turn begins. */
double game_take_cores(game *g, player *p);
void game_leave_cores(game *g, player *p);
/* Sums over all ranks, in which all stages meet. */
bool game_meets(const game *g, const player *p, enum kolo_action_kind kind);
static inline bool game_counts(const game *g, const player *p)
{
    return p->step >= g->begin && p->step < g->end;
}

#endif
