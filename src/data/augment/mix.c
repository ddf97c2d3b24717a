#include "data/augment/mix.h"

#include <math.h>

#include "base/wide.h"

/* (0, 1), never an end of it */
static double open_uniform(kolo_random *random) { return (kolo_random_u32(random) + 0.5) * 0x1p-32; }

/* alpha <= 1/2, Johnk's method: X = U^(1/alpha), Y = V^(1/alpha), X / (X + Y) if X + Y <= 1. In logarithms,
 * because a small alpha makes both too small for a double. */
static double beta_by_rejection(kolo_random *random, double alpha)
{
    for (;;) {
        const double x = log(open_uniform(random)) / alpha, y = log(open_uniform(random)) / alpha;
        const double most = x > y ? x : y, sum = most + log(exp(x - most) + exp(y - most));
        if (sum <= 0) return exp(x - sum);
    }
}

/* alpha > 1/2: 2 B - 1 is distributed as one coordinate of a direction in 2 alpha + 1 dimensions, so as the
 * cosine of a random angle times the radius of a plane projection (Ulrich's method; Devroye, Non-Uniform
 * Random Variate Generation, IX.4). */
double kolo_random_beta(kolo_random *random, double alpha)
{
    if (alpha <= 0.5) return beta_by_rejection(random, alpha);
    const double radius = sqrt(1 - pow(open_uniform(random), 2 / (2 * alpha - 1)));
    return 0.5 + 0.5 * radius * cos(2 * M_PI * open_uniform(random));
}

void kolo_mix_blend(kolo_mix *mix, double lambda)
{
    *mix = (kolo_mix){.kind = KOLO_MIX_UP, .weight = (float)(nearbyint(lambda * 32768) / 32768)};
}

void kolo_mix_box(kolo_mix *mix, double lambda, int y, int x, int height, int width)
{
    const double half = 0.5 * sqrt(1 - lambda);
    const int down = (int)(half * height), across = (int)(half * width);
    *mix = (kolo_mix){
        .kind = KOLO_MIX_CUT, .top = y - down, .left = x - across, .bottom = y + down, .right = x + across};
    if (mix->top < 0) mix->top = 0;
    if (mix->left < 0) mix->left = 0;
    if (mix->bottom > height) mix->bottom = height;
    if (mix->right > width) mix->right = width;
    mix->weight =
        (float)(1 - (double)(mix->bottom - mix->top) * (mix->right - mix->left) / ((double)height * width));
}

void kolo_mix_draw(kolo_mix *mix, const kolo_mix_config *c, int height, int width, kolo_random *random)
{
    const bool mixes = kolo_random_uniform(random) < c->probability;
    const bool cuts = c->cutmix > 0 && (c->mixup <= 0 || kolo_random_uniform(random) < c->cutmix_share);
    *mix = (kolo_mix){.weight = 1};
    if (!mixes) return;
    const double lambda = kolo_random_beta(random, cuts ? c->cutmix : c->mixup);
    if (!cuts) {
        kolo_mix_blend(mix, lambda);
        return;
    }
    const int y = (int)kolo_random_below(random, (uint32_t)height),
              x = (int)kolo_random_below(random, (uint32_t)width);
    kolo_mix_box(mix, lambda, y, x, height, width);
}

KOLO_CLONES static void blend(uint8_t *restrict a, uint8_t *restrict b, size_t bytes, int weight)
{
    for (size_t i = 0; i < bytes; i++) {
        const int share = ((a[i] - b[i]) * weight + (1 << 14)) >> 15, sum = a[i] + b[i];
        const int mixed = b[i] + share;
        a[i] = (uint8_t)mixed;
        b[i] = (uint8_t)(sum - mixed);
    }
}

static void exchange(uint8_t *restrict a, uint8_t *restrict b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const uint8_t keep = a[i];
        a[i] = b[i];
        b[i] = keep;
    }
}

void kolo_mix_apply(const kolo_mix *mix, uint8_t *a, uint8_t *b, int height, int width, int channels)
{
    const size_t row = (size_t)width * (size_t)channels;
    if (mix->kind == KOLO_MIX_UP) blend(a, b, row * (size_t)height, (int)(mix->weight * 32768));
    if (mix->kind != KOLO_MIX_CUT || mix->right <= mix->left) return;
    for (int y = mix->top; y < mix->bottom; y++) {
        const size_t at = (size_t)y * row + (size_t)mix->left * (size_t)channels;
        exchange(a + at, b + at, (size_t)(mix->right - mix->left) * (size_t)channels);
    }
}
