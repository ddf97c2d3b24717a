/* What COCO's and VOC's rules share: both lists in order, class by class. */
#ifndef KOLO_TRAIN_AP_PARTS_H
#define KOLO_TRAIN_AP_PARTS_H

#include "metrics/ap.h"

typedef struct ap_lists {
    const kolo_ap_truth *truth;
    const kolo_ap_found *found;
    /* numbers in the lists: by class, image, order given; found: falling scores before that */
    int64_t *of_truth, *of_found;
    int64_t *first_truth, *first_found; /* [classes + 1] where each class begins in these */
} ap_lists;

/* Refuses what cannot be sorted. On error nothing is left to free. */
int ap_lists_make(ap_lists *lists, const kolo_ap_truth *truth, int64_t truths, const kolo_ap_found *found,
                  int64_t founds, int classes);
void ap_lists_free(ap_lists *lists);
/* Area under the envelope of n points, recalls rising; precision: changed. */
double ap_area_below(double *precision, const double *recall, int64_t n);
/* IoU of two boxes x y width height; with a crowd the part of `found` that lies in it. */
double ap_overlap(const double *found, const double *truth, bool crowd);

#endif
