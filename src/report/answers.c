#include "report/answers.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "report/plot.h"
#include "report/plots.h"

#define SAY(...) kolo_append(text, REPORT_ANSWER, __VA_ARGS__)

void report_duration(char *text, size_t size, double seconds)
{
    if (!(seconds >= 0 && seconds < 1e9)) {
        snprintf(text, size, "-");
        return;
    }
    const long s = lround(seconds);
    if (s >= 86400)
        snprintf(text, size, "%ldd %02ld:%02ld:%02ld", s / 86400, s / 3600 % 24, s / 60 % 60, s % 60);
    else snprintf(text, size, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

static double eval_cell(const report_run *r, int64_t row, int column)
{
    return report_cell(r, REPORT_eval, row, column);
}

/* ---- which epoch overfits ---- */

/* The mean training loss of the epoch before an evaluation. */
static double training_loss(const report_run *r, double epoch)
{
    double sum = 0, n = 0;
    for (int64_t i = 0; i < r->table[REPORT_step].rows; i++) {
        const double loss = report_cell(r, REPORT_step, i, REPORT_step_loss);
        if (r->epoch[i] > epoch - 1 + 1e-9 && r->epoch[i] <= epoch + 1e-9 && isfinite(loss)) sum += loss, n++;
    }
    return n > 0 ? sum / n : NAN;
}

/* The evaluations from the best one on: how much worse those behind it are on average and the last is, as
 * parts of the best. */
typedef struct decline {
    int64_t best, behind; /* row; how many evaluations came after it */
    double at, last, mean_worse, last_worse;
} decline;

static decline measure_decline(const report_run *r, int column, bool least)
{
    const int64_t n = r->table[REPORT_eval].rows;
    decline d = {.best = -1};
    for (int64_t i = 0; i < n; i++) {
        const double v = eval_cell(r, i, column);
        if (isfinite(v) && (d.best < 0 || (least ? v < d.at : v > d.at))) d.best = i, d.at = v;
    }
    double sum = 0;
    for (int64_t i = d.best + 1; d.best >= 0 && i < n; i++) {
        const double v = eval_cell(r, i, column);
        if (!isfinite(v)) continue;
        d.last = v;
        d.last_worse = (least ? v - d.at : d.at - v) / fabs(d.at);
        sum += d.last_worse;
        d.behind++;
    }
    d.mean_worse = d.behind ? sum / (double)d.behind : 0;
    return d;
}

/* By the validation loss where there is one, else by what the best checkpoint is chosen by. One evaluation
 * behind the best says nothing: they are unsteady. */
static void answer_overfits(char *text, const report_run *r)
{
    static const double least = 0.02;
    const int64_t n = r->table[REPORT_eval].rows;
    const bool by_loss = isfinite(report_last(r, REPORT_eval, REPORT_eval_loss));
    const char *what = by_loss ? "validation loss" : report_metric_text(r);
    const decline d = measure_decline(r, by_loss ? REPORT_eval_loss : report_metric(r), by_loss);
    if (n < 2 || d.best < 0) {
        SAY(n ? "One evaluation says nothing of that yet."
              : "Nothing was validated (val=), so nobody can say.");
        return;
    }
    const double epoch = report_epoch_of(r, eval_cell(r, d.best, REPORT_eval_step)),
                 end = report_epoch_of(r, eval_cell(r, n - 1, REPORT_eval_step)),
                 before = training_loss(r, epoch), after = training_loss(r, end);
    if (d.behind == 0)
        SAY("None: the %s is at its best after the last epoch, %.4g (%.4g). More epochs may still help.",
            what, end, d.at);
    else if (d.behind >= 2 && fmin(d.mean_worse, d.last_worse) > least && after < before)
        SAY("From epoch %.0f on: the %s was best after epoch %.4g (%.4g) and is %.4g now, %.0f %% worse, "
            "while the training loss fell from %.4g to %.4g. The checkpoint `best` is of the best "
            "evaluation.",
            floor(epoch + 1e-6) + 1, what, epoch, d.at, d.last, 100 * d.last_worse, before, after);
    else
        SAY("None clearly: the %s was best after epoch %.4g (%.4g) and is %.4g after epoch %.4g%s.", what,
            epoch, d.at, d.last, end,
            d.behind < 2           ? ", one evaluation later"
            : d.last_worse > least ? "; it goes up and down, or the training loss did not fall meanwhile"
                                   : "");
}

/* ---- which class is worst ---- */

static void answer_worst(char *text, const report_run *r)
{
    const int worst = report_worst_class(r);
    char number[2][32];
    if (worst < 0) {
        SAY(r->table[REPORT_eval].rows
                ? "The events hold no figures of classes (an earlier version wrote them, or "
                  "there are more classes than an event holds)."
                : "Nothing was validated (val=), so nobody can say.");
        return;
    }
    const double images = cJSON_GetNumberValue(
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(r->classes, "images"), worst));
    const char *name = report_class_name(r, worst, number[0], sizeof number[0]);
    const bool precision = cJSON_HasObjectItem(r->classes, "ap");
    if (precision)
        SAY("%s: AP %.1f %% (of %.0f in the validation data).", name, 100 * report_class_score(r, worst),
            images);
    else SAY("%s: %.1f %% of its %.0f images are right.", name, 100 * report_class_score(r, worst), images);
    const cJSON *one;
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(r->classes, "confused"))
    {
        if (cJSON_GetNumberValue(cJSON_GetArrayItem(one, 0)) != worst) continue;
        const double answer = cJSON_GetNumberValue(cJSON_GetArrayItem(one, 1));
        SAY(" It is most often taken for %s (%.0f).",
            report_class_name(r, (int64_t)answer, number[1], sizeof number[1]),
            cJSON_GetNumberValue(cJSON_GetArrayItem(one, 2)));
        break;
    }
}

/* ---- what limits speed ---- */

/* The speed of the slowest and of the fastest of equal parts of a run, images a second; false: too few steps,
 * or not all of one shape. */
static bool speed_of_parts(const report_run *r, double batch, double *low, double *high)
{
    enum { PARTS = 8, LEAST = 8 };
    const int64_t rows = r->table[REPORT_step].rows, each = rows / PARTS;
    if (each < LEAST || r->table[REPORT_phase].rows || (r->has_options && *r->options.multi_scale))
        return false;
    *low = INFINITY, *high = 0;
    for (int part = 0; part < PARTS; part++) {
        double seconds = 0;
        for (int64_t i = part * each; i < (part + 1) * each; i++)
            seconds += report_cell(r, REPORT_step, i, REPORT_step_seconds);
        if (!(seconds > 0)) return false;
        *low = fmin(*low, batch * (double)each / seconds);
        *high = fmax(*high, batch * (double)each / seconds);
    }
    return true;
}

static void say_uneven(char *text, const report_run *r, double batch)
{
    char slow[32], fast[32];
    double low, high;
    if (!speed_of_parts(r, batch, &low, &high) || high < 2 * low) return;
    report_number(slow, sizeof slow, low);
    report_number(fast, sizeof fast, high);
    SAY(" It was uneven, from %s to %s images a second: other programs on the node, starts on more or fewer "
        "ranks, or clocks that were lowered (`kolo doctor`).",
        slow, fast);
}

static void say_late(char *text, const report_run *r)
{
    char stale[600], dropped[600];
    kolo_late_counts_text(&r->late, stale, dropped, sizeof stale);
    if (*stale) SAY(" Updates that gradients lacked: %s.", stale);
    if (*dropped) SAY(" Gradients dropped: %s.", dropped);
}

/* What the run has already is not advised. */
static void say_computing(char *text, const report_run *r, double share)
{
    const bool f32 = !r->has_options || r->options.precision == KOLO_precision_f32;
    const cJSON *start = cJSON_GetArrayItem(r->start, cJSON_GetArraySize(r->start) - 1);
    const char *device = cJSON_GetStringValue(cJSON_GetObjectItem(start, "device"));
    const bool gpu = device && strcmp(device, "cpu") != 0;
    SAY("Computing: %.0f %% of a step. More ranks%s%s or smaller images (size=) make it faster.", 100 * share,
        gpu ? "" : " or threads, a GPU", f32 ? ", precision=bf16" : "");
}

static void answer_limits(char *text, const report_run *r)
{
    report_speed s;
    char number[32];
    report_run_speed(r, 0, &s);
    if (isnan(s.wait)) {
        SAY("No step was made yet.");
        return;
    }
    const double comm = isfinite(s.comm) ? s.comm : 0, compute = fmax(0, 1 - s.wait - comm);
    report_number(number, sizeof number, s.img_per_s);
    if (s.wait > 0.1 && s.wait >= comm)
        SAY("Reading the data: %.0f %% of a step is spent waiting for it. More reader threads (readers=), "
            "data_cache=ram, staging=auto, or smaller images in the shards help.",
            100 * s.wait);
    else if (comm > 0.1 && r->has_options && r->options.stages > 1)
        SAY("The pipeline: rank 0 spends %.0f %% of a step waiting for other stages. More micro-batches "
            "(micro_batch= smaller) help; `kolo plan stages=%ld ranks=%ld` shows who waits for whom.",
            100 * comm, (long)r->options.stages, (long)r->summary.ranks);
    else if (comm > 0.1)
        SAY("The ranks' sums: %.0f %% of a step is spent waiting for other ranks. A larger batch a rank, "
            "compression=bf16 or fewer ranks help.",
            100 * comm);
    else say_computing(text, r, compute);
    SAY(" (%s images a second; waiting for data %.1f %%", number, 100 * s.wait);
    if (isfinite(s.comm)) SAY(", for other ranks %.1f %%", 100 * comm);
    SAY(".)");
    say_uneven(text, r, s.batch);
    say_late(text, r);
}

/* ---- what was changed ---- */

bool report_option_is_place(const kolo_option_entry *e)
{
    static const char *const places[] = {"run", "out", "timeline", "results", "roc"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (!strcmp(e->key, places[i])) return true;
    return false;
}

enum { MOST_CHANGES = 12 };

static int list_changes(char *text, const report_run *was, const report_run *now, int *count)
{
    *count = 0;
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (report_option_is_place(e)) continue;
        char *a = kolo_option_text(&was->options, e), *b = kolo_option_text(&now->options, e);
        if (!a || !b) {
            free(a);
            free(b);
            return KOLO_ENOMEM;
        }
        if (strcmp(a, b) && (*count)++ < MOST_CHANGES)
            SAY("%s%s: %s, was %s", *count > 1 ? "; " : "", e->key, *b ? b : "none", *a ? a : "none");
        free(a);
        free(b);
    }
    if (*count > MOST_CHANGES) SAY("; and %d more (below)", *count - MOST_CHANGES);
    return 0;
}

static int answer_changed(char *text, const report_run *r, const report_run *before)
{
    int count;
    if (!before) {
        SAY("There is no earlier run on these data beside this one. `kolo report A B` compares any.");
        return 0;
    }
    if (!r->has_options || !before->has_options) {
        SAY("The recipe of %s cannot be read.", r->has_options ? before->folder : r->folder);
        return 0;
    }
    SAY("Against %s: ", before->folder);
    KOLO_TRY(list_changes(text, before, r, &count));
    if (!count) SAY("no option");
    const int64_t a = report_best(before), b = report_best(r);
    if (a >= 0 && b >= 0 && report_metric(before) == report_metric(r)) {
        const double was = 100 * eval_cell(before, a, report_metric(r)),
                     now = 100 * eval_cell(r, b, report_metric(r));
        SAY(". Best %s %.2f %%, was %.2f %% (%+.2f points)", report_metric_text(r), now, was, now - was);
    }
    report_speed s, t;
    report_run_speed(r, 0, &s);
    report_run_speed(before, 0, &t);
    if (isfinite(s.img_per_s) && isfinite(t.img_per_s))
        SAY("; %.4g images a second, was %.4g", s.img_per_s, t.img_per_s);
    SAY(".");
    return 0;
}

/* Did it begin before `run`, on the same data, and after the one that was found so far (NULL: none)? */
static bool is_before(const report_run *other, const report_run *run, const report_run *found)
{
    return other->has_options && run->has_options && !strcmp(other->options.data, run->options.data) &&
           other->began < run->began && (!found || other->began > found->began);
}

/* Takes the start of that folder's run over into *before if it is nearer. */
static int try_before(report_run *before, bool *found, const report_run *run, const char *folder)
{
    report_run other;
    const int rc = report_run_read_start(&other, folder);
    if (rc < 0 || !is_before(&other, run, *found ? before : NULL)) {
        report_run_free(&other);
        return rc == KOLO_ENOMEM ? rc : 0; /* one that cannot be read is none to compare with */
    }
    if (*found) report_run_free(before);
    *before = other;
    *found = true;
    return 0;
}

/* 1: *before is read but for the rest of its events; 0: there is none. */
static int find_before(report_run *before, const report_run *run)
{
    kolo_folder_names names = {0};
    char *real = realpath(run->folder, NULL), *slash = real ? strrchr(real, '/') : NULL;
    int rc = 0;
    bool found = false;
    if (!slash || slash == real) {
        free(real);
        return 0;
    }
    *slash = 0;
    /* a folder that cannot be listed has no runs to show */
    if (kolo_folder_list(real, &names) < 0) names = (kolo_folder_names){0};
    for (int64_t i = 0; i < names.count && rc == 0; i++) {
        char *path = kolo_format("%s/%s", real, names.list[i]);
        if (!path) rc = KOLO_ENOMEM;
        else if (strcmp(names.list[i], slash + 1) && report_run_is(path))
            rc = try_before(before, &found, run, path);
        free(path);
    }
    kolo_folder_free(&names);
    free(real);
    if (rc < 0 && found) report_run_free(before);
    return rc < 0 ? rc : found;
}

int report_find_before(report_run *before, const report_run *run)
{
    const int found = find_before(before, run);
    if (found <= 0) return found;
    char *folder = kolo_strdup(before->folder);
    report_run_free(before);
    const int rc = folder ? report_run_read(before, folder) : KOLO_ENOMEM;
    free(folder);
    if (rc < 0) report_run_free(before);
    return rc == KOLO_ENOMEM ? rc : rc == 0;
}

/* ---- how to go on ---- */

/* Of ranks that meet in tournaments: who was best in the last meeting. */
static void say_tournament(char *text, const report_run *r)
{
    const int64_t meetings = r->table[REPORT_tournament].rows;
    if (!meetings) return;
    const char *member = report_last(r, REPORT_tournament, REPORT_tournament_group) > 1 ? "group" : "rank";
    SAY(" Of %ld meeting%s of %ss %s %.0f had the lowest loss in the last, %.4f.", (long)meetings,
        meetings > 1 ? "s" : "", member, member, report_last(r, REPORT_tournament, REPORT_tournament_best),
        report_last(r, REPORT_tournament, REPORT_tournament_best_loss));
}

static void answer_next(char *text, const report_run *r)
{
    report_speed s;
    char eta[32];
    const double step = report_last(r, REPORT_step, REPORT_step_step);
    report_run_speed(r, 100, &s);
    report_duration(eta, sizeof eta, s.eta);
    switch (r->state) {
    case REPORT_QUEUED: SAY("Wait: job %s starts again and goes on by itself.", r->job); return;
    case REPORT_RUNNING:
        SAY("Wait: it is at step %.0f of %.0f, and has about %s to go. It may be stopped (Ctrl-C, scancel): "
            "the same command goes on.%s%s",
            isfinite(step) ? step : 0, s.total, eta, *r->why ? " State: " : "", r->why);
        say_tournament(text, r);
        return;
    case REPORT_DONE: {
        const int64_t best = report_best(r);
        SAY("Done. `kolo export %s%s FILE` writes the weights", r->folder,
            best >= 0 ? " checkpoint=best" : "");
        if (best >= 0)
            SAY(" of the best evaluation (step %.0f, %s %.2f %%)", eval_cell(r, best, REPORT_eval_step),
                report_metric_text(r), 100 * eval_cell(r, best, report_metric(r)));
        SAY(". To train longer, start a new run with init=%s and epochs= of the further epochs: the learning "
            "rate of this one has come to its end.",
            r->folder);
        say_tournament(text, r);
        return;
    }
    case REPORT_STOPPED:
        SAY("It was stopped %s after step %.0f. Run the same command: it goes on from its last checkpoint.",
            r->why, isfinite(step) ? step : 0);
        return;
    case REPORT_FAILED:
        SAY("It failed after step %.0f: %s. %c%s.", isfinite(step) ? step : 0, r->why,
            toupper((unsigned char)*r->next), r->next + (*r->next != 0));
        return;
    case REPORT_BEGUN: SAY("No step was made yet. Run its command."); return;
    }
}

int report_answer_all(report_answer answer[REPORT_ANSWERS], const report_run *run, const report_run *before)
{
    static const char *const name[] = {"overfits", "worst", "limits", "changed", "next"},
                             *const question[] = {
                                 "Which epoch overfits?", "Which class is worst?", "What limits the speed?",
                                 "What was changed against the last run?", "How does it go on?"};
    for (int i = 0; i < REPORT_ANSWERS; i++)
        answer[i] = (report_answer){.name = name[i], .question = question[i]};
    answer_overfits(answer[0].text, run);
    answer_worst(answer[1].text, run);
    answer_limits(answer[2].text, run);
    KOLO_TRY(answer_changed(answer[3].text, run, before));
    answer_next(answer[4].text, run);
    return 0;
}

/* ---- to do it again ---- */

static bool is_plain(const char *text)
{
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr("_-+=./:,%@", *p)) return false;
    return true;
}

static void put_word(FILE *f, const char *key, const char *value)
{
    fprintf(f, " \\\n    ");
    if (is_plain(value)) {
        fprintf(f, "%s=%s", key, value);
        return;
    }
    fprintf(f, "%s='", key);
    for (const char *p = value; *p; p++)
        if (*p == '\'') fputs("'\\''", f);
        else fputc(*p, f);
    fputc('\'', f);
}

char *report_command(const report_run *run)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) {
        kolo_no_memory(sizeof *f);
        return NULL;
    }
    const cJSON *start = cJSON_GetArrayItem(run->start, cJSON_GetArraySize(run->start) - 1);
    const char *launch = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(start, "launch"));
    const int ranks = run->summary.ranks;
    kolo_options standard;
    kolo_options_default(&standard);
    if (run->has_options && ranks > 1 && launch && !strcmp(launch, "pmix"))
        fprintf(f, "srun --mpi=pmix --nodes=%d --ntasks=%d ", run->summary.nodes, ranks);
    else if (run->has_options && ranks > 1) fprintf(f, "mpiexec -n %d ", ranks);
    if (run->has_options) fputs("kolo train", f);
    for (int i = 0; i < kolo_option_count && run->has_options; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        char *value = kolo_option_text(&run->options, e), *usual = kolo_option_text(&standard, e);
        if (value && usual && !report_option_is_place(e) && strchr(e->commands, 'T') && strcmp(value, usual))
            put_word(f, e->key, value);
        free(value);
        free(usual);
    }
    kolo_options_free(&standard);
    if (run->has_options) put_word(f, "run", "NEW-FOLDER");
    if (fclose(f) == 0) return text;
    free(text);
    kolo_no_memory(bytes);
    return NULL;
}
