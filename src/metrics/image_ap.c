#include "metrics/image_ap.h"

#include <math.h>
#include <stdlib.h>

#include "kolo/error.h"

static int by_score(const kolo_image_score *a, const kolo_image_score *b)
{
    return (a->score < b->score) - (a->score > b->score);
}
static int compare_scores(const void *a, const void *b) { return by_score(a, b); }
static int compare_classes(const void *a, const void *b)
{
    const int32_t x = kolo_image_score_class(a), y = kolo_image_score_class(b);
    return x != y ? (x > y) - (x < y) : by_score(a, b);
}

/* Of n scores, falling. -1: none is positive. */
static double precision_of(const kolo_image_score *s, int64_t n)
{
    int64_t positives = 0, hits = 0;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) positives += kolo_image_score_positive(&s[i]);
    for (int64_t i = 0, next; i < n; i = next) {
        int64_t new = 0;
        for (next = i; next < n && s[next].score == s[i].score; next++)
            new += kolo_image_score_positive(&s[next]);
        hits += new;
        sum += (double)new *(double)hits / (double)next;
    }
    return positives ? sum / (double)positives : -1;
}

int kolo_image_ap_form(kolo_image_ap *r, double *ap, kolo_image_score *score, int64_t n, int classes)
{
    *r = (kolo_image_ap){0};
    for (int c = 0; ap && c < classes; c++) ap[c] = -1;
    for (int64_t i = 0; i < n; i++) {
        const int32_t cls = kolo_image_score_class(&score[i]);
        if (cls >= classes) return kolo_fail(KOLO_EINTERNAL, "a score of class %d of %d", cls, classes);
        if (isnan(score[i].score)) score[i].score = -INFINITY;
        r->positives += kolo_image_score_positive(&score[i]);
    }
    r->negatives = n - r->positives;
    qsort(score, (size_t)n, sizeof *score, compare_scores);
    r->micro = fmax(precision_of(score, n), 0);
    qsort(score, (size_t)n, sizeof *score, compare_classes);
    for (int64_t first = 0, next; first < n; first = next) {
        const int32_t cls = kolo_image_score_class(&score[first]);
        for (next = first; next < n && kolo_image_score_class(&score[next]) == cls; next++) continue;
        const double is = precision_of(score + first, next - first);
        if (ap) ap[cls] = is;
        if (is < 0) continue;
        r->map += is;
        r->classes++;
    }
    if (r->classes) r->map /= (double)r->classes;
    return 0;
}
