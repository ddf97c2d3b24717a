#include "data/augment.h"

/* factor * (pixel - centre) + centre by table: 256 roundings instead of one per pixel */
static void stretch(uint8_t *pixels, size_t bytes, float centre, float factor)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++) {
        const float value = factor * ((float)i - centre) + centre + 0.5f;
        table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
    for (size_t i = 0; i < bytes; i++) pixels[i] = table[pixels[i]];
}

void kolo_augment_brightness(uint8_t *pixels, int height, int width, int channels, kolo_random *random)
{
    stretch(pixels, (size_t)height * (size_t)width * (size_t)channels, 0, 0.6f + 0.8f * kolo_random_uniform(random));
}

void kolo_augment_contrast(uint8_t *pixels, int height, int width, int channels, kolo_random *random)
{
    const size_t bytes = (size_t)height * (size_t)width * (size_t)channels;
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum += pixels[i];
    stretch(pixels, bytes, (float)sum / (float)bytes, 0.6f + 0.8f * kolo_random_uniform(random));
}

void kolo_augment_invert(uint8_t *pixels, int height, int width, int channels, kolo_random *random)
{
    if (kolo_random_u32(random) & 1) return;
    const size_t bytes = (size_t)height * (size_t)width * (size_t)channels;
    for (size_t i = 0; i < bytes; i++) pixels[i] = (uint8_t)(255 - pixels[i]);
}
