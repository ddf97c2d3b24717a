#include "data/augment/adjust.h"

#include <math.h>
#include <string.h>

#include "base/wide.h"

enum { BITS = 14, KEEP = 7, RADIUS_MOST = 12, BLOCK = 32 };

/* Taps -radius .. radius as integers that sum to 2^BITS. */
static void make_taps(int32_t *taps, double sigma, int radius)
{
    double weight[2 * RADIUS_MOST + 1], sum = 0;
    int32_t total = 0;
    for (int i = -radius; i <= radius; i++) sum += weight[i + radius] = exp(-0.5 * i * i / (sigma * sigma));
    for (int i = 0; i <= 2 * radius; i++)
        total += taps[i] = (int32_t)nearbyint(weight[i] / sum * (1 << BITS));
    taps[radius] += (1 << BITS) - total;
}

/* Mirrored at 0 and n - 1; neither is repeated. */
static int mirror(int i, int n) { return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i; }

/* `bytes` sums over taps that lie `step` bytes apart in row, with KEEP bits behind the point. */
KOLO_CLONES static void across(const uint8_t *restrict row, size_t step, const int32_t *taps, int count,
                               uint16_t *restrict to, size_t bytes)
{
    for (size_t x = 0; x < bytes; x += BLOCK) {
        int32_t sum[BLOCK] = {0};
        const size_t n = bytes - x < BLOCK ? bytes - x : BLOCK;
        for (int k = 0; k < count; k++) {
            const uint8_t *p = row + x + (size_t)k * step;
            if (n == BLOCK)
                for (int i = 0; i < BLOCK; i++) sum[i] += p[i] * taps[k];
            else
                for (size_t i = 0; i < n; i++) sum[i] += p[i] * taps[k];
        }
        for (size_t i = 0; i < n; i++)
            to[x + i] = (uint16_t)((sum[i] + (1 << (BITS - KEEP - 1))) >> (BITS - KEEP));
    }
}

KOLO_CLONES static void down(const uint16_t *const *rows, const int32_t *taps, int count,
                             uint8_t *restrict to, size_t bytes)
{
    for (size_t x = 0; x < bytes; x += BLOCK) {
        int32_t sum[BLOCK] = {0};
        const size_t n = bytes - x < BLOCK ? bytes - x : BLOCK;
        for (int k = 0; k < count; k++) {
            const uint16_t *p = rows[k] + x;
            if (n == BLOCK)
                for (int i = 0; i < BLOCK; i++) sum[i] += p[i] * taps[k];
            else
                for (size_t i = 0; i < n; i++) sum[i] += p[i] * taps[k];
        }
        for (size_t i = 0; i < n; i++)
            to[x + i] = (uint8_t)((sum[i] + (1 << (BITS + KEEP - 1))) >> (BITS + KEEP));
    }
}

/* One row with its mirror images on both sides. */
static void widen(const kolo_canvas *c, int y, int radius, uint8_t *to)
{
    const size_t channels = (size_t)c->channels, stride = (size_t)c->width * channels;
    const uint8_t *row = c->pixels + (size_t)y * stride;
    memcpy(to + (size_t)radius * channels, row, stride);
    for (int i = 1; i <= radius; i++) {
        memcpy(to + (size_t)(radius - i) * channels, row + (size_t)i * channels, channels);
        memcpy(to + (size_t)(c->width + radius + i - 1) * channels,
               row + (size_t)(c->width - 1 - i) * channels, channels);
    }
}

void kolo_adjust_blur(kolo_canvas *c, double sigma, int radius)
{
    const size_t stride = (size_t)c->width * (size_t)c->channels;
    int32_t taps[2 * RADIUS_MOST + 1];
    if (radius > RADIUS_MOST) radius = RADIUS_MOST;
    if (radius > c->height - 1) radius = c->height - 1;
    if (radius > c->width - 1) radius = c->width - 1;
    make_taps(taps, sigma, radius);
    for (int y = 0; y < c->height; y++) {
        widen(c, y, radius, c->spare); /* a row and 2 * radius pixels: less than the image and its slack */
        across(c->spare, (size_t)c->channels, taps, 2 * radius + 1, c->wide + (size_t)y * stride, stride);
    }
    for (int y = 0; y < c->height; y++) {
        const uint16_t *rows[2 * RADIUS_MOST + 1];
        for (int k = -radius; k <= radius; k++)
            rows[k + radius] = c->wide + (size_t)mirror(y + k, c->height) * stride;
        down(rows, taps, 2 * radius + 1, c->pixels + (size_t)y * stride, stride);
    }
}
