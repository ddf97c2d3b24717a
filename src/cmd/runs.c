/* kolo runs: every run below a folder, a line each. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/folder.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "report/answers.h"
#include "report/plot.h"
#include "report/run.h"

enum { DEEPEST = 8, WATCH_MS = 2000 };

/* ---- which ---- */

static bool is_folder(const char *parent, const struct dirent *entry)
{
    if (entry->d_name[0] == '.') return false;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR; /* links are not followed: they may turn back */
    char *path = kolo_format("%s/%s", parent, entry->d_name);
    const bool folder = path && kolo_folder_exists(path);
    free(path);
    return folder;
}

/* Adds the runs below a folder; in a run nothing is looked for. Unreadable folders have none to show. */
static int find(kolo_folder_names *runs, const char *folder, int depth)
{
    int rc = 0;
    if (report_run_is(folder)) return kolo_folder_add(runs, folder);
    DIR *d = depth < DEEPEST ? opendir(folder) : NULL;
    for (struct dirent *entry; d && rc == 0 && (entry = readdir(d));) {
        if (!is_folder(folder, entry)) continue;
        char *path =
            !strcmp(folder, ".") ? kolo_strdup(entry->d_name) : kolo_format("%s/%s", folder, entry->d_name);
        rc = path ? find(runs, path, depth + 1) : KOLO_ENOMEM;
        free(path);
    }
    if (d) closedir(d);
    return rc;
}

/* ---- what of each ---- */

typedef struct row {
    char folder[PATH_MAX], state[16], why[512], next[512], job[32], model[64], metric[16];
    double step, total, eta, score, best, img_per_s, changed;
} row;

/* The state decides first: what runs or waits, then what wants a hand, then what is done; newest first. */
static int by_state(const void *a, const void *b)
{
    static const char order[] = "rqfusbd"; /* initials of report_state_name; u: unread */
    const row *x = a, *y = b;
    const char *p = strchr(order, *x->state), *q = strchr(order, *y->state);
    if (p != q) return p < q ? -1 : 1;
    return x->changed != y->changed ? (x->changed < y->changed ? 1 : -1) : strcmp(x->folder, y->folder);
}

static int fill_row(row *to, const char *folder)
{
    report_run run;
    report_speed speed;
    int rc = report_run_read(&run, folder);
    if (rc == 0) {
        report_run_speed(&run, 100, &speed);
        const int metric = report_metric(&run);
        const int64_t best = report_best(&run);
        const bool ends = run.state == REPORT_DONE;
        *to = (row){.step = report_last(&run, REPORT_step, REPORT_step_step),
                    .total = speed.total,
                    .eta = ends                          ? 0
                           : run.state == REPORT_RUNNING ? speed.eta
                                                         : NAN,
                    .score = report_last(&run, REPORT_eval, metric),
                    .best = best < 0 ? NAN : report_cell(&run, REPORT_eval, best, metric),
                    .img_per_s = speed.img_per_s,
                    .changed = run.changed};
        if (isnan(to->step) && run.has_summary) to->step = (double)run.summary.steps;
        snprintf(to->folder, sizeof to->folder, "%s", folder);
        snprintf(to->state, sizeof to->state, "%s", report_state_name[run.state]);
        snprintf(to->why, sizeof to->why, "%s", run.why);
        snprintf(to->next, sizeof to->next, "%s", run.next);
        snprintf(to->job, sizeof to->job, "%s", run.job);
        snprintf(to->model, sizeof to->model, "%s", run.summary.model);
        snprintf(to->metric, sizeof to->metric, "%s", report_metric_text(&run));
    }
    report_run_free(&run);
    return rc;
}

/* A run whose files are there and cannot be read: others' may be closed. */
static void fill_unreadable(row *to, const char *folder)
{
    *to = (row){.state = "unread",
                .step = NAN,
                .total = NAN,
                .eta = NAN,
                .score = NAN,
                .best = NAN,
                .img_per_s = NAN};
    snprintf(to->folder, sizeof to->folder, "%s", folder);
    snprintf(to->why, sizeof to->why, "%s", kolo_error_text());
}

/* Rows of the runs that were found, sorted. */
typedef struct run_list {
    row *row;
    int64_t count;
} run_list;

/* The row that a run had when it was looked at last, if it had ended then and has written nothing since. */
static const row *find_ended(const run_list *before, const char *folder)
{
    for (int64_t i = 0; before && i < before->count; i++) {
        const row *r = &before->row[i];
        if (strcmp(r->folder, folder) != 0) continue;
        const bool ended = !strcmp(r->state, report_state_name[REPORT_DONE]) ||
                           !strcmp(r->state, report_state_name[REPORT_FAILED]);
        return ended && r->changed == report_run_changed(folder) ? r : NULL;
    }
    return NULL;
}

/* 1: a row; 0: there is no such run any more. */
static int fill(row *to, const run_list *before, const char *folder)
{
    const row *same = find_ended(before, folder);
    if (same) {
        *to = *same;
        return 1;
    }
    const int rc = fill_row(to, folder);
    if (rc == KOLO_ENOMEM) return rc;
    if (rc < 0 && !report_run_is(folder)) return 0;
    if (rc < 0) fill_unreadable(to, folder);
    return 1;
}

/* now->row: the caller's. before: the rows of a moment ago, or NULL. */
static int gather(const char *folder, const run_list *before, run_list *now)
{
    kolo_folder_names names = {0};
    *now = (run_list){NULL, 0};
    int rc = find(&names, folder, 0);
    if (rc == 0 && !(now->row = kolo_alloc((size_t)(names.count + 1) * sizeof *now->row))) rc = KOLO_ENOMEM;
    for (int64_t i = 0; i < names.count && rc >= 0; i++) {
        rc = fill(&now->row[now->count], before, names.list[i]);
        now->count += rc > 0;
    }
    kolo_folder_free(&names);
    if (rc >= 0 && now->count) qsort(now->row, (size_t)now->count, sizeof *now->row, by_state);
    return rc < 0 ? rc : 0;
}

/* ---- forms ---- */

static void print_json(const row *rows, int64_t count)
{
    static const char *const number_key[] = {"step", "steps_total", "eta_seconds", "score",
                                             "best", "img_per_s",   "changed"};
    static const char *const text_key[] = {"folder", "state", "why", "next", "job", "model", "metric"};
    fputs("{\"runs\": [", stdout);
    for (int64_t i = 0; i < count; i++) {
        const row *r = &rows[i];
        const char *const text[] = {r->folder, r->state, r->why, r->next, r->job, r->model, r->metric};
        const double number[] = {r->step, r->total, r->eta, r->score, r->best, r->img_per_s, r->changed};
        fputs(i ? ",\n {" : "\n {", stdout);
        for (size_t k = 0; k < sizeof text / sizeof *text; k++) {
            printf("%s\"%s\": ", k ? ", " : "", text_key[k]);
            kolo_json_string(stdout, text[k]);
        }
        for (size_t k = 0; k < sizeof number / sizeof *number; k++) {
            printf(", \"%s\": ", number_key[k]);
            kolo_json_number(stdout, number[k], k + 1 < sizeof number / sizeof *number ? 9 : 13);
        }
        putchar('}');
    }
    puts("\n]}");
}

static const char *colour_of(const row *r)
{
    return *r->state == 'f'   ? "\033[31m"
           : *r->state == 'd' ? "\033[32m"
           : *r->state == 'r' ? "\033[36m"
                              : "\033[33m";
}

/* Columns of a terminal: UTF-8's continuing bytes take none. */
static int columns_of(const char *text)
{
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

static void print_row(const row *r, int width, bool colour)
{
    char step[64], eta[32], speed[32], score[64] = "-", line[64], *next;
    if (isnan(r->total)) snprintf(step, sizeof step, "%.0f", isfinite(r->step) ? r->step : 0);
    else snprintf(step, sizeof step, "%.0f/%.0f", isfinite(r->step) ? r->step : 0, r->total);
    report_duration(eta, sizeof eta, r->eta);
    report_number(speed, sizeof speed, r->img_per_s);
    if (isfinite(r->best)) snprintf(score, sizeof score, "%.2f %% %s", 100 * r->best, r->metric);
    snprintf(line, sizeof line, "%-8s", r->state);
    printf("%s%s%s %s%*s %15s %12s %15s %8s %8s\n", colour ? colour_of(r) : "", line, colour ? "\033[0m" : "",
           r->folder, width - columns_of(r->folder), "", step, eta, score, speed, *r->job ? r->job : "-");
    next = kolo_format("%s%s%s", r->why, *r->why && *r->next ? "; " : "", r->next);
    if (next && *next) printf("         %s\n", kolo_plain(next));
    free(next);
}

static void print_table(row *rows, int64_t count, const char *folder, bool colour)
{
    int width = 3;
    for (int64_t i = 0; i < count; i++) {
        const int length = columns_of(kolo_plain(rows[i].folder));
        if (length > width) width = length;
    }
    if (!count)
        printf("no run below %s: a run is a folder with events.jsonl, which kolo train run=FOLDER makes\n",
               folder);
    else
        printf("%-8s %-*s %15s %12s %15s %8s %8s\n", "state", width, "run", "step", "time left", "best",
               "img/s", "job");
    for (int64_t i = 0; i < count; i++) print_row(&rows[i], width, colour);
}

/* *shown: the rows before, then those printed; the caller's. */
static int print_once(const char *folder, bool json, bool colour, run_list *shown)
{
    run_list now;
    const int rc = gather(folder, shown, &now);
    if (rc == 0 && json) print_json(now.row, now.count);
    else if (rc == 0) print_table(now.row, now.count, folder, colour);
    free(shown->row);
    *shown = now;
    return rc;
}

/* Until a key that ends it, Ctrl-C, or the end of standard input where that is no terminal. */
static int watch(const char *folder, run_list *shown)
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        char key = 0;
        fputs("\033[H\033[2J", stdout);
        KOLO_TRY(print_once(folder, false, true, shown));
        printf("\n(again every %d s; q and Enter, or Ctrl-C, ends)\n", WATCH_MS / 1000);
        KOLO_TRY(kolo_stdout_flush());
        const int ready = poll(&in, 1, WATCH_MS);
        if (ready > 0 && (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q')) return 0;
    }
}

int kolo_command_runs(int n, char **words)
{
    const bool watches = kolo_command_flag(&n, words, "--watch"),
               json = kolo_command_flag(&n, words, "--json");
    run_list shown = {NULL, 0};
    const char *folder = NULL, *no_color = getenv("NO_COLOR");
    kolo_options options;
    if (watches && json) return kolo_fail(KOLO_ECONFIG, "--watch and --json: one form at a time");
    KOLO_TRY(kolo_command_words(&options, n, words, 1, &folder));
    if (!folder) folder = ".";
    int rc = kolo_folder_exists(folder)
                 ? 0
                 : kolo_fail(KOLO_EINPUT, "%s: there is no such folder; kolo runs FOLDER", folder);
    if (rc == 0)
        rc = watches ? watch(folder, &shown)
                     : print_once(folder, json, isatty(STDOUT_FILENO) && !(no_color && *no_color), &shown);
    free(shown.row);
    kolo_options_free(&options);
    return rc;
}
