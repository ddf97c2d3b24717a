/* Changes by a factor: brightness, contrast, colour, sharpness; torchvision's forms of
 * contrast, saturation, hue. */
#include "data/augment/adjust.h"

#include <math.h>
#include <string.h>

#include "base/wide.h"

/* ImagingBlend: from `zero` (factor 0) to `one` (factor 1) and beyond; the rest is cut off, not rounded. */
static inline uint8_t blend(int zero, int one, float factor)
{
    const float value = (float)zero + factor * (float)(one - zero);
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* A blend in torch's form. */
static inline uint8_t weigh(float one, float zero, float factor, float rest)
{
    const float value = one * factor + zero * rest;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* ITU-R 601, as Image.convert("L"). */
static inline int luma(const uint8_t *p)
{
    return (p[0] * 19595 + p[1] * 38470 + p[2] * 7471 + 0x8000) >> 16;
}
/* As torchvision's rgb_to_grayscale, rounded down. */
static inline int gray(const uint8_t *p) { return (p[0] * 2989 + p[1] * 5870 + p[2] * 1140) / 10000; }

static void map(kolo_canvas *c, const uint8_t *table)
{
    const size_t bytes = kolo_canvas_bytes(c);
    uint8_t *p = c->pixels;
    for (size_t i = 0; i < bytes; i++) p[i] = table[p[i]];
}

void kolo_adjust_brightness(kolo_canvas *c, float factor)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++) table[i] = blend(0, i, factor);
    map(c, table);
}

KOLO_CLONES static uint64_t sum_luma(const uint8_t *p, size_t pixels)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pixels; i += 65536) { /* sums of 65536 fit 32 bits */
        const size_t end = i + 65536 < pixels ? i + 65536 : pixels;
        uint32_t part = 0;
        for (size_t k = i; k < end; k++) part += (uint32_t)luma(p + 3 * k);
        sum += part;
    }
    return sum;
}

KOLO_CLONES static uint64_t sum_gray(const uint8_t *p, size_t pixels)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pixels; i += 65536) {
        const size_t end = i + 65536 < pixels ? i + 65536 : pixels;
        uint32_t part = 0;
        for (size_t k = i; k < end; k++) part += (uint32_t)gray(p + 3 * k);
        sum += part;
    }
    return sum;
}

static uint64_t sum_values(const uint8_t *p, size_t pixels)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pixels; i++) sum += p[i];
    return sum;
}

void kolo_adjust_contrast(kolo_canvas *c, float factor)
{
    uint8_t table[256];
    const size_t pixels = (size_t)c->height * (size_t)c->width;
    const uint64_t sum = c->channels == 3 ? sum_luma(c->pixels, pixels) : sum_values(c->pixels, pixels);
    const int mean = (int)((double)sum / (double)pixels + 0.5);
    for (int i = 0; i < 256; i++) table[i] = blend(mean, i, factor);
    map(c, table);
}

void kolo_jitter_contrast(kolo_canvas *c, double factor)
{
    uint8_t table[256];
    const size_t pixels = (size_t)c->height * (size_t)c->width;
    const uint64_t sum = c->channels == 3 ? sum_gray(c->pixels, pixels) : sum_values(c->pixels, pixels);
    const float mean = (float)((double)sum / (double)pixels);
    for (int i = 0; i < 256; i++) table[i] = weigh((float)i, mean, (float)factor, (float)(1 - factor));
    map(c, table);
}

KOLO_CLONES static void color(uint8_t *p, size_t pixels, float factor)
{
    for (size_t i = 0; i < pixels; i++, p += 3) {
        const int zero = luma(p);
        for (int k = 0; k < 3; k++) p[k] = blend(zero, p[k], factor);
    }
}

KOLO_CLONES static void saturate(uint8_t *p, size_t pixels, float factor, float rest)
{
    for (size_t i = 0; i < pixels; i++, p += 3) {
        const float zero = (float)gray(p);
        for (int k = 0; k < 3; k++) p[k] = weigh((float)p[k], zero, factor, rest);
    }
}

KOLO_CLONES static void whiten(uint8_t *p, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++, p += 3) p[0] = p[1] = p[2] = (uint8_t)luma(p);
}

void kolo_adjust_color(kolo_canvas *c, float factor)
{
    if (c->channels == 3) color(c->pixels, (size_t)c->height * (size_t)c->width, factor);
}

void kolo_jitter_saturation(kolo_canvas *c, double factor)
{
    const size_t pixels = (size_t)c->height * (size_t)c->width;
    if (c->channels == 3) saturate(c->pixels, pixels, (float)factor, (float)(1 - factor));
}

void kolo_adjust_grayscale(kolo_canvas *c)
{
    if (c->channels == 3) whiten(c->pixels, (size_t)c->height * (size_t)c->width);
}

/* One channel of a hue of h sixths of a turn: n = 5, 3, 1 for red, green, blue (Smith's hexagon). */
static inline float channel(float n, float h, float most, float chroma)
{
    const float k = n + h >= 6 ? n + h - 6 : n + h;
    const float rest = 4 - k, less = k < rest ? k : rest, part = less < 0 ? 0 : less > 1 ? 1 : less;
    return (most - chroma * part) * 255.999f;
}

enum { BLOCK = 64 };

/* Planes of pixels in [0, 1] to planes in [0, 256), their hue turned by `sixths` in [0, 6). */
KOLO_CLONES static void turn_block(float (*plane)[BLOCK], float sixths)
{
    for (int i = 0; i < BLOCK; i++) {
        const float r = plane[0][i], g = plane[1][i], b = plane[2][i];
        const float rg = r > g ? r : g, most = rg > b ? rg : b, gr = r > g ? g : r, least = gr > b ? b : gr;
        const float chroma = most - least, inverse = 1 / (chroma > 0 ? chroma : 1);
        const float up = most == r   ? g - b
                         : most == g ? b - r
                                     : r - g,
                    base = most == r   ? 0
                           : most == g ? 2
                                       : 4;
        const float raw = base + up * inverse + sixths, high = raw < 0 ? raw + 6 : raw,
                    h = high >= 6 ? high - 6 : high;
        plane[0][i] = channel(5, h, most, chroma);
        plane[1][i] = channel(3, h, most, chroma);
        plane[2][i] = channel(1, h, most, chroma);
    }
}

KOLO_CLONES static void turn_hue(uint8_t *p, size_t pixels, float sixths)
{
    float plane[3][BLOCK] = {{0}};
    for (size_t i = 0; i < pixels; i += BLOCK, p += 3 * BLOCK) {
        const size_t n = pixels - i < BLOCK ? pixels - i : BLOCK;
        for (size_t x = 0; x < n; x++)
            for (size_t k = 0; k < 3; k++) plane[k][x] = (float)p[3 * x + k] / 255;
        turn_block(plane, sixths);
        for (size_t x = 0; x < n; x++)
            for (size_t k = 0; k < 3; k++) p[3 * x + k] = (uint8_t)plane[k][x];
    }
}

void kolo_jitter_hue(kolo_canvas *c, float turn)
{
    if (c->channels == 3)
        turn_hue(c->pixels, (size_t)c->height * (size_t)c->width, 6 * (turn < 0 ? turn + 1 : turn));
}

/* 3 x 3 mean in which the middle counts five times, and from it to the image and beyond,
 * over one row's inside. */
KOLO_CLONES static void sharpen_row(const uint8_t *restrict from, uint8_t *restrict to, ptrdiff_t stride,
                                    ptrdiff_t step, float factor)
{
    for (ptrdiff_t x = step; x < stride - step; x++) {
        const uint8_t *m = from + x, *u = m - stride, *d = m + stride;
        const int around = u[-step] + u[0] + u[step] + m[-step] + m[step] + d[-step] + d[0] + d[step];
        const uint16_t twice = (uint16_t)(2 * (around + 5 * m[0]) + 13);
        to[x] = blend(twice / 26, m[0], factor);
    }
}

void kolo_adjust_sharpness(kolo_canvas *c, float factor)
{
    const size_t stride = (size_t)c->width * (size_t)c->channels;
    if (c->height < 3 || c->width < 3) return; /* all border, which stays as it is */
    memcpy(c->spare, c->pixels, kolo_canvas_bytes(c));
    for (int y = 1; y < c->height - 1; y++)
        sharpen_row(c->spare + (size_t)y * stride, c->pixels + (size_t)y * stride, (ptrdiff_t)stride,
                    c->channels, factor);
}
