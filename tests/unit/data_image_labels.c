/* Image labels of a split: what tags and boxes say, what the loss makes of a sample, and the rows that a
 * loader gives, mixed and not. */
#include "data_fixture.h"
#include "tap.h"

#include <math.h>

#include "base/option.h"
#include "data/loader.h"
#include "data/shard/targets.h"

enum { CLASSES = 10, COUNT = 16 };

static kolo_shard_table table(const char *name, enum kolo_table_type type, int64_t rows, int columns)
{
    kolo_shard_table t = {name, type, columns > 1 ? 2 : 1, {rows, columns}, NULL, NULL};
    t.data = kolo_alloc(kolo_shard_table_bytes(&t) + 8);
    return t;
}
#define DATA(t, type) ((type *)(uintptr_t)(t).data)

/* Sample i: class i % 10 twice, .25 and then 1; class (i + 1) % 10 at .5; class (i + 2) % 10 at 0.
 * Sample 3 has nothing. */
static int tags_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    static const int step[4] = {0, 2, 1, 0};
    static const float value[4] = {.25f, 0, .5f, 1};
    t[0] = table("tag_offset", KOLO_TABLE_U64, n + 1, 1), t[1] = table("tag", KOLO_TABLE_I32, 4 * n, 1);
    t[2] = table("tag_value", KOLO_TABLE_F32, 4 * n, 1);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 4 && first + i != 3; k++, at++) {
            DATA(t[1], int32_t)[at] = (int32_t)((first + i + step[k]) % CLASSES);
            DATA(t[2], float)[at] = value[k];
        }
        DATA(t[0], uint64_t)[i + 1] = (uint64_t)at;
    }
    t[1].dim[0] = t[2].dim[0] = at;
    return 3;
}

/* As people give tags: class i % 10 alone, at 1. */
static int positives_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    t[0] = table("tag_offset", KOLO_TABLE_U64, n + 1, 1), t[1] = table("tag", KOLO_TABLE_I32, n, 1);
    t[2] = table("tag_value", KOLO_TABLE_F32, n, 1);
    for (int64_t i = 0; i < n; i++) {
        DATA(t[0], uint64_t)[i + 1] = (uint64_t)(i + 1);
        DATA(t[1], int32_t)[i] = (int32_t)((first + i) % CLASSES);
        DATA(t[2], float)[i] = 1;
    }
    return 3;
}

/* Sample i: class 1 difficult; in even ones class 1 again as a crowd; class 2 difficult; class 3; class 4
 * outside of the image. */
static int boxes_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    static const uint8_t flags[5] = {KOLO_BOX_DIFFICULT, KOLO_BOX_DIFFICULT, KOLO_BOX_GROUP_OF,
                                     KOLO_BOX_OUTSIDE, KOLO_BOX_CROWD};
    static const int32_t cls[5] = {1, 2, 3, 4, 1};
    t[0] = table("box_offset", KOLO_TABLE_U64, n + 1, 1), t[1] = table("box", KOLO_TABLE_F32, 5 * n, 4);
    t[2] = table("box_class", KOLO_TABLE_I32, 5 * n, 1), t[3] = table("box_flags", KOLO_TABLE_U8, 5 * n, 1);
    t[4] = table("box_area", KOLO_TABLE_F32, 5 * n, 1), t[5] = table("box_id", KOLO_TABLE_I64, 5 * n, 1);
    t[6] = table("transform", KOLO_TABLE_F32, n, 4), t[7] = table("box_source", KOLO_TABLE_F64, 5 * n, 4);
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < 5 - (int)((first + i) % 2); k++, at++) {
            DATA(t[2], int32_t)[at] = cls[k];
            DATA(t[3], uint8_t)[at] = flags[k];
            DATA(t[1], float)[4 * at + 2] = DATA(t[1], float)[4 * at + 3] = 4;
        }
        DATA(t[0], uint64_t)[i + 1] = (uint64_t)at;
    }
    for (int k = 1; k < 8; k++)
        if (k != 6) t[k].dim[0] = at;
    return 8;
}

static fixture make(const char *task, int (*tables)(int64_t, int64_t, kolo_shard_table *))
{
    fixture f = {
        .count = COUNT, .shards = 2, .height = 8, .width = 8, .channels = 3, .task = task, .tables = tables};
    f.box_form = strcmp(task, "detection") == 0 ? "xywh" : NULL;
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    return f;
}

static int near(const float *row, int c, double yes, double no)
{
    return fabs((double)row[c] - yes) < 1e-7 && fabs((double)row[CLASSES + c] - no) < 1e-7;
}

static kolo_image_labels *read_labels(const kolo_dataset *d, bool boxes, double threshold,
                                      enum kolo_unnamed unnamed)
{
    kolo_image_labels *l = NULL;
    const kolo_image_labels_config c = {boxes, threshold, unnamed};
    if (kolo_image_labels_read(&l, d, &c) < 0) diag("%s", kolo_error_text());
    return l;
}

static void test_verified(void)
{
    fixture f = make("multilabel", tags_of);
    kolo_dataset *d;
    float row[2 * CLASSES], weight[CLASSES];
    is_int(kolo_dataset_open(&d, f.folder), 0, "16 samples with tags of values 0, .25, .5, 1 open");
    kolo_image_labels *l = read_labels(d, false, .5, KOLO_UNNAMED_AUTO);
    ok(!l->rest_negative && l->offset[COUNT] == 3 * (COUNT - 1),
       "verified negatives: unnamed classes are unknown; a class that is named twice counts once");
    ok(l->positives[5] == 4 && l->negatives[5] == 1 && l->negatives[2] == 2,
       "samples with and without a class are counted (%ld, %ld, %ld)", (long)l->positives[5],
       (long)l->negatives[5], (long)l->negatives[2]);
    kolo_image_labels_row(l, 4, NULL, 0, row);
    ok(near(row, 4, 1. / 3, 0) && near(row, 5, 1. / 3, 0) && near(row, 6, 0, 1. / 3) && near(row, 7, 0, 0),
       "two positives, a negative, the rest unknown: each a third");
    kolo_image_labels_weigh(l, true, 1.5, weight);
    ok(fabs((double)weight[5] - 1.5 / 4) < 1e-7, "balanced: negatives / positives times the factor (%g)",
       (double)weight[5]);
    kolo_image_labels_row(l, 4, weight, .1, row);
    ok(near(row, 5, .91 / 3 * 1.5 / 4, .09 / 3) && near(row, 6, .01 / 3 * (double)weight[6], .99 / 3) &&
           near(row, 9, 0, 0),
       "pos_weight and smoothing .1 of 10 classes: .91 and .01, unknown stays unknown");
    kolo_image_labels_row(l, 3, NULL, .1, row);
    int zero = 1;
    for (int i = 0; i < 2 * CLASSES; i++) zero &= row[i] == 0;
    ok(zero, "a sample with no tag at all weighs nothing");
    kolo_image_labels_free(&l);
    l = read_labels(d, false, .5, KOLO_UNNAMED_NEGATIVE);
    kolo_image_labels_row(l, 4, NULL, 0, row);
    ok(l->rest_negative && near(row, 4, .1, 0) && near(row, 6, 0, .1) && near(row, 9, 0, .1),
       "unverified=negative: all ten classes count a tenth");
    ok(l->positives[5] + l->negatives[5] == COUNT, "and are counted in every sample");
    kolo_image_labels_free(&l);
    l = read_labels(d, false, .75, KOLO_UNNAMED_UNKNOWN);
    kolo_image_labels_row(l, 4, NULL, 0, row);
    ok(near(row, 4, 1. / 3, 0) && near(row, 5, 0, 1. / 3), "tag_threshold .75: .5 is a negative");
    kolo_image_labels_free(&l);
    l = (kolo_image_labels *)d;
    is_int(kolo_image_labels_read(&l, d, &(kolo_image_labels_config){.boxes = true}), KOLO_EINPUT,
           "boxes of a split that has none: %s", kolo_error_text());
    ok(!l, "nothing is left behind");
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_positives(void)
{
    fixture f = make("multilabel", positives_of);
    kolo_dataset *d;
    kolo_dataset_open(&d, f.folder);
    kolo_image_labels *l = read_labels(d, false, .5, KOLO_UNNAMED_AUTO);
    ok(l->rest_negative, "positives alone: auto takes what is not named as negative");
    kolo_image_labels_free(&l);
    l = read_labels(d, false, .5, KOLO_UNNAMED_UNKNOWN);
    ok(!l->rest_negative, "unverified=ignore holds there too");
    kolo_image_labels_free(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_boxes(void)
{
    fixture f = make("detection", boxes_of);
    kolo_dataset *d;
    float row[2 * CLASSES];
    kolo_dataset_open(&d, f.folder);
    kolo_image_labels *l = read_labels(d, true, .5, KOLO_UNNAMED_AUTO);
    kolo_image_labels_row(l, 0, NULL, 0, row);
    ok(near(row, 1, 1. / 9, 0) && near(row, 2, 0, 0) && near(row, 3, 1. / 9, 0) && near(row, 4, 0, 1. / 9) &&
           near(row, 0, 0, 1. / 9),
       "boxes: a crowd and a group are positive, difficult alone is unknown, a box outside says nothing");
    kolo_image_labels_row(l, 1, NULL, 0, row);
    ok(near(row, 1, 0, 0) && near(row, 3, 1. / 8, 0), "without the crowd its class is unknown as well");
    is_int(l->positives[1], COUNT / 2, "positives of it: the even samples");
    is_int(l->negatives[1], 0, "negatives of it: none");
    kolo_image_labels_free(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

/* Rows of an epoch of training in the order of the global batches, by `ranks` loaders; mixed as `mix`
 * says. */
static float *rows_of(const kolo_dataset *d, const kolo_image_labels *l, int ranks, double mix,
                      int64_t *samples)
{
    enum { BATCH = 8 };
    float *all = calloc(COUNT * 2 * CLASSES, sizeof *all);
    for (int r = 0; r < ranks; r++) {
        kolo_loader *loader;
        kolo_batch batch;
        const kolo_loader_config c = {.dataset = d,
                                      .image_labels = l,
                                      .channels = 3,
                                      .height = 8,
                                      .width = 8,
                                      .classes = CLASSES,
                                      .train = true,
                                      .seed = 3,
                                      .batch = BATCH,
                                      .rank = r,
                                      .ranks = ranks,
                                      .tail = KOLO_tail_drop,
                                      .readers = 2,
                                      .prefetch = 1,
                                      .mix = {.mixup = mix, .probability = 1, .by_pair = true}};
        if (kolo_loader_create(&loader, &c) < 0) {
            diag("%s", kolo_error_text());
            continue;
        }
        kolo_loader_seek(loader, 0, 0);
        for (int step = 0; step < COUNT / BATCH; step++) {
            kolo_loader_next(loader, &batch);
            const int64_t at = step * BATCH + batch.first;
            memcpy(all + at * 2 * CLASSES, batch.labels, (size_t)(batch.rows * batch.words) * 4);
            memcpy(samples + at, batch.samples, (size_t)batch.rows * sizeof *samples);
            kolo_loader_release(loader, &batch);
        }
        kolo_loader_destroy(&loader);
    }
    return all;
}

static void test_loader(void)
{
    fixture f = make("multilabel", tags_of);
    kolo_dataset *d;
    kolo_dataset_open(&d, f.folder);
    kolo_image_labels *l = read_labels(d, false, .5, KOLO_UNNAMED_AUTO);
    int64_t sample[COUNT], other[COUNT];
    float row[2 * CLASSES], *plain = rows_of(d, l, 1, 0, sample), *mixed = rows_of(d, l, 1, .4, other),
                            *by_two = rows_of(d, l, 2, .4, other);
    int same = 1, between = 1, moved = 0;
    for (int i = 0; i < COUNT; i++) {
        kolo_image_labels_row(l, sample[i], NULL, 0, row);
        same &= !memcmp(row, plain + i * 2 * CLASSES, sizeof row);
    }
    for (int i = 0; i < COUNT; i += 2)
        for (int c = 0; c < 2 * CLASSES; c++) {
            const float a = plain[i * 2 * CLASSES + c], b = plain[(i + 1) * 2 * CLASSES + c],
                        x = mixed[i * 2 * CLASSES + c], y = mixed[(i + 1) * 2 * CLASSES + c];
            between &= fabsf(x + y - a - b) < 1e-6f && x >= fminf(a, b) - 1e-6f && x <= fmaxf(a, b) + 1e-6f;
            moved += x != a;
        }
    ok(same, "a loader's rows are those of their samples");
    ok(between && moved > 20,
       "mixup: both rows of a pair lie between theirs, and their sum stays (%d numbers moved)", moved);
    ok(!memcmp(mixed, by_two, COUNT * sizeof row) && !memcmp(sample, other, sizeof sample),
       "two ranks mix to the same bits as one");
    free(plain);
    free(mixed);
    free(by_two);
    kolo_loader *loader = NULL;
    kolo_loader_config c = {.dataset = d,
                            .image_labels = l,
                            .channels = 3,
                            .height = 8,
                            .width = 8,
                            .classes = CLASSES,
                            .batch = 12,
                            .ranks = 1,
                            .tail = KOLO_tail_pad};
    kolo_batch batch = {0};
    is_int(kolo_loader_create(&loader, &c), 0, "a loader of validation");
    kolo_loader_seek(loader, 0, 0);
    kolo_loader_next(loader, &batch);
    kolo_loader_next(loader, &batch);
    const float *last = (const float *)batch.labels + 4 * 2 * CLASSES;
    int zero = batch.valid == 4;
    for (int i = 0; i < 8 * 2 * CLASSES; i++) zero &= last[i] == 0;
    kolo_image_labels_row(l, 12, NULL, 0, row);
    ok(zero && !memcmp(batch.labels, row, sizeof row),
       "rows of the short last batch: their samples', then zeros");
    kolo_loader_destroy(&loader);
    c.classes = CLASSES + 1;
    is_int(kolo_loader_create(&loader, &c), KOLO_ECONFIG, "a network of other classes: %s",
           kolo_error_text());
    kolo_image_labels_free(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

int main(void)
{
    test_verified();
    test_positives();
    test_boxes();
    test_loader();
    return done_testing();
}
