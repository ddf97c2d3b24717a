#include "metrics/nms.h"

#include <stdlib.h>

#include "ops/boxes.h"

static int by_score(const void *a, const void *b)
{
    const kolo_found *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static int by_class_and_score(const void *a, const void *b)
{
    const kolo_found *x = a, *y = b;
    return x->cls != y->cls ? (x->cls > y->cls) - (x->cls < y->cls) : by_score(a, b);
}

static bool is_covered(const kolo_found *f, const kolo_found *kept, int64_t count, double threshold)
{
    for (int64_t i = 0; i < count; i++)
        if (kolo_box_iou(kept[i].box, f->box) > threshold) return true;
    return false;
}

int64_t kolo_nms(kolo_found *found, int64_t count, double threshold, bool by_class, int64_t most)
{
    int64_t kept = 0, first = 0; /* first: of what is kept of this class */
    for (int64_t i = 0; i < count; i++) found[i].place = (int32_t)i;
    if (count) qsort(found, (size_t)count, sizeof *found, by_class ? by_class_and_score : by_score);
    for (int64_t i = 0; i < count; i++) {
        const kolo_found *f = &found[i];
        if (by_class && kept && found[kept - 1].cls != f->cls) first = kept;
        if (kept - first < most && !is_covered(f, found + first, kept - first, threshold)) found[kept++] = *f;
    }
    if (by_class && kept) qsort(found, (size_t)kept, sizeof *found, by_score);
    return kept;
}
