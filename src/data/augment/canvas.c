#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/memory.h"
#include "data/augment/adjust.h"
#include "data/image/image.h"
#include "kolo/error.h"

static uint8_t level(double value)
{
    value = nearbyint(value * 255);
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* x with erf(x) = y, by Newton's method; |y| < 1. */
static double inverse_erf(double y)
{
    double x = 0;
    for (int i = 0; i < 60; i++) {
        const double step = (erf(x) - y) * sqrt(M_PI) / 2 * exp(x * x);
        x -= step > 0.5 ? 0.5 : step < -0.5 ? -0.5 : step;
    }
    return x;
}

/* The middles of 1,024 equally likely parts of the normal distribution; the same for every
 * canvas of the process. */
static double quantile[1024];
static pthread_once_t quantile_made = PTHREAD_ONCE_INIT;
static void make_quantiles(void)
{
    for (int i = 0; i < 1024; i++) quantile[i] = sqrt(2) * inverse_erf((2 * i + 1) / 1024.0 - 1);
}

static void make_noise(uint8_t *to, double mean, double std)
{
    pthread_once(&quantile_made, make_quantiles);
    for (int i = 0; i < 1024; i++) to[i] = level(mean + std * quantile[i]);
}

int kolo_canvas_create(kolo_canvas **canvas, int height, int width, int channels, const float *mean,
                       const float *std)
{
    kolo_canvas *c = *canvas = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    c->height = height;
    c->width = width;
    c->channels = channels;
    c->spare = kolo_alloc(kolo_canvas_bytes(c) + KOLO_IMAGE_SLACK);
    c->wide = kolo_alloc(sizeof *c->wide * kolo_canvas_bytes(c));
    c->noise = kolo_alloc(3 * sizeof *c->noise);
    if (!c->spare || !c->wide || !c->noise) {
        kolo_canvas_destroy(canvas);
        return KOLO_ENOMEM;
    }
    for (int i = 0; i < channels; i++) {
        const bool known = std[i] > 0;
        c->mean[i] = level(known ? mean[i] : 0.5);
        make_noise(c->noise[i], known ? mean[i] : 0.5, known ? std[i] : 0.25);
    }
    return 0;
}

void kolo_canvas_destroy(kolo_canvas **canvas)
{
    kolo_canvas *c = *canvas;
    if (!c) return;
    free(c->spare);
    free(c->wide);
    free(c->noise);
    free(c);
    *canvas = NULL;
}
