/* Average precision and recall of boxes: COCO's twelve numbers as pycocotools 2 computes them (evaluation of
 * "bbox"), and Pascal VOC's and Open Images'. Boxes are x y width height in pixels of the source image, 0
 * at its left and upper border. (Where VOC counts whole pixels from 1, both ends included, a box is xmin - 1,
 * ymin - 1, xmax - xmin + 1, ymax - ymin + 1: overlaps are then the devkit's.) */
#ifndef KOLO_TRAIN_AP_H
#define KOLO_TRAIN_AP_H

#include <stdbool.h>
#include <stdint.h>

#include "metrics/hierarchy.h"

typedef struct kolo_ap_truth {
    int64_t image; /* any number; images are gone through by rising numbers, as pycocotools does */
    int32_t cls;
    /* many objects in one box: COCO's iscrowd, any number of results may lie in it; Open Images'
     * IsGroupOf, one is asked for */
    bool crowd;
    bool ignore; /* neither to be found nor wrong (VOC's difficult); crowds are so anyway */
    double box[4];
    double area; /* of the object, for COCO's sizes */
} kolo_ap_truth;

typedef struct kolo_ap_found {
    int64_t image;
    int32_t cls;
    double box[4], score;
} kolo_ap_found;

/* .5:.05:.95; all small medium large; 1 10 100 an image */
enum { KOLO_AP_IOUS = 10, KOLO_AP_AREAS = 4, KOLO_AP_COUNTS = 3 };

typedef struct kolo_ap_class {
    double ap[KOLO_AP_AREAS][KOLO_AP_IOUS];                 /* at 100 an image; -1: no truth counts */
    double ar[KOLO_AP_AREAS][KOLO_AP_COUNTS][KOLO_AP_IOUS]; /* likewise */
} kolo_ap_class;

typedef struct kolo_ap {
    /* AP AP50 AP75 APsmall APmedium APlarge AR1 AR10 AR100 ARsmall ARmedium ARlarge; -1: nothing counts */
    double line[12];
    int classes;
    kolo_ap_class *cls; /* [classes] */
} kolo_ap;

/* Equal scores keep the order given (within an image), then that of images. The lists are left as they
 * are. KOLO_ENOMEM: no memory; KOLO_EINPUT: a class out of range, or a number that is not finite. */
int kolo_ap_coco(kolo_ap *ap, const kolo_ap_truth *truth, int64_t truths, const kolo_ap_found *found,
                 int64_t founds, int classes);
void kolo_ap_free(kolo_ap *ap);
/* A line as pycocotools prints it:
 * " Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.293" */
void kolo_ap_text(const kolo_ap *ap, int line, char *text, int64_t size);

/* VOC's AP of each class at one IoU (the devkit's .5): ap[classes], -1 where no truth counts. eleven: the
 * mean of the best precision at recalls 0, .1 .. 1 (to 2009); else the area under the envelope (from 2010
 * on). *mean: over classes with truth. */
int kolo_ap_voc(double *ap, double *mean, const kolo_ap_truth *truth, int64_t truths,
                const kolo_ap_found *found, int64_t founds, int classes, double iou, bool eleven);

/* What people have looked for in an image: is the class there? */
typedef struct kolo_ap_verified {
    int64_t image;
    int32_t cls;
    bool positive;
} kolo_ap_verified;

/* Open Images Challenge's AP of each class at one IoU (.5), as the Object Detection API's
 * OpenImagesDetectionChallengeEvaluator forms it: results of classes that nobody has verified in their
 * image (neither a box nor `verified` has them) do not count; a result takes the true box that it lies over
 * most, of those that are no group, once; one that takes none and of which at least `iou` lies in a group
 * belongs to that: of each group's the surest is right, the others do not count. A group that has none was
 * missed. The area under the envelope is taken, as VOC's of 2010. hierarchy: NULL, or with it a true box, a
 * result and a positive also count for every class that theirs is a kind of, and a negative for every kind of
 * its class. verified: [n] */
int kolo_ap_openimages(double *ap, double *mean, const kolo_ap_truth *truth, int64_t truths,
                       const kolo_ap_found *found, int64_t founds, const kolo_ap_verified *verified,
                       int64_t n, const kolo_hierarchy *hierarchy, int classes, double iou);

/* COCO's results file: [{"image_id", "category_id", "bbox": [x, y, w, h], "score"}, ...], whole or not at
 * all. Numbers are written so that they read back as kolo_ap_round() leaves them. category: [classes] ids. */
int kolo_ap_write(const char *path, const kolo_ap_found *found, int64_t founds, const int64_t *category);
/* To what files hold: a box to hundredths of a pixel, a score to millionths; the number
 * nearest to that decimal. */
void kolo_ap_round(double box[4], double *score);

#endif
