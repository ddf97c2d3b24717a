#include "data/detect_row.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "data/augment/detect.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

struct kolo_detect_row {
    kolo_detector *detector;
    kolo_image image[KOLO_DETECT_IMAGES];
    kolo_boxes boxes[KOLO_DETECT_IMAGES], out;
};

int kolo_detect_row_create(kolo_detect_row **row)
{
    kolo_detect_row *r = *row = kolo_alloc(sizeof *r);
    if (!r) return KOLO_ENOMEM;
    const int rc = kolo_detector_create(&r->detector);
    if (rc < 0) kolo_detect_row_destroy(row);
    return rc;
}

void kolo_detect_row_destroy(kolo_detect_row **row)
{
    kolo_detect_row *r = *row;
    if (!r) return;
    kolo_detector_destroy(&r->detector);
    for (int k = 0; k < KOLO_DETECT_IMAGES; k++) {
        kolo_image_free(&r->image[k]);
        kolo_boxes_free(&r->boxes[k]);
    }
    kolo_boxes_free(&r->out);
    free(r);
    *row = NULL;
}

/* What a crop has left nothing of is not learnt from; crowds and groups are as `crowd` (KOLO_crowd_*)
 * says. */
static int read_boxes(const kolo_targets *t, int64_t sample, int crowd, kolo_boxes *boxes)
{
    boxes->count = 0;
    for (int64_t i = t->box_offset[sample]; i < t->box_offset[sample + 1]; i++) {
        const bool many =
            crowd != KOLO_crowd_object && t->box_flags[i] & (KOLO_BOX_CROWD | KOLO_BOX_GROUP_OF);
        if (t->box_flags[i] & KOLO_BOX_OUTSIDE || (many && crowd == KOLO_crowd_background)) continue;
        KOLO_TRY(kolo_boxes_add(boxes, t->box[i], many ? -1 : t->box_class[i]));
    }
    return 0;
}

/* Objects, then regions, as far as there is room. */
static void write_label(const kolo_boxes *boxes, int64_t words, int32_t *label)
{
    const int64_t most = (words - 1) / 5;
    memset(label, 0, sizeof *label * (size_t)words);
    for (int regions = 0; regions < 2; regions++)
        for (int64_t i = 0; i < boxes->count && label[0] < most; i++) {
            if ((boxes->cls[i] < 0) != regions) continue;
            const float *b = boxes->box[i];
            const float centre[4] = {(b[0] + b[2]) / 2, (b[1] + b[3]) / 2, b[2] - b[0], b[3] - b[1]};
            int32_t *to = label + 1 + 5 * (int64_t)label[0]++;
            to[0] = boxes->cls[i];
            memcpy(to + 1, centre, sizeof centre);
        }
}

int kolo_detect_row_make(kolo_detect_row *r, kolo_worker *worker, const kolo_recipe *recipe, int64_t pass,
                         int64_t sample, uint8_t *to, int32_t *label)
{
    const kolo_loader_config *c = &recipe->config;
    const kolo_targets *t = kolo_dataset_targets(c->dataset);
    const int64_t count = kolo_dataset_get_info(c->dataset)->count, epoch = pass & UINT32_MAX;
    kolo_detect_config config = c->detect;
    kolo_detect_draw draw;
    if (!c->train || epoch >= c->plain_epoch) config.mosaic = config.mixup = 0;
    if (!c->train) config.hsv = config.flip = 0;
    kolo_detect_choose(&draw, &config, c->seed, pass, sample, count, t->box_offset);
    for (int k = 0; k < KOLO_DETECT_IMAGES; k++) {
        if (draw.sample[k] < 0) continue;
        KOLO_TRY(kolo_worker_fetch(worker, draw.sample[k], &r->image[k]));
        KOLO_TRY(read_boxes(t, draw.sample[k], config.crowd, &r->boxes[k]));
    }
    KOLO_TRY(kolo_detect_make(r->detector, &config, &draw, r->image, r->boxes, to, &r->out));
    write_label(&r->out, c->words, label);
    return 0;
}
