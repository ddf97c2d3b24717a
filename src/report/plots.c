#include "report/plots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

enum { POINTS = 300, MOST_BARS = 30, MOST_RANKS = 64, MOST_CELLS = 40 };

const char *const report_plot_name[] = {
#define PLOT(name, ...) #name,
#include "report/plots.def"
#undef PLOT
};

/* The run's name where there are several, the figure's where there is one, both where both are needed. */
static report_series *series_of(report_plot *p, const report_run *runs, int n, int run, const char *figure,
                                int nth)
{
    char *both = n > 1 && nth > 0 ? kolo_format("%s, %s", runs[run].name, figure) : NULL;
    report_series *s = report_plot_series(p,
                                          both    ? both
                                          : n > 1 ? runs[run].name
                                                  : figure,
                                          n > 1 ? run : nth);
    free(both);
    if (s) s->dashed = n > 1 && nth > 0;
    return s;
}

static bool is_full(const report_plot *p) { return p->count == REPORT_SERIES; }

/* A column of the steps over epochs. */
static int add_steps(report_plot *p, const report_run *runs, int n, int run, const char *figure, int nth,
                     int column, double factor)
{
    const report_run *r = &runs[run];
    if (is_full(p) || isnan(report_last(r, REPORT_step, column))) return 0;
    report_series *s = series_of(p, runs, n, run, figure, nth);
    if (!s) return KOLO_ENOMEM;
    for (int64_t i = 0; i < r->table[REPORT_step].rows; i++)
        KOLO_TRY(report_plot_point(s, r->epoch[i], factor * report_cell(r, REPORT_step, i, column)));
    return 0;
}

static int add_evaluations(report_plot *p, const report_run *runs, int n, int run, const char *figure,
                           int nth, int column, double factor)
{
    const report_run *r = &runs[run];
    if (is_full(p) || isnan(report_last(r, REPORT_eval, column))) return 0;
    report_series *s = series_of(p, runs, n, run, figure, nth);
    if (!s) return KOLO_ENOMEM;
    s->dots = true;
    for (int64_t i = 0; i < r->table[REPORT_eval].rows; i++)
        KOLO_TRY(report_plot_point(s, report_epoch_of(r, report_cell(r, REPORT_eval, i, REPORT_eval_step)),
                                   factor * report_cell(r, REPORT_eval, i, column)));
    return 0;
}

static int make_loss(report_plot *p, const report_run *runs, int n)
{
    for (int i = 0; i < n; i++) {
        KOLO_TRY(add_steps(p, runs, n, i, "training", 0, REPORT_step_loss, 1));
        KOLO_TRY(add_evaluations(p, runs, n, i, "validation", 1, REPORT_eval_loss, 1));
    }
    return 0;
}

static int make_accuracy(report_plot *p, const report_run *runs, int n)
{
    static const struct {
        int column;
        const char *text;
    } figure[] = {
        {REPORT_eval_top1, "top-1"},       {REPORT_eval_top5, "top-5"}, {REPORT_eval_ap, "AP"},
        {REPORT_eval_ap50, "AP at .5"},    {REPORT_eval_map, "mAP"},    {REPORT_eval_map_voc, "VOC mAP"},
        {REPORT_eval_ap_micro, "micro AP"}};
    if (n == 1) KOLO_TRY(add_steps(p, runs, n, 0, "top-1 of training batches", 3, REPORT_step_top1, 100));
    for (int i = 0; i < n; i++) {
        if (n > 1) KOLO_TRY(add_evaluations(p, runs, n, i, "", 0, report_metric(&runs[i]), 100));
        for (size_t k = 0, nth = 0; n == 1 && k < sizeof figure / sizeof *figure; k++) {
            const int before = p->count;
            KOLO_TRY(add_evaluations(p, runs, n, i, figure[k].text, (int)nth, figure[k].column, 100));
            nth += p->count > before;
        }
    }
    return 0;
}

static int make_lr(report_plot *p, const report_run *runs, int n)
{
    for (int i = 0; i < n; i++) KOLO_TRY(add_steps(p, runs, n, i, "learning rate", 0, REPORT_step_lr, 1));
    return 0;
}

static int make_grad_norm(report_plot *p, const report_run *runs, int n)
{
    for (int i = 0; i < n; i++) {
        double most = 0; /* 0 throughout: it was not computed */
        for (int64_t k = 0; k < runs[i].table[REPORT_step].rows; k++)
            most = fmax(most, report_cell(&runs[i], REPORT_step, k, REPORT_step_grad_norm));
        if (most > 0) KOLO_TRY(add_steps(p, runs, n, i, "gradient", 0, REPORT_step_grad_norm, 1));
    }
    return 0;
}

static int make_batch(report_plot *p, const report_run *runs, int n)
{
    for (int i = 0; i < n && !is_full(p); i++) {
        const report_run *r = &runs[i];
        const bool known = isfinite(report_batch_at(r, HUGE_VAL));
        report_series *s = known ? series_of(p, runs, n, i, "batch", 0) : NULL;
        if (known && !s) return KOLO_ENOMEM;
        for (int64_t k = 0; s && k < r->table[REPORT_step].rows; k++)
            KOLO_TRY(report_plot_point(s, r->epoch[k],
                                       report_batch_at(r, report_cell(r, REPORT_step, k, REPORT_step_step))));
        KOLO_TRY(add_steps(p, runs, n, i, "useful batch", 1, REPORT_step_useful_batch, 1));
    }
    return 0;
}

/* Sums over windows of steps, so that a slow step counts as long as it took. */
static int add_windows(report_plot *p, const report_run *r, report_series *s, int column)
{
    const int64_t rows = r->table[REPORT_step].rows, windows = rows < POINTS ? rows : POINTS;
    for (int64_t w = 0; w < windows; w++) {
        double seconds = 0, sum = 0;
        const int64_t end = (w + 1) * rows / windows;
        for (int64_t i = w * rows / windows; i < end; i++) {
            const double value = column < 0
                                     ? report_batch_at(r, report_cell(r, REPORT_step, i, REPORT_step_step))
                                     : 100 * report_cell(r, REPORT_step, i, column);
            seconds += report_cell(r, REPORT_step, i, REPORT_step_seconds);
            sum += value;
        }
        if (seconds > 0) KOLO_TRY(report_plot_point(s, r->epoch[end - 1], sum / seconds));
    }
    p->zero = true;
    return 0;
}

static int make_speed(report_plot *p, const report_run *runs, int n)
{
    for (int i = 0; i < n && !is_full(p); i++) {
        if (!runs[i].table[REPORT_step].rows || isnan(report_batch_at(&runs[i], HUGE_VAL))) continue;
        report_series *s = series_of(p, runs, n, i, "images a second", 0);
        if (!s) return KOLO_ENOMEM;
        KOLO_TRY(add_windows(p, &runs[i], s, -1));
    }
    return 0;
}

static int make_wait(report_plot *p, const report_run *runs, int n)
{
    static const struct {
        int column;
        const char *text;
    } kind[] = {{REPORT_step_wait, "for data"}, {REPORT_step_comm, "for other ranks"}};
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2 && !is_full(p); k++) {
            if (isnan(report_last(&runs[i], REPORT_step, kind[k].column))) continue;
            report_series *s = series_of(p, runs, n, i, kind[k].text, k);
            if (!s) return KOLO_ENOMEM;
            KOLO_TRY(add_windows(p, &runs[i], s, kind[k].column));
        }
    return 0;
}

static int make_memory(report_plot *p, const report_run *runs, int n)
{
    static const char *const text[] = {"planned", "resident at its peak"};
    int most = 0;
    char label[64];
    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2 && !is_full(p); k++) {
            const int ranks = cJSON_GetArraySize(runs[i].memory[k]);
            if (!ranks) continue;
            report_series *s = report_plot_series(p, text[k], n > 1 ? 2 * i + k : k);
            if (!s) return KOLO_ENOMEM;
            if (n > 1) {
                free(s->label);
                if (!(s->label = kolo_format("%s, %s", runs[i].name, text[k]))) return KOLO_ENOMEM;
            }
            for (int r = 0; r < ranks && r < MOST_RANKS; r++)
                KOLO_TRY(report_plot_point(
                    s, r, cJSON_GetNumberValue(cJSON_GetArrayItem(runs[i].memory[k], r)) / 0x1p30));
            if (ranks > most) most = ranks;
        }
    for (int r = 0; r < most && r < MOST_RANKS; r++) {
        snprintf(label, sizeof label, "rank %d", r);
        KOLO_TRY(report_plot_label(p, label));
    }
    p->zero = true;
    if (most > MOST_RANKS) snprintf(p->note, sizeof p->note, "The first %d of %d ranks.", MOST_RANKS, most);
    return 0;
}

/* ---- classes ---- */

double report_class_score(const report_run *r, int cls)
{
    const cJSON *ap = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->classes, "ap"), cls),
                *right = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->classes, "right"), cls),
                *images = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->classes, "images"), cls);
    if (cJSON_IsNumber(ap)) return ap->valuedouble;
    if (!cJSON_IsNumber(right) || !cJSON_IsNumber(images) || images->valuedouble <= 0) return NAN;
    return right->valuedouble / images->valuedouble;
}

static int classes_of(const report_run *r)
{
    return cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(r->classes, "images"));
}

typedef struct ranked {
    int cls;
    double score;
} ranked;

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? -1 : 1;
    return (x->cls > y->cls) - (x->cls < y->cls);
}

/* The classes that were seen, the worst first; *list is the caller's. */
static int rank_classes(const report_run *r, ranked **list, int *count)
{
    const int n = classes_of(r);
    *count = 0;
    if (!(*list = kolo_alloc((size_t)(n + 1) * sizeof **list))) return KOLO_ENOMEM;
    for (int c = 0; c < n; c++) {
        const double score = report_class_score(r, c);
        if (isfinite(score)) (*list)[(*count)++] = (ranked){c, score};
    }
    if (*count) qsort(*list, (size_t)*count, sizeof **list, by_score);
    return 0;
}

int report_worst_class(const report_run *r)
{
    ranked *list = NULL;
    int count, worst = -1;
    if (rank_classes(r, &list, &count) == 0 && count) worst = list[0].cls;
    free(list);
    return worst;
}

static int make_classes(report_plot *p, const report_run *runs, int n)
{
    ranked *list = NULL;
    int count = 0, first = 0, rc = 0;
    char number[32];
    while (first < n && !runs[first].classes) first++;
    if (first == n) return 0;
    KOLO_TRY(rank_classes(&runs[first], &list, &count));
    const int shown = count < MOST_BARS ? count : MOST_BARS;
    for (int k = 0; k < shown && rc == 0; k++)
        rc = report_plot_label(p, report_class_name(&runs[first], list[k].cls, number, sizeof number));
    for (int i = first; i < n && rc == 0 && !is_full(p); i++) {
        if (classes_of(&runs[i]) != classes_of(&runs[first])) continue; /* other classes */
        report_series *s =
            series_of(p, runs, n, i, cJSON_HasObjectItem(runs[i].classes, "ap") ? "AP" : "right", 0);
        rc = s ? 0 : KOLO_ENOMEM;
        for (int k = 0; k < shown && rc == 0; k++) {
            const double score = report_class_score(&runs[i], list[k].cls);
            rc = report_plot_point(s, k, isfinite(score) ? 100 * score : 0);
        }
    }
    p->zero = true;
    if (shown < count) snprintf(p->note, sizeof p->note, "The worst %d of %d classes.", shown, count);
    free(list);
    return rc;
}

static int fill_matrix(report_plot *p, const report_run *r, int n)
{
    const cJSON *right = cJSON_GetObjectItemCaseSensitive(r->classes, "right"), *one;
    if (!(p->value = kolo_alloc((size_t)(n * n) * sizeof *p->value))) return KOLO_ENOMEM;
    for (int c = 0; c < n; c++) p->value[c * n + c] = cJSON_GetNumberValue(cJSON_GetArrayItem(right, c));
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(r->classes, "confused"))
    {
        const cJSON *label = cJSON_GetArrayItem(one, 0), *answer = cJSON_GetArrayItem(one, 1),
                    *count = cJSON_GetArrayItem(one, 2);
        if (!cJSON_IsNumber(label) || !cJSON_IsNumber(answer) || !cJSON_IsNumber(count)) continue;
        if (label->valueint < 0 || label->valueint >= n || answer->valueint < 0 || answer->valueint >= n)
            continue;
        p->value[label->valueint * n + answer->valueint] = count->valuedouble;
    }
    return 0;
}

static int make_confusion(report_plot *p, const report_run *runs, int n)
{
    int first = 0;
    char number[32];
    while (first < n && !cJSON_HasObjectItem(runs[first].classes, "confused")) first++;
    if (first == n) return 0;
    const report_run *r = &runs[first];
    const int classes = classes_of(r);
    if (classes < 1 || classes > MOST_CELLS) return 0;
    for (int c = 0; c < classes; c++)
        KOLO_TRY(report_plot_label(p, report_class_name(r, c, number, sizeof number)));
    if (n > 1) snprintf(p->note, sizeof p->note, "Of the run %.400s.", r->name);
    return fill_matrix(p, r, classes);
}

/* ---- files beside the events ---- */

static int make_roc(report_plot *p, const report_run *runs, int n)
{
    for (int i = 0; i < n && !is_full(p); i++) {
        const cJSON *points = cJSON_GetObjectItemCaseSensitive(runs[i].roc, "points"), *one;
        if (!cJSON_IsArray(points)) continue;
        report_series *s = series_of(p, runs, n, i, "pairs", 0);
        if (!s) return KOLO_ENOMEM;
        cJSON_ArrayForEach(one, points)
            KOLO_TRY(report_plot_point(s, cJSON_GetNumberValue(cJSON_GetArrayItem(one, 0)),
                                       cJSON_GetNumberValue(cJSON_GetArrayItem(one, 1))));
    }
    return 0;
}

static double number_in(const cJSON *event, const char *key)
{
    return cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(event, key));
}

static const char *text_in(const cJSON *event, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, key));
    return text ? text : "";
}

/* The row of a trace's process and thread: its number among those that are named. */
static int row_of(const cJSON *events, const cJSON *event)
{
    const cJSON *one;
    int row = 0;
    cJSON_ArrayForEach(one, events)
    {
        if (strcmp(text_in(one, "name"), "thread_name")) continue;
        if (number_in(one, "pid") == number_in(event, "pid") &&
            number_in(one, "tid") == number_in(event, "tid"))
            return row;
        row++;
    }
    return -1;
}

/* A colour for each kind of work, in the order in which they come; the legend names it. */
static int colour_of(report_plot *p, const char *kind)
{
    for (int i = 0; i < p->count; i++)
        if (!strcmp(p->series[i].label, kind)) return i;
    return report_plot_series(p, kind, p->count) ? p->count - 1 : 0;
}

/* As kolo plan timeline=FILE writes it. */
static int make_timeline(report_plot *p, const report_run *runs, int n)
{
    int first = 0;
    const cJSON *events, *one;
    while (first < n && !runs[first].timeline) first++;
    if (first == n) return 0;
    events = cJSON_GetObjectItemCaseSensitive(runs[first].timeline, "traceEvents");
    cJSON_ArrayForEach(one, events) if (!strcmp(text_in(one, "name"), "thread_name"))
        KOLO_TRY(report_plot_label(p, text_in(cJSON_GetObjectItemCaseSensitive(one, "args"), "name")));
    cJSON_ArrayForEach(one, events)
    {
        const int row = strcmp(text_in(one, "ph"), "X") ? -1 : row_of(events, one);
        const double start = number_in(one, "ts") / 1e3, length = number_in(one, "dur") / 1e3;
        if (row < 0 || !isfinite(start) || !isfinite(length)) continue;
        KOLO_TRY(kolo_grow(&p->span, &p->span_capacity, p->spans, sizeof *p->span));
        report_span *s = &p->span[p->spans++];
        *s = (report_span){.row = row, .start = start, .end = start + length};
        s->colour = colour_of(p, text_in(one, "cat"));
        snprintf(s->name, sizeof s->name, "%s", text_in(one, "name"));
    }
    snprintf(p->note, sizeof p->note, "As timeline.json in the run folder has it.");
    return 0;
}

int report_plot_make(report_plot *p, enum report_plot_id which, const report_run *runs, int n)
{
    static const struct {
        enum report_plot_kind kind;
        const char *title, *x, *y, *unit;
        int (*make)(report_plot *plot, const report_run *runs, int n);
    } form[] = {
#define PLOT(name, kind, title, x, y, unit) {REPORT_##kind, title, x, y, unit, make_##name},
#include "report/plots.def"
#undef PLOT
    };
    *p = (report_plot){.kind = form[which].kind,
                       .name = report_plot_name[which],
                       .title = form[which].title,
                       .x_title = form[which].x,
                       .y_title = form[which].y,
                       .unit = form[which].unit};
    KOLO_TRY(form[which].make(p, runs, n));
    if (p->kind != REPORT_CURVES) return 0;
    if (n > 1 && p->count == 1) kolo_append(p->note, sizeof p->note, "Of the run %s. ", p->series[0].label);
    int64_t cut;
    report_plot_thin(p, POINTS);
    report_plot_y(p, &cut);
    if (cut)
        kolo_append(p->note, sizeof p->note,
                    "%lld value%s far above all others %s drawn at the upper border.", (long long)cut,
                    cut == 1 ? "" : "s", cut == 1 ? "is" : "are");
    return 0;
}
