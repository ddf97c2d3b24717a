#include "metrics/detect_truth.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/shard/dataset.h"
#include "data/shard/file.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

void kolo_detect_truth_free(kolo_detect_truth **truth)
{
    kolo_detect_truth *t = *truth;
    if (!t) return;
    free(t->truth);
    free(t->verified);
    kolo_hierarchy_free(&t->hierarchy);
    free(t->image);
    free(t->category);
    free(t);
    *truth = NULL;
}

void kolo_detect_to_source(const kolo_dataset *dataset, int64_t sample, const double *stored, double *source)
{
    const kolo_targets *t = kolo_dataset_targets(dataset);
    const float *m = t->transform[sample];
    const double x0 = (stored[0] - (double)m[2]) / (double)m[0],
                 y0 = (stored[1] - (double)m[3]) / (double)m[1];
    source[0] = x0;
    source[1] = y0;
    source[2] = (stored[2] - (double)m[2]) / (double)m[0] - x0;
    source[3] = (stored[3] - (double)m[3]) / (double)m[1] - y0;
}

/* Rows of a table of 8-byte numbers, *at of which are there already and `most` in the split. */
static int read_rows(const char *path, const char *name, enum kolo_table_type type, int columns, void *to,
                     int64_t *at, int64_t most)
{
    const size_t row = 8 * (size_t)columns;
    kolo_shard_table table = {.name = name, .type = type, .rank = columns > 1 ? 2 : 1, .dim = {-1, columns}};
    void *data = NULL;
    const int found = kolo_shard_read_table(path, &table, &data);
    KOLO_TRY(found);
    if (!found) return kolo_fail(KOLO_EINPUT, "%s: /%s is missing; pack this split again", path, name);
    const bool fits = table.dim[0] <= most - *at;
    if (fits) memcpy((char *)to + row * (size_t)*at, data, row * (size_t)table.dim[0]);
    *at += table.dim[0];
    free(data);
    return fits ? 0 : kolo_fail(KOLO_EINPUT, "%s: /%s has more rows than it was packed with", path, name);
}

/* What stands in files only: the numbers of images, and boxes as COCO has them, to the last digit.
 * box: [boxes], or NULL */
static int read_shards(const kolo_dataset *d, int64_t *image, double (*box)[4])
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    int64_t images = 0, boxes = 0;
    for (int s = 0; s < info->shards; s++) {
        const char *path = kolo_dataset_shard_path(d, s);
        KOLO_TRY(read_rows(path, "id", KOLO_TABLE_I64, 1, image, &images, info->count));
        if (box)
            KOLO_TRY(read_rows(path, "box_source", KOLO_TABLE_F64, 4, box, &boxes,
                               kolo_dataset_targets(d)->boxes));
    }
    return 0;
}

static void read_truth(kolo_detect_truth *to, const kolo_dataset *d, const double (*given)[4])
{
    const kolo_targets *t = kolo_dataset_targets(d);
    for (int64_t n = 0; n < kolo_dataset_get_info(d)->count; n++)
        for (int64_t i = t->box_offset[n]; i < t->box_offset[n + 1]; i++) {
            if (t->box_flags[i] & KOLO_BOX_OUTSIDE) continue;
            kolo_ap_truth *x = &to->truth[to->truths++];
            *x = (kolo_ap_truth){.image = to->image[n],
                                 .cls = t->box_class[i],
                                 .crowd = t->box_flags[i] & (KOLO_BOX_CROWD | KOLO_BOX_GROUP_OF),
                                 .ignore = t->box_flags[i] & KOLO_BOX_DIFFICULT,
                                 .area = (double)t->box_area[i]};
            const double stored[4] = {(double)t->box[i][0], (double)t->box[i][1], (double)t->box[i][2],
                                      (double)t->box[i][3]};
            if (given) memcpy(x->box, given[i], sizeof x->box);
            else kolo_detect_to_source(d, n, stored, x->box);
        }
}

/* Tags of Open Images' splits are what people have verified. */
static int read_verified(kolo_detect_truth *to, const kolo_dataset *d)
{
    const kolo_targets *t = kolo_dataset_targets(d);
    if (!t->tag_offset) return 0;
    to->verified = kolo_alloc((size_t)(t->tags + 1) * sizeof *to->verified);
    if (!to->verified) return KOLO_ENOMEM;
    for (int64_t n = 0; n < kolo_dataset_get_info(d)->count; n++)
        for (int64_t i = t->tag_offset[n]; i < t->tag_offset[n + 1]; i++)
            to->verified[to->labels++] = (kolo_ap_verified){
                .image = to->image[n], .cls = t->tag[i], .positive = t->tag_value[i] >= 0.5f};
    return 0;
}

int kolo_detect_truth_read(kolo_detect_truth **truth, const kolo_dataset *d)
{
    const kolo_targets *t = kolo_dataset_targets(d);
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    *truth = NULL;
    if (!t || !t->box_offset)
        return kolo_fail(KOLO_EINPUT, "data set %s has no boxes to compare with", info->name);
    const bool coco = !strcmp(t->box_form, "xywh");
    double(*given)[4] = coco ? kolo_alloc((size_t)(t->boxes + 1) * sizeof *given) : NULL;
    kolo_detect_truth *to = *truth = kolo_alloc(sizeof *to);
    int rc = KOLO_ENOMEM;
    if (!to) goto fail;
    to->truth = kolo_alloc((size_t)(t->boxes + 1) * sizeof *to->truth);
    to->image = kolo_alloc((size_t)(info->count + 1) * sizeof *to->image);
    to->category = kolo_alloc((size_t)(info->classes + 1) * sizeof *to->category);
    if (!to->truth || !to->image || !to->category || (coco && !given)) goto fail;
    KOLO_TRY_GOTO(rc, read_shards(d, to->image, given));
    KOLO_TRY_GOTO(rc, kolo_shard_read_class_ids(kolo_dataset_shard_path(d, 0), info->classes, to->category));
    read_truth(to, d, (const double(*)[4])given);
    KOLO_TRY_GOTO(rc, read_verified(to, d));
    free(given);
    return 0;
fail:
    free(given);
    kolo_detect_truth_free(truth);
    return rc;
}
