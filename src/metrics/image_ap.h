/* Average precision of image labels: which of the scores that classes got are of samples that show them. Only
 * what is known of a sample counts, which with verified labels is the rule of Open Images' image-level
 * labels, and with labels of all classes that of scikit-learn's average_precision_score. */
#ifndef KOLO_METRICS_IMAGE_AP_H
#define KOLO_METRICS_IMAGE_AP_H

#include <stdbool.h>
#include <stdint.h>

typedef struct kolo_image_score { /* of a class in a sample where it is known whether it is shown */
    float score;
    int32_t cls; /* the class; ~class: the sample does not show it */
} kolo_image_score;
static inline bool kolo_image_score_positive(const kolo_image_score *s) { return s->cls >= 0; }
static inline int32_t kolo_image_score_class(const kolo_image_score *s)
{
    return s->cls < 0 ? ~s->cls : s->cls;
}

typedef struct kolo_image_ap {
    /* mean over classes with a positive; all scores as if they were one class's; 0: there is no positive */
    double map, micro;
    int64_t classes; /* with a positive */
    int64_t positives, negatives;
} kolo_image_ap;

/* AP = sum over falling thresholds n of (recall n - recall n-1) precision n; equal scores are one
 * threshold. NaN counts as the least score. score: [n], put in another order; ap: [classes], -1 where a
 * class has no positive, or NULL. */
int kolo_image_ap_form(kolo_image_ap *result, double *ap, kolo_image_score *score, int64_t n, int classes);

#endif
