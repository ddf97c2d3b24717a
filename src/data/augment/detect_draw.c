/* What is done to one sample of detection: numbers only, no pixels. */
#include <math.h>

#include "base/option.h"
#include "data/augment/augment.h"
#include "data/augment/detect.h"

void kolo_detect_usual(kolo_detect_config *c, int height, int width, bool small)
{
    *c = (kolo_detect_config){.height = height,
                              .width = width,
                              .mosaic = 1,
                              .mixup = small ? 0 : 1,
                              .hsv = 1,
                              .flip = 0.5,
                              .degrees = 10,
                              .translate = 0.1,
                              .shear = 2,
                              .scale_min = small ? 0.5 : 0.1,
                              .scale_max = small ? 1.5 : 2,
                              .mixup_scale_min = 0.5,
                              .mixup_scale_max = 1.5,
                              .hue = 5,
                              .saturation = 30,
                              .value = 30,
                              .side_min = 1,
                              .fill = 114,
                              .filter = KOLO_interpolation_plain};
}

static double spread(double part, double low, double high) { return low + (high - low) * part; }

static double between(kolo_random *random, double low, double high)
{
    return spread((double)kolo_random_uniform(random), low, high);
}

static int64_t any_sample(kolo_random *random, int64_t count)
{
    const uint64_t high = kolo_random_u32(random), low = kolo_random_u32(random);
    return (int64_t)(((unsigned __int128)(high << 32 | low) * (uint64_t)count) >> 64);
}

static void choose_mosaic(kolo_detect_draw *d, const kolo_detect_config *c, int64_t count,
                          kolo_random *random)
{
    d->mosaic = kolo_random_uniform(random) < (float)c->mosaic;
    if (!d->mosaic) return;
    d->center_y = (int)between(random, 0.5 * c->height, 1.5 * c->height);
    d->center_x = (int)between(random, 0.5 * c->width, 1.5 * c->width);
    for (int k = 1; k < 4; k++) d->sample[k] = any_sample(random, count);
}

void kolo_detect_matrix(double *matrix, const kolo_detect_config *c, const double *part)
{
    const double angle = spread(part[0], -c->degrees, c->degrees) * (M_PI / 180);
    const double scale = spread(part[1], c->scale_min, c->scale_max);
    const double shear_x = tan(spread(part[2], -c->shear, c->shear) * (M_PI / 180));
    const double shear_y = tan(spread(part[3], -c->shear, c->shear) * (M_PI / 180));
    const double right = spread(part[4], -c->translate, c->translate) * c->width;
    const double down = spread(part[5], -c->translate, c->translate) * c->height;
    const double px = spread(part[6], -c->perspective, c->perspective);
    const double py = spread(part[7], -c->perspective, c->perspective);
    const double cosine = scale * cos(angle), sine = scale * sin(angle);
    const double m[2][3] = {{cosine - shear_y * sine, sine + shear_y * cosine, right},
                            {-sine + shear_x * cosine, cosine + shear_x * sine, down}};
    /* C^-1 P C with C = translation by -(width, height), the middle of a canvas of twice the output */
    const double depth = 1 - px * c->width - py * c->height;
    const double p[3][3] = {{1 + c->width * px, c->width * py, c->width * (depth - 1)},
                            {c->height * px, 1 + c->height * py, c->height * (depth - 1)},
                            {px, py, depth}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 3; k++)
            matrix[3 * i + k] = m[i][0] * p[0][k] + m[i][1] * p[1][k] + m[i][2] * p[2][k];
    for (int k = 0; k < 3; k++) matrix[6 + k] = p[2][k];
}

/* Only images with boxes, if there are such: a split of backgrounds ends the search. */
static void choose_mixup(kolo_detect_draw *d, const kolo_detect_config *c, int64_t count,
                         const int64_t *offset, kolo_random *random)
{
    d->mixup = d->mosaic && kolo_random_uniform(random) < (float)c->mixup;
    d->mixup_scale = between(random, c->mixup_scale_min, c->mixup_scale_max);
    d->mixup_flip = kolo_random_u32(random) >> 31;
    d->mixup_right = (double)kolo_random_uniform(random);
    d->mixup_down = (double)kolo_random_uniform(random);
    if (!d->mixup) return;
    for (int i = 0; i < 1000; i++) {
        d->sample[4] = any_sample(random, count);
        if (!offset || offset[d->sample[4] + 1] > offset[d->sample[4]]) return;
    }
    d->mixup = false;
    d->sample[4] = -1;
}

/* Each of the three by itself or not at all, cut off to whole steps. */
static int choose_step(double most, kolo_random *random)
{
    const double step = between(random, -most, most);
    return kolo_random_u32(random) >> 31 ? (int)step : 0;
}

static void choose_color(kolo_detect_draw *d, const kolo_detect_config *c, kolo_random *random)
{
    const bool yes = kolo_random_uniform(random) < (float)c->hsv;
    d->hue = choose_step(c->hue, random);
    d->saturation = choose_step(c->saturation, random);
    d->value = choose_step(c->value, random);
    if (!yes) d->hue = d->saturation = d->value = 0;
}

void kolo_detect_choose(kolo_detect_draw *d, const kolo_detect_config *c, uint64_t seed, int64_t pass,
                        int64_t sample, int64_t count, const int64_t *offset)
{
    *d = (kolo_detect_draw){.sample = {sample, -1, -1, -1, -1}};
    kolo_random random = kolo_augment_random(seed, pass, sample, KOLO_OPERATION_MOSAIC);
    choose_mosaic(d, c, count, &random);
    random = kolo_augment_random(seed, pass, sample, KOLO_OPERATION_WARP);
    double part[8];
    for (int k = 0; k < 8; k++) part[k] = (double)kolo_random_uniform(&random);
    kolo_detect_matrix(d->matrix, c, part);
    random = kolo_augment_random(seed, pass, sample, KOLO_OPERATION_DETECT_MIX);
    choose_mixup(d, c, count, offset, &random);
    random = kolo_augment_random(seed, pass, sample, KOLO_OPERATION_HSV);
    choose_color(d, c, &random);
    random = kolo_augment_random(seed, pass, sample, KOLO_OPERATION_FLIP);
    d->flip = kolo_random_uniform(&random) < (float)c->flip;
}
