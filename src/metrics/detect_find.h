/* From what a detector puts out to boxes of the image. */
#ifndef KOLO_TRAIN_DETECT_FIND_H
#define KOLO_TRAIN_DETECT_FIND_H

#include "graph/graph.h"
#include "metrics/nms.h"

typedef struct kolo_found_list {
    kolo_found *found;
    int64_t count, capacity; /* the array is kept from image to image */
} kolo_found_list;

/* Of a class in an image, the surest. COCO's rule counts as many; a network that was just begun finds every
 * class in every cell. */
enum { KOLO_MOST_FOUND = 100 };

void kolo_found_free(kolo_found_list *list);

/* The boxes of one row, in pixels of the network's input: those of score >= conf, thinned out class by class
 * (kolo_nms), KOLO_MOST_FOUND of each. head: [graph->heads] canonical values (N, channels, h, w).
 * ops/detector.h says what a cell means. */
int kolo_detect_find(const kolo_graph *graph, const float *const *head, int64_t row, double conf, double nms,
                     kolo_found_list *list);

#endif
