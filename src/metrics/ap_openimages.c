/* Open Images' rule: groups are found by one result, and only classes that somebody looked for count. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "metrics/ap_parts.h"

/* ---- what counts: expanded by the hierarchy, and looked for -------------------------------------------- */

typedef struct lists {
    kolo_ap_truth *truth;
    kolo_ap_found *found;
    kolo_ap_verified *verified;
    int64_t truths, founds, n, room[3];
} lists;

static int64_t ancestors(const kolo_hierarchy *h, int32_t cls, const int32_t **list)
{
    if (!h || cls < 0 || cls >= h->classes) return 0;
    *list = h->ancestor + h->first[cls];
    return h->first[cls + 1] - h->first[cls];
}

static int add_truth(lists *l, const kolo_ap_truth *x, int32_t cls)
{
    KOLO_TRY(kolo_grow(&l->truth, &l->room[0], l->truths, sizeof *l->truth));
    l->truth[l->truths] = *x;
    l->truth[l->truths++].cls = cls;
    return 0;
}

static int add_found(lists *l, const kolo_ap_found *x, int32_t cls)
{
    KOLO_TRY(kolo_grow(&l->found, &l->room[1], l->founds, sizeof *l->found));
    l->found[l->founds] = *x;
    l->found[l->founds++].cls = cls;
    return 0;
}

static int add_verified(lists *l, int64_t image, int32_t cls)
{
    KOLO_TRY(kolo_grow(&l->verified, &l->room[2], l->n, sizeof *l->verified));
    l->verified[l->n++] = (kolo_ap_verified){.image = image, .cls = cls};
    return 0;
}

/* A class that is there makes those there that it is a kind of; one that is not there, its kinds not
 * there. */
static int add_labels(lists *l, const kolo_ap_verified *v, int64_t n, const kolo_hierarchy *h)
{
    for (int64_t i = 0; i < n; i++) {
        const int32_t *up = NULL;
        const int64_t more = v[i].positive ? ancestors(h, v[i].cls, &up) : 0;
        KOLO_TRY(add_verified(l, v[i].image, v[i].cls));
        for (int64_t k = 0; k < more; k++) KOLO_TRY(add_verified(l, v[i].image, up[k]));
        for (int32_t c = 0; h && !v[i].positive && c < h->classes; c++)
            for (int64_t k = h->first[c]; k < h->first[c + 1]; k++)
                if (h->ancestor[k] == v[i].cls) KOLO_TRY(add_verified(l, v[i].image, c));
    }
    return 0;
}

static int by_image(const void *a, const void *b)
{
    const kolo_ap_verified *x = a, *y = b;
    if (x->image != y->image) return (x->image > y->image) - (x->image < y->image);
    return (x->cls > y->cls) - (x->cls < y->cls);
}

static bool is_verified(const lists *l, int64_t image, int32_t cls)
{
    const kolo_ap_verified key = {.image = image, .cls = cls};
    return bsearch(&key, l->verified, (size_t)l->n, sizeof key, by_image);
}

static int expand(lists *l, const kolo_ap_truth *truth, int64_t truths, const kolo_ap_found *found,
                  int64_t founds, const kolo_ap_verified *v, int64_t n, const kolo_hierarchy *h)
{
    const int32_t *up = NULL;
    for (int64_t i = 0; i < truths; i++) {
        const int64_t more = ancestors(h, truth[i].cls, &up);
        for (int64_t k = -1; k < more; k++) KOLO_TRY(add_truth(l, &truth[i], k < 0 ? truth[i].cls : up[k]));
    }
    KOLO_TRY(add_labels(l, v, n, h));
    for (int64_t i = 0; i < l->truths; i++) KOLO_TRY(add_verified(l, l->truth[i].image, l->truth[i].cls));
    if (l->n) qsort(l->verified, (size_t)l->n, sizeof *l->verified, by_image);
    for (int64_t i = 0; i < founds && l->n; i++) {
        const int64_t more = ancestors(h, found[i].cls, &up);
        for (int64_t k = -1; k < more; k++) {
            const int32_t cls = k < 0 ? found[i].cls : up[k];
            if (is_verified(l, found[i].image, cls)) KOLO_TRY(add_found(l, &found[i], cls));
        }
    }
    return 0;
}

/* ---- one class ----------------------------------------------------------------------------------------- */

typedef struct scored { /* a result, or a group by its surest one */
    double score;
    int64_t order;
    bool right;
} scored;

typedef struct space {
    scored *list; /* [founds + truths] */
    int64_t count;
    double *precision, *recall; /* likewise */
    double *surest;             /* [truths] of groups: the best score; negative: none */
    bool *taken;                /* [truths] */
} space;

/* Of the true boxes first .. last - 1 the one that a result lies over most: of groups (part of the result),
 * or of the others (IoU). -1: none reaches `iou`. */
static int64_t most_covered(const ap_lists *l, const kolo_ap_found *f, int64_t first, int64_t last,
                            bool groups, double iou)
{
    double most = -1;
    int64_t best = -1;
    for (int64_t t = first; t < last; t++) {
        const kolo_ap_truth *x = &l->truth[l->of_truth[t]];
        const double o = x->crowd == groups ? ap_overlap(f->box, x->box, groups) : -1;
        if (o > most) most = o, best = t;
    }
    return most >= iou ? best : -1;
}

/* The results of one image, surest first. */
static void match_image(const ap_lists *l, int64_t first, int64_t last, int64_t begin, int64_t end,
                        double iou, space *s)
{
    for (int64_t i = begin; i < end; i++) {
        const kolo_ap_found *f = &l->found[l->of_found[i]];
        const int64_t one = most_covered(l, f, first, last, false, iou),
                      group = most_covered(l, f, first, last, true, iou);
        const bool ignored = one >= 0 && l->truth[l->of_truth[one]].ignore,
                   right = one >= 0 && !ignored && !s->taken[one];
        if (right) s->taken[one] = true;
        if (ignored) continue;
        if (!right && group >= 0) s->surest[group] = fmax(s->surest[group], f->score);
        else s->list[s->count++] = (scored){f->score, i, right};
    }
    for (int64_t t = first; t < last; t++)
        if (s->surest[t] >= 0) s->list[s->count++] = (scored){s->surest[t], end, true};
}

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->order > y->order) - (x->order < y->order);
}

static double class_ap(const ap_lists *l, int cls, double iou, space *s)
{
    int64_t wanted = 0, right = 0, t = l->first_truth[cls];
    const int64_t truths_end = l->first_truth[cls + 1], end = l->first_found[cls + 1];
    s->count = 0;
    for (int64_t i = t; i < truths_end; i++) wanted += !l->truth[l->of_truth[i]].ignore;
    if (!wanted) return -1;
    for (int64_t f = l->first_found[cls], next; f < end; f = next) {
        const int64_t image = l->found[l->of_found[f]].image;
        for (next = f; next < end && l->found[l->of_found[next]].image == image; next++) continue;
        while (t < truths_end && l->truth[l->of_truth[t]].image < image) t++;
        int64_t last = t;
        while (last < truths_end && l->truth[l->of_truth[last]].image == image) last++;
        match_image(l, t, last, f, next, iou, s);
    }
    if (s->count) qsort(s->list, (size_t)s->count, sizeof *s->list, by_score);
    for (int64_t i = 0; i < s->count; i++) {
        right += s->list[i].right;
        s->recall[i] = (double)right / (double)wanted;
        s->precision[i] = (double)right / (double)(i + 1);
    }
    return ap_area_below(s->precision, s->recall, s->count);
}

static int match_all(double *ap, double *mean, const lists *x, int classes, double iou)
{
    ap_lists l;
    const size_t most = (size_t)(x->founds + x->truths + 1);
    KOLO_TRY(ap_lists_make(&l, x->truth, x->truths, x->found, x->founds, classes));
    space s = {.list = kolo_alloc(most * sizeof *s.list),
               .precision = kolo_alloc(most * sizeof *s.precision),
               .recall = kolo_alloc(most * sizeof *s.recall),
               .surest = kolo_alloc(most * sizeof *s.surest),
               .taken = kolo_alloc(most * sizeof *s.taken)};
    int rc = s.list && s.precision && s.recall && s.surest && s.taken ? 0 : KOLO_ENOMEM, counted = 0;
    double sum = 0;
    for (int64_t t = 0; rc == 0 && t < x->truths; t++) s.surest[t] = -1;
    for (int c = 0; c < classes && rc == 0; c++) {
        ap[c] = class_ap(&l, c, iou, &s);
        if (ap[c] >= 0) sum += ap[c], counted++;
    }
    *mean = counted ? sum / counted : -1;
    free(s.list);
    free(s.precision);
    free(s.recall);
    free(s.surest);
    free(s.taken);
    ap_lists_free(&l);
    return rc;
}

int kolo_ap_openimages(double *ap, double *mean, const kolo_ap_truth *truth, int64_t truths,
                       const kolo_ap_found *found, int64_t founds, const kolo_ap_verified *verified,
                       int64_t n, const kolo_hierarchy *h, int classes, double iou)
{
    lists l = {0};
    int rc = expand(&l, truth, truths, found, founds, verified, n, h);
    if (rc == 0) rc = match_all(ap, mean, &l, classes, iou);
    free(l.truth);
    free(l.found);
    free(l.verified);
    return rc;
}
