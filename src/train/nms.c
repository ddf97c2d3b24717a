#include "train/nms.h"

#include <stdlib.h>

#include "ops/boxes.h"

static int by_score(const void *a, const void *b)
{
    const kolo_found *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

static bool is_covered(const kolo_found *f, const kolo_found *kept, int64_t count, double threshold, bool by_class)
{
    for (int64_t i = 0; i < count; i++)
        if ((!by_class || kept[i].cls == f->cls) && kolo_box_iou(kept[i].box, f->box) > threshold) return true;
    return false;
}

int64_t kolo_nms(kolo_found *found, int64_t count, double threshold, bool by_class)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) found[i].place = (int32_t)i;
    if (count) qsort(found, (size_t)count, sizeof *found, by_score);
    for (int64_t i = 0; i < count; i++)
        if (!is_covered(&found[i], found, kept, threshold, by_class)) found[kept++] = found[i];
    return kept;
}
