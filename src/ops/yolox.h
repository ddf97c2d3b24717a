/* The arithmetic of YOLOX's loss for one anchor (Ge et al. 2021, arXiv:2107.08430; SimOTA of its section 2
 * and of Ge et al., OTA), shared by C and CUDA. In double: costs are compared, and sums over all anchors are
 * small beside their terms.
 *
 * A true box is class, centre x, y, width, height in pixels; a head's channels are x, y, w, h,
 * object, classes, raw. */
#ifndef KOLO_OPS_YOLOX_H
#define KOLO_OPS_YOLOX_H

#include "ops/boxes.h"
#include "ops/target.h"

enum { KOLO_SIMOTA_MOST = 10 }; /* anchors that a truth may have, and overlaps that tell how many it gets */

/* log(1 + e^x) */
KOLO_INLINE double kolo_softplus(double x) { return (x > 0 ? x : 0) + log1p(exp(x > 0 ? -x : x)); }

/* Binary cross entropy of the logit x with a target in [0, 1]; its derivative is sigmoid(x) - target. */
KOLO_INLINE double kolo_bce1(double x, double target) { return kolo_softplus(x) - x * target; }

/* As torch's binary_cross_entropy bounds it. */
KOLO_INLINE double kolo_log_bounded(double p) { return kolo_max(log(p), -100); }

KOLO_INLINE void kolo_box_corners(const double *centre, double *corner)
{
    for (int k = 0; k < 2; k++) {
        corner[k] = centre[k] - centre[2 + k] / 2;
        corner[2 + k] = centre[k] + centre[2 + k] / 2;
    }
}

/* Whether more than half of a box lies in one of the regions first, first + step, ... <
 * last of a row's boxes. */
KOLO_INLINE bool kolo_box_in_crowd(const double *corner, const int32_t *label, int first, int last, int step)
{
    for (int g = first; g < last; g += step) {
        double box[4], region[4];
        kolo_label_box(label, g, box);
        kolo_box_corners(box, region);
        if (2 * kolo_box_intersection(corner, region) > kolo_box_area(corner)) return true;
    }
    return false;
}

/* Corners of what a cell (column, row) of a head of this stride says. */
KOLO_INLINE void kolo_yolox_decode(const double *raw, int64_t column, int64_t row, int64_t stride,
                                   double *corner)
{
    const double s = (double)stride;
    const double box[4] = {(raw[0] + (double)column) * s, (raw[1] + (double)row) * s, exp(raw[2]) * s,
                           exp(raw[3]) * s};
    kolo_box_corners(box, corner);
}

/* The raw numbers that say the box: what the L1 term compares with. */
KOLO_INLINE void kolo_yolox_encode(const double *box, int64_t column, int64_t row, int64_t stride,
                                   double *raw)
{
    const double s = (double)stride;
    raw[0] = box[0] / s - (double)column;
    raw[1] = box[1] / s - (double)row;
    raw[2] = log(box[2] / s + 1e-8);
    raw[3] = log(box[3] / s + 1e-8);
}

/* May this cell have an object (`candidate`), and this one (`inside`)? centre: its middle lies less than 1.5
 * strides from the truth's (YOLOX after 0.3.0); else a candidate lies in the box or less than 2.5 strides
 * from its middle, and both are asked of `inside` (0.3.0, and the paper). */
KOLO_INLINE void kolo_simota_place(bool centre, const double *box, double x, double y, int64_t stride,
                                   bool *candidate, bool *inside)
{
    const double far_x = fabs(x - box[0]), far_y = fabs(y - box[1]),
                 reach = (centre ? 1.5 : 2.5) * (double)stride;
    const bool near = far_x < reach && far_y < reach;
    const bool in = far_x < box[2] / 2 && far_y < box[3] / 2;
    *candidate = centre ? near : near || in;
    *inside = centre ? near : near && in;
}

/* Cost of giving an object to a cell: binary cross entropies of sqrt(p(class) p(object)) over all classes
 * (`others`: as if none were the object's), 3 (-log IoU), and a large number where the cell is not inside. */
KOLO_INLINE double kolo_simota_cost(bool centre, double others, double p, double iou, bool inside)
{
    const double cls = others + kolo_log_bounded(1 - p) - kolo_log_bounded(p);
    return cls - 3 * log(iou + 1e-8) + (inside ? 0 : centre ? 1e6 : 1e5);
}

/* 5 (1 - IoU^2), or of another overlap O 5 (1 - O), and (grad: may be NULL) its
 * derivative by the raw numbers. */
KOLO_INLINE double kolo_yolox_box_loss(enum kolo_overlap kind, const double *raw, int64_t column, int64_t row,
                                       int64_t stride, const double *truth, double *grad)
{
    double corner[4], goal[4], d[4];
    kolo_yolox_decode(raw, column, row, stride, corner);
    kolo_box_corners(truth, goal);
    const double over = kolo_box_overlap(kind, corner, goal, d);
    const bool square = kind == KOLO_OVERLAP_IOU;
    const double slope = square ? -10 * over : -5;
    for (int k = 0; grad && k < 2; k++) {
        grad[k] = slope * (d[k] + d[2 + k]) * (double)stride;
        grad[2 + k] = slope * (d[2 + k] - d[k]) / 2 * (corner[2 + k] - corner[k]);
    }
    return 5 * (1 - (square ? over * over : over));
}

#endif
