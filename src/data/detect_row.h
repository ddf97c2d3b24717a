/* A row of a batch with boxes: images read, augmented (data/augment/detect.h), and their boxes as words of
 * its label (kolo_input of graph/graph.h). */
#ifndef KOLO_DATA_DETECT_ROW_H
#define KOLO_DATA_DETECT_ROW_H

#include "data/worker.h"

typedef struct kolo_detect_row kolo_detect_row; /* memory of one thread */

int kolo_detect_row_create(kolo_detect_row **row);
void kolo_detect_row_destroy(kolo_detect_row **row);
/* to: (height, width, 3); label: [recipe->config.words]. Of more boxes than it has room for the first
 * stay. */
int kolo_detect_row_make(kolo_detect_row *row, kolo_worker *worker, const kolo_recipe *recipe, int64_t pass,
                         int64_t sample, uint8_t *to, int32_t *label);

/* By the worker: the whole image of a sample, upright, RGB. */
int kolo_worker_fetch(kolo_worker *worker, int64_t sample, kolo_image *image);

#endif
