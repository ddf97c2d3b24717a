/* COCO's rule. A class is gone through image by image; what becomes of a result is a bit for
 * each of the ten IoUs. */
#include "metrics/ap.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "metrics/ap_parts.h"
#include "ops/boxes.h"

enum { IOUS = KOLO_AP_IOUS, AREAS = KOLO_AP_AREAS, COUNTS = KOLO_AP_COUNTS, MOST = 100, RECALLS = 101 };

static const double area_range[AREAS][2] = {{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}};
static const int count_of[COUNTS] = {1, 10, MOST};

/* As numpy.linspace makes them. */
static double iou_at(int i) { return i == IOUS - 1 ? 0.95 : i * ((0.95 - 0.5) / (IOUS - 1)) + 0.5; }
static double recall_at(int i) { return i == RECALLS - 1 ? 1 : i * (1.0 / (RECALLS - 1)); }

typedef struct result {
    double score;
    int place, rank;                 /* in the class; in its image */
    uint16_t hit[AREAS], out[AREAS]; /* bit i: matched, not counted, at IoU i */
} result;

/* One class on its way. */
typedef struct work {
    const ap_lists *lists;
    result *result;
    int64_t results;
    int64_t counted[AREAS]; /* truths that are to be found */
    double *iou;            /* [results of an image, truths of it] */
    int64_t *order;         /* truths of an image, those that are ignored behind */
    bool *ignored, *taken;  /* [truths of an image] in this order */
    double *precision, *recall;
} work;

static bool outside(double area, int range)
{
    return area < area_range[range][0] || area > area_range[range][1];
}

/* Truths of an image that count come first. */
static void order_truths(work *w, const int64_t *truth, int64_t n, int range)
{
    int64_t to = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t g = 0; g < n; g++) {
            const kolo_ap_truth *t = &w->lists->truth[truth[g]];
            const bool ignored = t->crowd || t->ignore || outside(t->area, range);
            if (ignored != (pass == 1)) continue;
            w->ignored[to] = ignored;
            w->order[to++] = g;
            w->counted[range] += !ignored;
        }
}

/* The truth that a result takes: of those that are free the one it lies over most, and none that is ignored
 * if one counts. -1: none */
static int64_t ap_choose(const work *w, const int64_t *truth, int64_t n, const double *iou, double least)
{
    int64_t best = -1;
    double most = kolo_min(least, 1 - 1e-10);
    for (int64_t i = 0; i < n; i++) {
        if (w->taken[i] && !w->lists->truth[truth[w->order[i]]].crowd) continue;
        if (best >= 0 && !w->ignored[best] && w->ignored[i]) break;
        if (iou[w->order[i]] < most) continue;
        most = iou[w->order[i]];
        best = i;
    }
    return best;
}

static void match_image(work *w, const int64_t *truth, int64_t n, const int64_t *found, int64_t m)
{
    result *r = &w->result[w->results];
    for (int64_t d = 0; d < m; d++)
        for (int64_t g = 0; g < n; g++) {
            const kolo_ap_truth *t = &w->lists->truth[truth[g]];
            w->iou[d * n + g] = ap_overlap(w->lists->found[found[d]].box, t->box, t->crowd);
        }
    for (int64_t d = 0; d < m; d++)
        r[d] = (result){
            .score = w->lists->found[found[d]].score, .place = (int)(w->results + d), .rank = (int)d};
    for (int a = 0; a < AREAS; a++) {
        order_truths(w, truth, n, a);
        for (int i = 0; i < IOUS; i++) {
            memset(w->taken, 0, (size_t)n * sizeof *w->taken);
            for (int64_t d = 0; d < m; d++) {
                const double *box = w->lists->found[found[d]].box;
                const int64_t g = ap_choose(w, truth, n, w->iou + d * n, iou_at(i));
                const bool out = g >= 0 ? w->ignored[g] : outside(box[2] * box[3], a);
                if (g >= 0) w->taken[g] = true;
                r[d].hit[a] |= (uint16_t)((g >= 0) << i);
                r[d].out[a] |= (uint16_t)(out << i);
            }
        }
    }
    w->results += m;
}

static int64_t in_image(const ap_lists *l, bool truth, int64_t at, int64_t end, int64_t image)
{
    int64_t n = 0;
    while (at + n < end &&
           (truth ? l->truth[l->of_truth[at + n]].image : l->found[l->of_found[at + n]].image) == image)
        n++;
    return n;
}

/* The next image that has either, and how many of both; false behind the last. */
static bool next_image(const ap_lists *l, int cls, int64_t *t, int64_t *f, int64_t *n, int64_t *m)
{
    const int64_t t_end = l->first_truth[cls + 1], f_end = l->first_found[cls + 1];
    *t += *n, *f += *m;
    if (*t >= t_end && *f >= f_end) return false;
    int64_t image = *t < t_end ? l->truth[l->of_truth[*t]].image : INT64_MAX;
    if (*f < f_end && l->found[l->of_found[*f]].image < image) image = l->found[l->of_found[*f]].image;
    *n = in_image(l, true, *t, t_end, image);
    *m = in_image(l, false, *f, f_end, image);
    return true;
}

static void match_class(work *w, int cls)
{
    int64_t t = w->lists->first_truth[cls], f = w->lists->first_found[cls], n = 0, m = 0;
    w->results = 0;
    memset(w->counted, 0, sizeof w->counted);
    while (next_image(w->lists, cls, &t, &f, &n, &m))
        match_image(w, w->lists->of_truth + t, n, w->lists->of_found + f, m < MOST ? m : MOST);
}

static int by_score(const void *a, const void *b)
{
    const result *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* Mean of the envelope's precision at 101 recalls. */
static double mean_precision(const work *w, int64_t n)
{
    double sum = 0;
    int64_t at = 0;
    for (int64_t i = n - 1; i > 0; i--)
        if (w->precision[i] > w->precision[i - 1]) w->precision[i - 1] = w->precision[i];
    for (int k = 0; k < RECALLS; k++) {
        while (at < n && w->recall[at] < recall_at(k)) at++;
        if (at < n) sum += w->precision[at];
    }
    return sum / RECALLS;
}

/* results: sorted. Those of which an image has `most` better ones are left out. */
static void accumulate(const work *w, int area, int iou, int most, double *ap, double *ar)
{
    int64_t n = 0, right = 0, wrong = 0;
    for (int64_t i = 0; i < w->results; i++) {
        const result *r = &w->result[i];
        if (r->rank >= most) continue;
        const bool hit = r->hit[area] >> iou & 1, out = r->out[area] >> iou & 1;
        right += hit && !out;
        wrong += !hit && !out;
        w->recall[n] = (double)right / (double)w->counted[area];
        w->precision[n++] = (double)right / ((double)(right + wrong) + 0x1p-52);
    }
    *ar = n ? w->recall[n - 1] : 0;
    if (ap) *ap = mean_precision(w, n);
}

static void measure_class(work *w, kolo_ap_class *c)
{
    if (w->results) qsort(w->result, (size_t)w->results, sizeof *w->result, by_score);
    for (int a = 0; a < AREAS; a++)
        for (int i = 0; i < IOUS; i++)
            for (int k = 0; k < COUNTS; k++) {
                double *ap = k == COUNTS - 1 ? &c->ap[a][i] : NULL, *ar = &c->ar[a][k][i];
                if (w->counted[a]) accumulate(w, a, i, count_of[k], ap, ar);
                else *ar = -1;
                if (!w->counted[a] && ap) *ap = -1;
            }
}

typedef struct mean {
    double sum;
    int64_t count;
} mean;

static void include(mean *m, double value)
{
    if (value > -1) m->sum += value, m->count++;
}

static double average(const mean *m) { return m->count ? m->sum / (double)m->count : -1; }

/* What each line averages: area, -1: all of the ten IoUs or one of them; count -1: precision. */
static const struct line {
    int area, iou, count;
} lines[12] = {{0, -1, -1}, {0, 0, -1}, {0, 5, -1}, {1, -1, -1}, {2, -1, -1}, {3, -1, -1},
               {0, -1, 0},  {0, -1, 1}, {0, -1, 2}, {1, -1, 2},  {2, -1, 2},  {3, -1, 2}};

static void summarise(kolo_ap *ap)
{
    for (int k = 0; k < 12; k++) {
        const struct line *l = &lines[k];
        mean m = {0, 0};
        for (int i = 0; i < IOUS; i++)
            for (int c = 0; c < ap->classes && (l->iou < 0 || l->iou == i); c++)
                include(&m, l->count < 0 ? ap->cls[c].ap[l->area][i] : ap->cls[c].ar[l->area][l->count][i]);
        ap->line[k] = average(&m);
    }
}

/* The most that a class, and an image of a class, has. */
static void ap_measure(const ap_lists *l, int classes, int64_t *results, int64_t *truths, int64_t *pairs)
{
    *results = *truths = *pairs = 1;
    for (int c = 0; c < classes; c++) {
        int64_t t = l->first_truth[c], f = l->first_found[c], n = 0, m = 0, sum = 0;
        while (next_image(l, c, &t, &f, &n, &m)) {
            const int64_t kept = m < MOST ? m : MOST;
            sum += kept;
            if (n > *truths) *truths = n;
            if (n * kept > *pairs) *pairs = n * kept;
        }
        if (sum > *results) *results = sum;
    }
}

static int make_work(work *w, const ap_lists *lists, int classes)
{
    int64_t results, truths, pairs;
    ap_measure(lists, classes, &results, &truths, &pairs);
    *w = (work){.lists = lists,
                .result = kolo_alloc((size_t)results * sizeof(result)),
                .iou = kolo_alloc((size_t)pairs * sizeof(double)),
                .order = kolo_alloc((size_t)truths * sizeof(int64_t)),
                .ignored = kolo_alloc((size_t)truths * sizeof(bool)),
                .taken = kolo_alloc((size_t)truths * sizeof(bool)),
                .precision = kolo_alloc((size_t)results * sizeof(double)),
                .recall = kolo_alloc((size_t)results * sizeof(double))};
    return w->result && w->iou && w->order && w->ignored && w->taken && w->precision && w->recall
               ? 0
               : KOLO_ENOMEM;
}

static void free_work(work *w)
{
    free(w->result);
    free(w->iou);
    free(w->order);
    free(w->ignored);
    free(w->taken);
    free(w->precision);
    free(w->recall);
}

int kolo_ap_coco(kolo_ap *ap, const kolo_ap_truth *truth, int64_t truths, const kolo_ap_found *found,
                 int64_t founds, int classes)
{
    ap_lists lists;
    work w = {0};
    *ap = (kolo_ap){.classes = classes};
    KOLO_TRY(ap_lists_make(&lists, truth, truths, found, founds, classes));
    int rc = make_work(&w, &lists, classes);
    ap->cls = rc < 0 ? NULL : kolo_alloc((size_t)classes * sizeof *ap->cls);
    if (!ap->cls) rc = KOLO_ENOMEM;
    for (int c = 0; c < classes && rc == 0; c++) {
        match_class(&w, c);
        measure_class(&w, &ap->cls[c]);
    }
    if (rc == 0) summarise(ap);
    free_work(&w);
    ap_lists_free(&lists);
    return rc;
}

void kolo_ap_free(kolo_ap *ap)
{
    free(ap->cls);
    *ap = (kolo_ap){0};
}

void kolo_ap_text(const kolo_ap *ap, int line, char *text, int64_t size)
{
    static const char *const areas[AREAS] = {"all", "small", "medium", "large"};
    const struct line *l = &lines[line];
    char iou[16] = "0.50:0.95";
    if (l->iou >= 0) snprintf(iou, sizeof iou, "%.2f", iou_at(l->iou));
    snprintf(text, (size_t)size, " %-18s %s @[ IoU=%-9s | area=%6s | maxDets=%3d ] = %.3f",
             l->count < 0 ? "Average Precision" : "Average Recall", l->count < 0 ? "(AP)" : "(AR)", iou,
             areas[l->area], count_of[l->count < 0 ? COUNTS - 1 : l->count], ap->line[line]);
}
