/* What decides the bytes of a batch, as text: a server and its jobs compare theirs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/option.h"
#include "data/serve/wire.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"

typedef struct writer {
    char *text;
    size_t used;
} writer;

__attribute__((format(printf, 2, 3))) static void put(writer *w, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(w->text + w->used, SERVE_KEY - w->used, format, list);
    va_end(list);
    w->used += n > 0 ? (size_t)n : 0;
    if (w->used >= SERVE_KEY) w->used = SERVE_KEY - 1; /* full: serve_key refuses */
}

static const char *choice(const char *key, int value) { return kolo_option_find(key)->choices[value]; }

static void put_data(writer *w, const kolo_dataset *d)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    put(w, "data=%s, %lld samples, uuid %s, checksum %08x\n", info->name, (long long)info->count, info->uuid,
        kolo_dataset_checksum(d, 0, info->count));
}

/* Stretches of rows of the batch by the node that shows them: the same for any number of ranks on each. */
static void put_nodes(writer *w, const kolo_loader_config *c)
{
    put(w, "nodes=");
    for (int r = 0, n; c->node_of && r < c->ranks; r += n) {
        for (n = 1; r + n < c->ranks && c->node_of[r + n] == c->node_of[r]; n++) continue;
        put(w, "%d:%lld ", c->node_of[r], (long long)(c->batch / c->ranks * n));
    }
    put(w, "\n");
}

static void put_boxes(writer *w, const kolo_loader_config *c)
{
    const kolo_detect_config *d = &c->detect;
    put(w, "fit=%s, %d\n", d->centered ? "middle" : "corner", d->fill);
    put(w, "max_boxes=%lld\nplain_epoch=%lld\nmosaic=%.17g\nmosaic_mixup=%.17g\nhsv=%.17g\n",
        (long long)(c->words - 1) / 5, (long long)c->plain_epoch, d->mosaic, d->mixup, d->hsv);
    put(w, "crowd=%s\n", choice("crowd", d->crowd));
    put(w, "box_flip=%.17g\nmosaic_scale=%.17g..%.17g\ndegrees=%.17g\ntranslate=%.17g\nshear=%.17g\n",
        d->flip, d->scale_min, d->scale_max, d->degrees, d->translate, d->shear);
}

/* What rows of image labels are made of. */
static void put_image_labels(writer *w, const kolo_loader_config *c)
{
    const kolo_image_labels *l = c->image_labels;
    const size_t entries = (size_t)l->offset[l->samples];
    uint32_t crc = kolo_crc32c(kolo_crc32c(0, l->cls, entries * sizeof *l->cls), l->state, entries);
    if (c->pos_weight) crc = kolo_crc32c(crc, c->pos_weight, (size_t)c->classes * sizeof *c->pos_weight);
    put(w,
        "image_labels=%lld entries, checksum %08x (targets, tag_threshold, class_weight, "
        "pos_weight)\nunverified=%s\nlabel_smoothing=%.17g\n",
        (long long)entries, crc, l->rest_negative ? "negative" : "ignore", c->smoothing);
}

int serve_key(const kolo_loader_config *c, char *text)
{
    writer w = {.text = text};
    kolo_order_rule rule;
    KOLO_TRY(kolo_order_parse(c->shuffle, &rule));
    put_data(&w, c->dataset);
    put(&w, "channels=%d\nsize=%dx%d\nseed=%llu\nshuffle=%s\nbatch=%lld\ntail=%s\n", c->channels, c->height,
        c->width, (unsigned long long)c->seed, c->shuffle && *c->shuffle ? c->shuffle : "full",
        (long long)c->batch, choice("tail", c->tail));
    put(&w,
        "crop=%s\ncrop_pad=%d\ncrop_area_min=%.17g\ncrop_area_max=%.17g\nflip=%s\ninterpolation=%s\n"
        "repeat=%d\n",
        choice("crop", c->crop), c->crop_pad, c->area_min, c->area_max, c->flip ? "true" : "false",
        choice("interpolation", c->interpolation), c->repeat > 0 ? c->repeat : 1);
    put(&w, "mixup=%.17g\ncutmix=%.17g\nmix_probability=%.17g\ncutmix_share=%.17g\nmix=%s\n", c->mix.mixup,
        c->mix.cutmix, c->mix.probability, c->mix.cutmix_share, c->mix.by_pair ? "pair" : "batch");
    for (int i = 0; i < c->channels; i++)
        put(&w, "mean[%d]=%.9g\nstd[%d]=%.9g\n", i, (double)c->mean[i], i, (double)c->std[i]);
    put(&w, "augment=%s\n", c->augment ? c->augment : "");
    if (c->sides.low)
        put(&w, "multi_scale=%d-%d:%d:%d\n", c->sides.low, c->sides.high, c->sides.step, c->sides.every);
    if (c->class_weight)
        put(&w, "class_weight=%08x\n",
            kolo_crc32c(0, c->class_weight,
                        (size_t)kolo_dataset_get_info(c->dataset)->classes * sizeof(float)));
    if (c->image_labels) put_image_labels(&w, c);
    else if (c->words > 3) put_boxes(&w, c);
    if (rule.kind == KOLO_ORDER_LOCAL) put_nodes(&w, c);
    return w.used < SERVE_KEY - 1 ? 0
                                  : kolo_fail(KOLO_ECONFIG, "data_server=: the list in augment= is too long");
}

/* The line of `text` that begins as `line` does up to its '=', or NULL. */
static const char *find_line(const char *text, const char *line)
{
    const size_t key = strcspn(line, "=\n") + 1;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (!strncmp(text, line, key)) return text;
    return NULL;
}

static void key_append_difference(char *text, size_t size, const char *there, const char *here)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%.*s there, %.*s here", used ? "; " : "", (int)strcspn(there, "\n"),
             there, (int)strcspn(here, "\n"), here);
}

static bool same_line(const char *a, const char *b)
{
    const size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && !strncmp(a, b, n);
}

void serve_difference(const char *there, const char *here, char *text, size_t size)
{
    *text = 0;
    for (const char *l = there; *l; l += strcspn(l, "\n"), l += *l == '\n') {
        const char *other = find_line(here, l);
        if (!other) key_append_difference(text, size, l, "nothing");
        else if (!same_line(l, other)) key_append_difference(text, size, l, other);
    }
    for (const char *l = here; *l; l += strcspn(l, "\n"), l += *l == '\n')
        if (!find_line(there, l)) key_append_difference(text, size, "nothing", l);
}
