/* Plots: what is drawn, apart from how. One description goes to SVG (a page, a file) and to the terminal. */
#ifndef KOLO_REPORT_PLOT_H
#define KOLO_REPORT_PLOT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum report_plot_kind {
    REPORT_CURVES, /* series over x */
    REPORT_BARS,   /* values of categories, a bar of each series */
    REPORT_MATRIX, /* counts: rows are labels, columns answers */
    REPORT_SPANS,  /* bars along time, a row a label */
};

typedef struct report_series {
    char *label;
    double *x, *y; /* [count]; BARS: y alone, by category. Finite */
    int64_t count, x_capacity, y_capacity;
    int colour; /* 0, 1, ...: of its run, or of its kind */
    bool dashed, dots;
} report_series;

typedef struct report_span {
    int row;
    double start, end;
    char name[32];
    int colour;
} report_span;

enum { REPORT_SERIES = 48 };
typedef struct report_plot {
    enum report_plot_kind kind;
    const char *name, *title, *x_title, *y_title; /* static text */
    const char *unit;                             /* behind a value: "%", " GiB", "" */
    bool zero;                                    /* the axis of values begins at 0 */
    char note[512];                               /* a sentence below */
    report_series series[REPORT_SERIES];
    int count;
    char **label; /* of categories, rows */
    int64_t labels, label_capacity;
    double *value; /* MATRIX: [labels][labels] */
    report_span *span;
    int64_t spans, span_capacity;
} report_plot;

void report_plot_free(report_plot *plot);
/* A further series, or NULL: KOLO_ENOMEM, or there are REPORT_SERIES. Its points by report_plot_point, which
 * leaves out what is not finite. */
report_series *report_plot_series(report_plot *plot, const char *label, int colour);
int report_plot_point(report_series *series, double x, double y);
int report_plot_label(report_plot *plot, const char *label);
/* Means of neighbours, until a series has at most `most` points. */
void report_plot_thin(report_plot *plot, int64_t most);
bool report_plot_empty(const report_plot *plot);

/* Of a drawing of curves, in its own units: where it begins and ends within its width. */
enum { REPORT_WIDTH = 560, REPORT_LEFT = 70, REPORT_RIGHT = 14 };

/* Least and greatest of what is drawn along an axis, and a round step between marks. */
typedef struct report_axis {
    double low, high, step;
} report_axis;
report_axis report_plot_x(const report_plot *plot);
/* Of CURVES few values far above all others are left out, or nothing else could be seen: *cut becomes how
 * many (may be NULL). */
report_axis report_plot_y(const report_plot *plot, int64_t *cut);
/* With as many digits as a reader wants. */
void report_number(char *text, size_t size, double value);

/* <svg>...</svg>; alone: a file of its own, which brings its colours. */
void report_plot_svg(FILE *f, const report_plot *plot, bool alone);
/* A file of n CURVES, `across` beside each other. */
void report_plot_sheet(FILE *f, const report_plot *plot, int n, int across);
/* Lines of text, `columns` wide; dots: by braille dots, else by ASCII. */
void report_plot_text(FILE *f, const report_plot *plot, int columns, bool dots);
/* {"kind", "title", "series": [{"label", "x", "y"}]}; every `<` as an escape, so that it may stand in
 * HTML. */
void report_plot_json(FILE *f, const report_plot *plot);

/* Text as HTML and SVG take it, in attributes, too; bytes that are not UTF-8, and control characters, as
 * U+FFFD. */
void report_html(FILE *f, const char *text);

#endif
