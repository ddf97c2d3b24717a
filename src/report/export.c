#include "report/export.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "report/answers.h"
#include "report/plots.h"

/* Those of events; a time would lose its seconds. */
static int digits(int kind, int column)
{
    return strcmp(report_columns_of[kind].key[column], "time") ? 9 : 13;
}

/* ---- CSV ---- */

void report_csv_text(FILE *f, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, f);
        return;
    }
    fputc('"', f);
    for (; *text; text++) {
        if (*text == '"') fputc('"', f);
        fputc(*text, f);
    }
    fputc('"', f);
}

/* The cells of a row; row < 0: as many empty ones. */
static void csv_cells(FILE *f, const report_run *run, int kind, int64_t row)
{
    for (int c = 0; c < report_columns_of[kind].count; c++) {
        if (c == 0) continue; /* the step, which stands in front */
        fputc(',', f);
        const double value = row < 0 ? NAN : report_cell(run, kind, row, c);
        if (isfinite(value)) fprintf(f, "%.*g", digits(kind, c), value);
    }
}

static void csv_row(FILE *f, const report_run *run, double step, int64_t steps_row, int64_t eval_row)
{
    report_csv_text(f, run->folder);
    fprintf(f, ",%.0f", step);
    csv_cells(f, run, REPORT_step, steps_row);
    csv_cells(f, run, REPORT_eval, eval_row);
    fputc('\n', f);
}

static double step_at(const report_run *run, int kind, int64_t row)
{
    return row < run->table[kind].rows ? report_cell(run, kind, row, 0) : HUGE_VAL;
}

void report_write_csv(FILE *f, const report_run *runs, int n)
{
    fputs("run", f);
    for (int c = 0; c < REPORT_step_COLUMNS; c++) fprintf(f, ",%s", report_columns_of[REPORT_step].key[c]);
    for (int c = 1; c < REPORT_eval_COLUMNS; c++)
        fprintf(f, ",eval_%s", report_columns_of[REPORT_eval].key[c]);
    fputc('\n', f);
    for (int i = 0; i < n; i++) {
        const report_run *run = &runs[i];
        for (int64_t s = 0, e = 0; s < run->table[REPORT_step].rows || e < run->table[REPORT_eval].rows;) {
            const double step = step_at(run, REPORT_step, s), eval = step_at(run, REPORT_eval, e);
            const bool has_step = step <= eval, has_eval = eval <= step;
            csv_row(f, run, has_step ? step : eval, has_step ? s : -1, has_eval ? e : -1);
            s += has_step || !has_eval;
            e += has_eval || !has_step;
        }
    }
}

/* ---- JSON ---- */

static void json_table(FILE *f, const report_run *run, int kind)
{
    const report_columns *columns = &report_columns_of[kind];
    const int64_t rows = run->table[kind].rows;
    fprintf(f, ",\n  \"%s\": {", columns->event);
    for (int c = 0, any = 0; c < columns->count; c++) {
        if (isnan(report_last(run, kind, c))) continue;
        fprintf(f, "%s\"%s\": [", any++ ? ", " : "", columns->key[c]);
        for (int64_t r = 0; r < rows; r++) {
            if (r) fputc(',', f);
            kolo_json_number(f, report_cell(run, kind, r, c), digits(kind, c));
        }
        fputc(']', f);
    }
    fputc('}', f);
}

static int json_object(FILE *f, const char *key, const cJSON *object)
{
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    if (object && !text) return kolo_no_memory(1);
    fprintf(f, ",\n  \"%s\": %s", key, text ? text : "null");
    cJSON_free(text);
    return 0;
}

static int json_options(FILE *f, const report_run *run)
{
    kolo_options standard;
    int rc = 0, any = 0;
    kolo_options_default(&standard);
    fputs(",\n  \"recipe\": {", f);
    for (int i = 0; i < kolo_option_count && run->has_options && rc == 0; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        char *value = kolo_option_text(&run->options, e), *usual = kolo_option_text(&standard, e);
        if (!value || !usual) rc = KOLO_ENOMEM;
        else if (strcmp(value, usual)) {
            fprintf(f, "%s\"%s\": ", any++ ? ", " : "", e->key);
            kolo_json_string(f, value);
        }
        free(value);
        free(usual);
    }
    fputc('}', f);
    kolo_options_free(&standard);
    return rc;
}

static int json_answers(FILE *f, const report_run *run, const report_run *before)
{
    report_answer answer[REPORT_ANSWERS];
    char *command = report_command(run);
    if (!command) return KOLO_ENOMEM;
    const int rc = report_answer_all(answer, run, before);
    fputs(",\n  \"answers\": {", f);
    for (int i = 0; i < REPORT_ANSWERS; i++) {
        fprintf(f, "%s\"%s\": ", i ? ", " : "", answer[i].name);
        kolo_json_string(f, answer[i].text);
    }
    fputs("},\n  \"command\": ", f);
    kolo_json_string(f, command);
    free(command);
    return rc;
}

static void json_state(FILE *f, const report_run *run)
{
    static const char *const key[] = {"folder", "state", "why", "next", "job", "model", "version"};
    const char *const value[] = {
        run->folder,        report_state_name[run->state], run->why, run->next, run->job,
        run->summary.model, run->summary.version};
    report_speed speed;
    report_run_speed(run, 0, &speed);
    fputs(" {", f);
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        fprintf(f, "%s\"%s\": ", i ? ", " : "", key[i]);
        kolo_json_string(f, value[i]);
    }
    fprintf(f, ",\n  \"torn_lines\": %" PRId64 ", \"steps_total\": ", run->torn);
    kolo_json_number(f, speed.total, 15);
    fputs(", \"img_per_s\": ", f);
    kolo_json_number(f, speed.img_per_s, 9);
    fputs(", \"wait_share\": ", f);
    kolo_json_number(f, speed.wait, 9);
    fputs(", \"comm_share\": ", f);
    kolo_json_number(f, speed.comm, 9);
}

static int json_run(FILE *f, const report_run *run, const report_run *before)
{
    json_state(f, run);
    KOLO_TRY(json_answers(f, run, before));
    KOLO_TRY(json_options(f, run));
    KOLO_TRY(json_object(f, "planned_bytes_by_rank", run->memory[0]));
    KOLO_TRY(json_object(f, "peak_bytes_by_rank", run->memory[1]));
    kolo_late_counts_write(&run->late, f);
    KOLO_TRY(json_object(f, "starts", run->start));
    KOLO_TRY(json_object(f, "classes", run->classes));
    KOLO_TRY(json_object(f, "examples", run->examples));
    for (int k = 0; k < REPORT_TABLES; k++)
        if (k != REPORT_start) json_table(f, run, k);
    fputc('}', f);
    return 0;
}

int report_write_json(FILE *f, const report_run *runs, int n, const report_run *const *before)
{
    fputs("{\"runs\": [", f);
    for (int i = 0; i < n; i++) {
        if (i) fputs(",\n", f);
        KOLO_TRY(json_run(f, &runs[i], before[i]));
    }
    fputs("]}\n", f);
    return 0;
}
