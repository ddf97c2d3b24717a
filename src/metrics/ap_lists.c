#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "metrics/ap_parts.h"
#include "ops/boxes.h"

double ap_overlap(const double *d, const double *g, bool crowd)
{
    double w = kolo_min(d[2] + d[0], g[2] + g[0]) - kolo_max(d[0], g[0]);
    double h = kolo_min(d[3] + d[1], g[3] + g[1]) - kolo_max(d[1], g[1]);
    if (w <= 0 || h <= 0) return 0;
    double inter = w * h, own = d[2] * d[3];
    return inter / (crowd ? own : own + g[2] * g[3] - inter);
}

static int order(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_truth(const void *a, const void *b, void *list)
{
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    const kolo_ap_truth *x = (const kolo_ap_truth *)list + i, *y = (const kolo_ap_truth *)list + j;
    if (x->cls != y->cls) return order(x->cls, y->cls);
    return x->image != y->image ? order(x->image, y->image) : order(i, j);
}

static int by_found(const void *a, const void *b, void *list)
{
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    const kolo_ap_found *x = (const kolo_ap_found *)list + i, *y = (const kolo_ap_found *)list + j;
    if (x->cls != y->cls) return order(x->cls, y->cls);
    if (x->image != y->image) return order(x->image, y->image);
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return order(i, j);
}

static bool is_box(const double *box)
{
    for (int k = 0; k < 4; k++)
        if (!isfinite(box[k])) return false;
    return box[2] >= 0 && box[3] >= 0;
}

static int ap_lists_check(const char *what, int64_t i, int32_t cls, int classes, const double *box,
                          double number)
{
    if (cls < 0 || cls >= classes)
        return kolo_fail(KOLO_EINPUT, "%s box %" PRId64 " has class %d of %d", what, i, cls, classes);
    if (is_box(box) && isfinite(number)) return 0;
    return kolo_fail(KOLO_EINPUT, "%s box %" PRId64 " (x %g, y %g, width %g, height %g; %g) is malformed",
                     what, i, box[0], box[1], box[2], box[3], number);
}

int ap_lists_make(ap_lists *l, const kolo_ap_truth *truth, int64_t truths, const kolo_ap_found *found,
                  int64_t founds, int classes)
{
    int rc = KOLO_ENOMEM;
    *l = (ap_lists){.truth = truth, .found = found};
    l->of_truth = kolo_alloc((size_t)(truths + 1) * sizeof(int64_t));
    l->of_found = kolo_alloc((size_t)(founds + 1) * sizeof(int64_t));
    l->first_truth = kolo_alloc((size_t)(classes + 2) * sizeof(int64_t));
    l->first_found = kolo_alloc((size_t)(classes + 2) * sizeof(int64_t));
    if (!l->of_truth || !l->of_found || !l->first_truth || !l->first_found) goto fail;
    for (int64_t i = 0; i < truths; i++) {
        KOLO_TRY_GOTO(rc, ap_lists_check("true", i, truth[i].cls, classes, truth[i].box, truth[i].area));
        l->of_truth[i] = i;
        l->first_truth[truth[i].cls + 1]++;
    }
    for (int64_t i = 0; i < founds; i++) {
        KOLO_TRY_GOTO(rc, ap_lists_check("found", i, found[i].cls, classes, found[i].box, found[i].score));
        l->of_found[i] = i;
        l->first_found[found[i].cls + 1]++;
    }
    for (int c = 0; c < classes; c++) {
        l->first_truth[c + 1] += l->first_truth[c];
        l->first_found[c + 1] += l->first_found[c];
    }
    qsort_r(l->of_truth, (size_t)truths, sizeof(int64_t), by_truth, (void *)(uintptr_t)truth);
    qsort_r(l->of_found, (size_t)founds, sizeof(int64_t), by_found, (void *)(uintptr_t)found);
    return 0;
fail:
    ap_lists_free(l);
    return rc;
}

void ap_lists_free(ap_lists *l)
{
    free(l->of_truth);
    free(l->of_found);
    free(l->first_truth);
    free(l->first_found);
    *l = (ap_lists){0};
}

/* A quotient is rounded once, as a decimal number is that is read: both give the same double. */
void kolo_ap_round(double box[4], double *score)
{
    for (int k = 0; k < 4; k++) box[k] = rint(box[k] * 100) / 100;
    if (score) *score = rint(*score * 1e6) / 1e6;
}

int kolo_ap_write(const char *path, const kolo_ap_found *found, int64_t founds, const int64_t *category)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f) return kolo_fail(KOLO_ENOMEM, "%s: no memory for %" PRId64 " results", path, founds);
    fputc('[', f);
    for (int64_t i = 0; i < founds; i++) {
        const kolo_ap_found *d = &found[i];
        fprintf(f,
                "%s\n{\"image_id\":%" PRId64 ",\"category_id\":%" PRId64
                ",\"bbox\":[%.2f,%.2f,%.2f,%.2f],\"score\":%.6f}",
                i ? "," : "", d->image, category[d->cls], d->box[0], d->box[1], d->box[2], d->box[3],
                d->score);
    }
    fputs("\n]\n", f);
    bool whole = fclose(f) == 0;
    int rc = whole ? kolo_file_write_atomic(path, text, bytes)
                   : kolo_fail(KOLO_ENOMEM, "%s: no memory for %" PRId64 " results", path, founds);
    free(text);
    return rc;
}
