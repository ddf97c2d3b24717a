/* What one detector has otherwise than another, beside its loss: a row of detectors.def each. Finding
 * boxes, fitting images in and training read that row. */
#ifndef KOLO_OPS_DETECTOR_H
#define KOLO_OPS_DETECTOR_H

#include "graph/graph.h"

typedef struct kolo_detector {
    const char *name;
    /* corners, in pixels of the input, of what cell (column, row) says with the raw numbers x, y, w, h;
     * anchor: width, height, of kinds that have some */
    void (*decode)(const double *raw, int64_t column, int64_t row, int64_t stride, const float *anchor,
                   double *corner);
    /* an anchor stands for each class that is likely enough; else for its likeliest alone */
    bool every_class;
    bool centered; /* an image is fitted into the middle of the input, else into its corner */
    int fill;      /* of what it does not cover */
    bool l1;       /* its loss has a term that is for the last epochs, those without mosaics */
} kolo_detector;

/* NULL: none of this name, or no name. */
const kolo_detector *kolo_detector_find(const char *name);

#endif
