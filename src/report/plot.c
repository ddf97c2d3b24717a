#include "report/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"

void report_plot_free(report_plot *p)
{
    for (int i = 0; i < p->count; i++) {
        free(p->series[i].label);
        free(p->series[i].x);
        free(p->series[i].y);
    }
    for (int64_t i = 0; i < p->labels; i++) free(p->label[i]);
    free(p->label);
    free(p->value);
    free(p->span);
    *p = (report_plot){.count = 0};
}

report_series *report_plot_series(report_plot *p, const char *label, int colour)
{
    if (p->count == REPORT_SERIES) return NULL;
    report_series *s = &p->series[p->count];
    *s = (report_series){.label = kolo_strdup(label), .colour = colour};
    if (!s->label) return NULL;
    p->count++;
    return s;
}

int report_plot_point(report_series *s, double x, double y)
{
    if (!isfinite(x) || !isfinite(y)) return 0;
    KOLO_TRY(kolo_grow(&s->x, &s->x_capacity, s->count, sizeof *s->x));
    KOLO_TRY(kolo_grow(&s->y, &s->y_capacity, s->count, sizeof *s->y));
    s->x[s->count] = x;
    s->y[s->count++] = y;
    return 0;
}

int report_plot_label(report_plot *p, const char *label)
{
    KOLO_TRY(kolo_grow(&p->label, &p->label_capacity, p->labels, sizeof *p->label));
    if (!(p->label[p->labels] = kolo_strdup(label))) return KOLO_ENOMEM;
    p->labels++;
    return 0;
}

void report_plot_thin(report_plot *p, int64_t most)
{
    for (int i = 0; i < p->count; i++) {
        report_series *s = &p->series[i];
        const int64_t n = s->count;
        if (n <= most) continue;
        for (int64_t k = 0; k < most; k++) {
            const int64_t from = k * n / most, to = (k + 1) * n / most;
            double x = 0, y = 0;
            for (int64_t j = from; j < to; j++) x += s->x[j], y += s->y[j];
            s->x[k] = x / (double)(to - from);
            s->y[k] = y / (double)(to - from);
        }
        s->count = most;
    }
}

bool report_plot_empty(const report_plot *p)
{
    if (p->kind == REPORT_MATRIX) return !p->value;
    if (p->kind == REPORT_SPANS) return p->spans == 0;
    for (int i = 0; i < p->count; i++)
        if (p->series[i].count > 0) return false;
    return true;
}

/* ---- axes ---- */

static double round_step(double range, int marks)
{
    const double raw = range / marks, power = pow(10, floor(log10(raw))), part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

static report_axis axis_of(double low, double high, bool fit)
{
    if (!(high > low)) { /* one value, or none */
        const double by = low != 0 && isfinite(low) ? fabs(low) / 2 : 1;
        low = isfinite(low) ? low : 0;
        high = low + by;
        if (fit && low != 0) low -= by;
    }
    const double step = round_step(high - low, 5);
    if (fit) low = floor(low / step + 1e-9) * step, high = ceil(high / step - 1e-9) * step;
    return (report_axis){low, high, step};
}

static void extend(double value, double *low, double *high)
{
    if (!(value >= *low)) *low = value;
    if (!(value <= *high)) *high = value;
}

report_axis report_plot_x(const report_plot *p)
{
    double low = NAN, high = NAN;
    for (int i = 0; i < p->count; i++)
        for (int64_t k = 0; k < p->series[i].count; k++) extend(p->series[i].x[k], &low, &high);
    for (int64_t i = 0; i < p->spans; i++) {
        extend(p->span[i].start, &low, &high);
        extend(p->span[i].end, &low, &high);
    }
    return axis_of(low, high, false);
}

static int by_number(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Beyond what the greatest of 19 in 20 values, and the span below it twice again, reach; HUGE_VAL: nothing
 * is. */
static double limit_of(const report_plot *p)
{
    int64_t n = 0, at = 0;
    double limit = HUGE_VAL;
    for (int i = 0; i < p->count; i++) n += p->series[i].count;
    double *all =
        p->kind == REPORT_CURVES && !p->zero && n >= 20 ? kolo_alloc((size_t)n * sizeof *all) : NULL;
    for (int i = 0; all && i < p->count; i++)
        for (int64_t k = 0; k < p->series[i].count; k++) all[at++] = p->series[i].y[k];
    if (all) {
        qsort(all, (size_t)n, sizeof *all, by_number);
        const double most = all[n - 1 - n / 20], span = most - all[0];
        if (span > 0 && all[n - 1] > most + 2 * span) limit = most + span / 4;
    }
    free(all);
    return limit;
}

report_axis report_plot_y(const report_plot *p, int64_t *cut)
{
    double low = NAN, high = NAN;
    const double limit = limit_of(p);
    int64_t above = 0;
    for (int i = 0; i < p->count; i++)
        for (int64_t k = 0; k < p->series[i].count; k++) {
            above += p->series[i].y[k] > limit;
            extend(fmin(p->series[i].y[k], limit), &low, &high);
        }
    if (p->zero && low > 0) low = 0;
    if (p->zero && !(high > 0)) high = 1;
    if (cut) *cut = above;
    return axis_of(low, high, true);
}

void report_number(char *text, size_t size, double value)
{
    const double v = fabs(value);
    snprintf(text, size,
             !isfinite(value)     ? "-"
             : v != 0 && v < 1e-3 ? "%.3g"
             : v < 10             ? "%.4g"
             : v < 1000           ? "%.4g"
             : v < 1e6            ? "%.0f"
                                  : "%.4g",
             value);
}

/* ---- text ---- */

/* Bytes of the UTF-8 character there; 0: it is none. */
static int character(const unsigned char *p)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    const int n = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
    if (n < 2) return n;
    unsigned code = *p & (0x7fu >> n);
    for (int i = 1; i < n; i++) {
        if (p[i] >> 6 != 2) return 0;
        code = code << 6 | (p[i] & 0x3f);
    }
    return code >= least[n] && code < 0x110000 && (code < 0xd800 || code > 0xdfff) ? n : 0;
}

void report_html(FILE *f, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)(text ? text : ""); *p;) {
        const int n = character(p);
        if (n == 0 || (*p < 0x20 && *p != '\n') || *p == 0x7f) fputs("\xEF\xBF\xBD", f);
        else if (strchr("<>&\"'", *p)) fprintf(f, "&#%d;", *p);
        else fwrite(p, 1, (size_t)n, f);
        p += n > 0 ? n : 1;
    }
}

/* A JSON string in which nothing ends a script. */
static void put_label(FILE *f, const char *text)
{
    char *quoted = kolo_json_quote(text);
    for (const char *p = quoted ? quoted : "\"\""; *p; p++)
        if (strchr("<>&", *p)) fprintf(f, "\\u%04x", *p);
        else fputc(*p, f);
    free(quoted);
}

static void put_numbers(FILE *f, const char *key, const double *value, int64_t n)
{
    fprintf(f, ",\"%s\":[", key);
    for (int64_t i = 0; i < n; i++) {
        if (i) fputc(',', f);
        kolo_json_number(f, value[i], 5);
    }
    fputc(']', f);
}

void report_plot_json(FILE *f, const report_plot *p)
{
    const report_axis x = report_plot_x(p);
    fputs("{\"x\":", f);
    put_label(f, p->x_title);
    fputs(",\"unit\":", f);
    put_label(f, p->unit ? p->unit : "");
    fprintf(f, ",\"low\":%.9g,\"high\":%.9g,\"frame\":[%d,%d,%d],\"series\":[", x.low, x.high, REPORT_LEFT,
            REPORT_WIDTH - REPORT_LEFT - REPORT_RIGHT, REPORT_WIDTH);
    for (int i = 0; i < p->count; i++) {
        fprintf(f, "%s{\"label\":", i ? "," : "");
        put_label(f, p->series[i].label);
        put_numbers(f, "x", p->series[i].x, p->series[i].count);
        put_numbers(f, "y", p->series[i].y, p->series[i].count);
        fputc('}', f);
    }
    fputs("]}", f);
}
