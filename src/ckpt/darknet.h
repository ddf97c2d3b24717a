/* darknet's form of weights: no names, the numbers of one layer behind those of another. */
#ifndef KOLO_CKPT_DARKNET_H
#define KOLO_CKPT_DARKNET_H

#include "graph/graph.h"

/* The order in which darknet keeps a network's tensors: of each convolution, in the order of the graph, its
 * biases (the norm's, where one follows), the norm's weights, means, variances, then its own weights; of a
 * linear layer biases and weights. */
typedef struct darknet_order {
    int *tensor;  /* [tensors] of the graph */
    bool *begins; /* [tensors]: first of a layer */
    int tensors;
} darknet_order;

/* KOLO_ECONFIG: the network has something that this form cannot hold. The caller frees. */
int kolo_darknet_order(const kolo_graph *graph, darknet_order *order);
void kolo_darknet_order_free(darknet_order *order);

#endif
