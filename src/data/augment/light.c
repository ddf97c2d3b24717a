#include "data/augment/augment.h"

/* factor * (pixel - centre) + centre by table: 256 roundings instead of one per pixel */
static void stretch(kolo_canvas *c, float centre, float factor)
{
    uint8_t table[256];
    const size_t bytes = kolo_canvas_bytes(c);
    for (int i = 0; i < 256; i++) {
        const float value = factor * ((float)i - centre) + centre + 0.5f;
        table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    uint8_t *p = c->pixels;
    for (size_t i = 0; i < bytes; i++) p[i] = table[p[i]];
}

void kolo_augment_brightness(kolo_canvas *c, const double *parameter, kolo_random *random)
{
    (void)parameter;
    stretch(c, 0, 0.6f + 0.8f * kolo_random_uniform(random));
}

void kolo_augment_contrast(kolo_canvas *c, const double *parameter, kolo_random *random)
{
    const size_t bytes = kolo_canvas_bytes(c);
    uint64_t sum = 0;
    (void)parameter;
    for (size_t i = 0; i < bytes; i++) sum += c->pixels[i];
    stretch(c, (float)sum / (float)bytes, 0.6f + 0.8f * kolo_random_uniform(random));
}

void kolo_augment_invert(kolo_canvas *c, const double *parameter, kolo_random *random)
{
    (void)parameter;
    if (kolo_random_u32(random) & 1) return;
    const size_t bytes = kolo_canvas_bytes(c);
    uint8_t *p = c->pixels;
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)(255 - p[i]);
}
