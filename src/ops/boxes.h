/* How far two boxes lie over each other, and the derivative of it: small functions that C and CUDA share.
 * A box is x0 y0 x1 y1 with x0 <= x1, y0 <= y1, in any unit. In double: what is small is then the
 * difference, not the rounding.
 *
 *   IoU = inter / union
 *   GIoU = IoU - (hull - union) / hull                  Rezatofighi et al. 2019
 *   DIoU = IoU - (distance of centres / diagonal of the hull)^2      Zheng et al. 2020
 *   CIoU = DIoU - alpha v, v = (2 (atan(w'/h') - atan(w/h)) / pi)^2, alpha = v / (1 - IoU + v), a constant
 *       for the derivative */
#ifndef KOLO_OPS_BOXES_H
#define KOLO_OPS_BOXES_H

#include <math.h>

#include "graph/graph.h"
#include "ops/element.h"

KOLO_INLINE double kolo_sigmoid(double x) { return 1 / (1 + exp(-x)); }

KOLO_INLINE double kolo_min(double a, double b) { return a < b ? a : b; }
KOLO_INLINE double kolo_max(double a, double b) { return a > b ? a : b; }

KOLO_INLINE double kolo_box_area(const double *a) { return (a[2] - a[0]) * (a[3] - a[1]); }

KOLO_INLINE double kolo_box_intersection(const double *a, const double *b)
{
    double w = kolo_min(a[2], b[2]) - kolo_max(a[0], b[0]), h = kolo_min(a[3], b[3]) - kolo_max(a[1], b[1]);
    return w > 0 && h > 0 ? w * h : 0;
}

/* 0 where both are empty. */
KOLO_INLINE double kolo_box_iou(const double *a, const double *b)
{
    double inter = kolo_box_intersection(a, b), both = kolo_box_area(a) + kolo_box_area(b) - inter;
    return both > 0 ? inter / both : 0;
}

/* Derivative of max(a, b) with respect to a; half where they are equal, as automatic differentiation has
 * it. */
KOLO_INLINE double kolo_takes(double a, double b) { return a > b ? 1 : a < b ? 0 : 0.5; }

/* An overlap on its way: its parts, and (grad) their derivatives by a's four numbers. */
typedef struct kolo_overlap_parts {
    double inter, both, iou, d_area[4], d_inter[4], d_both[4], d_iou[4];
} kolo_overlap_parts;

KOLO_INLINE void kolo_overlap_iou(kolo_overlap_parts *p, const double *a, const double *b)
{
    double w = kolo_min(a[2], b[2]) - kolo_max(a[0], b[0]), h = kolo_min(a[3], b[3]) - kolo_max(a[1], b[1]);
    bool meets = w > 0 && h > 0;
    p->inter = meets ? w * h : 0;
    p->both = kolo_box_area(a) + kolo_box_area(b) - p->inter;
    p->iou = p->both > 0 ? p->inter / p->both : 0;
    for (int k = 0; k < 4; k++) {
        double sign = k < 2 ? -1 : 1;
        double side = k % 2 ? w : h, across = k % 2 ? a[2] - a[0] : a[3] - a[1];
        double part = k < 2 ? kolo_takes(a[k], b[k]) : kolo_takes(b[k], a[k]);
        p->d_area[k] = sign * across;
        p->d_inter[k] = meets ? sign * side * part : 0;
        p->d_both[k] = p->d_area[k] - p->d_inter[k];
        p->d_iou[k] = p->both > 0 ? (p->d_inter[k] - p->iou * p->d_both[k]) / p->both : 0;
    }
}

/* Upright box round both, and the derivative of its sides' lengths: of width by a[0] and a[2], of
 * height by a[1] and a[3]. */
KOLO_INLINE void kolo_overlap_hull(const double *a, const double *b, double *w, double *h, double *d_side)
{
    *w = kolo_max(a[2], b[2]) - kolo_min(a[0], b[0]);
    *h = kolo_max(a[3], b[3]) - kolo_min(a[1], b[1]);
    for (int k = 0; k < 4; k++) d_side[k] = k < 2 ? -kolo_takes(b[k], a[k]) : kolo_takes(a[k], b[k]);
}

/* Overlap of a with b; grad (may be NULL): [4], its derivative by a's numbers. */
KOLO_INLINE double kolo_box_overlap(enum kolo_overlap kind, const double *a, const double *b, double *grad)
{
    kolo_overlap_parts p;
    double w, h, d_side[4], value, d[4];
    kolo_overlap_iou(&p, a, b);
    value = p.iou;
    for (int k = 0; k < 4; k++) d[k] = p.d_iou[k];
    kolo_overlap_hull(a, b, &w, &h, d_side);
    double hull = w * h, far = w * w + h * h;
    if (kind == KOLO_OVERLAP_GIOU && hull > 0) {
        value -= 1 - p.both / hull;
        for (int k = 0; k < 4; k++)
            d[k] += (p.d_both[k] - p.both / hull * d_side[k] * (k % 2 ? w : h)) / hull;
    }
    if (kind >= KOLO_OVERLAP_DIOU && far > 0) {
        double x = (a[0] + a[2] - b[0] - b[2]) / 2, y = (a[1] + a[3] - b[1] - b[3]) / 2;
        double near = (x * x + y * y) / far;
        value -= near;
        for (int k = 0; k < 4; k++) d[k] -= ((k % 2 ? y : x) - near * 2 * (k % 2 ? h : w) * d_side[k]) / far;
    }
    if (kind == KOLO_OVERLAP_CIOU) {
        const double four_by_square = 0.40528473456935108578; /* 4 / pi^2 */
        double aw = a[2] - a[0], ah = a[3] - a[1];
        double angle = atan2(b[2] - b[0], b[3] - b[1]) - atan2(aw, ah);
        double v = four_by_square * angle * angle, alpha = v > 0 ? v / (1 - p.iou + v) : 0;
        double by_angle = -2 * four_by_square * angle, square = aw * aw + ah * ah; /* dv by a's own angle */
        value -= alpha * v;
        for (int k = 0; square > 0 && k < 4; k++)
            d[k] -= alpha * by_angle * (k % 2 ? -aw : ah) / square * (k < 2 ? -1 : 1);
    }
    for (int k = 0; grad && k < 4; k++) grad[k] = d[k];
    return value;
}

#endif
