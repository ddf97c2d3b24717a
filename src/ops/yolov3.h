/* The arithmetic of YOLOv3's loss for one anchor of one cell (Redmon & Farhadi 2018, arXiv:1804.02767, as
 * darknet trains it), shared by C and CUDA. A true box is class, centre x, y, width, height in pixels; an
 * anchor's channels are x, y, w, h, object, classes, raw. */
#ifndef KOLO_OPS_YOLOV3_H
#define KOLO_OPS_YOLOV3_H

#include "graph/graph.h"
#include "ops/target.h"
#include "ops/yolox.h"

/* An anchor that lies over some box more than this is no background. */
#define KOLO_YOLOV3_IGNORE 0.7

/* Corners of what cell (column, row) says; anchor: width, height in pixels. */
KOLO_INLINE void kolo_yolov3_decode(const double *raw, int64_t column, int64_t row, int64_t stride,
                                    const float *anchor, double *corner)
{
    const double s = (double)stride;
    const double box[4] = {(kolo_sigmoid(raw[0]) + (double)column) * s,
                           (kolo_sigmoid(raw[1]) + (double)row) * s, exp(raw[2]) * (double)anchor[0],
                           exp(raw[3]) * (double)anchor[1]};
    kolo_box_corners(box, corner);
}

/* The anchor whose shape is most like the box's; of equal ones the first. */
KOLO_INLINE int kolo_yolov3_anchor(const double *box, const float anchor[9][2])
{
    int best = 0;
    double most = -1;
    for (int i = 0; i < 9; i++) {
        const double w = (double)anchor[i][0], h = (double)anchor[i][1];
        const double inter = kolo_min(w, box[2]) * kolo_min(h, box[3]),
                     iou = inter / (w * h + box[2] * box[3] - inter);
        if (iou > most) most = iou, best = i;
    }
    return best;
}

/* A true box, and where it belongs: to the anchor most like it, in the cell with its centre, of every head
 * that has this anchor (as in darknet, where each layer looks for itself). */
typedef struct kolo_yolov3_target {
    double box[4], corner[4];
    int32_t cls;
    int32_t place[KOLO_MAX_HEADS]; /* 3 x cell + number among the head's anchors; -1: in none of this head */
    bool last[KOLO_MAX_HEADS];     /* no later box belongs there */
} kolo_yolov3_target;

KOLO_INLINE int64_t kolo_yolov3_cell(double at, int64_t stride, int64_t cells)
{
    const double cell = floor(at / (double)stride);
    return cell < 0 ? 0 : cell >= (double)cells ? cells - 1 : (int64_t)cell;
}

/* mask: the head's anchors */
KOLO_INLINE int32_t kolo_yolov3_place(const double *box, const float anchor[9][2], const int32_t mask[3],
                                      int64_t stride, int64_t height, int64_t width)
{
    const int best = kolo_yolov3_anchor(box, anchor);
    for (int k = 0; k < 3; k++)
        if (mask[k] == best)
            return (int32_t)(3 * (kolo_yolov3_cell(box[1], stride, height) * width +
                                  kolo_yolov3_cell(box[0], stride, width)) +
                             k);
    return -1;
}

/* Of boxes that meet in one anchor the last gives the place; t: of a row, all placed. */
KOLO_INLINE void kolo_yolov3_find_last(kolo_yolov3_target *t, int count, int g, int heads)
{
    for (int h = 0; h < heads; h++) {
        t[g].last[h] = t[g].place[h] >= 0;
        for (int i = g + 1; i < count; i++) t[g].last[h] = t[g].last[h] && t[i].place[h] != t[g].place[h];
    }
}

/* Its classes are those of all of them. */
KOLO_INLINE bool kolo_yolov3_has_class(const kolo_yolov3_target *t, int count, int head, int32_t place,
                                       int64_t cls)
{
    for (int g = 0; g < count; g++)
        if (t[g].cls == cls && t[g].place[head] == place) return true;
    return false;
}

/* 1: object, 0: background, -1: neither; most: that the anchor lies over a box; 1 where it
 * lies mostly in a crowd */
KOLO_INLINE int kolo_yolov3_kind(bool owned, double most)
{
    return owned ? 1 : most > KOLO_YOLOV3_IGNORE ? -1 : 0;
}

/* Cross entropies of x and y, half squares of w and h, times 2 - w h (parts of the image), so that small
 * boxes count more; and (grad: may be NULL) the derivative by the raw numbers. */
KOLO_INLINE double kolo_yolov3_box_loss(const double *raw, int64_t column, int64_t row, int64_t stride,
                                        const float *anchor, const double *box, double pixels, double *grad)
{
    const double weight = 2 - box[2] * box[3] / pixels, s = (double)stride;
    double sum = 0;
    for (int k = 0; k < 2; k++) {
        const double goal = box[k] / s - (double)(k ? row : column);
        const double far = raw[2 + k] - log(box[2 + k] / (double)anchor[k]);
        sum += kolo_bce1(raw[k], goal) + far * far / 2;
        if (grad) grad[k] = weight * (kolo_sigmoid(raw[k]) - goal);
        if (grad) grad[2 + k] = weight * far;
    }
    return weight * sum;
}

#endif
