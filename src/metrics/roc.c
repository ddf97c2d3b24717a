#include "metrics/roc.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "kolo/error.h"

int kolo_pair_scores_create(kolo_pair_scores *s, int64_t count)
{
    const size_t n = (size_t)count + 1;
    *s = (kolo_pair_scores){count, kolo_alloc(n * sizeof *s->score), kolo_alloc(n),
                            kolo_alloc(n * sizeof *s->fold)};
    if (s->score && s->same && s->fold) return 0;
    kolo_pair_scores_free(s);
    return KOLO_ENOMEM;
}

void kolo_pair_scores_free(kolo_pair_scores *s)
{
    free(s->score);
    free(s->same);
    free(s->fold);
    *s = (kolo_pair_scores){0};
}

/* ---- the curve: pairs from the most alike on ----------------------------------------------------------- */

typedef struct ranked {
    float score;
    int32_t fold;
    bool same;
} ranked;

static int by_score(const void *a, const void *b)
{
    const float x = ((const ranked *)a)->score, y = ((const ranked *)b)->score;
    return (x < y) - (x > y);
}

static ranked *rank(const kolo_pair_scores *s)
{
    ranked *r = kolo_alloc((size_t)(s->count + 1) * sizeof *r);
    for (int64_t i = 0; r && i < s->count; i++) r[i] = (ranked){s->score[i], s->fold[i], s->same[i] != 0};
    if (r) qsort(r, (size_t)s->count, sizeof *r, by_score);
    return r;
}

static int roc_check(const kolo_pair_scores *s, int64_t *same)
{
    *same = 0;
    for (int64_t i = 0; i < s->count; i++) {
        *same += s->same[i] != 0;
        if (isnan(s->score[i]))
            return kolo_fail(KOLO_EINPUT, "pair %ld has no score: the network's outputs are not finite",
                             (long)i);
    }
    if (*same > 0 && *same < s->count) return 0;
    return kolo_fail(KOLO_EINPUT, "%ld pairs of one person among %ld: verification needs both kinds",
                     (long)*same, (long)s->count);
}

/* Pairs equal in score come in together: the end of the run that begins at i. */
static int64_t run_end(const ranked *r, int64_t n, int64_t i)
{
    const float score = r[i].score;
    while (i < n && r[i].score == score) i++;
    return i;
}

/* The least score that counts as the same person, so that most pairs outside of fold `but` (-1: of all)
 * are classified correctly: in the middle between two of their scores. right: how many more are than if all
 * were called different. */
static double best_threshold(const ranked *r, int64_t n, int but)
{
    int64_t right = 0, most = 0;
    double above = INFINITY, threshold = INFINITY; /* above: the score before this one */
    for (int64_t i = 0; i < n; i++) {
        if (r[i].fold == but) continue;
        if (right > most && (double)r[i].score < above) {
            most = right;
            threshold = (above + (double)r[i].score) / 2;
        }
        right += r[i].same ? 1 : -1;
        above = (double)r[i].score;
    }
    return right > most ? -INFINITY : threshold;
}

static double accuracy_of(const ranked *r, int64_t n, int fold, double threshold)
{
    int64_t right = 0, count = 0;
    for (int64_t i = 0; i < n; i++) {
        if (r[i].fold != fold) continue;
        right += r[i].same == ((double)r[i].score >= threshold);
        count++;
    }
    return count ? (double)right / (double)count : 0;
}

/* Between two points of the curve it is a straight line. */
static void walk(const ranked *r, int64_t n, int64_t same, kolo_verification *v)
{
    double x = 0, y = 0;
    bool equal = false;
    for (int64_t i = 0, end; i < n; i = end) {
        double to_x = x, to_y = y;
        end = run_end(r, n, i);
        for (int64_t k = i; k < end; k++)
            if (r[k].same) to_y += 1 / (double)same;
            else to_x += 1 / (double)(n - same);
        v->auc += (to_x - x) * (y + to_y) / 2;
        if (!equal && to_x >= 1 - to_y) { /* false acceptances x meet false refusals 1 - y */
            const double part = (1 - y - x) / (to_x - x + to_y - y);
            v->eer = x + part * (to_x - x);
            equal = true;
        }
        if (to_x <= 0.01 + 1e-9) v->tar = to_y;
        x = to_x;
        y = to_y;
    }
}

static int measure_folds(const ranked *r, int64_t n, const kolo_pair_scores *other, kolo_verification *v)
{
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++)
        if (r[i].fold >= v->folds) v->folds = r[i].fold + 1;
    if (v->folds == 1) {
        ranked *o = other ? rank(other) : NULL;
        if (!o)
            return other ? KOLO_ENOMEM
                         : kolo_fail(KOLO_EINPUT, "one fold of pairs: the threshold comes from other pairs "
                                                  "(dev_train), which are not there");
        v->accuracy = accuracy_of(r, n, 0, best_threshold(o, other->count, -1));
        v->error = sqrt(v->accuracy * (1 - v->accuracy) / (double)n);
        free(o);
        return 0;
    }
    for (int f = 0; f < v->folds; f++) {
        const double a = accuracy_of(r, n, f, best_threshold(r, n, f));
        sum += a;
        square += a * a;
    }
    const double folds = v->folds, spread = (square - sum * sum / folds) / (folds - 1);
    v->accuracy = sum / folds;
    v->error = sqrt((spread > 0 ? spread : 0) / folds);
    return 0;
}

int kolo_roc_measure(const kolo_pair_scores *s, const kolo_pair_scores *other, kolo_verification *v)
{
    int64_t same;
    *v = (kolo_verification){0};
    KOLO_TRY(roc_check(s, &same));
    ranked *r = rank(s);
    if (!r) return KOLO_ENOMEM;
    walk(r, s->count, same, v);
    const int rc = measure_folds(r, s->count, other, v);
    free(r);
    return rc;
}

/* ---- the image --------------------------------------------------------------------------------------- */

enum { LEFT = 60, TOP = 40, SIDE = 400 };

static double across(double x) { return LEFT + SIDE * x; }
static double down(double y) { return TOP + SIDE * (1 - y); }

static void draw_frame(FILE *f, const char *title, const kolo_verification *v)
{
    fprintf(f,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            LEFT + SIDE + 30, TOP + SIDE + 60);
    for (int i = 0; i <= 10; i += 2) {
        const double at = i / 10.0;
        fprintf(f, "<path d=\"M%g %gV%gM%g %gH%g\" stroke=\"#ddd\"/>\n", across(at), down(0), down(1),
                across(0), down(at), across(1));
        fprintf(f, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">%g</text>\n", across(at), down(0) + 18,
                at);
        fprintf(f, "<text x=\"%g\" y=\"%g\" text-anchor=\"end\">%g</text>\n", across(0) - 6, down(at) + 4,
                at);
    }
    fprintf(f, "<path d=\"M%g %gL%g %g\" stroke=\"#999\" stroke-dasharray=\"4\"/>\n", across(0), down(0),
            across(1), down(1));
    fprintf(f, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">false acceptances</text>\n", across(.5),
            down(0) + 40);
    fprintf(
        f,
        "<text transform=\"translate(18 %g) rotate(-90)\" text-anchor=\"middle\">true acceptances</text>\n",
        down(.5));
    fprintf(f, "<text x=\"%g\" y=\"24\" font-size=\"14\">", across(0));
    for (; *title; title++) /* a name of pairs may hold anything */
        if (strchr("<>&", *title)) fprintf(f, "&#%d;", *title);
        else fputc(*title, f);
    fprintf(f, ": accuracy %.4f, EER %.4f, AUC %.4f</text>\n", v->accuracy, v->eer, v->auc);
}

static void draw_curve(FILE *f, const ranked *r, int64_t n, int64_t same)
{
    int64_t hits = 0, wrong = 0;
    fprintf(f, "<polyline fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\" points=\"%g,%g", across(0),
            down(0));
    for (int64_t i = 0, end; i < n; i = end) {
        end = run_end(r, n, i);
        for (int64_t k = i; k < end; k++) *(r[k].same ? &hits : &wrong) += 1;
        fprintf(f, " %.2f,%.2f", across((double)wrong / (double)(n - same)),
                down((double)hits / (double)same));
    }
    fputs("\"/>\n</svg>\n", f);
}

/* For `kolo report`, which finds it as RUN/roc.json. */
static void write_points(FILE *f, const char *title, const ranked *r, int64_t n, int64_t same,
                         const kolo_verification *v)
{
    int64_t hits = 0, wrong = 0;
    fputs("{\"pairs\":", f);
    kolo_json_string(f, title);
    fprintf(f, ",\"count\":%lld,\"accuracy\":%.9g,\"error\":%.9g,\"eer\":%.9g,\"auc\":%.9g,\"tar\":%.9g",
            (long long)n, v->accuracy, v->error, v->eer, v->auc, v->tar);
    fputs(",\"points\":[[0,0]", f);
    for (int64_t i = 0, end; i < n; i = end) {
        end = run_end(r, n, i);
        for (int64_t k = i; k < end; k++) *(r[k].same ? &hits : &wrong) += 1;
        fprintf(f, ",[%.6g,%.6g]", (double)wrong / (double)(n - same), (double)hits / (double)same);
    }
    fputs("]}\n", f);
}

static bool is_json(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && !strcmp(path + length - 5, ".json");
}

int kolo_roc_write(const char *path, const char *title, const kolo_pair_scores *s, const kolo_verification *v)
{
    char *text = NULL;
    size_t bytes = 0;
    int64_t same;
    KOLO_TRY(roc_check(s, &same));
    ranked *r = rank(s);
    FILE *f = r ? open_memstream(&text, &bytes) : NULL;
    int rc = r ? 0 : KOLO_ENOMEM;
    if (f && is_json(path)) write_points(f, title, r, s->count, same, v);
    else if (f) {
        draw_frame(f, title, v);
        draw_curve(f, r, s->count, same);
    }
    if (r && (!f || fclose(f) != 0)) rc = kolo_fail(KOLO_ENOMEM, "out of memory for %s", path);
    if (rc == 0) rc = kolo_file_write_atomic(path, text, bytes);
    free(text);
    free(r);
    return rc;
}
