/* A plot in a terminal: curves by braille dots (two by four a cell) or letters, the rest as bars of text. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report/plot.h"

enum { LINES = 12, MARGIN = 11, LABEL = 22, MOST_ROWS = 20 };

typedef struct canvas {
    int columns, across, down; /* cells; points of the whole */
    unsigned char *dots;       /* [LINES][columns] bits of a braille cell, or the letter */
    bool braille;
} canvas;

static void set(canvas *c, int x, int y, char letter)
{
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= c->across || y >= c->down) return;
    if (c->braille) c->dots[y / 4 * c->columns + x / 2] |= bit[y % 4][x % 2];
    else c->dots[y * c->columns + x] = (unsigned char)letter;
}

/* From point to point, without gaps. */
static void draw_line(canvas *c, double x0, double y0, double x1, double y1, char letter)
{
    const int n = (int)ceil(fmax(fabs(x1 - x0), fabs(y1 - y0)));
    for (int i = 0; i <= n; i++) {
        const double part = n ? (double)i / n : 0;
        set(c, (int)lround(x0 + (x1 - x0) * part), (int)lround(y0 + (y1 - y0) * part), letter);
    }
}

static void print_canvas(FILE *f, const canvas *c, const report_axis *y, const report_axis *x,
                         const report_plot *p)
{
    char text[32];
    for (int line = 0; line < LINES; line++) {
        report_number(text, sizeof text, y->high - (y->high - y->low) * line / (LINES - 1));
        fprintf(f, "%*s %s", MARGIN - 2, line % 3 == 0 || line == LINES - 1 ? text : "",
                c->braille ? "\xE2\x94\x82" : "|");
        for (int k = 0; k < c->columns; k++) {
            const unsigned char d = c->dots[line * c->columns + k];
            if (!c->braille) fputc(d ? d : ' ', f);
            else if (d) fprintf(f, "\xE2%c%c", 0xA0 + (d >> 6), 0x80 + (d & 0x3f));
            else fputc(' ', f);
        }
        fputc('\n', f);
    }
    report_number(text, sizeof text, x->low);
    fprintf(f, "%*s%-*s", MARGIN, "", c->columns / 2, text);
    report_number(text, sizeof text, x->high);
    fprintf(f, "%*s  %s\n", c->columns - c->columns / 2 - (int)strlen(p->x_title) - 2, text, p->x_title);
}

static void text_curves(FILE *f, const report_plot *p, int columns, bool braille)
{
    const report_axis x = report_plot_x(p), y = report_plot_y(p, NULL);
    canvas c = {.columns = columns - MARGIN, .braille = braille};
    c.across = c.columns * (braille ? 2 : 1);
    c.down = LINES * (braille ? 4 : 1);
    c.dots = kolo_alloc((size_t)(LINES * c.columns));
    if (!c.dots) return;
    for (int i = 0; i < p->count; i++) {
        const report_series *s = &p->series[i];
        double from_x = 0, from_y = 0;
        for (int64_t k = 0; k < s->count; k++) {
            const double at_x = (s->x[k] - x.low) / (x.high - x.low) * (c.across - 1),
                         at_y = (y.high - fmin(s->y[k], y.high)) / (y.high - y.low) * (c.down - 1);
            draw_line(&c, k ? from_x : at_x, k ? from_y : at_y, at_x, at_y, (char)('a' + i % 26));
            from_x = at_x;
            from_y = at_y;
        }
    }
    print_canvas(f, &c, &y, &x, p);
    free(c.dots);
    for (int i = 0; i < p->count; i++) {
        const report_series *s = &p->series[i];
        char last[32];
        if (!s->count) continue;
        report_number(last, sizeof last, s->y[s->count - 1]);
        fprintf(f, "%*s%s%.*s: %s%s at the end\n", MARGIN, "",
                braille ? "" : (char[]){(char)('a' + i % 26), ' ', 0}, columns, s->label, last,
                p->unit ? p->unit : "");
    }
}

static void text_bars(FILE *f, const report_plot *p, int columns, bool braille)
{
    const report_axis y = report_plot_y(p, NULL);
    for (int64_t c = 0; c < p->labels && c < MOST_ROWS; c++)
        for (int i = 0; i < p->count; i++) {
            const report_series *s = &p->series[i];
            const double value = c < s->count ? s->y[c] : 0;
            const int full = (int)lround(value / y.high * (columns - LABEL - 14));
            char text[32];
            report_number(text, sizeof text, value);
            fprintf(f, "%*.*s ", LABEL, LABEL, i == 0 ? p->label[c] : s->label);
            for (int k = 0; k < full; k++) fputs(braille ? "\xE2\x96\x88" : "#", f);
            fprintf(f, " %s%s\n", text, p->unit ? p->unit : "");
        }
}

typedef struct worst {
    int64_t row, column;
    double value;
} worst;

static int by_value(const void *a, const void *b)
{
    const worst *x = a, *y = b;
    return (x->value < y->value) - (x->value > y->value);
}

/* The most frequent wrong answers. */
static void text_matrix(FILE *f, const report_plot *p, int columns, bool braille)
{
    const int64_t n = p->labels;
    worst *list = kolo_alloc((size_t)(n * n + 1) * sizeof *list);
    int64_t count = 0;
    (void)columns;
    for (int64_t i = 0; list && i < n * n; i++)
        if (i / n != i % n && p->value[i] > 0) list[count++] = (worst){i / n, i % n, p->value[i]};
    if (count) qsort(list, (size_t)count, sizeof *list, by_value);
    for (int64_t i = 0; i < count && i < 10; i++)
        fprintf(f, "%*.*s %s %s: %.0f\n", LABEL, LABEL, p->label[list[i].row],
                braille ? "\xE2\x86\x92" : "taken for", p->label[list[i].column], list[i].value);
    free(list);
}

static void text_spans(FILE *f, const report_plot *p, int columns, bool braille)
{
    const report_axis x = report_plot_x(p);
    const int width = columns - LABEL - 1;
    (void)braille;
    for (int64_t row = 0; row < p->labels; row++) {
        char *line = kolo_alloc((size_t)width + 1);
        if (!line) return;
        memset(line, '.', (size_t)width);
        for (int64_t i = 0; i < p->spans; i++) {
            const report_span *s = &p->span[i];
            if (s->row != row) continue;
            const int from = (int)((s->start - x.low) / (x.high - x.low) * (width - 1)),
                      to = (int)((s->end - x.low) / (x.high - x.low) * (width - 1));
            for (int k = from; k <= to && k >= 0 && k < width; k++) line[k] = s->name[0];
        }
        fprintf(f, "%*.*s %s\n", LABEL, LABEL, p->label[row], line);
        free(line);
    }
}

void report_plot_text(FILE *f, const report_plot *p, int columns, bool dots)
{
    static void (*const print[])(FILE *, const report_plot *, int, bool) = {text_curves, text_bars,
                                                                            text_matrix, text_spans};
    fprintf(f, "\n%s%s%s%s\n", p->title, *p->y_title ? " (" : "", p->y_title, *p->y_title ? ")" : "");
    print[p->kind](f, p, columns < 40 ? 40 : columns, dots);
    if (*p->note) fprintf(f, "%s\n", p->note);
}
