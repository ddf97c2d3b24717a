/* The order in which an epoch shows its samples: a table of rules, each a function of (seed, epoch) and
 * of what its line says.
 *
 *   full              one permutation of all samples. Depends on nothing else.
 *   block:K[:W]   blocks of K consecutive samples are permuted, and W of them (default 64) are mixed at a
 *                 time. The blocks are dealt to lanes, groups of rows of the batch, at most W; each lane
 *                 mixes W / lanes blocks. So a rank reads whole blocks, and only those of its lanes. Depends
 *                 on the batch, and on repeat; not on ranks.
 *   local[:Q]         each node shows its own consecutive share of the samples, permuted anew in every epoch,
 *                     and for one epoch at a time a fraction Q (default 0) of other nodes' samples instead of
 *                     as many of its own. Depends on the batch, on repeat and on which rank is on which node:
 *                     a run that goes on with other nodes sees other batches.
 *
 * Every rule shows every sample once an epoch. */
#ifndef KOLO_DATA_ORDER_H
#define KOLO_DATA_ORDER_H

#include <stdint.h>

enum kolo_order_kind { KOLO_ORDER_FULL, KOLO_ORDER_BLOCK, KOLO_ORDER_LOCAL };

typedef struct kolo_order_rule {
    enum kolo_order_kind kind;
    int64_t block, window; /* samples; blocks, over all lanes */
    double exchange;       /* fraction */
} kolo_order_rule;

/* NULL or "": full. KOLO_ECONFIG: no such rule, or a number out of range. */
int kolo_order_parse(const char *text, kolo_order_rule *rule);

typedef struct kolo_order_config {
    kolo_order_rule rule;
    uint64_t seed;
    int64_t count; /* samples */
    int64_t rows;  /* samples of a global batch */
    int ranks;
    const int *node_of; /* [ranks] nodes numbered from 0; NULL: all on one. Used by kolo_order_create only */
} kolo_order_config;

typedef struct kolo_order kolo_order;

/* KOLO_ECONFIG: rows that the rule cannot divide. */
int kolo_order_create(kolo_order **order, const kolo_order_config *config);
void kolo_order_destroy(kolo_order **order);
/* to: [count], a permutation of 0 .. count-1. One caller at a time. */
void kolo_order_fill(kolo_order *order, int64_t epoch, int64_t *to);

/* block: the samples of the window that the lanes of rows [first, first + n) enter `ahead` windows after the
 * one that begins at `step`, ascending, in samples [kolo_order_window_most]; `filled` is that epoch's order.
 * The number of them; 0 if no window begins at this step. */
int64_t kolo_order_window(const kolo_order *order, const int64_t *filled, int64_t step, int64_t first,
                          int64_t n, int64_t ahead, int64_t *samples);
int64_t kolo_order_window_most(const kolo_order *order, int64_t n);

/* Rule local: the samples [*first, *last) that are at home on node `node`. */
void kolo_order_share(int64_t count, int ranks, const int *node_of, int node, int64_t *first, int64_t *last);

#endif
