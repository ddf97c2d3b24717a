#include "report/page.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "report/answers.h"
#include "report/examples.h"
#include "report/plots.h"

static const char style[] =
#include <page.css.inc>
    ;
static const char script[] =
#include <page.js.inc>
    ;

static void put(FILE *f, const char *before, const char *text, const char *behind)
{
    fputs(before, f);
    report_html(f, text);
    fputs(behind, f);
}

static void put_time(FILE *f, double time)
{
    char text[64] = "-";
    const time_t at = isfinite(time) ? (time_t)time : 0;
    struct tm local;
    if (isfinite(time)) strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S %Z", localtime_r(&at, &local));
    report_html(f, text);
}

/* ---- head ---- */

static void write_head(FILE *f, const report_run *runs, int n)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
          "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n",
          f);
    put(f, "<title>", runs[0].name,
        n > 1 ? " and others - kolo report</title>\n" : " - kolo report</title>\n");
    fputs("<style>", f);
    fputs(style, f);
    fputs("</style></head>\n<body>\n<header>\n", f);
    if (n > 1) fprintf(f, "<h1>%d runs</h1>\n", n);
    else {
        put(f, "<h1>", runs[0].name, " ");
        fprintf(f, "<span class=\"state %s\">%s</span></h1>\n", report_state_name[runs[0].state],
                report_state_name[runs[0].state]);
    }
    put(f, "<p class=\"soft\">", runs[0].summary.model, " in <code>");
    put(f, "", runs[0].folder, n > 1 ? "</code> and others" : "</code>");
    fputs("; last change ", f);
    put_time(f, runs[0].changed);
    fputs("; this page ", f);
    put_time(f, (double)time(NULL));
    fputs("</p>\n</header>\n<main>\n", f);
}

static int write_answers(FILE *f, const report_run *run, const report_run *before, bool several)
{
    report_answer answer[REPORT_ANSWERS];
    KOLO_TRY(report_answer_all(answer, run, before));
    if (several) put(f, "<h2>", run->name, ", the best of them</h2>\n");
    fputs("<dl class=\"answers\">\n", f);
    for (int i = 0; i < REPORT_ANSWERS; i++) {
        fprintf(f, "<dt>%s</dt>", answer[i].question);
        const bool first = several && !before && !strcmp(answer[i].name, "changed");
        put(f, "<dd>",
            first ? "Nothing came before it on these data; the table shows what the others changed."
                  : answer[i].text,
            "</dd>\n");
    }
    fputs("</dl>\n", f);
    return 0;
}

/* ---- figures in words ---- */

typedef struct page_fact {
    const char *name;
    char text[512];
    double value; /* by which a table sorts; NaN: by the text */
} page_fact;
enum { FACTS = 18 };

static void say_number(page_fact *to, const char *name, double value, const char *unit)
{
    char number[32];
    report_number(number, sizeof number, value);
    *to = (page_fact){.name = name, .value = value};
    snprintf(to->text, sizeof to->text, "%s%s", number, isfinite(value) ? unit : "");
}

static void say_text(page_fact *to, const char *name, const char *text)
{
    *to = (page_fact){.name = name, .value = NAN};
    snprintf(to->text, sizeof to->text, "%s", *text ? text : "-");
}

static double most_of(const cJSON *list)
{
    const cJSON *one;
    double most = NAN;
    cJSON_ArrayForEach(one, list) if (cJSON_IsNumber(one) && !(most >= one->valuedouble)) most =
        one->valuedouble;
    return most;
}

static int gather_facts(const report_run *r, page_fact fact[FACTS])
{
    const kolo_summary *s = &r->summary;
    const int64_t best = report_best(r), last = r->table[REPORT_eval].rows - 1;
    char text[96];
    report_speed speed;
    int n = 0;
    report_run_speed(r, 0, &speed);
    say_text(&fact[n++], "state", report_state_name[r->state]);
    say_number(&fact[n++], "best", best < 0 ? NAN : 100 * report_cell(r, REPORT_eval, best, report_metric(r)),
               " %");
    if (best >= 0)
        kolo_append(fact[n - 1].text, sizeof fact->text, " %s after epoch %.3g", report_metric_text(r),
                    report_epoch_of(r, report_cell(r, REPORT_eval, best, REPORT_eval_step)));
    say_number(&fact[n++], "last evaluation",
               last < 0 ? NAN : 100 * report_cell(r, REPORT_eval, last, report_metric(r)), " %");
    say_number(&fact[n++], "training loss", report_last(r, REPORT_step, REPORT_step_loss), "");
    snprintf(text, sizeof text, "%.0f of %.0f", fmax(0, report_last(r, REPORT_step, REPORT_step_step)),
             speed.total);
    if (isnan(speed.total)) snprintf(text, sizeof text, "%lld", (long long)s->steps);
    say_text(&fact[n], "steps", text);
    fact[n++].value = report_last(r, REPORT_step, REPORT_step_step);
    say_number(&fact[n++], "images a second", speed.img_per_s, "");
    report_duration(text, sizeof text, r->has_summary ? s->wall_seconds : NAN);
    say_text(&fact[n], "wall time", text);
    fact[n++].value = r->has_summary ? s->wall_seconds : NAN;
    say_number(&fact[n++], "node hours", r->has_summary ? s->node_hours : NAN, "");
    snprintf(text, sizeof text, "%d on %d node%s, %d threads each", s->ranks, s->nodes,
             s->nodes == 1 ? "" : "s", s->threads);
    say_text(&fact[n], "ranks", r->has_summary ? text : "-");
    fact[n++].value = r->has_summary ? s->ranks : NAN;
    say_number(&fact[n++], "memory planned, of the largest rank", most_of(r->memory[0]) / 0x1p30, " GiB");
    say_number(&fact[n++], "memory resident, of the largest rank", most_of(r->memory[1]) / 0x1p30, " GiB");
    say_number(&fact[n++], "restarts", r->has_summary ? (double)s->restarts : NAN, "");
    say_number(&fact[n++], "steps done twice", r->has_summary ? (double)s->repeated_steps : NAN, "");
    char stale[sizeof fact->text], dropped[sizeof fact->text];
    kolo_late_counts_text(&r->late, stale, dropped, sizeof stale);
    if (*stale) say_text(&fact[n++], "updates that gradients lacked", stale);
    if (*dropped) say_text(&fact[n++], "gradients dropped", dropped);
    say_number(&fact[n++], "damaged images", r->has_summary ? (double)s->bad_samples : NAN, "");
    return n;
}

static void write_facts(FILE *f, const report_run *run)
{
    page_fact fact[FACTS];
    const int n = gather_facts(run, fact);
    fputs("<h2>Figures</h2>\n<div class=\"scroll\" tabindex=\"0\"><table>\n", f);
    for (int i = 0; i < n; i++) {
        put(f, "<tr><th scope=\"row\">", fact[i].name, "</th>");
        put(f, "<td>", fact[i].text, "</td></tr>\n");
    }
    fputs("</table></div>\n", f);
}

/* ---- several runs beside each other ---- */

static bool differs(const report_run *runs, int n, const kolo_option_entry *e)
{
    bool result = false;
    char *first = kolo_option_text(&runs[0].options, e);
    for (int i = 1; i < n && !result; i++) {
        char *other = kolo_option_text(&runs[i].options, e);
        result = first && other && runs[i].has_options && strcmp(first, other) != 0;
        free(other);
    }
    free(first);
    return result && !report_option_is_place(e);
}

static void write_head_cell(FILE *f, const char *text)
{
    put(f, "<th scope=\"col\"><button type=\"button\">", text, "</button></th>");
}

/* The options that differ stand behind the first facts: the state, and what is best. */
enum { FIRST_FACTS = 2 };

static void write_differing(FILE *f, const report_run *runs, int n, int run)
{
    for (int i = 0; i < kolo_option_count; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        if (!differs(runs, n, e)) continue;
        char *value = run < 0 ? NULL : kolo_option_text(&runs[run].options, e);
        if (run < 0) write_head_cell(f, e->key);
        else put(f, "<td>", value, "</td>");
        free(value);
    }
}

static void write_comparison(FILE *f, const report_run *runs, int n)
{
    page_fact fact[FACTS];
    const int facts = gather_facts(&runs[0], fact);
    fputs("<h2>Runs, the best first</h2>\n<p class=\"soft\">A head sorts by its column. Behind the best "
          "evaluation stand the options that differ.</p>\n<div class=\"scroll\" tabindex=\"0\"><table "
          "class=\"runs\"><thead><tr>",
          f);
    write_head_cell(f, "run");
    for (int k = 0; k < facts; k++) {
        if (k == FIRST_FACTS) write_differing(f, runs, n, -1);
        write_head_cell(f, fact[k].name);
    }
    fputs("</tr></thead><tbody>\n", f);
    for (int r = 0; r < n; r++) {
        gather_facts(&runs[r], fact);
        put(f, "<tr><th scope=\"row\">", runs[r].name, "</th>");
        for (int k = 0; k < facts; k++) {
            if (k == FIRST_FACTS) write_differing(f, runs, n, r);
            if (isfinite(fact[k].value)) fprintf(f, "<td data-v=\"%.9g\">", fact[k].value);
            else fputs("<td>", f);
            put(f, "", fact[k].text, "</td>");
        }
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div>\n", f);
}

/* ---- plots ---- */

static void write_figure(FILE *f, const report_plot *p)
{
    const bool curves = p->kind == REPORT_CURVES;
    fprintf(f, "<figure id=\"%s\"%s>", p->name, curves ? " data-curves tabindex=\"0\"" : "");
    put(f, "<figcaption>", p->title, "");
    if (*p->note) put(f, " <small>", p->note, "</small>");
    fputs("</figcaption>\n", f);
    report_plot_svg(f, p, false);
    if (curves) {
        fputs("<script type=\"application/json\">", f);
        report_plot_json(f, p);
        fputs("</script>", f);
    }
    fputs("</figure>\n", f);
}

static int write_plots(FILE *f, const report_run *runs, int n)
{
    int rc = 0;
    fputs("<h2>Curves</h2>\n<p class=\"soft screen\">Point at a curve, or go to a figure by Tab and along it "
          "by the arrow keys, for its values.</p>\n<div class=\"figures\">\n",
          f);
    for (int k = 0; k < REPORT_PLOTS && rc == 0; k++) {
        report_plot plot;
        rc = report_plot_make(&plot, k, runs, n);
        if (rc == 0 && !report_plot_empty(&plot)) write_figure(f, &plot);
        report_plot_free(&plot);
    }
    fputs("</div>\n", f);
    return rc;
}

/* ---- tables ---- */

static void write_evaluations(FILE *f, const report_run *run)
{
    const report_columns *columns = &report_columns_of[REPORT_eval];
    if (!run->table[REPORT_eval].rows) return;
    fputs("<details><summary>Every evaluation as a table</summary>\n<div class=\"scroll\" "
          "tabindex=\"0\"><table><thead><tr>",
          f);
    write_head_cell(f, "epoch");
    for (int c = 0; c < columns->count - 1; c++)
        if (isfinite(report_last(run, REPORT_eval, c))) write_head_cell(f, columns->key[c]);
    fputs("</tr></thead><tbody>\n", f);
    for (int64_t r = 0; r < run->table[REPORT_eval].rows; r++) {
        fprintf(f, "<tr><td class=\"n\">%.4g</td>",
                report_epoch_of(run, report_cell(run, REPORT_eval, r, REPORT_eval_step)));
        for (int c = 0; c < columns->count - 1; c++)
            if (isfinite(report_last(run, REPORT_eval, c)))
                fprintf(f, "<td class=\"n\">%.6g</td>", report_cell(run, REPORT_eval, r, c));
        fputs("</tr>\n", f);
    }
    fputs("</tbody></table></div></details>\n", f);
}

/* What is most often taken for what: of any number of classes. */
static void write_confusions(FILE *f, const report_run *run)
{
    enum { MOST = 20 };
    const cJSON *one, *confused = cJSON_GetObjectItemCaseSensitive(run->classes, "confused");
    char number[32];
    int n = 0;
    if (!cJSON_GetArraySize(confused)) return;
    fprintf(f,
            "<details><summary>The most frequent confusions</summary>\n<table><thead><tr><th scope=\"col\">"
            "label</th><th scope=\"col\">answer</th><th scope=\"col\">images</th></tr></thead><tbody>\n");
    cJSON_ArrayForEach(one, confused)
    {
        const cJSON *label = cJSON_GetArrayItem(one, 0), *answer = cJSON_GetArrayItem(one, 1);
        if (!cJSON_IsNumber(label) || !cJSON_IsNumber(answer) || n++ == MOST) break;
        put(f, "<tr><td>", report_class_name(run, label->valueint, number, sizeof number), "</td>");
        put(f, "<td>", report_class_name(run, answer->valueint, number, sizeof number), "</td>");
        fprintf(f, "<td class=\"n\">%.0f</td></tr>\n", cJSON_GetNumberValue(cJSON_GetArrayItem(one, 2)));
    }
    fputs("</tbody></table></details>\n", f);
}

static const char *text_in(const cJSON *event, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, key));
    return text ? text : "";
}

static void write_starts(FILE *f, const report_run *run)
{
    const cJSON *one;
    int row = 0;
    fputs("<h2>Starts</h2>\n<div class=\"scroll\" tabindex=\"0\"><table><thead><tr><th scope=\"col\">after "
          "step</th><th scope=\"col\">time</th><th scope=\"col\">ranks, nodes</th><th scope=\"col\">host, "
          "job</th><th scope=\"col\">the start before was</th></tr></thead><tbody>\n",
          f);
    cJSON_ArrayForEach(one, run->start)
    {
        const int64_t r = row++;
        fprintf(f, "<tr><td class=\"n\">%.0f</td><td>", report_cell(run, REPORT_start, r, REPORT_start_step));
        put_time(f, report_cell(run, REPORT_start, r, REPORT_start_time));
        fprintf(f, "</td><td>%.0f, %.0f</td>", report_cell(run, REPORT_start, r, REPORT_start_ranks),
                report_cell(run, REPORT_start, r, REPORT_start_nodes));
        put(f, "<td>", text_in(one, "host"), *text_in(one, "job") ? ", " : "");
        put(f, "", text_in(one, "job"), "</td>");
        put(f, "<td class=\"t\">", text_in(one, "after"), *text_in(one, "why") ? ": " : "");
        put(f, "", text_in(one, "why"), "</td></tr>\n");
    }
    fputs("</tbody></table></div>\n", f);
    if (run->torn)
        fprintf(f, "<p>%lld of %lld lines of events.jsonl are no whole events and were left out.</p>\n",
                (long long)run->torn, (long long)run->lines);
}

/* ---- recipe ---- */

static int write_recipe(FILE *f, const report_run *run, const report_run *before)
{
    kolo_options standard;
    int rc = 0;
    fputs("<h2>Recipe</h2>\n", f);
    if (!run->has_options) {
        put(f, "<p>", run->recipe_error ? run->recipe_error : "There is no recipe.yaml.", "</p>\n");
        return 0;
    }
    kolo_options_default(&standard);
    fputs("<p>Every option that is not at its default.</p>\n<div class=\"scroll\" "
          "tabindex=\"0\"><table><thead><tr><th "
          "scope=\"col\">option</th><th scope=\"col\">value</th><th scope=\"col\">default</th>",
          f);
    if (before) put(f, "<th scope=\"col\">in ", before->name, "</th>");
    fputs("</tr></thead><tbody>\n", f);
    for (int i = 0; i < kolo_option_count && rc == 0; i++) {
        const kolo_option_entry *e = &kolo_option_table[i];
        char *value = kolo_option_text(&run->options, e), *usual = kolo_option_text(&standard, e),
             *was = before ? kolo_option_text(&before->options, e) : NULL;
        if (!value || !usual || (before && !was)) rc = KOLO_ENOMEM;
        else if (strcmp(value, usual) || (was && strcmp(value, was))) {
            put(f, "<tr><th scope=\"row\">", e->key, "</th>");
            put(f, "<td class=\"t\">", value, "</td>");
            put(f, "<td class=\"t\">", usual, "</td>");
            if (was)
                put(f,
                    strcmp(value, was) && !report_option_is_place(e) ? "<td class=\"t changed\">"
                                                                     : "<td class=\"t\">",
                    was, "</td>");
            fputs("</tr>\n", f);
        }
        free(value);
        free(usual);
        free(was);
    }
    fputs("</tbody></table></div>\n", f);
    kolo_options_free(&standard);
    return rc;
}

static int write_again(FILE *f, const report_run *run)
{
    const kolo_summary *s = &run->summary;
    const cJSON *start = cJSON_GetArrayItem(run->start, cJSON_GetArraySize(run->start) - 1);
    const struct {
        const char *name, *text;
    } row[] = {{"version of Kolo", s->version},
               {"computed on", text_in(start, "device")},
               {"host of rank 0", text_in(start, "host")},
               {"started by", text_in(start, "launch")},
               {"job", s->job},
               {"account", s->account},
               {"partition", s->partition},
               {"run id", s->run_id},
               {"plan", text_in(start, "plan_hash")}};
    fputs("<h2>Environment</h2>\n<table>\n", f);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (*row[i].text) {
            put(f, "<tr><th scope=\"row\">", row[i].name, "</th>");
            put(f, "<td>", row[i].text, "</td></tr>\n");
        }
    fputs("</table>\n", f);
    char *command = report_command(run);
    if (!command) return KOLO_ENOMEM;
    if (*command) put(f, "<h2>To do it again</h2>\n<pre>", command, "</pre>\n");
    free(command);
    return 0;
}

int report_write_page(FILE *f, const report_run *runs, int n, const report_run *const *before)
{
    write_head(f, runs, n);
    if (n > 1) write_comparison(f, runs, n);
    KOLO_TRY(write_answers(f, &runs[0], before[0], n > 1));
    if (n == 1) write_facts(f, &runs[0]);
    KOLO_TRY(write_plots(f, runs, n));
    KOLO_TRY(report_write_examples(f, &runs[0]));
    for (int i = 0; i < n; i++) {
        if (n > 1) put(f, "<h2>", runs[i].name, "</h2>\n");
        write_evaluations(f, &runs[i]);
        write_confusions(f, &runs[i]);
        write_starts(f, &runs[i]);
        KOLO_TRY(write_recipe(f, &runs[i], before[i]));
        KOLO_TRY(write_again(f, &runs[i]));
    }
    fputs("</main>\n<script>", f);
    fputs(script, f);
    fputs("</script>\n</body></html>\n", f);
    return 0;
}
