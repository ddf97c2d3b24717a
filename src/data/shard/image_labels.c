#include "data/shard/image_labels.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

/* What the entries of one sample say, class by class. */
typedef struct tally {
    uint8_t *state; /* [classes] enum kolo_image_label, or NOTHING */
    int32_t *seen;  /* [classes] classes that have an entry */
    int count;
} tally;
enum { NOTHING = 255 };

static void tally_add(tally *t, int32_t cls, enum kolo_image_label state)
{
    uint8_t *is = &t->state[cls];
    if (*is == NOTHING) t->seen[t->count++] = cls;
    if (*is == NOTHING || state == KOLO_LABEL_POSITIVE ||
        (*is == KOLO_LABEL_UNKNOWN && state == KOLO_LABEL_NEGATIVE))
        *is = (uint8_t)state;
}

static void add_tags(tally *t, const kolo_targets *from, int64_t sample, double threshold)
{
    for (int64_t i = from->tag_offset[sample]; i < from->tag_offset[sample + 1]; i++)
        tally_add(t, from->tag[i],
                  (double)from->tag_value[i] >= threshold ? KOLO_LABEL_POSITIVE : KOLO_LABEL_NEGATIVE);
}

static void add_boxes(tally *t, const kolo_targets *from, int64_t sample)
{
    for (int64_t i = from->box_offset[sample]; i < from->box_offset[sample + 1]; i++) {
        if (from->box_flags[i] & KOLO_BOX_OUTSIDE) continue;
        tally_add(t, from->box_class[i],
                  from->box_flags[i] & KOLO_BOX_DIFFICULT ? KOLO_LABEL_UNKNOWN : KOLO_LABEL_POSITIVE);
    }
}

static int by_class(const void *a, const void *b)
{
    return (*(const int32_t *)a > *(const int32_t *)b) - (*(const int32_t *)a < *(const int32_t *)b);
}

/* The tally becomes the sample's entries, and is empty again. */
static void store(kolo_image_labels *l, int64_t sample, tally *t)
{
    int64_t at = l->offset[sample];
    qsort(t->seen, (size_t)t->count, sizeof *t->seen, by_class);
    for (int i = 0; i < t->count; i++, at++) {
        const int32_t cls = t->seen[i];
        l->cls[at] = cls;
        l->state[at] = t->state[cls];
        l->positives[cls] += t->state[cls] == KOLO_LABEL_POSITIVE;
        l->negatives[cls] += t->state[cls] == KOLO_LABEL_NEGATIVE;
        t->state[cls] = NOTHING;
    }
    l->offset[sample + 1] = at;
    t->count = 0;
}

/* Negatives among the classes that samples do not name. */
static int settle_rest(kolo_image_labels *l, enum kolo_unnamed unnamed)
{
    bool verified = false;
    for (int c = 0; c < l->classes; c++) verified |= l->negatives[c] > 0;
    l->rest_negative = unnamed == KOLO_UNNAMED_NEGATIVE || (unnamed == KOLO_UNNAMED_AUTO && !verified);
    if (!l->rest_negative) return 0;
    int64_t *named = kolo_alloc(sizeof *named * (size_t)l->classes);
    if (!named) return KOLO_ENOMEM;
    for (int64_t i = 0; i < l->offset[l->samples]; i++) named[l->cls[i]]++;
    for (int c = 0; c < l->classes; c++) l->negatives[c] += l->samples - named[c];
    free(named);
    return 0;
}

static int image_labels_fill(kolo_image_labels *l, const kolo_targets *from,
                             const kolo_image_labels_config *c)
{
    tally t = {.state = kolo_alloc((size_t)l->classes),
               .seen = kolo_alloc(sizeof *t.seen * (size_t)l->classes)};
    const int rc = t.state && t.seen ? 0 : KOLO_ENOMEM;
    if (rc == 0) memset(t.state, NOTHING, (size_t)l->classes);
    for (int64_t i = 0; i < l->samples && rc == 0; i++) {
        if (c->boxes) add_boxes(&t, from, i);
        else add_tags(&t, from, i, c->tag_threshold);
        store(l, i, &t);
    }
    free(t.state);
    free(t.seen);
    return rc < 0 ? rc : settle_rest(l, c->unnamed);
}

int kolo_image_labels_read(kolo_image_labels **labels, const kolo_dataset *dataset,
                           const kolo_image_labels_config *c)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(dataset);
    const kolo_targets *from = kolo_dataset_targets(dataset);
    *labels = NULL;
    if (!from || !(c->boxes ? from->box_offset : from->tag_offset))
        return kolo_fail(KOLO_EINPUT, "data set %s, split %s, has no %s; it is packed for %s", info->name,
                         info->split, c->boxes ? "boxes" : "tags", info->task);
    const int64_t most = c->boxes ? from->boxes : from->tags;
    kolo_image_labels *l = *labels = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    l->samples = info->count;
    l->classes = info->classes;
    l->offset = kolo_alloc(sizeof *l->offset * (size_t)(l->samples + 1));
    l->cls = kolo_alloc(sizeof *l->cls * (size_t)(most + 1));
    l->state = kolo_alloc((size_t)(most + 1));
    l->positives = kolo_alloc(sizeof *l->positives * (size_t)l->classes);
    l->negatives = kolo_alloc(sizeof *l->negatives * (size_t)l->classes);
    int rc = l->offset && l->cls && l->state && l->positives && l->negatives ? 0 : KOLO_ENOMEM;
    if (rc == 0) rc = image_labels_fill(l, from, c);
    if (rc < 0) kolo_image_labels_free(labels);
    return rc;
}

void kolo_image_labels_free(kolo_image_labels **labels)
{
    kolo_image_labels *l = *labels;
    if (!l) return;
    free(l->offset);
    free(l->cls);
    free(l->state);
    free(l->positives);
    free(l->negatives);
    free(l);
    *labels = NULL;
}

void kolo_image_labels_weigh(const kolo_image_labels *l, bool balanced, double factor, float *weight)
{
    for (int c = 0; c < l->classes; c++) {
        const bool both = l->positives[c] > 0 && l->negatives[c] > 0;
        weight[c] =
            (float)(factor * (balanced && both ? (double)l->negatives[c] / (double)l->positives[c] : 1));
    }
}

void kolo_image_labels_row(const kolo_image_labels *l, int64_t sample, const float *pos_weight,
                           double smoothing, float *row)
{
    const int64_t first = l->offset[sample], last = l->offset[sample + 1];
    int64_t known = l->rest_negative ? l->classes - (last - first) : 0;
    for (int64_t i = first; i < last; i++) known += l->state[i] != KOLO_LABEL_UNKNOWN;
    const double share = known ? 1 / (double)known : 0, no = smoothing / l->classes, yes = 1 - smoothing + no;
    float *positive = row, *negative = row + l->classes;
    for (int c = 0; c < l->classes; c++) {
        positive[c] = l->rest_negative ? (float)(no * share * (pos_weight ? (double)pos_weight[c] : 1)) : 0;
        negative[c] = l->rest_negative ? (float)((1 - no) * share) : 0;
    }
    for (int64_t i = first; i < last; i++) {
        const int32_t c = l->cls[i];
        const double y = l->state[i] == KOLO_LABEL_POSITIVE ? yes : no,
                     part = l->state[i] == KOLO_LABEL_UNKNOWN ? 0 : share;
        positive[c] = (float)(y * part * (pos_weight ? (double)pos_weight[c] : 1));
        negative[c] = (float)((1 - y) * part);
    }
}
