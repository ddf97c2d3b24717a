/* Which maps of a graph have their channels cut, and which operations how (channels.c); the pass that does it
 * is split_channels.c. */
#ifndef KOLO_GRAPH_CHANNELS_H
#define KOLO_GRAPH_CHANNELS_H

#include "graph/graph.h"

enum kolo_channel_role {
    KOLO_CHANNEL_WHOLE,   /* it is not cut */
    KOLO_CHANNEL_INSIDE,  /* maps in parts to maps in parts: every part by itself */
    KOLO_CHANNEL_COLUMNS, /* a product of a whole map: every part makes its own channels */
    KOLO_CHANNEL_ROWS,    /* a product of a map in parts: what they make is added */
    KOLO_CHANNEL_CLASSES, /* a loss of classes in parts */
};

typedef struct kolo_channel_plan {
    int parts;
    /* [tensors] of a map in parts: runs of channels, each of which is cut; else 0 */
    int *runs;
    char *role;      /* [nodes] enum kolo_channel_role */
    int regions;     /* that are cut */
    char uncut[256]; /* what is not for its number of channels, groups or heads */
} kolo_channel_plan;

/* Of nodes first .. last - 1; the others stay as they are. Maps that are made in front of these and read by
 * them may be cut where they are read (kolo_channel_is_border). */
int kolo_channel_plan_create(kolo_channel_plan *plan, const kolo_graph *g, int parts, int64_t first,
                             int64_t last);
/* Tensor t is made in front of node `first`, and its channels are cut behind it. */
static inline bool kolo_channel_is_border(const kolo_channel_plan *plan, const kolo_graph *g, int64_t first,
                                          int64_t t)
{
    return plan->runs[t] && g->tensor[t].producer < first;
}
void kolo_channel_plan_free(kolo_channel_plan *plan);

#endif
