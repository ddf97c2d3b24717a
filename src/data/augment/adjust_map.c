/* Changes that map a value by itself, through a table of 256: invert, posterize, solarize,
 * autocontrast, equalize. */
#include "data/augment/adjust.h"

static void map(kolo_canvas *c, const uint8_t *table)
{
    const size_t bytes = kolo_canvas_bytes(c);
    uint8_t *p = c->pixels;
    for (size_t i = 0; i < bytes; i++) p[i] = table[p[i]];
}

static void map_channels(kolo_canvas *c, const uint8_t (*table)[256])
{
    const size_t bytes = kolo_canvas_bytes(c);
    uint8_t *p = c->pixels;
    if (c->channels == 1) {
        map(c, table[0]);
        return;
    }
    for (size_t i = 0; i < bytes; i += 3) {
        p[i] = table[0][p[i]];
        p[i + 1] = table[1][p[i + 1]];
        p[i + 2] = table[2][p[i + 2]];
    }
}

/* Two counters a value, because neighbours are often equal and would wait for each other. */
static void count(const kolo_canvas *c, uint32_t (*histogram)[256])
{
    uint32_t two[2][3][256] = {0};
    const size_t pixels = (size_t)c->height * (size_t)c->width, channels = (size_t)c->channels;
    const uint8_t *p = c->pixels;
    for (size_t i = 0; i < pixels; i++)
        for (size_t k = 0; k < channels; k++) two[i & 1][k][*p++]++;
    for (size_t k = 0; k < channels; k++)
        for (int v = 0; v < 256; v++) histogram[k][v] = two[0][k][v] + two[1][k][v];
}

void kolo_adjust_invert(kolo_canvas *c)
{
    const size_t bytes = kolo_canvas_bytes(c);
    uint8_t *p = c->pixels;
    for (size_t i = 0; i < bytes; i++) p[i] = (uint8_t)~p[i];
}

void kolo_adjust_posterize(kolo_canvas *c, int bits)
{
    const uint8_t mask = (uint8_t)(0xFF00 >> bits);
    const size_t bytes = kolo_canvas_bytes(c);
    uint8_t *p = c->pixels;
    for (size_t i = 0; i < bytes; i++) p[i] &= mask;
}

void kolo_adjust_solarize(kolo_canvas *c, double threshold)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++) table[i] = (uint8_t)(i < threshold ? i : 255 - i);
    map(c, table);
}

void kolo_adjust_solarize_add(kolo_canvas *c, int add, double threshold)
{
    uint8_t table[256];
    for (int i = 0; i < 256; i++) {
        const int more = i + add;
        table[i] = (uint8_t)(!(i < threshold) ? i : more > 255 ? 255 : more);
    }
    map(c, table);
}

/* From the darkest value to the lightest becomes 0 to 255. */
static void stretch(const uint32_t *histogram, uint8_t *table)
{
    int low = 0, high = 255;
    while (low < 255 && !histogram[low]) low++;
    while (high > 0 && !histogram[high]) high--;
    const double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
    for (int i = 0; i < 256; i++) {
        const int value = (int)(i * scale + offset);
        table[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

/* The sum of the histogram below a value, in steps of a 255th of all but the lightest value's pixels. */
static void flatten(const uint32_t *histogram, uint8_t *table)
{
    uint64_t all = 0, last = 0;
    for (int i = 0; i < 256; i++) {
        all += histogram[i];
        if (histogram[i]) last = histogram[i];
    }
    const uint64_t step = (all - last) / 255;
    uint64_t sum = step / 2;
    for (int i = 0; i < 256; i++) {
        const uint64_t value = step ? sum / step : (uint64_t)i;
        table[i] = (uint8_t)(value > 255 ? 255 : value);
        sum += histogram[i];
    }
}

void kolo_adjust_autocontrast(kolo_canvas *c)
{
    uint32_t histogram[3][256];
    uint8_t table[3][256];
    count(c, histogram);
    for (int k = 0; k < c->channels; k++) stretch(histogram[k], table[k]);
    map_channels(c, table);
}

void kolo_adjust_equalize(kolo_canvas *c)
{
    uint32_t histogram[3][256];
    uint8_t table[3][256];
    count(c, histogram);
    for (int k = 0; k < c->channels; k++) flatten(histogram[k], table[k]);
    map_channels(c, table);
}
