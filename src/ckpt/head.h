#ifndef KOLO_CKPT_HEAD_H
#define KOLO_CKPT_HEAD_H

#include "graph/graph.h"

/* Which parameters make the result: those of layers behind which no other layer has parameters (a classifier;
 * a detector's predictions). head: [graph->tensors], set. */
int kolo_graph_head(const kolo_graph *graph, bool *head);

#endif
