/* Non-maximum suppression, as torchvision.ops.nms and batched_nms do it: by falling score, a box is left out
 * if its IoU with one that was kept is above the threshold. */
#ifndef KOLO_TRAIN_NMS_H
#define KOLO_TRAIN_NMS_H

#include <stdbool.h>
#include <stdint.h>

/* One box that a network found. */
typedef struct kolo_found {
    double box[4]; /* x0 y0 x1 y1 */
    double score;  /* a number */
    int32_t cls;
    int32_t place; /* in the list that was given to kolo_nms; set by it */
} kolo_found;

/* Keeps what is left in front, by falling score (equal scores in the order given), and returns how many these
 * are. by_class: boxes of different classes do not meet. most: so many at most, of each class if by_class;
 * the time is count x most. */
int64_t kolo_nms(kolo_found *found, int64_t count, double threshold, bool by_class, int64_t most);

#endif
