/* kolo report: what runs have reported, as a page, a table, a plot, or text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "report/answers.h"
#include "report/export.h"
#include "report/page.h"
#include "report/plots.h"

enum { MOST_RUNS = 64, WIDTH = 80 };

typedef struct report {
    report_run *run;
    report_run *earlier;       /* [n] as far as found */
    const report_run **before; /* [n] into earlier, or NULL */
    int n;
    bool csv, json, text;
    const char *svg; /* name of a plot, or NULL */
    const char *out; /* file, or "" */
} report;

static int unknown_plot(const char *name)
{
    char names[512] = "";
    const char *near = kolo_nearest(name, report_plot_name, REPORT_PLOTS);
    for (int i = 0; i < REPORT_PLOTS; i++)
        kolo_append(names, sizeof names, "%s%s", i ? ", " : "", report_plot_name[i]);
    return kolo_fail(KOLO_ECONFIG, "--svg %s: there is no such plot; one of %s%s%s%s", name, names,
                     near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
}

static int find_plot(const char *name)
{
    for (int i = 0; i < REPORT_PLOTS; i++)
        if (!strcmp(name, report_plot_name[i])) return i;
    return unknown_plot(name);
}

/* Takes `--svg NAME` or `--svg=NAME` out of the words. */
static int take_svg(int *n, char **words, const char **svg)
{
    *svg = NULL;
    for (int i = 0; i < *n; i++) {
        const bool joined = !strncmp(words[i], "--svg=", 6);
        if (!joined && strcmp(words[i], "--svg")) continue;
        if (!joined && i + 1 == *n) return unknown_plot("");
        *svg = joined ? words[i] + 6 : words[i + 1];
        const int taken = joined ? 1 : 2;
        memmove(&words[i], &words[i + taken], (size_t)(*n - i - taken) * sizeof *words);
        *n -= taken;
        return find_plot(*svg) < 0 ? KOLO_ECONFIG : 0;
    }
    return 0;
}

static int read_runs(report *r, const char *const *folder)
{
    r->run = kolo_alloc((size_t)r->n * sizeof *r->run);
    r->earlier = kolo_alloc((size_t)r->n * sizeof *r->earlier);
    r->before = kolo_alloc((size_t)r->n * sizeof *r->before);
    if (!r->run || !r->earlier || !r->before) return KOLO_ENOMEM;
    for (int i = 0; i < r->n; i++) KOLO_TRY(report_run_read(&r->run[i], folder[i]));
    report_sort(r->run, r->n);
    for (int i = 0; i < r->n; i++) {
        const int found = report_find_before(&r->earlier[i], &r->run[i]);
        KOLO_TRY(found);
        if (found) r->before[i] = &r->earlier[i];
    }
    return 0;
}

static void free_runs(report *r)
{
    for (int i = 0; r->run && i < r->n; i++) report_run_free(&r->run[i]);
    for (int i = 0; r->before && i < r->n; i++)
        if (r->before[i]) report_run_free(&r->earlier[i]);
    free(r->run);
    free(r->earlier);
    free(r->before);
}

/* ---- forms ---- */

static int write_svg(const report *r, FILE *f)
{
    report_plot plot;
    int rc = report_plot_make(&plot, find_plot(r->svg), r->run, r->n);
    if (rc == 0 && report_plot_empty(&plot))
        rc = kolo_fail(KOLO_EINPUT, "--svg %s: %s%s has reported nothing of that", r->svg, r->run[0].folder,
                       r->n > 1 ? " (nor any other)" : "");
    if (rc == 0) report_plot_svg(f, &plot, true);
    report_plot_free(&plot);
    return rc;
}

static bool is_utf8(void)
{
    const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (int i = 0; i < 3; i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strcasestr(value, "utf-8") || strcasestr(value, "utf8");
    }
    return false;
}

static int columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : WIDTH;
}

static int write_text(const report *r, FILE *f)
{
    const bool dots = is_utf8();
    for (int i = 0; i < r->n; i++) {
        report_answer answer[REPORT_ANSWERS];
        fprintf(f, "%s%s: %s, %s\n", i ? "\n" : "", r->run[i].folder, r->run[i].summary.model,
                report_state_name[r->run[i].state]);
        KOLO_TRY(report_answer_all(answer, &r->run[i], r->before[i]));
        for (int k = 0; k < REPORT_ANSWERS; k++)
            fprintf(f, "  %s\n    %s\n", answer[k].question, answer[k].text);
        if (r->run[i].torn)
            fprintf(f,
                    "  %" PRId64 " of %" PRId64
                    " lines of events.jsonl are no whole events and were left out.\n",
                    r->run[i].torn, r->run[i].lines);
    }
    for (int k = 0; k < REPORT_PLOTS; k++) {
        report_plot plot;
        const int rc = report_plot_make(&plot, k, r->run, r->n);
        if (rc == 0 && !report_plot_empty(&plot)) report_plot_text(f, &plot, columns(), dots);
        report_plot_free(&plot);
        KOLO_TRY(rc);
    }
    return 0;
}

static int write_form(const report *r, FILE *f)
{
    if (r->csv) report_write_csv(f, r->run, r->n);
    else if (r->json) return report_write_json(f, r->run, r->n, r->before);
    else if (r->svg) return write_svg(r, f);
    else if (r->text) return write_text(r, f);
    else return report_write_page(f, r->run, r->n, r->before);
    return 0;
}

/* Where the page goes that out= says nothing of: into the run, or of several here. */
static char *default_out(const report *r)
{
    return r->n == 1 ? kolo_format("%s/report.html", r->run[0].folder) : kolo_strdup("report.html");
}

/* A run of somebody else's can be read, and not written into. */
static int write_file(const report *r, const char *path, const char *text, size_t bytes)
{
    const int rc = kolo_file_write_atomic(path, text, bytes);
    if (rc >= 0 || rc == KOLO_ENOMEM || *r->out) return rc;
    return kolo_fail(rc, "%s; out=FILE.html writes the page elsewhere", kolo_error_text());
}

/* To out=, and the page to a file in any case; else to standard output. */
static int write_report(const report *r)
{
    const bool page = !r->csv && !r->json && !r->svg && !r->text;
    char *text = NULL, *path = *r->out ? kolo_strdup(r->out) : page ? default_out(r) : kolo_strdup("");
    size_t bytes = 0;
    FILE *f = path ? open_memstream(&text, &bytes) : NULL;
    int rc = !path ? KOLO_ENOMEM : f ? write_form(r, f) : kolo_no_memory(sizeof *f);
    if (f && fclose(f) != 0 && rc == 0) rc = kolo_no_memory(bytes);
    if (rc == 0 && *path) rc = write_file(r, path, text, bytes);
    else if (rc == 0) {
        if (r->text) kolo_plain(text); /* names may hold anything */
        fputs(text, stdout);
    }
    if (rc == 0 && *path) printf("%s: %zu bytes, %d run%s\n", path, bytes, r->n, r->n == 1 ? "" : "s");
    free(text);
    free(path);
    return rc;
}

int kolo_command_report(int n, char **words)
{
    const char *folder[MOST_RUNS];
    kolo_options options;
    report r = {.csv = kolo_command_flag(&n, words, "--csv")};
    r.json = kolo_command_flag(&n, words, "--json");
    r.text = kolo_command_flag(&n, words, "--text");
    KOLO_TRY(take_svg(&n, words, &r.svg));
    if (r.csv + r.json + r.text + (r.svg != NULL) > 1)
        return kolo_fail(KOLO_ECONFIG, "--csv, --json, --svg and --text: one form at a time");
    KOLO_TRY(kolo_command_words(&options, n, words, MOST_RUNS, folder));
    while (r.n < MOST_RUNS && folder[r.n]) r.n++;
    r.out = options.out;
    int rc =
        r.n ? read_runs(&r, folder)
            : kolo_fail(KOLO_ECONFIG, "which run? kolo report RUN [RUN ...] [out=FILE.html] [--csv|--json|"
                                      "--text|--svg NAME]");
    if (rc == 0) rc = write_report(&r);
    free_runs(&r);
    kolo_options_free(&options);
    return rc;
}
