#include "cmd/plan_scale.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "report/plot.h"
#include "train/times.h"

enum { STRONG, WEAK, WAYS, MOST_ROWS = 32 };
static const char *const way_name[WAYS] = {"strong", "weak"};

/* One number of ranks. step 0: it cannot be; the text says why. */
typedef struct row {
    int ranks, nodes;
    long batch;
    double step, rate, exposed; /* seconds; images a second; share of the step */
    double hours;               /* to what the recipe reaches; 0: its length is not known */
    char why[160];
} row;

typedef struct scaling {
    const kolo_options *options;
    kolo_launch *launch;
    const kolo_cluster *cluster;
    int parts;
    int ranks[MOST_ROWS], rows;
    int of; /* ranks that the recipe's batch is for */
    row row[WAYS][MOST_ROWS];
} scaling;

static int parse_range(scaling *s, const char *range)
{
    int from, to;
    char rest;
    if (sscanf(range, "%d..%d%c", &from, &to, &rest) != 2 || from < 1 || to < from || to > 1 << 20)
        return kolo_fail(KOLO_ECONFIG,
                         "--scale %s: give the least and the largest number of ranks, such as 1..64", range);
    for (int n = from; n < to && s->rows < MOST_ROWS - 1; n *= 2) s->ranks[s->rows++] = n;
    s->ranks[s->rows++] = to;
    s->of = s->options->ranks ? (int)s->options->ranks : from;
    return 0;
}

/* ---- one number of ranks ---- */

/* Epochs to the same loss, against those of the recipe's batch: of a batch B they are in proportion to
 * 1 + B / critical_batch (McCandlish et al. 2018, arXiv 1812.06162, eq. 2.11). */
static double epochs_of(const scaling *s, long batch)
{
    const double critical = (double)s->options->critical_batch, recipe = (double)s->options->batch;
    return critical > 0 ? (1 + (double)batch / critical) / (1 + recipe / critical) : 1;
}

static void read_play(const scaling *s, const kolo_session *session, const kolo_play *play, row *r)
{
    const int of_node = s->cluster ? (int)s->cluster->fabric.gpus : r->ranks;
    double exposed = 0;
    for (int k = 0; k < play->stages; k++) exposed = fmax(exposed, play->stage[k].exposed);
    r->nodes = (r->ranks + of_node - 1) / of_node;
    r->step = play->step;
    r->rate = (double)r->batch / play->step;
    r->exposed = exposed / play->step;
    if (kolo_session_length_known(session))
        r->hours = epochs_of(s, r->batch) * (double)session->steps * play->step / 3600;
}

static int plan_row(const scaling *s, row *r)
{
    kolo_options o;
    kolo_session session;
    kolo_play *play = NULL;
    char batch[24];
    KOLO_TRY(kolo_options_copy(&o, s->options));
    o.ranks = r->ranks;
    snprintf(batch, sizeof batch, "%ld", r->batch);
    int rc = kolo_option_set(&o, "batch", batch, "--scale");
    if (rc == 0 && o.steps)
        o.steps = (int64_t)ceil((double)o.steps * (double)s->options->batch / (double)r->batch);
    if (rc == 0)
        rc = kolo_session_open_for(&session, &o, s->launch, s->parts | KOLO_SESSION_QUIET,
                                   s->cluster ? &s->cluster->gpu.gpu : NULL);
    if (rc == 0) {
        const size_t bytes = kolo_session_rank_bytes(&session);
        rc = kolo_session_play(&session, &play, NULL);
        if (rc == 0 && s->cluster && bytes > s->cluster->gpu.gpu.memory)
            rc = kolo_fail(KOLO_ECONFIG, "a rank needs %zu bytes, its GPU has %zu", bytes,
                           s->cluster->gpu.gpu.memory);
        if (rc == 0) read_play(s, &session, play, r);
        kolo_play_destroy(&play);
        kolo_session_close(&session);
    }
    kolo_options_free(&o);
    if (rc == KOLO_ECONFIG) snprintf(r->why, sizeof r->why, "%s", kolo_error_text());
    return rc == KOLO_ECONFIG ? 0 : rc;
}

static int plan_all(scaling *s)
{
    const long batch = (long)s->options->batch;
    for (int w = 0; w < WAYS; w++)
        for (int i = 0; i < s->rows; i++) {
            row *r = &s->row[w][i];
            *r = (row){.ranks = s->ranks[i], .batch = w == STRONG ? batch : batch / s->of * s->ranks[i]};
            KOLO_TRY(plan_row(s, r));
        }
    for (int w = 0; w < WAYS; w++)
        for (int i = 0; i < s->rows; i++)
            if (s->row[w][i].step > 0) return 0;
    return kolo_fail(KOLO_ECONFIG, "--scale: no number of ranks can be planned for: %s", s->row[WEAK][0].why);
}

/* ---- what follows ---- */

/* The first row that could be planned. */
static const row *base_of(const scaling *s, int way)
{
    for (int i = 0; i < s->rows; i++)
        if (s->row[way][i].step > 0) return &s->row[way][i];
    return NULL;
}

/* Images a second of a rank, against those of the fewest ranks. */
static double efficiency(const scaling *s, int way, const row *r)
{
    const row *base = base_of(s, way);
    return r->step > 0 ? r->rate / r->ranks / (base->rate / base->ranks) : 0;
}

/* The most ranks up to which each doubling has brought half as much again, at least, of what counts: images a
 * second, less those that a batch takes more of to come as far. */
static const row *knee_of(const scaling *s, int way)
{
    const row *knee = base_of(s, way);
    for (int i = 0; knee && i < s->rows; i++) {
        const row *r = &s->row[way][i];
        if (r->step <= 0 || r->ranks <= knee->ranks) continue;
        if (r->rate / epochs_of(s, r->batch) <
            knee->rate / epochs_of(s, knee->batch) * pow(1.5, log2((double)r->ranks / knee->ranks)))
            break;
        knee = r;
    }
    return knee;
}

static void print_length(const scaling *s)
{
    const kolo_options *o = s->options;
    if (base_of(s, STRONG) ? base_of(s, STRONG)->hours == 0 : base_of(s, WEAK)->hours == 0)
        printf("hours: give the length of the run, epochs=N and data=DIR or images=N, or steps=N\n");
    else if (o->critical_batch)
        printf("hours: to the loss that batch=%ld reaches, by a critical batch of %ld\n", (long)o->batch,
               (long)o->critical_batch);
    else
        printf(
            "hours: of as many epochs with every batch; critical_batch=N counts what a larger one loses\n");
}

static void print_hours(double hours, int width, int digits)
{
    if (hours > 0) printf(" %*.*f", width, digits, hours);
    else printf(" %*s", width, "-");
}

static void print_table(const scaling *s)
{
    for (int w = 0; w < WAYS; w++) {
        if (!base_of(s, w)) continue;
        printf("%s scaling, %s\n%7s %6s %9s %12s %12s %11s %9s %10s %12s\n", way_name[w],
               w == STRONG ? "the same batch on all" : "the same batch a rank", "ranks", "nodes", "batch",
               "ms a step", "images/s", "efficiency", "exposed", "hours", "node hours");
        for (int i = 0; i < s->rows; i++) {
            const row *r = &s->row[w][i];
            if (r->step <= 0) printf("%7d  not possible: %.120s\n", r->ranks, r->why);
            else {
                printf("%7d %6d %9ld %12.3f %12.0f %9.1f %% %7.1f %%", r->ranks, r->nodes, r->batch,
                       r->step * 1e3, r->rate, 100 * efficiency(s, w, r), 100 * r->exposed);
                print_hours(r->hours, 10, 3);
                print_hours(r->hours * r->nodes, 12, 2);
                printf("\n");
            }
        }
        const row *knee = knee_of(s, w);
        printf("the knee: %d ranks, behind which twice as many bring less than half as much again\n",
               knee->ranks);
    }
    print_length(s);
}

static void print_json(const scaling *s)
{
    printf("{");
    for (int w = 0; w < WAYS; w++) {
        bool first = true;
        printf("%s\"%s\":[", w ? "," : "", way_name[w]);
        for (int i = 0; i < s->rows; i++) {
            const row *r = &s->row[w][i];
            if (r->step <= 0) continue;
            printf("%s{\"ranks\":%d,\"nodes\":%d,\"batch\":%ld,\"step_seconds\":", first ? "" : ",", r->ranks,
                   r->nodes, r->batch);
            kolo_json_number(stdout, r->step, 9);
            printf(",\"images_per_second\":");
            kolo_json_number(stdout, r->rate, 9);
            printf(",\"efficiency\":");
            kolo_json_number(stdout, efficiency(s, w, r), 9);
            if (r->hours > 0) {
                printf(",\"hours\":");
                kolo_json_number(stdout, r->hours, 9);
            }
            printf("}");
            first = false;
        }
        printf("]");
    }
    for (int w = 0; w < WAYS; w++)
        if (knee_of(s, w)) printf(",\"%s_knee\":%d", way_name[w], knee_of(s, w)->ranks);
    printf("}\n");
}

static int draw(const scaling *s, FILE *f)
{
    report_plot plot = {.kind = REPORT_CURVES,
                        .name = "scaling",
                        .title = "Scaling",
                        .x_title = "ranks",
                        .y_title = "images a second",
                        .unit = "",
                        .zero = true};
    int rc = 0;
    for (int w = 0; rc == 0 && w < WAYS; w++) {
        report_series *line = report_plot_series(&plot, way_name[w], w),
                      *ideal = w == WEAK ? report_plot_series(&plot, "ideal", 2) : NULL;
        if (!line || (w == WEAK && !ideal)) rc = KOLO_ENOMEM;
        if (ideal) ideal->dashed = true;
        for (int i = 0; rc == 0 && i < s->rows; i++) {
            const row *r = &s->row[w][i], *base = base_of(s, w);
            if (r->step <= 0) continue;
            rc = report_plot_point(line, r->ranks, r->rate);
            if (rc == 0 && ideal)
                rc = report_plot_point(ideal, r->ranks, base->rate / base->ranks * r->ranks);
        }
    }
    if (rc == 0) report_plot_svg(f, &plot, true);
    report_plot_free(&plot);
    return rc;
}

static int write_svg(const scaling *s)
{
    const char *path = s->options->svg;
    if (!*path) return 0;
    FILE *f = fopen(path, "w");
    if (!f) return kolo_fail(KOLO_EIO, "svg=%s: %s", path, strerror(errno));
    const int rc = draw(s, f);
    const bool failed = ferror(f);
    if (fclose(f) != 0 || failed) return kolo_fail(KOLO_EIO, "svg=%s: %s", path, strerror(errno));
    return rc;
}

int kolo_plan_scale(const kolo_options *o, kolo_launch *launch, int parts, const kolo_cluster *cluster,
                    const char *range, bool json)
{
    if (!o->batch) return kolo_fail(KOLO_ECONFIG, "--scale: give batch=N instead of batch=auto");
    scaling *s = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ENOMEM;
    s->options = o;
    s->launch = launch;
    s->parts = parts;
    s->cluster = cluster;
    int rc = parse_range(s, range);
    if (rc == 0) rc = plan_all(s);
    if (rc == 0) (json ? print_json : print_table)(s);
    if (rc == 0) rc = write_svg(s);
    free(s);
    return rc;
}
