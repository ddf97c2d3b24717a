/* Chain: what partition.h cuts, as sums, and the search for the best cut of it. */
#ifndef KOLO_PLAN_CHAIN_H
#define KOLO_PLAN_CHAIN_H

#include "plan/partition.h"

/* Times are whole picoseconds, so that equal ones are equal in any order of sums. */
#define KOLO_CHAIN_TICKS 1e12

/* Layers between places where no cut may be are one block. Sums up to place i: of blocks [0, i). */
typedef struct kolo_chain {
    const kolo_partition_input *in;
    int stages, parts, blocks;
    /* [blocks + 1]: layers in front of a place; ticks, bytes up to there; bytes that cross there */
    int *layer;
    int64_t *ticks, *weights, *activations, *crossing;
    /* [stages][blocks + 1]: ticks of the link behind a stage, cut there */
    int64_t *link;
    /* [parts]: slots held at most */
    int *in_flight;
} kolo_chain;

/* A cut. */
typedef struct kolo_chain_cut {
    int64_t bottleneck, crossing;
    /* [parts + 1]: the place where every part begins */
    int *at;
} kolo_chain_cut;

static inline int64_t kolo_chain_ticks(const kolo_chain *c, int from, int to)
{
    return c->ticks[to] - c->ticks[from];
}
/* More than any sum of bytes. */
#define KOLO_CHAIN_OVERFULL (INT64_C(1) << 62)

static inline bool kolo_chain_is_overfull(const kolo_chain *c, int part, int from, int to)
{
    for (int i = 0; i < c->in->overfulls && c->stages == c->in->stages; i++) {
        const kolo_overfull *o = &c->in->overfull[i];
        if (o->part == part && c->layer[from] <= o->first && c->layer[to] >= o->end) return true;
    }
    return false;
}
static inline int64_t kolo_chain_bytes(const kolo_chain *c, int part, int from, int to)
{
    if (kolo_chain_is_overfull(c, part, from, to)) return KOLO_CHAIN_OVERFULL;
    return c->weights[to] - c->weights[from] +
           c->in_flight[part] * (c->activations[to] - c->activations[from]);
}
/* Of the link behind a part. */
static inline int64_t kolo_chain_link(const kolo_chain *c, int part, int place)
{
    return c->link[(int64_t)(part % c->stages) * (c->blocks + 1) + place];
}

/* For so many stages; links: whether the input's count, which are those of its own number of stages. To be
 * closed also when it fails. */
int kolo_chain_open(kolo_chain *c, const kolo_partition_input *in, int stages, bool links);
void kolo_chain_close(kolo_chain *c);

enum kolo_chain_answer { KOLO_CHAIN_FOUND, KOLO_CHAIN_NONE, KOLO_CHAIN_GAVE_UP };

/* The best cut (partition.h) whose stages hold at most `room` bytes each, to cut->at[parts + 1]; the chain
 * needs at least as many blocks as parts. Returns an enum kolo_chain_answer or a negative status. Only with
 * several chunks a stage may it give up. */
int kolo_chain_solve(const kolo_chain *c, int64_t room, kolo_chain_cut *cut);

/* 1: a cut keeps to `room` bytes a stage; 0: none was found; negative: a status. */
int kolo_chain_fits(const kolo_chain *c, int64_t room);

/* The least room that fits, where `low` does not. */
int kolo_chain_least_room(const kolo_chain *c, int64_t low, int64_t *room);

#endif
