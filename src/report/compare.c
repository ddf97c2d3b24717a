#include "report/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "report/plot.h"

enum { IMAGES, STEPS, SECONDS, NODE_SECONDS, MEASURES };
static const char *const measure_text[] = {"images", "steps", "seconds of steps", "node seconds of steps"};

enum { POINTS = 300, WORD = 24 };

/* What a run had taken after each row of its steps. */
typedef double taken[MEASURES];

/* Of the last start before a step; NaN: not known. */
static double nodes_at(const report_run *r, double step)
{
    double nodes = r->has_summary && r->summary.nodes > 0 ? r->summary.nodes : NAN;
    for (int64_t i = 0; i < r->table[REPORT_start].rows; i++)
        if (report_cell(r, REPORT_start, i, REPORT_start_step) < step)
            nodes = report_cell(r, REPORT_start, i, REPORT_start_nodes);
    return nodes;
}

/* [rows of steps], the caller's; NULL: no memory. */
static taken *add_up(const report_run *r)
{
    const int64_t rows = r->table[REPORT_step].rows;
    taken *sum = kolo_alloc((size_t)(rows + 1) * sizeof *sum), now = {0};
    for (int64_t i = 0; sum && i < rows; i++) {
        const double step = report_cell(r, REPORT_step, i, REPORT_step_step),
                     seconds = report_cell(r, REPORT_step, i, REPORT_step_seconds);
        now[IMAGES] += report_batch_at(r, step);
        now[STEPS] = step;
        now[SECONDS] += seconds;
        now[NODE_SECONDS] += seconds * nodes_at(r, step);
        memcpy(sum[i], now, sizeof now);
    }
    return sum;
}

static int64_t row_of_evaluation(const report_run *r, int64_t evaluation)
{
    return report_row_of(r, report_cell(r, REPORT_eval, evaluation, REPORT_eval_step));
}

/* ---- the table ---- */

static int check_metrics(const report_run *runs, int n)
{
    for (int i = 1; i < n; i++)
        if (report_metric(&runs[i]) != report_metric(&runs[0]))
            return kolo_fail(
                KOLO_ECONFIG, "%s is judged by %s, %s by %s: compare runs that learn the same kind of thing",
                runs[0].folder, report_metric_text(&runs[0]), runs[i].folder, report_metric_text(&runs[i]));
    return 0;
}

static void put_value(FILE *f, const char *format, double value)
{
    char text[WORD] = "-";
    if (isfinite(value)) snprintf(text, sizeof text, format, value);
    fprintf(f, "  %12s", text);
}

static void put_taken(FILE *f, const double *now)
{
    static const char *const format[] = {"%.0f", "%.0f", "%.2f", "%.2f"};
    for (int k = 0; k < MEASURES; k++) put_value(f, format[k], now ? now[k] : NAN);
}

static const char taken_heads[] = "        images         steps             s        node s";

static double best_of(const report_run *r)
{
    const int64_t best = report_best(r);
    return best < 0 ? NAN : report_cell(r, REPORT_eval, best, report_metric(r));
}

static int put_whole(FILE *f, const report_run *r)
{
    const int64_t rows = r->table[REPORT_step].rows, best = report_best(r);
    taken *sum = add_up(r);
    if (!sum) return KOLO_ENOMEM;
    put_value(f, "%.2f %%", 100 * best_of(r));
    put_value(f, "%.4f", best < 0 ? NAN : report_cell(r, REPORT_eval, best, REPORT_eval_loss));
    put_value(f, "%.4f", report_last(r, REPORT_step, REPORT_step_loss));
    put_taken(f, rows ? sum[rows - 1] : NULL);
    fprintf(f, "  %s\n", r->folder);
    free(sum);
    return 0;
}

/* Until the first evaluation that is at least as good as `goal`. */
static int put_until(FILE *f, const report_run *r, double goal)
{
    taken *sum = add_up(r);
    if (!sum) return KOLO_ENOMEM;
    int64_t i = 0;
    while (!(report_cell(r, REPORT_eval, i, report_metric(r)) >= goal)) i++; /* its best one is */
    const int64_t row = row_of_evaluation(r, i);
    put_taken(f, row >= 0 ? sum[row] : NULL);
    fprintf(f, "  %s\n", r->folder);
    free(sum);
    return 0;
}

/* Which weights gradients are formed with, where not all ranks have the newest; empty: they have. */
static void staleness_text(const report_run *r, char *text, size_t size)
{
    const kolo_options *o = &r->options;
    const char *pipeline = kolo_option_find("pipeline")->choices[o->pipeline];
    const long last = (long)o->stages - 1;
    *text = 0;
    if (!r->has_options) return;
    if (o->sync == KOLO_sync_stale)
        snprintf(text, size, "gradients lack %ld update%s (sync=stale)", (long)o->staleness,
                 o->staleness > 1 ? "s" : "");
    else if (o->sync == KOLO_sync_backup)
        snprintf(text, size, "the last %ld rank%s of a step are dropped (sync=backup)", (long)o->backup,
                 o->backup == 1 ? "" : "s");
    else if (o->sync == KOLO_sync_async && o->staleness)
        snprintf(text, size, "ranks push gradients as they come, and lack at most %ld update%s (sync=async)",
                 (long)o->staleness, o->staleness > 1 ? "s" : "");
    else if (o->sync == KOLO_sync_async)
        snprintf(text, size,
                 "ranks push gradients as they come, and lack any number of updates (sync=async)");
    else if (o->local_steps)
        snprintf(text, size, "ranks are apart for %ld steps (local_steps)", (long)o->local_steps);
    else if (o->tournament && o->tournament_group > 1)
        snprintf(text, size, "groups of %ld ranks meet in pairs after every %ld steps (tournament)",
                 (long)o->tournament_group, (long)o->tournament);
    else if (o->tournament)
        snprintf(text, size, "ranks meet in pairs after every %ld steps (tournament)", (long)o->tournament);
    else if (o->swap > 0) snprintf(text, size, "ranks are apart from %g on to the end (swap)", o->swap);
    else if (last > 0 && !strcmp(pipeline, "pipedream"))
        snprintf(text, size, "stage s lacks %ld - s updates (pipeline=pipedream)", last);
    else if (last > 0 && !strcmp(pipeline, "pipedream_vertical"))
        snprintf(text, size, "gradients lack %ld updates (pipeline=pipedream_vertical)", last);
    else if (last > 0 && !strcmp(pipeline, "two_buffered"))
        snprintf(text, size, "gradients lack 1 update (pipeline=two_buffered)");
    else if (last > 0 && !strcmp(pipeline, "pipelined"))
        snprintf(text, size, "the forward half of stage s lacks %ld - 2s updates (pipeline=pipelined)",
                 2 * last);
}

static void put_staleness(FILE *f, const report_run *runs, int n)
{
    char text[128];
    bool any = false;
    for (int i = 0; i < n; i++) {
        staleness_text(&runs[i], text, sizeof text);
        if (!*text) continue;
        if (!any) fprintf(f, "\nweights that are late, or apart:\n");
        any = true;
        fprintf(f, "  %-64s  %s\n", text, runs[i].folder);
    }
}

int report_compare_table(FILE *f, const report_run *runs, int n)
{
    double goal = HUGE_VAL;
    KOLO_TRY(check_metrics(runs, n));
    fprintf(f, "  %7s best  %12s  %12s%s  run\n", report_metric_text(&runs[0]), "its loss", "last loss",
            taken_heads);
    for (int i = 0; i < n; i++) {
        const double best = best_of(&runs[i]);
        KOLO_TRY(put_whole(f, &runs[i]));
        goal = isnan(best) || isnan(goal) ? NAN : fmin(goal, best);
    }
    put_staleness(f, runs, n);
    if (isnan(goal) || n < 2) return 0;
    fprintf(f, "\nuntil an evaluation had %s %.2f %%, which all of them reached:\n%s  run\n",
            report_metric_text(&runs[0]), 100 * goal, taken_heads);
    for (int i = 0; i < n; i++) KOLO_TRY(put_until(f, &runs[i], goal));
    return 0;
}

/* ---- the drawing ---- */

/* The run and, where not all ranks have the newest weights, which they have; if that is long its option. */
static void put_label(const report_run *r, char *label, size_t size)
{
    enum { LEGEND = 72 };
    char text[128];
    staleness_text(r, text, sizeof text);
    const char *option = strrchr(text, '(');
    if (!*text) snprintf(label, size, "%s", r->name);
    else if (strlen(r->name) + strlen(text) > LEGEND && option)
        snprintf(label, size, "%s %s", r->name, option);
    else snprintf(label, size, "%s: %s", r->name, text);
}

static int add_run(report_plot *loss, report_plot *metric, const report_run *r, int colour, int measure)
{
    char label[512];
    put_label(r, label, sizeof label);
    report_series *losses = report_plot_series(loss, label, colour),
                  *evaluations = report_plot_series(metric, r->name, colour);
    taken *sum = losses && evaluations ? add_up(r) : NULL;
    int rc = sum ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; i < r->table[REPORT_step].rows && rc == 0; i++)
        rc = report_plot_point(losses, sum[i][measure], report_cell(r, REPORT_step, i, REPORT_step_loss));
    for (int64_t i = 0; i < r->table[REPORT_eval].rows && rc == 0; i++) {
        const int64_t row = row_of_evaluation(r, i);
        const double value = 100 * report_cell(r, REPORT_eval, i, report_metric(r));
        if (row >= 0) rc = report_plot_point(evaluations, sum[row][measure], value);
    }
    if (rc == 0) evaluations->dots = true;
    free(sum);
    return rc;
}

/* Loss and evaluations over one measure. */
static int make_pair(report_plot *loss, report_plot *metric, const report_run *runs, int n, int measure)
{
    *loss = (report_plot){.title = "Loss", .x_title = measure_text[measure], .y_title = "training loss"};
    *metric = (report_plot){.title = "Evaluations", .x_title = measure_text[measure], .unit = " %"};
    metric->y_title = report_metric_text(&runs[0]);
    for (int i = 0; i < n; i++) KOLO_TRY(add_run(loss, metric, &runs[i], i, measure));
    report_plot_thin(loss, POINTS);
    return 0;
}

/* Those with anything in them to the front; how many. */
static int leave_empty_out(report_plot *plot, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++) {
        const report_plot one = plot[i];
        if (report_plot_empty(&one)) continue;
        plot[i] = plot[kept];
        plot[kept++] = one;
    }
    return kept;
}

int report_compare_svg(FILE *f, const report_run *runs, int n)
{
    report_plot *plot = kolo_alloc(2 * MEASURES * sizeof *plot);
    if (!plot) return KOLO_ENOMEM;
    memset(plot, 0, 2 * MEASURES * sizeof *plot);
    int rc = check_metrics(runs, n);
    for (int k = 0; k < MEASURES && rc == 0; k++) rc = make_pair(&plot[2 * k], &plot[2 * k + 1], runs, n, k);
    const bool evaluated = rc == 0 && !report_plot_empty(&plot[2 * STEPS + 1]);
    const int kept = rc == 0 ? leave_empty_out(plot, 2 * MEASURES) : 0;
    if (rc == 0 && !kept) rc = kolo_fail(KOLO_EINPUT, "%s: no step has been reported yet", runs[0].folder);
    if (rc == 0) report_plot_sheet(f, plot, kept, evaluated ? 2 : 1);
    for (int i = 0; i < 2 * MEASURES; i++) report_plot_free(&plot[i]);
    free(plot);
    return rc;
}
