/* Single operations of adjust.h with a probability, after torchvision's transforms of the same name. */
#include "data/augment/augment.h"

#include <math.h>

static bool happens(kolo_random *random, double probability)
{
    return kolo_random_uniform(random) < (float)probability;
}

static double between(kolo_random *random, double low, double high)
{
    return low + (high - low) * (double)kolo_random_uniform(random);
}

/* brightness, contrast, saturation, hue: ColorJitter of torchvision's v2. In a random order. */
void kolo_augment_jitter(kolo_canvas *c, const double *p, kolo_random *random)
{
    int order[4] = {0, 1, 2, 3};
    double factor[4];
    for (int i = 3; i > 0; i--) {
        const uint32_t k = kolo_random_below(random, (uint32_t)i + 1);
        const int keep = order[i];
        order[i] = order[k];
        order[k] = keep;
    }
    for (int i = 0; i < 3; i++) factor[i] = between(random, p[i] < 1 ? 1 - p[i] : 0, 1 + p[i]);
    factor[3] = between(random, -p[3], p[3]);
    for (int i = 0; i < 4; i++) {
        if (p[order[i]] <= 0) continue;
        switch (order[i]) {
        case 0: kolo_adjust_brightness(c, (float)factor[0]); break;
        case 1: kolo_jitter_contrast(c, factor[1]); break;
        case 2: kolo_jitter_saturation(c, factor[2]); break;
        default: kolo_jitter_hue(c, (float)factor[3]);
        }
    }
}

void kolo_augment_grayscale(kolo_canvas *c, const double *p, kolo_random *random)
{
    if (happens(random, p[0])) kolo_adjust_grayscale(c);
}

static void blur(kolo_canvas *c, double sigma) { kolo_adjust_blur(c, sigma, (int)ceil(3 * sigma)); }

/* probability, sigma_min, sigma_max */
void kolo_augment_blur(kolo_canvas *c, const double *p, kolo_random *random)
{
    const bool yes = happens(random, p[0]);
    const double sigma = between(random, p[1], p[2]);
    if (yes) blur(c, sigma);
}

void kolo_augment_posterize(kolo_canvas *c, const double *p, kolo_random *random)
{
    if (happens(random, p[1])) kolo_adjust_posterize(c, (int)p[0]);
}

void kolo_augment_solarize(kolo_canvas *c, const double *p, kolo_random *random)
{
    if (happens(random, p[1])) kolo_adjust_solarize(c, p[0]);
}

void kolo_augment_equalize(kolo_canvas *c, const double *p, kolo_random *random)
{
    if (happens(random, p[0])) kolo_adjust_equalize(c);
}

void kolo_augment_autocontrast(kolo_canvas *c, const double *p, kolo_random *random)
{
    if (happens(random, p[0])) kolo_adjust_autocontrast(c);
}

void kolo_augment_sharpness(kolo_canvas *c, const double *p, kolo_random *random)
{
    if (happens(random, p[1])) kolo_adjust_sharpness(c, (float)p[0]);
}

/* One of three, without parameters: DeiT III (Touvron et al. 2022). */
void kolo_augment_three_augment(kolo_canvas *c, const double *p, kolo_random *random)
{
    const uint32_t which = kolo_random_below(random, 3);
    const double sigma = between(random, 0.1, 2);
    (void)p;
    if (which == 0) kolo_adjust_grayscale(c);
    else if (which == 1) kolo_adjust_solarize(c, 128);
    else blur(c, sigma);
}

static const uint8_t black[3];

void kolo_augment_rotate(kolo_canvas *c, const double *p, kolo_random *random)
{
    double m[6];
    kolo_matrix_rotate(m, between(random, -p[0], p[0]), c->height, c->width);
    kolo_adjust_affine(c, m, false, black);
}

/* degrees, translate, scale_min, scale_max, shear_x, shear_y */
static void affine(kolo_canvas *c, const double *p, kolo_random *random)
{
    kolo_affine a = {.center_x = c->width * 0.5, .center_y = c->height * 0.5};
    double m[6];
    a.degrees = between(random, -p[0], p[0]);
    a.right = nearbyint(between(random, -p[1], p[1]) * c->width);
    a.down = nearbyint(between(random, -p[1], p[1]) * c->height);
    a.scale = between(random, p[2], p[3]);
    a.shear_x = between(random, -p[4], p[4]);
    a.shear_y = between(random, -p[5], p[5]);
    kolo_matrix_affine(m, &a);
    kolo_adjust_affine(c, m, false, black);
}

void kolo_augment_affine(kolo_canvas *c, const double *p, kolo_random *random) { affine(c, p, random); }

void kolo_augment_translate(kolo_canvas *c, const double *p, kolo_random *random)
{
    affine(c, (double[]){0, p[0], 1, 1, 0, 0}, random);
}

void kolo_augment_shear(kolo_canvas *c, const double *p, kolo_random *random)
{
    affine(c, (double[]){0, 0, 1, 1, p[0], p[1]}, random);
}
