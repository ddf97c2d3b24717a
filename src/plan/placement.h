/* Placement: which stage of a pipeline computes which operation. The network is a chain of parts in the order
 * of its forward operations; part q is chunk q / stages of stage q % stages. An operation of the backward
 * half is where the forward one is whose gradient it forms, so what belongs to a parameter (its gradient, the
 * optimizer's state, running statistics) is on one stage. Placement changes no bit of what is computed. */
#ifndef KOLO_PLAN_PLACEMENT_H
#define KOLO_PLAN_PLACEMENT_H

#include "graph/graph.h"
#include "plan/order.h"

typedef struct kolo_placement {
    int stages, chunks; /* of every stage */
    /* of these stages so many, side by side, do the same layers, each for its share of the parts that maps
     * are cut into (graph/split.c); 1: nothing is cut so */
    int across;
    enum kolo_pipeline order;
    int *part; /* [graph->nodes] */
    /* [graph->tensors] part that makes the tensor, or has the parameter or buffer; 0: nobody reads it */
    int *owner;
} kolo_placement;

static inline int kolo_placement_stage(const kolo_placement *p, int part) { return part % p->stages; }
static inline int kolo_placement_chunk(const kolo_placement *p, int part) { return part / p->stages; }
/* The part of the chain that a part of the placement is of: the same for those side by side. */
static inline int kolo_placement_link(const kolo_placement *p, int part)
{
    return part / p->stages * (p->stages / p->across) + part % p->stages / p->across;
}

/* Forward operations of the graph: they come first. */
int64_t kolo_graph_forward_nodes(const kolo_graph *graph);
/* May the chain be cut behind each forward operation? No, where what crosses belongs together: partial sums,
 * a parameter and its gradient. allowed, crossing: [kolo_graph_forward_nodes]; crossing: bytes of tensors of
 * tensor_bytes[graph->tensors] that lie on both sides, forward and backward. */
int kolo_placement_cuts(const kolo_graph *graph, const size_t *tensor_bytes, bool *allowed, double *crossing);

/* The chain has stages / across * chunks parts. cut: one less, ascending; part q ends behind forward
 * operation cut[q]. KOLO_ECONFIG: a cut that is not allowed, named. */
int kolo_placement_create(kolo_placement **placement, const kolo_graph *graph, int stages, int chunks,
                          int across, enum kolo_pipeline order, const int *cut);
/* The same stages for another graph of the network, its evaluation or a training on images of another size:
 * parameters are where `of` has them. */
int kolo_placement_like(kolo_placement **placement, const kolo_graph *graph, const kolo_graph *of,
                        const kolo_placement *like);
void kolo_placement_destroy(kolo_placement **placement);

#endif
