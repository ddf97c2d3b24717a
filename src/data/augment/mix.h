/* mixup and CutMix: two images of a batch into each other, with both labels and their weights. */
#ifndef KOLO_DATA_AUGMENT_MIX_H
#define KOLO_DATA_AUGMENT_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/philox.h"

typedef struct kolo_mix_config {
    double mixup, cutmix; /* alpha of Beta(alpha, alpha); 0: off */
    double probability;   /* that a draw mixes at all */
    double cutmix_share;  /* where both are on: of the draws that mix, how many are CutMix */
    bool by_pair;         /* one draw a pair; else one a batch */
} kolo_mix_config;

enum kolo_mix_kind { KOLO_MIX_NONE, KOLO_MIX_UP, KOLO_MIX_CUT };

typedef struct kolo_mix {
    enum kolo_mix_kind kind;
    float weight;                 /* of an image's own label; 1 - weight is the other's */
    int top, left, bottom, right; /* CutMix: the box that is exchanged, bottom and right not in it */
} kolo_mix;

static inline bool kolo_mix_wanted(const kolo_mix_config *c) { return c->mixup > 0 || c->cutmix > 0; }

/* What happens to one pair, or to all pairs of a batch. */
void kolo_mix_draw(kolo_mix *mix, const kolo_mix_config *config, int height, int width, kolo_random *random);
/* CutMix about (y, x): half sides floor(sqrt(1 - lambda) / 2 * side), clipped; the weight is what is left of
 * the area (Yun et al. 2019, torchvision's form). */
void kolo_mix_box(kolo_mix *mix, double lambda, int y, int x, int height, int width);
/* mixup by lambda, rounded to the 2^-15 that the pixels are mixed with. */
void kolo_mix_blend(kolo_mix *mix, double lambda);
/* a := mixed with b, and b := mixed with a; both (height, width, channels). */
void kolo_mix_apply(const kolo_mix *mix, uint8_t *a, uint8_t *b, int height, int width, int channels);

/* A number of Beta(alpha, alpha), alpha > 0. */
double kolo_random_beta(kolo_random *random, double alpha);

#endif
