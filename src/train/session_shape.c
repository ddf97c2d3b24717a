/* Class count, channels, image size and pixel statistics: from the data, unless the recipe states them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/shard/dataset.h"
#include "kolo/error.h"
#include "train/parts.h"

static int parse_channels(const char *key, const char *text, int64_t channels, float *values)
{
    int n = 0;
    for (const char *p = text; *p && n < 4; n++) {
        char *end;
        values[n] = strtof(p, &end);
        if (end == p || (*end && *end != ','))
            return kolo_fail(KOLO_ECONFIG, "%s=%s is not a list of numbers such as 0.485,0.456,0.406", key,
                             text);
        p = *end ? end + 1 : end;
    }
    if (n != channels)
        return kolo_fail(KOLO_ECONFIG,
                         "%s=%s has %d numbers, the images have %ld channels: give as many, or %s= for the "
                         "data set's own",
                         key, text, n, (long)channels, key);
    return 0;
}

static int set_channels(kolo_options *o, const char *key, const float *values, int64_t channels)
{
    char text[96] = "";
    for (int64_t c = 0; c < channels; c++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%.9g", c ? "," : "", (double)values[c]);
    return kolo_option_set(o, key, text, "the data");
}

/* A class for every sample, or boxes, as the network wants. */
static int check_task(const kolo_session *s, const kolo_dataset *set, const char *folder)
{
    const kolo_dataset_info *info = set ? kolo_dataset_get_info(set) : NULL;
    const bool boxes = s->detector;
    if (!info || kolo_session_tags(s) || strstr(info->task, boxes ? "detection" : "classification")) return 0;
    if (!boxes && s->options->loss != KOLO_loss_bce)
        return kolo_fail(KOLO_EINPUT,
                         "%s: %s is packed for %s and has no class for each sample, which loss=cross_entropy "
                         "needs; loss=bce learns %s of a sample",
                         folder, info->name, info->task,
                         strstr(info->task, "multilabel") ? "the tags" : "the classes of the boxes");
    return kolo_fail(KOLO_EINPUT,
                     "%s: %s is packed for %s and has no %s for each sample, which model=%s needs; pack a "
                     "source that has them",
                     folder, info->name, info->task, boxes ? "boxes" : "class", s->options->model);
}

/* What options say of the images, against what the data has. */
static int check_data(const kolo_session *s, const kolo_dataset_info *info)
{
    const kolo_options *o = s->options;
    if (o->classes && o->classes < info->classes && !*o->pairs) /* pairs may be of anybody */
        return kolo_fail(KOLO_ECONFIG, "classes=%ld, but the data set %s has %d classes", (long)o->classes,
                         info->name, info->classes);
    if (o->channels && o->channels < info->channels)
        return kolo_fail(KOLO_ECONFIG, "channels=%ld, but the images of %s have %d channels",
                         (long)o->channels, info->name, info->channels);
    if (s->train_set && s->val_set) {
        const kolo_dataset_info *v = kolo_dataset_get_info(s->val_set);
        if (v->classes != info->classes || v->channels > info->channels)
            return kolo_fail(
                KOLO_EINPUT,
                "training data %s has %d classes and %d channels, validation data %s has %d and %d: "
                "pack them from one source with --stats-from",
                o->data, info->classes, info->channels, o->val, v->classes, v->channels);
    }
    KOLO_TRY(session_check_classes(s));
    if (!o->size && !info->height && !o->val_size && !s->detector)
        return kolo_fail(KOLO_ECONFIG,
                         "the images of %s have various sizes: state size= and crop=", info->name);
    return 0;
}

/* Mean and deviation of every channel: the options', else the data's, else of any images. */
static int resolve_pixels(kolo_session *s, const kolo_model *model, const kolo_dataset_info *info)
{
    kolo_options *o = s->options;
    for (int c = 0; c < 4; c++)
        s->mean[c] = info ? info->mean[c] : 0.5f, s->std[c] = info && info->std[c] > 0 ? info->std[c] : 0.25f;
    kolo_model_pixels(model, s->mean, s->std);
    if (*o->mean) KOLO_TRY(parse_channels("mean", o->mean, o->channels, s->mean));
    else KOLO_TRY(set_channels(o, "mean", s->mean, o->channels));
    if (*o->std) KOLO_TRY(parse_channels("std", o->std, o->channels, s->std));
    else KOLO_TRY(set_channels(o, "std", s->std, o->channels));
    for (int64_t c = 0; c < o->channels; c++)
        if (!(s->std[c] > 1e-6f) || !isfinite(s->std[c]) || !isfinite(s->mean[c]))
            return kolo_fail(KOLO_ECONFIG,
                             "mean=%s std=%s: every channel needs a finite mean and a deviation above 0",
                             o->mean, o->std);
    return 0;
}

int session_resolve_shape(kolo_session *s, const kolo_model *model)
{
    kolo_options *o = s->options;
    const kolo_dataset *set = s->train_set ? s->train_set : s->val_set;
    const kolo_dataset_info *info = set ? kolo_dataset_get_info(set) : NULL;
    KOLO_TRY(session_read_targets(s));
    KOLO_TRY(check_task(s, s->train_set, o->data));
    KOLO_TRY(check_task(s, s->val_set, o->val));
    if (info) {
        snprintf(s->data_uuid, sizeof s->data_uuid, "%s", info->uuid);
        KOLO_TRY(check_data(s, info));
    }
    if (!o->classes) o->classes = info ? info->classes : model->classes;
    if (!o->channels) o->channels = info ? info->channels : model->channels;
    if (o->channels != 3 && (o->channels != 1 || s->detector))
        return kolo_fail(KOLO_ECONFIG, "%s of %ld channels: images are read as 1 channel (gray) or 3 (RGB)%s",
                         o->model, (long)o->channels, s->detector ? ", for detectors 3" : "");
    const bool stored = info && info->height && !s->detector; /* a detector fits any image in */
    s->height = o->size ? o->size : stored ? info->height : model->height;
    s->width = o->size ? o->size : stored ? info->width : model->width;
    if (!o->size && s->height == s->width) o->size = s->height;
    return resolve_pixels(s, model, info);
}
