/* What a checkpoint holds: every parameter and buffer, each optimizer state, and the averages, with
 * the name in the file and the place in this rank's arenas. The order is the graph's, so it does
 * not depend on the grid. */
#ifndef KOLO_CKPT_ITEMS_H
#define KOLO_CKPT_ITEMS_H

#include "ckpt/ckpt.h"

typedef struct item {
    char *name;        /* "momentum:conv1.weight"; owned */
    const char *which; /* as kolo_exec_set wants it */
    int tensor, stage; /* stage: of a pipeline, whose arena it is */
    enum kolo_arena arena;
    size_t offset; /* bytes in the arena */
    bool scalar;   /* one number of the tensor, not one an element */
    /* shape of what the item holds; of a tensor in slabs (graph.h) the whole of it: `tensor` is the first,
     * kolo_graph_next_slab has the others */
    kolo_tensor whole;
    bool slabs; /* elements of it are in several; not of a scalar */
} item;

/* Shape of what the item holds. */
static inline const kolo_tensor *kolo_item_tensor(const item *one) { return &one->whole; }

/* state: with optimizer states; ema: with averages (both: where the plan has them). */
int kolo_items_make(const kolo_plan *plan, bool state, bool ema, item **items, int *n);
void kolo_items_free(item **items, int n);

#endif
