/* RandAugment (Cubuk et al. 2019) and TrivialAugment (Mueller and Hutter 2021): operations drawn from a
 * list, with a magnitude. Two definitions are in use and give different networks, so both are here
 * under their own names. */
#include "data/augment/augment.h"

#include <math.h>

enum operation {
    IDENTITY,
    SHEAR_X,
    SHEAR_Y,
    TRANSLATE_X,
    TRANSLATE_Y,
    ROTATE,
    BRIGHTNESS,
    COLOR,
    CONTRAST,
    SHARPNESS,
    POSTERIZE,
    SOLARIZE,
    AUTOCONTRAST,
    EQUALIZE,
    INVERT,
    SOLARIZE_ADD
};

/* amount: slope (shear), pixels (translate), degrees, factor, bits, threshold, or what is added */
static void change(kolo_canvas *c, enum operation operation, double amount, bool cubic, const uint8_t *fill)
{
    double m[6] = {1, 0, 0, 0, 1, 0};
    switch (operation) {
    case IDENTITY: return;
    case SHEAR_X: m[1] = amount; break;
    case SHEAR_Y: m[3] = amount; break;
    case TRANSLATE_X: m[2] = amount; break;
    case TRANSLATE_Y: m[5] = amount; break;
    case ROTATE: kolo_matrix_rotate(m, amount, c->height, c->width); break;
    case BRIGHTNESS: kolo_adjust_brightness(c, (float)amount); return;
    case COLOR: kolo_adjust_color(c, (float)amount); return;
    case CONTRAST: kolo_adjust_contrast(c, (float)amount); return;
    case SHARPNESS: kolo_adjust_sharpness(c, (float)amount); return;
    case POSTERIZE: kolo_adjust_posterize(c, (int)amount); return;
    case SOLARIZE: kolo_adjust_solarize(c, amount); return;
    case AUTOCONTRAST: kolo_adjust_autocontrast(c); return;
    case EQUALIZE: kolo_adjust_equalize(c); return;
    case INVERT: kolo_adjust_invert(c); return;
    case SOLARIZE_ADD: kolo_adjust_solarize_add(c, (int)amount, 128); return;
    }
    kolo_adjust_affine(c, m, cubic, fill);
}

/* ---- torchvision --------------------------------------------------------------------------------------- */

enum { BINS = 31, OPERATIONS = EQUALIZE + 1 };

/* What the largest magnitude means, for shear .. sharpness; translation in parts of 331 pixels, or in
 * pixels. */
typedef struct space {
    double shear, translate, degrees, factor;
    bool relative; /* translate is a part of the side */
    int bits;      /* that posterize takes away at most */
} space;

static const space rand_space = {0.3, 150.0 / 331.0, 30, 0.9, true, 4};
static const space trivial_space = {0.99, 32, 135, 0.99, false, 6};

/* Element `bin` of BINS numbers from 0 to high, as torch.linspace has them: in f32, from both ends, and the
 * last product and difference rounded once (so that the middle of 0 to 32 is 15.999999). */
static double spaced(double high, int bin)
{
    const float step = (float)high / (BINS - 1);
    return bin < BINS / 2 ? step * (float)bin
                          : (float)((double)(float)high - (double)step * (BINS - 1 - bin));
}

void kolo_rand_operation(kolo_canvas *c, bool wide, int operation, int bin, bool negative)
{
    static const uint8_t black[3];
    const space *s = wide ? &trivial_space : &rand_space;
    const double sign = negative ? -1 : 1;
    double amount = 0;
    switch (operation) {
    case SHEAR_X:
    case SHEAR_Y: amount = sign * spaced(s->shear, bin); break;
    case TRANSLATE_X:
        amount = -sign * trunc(spaced(s->relative ? s->translate * c->width : s->translate, bin));
        break;
    case TRANSLATE_Y:
        amount = -sign * trunc(spaced(s->relative ? s->translate * c->height : s->translate, bin));
        break;
    case ROTATE: amount = sign * spaced(s->degrees, bin); break;
    case BRIGHTNESS:
    case COLOR:
    case CONTRAST:
    case SHARPNESS: amount = 1 + sign * spaced(s->factor, bin); break;
    case POSTERIZE: amount = 8 - nearbyint((double)bin * s->bits / (BINS - 1)); break;
    case SOLARIZE: amount = spaced(255, BINS - 1 - bin); break;
    default: break;
    }
    change(c, operation, amount, false, black);
}

/* n, magnitude */
void kolo_augment_randaugment(kolo_canvas *c, const double *p, kolo_random *random)
{
    for (int i = 0; i < (int)p[0]; i++) {
        const int operation = (int)kolo_random_below(random, OPERATIONS);
        const bool negative = kolo_random_u32(random) >> 31;
        kolo_rand_operation(c, false, operation, (int)p[1], negative);
    }
}

void kolo_augment_trivialaugment(kolo_canvas *c, const double *p, kolo_random *random)
{
    const int operation = (int)kolo_random_below(random, OPERATIONS);
    const int bin = (int)kolo_random_below(random, BINS);
    const bool negative = kolo_random_u32(random) >> 31;
    (void)p;
    kolo_rand_operation(c, true, operation, bin, negative);
}

/* ---- timm ---------------------------------------------------------------------------------------------- */

static const enum operation increasing[] = {AUTOCONTRAST, EQUALIZE,     INVERT,  ROTATE,      POSTERIZE,
                                            SOLARIZE,     SOLARIZE_ADD, COLOR,   CONTRAST,    BRIGHTNESS,
                                            SHARPNESS,    SHEAR_X,      SHEAR_Y, TRANSLATE_X, TRANSLATE_Y};

/* What `level`, 0 to 1, means for an operation; `negative` where it has a sign. */
static double timm_amount(const kolo_canvas *c, enum operation operation, double level, bool negative)
{
    const double sign = negative ? -1 : 1;
    switch (operation) {
    case SHEAR_X:
    case SHEAR_Y: return sign * level * 0.3;
    case TRANSLATE_X: return sign * level * 0.45 * c->width;
    case TRANSLATE_Y: return sign * level * 0.45 * c->height;
    case ROTATE: return sign * level * 30;
    case BRIGHTNESS:
    case COLOR:
    case CONTRAST:
    case SHARPNESS: return fmax(0.1, 1 + sign * level * 0.9);
    case POSTERIZE: return 4 - trunc(level * 4);
    case SOLARIZE: return 256 - fmin(256, trunc(level * 256));
    case SOLARIZE_ADD: return fmin(128, trunc(level * 110));
    default: return 0;
    }
}

void kolo_timm_operation(kolo_canvas *c, int operation, double magnitude, bool negative, bool cubic)
{
    const enum operation o = increasing[operation];
    change(c, o, timm_amount(c, o, fmax(0, fmin(magnitude / 10, 1)), negative), cubic, c->mean);
}

/* magnitude, deviation, n, probability: timm's rand-mM-mstdS-nN-pP-inc1, with the mean colour outside. All
 * draws of an operation are made whether it is applied or not. */
void kolo_augment_timm_randaugment(kolo_canvas *c, const double *p, kolo_random *random)
{
    for (int i = 0; i < (int)p[2]; i++) {
        const int operation = (int)kolo_random_below(random, sizeof increasing / sizeof *increasing);
        const bool skip = kolo_random_uniform(random) >= (float)p[3];
        const double u = (kolo_random_u32(random) + 0.5) * 0x1p-32,
                     v = (kolo_random_u32(random) + 0.5) * 0x1p-32;
        const double magnitude = p[0] + p[1] * sqrt(-2 * log(u)) * cos(2 * M_PI * v);
        const uint32_t bits = kolo_random_u32(random);
        if (!skip) kolo_timm_operation(c, operation, magnitude, bits >> 31, bits >> 30 & 1);
    }
}
