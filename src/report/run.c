#include "report/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

#define MEMBER(event, member) #member,
#define TABLE(event, members) static const char *const keys_##event[] = {members};
#include "report/tables.def"
#undef TABLE
#undef MEMBER

const report_columns report_columns_of[] = {
#define TABLE(event, members) {#event, REPORT_##event##_COLUMNS, keys_##event},
#include "report/tables.def"
#undef TABLE
};

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : NAN;
}

static int add_row(report_run *run, int kind, const cJSON *event)
{
    report_table *t = &run->table[kind];
    const report_columns *c = &report_columns_of[kind];
    KOLO_TRY(kolo_grow(&t->cell, &t->capacity, t->rows, (size_t)c->count * sizeof *t->cell));
    for (int i = 0; i < c->count; i++) t->cell[t->rows * c->count + i] = number_of(event, c->key[i]);
    t->rows++;
    return 0;
}

static int keep_event(report_run *run, cJSON **event)
{
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(*event, "event"));
    if (!name || !cJSON_IsObject(*event)) {
        run->torn++;
        return 0;
    }
    for (int k = 0; k < REPORT_TABLES; k++)
        if (!strcmp(name, report_columns_of[k].event)) KOLO_TRY(add_row(run, k, *event));
    if (!strcmp(name, "step")) KOLO_TRY(kolo_late_counts_add(&run->late, *event));
    if (!strcmp(name, "start")) {
        if (isnan(run->began)) run->began = number_of(*event, "time");
        cJSON_AddItemToArray(run->start, *event);
        *event = NULL;
    } else if (!strcmp(name, "classes") || !strcmp(name, "examples")) {
        cJSON **last = *name == 'c' ? &run->classes : &run->examples;
        cJSON_Delete(*last);
        *last = *event;
        *event = NULL;
    }
    return 0;
}

/* A line of a run that is still writing, or was killed, may end anywhere. `start`: up to when it began. */
static int read_events(report_run *run, bool start)
{
    char *path = kolo_format("%s/events.jsonl", run->folder), *line = NULL;
    size_t capacity = 0;
    ssize_t n;
    int rc = 0;
    FILE *f = path ? fopen(path, "r") : NULL;
    if (path && !f && errno != ENOENT) rc = kolo_file_fail("open", path);
    while (f && rc == 0 && !(start && isfinite(run->began)) && (n = getline(&line, &capacity, f)) > 0) {
        run->lines++;
        cJSON *event = line[n - 1] == '\n' ? cJSON_Parse(line) : NULL;
        rc = keep_event(run, &event);
        cJSON_Delete(event);
    }
    if (f) fclose(f);
    free(line);
    const bool known = path;
    free(path);
    return known ? rc : KOLO_ENOMEM;
}

/* The object of a file; NULL: there is none, or it is no JSON. */
static cJSON *read_object(const report_run *run, const char *name)
{
    char *path = kolo_format("%s/%s", run->folder, name), *text = NULL;
    cJSON *object = NULL;
    if (path && kolo_file_exists(path) && kolo_file_read(path, &text, NULL) == 0) object = cJSON_Parse(text);
    free(text);
    free(path);
    return object;
}

static int read_summary(report_run *run)
{
    static const char *const key[] = {"planned_bytes_by_rank", "peak_bytes_by_rank"};
    const int found = kolo_summary_read(run->folder, &run->summary);
    KOLO_TRY(found);
    run->has_summary = found;
    cJSON *object = found ? read_object(run, "summary.json") : NULL;
    for (int i = 0; i < 2; i++)
        if (cJSON_IsArray(cJSON_GetObjectItemCaseSensitive(object, key[i])))
            run->memory[i] = cJSON_DetachItemFromObjectCaseSensitive(object, key[i]);
    cJSON_Delete(object);
    return 0;
}

/* A recipe of another version is no reason to show nothing. */
static int read_recipe(report_run *run)
{
    char *path = kolo_format("%s/recipe.yaml", run->folder);
    int rc = path ? 0 : KOLO_ENOMEM;
    struct stat st;
    if (rc == 0 && stat(path, &st) == 0) {
        if (isnan(run->began)) run->began = (double)st.st_mtime;
        rc = kolo_options_read_record(&run->options, path);
        run->has_options = rc == 0;
        if (rc < 0 && rc != KOLO_ENOMEM)
            rc = (run->recipe_error = kolo_strdup(kolo_error_text())) ? 0 : KOLO_ENOMEM;
    }
    free(path);
    return rc;
}

static int read_classes(report_run *run)
{
    char *path = kolo_format("%s/classes.txt", run->folder);
    int64_t capacity = 0;
    int rc = path ? 0 : KOLO_ENOMEM;
    if (rc == 0 && kolo_file_exists(path)) rc = kolo_file_read(path, &run->class_text, NULL);
    free(path);
    for (char *line = run->class_text, *end; rc == 0 && line && *line; line = end + 1) {
        end = strchrnul(line, '\n');
        const bool last = !*end;
        *end = 0;
        rc = kolo_grow(&run->class_name, &capacity, run->class_names, sizeof *run->class_name);
        if (rc == 0) run->class_name[run->class_names++] = line;
        if (last) break;
    }
    return rc;
}

/* Epochs end where their last step says so; the last one may not have ended. */
static int count_epochs(report_run *run)
{
    const report_table *t = &run->table[REPORT_step];
    double first = 0, length = report_last(run, REPORT_start, REPORT_start_epoch_steps);
    run->epoch = kolo_alloc((size_t)(t->rows + 1) * sizeof *run->epoch);
    if (!run->epoch) return KOLO_ENOMEM;
    for (int64_t i = 0, end; i < t->rows; i = end) {
        const double epoch = report_cell(run, REPORT_step, i, REPORT_step_epoch);
        for (end = i; end < t->rows && report_cell(run, REPORT_step, end, REPORT_step_epoch) == epoch;) end++;
        if (end == i) end++; /* an epoch that is no number */
        const double last = report_cell(run, REPORT_step, end - 1, REPORT_step_step);
        if (end < t->rows || !(length >= last - first)) length = last - first;
        for (int64_t k = i; k < end; k++)
            run->epoch[k] = epoch + (report_cell(run, REPORT_step, k, REPORT_step_step) - first) / length;
        first = last;
    }
    return 0;
}

double report_run_changed(const char *folder)
{
    static const char *const name[] = {"events.jsonl", "summary.json", "recipe.yaml"};
    struct stat st;
    double changed = NAN;
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char *path = kolo_format("%s/%s", folder, name[i]);
        if (path && stat(path, &st) == 0) {
            const double at = (double)st.st_mtim.tv_sec + (double)st.st_mtim.tv_nsec * 1e-9;
            if (!(changed >= at)) changed = at;
        }
        free(path);
    }
    return changed;
}

static bool holds(const char *folder, const char *name)
{
    char *path = kolo_format("%s/%s", folder, name);
    const bool there = path && kolo_file_exists(path) && !kolo_folder_exists(path);
    free(path);
    return there;
}

bool report_run_is(const char *folder)
{
    return holds(folder, "events.jsonl") || (holds(folder, "summary.json") && holds(folder, "recipe.yaml")) ||
           (holds(folder, "recipe.yaml") && holds(folder, "run_id"));
}

static int find_folder(report_run *run, const char *folder)
{
    if (!(run->folder = kolo_strdup(folder))) return KOLO_ENOMEM;
    for (size_t n = strlen(run->folder); n > 1 && run->folder[n - 1] == '/'; n--) run->folder[n - 1] = 0;
    const char *slash = strrchr(run->folder, '/');
    run->name = slash && slash[1] ? slash + 1 : run->folder;
    if (!kolo_folder_exists(folder))
        return kolo_fail(KOLO_EINPUT, "%s: there is no such run folder (`kolo runs FOLDER` lists them)",
                         folder);
    if (report_run_is(folder)) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "%s is no run folder: it holds no events.jsonl (`kolo runs %s` lists those below it)",
                     folder, folder);
}

static int open_run(report_run *run, const char *folder)
{
    *run = (report_run){.began = NAN, .changed = NAN};
    kolo_options_default(&run->options);
    KOLO_TRY(find_folder(run, folder));
    return (run->start = cJSON_CreateArray()) ? 0 : kolo_no_memory(sizeof(cJSON));
}

int report_run_read_start(report_run *run, const char *folder)
{
    KOLO_TRY(open_run(run, folder));
    KOLO_TRY(read_events(run, true));
    return read_recipe(run);
}

int report_run_read(report_run *run, const char *folder)
{
    KOLO_TRY(open_run(run, folder));
    run->changed = report_run_changed(folder); /* before they are read: what comes later is a change */
    KOLO_TRY(read_events(run, false));
    KOLO_TRY(read_summary(run));
    KOLO_TRY(read_recipe(run));
    KOLO_TRY(read_classes(run));
    KOLO_TRY(count_epochs(run));
    run->roc = read_object(run, "roc.json");
    run->timeline = read_object(run, "timeline.json");
    return report_run_state(run);
}

void report_run_free(report_run *run)
{
    for (int k = 0; k < REPORT_TABLES; k++) free(run->table[k].cell);
    cJSON *object[] = {run->start,     run->classes, run->examples, run->memory[0],
                       run->memory[1], run->roc,     run->timeline};
    for (size_t i = 0; i < sizeof object / sizeof *object; i++) cJSON_Delete(object[i]);
    kolo_options_free(&run->options);
    kolo_late_counts_close(&run->late);
    free(run->epoch);
    free(run->class_name);
    free(run->class_text);
    free(run->recipe_error);
    free(run->folder);
    *run = (report_run){.folder = NULL};
}

double report_last(const report_run *run, int table, int column)
{
    for (int64_t i = run->table[table].rows; i-- > 0;) {
        const double value = report_cell(run, table, i, column);
        if (isfinite(value)) return value;
    }
    return NAN;
}

int64_t report_row_of(const report_run *run, double step)
{
    int64_t low = 0, high = run->table[REPORT_step].rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (report_cell(run, REPORT_step, middle, REPORT_step_step) < step) low = middle + 1;
        else high = middle;
    }
    const bool found =
        low < run->table[REPORT_step].rows && report_cell(run, REPORT_step, low, REPORT_step_step) == step;
    return found ? low : -1;
}

double report_epoch_of(const report_run *run, double step)
{
    const int64_t row = report_row_of(run, step);
    return row < 0 ? NAN : run->epoch[row];
}

double report_batch_at(const report_run *r, double step)
{
    double batch = NAN;
    if (r->table[REPORT_start].rows) batch = report_cell(r, REPORT_start, 0, REPORT_start_batch);
    if (isnan(batch) && r->has_options && r->options.batch > 0) batch = (double)r->options.batch;
    for (int64_t i = 0; i < r->table[REPORT_phase].rows; i++)
        if (report_cell(r, REPORT_phase, i, REPORT_phase_step) < step)
            batch = report_cell(r, REPORT_phase, i, REPORT_phase_batch);
    return batch;
}

static const struct {
    const char *name;
    int column;
    const char *text;
} metrics[] = {
    {"top1", REPORT_eval_top1, "top-1"}, {"ap", REPORT_eval_ap, "AP"}, {"map", REPORT_eval_map, "mAP"}};
enum { METRICS = sizeof metrics / sizeof *metrics };

static int metric_of(const report_run *run)
{
    for (int i = 0; i < METRICS; i++)
        if (isfinite(report_last(run, REPORT_eval, metrics[i].column))) return i;
    for (int i = 0; i < METRICS; i++)
        if (!strcmp(run->summary.metric, metrics[i].name)) return i;
    return 0;
}

int report_metric(const report_run *run) { return metrics[metric_of(run)].column; }
const char *report_metric_text(const report_run *run) { return metrics[metric_of(run)].text; }

int64_t report_best(const report_run *run)
{
    const int column = report_metric(run);
    int64_t best = -1;
    double most = NAN;
    for (int64_t i = 0; i < run->table[REPORT_eval].rows; i++) {
        const double value = report_cell(run, REPORT_eval, i, column);
        if (isnan(value) || value <= most) continue;
        most = value;
        best = i;
    }
    return best;
}

static int by_best(const void *a, const void *b)
{
    const report_run *x = a, *y = b;
    const int64_t i = report_best(x), k = report_best(y);
    if (i < 0 || k < 0) {
        const double p = report_last(x, REPORT_step, REPORT_step_loss),
                     q = report_last(y, REPORT_step, REPORT_step_loss);
        return (i < 0) != (k < 0)     ? (i < 0) - (k < 0)
               : isnan(p) || isnan(q) ? isnan(p) - isnan(q)
                                      : (p > q) - (p < q);
    }
    const double p = report_cell(x, REPORT_eval, i, report_metric(x)),
                 q = report_cell(y, REPORT_eval, k, report_metric(y));
    return (p < q) - (p > q);
}

void report_sort(report_run *runs, int n) { qsort(runs, (size_t)n, sizeof *runs, by_best); }

const char *report_class_name(const report_run *run, int64_t cls, char *number, size_t size)
{
    if (cls >= 0 && cls < run->class_names && *run->class_name[cls]) return run->class_name[cls];
    snprintf(number, size, "class %lld", (long long)cls);
    return number;
}

/* Evaluations that are still to come, as often as they came so far. */
static double evaluations_left(const report_run *run, double steps)
{
    const int64_t n = run->table[REPORT_eval].rows;
    const double done = report_last(run, REPORT_step, REPORT_step_step);
    double seconds = 0, known = 0;
    for (int64_t i = 0; i < n; i++) {
        const double one = report_cell(run, REPORT_eval, i, REPORT_eval_seconds);
        if (isfinite(one)) seconds += one, known++;
    }
    return known > 0 && done > 0 ? seconds / known * (double)n / done * steps : 0;
}

void report_run_speed(const report_run *run, int64_t steps, report_speed *speed)
{
    const int64_t rows = run->table[REPORT_step].rows, from = steps > 0 && rows > steps ? rows - steps : 0;
    double seconds = 0, wait = 0, comm = NAN;
    for (int64_t i = from; i < rows; i++) {
        const double s = report_cell(run, REPORT_step, i, REPORT_step_seconds),
                     w = report_cell(run, REPORT_step, i, REPORT_step_wait),
                     c = report_cell(run, REPORT_step, i, REPORT_step_comm);
        if (isfinite(s)) seconds += s;
        if (isfinite(w)) wait += w;
        if (isfinite(c)) comm = isnan(comm) ? c : comm + c;
    }
    const double n = (double)(rows - from), done = report_last(run, REPORT_step, REPORT_step_step);
    double batch = report_last(run, REPORT_start, REPORT_start_batch);
    if (run->table[REPORT_phase].rows) batch = report_last(run, REPORT_phase, REPORT_phase_batch);
    if (isnan(batch) && run->has_options && run->options.batch > 0) batch = (double)run->options.batch;
    *speed = (report_speed){.total = report_last(run, REPORT_start, REPORT_start_steps),
                            .batch = batch,
                            .img_per_s = seconds > 0 ? batch * n / seconds : NAN,
                            .wait = seconds > 0 ? wait / seconds : NAN,
                            .comm = seconds > 0 ? comm / seconds : NAN};
    const double left = speed->total - (done > 0 ? done : 0);
    speed->eta = left <= 0 ? 0 : seconds <= 0 ? NAN : seconds / n * left + evaluations_left(run, left);
}
