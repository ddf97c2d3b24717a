/* What an evaluation found of every class, as an event of the run tells it. */
#ifndef KOLO_TRAIN_BY_CLASS_H
#define KOLO_TRAIN_BY_CLASS_H

#include "report/report.h"
#include "train/session.h"

/* A box that a detector found in one of the images that stand as examples. */
typedef struct kolo_example {
    int64_t sample;
    double box[4], score; /* box: x0 y0 x1 y1, pixels of the stored image */
    int64_t cls;
} kolo_example;

typedef struct kolo_by_class {
    int64_t classes; /* 0: nothing was counted */
    int64_t *images; /* [classes] of a class; of a detector its boxes, of image labels those that show it */
    int64_t *right;  /* [classes] top-1; NULL: not counted by class */
    int64_t
        *answers;  /* [classes][classes] row: the label; column: the answer. NULL: no or too many classes */
    double *ap;    /* [classes] average precision, -1: none; NULL: counted by class */
    int64_t apart; /* of a detector: every so many-th sample is an example; 0: none is */
    kolo_example *example;
    int64_t examples, example_capacity;
} kolo_by_class;

/* Zeros; the arrays of a classifier, or (precisions) of a detector or of image labels. Freed by the
 * caller. */
int kolo_by_class_create(kolo_by_class *by, int64_t classes, bool precisions);
void kolo_by_class_free(kolo_by_class *by);
/* One image of a classifier. x: [classes] logits; of equal ones the first is the answer. */
void kolo_by_class_count(kolo_by_class *by, const float *x, int64_t label);
/* Adds up what the ranks counted. Collective. */
int kolo_by_class_sum(kolo_by_class *by, kolo_comm *comm);
/* An example: what was found in it. */
int kolo_by_class_keep(kolo_by_class *by, const kolo_example *example);
/* The events "classes" and, of a detector, "examples" (docs/reports.md); nothing where there are more
 * classes than an event holds. */
int kolo_by_class_report(const kolo_by_class *by, int64_t step, kolo_events *events);

#endif
