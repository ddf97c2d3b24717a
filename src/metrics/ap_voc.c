/* Pascal VOC's rule: every result looks at the truth that it lies over most, taken or not. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "metrics/ap_parts.h"

typedef struct ranked { /* a result of one class, and the truths of its image */
    double score;
    int64_t found, first, count;
} ranked;

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->found > y->found) - (x->found < y->found);
}

/* Results by falling score, each with where the truths of its image lie. */
static void rank_class(const ap_lists *l, int cls, ranked *r)
{
    int64_t t = l->first_truth[cls], end = l->first_truth[cls + 1], n = 0;
    for (int64_t f = l->first_found[cls]; f < l->first_found[cls + 1]; f++) {
        const int64_t image = l->found[l->of_found[f]].image;
        while (t < end && l->truth[l->of_truth[t]].image < image) t++;
        int64_t count = 0;
        while (t + count < end && l->truth[l->of_truth[t + count]].image == image) count++;
        r[n++] = (ranked){l->found[l->of_found[f]].score, l->of_found[f], t, count};
    }
    if (n) qsort(r, (size_t)n, sizeof *r, by_score);
}

/* 1 right, 0 wrong, -1 neither */
static int ap_voc_match(const ap_lists *l, const ranked *r, double iou, bool *taken)
{
    double most = 0;
    int64_t best = -1;
    for (int64_t t = r->first; t < r->first + r->count; t++) {
        const double o = ap_overlap(l->found[r->found].box, l->truth[l->of_truth[t]].box, false);
        if (o > most) most = o, best = t;
    }
    if (best < 0 || most < iou) return 0;
    const kolo_ap_truth *t = &l->truth[l->of_truth[best]];
    if (t->ignore || t->crowd) return -1;
    if (taken[best]) return 0;
    taken[best] = true;
    return 1;
}

static double eleven_points(const double *precision, const double *recall, int64_t n)
{
    double sum = 0;
    for (int k = 0; k <= 10; k++) {
        double best = 0;
        for (int64_t i = 0; i < n; i++)
            if (recall[i] >= k / 10.0 && precision[i] > best) best = precision[i];
        sum += best;
    }
    return sum / 11;
}

double ap_area_below(double *precision, const double *recall, int64_t n)
{
    double sum = 0;
    for (int64_t i = n - 1; i > 0; i--)
        if (precision[i] > precision[i - 1]) precision[i - 1] = precision[i];
    for (int64_t i = 0; i < n; i++) sum += (recall[i] - (i ? recall[i - 1] : 0)) * precision[i];
    return sum;
}

typedef struct space {
    ranked *ranked;
    double *precision, *recall;
    bool *taken;
} space;

static double class_ap(const ap_lists *l, int cls, double iou, bool eleven, space *s)
{
    int64_t n = 0, wanted = 0, right = 0, wrong = 0;
    for (int64_t t = l->first_truth[cls]; t < l->first_truth[cls + 1]; t++) {
        const kolo_ap_truth *x = &l->truth[l->of_truth[t]];
        wanted += !x->ignore && !x->crowd;
    }
    if (!wanted) return -1;
    rank_class(l, cls, s->ranked);
    for (int64_t i = 0; i < l->first_found[cls + 1] - l->first_found[cls]; i++) {
        const int is = ap_voc_match(l, &s->ranked[i], iou, s->taken);
        right += is == 1;
        wrong += is == 0;
        if (right + wrong == 0) continue;
        s->recall[n] = (double)right / (double)wanted;
        s->precision[n++] = (double)right / (double)(right + wrong);
    }
    return eleven ? eleven_points(s->precision, s->recall, n) : ap_area_below(s->precision, s->recall, n);
}

int kolo_ap_voc(double *ap, double *mean, const kolo_ap_truth *truth, int64_t truths,
                const kolo_ap_found *found, int64_t founds, int classes, double iou, bool eleven)
{
    ap_lists lists;
    KOLO_TRY(ap_lists_make(&lists, truth, truths, found, founds, classes));
    space s = {.ranked = kolo_alloc((size_t)(founds + 1) * sizeof(ranked)),
               .precision = kolo_alloc((size_t)(founds + 1) * sizeof(double)),
               .recall = kolo_alloc((size_t)(founds + 1) * sizeof(double)),
               .taken = kolo_alloc((size_t)(truths + 1) * sizeof(bool))};
    int rc = s.ranked && s.precision && s.recall && s.taken ? 0 : KOLO_ENOMEM;
    double sum = 0;
    int counted = 0;
    for (int c = 0; c < classes && rc == 0; c++) {
        ap[c] = class_ap(&lists, c, iou, eleven, &s);
        if (ap[c] >= 0) sum += ap[c], counted++;
    }
    *mean = counted ? sum / counted : -1;
    free(s.ranked);
    free(s.precision);
    free(s.recall);
    free(s.taken);
    ap_lists_free(&lists);
    return rc;
}
