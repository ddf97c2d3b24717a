#include "shards/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/image/draw.h"
#include "kolo/error.h"
#include "shards/shards.h"

#define MOST_PRINTED 60
#define MOST_DRAWN 200

int shards_chart_create(shards_chart *c, const char *title, int bars)
{
    *c = (shards_chart){.title = title, .bars = bars};
    c->label = kolo_alloc(sizeof *c->label * (size_t)bars + 8);
    c->count = kolo_alloc(sizeof *c->count * (size_t)bars + 8);
    return c->label && c->count ? 0 : KOLO_ENOMEM;
}

void shards_chart_free(shards_chart *c)
{
    free(c->label);
    free(c->count);
    *c = (shards_chart){0};
}

int shards_chart_of(shards_chart *c, const char *title, const double *values, int64_t n, bool whole)
{
    double low = n ? values[0] : 0, high = low;
    for (int64_t i = 0; i < n; i++) low = fmin(low, values[i]), high = fmax(high, values[i]);
    double width = whole ? ceil((high - low + 1) / SHARDS_CHART_BARS) : (high - low) / SHARDS_CHART_BARS;
    if (!(width > 0)) width = 1;
    int bars = whole ? (int)((high - low) / width) + 1 : high > low ? SHARDS_CHART_BARS : 1;
    KOLO_TRY(shards_chart_create(c, title, bars));
    for (int64_t i = 0; i < n; i++) {
        const int k = (int)((values[i] - low) / width);
        c->count[k < bars ? k : bars - 1]++;
    }
    for (int k = 0; k < bars; k++) {
        const double from = low + k * width, to = whole ? from + width - 1 : from + width;
        if (whole && width <= 1) snprintf(c->label[k], sizeof *c->label, "%.0f", from);
        else snprintf(c->label[k], sizeof *c->label, whole ? "%.0f-%.0f" : "%.3g-%.3g", from, to);
    }
    return 0;
}

static uint64_t most_of(const shards_chart *c)
{
    uint64_t most = 1;
    for (int k = 0; k < c->bars; k++)
        if (c->count[k] > most) most = c->count[k];
    return most;
}

void shards_chart_print(const shards_chart *c)
{
    const uint64_t most = most_of(c);
    int width = 8;
    for (int k = 0; k < c->bars; k++)
        if ((int)strlen(c->label[k]) > width) width = (int)strlen(c->label[k]);
    printf("\n%s\n", c->title);
    for (int k = 0; k < c->bars && k < MOST_PRINTED; k++) {
        printf("  %-*s %10" PRIu64 "  ", width, c->label[k], c->count[k]);
        for (uint64_t i = 0; i < (c->count[k] * 50 + most / 2) / most; i++) putchar('#');
        putchar('\n');
    }
    if (c->bars > MOST_PRINTED) printf("  ... and %d more\n", c->bars - MOST_PRINTED);
}

void shards_chart_json(const shards_chart *c)
{
    printf("{\"title\":");
    kolo_json_string(stdout, c->title);
    printf(",\"bars\":[");
    for (int k = 0; k < c->bars; k++) {
        printf("%s[", k ? "," : "");
        kolo_json_string(stdout, c->label[k]);
        printf(",%" PRIu64 "]", c->count[k]);
    }
    printf("]}");
}

enum {
    SCALE = 2, /* of letters */
    ROW = 3 + (KOLO_DRAW_HEIGHT + 2) * SCALE,
    BARS_AT = 24 * KOLO_DRAW_ADVANCE * SCALE, /* behind the labels, before the counts */
    BARS = 440,
    COUNTS_AT = BARS_AT + BARS + 10,
    WIDTH = COUNTS_AT + 11 * KOLO_DRAW_ADVANCE * SCALE
};

static int rows_of(const shards_chart *c) { return (c->bars < MOST_DRAWN ? c->bars : MOST_DRAWN) + 2; }

static void draw(const shards_chart *c, int top, kolo_image *p)
{
    static const uint8_t ink[3] = {40, 40, 40}, faint[3] = {235, 235, 235}, bar[3] = {70, 130, 200};
    const uint64_t most = most_of(c);
    kolo_draw_text(p, 10, top, SCALE, c->title, ink);
    kolo_draw_rectangle(p, 10, top + ROW - 4, WIDTH - 20, 1, ink);
    for (int k = 0; k < c->bars && k < MOST_DRAWN; k++) {
        const int y = top + ROW * (k + 1), length = (int)((double)c->count[k] / (double)most * BARS);
        char text[24];
        snprintf(text, sizeof text, "%" PRIu64, c->count[k]);
        kolo_draw_rectangle(p, BARS_AT, y, BARS, ROW - 4, faint);
        kolo_draw_rectangle(p, BARS_AT, y, length, ROW - 4, bar);
        kolo_draw_text(p, BARS_AT - 6 - kolo_draw_text(NULL, 0, 0, SCALE, c->label[k], NULL), y + SCALE,
                       SCALE, c->label[k], ink);
        kolo_draw_text(p, COUNTS_AT, y + SCALE, SCALE, text, ink);
    }
}

int shards_chart_draw(const shards_chart *charts, int n, kolo_image *p)
{
    int rows = 0, top = ROW / 2;
    for (int i = 0; i < n; i++) rows += rows_of(&charts[i]);
    KOLO_TRY(kolo_image_shape(p, rows * ROW + ROW, WIDTH, 3));
    memset(p->pixels, 255, (size_t)p->height * WIDTH * 3);
    for (int i = 0; i < n; i++) {
        draw(&charts[i], top, p);
        top += rows_of(&charts[i]) * ROW;
    }
    return 0;
}
