/* class_weight=: what a class counts in the loss of a training, by its images or by a list. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"
#include "train/parts.h"

static bool is_none(const kolo_options *o) { return !*o->class_weight || !strcmp(o->class_weight, "none"); }
static bool is_balanced(const kolo_options *o) { return !strcmp(o->class_weight, "balanced"); }

/* Of one class a sample. What torch does with weights there is no factor on a row. */
int session_check_class_weight(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (is_none(o)) return 0;
    if (s->detector || o->loss != KOLO_loss_cross_entropy)
        return kolo_fail(KOLO_ECONFIG,
                         "class_weight=%s weighs the classes of loss=cross_entropy, or image labels "
                         "(targets=tags, boxes); leave it out",
                         o->class_weight);
    if (o->mixup > 0 || o->cutmix > 0 || o->label_smoothing > 0)
        return kolo_fail(KOLO_ECONFIG,
                         "class_weight=%s wants the one class of an image: give mixup=0 cutmix=0 "
                         "label_smoothing=0",
                         o->class_weight);
    if ((s->parts & KOLO_SESSION_TRAIN) && !s->train_set)
        return kolo_fail(KOLO_ECONFIG,
                         "class_weight=%s weighs the classes of a data set; give data=DIR or "
                         "class_weight=none",
                         o->class_weight);
    return 0;
}

/* Every class weighs alike over an epoch: samples / (classes that there are x samples of the class). */
static int balance_classes(const kolo_dataset *set, int classes, float *weight)
{
    uint64_t *count = kolo_alloc(sizeof *count * (size_t)classes + 1), all = 0, there = 0;
    if (!count) return KOLO_ENOMEM;
    kolo_dataset_count_classes(set, count);
    for (int c = 0; c < classes; c++) all += count[c], there += count[c] > 0;
    for (int c = 0; c < classes; c++)
        weight[c] = count[c] ? (float)((double)all / ((double)there * (double)count[c])) : 0;
    free(count);
    return 0;
}

/* A number for each class, between commas. */
static int read_list(const char *list, int classes, float *weight)
{
    double most = 0;
    int n = 0;
    for (const char *p = list;; p++) {
        char *end;
        const double value = strtod(p, &end);
        if (end == p || (*end && *end != ',') || !(value >= 0 && value <= 1e6))
            return kolo_fail(KOLO_ECONFIG,
                             "class_weight: `%.*s` is no number from 0 to 1e6; give none, balanced, or a "
                             "number for each class: 1,0.5,2",
                             (int)strcspn(p, ","), p);
        if (n < classes) weight[n] = (float)value;
        if (value > most) most = value;
        n++;
        if (!*end) break;
        p = end;
    }
    if (n != classes)
        return kolo_fail(KOLO_ECONFIG,
                         "class_weight= has %d numbers, the data set %d classes; give one for each, in the "
                         "order of `kolo-shards info`",
                         n, classes);
    return most > 0 ? 0 : kolo_fail(KOLO_ECONFIG, "class_weight=%s: no class counts", list);
}

static int weigh_one_class(kolo_session *s)
{
    const int classes = kolo_dataset_get_info(s->train_set)->classes;
    s->class_weight = kolo_alloc(sizeof *s->class_weight * (size_t)classes + 1);
    if (!s->class_weight) return KOLO_ENOMEM;
    if (is_balanced(s->options)) return balance_classes(s->train_set, classes, s->class_weight);
    return read_list(s->options->class_weight, classes, s->class_weight);
}

int session_weigh_classes(kolo_session *s)
{
    const kolo_options *o = s->options;
    const kolo_image_labels *l = s->image_labels[0];
    if (!is_none(o) && !kolo_session_tags(s) && s->train_set) return weigh_one_class(s);
    if (!l || (is_none(o) && o->pos_weight == 1)) return 0;
    s->pos_weight = kolo_alloc(sizeof *s->pos_weight * (size_t)l->classes);
    if (!s->pos_weight) return KOLO_ENOMEM;
    kolo_image_labels_weigh(l, is_balanced(o), o->pos_weight, s->pos_weight);
    if (is_none(o) || is_balanced(o)) return 0;
    KOLO_TRY(read_list(o->class_weight, l->classes, s->pos_weight));
    for (int c = 0; c < l->classes; c++) s->pos_weight[c] *= (float)o->pos_weight;
    return 0;
}
