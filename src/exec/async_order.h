/* sync=async, at rank 0: which rank takes which block of a batch, in which order gradients are applied,
 * and who waits so that none is staler than it may be. No memory is allocated after open; nothing here
 * waits.
 *
 * Blocks are numbered over the run: block b is of step b / ranks the rows of rank b % ranks. Whoever has
 * done one takes the next that is left, so a slow rank does fewer. A rank holds the one that it computes, and
 * while many are left one more, which its loader reads meanwhile. */
#ifndef KOLO_EXEC_ASYNC_ORDER_H
#define KOLO_EXEC_ASYNC_ORDER_H

#include <stdbool.h>
#include <stdint.h>

enum { ASYNC_BLOCKS = 2 }; /* most that a rank holds */

typedef struct async_rank {
    int held;      /* blocks that it was given and has not pushed */
    bool computes; /* with the weights after `pulled` updates */
    bool begins;   /* wants to: since `since` */
    bool pushes;   /* its gradients are there */
    int64_t pulled, since;
    double began, pace; /* when it began to compute; seconds that it takes for a block, 0: not known yet */
} async_rank;

typedef struct async_order {
    int ranks;
    int64_t bound; /* most updates between a rank's pull and its push; 0: any number */
    int64_t next, end;
    int64_t updates; /* so far in the run: gradients in their order */
    int64_t asked;
    async_rank *of; /* [ranks] */
} async_order;

int async_order_create(async_order *order, int ranks, int64_t bound);
void async_order_destroy(async_order *order);
/* Blocks [first, end) are to be done; all before are. */
void async_order_open(async_order *order, int64_t first, int64_t end);
/* All are done. */
/* Blocks for a rank, into block[ASYNC_BLOCKS]; their number, 0: it has as many as it gets. A rank that holds
 * none and gets none is done: others are through with what is left before it would be with one. */
int async_order_give(async_order *order, int rank, int64_t *block);
/* The rank has blocks and the newest weights: may it begin with one now? Then it has begun. Whoever asked
 * before goes first. */
void async_order_ask(async_order *order, int rank);
bool async_order_begin(async_order *order, int rank, double now);
/* Its gradients are there: may they be applied now? Then *update is their number, and *staleness how many
 * updates their weights lack; it computes no more. */
bool async_order_push(async_order *order, int rank, double now, int64_t *update, int64_t *staleness);

#endif
