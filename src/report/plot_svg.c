/* A plot as SVG. Colours are classes, so that a page's style, light or dark, decides them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/plot.h"

/* Of a drawing, in its own units; NAMES: of rows, at the left; NAME: letters of one. */
enum {
    WIDTH = REPORT_WIDTH,
    HEIGHT = 270,
    LEFT = REPORT_LEFT,
    RIGHT = REPORT_RIGHT,
    TOP = 12,
    BOTTOM = 44,
    COLOURS = 8,
    ROW = 22,
    CELL = 38,
    NAMES = 146,
    NAME = 18
};

static const char style_alone[] =
    "<style>text{font:12px system-ui,sans-serif;fill:#1f2937}.g{stroke:#d1d5db}.f{fill:none}"
    ".c0{stroke:#0b62a4;color:#0b62a4}.c1{stroke:#c2410c;color:#c2410c}.c2{stroke:#15803d;color:#15803d}"
    ".c3{stroke:#7e22ce;color:#7e22ce}.c4{stroke:#a16207;color:#a16207}.c5{stroke:#0e7490;color:#0e7490}"
    ".c6{stroke:#be185d;color:#be185d}.c7{stroke:#475569;color:#475569}.b{fill:currentColor;stroke:none}"
    ".m{fill:#0b62a4}.mt{text-anchor:middle}.on{fill:#fff}</style>"
    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";

typedef struct frame {
    FILE *f;
    report_axis x, y;
    double left, right, top, bottom;
} frame;

static double across(const frame *r, double x)
{
    return r->left + (x - r->x.low) / (r->x.high - r->x.low) * (r->right - r->left);
}
static double down(const frame *r, double y)
{
    return r->bottom - (fmin(y, r->y.high) - r->y.low) / (r->y.high - r->y.low) * (r->bottom - r->top);
}

static void begin(FILE *f, const report_plot *p, double width, double height, bool alone)
{
    fprintf(f, "<svg viewBox=\"0 0 %g %g\"", width, height);
    if (alone) fprintf(f, " xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\"", width, height);
    fputs(" role=\"img\" aria-label=\"", f);
    report_html(f, p->title);
    fputs("\">\n", f);
    if (alone) fputs(style_alone, f);
}

static void put_text(FILE *f, double x, double y, const char *anchor, const char *text)
{
    fprintf(f, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
    report_html(f, text);
    fputs("</text>\n", f);
}

static void put_number(FILE *f, double x, double y, const char *anchor, double value)
{
    char text[32];
    report_number(text, sizeof text, fabs(value) < 1e-12 ? 0 : value);
    put_text(f, x, y, anchor, text);
}

static void draw_y(const frame *r, const char *title)
{
    for (int i = 0; i <= (int)lround((r->y.high - r->y.low) / r->y.step); i++) {
        const double y = r->y.low + i * r->y.step;
        fprintf(r->f, "<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/>\n", r->left, down(r, y), r->right);
        put_number(r->f, r->left - 8, down(r, y) + 4, "end", y);
    }
    fprintf(r->f, "<text transform=\"translate(12 %.1f) rotate(-90)\" text-anchor=\"middle\">",
            (r->top + r->bottom) / 2);
    report_html(r->f, title);
    fputs("</text>\n", r->f);
}

static void draw_x(const frame *r, const char *title)
{
    for (double i = ceil(r->x.low / r->x.step - 1e-9); i * r->x.step <= r->x.high + 1e-9 * r->x.step; i++) {
        const double x = i * r->x.step;
        fprintf(r->f, "<path class=\"g\" d=\"M%.1f %.1fv5\"/>\n", across(r, x), r->bottom);
        put_number(r->f, across(r, x), r->bottom + 19, "middle", x);
    }
    put_text(r->f, (r->left + r->right) / 2, r->bottom + 38, "middle", title);
}

/* The first eight whole, further ones in other dashes. */
static void draw_series(const frame *r, const report_series *s)
{
    const bool dashed = s->dashed || s->colour >= COLOURS;
    fprintf(r->f, "<path class=\"f c%d\" data-points=\"%lld\" stroke-width=\"1.8\"%s d=\"",
            s->colour % COLOURS, (long long)s->count,
            !dashed                        ? ""
            : s->colour / COLOURS % 2 == 0 ? " stroke-dasharray=\"5 3\""
                                           : " stroke-dasharray=\"2 3\"");
    for (int64_t i = 0; i < s->count; i++)
        fprintf(r->f, "%s%.1f %.1f", i ? "L" : "M", across(r, s->x[i]), down(r, s->y[i]));
    fputs("\"/>\n", r->f);
    for (int64_t i = 0; (s->dots || s->count == 1) && s->count <= 120 && i < s->count; i++)
        fprintf(r->f, "<circle class=\"b c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.6\"/>\n", s->colour % COLOURS,
                across(r, s->x[i]), down(r, s->y[i]));
}

/* Names of series stand above, in lines; f NULL: nothing is drawn. Returns the height. */
static double draw_legend(FILE *f, const report_plot *p)
{
    double x = LEFT, y = 14;
    if (p->count < 2) return 0;
    for (int i = 0; i < p->count; i++) {
        const report_series *s = &p->series[i];
        const double width = 34 + 7 * (double)strlen(s->label);
        if (x > LEFT && x + width > WIDTH) x = LEFT, y += 18;
        if (f) {
            fprintf(f, "<path class=\"c%d\" stroke-width=\"%d\"%s d=\"M%.0f %.0fh18\"/>\n",
                    s->colour % COLOURS, p->kind == REPORT_BARS ? 9 : 3,
                    s->dashed || s->colour >= COLOURS ? " stroke-dasharray=\"5 3\"" : "", x, y - 4);
            put_text(f, x + 23, y, "start", s->label);
        }
        x += width;
    }
    return y + 6;
}

static void draw_curves(FILE *f, const report_plot *p, bool alone)
{
    const double above = draw_legend(NULL, p);
    const frame r = {f,           report_plot_x(p),       report_plot_y(p, NULL), LEFT, WIDTH - RIGHT,
                     TOP + above, HEIGHT + above - BOTTOM};
    begin(f, p, WIDTH, HEIGHT + above, alone);
    draw_legend(f, p);
    draw_y(&r, p->y_title);
    draw_x(&r, p->x_title);
    for (int i = 0; i < p->count; i++) draw_series(&r, &p->series[i]);
    fputs("</svg>\n", f);
}

static void shorten(char *to, size_t size, const char *text, size_t most)
{
    size_t n = strlen(text);
    if (n > most) {
        n = most - 1;
        while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--; /* not within a character */
        snprintf(to, size, "%.*s\xE2\x80\xA6", (int)n, text);
    } else snprintf(to, size, "%s", text);
}

/* Lying bars, a group a category. */
static void draw_bars(FILE *f, const report_plot *p, bool alone)
{
    const double above = draw_legend(NULL, p), each = 14, group = each * p->count + 8, left = NAMES;
    const double height = above + TOP + group * (double)p->labels + BOTTOM;
    const report_axis y = report_plot_y(p, NULL);
    const frame r = {f, y, y, left, WIDTH - RIGHT - 60, TOP + above, height - BOTTOM};
    char text[128];
    begin(f, p, WIDTH, height, alone);
    draw_legend(f, p);
    draw_x(&r, p->y_title);
    for (int64_t c = 0; c < p->labels; c++) {
        const double top = r.top + group * (double)c;
        shorten(text, sizeof text, p->label[c], NAME);
        put_text(f, left - 8, top + group / 2, "end", text);
        for (int i = 0; i < p->count; i++) {
            const report_series *s = &p->series[i];
            const double value = c < s->count ? s->y[c] : 0, at = top + each * i;
            if (c >= s->count) continue;
            fprintf(f, "<rect class=\"b c%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
                    s->colour % COLOURS, left, at, fmax(across(&r, value) - left, 0.5), each - 2);
            report_html(f, p->label[c]);
            report_number(text, sizeof text, value);
            fprintf(f, ": %s%s</title></rect>\n", text, p->unit ? p->unit : "");
            put_text(f, across(&r, value) + 5, at + each - 4, "start", text);
        }
    }
    fputs("</svg>\n", f);
}

static double row_sum(const report_plot *p, int64_t row)
{
    double sum = 0;
    for (int64_t c = 0; c < p->labels; c++) sum += p->value[row * p->labels + c];
    return sum;
}

static void draw_cell(FILE *f, const report_plot *p, int64_t row, int64_t column, double x, double y,
                      double cell)
{
    const double value = p->value[row * p->labels + column], sum = row_sum(p, row),
                 share = sum > 0 ? value / sum : 0;
    fprintf(f,
            "<rect class=\"m\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "fill-opacity=\"%.2f\"><title>",
            x, y, cell - 1, cell - 1, value > 0 ? 0.08 + 0.92 * share : 0.02);
    report_html(f, p->label[row]);
    fputs(" taken for ", f);
    report_html(f, p->label[column]);
    fprintf(f, ": %.0f of %.0f</title></rect>\n", value, sum);
    if (cell >= 24 && value > 0)
        fprintf(f, "<text class=\"mt%s\" x=\"%.1f\" y=\"%.1f\">%.0f</text>\n", share > 0.5 ? " on" : "",
                x + cell / 2, y + cell / 2 + 4, value);
}

static void draw_matrix(FILE *f, const report_plot *p, bool alone)
{
    const double left = NAMES, top = 28, cell = fmin(CELL, (WIDTH - left - 10) / (double)p->labels),
                 side = cell * (double)p->labels;
    char text[64];
    begin(f, p, WIDTH, top + side + 110, alone);
    put_text(f, left, 16, "start", p->x_title);
    for (int64_t i = 0; i < p->labels; i++) {
        shorten(text, sizeof text, p->label[i], NAME);
        const double middle = cell * ((double)i + .5);
        if (cell >= 9) put_text(f, left - 6, top + middle + 4, "end", text);
        if (cell >= 9) {
            fprintf(f, "<text transform=\"translate(%.1f %.1f) rotate(-50)\" text-anchor=\"end\">",
                    left + middle + 4, top + side + 12);
            report_html(f, text);
            fputs("</text>\n", f);
        }
        for (int64_t k = 0; k < p->labels; k++)
            draw_cell(f, p, i, k, left + cell * (double)k, top + cell * (double)i, cell);
    }
    fputs("</svg>\n", f);
}

static void draw_spans(FILE *f, const report_plot *p, bool alone)
{
    const double above = draw_legend(NULL, p), height = above + TOP + ROW * (double)p->labels + BOTTOM,
                 left = NAMES;
    const frame r = {f, report_plot_x(p), {0, 1, 1}, left, WIDTH - RIGHT, TOP + above, height - BOTTOM};
    char text[64];
    begin(f, p, WIDTH, height, alone);
    draw_legend(f, p);
    draw_x(&r, p->x_title);
    for (int64_t i = 0; i < p->labels; i++) {
        shorten(text, sizeof text, p->label[i], NAME);
        put_text(f, left - 8, r.top + ROW * (double)i + 15, "end", text);
    }
    for (int64_t i = 0; i < p->spans; i++) {
        const report_span *s = &p->span[i];
        const double from = across(&r, s->start), to = across(&r, s->end);
        fprintf(f, "<rect class=\"b c%d\" x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\"><title>",
                s->colour % COLOURS, from, r.top + ROW * s->row + 2, fmax(to - from - .4, .4), ROW - 4);
        report_html(f, s->name);
        fprintf(f, ": %.4g to %.4g ms</title></rect>\n", s->start, s->end);
    }
    fputs("</svg>\n", f);
}

void report_plot_svg(FILE *f, const report_plot *p, bool alone)
{
    static void (*const draw[])(FILE *, const report_plot *, bool) = {draw_curves, draw_bars, draw_matrix,
                                                                      draw_spans};
    draw[p->kind](f, p, alone);
}

/* Rows are as high as their highest drawing. */
static double sheet_row(const report_plot *plot, int n)
{
    double most = 0;
    for (int i = 0; i < n; i++) most = fmax(most, HEIGHT + draw_legend(NULL, &plot[i]));
    return most;
}

void report_plot_sheet(FILE *f, const report_plot *plot, int n, int across)
{
    const double row = sheet_row(plot, n), width = (double)WIDTH * across,
                 height = row * ((n + across - 1) / across);
    fprintf(f,
            "<svg viewBox=\"0 0 %g %g\" xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\">\n",
            width, height, width, height);
    fputs(style_alone, f);
    for (int i = 0; i < n; i++) {
        fprintf(f, "<svg x=\"%d\" y=\"%g\" width=\"%d\" height=\"%g\">\n", WIDTH * (i % across),
                row * (i / across), WIDTH, HEIGHT + draw_legend(NULL, &plot[i]));
        report_plot_svg(f, &plot[i], false);
        fputs("</svg>\n", f);
    }
    fputs("</svg>\n", f);
}
