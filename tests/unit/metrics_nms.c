/* Suppression by hand; figures of torchvision are a golden case. */
#include "metrics/nms.h"
#include "ops/boxes.h"
#include "tap.h"

static kolo_found at(double x, double width, double score, int cls)
{
    return (kolo_found){.box = {x, 0, x + width, 10}, .score = score, .cls = cls};
}

static double angle(const double *a) { return atan((a[2] - a[0]) / (a[3] - a[1])); }

/* What CIoU adds to DIoU, with `alpha` as it was (0: as it is). */
static double shape(const double *a, const double *b, double *alpha)
{
    double v = 4 / (M_PI * M_PI) * pow(angle(b) - angle(a), 2);
    if (*alpha == 0) *alpha = v / (1 - kolo_box_iou(a, b) + v);
    return *alpha * v;
}

static double value(enum kolo_overlap kind, const double *a, const double *b, double *alpha)
{
    if (kind != KOLO_OVERLAP_CIOU) return kolo_box_overlap(kind, a, b, NULL);
    return kolo_box_overlap(KOLO_OVERLAP_DIOU, a, b, NULL) - shape(a, b, alpha);
}

/* Each derivative of each kind beside a difference. */
static void check_gradient(enum kolo_overlap kind, const char *name)
{
    static const double pairs[][8] = {{0, 0, 10, 8, 3, 2, 14, 9},
                                      {3, 2, 9, 6, 1, 1, 14, 9},
                                      {0, 0, 10, 8, 20, 3, 25, 21},
                                      {5, 5, 6, 9, 5.5, 1, 9, 12}};
    double worst = 0;
    for (int p = 0; p < 4; p++) {
        double a[4], grad[4], side[2], alpha = 0, step = 1e-6;
        memcpy(a, pairs[p], sizeof a);
        const double *b = pairs[p] + 4;
        worst = fmax(worst, fabs(kolo_box_overlap(kind, a, b, grad) - value(kind, a, b, &alpha)));
        for (int k = 0; k < 4; k++) {
            for (int s = 0; s < 2; s++) {
                a[k] = pairs[p][k] + (s ? step : -step);
                side[s] = value(kind, a, b, &alpha);
            }
            a[k] = pairs[p][k];
            worst = fmax(worst, fabs((side[1] - side[0]) / (2 * step) - grad[k]));
        }
    }
    ok(worst < 1e-8, "the derivative of %s is that of its values (%.1g)", name, worst);
}

static void check_values(void)
{
    const double a[4] = {0, 0, 10, 8}, b[4] = {3, 2, 14, 9};
    const double iou = 42.0 / 115, far = 14 * 14 + 81, near = (3.5 * 3.5 + 1.5 * 1.5) / far;
    is_near(kolo_box_overlap(KOLO_OVERLAP_DIOU, a, b, NULL), iou - near, 1e-12, "DIoU by hand");
    const double v = 4 / (M_PI * M_PI) * pow(atan(11.0 / 7) - atan(10.0 / 8), 2);
    is_near(kolo_box_overlap(KOLO_OVERLAP_CIOU, a, b, NULL), iou - near - v * v / (1 - iou + v), 1e-12,
            "CIoU by hand");
    const double empty[4] = {3, 3, 3, 3};
    is_near(kolo_box_overlap(KOLO_OVERLAP_CIOU, empty, empty, NULL), 0, 0, "boxes of no area do not overlap");
}

/* What a network that was just begun finds: every class in every cell, nothing over anything else. If all met
 * all it would take minutes. */
static void check_many(void)
{
    enum { CELLS = 10647, CLASSES = 20, MOST = 100 };
    kolo_found *f = calloc(CELLS * CLASSES, sizeof *f);
    for (int i = 0; i < CELLS * CLASSES; i++) f[i] = at(20 * (i / CLASSES), 10, .25, i % CLASSES);
    const int64_t kept = kolo_nms(f, CELLS * CLASSES, .5, true, MOST);
    int64_t right = 0;
    for (int i = 0; i < kept && i < MOST * CLASSES; i++) right += f[i].place == i && f[i].cls == i % CLASSES;
    ok(kept == MOST * CLASSES && right == kept,
       "of %d boxes the first hundred of each class are kept, by falling score over all classes",
       CELLS * CLASSES);
    free(f);
}

int main(void)
{
    kolo_found f[5] = {at(0, 10, .5, 0), at(1, 10, .5, 0), at(40, 10, .9, 0), at(0, 10, .4, 1),
                       at(20, 10, .1, 0)};
    is_int(kolo_nms(f, 5, .5, true, 5), 4, "of two boxes of one class that lie over each other one is kept");
    ok(f[0].place == 2 && f[1].place == 0 && f[2].place == 3 && f[3].place == 4,
       "by falling score; of equal scores the first; another class is another matter");
    kolo_found g[3] = {at(0, 10, .5, 0), at(5, 10, .4, 0), at(0, 10, .3, 1)};
    is_int(kolo_nms(g, 3, 1.0 / 3, false, 3), 2,
           "an IoU of just the threshold is allowed; all together classes meet");
    is_int(kolo_nms(g, 0, .5, true, 9), 0, "of none none is kept");
    check_many();
    check_values();
    check_gradient(KOLO_OVERLAP_IOU, "IoU");
    check_gradient(KOLO_OVERLAP_GIOU, "GIoU");
    check_gradient(KOLO_OVERLAP_DIOU, "DIoU");
    check_gradient(KOLO_OVERLAP_CIOU, "CIoU");
    return done_testing();
}
