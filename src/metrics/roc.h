/* Verification: are two images of one person? Scores of pairs, what they are worth, and
 * the curve as an image. */
#ifndef KOLO_TRAIN_ROC_H
#define KOLO_TRAIN_ROC_H

#include <stdint.h>

typedef struct kolo_pair_scores {
    int64_t count;
    float *score;  /* [count] larger: more alike */
    uint8_t *same; /* [count] of one person */
    int32_t *fold; /* [count] 0, 1, ... */
} kolo_pair_scores;
int kolo_pair_scores_create(kolo_pair_scores *scores, int64_t count);
void kolo_pair_scores_free(kolo_pair_scores *scores);

typedef struct kolo_verification {
    int folds;
    /* mean over folds, and its standard error: from their spread (n - 1), of one fold's n
     * pairs sqrt(p (1 - p) / n) */
    double accuracy, error;
    /* equal error rate (between points of the curve); area; true acceptances at .01 false ones */
    double eer, auc, tar;
} kolo_verification;

/* LFW's protocol (Huang et al., UMass 07-49): each fold with the threshold that is best on the others. A
 * single fold takes the one that is best on `other` (its development set). KOLO_EINPUT: not both kinds of
 * pairs, one fold and no other. */
int kolo_roc_measure(const kolo_pair_scores *scores, const kolo_pair_scores *other,
                     kolo_verification *result);
/* An SVG file, or, where the path ends in .json, the points; whole or not at all. */
int kolo_roc_write(const char *path, const char *title, const kolo_pair_scores *scores,
                   const kolo_verification *measured);

#endif
