/* Training images whose side changes from step to step: the same draw for everybody, and the bytes of
 * loaders that know that side alone. */
#include <stdlib.h>
#include <string.h>

#include "data_fixture.h"
#include "tap.h"

#include "base/file.h"
#include "base/option.h"
#include "data/loader.h"
#include "data/shard/file.h"

enum { STEPS = 30, BATCH = 8, WORDS = 1 + 5 * 3 };

static const kolo_sides sides = {.low = 24, .high = 56, .step = 8, .every = 3};

static kolo_shard_table table(const char *name, enum kolo_table_type type, int64_t rows, int columns)
{
    kolo_shard_table t = {name, type, columns > 1 ? 2 : 1, {rows, columns}, NULL, NULL};
    t.data = kolo_alloc(kolo_shard_table_bytes(&t) + 8);
    return t;
}

/* One box a sample. */
static int boxes_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    t[0] = table("box_offset", KOLO_TABLE_U64, n + 1, 1), t[1] = table("box", KOLO_TABLE_F32, n, 4);
    t[2] = table("box_class", KOLO_TABLE_I32, n, 1), t[3] = table("box_flags", KOLO_TABLE_U8, n, 1);
    t[4] = table("box_area", KOLO_TABLE_F32, n, 1), t[5] = table("box_id", KOLO_TABLE_I64, n, 1);
    t[6] = table("transform", KOLO_TABLE_F32, n, 4);
    for (int64_t i = 0; i < n; i++) {
        const float box[4] = {(float)(i % 9), 3, (float)(i % 9) + 20, 25}, transform[4] = {1, 0, 0, 0};
        ((uint64_t *)(uintptr_t)t[0].data)[i + 1] = (uint64_t)(i + 1);
        memcpy((float *)(uintptr_t)t[1].data + 4 * i, box, sizeof box);
        ((int32_t *)(uintptr_t)t[2].data)[i] = (int32_t)((first + i) % 10);
        ((float *)(uintptr_t)t[4].data)[i] = 440;
        ((int64_t *)(uintptr_t)t[5].data)[i] = first + i;
        memcpy((float *)(uintptr_t)t[6].data + 4 * i, transform, sizeof transform);
    }
    return 7;
}

static kolo_loader_config config_of(const kolo_dataset *set, bool boxes)
{
    kolo_loader_config c = {
        .dataset = set,
        .channels = 3,
        .height = sides.high,
        .width = sides.high,
        .sides = sides,
        .classes = 10,
        .train = true,
        .seed = 11,
        .batch = BATCH,
        .ranks = 1,
        .crop = KOLO_crop_resized,
        .area_min = .2,
        .area_max = 1,
        .flip = true,
        .mean = {.5f, .5f, .5f},
        .std = {.25f, .25f, .25f},
        .augment = "cutout,sharpness,rotate",
        .mix = {.mixup = .5, .cutmix = .5, .probability = .7, .cutmix_share = .5, .by_pair = true},
        .readers = 2,
        .prefetch = 3};
    if (!boxes) return c;
    c.augment = NULL;
    c.crop = KOLO_crop_none;
    c.mix = (kolo_mix_config){0};
    c.words = WORDS;
    c.plain_epoch = 2;
    kolo_detect_usual(&c.detect, c.height, c.width, false);
    return c;
}

/* What a rank of `ranks` is given in step `step`: its side, checksums of its rows into sum[BATCH]. */
static int look(kolo_loader *l, const kolo_loader_config *c, uint32_t *sum)
{
    kolo_batch b;
    if (kolo_loader_next(l, &b) < 0) {
        diag("%s", kolo_error_text());
        return -1;
    }
    const size_t bytes = (size_t)(b.height * b.width * 3), words = (size_t)b.words * sizeof(int32_t);
    for (int64_t i = 0; i < b.rows; i++) {
        const uint32_t crc = kolo_crc32c(0, b.pixels + (size_t)i * bytes, bytes);
        sum[c->rank * b.rows + i] = kolo_crc32c(crc, (const uint8_t *)(b.labels + i * b.words), words);
    }
    kolo_loader_release(l, &b);
    return b.height == b.width ? b.height : -1;
}

static int drawn(int64_t epoch, int64_t step)
{
    return sides.low + sides.step * kolo_sides_draw(&sides, 11, epoch, step);
}

static uint32_t want[STEPS][BATCH], got[STEPS][BATCH];
static int side_of[STEPS];

static void test_draw(void)
{
    bool seen[8] = {false}, kept = true, other = false;
    is_int(kolo_sides_count(&sides), 5, "five sides");
    for (int64_t s = 0; s < 300; s++) {
        const int side = drawn(0, s);
        seen[(side - sides.low) / 8] = true;
        kept &= side == drawn(0, s - s % 3) && side % 8 == 0 && side >= sides.low && side <= sides.high;
        other |= side != drawn(1, s);
    }
    ok(seen[0] && seen[1] && seen[2] && seen[3] && seen[4] && !seen[5],
       "each is drawn, the first and last too");
    ok(kept, "and stays for three steps");
    ok(other, "another epoch draws others");
    is_int(kolo_sides_draw(&(kolo_sides){0}, 1, 2, 3), 0, "where there are none, none is drawn");
}

/* Through more than one epoch. */
static void test_loader(const kolo_dataset *set, bool boxes, const char *what)
{
    kolo_loader_config c = config_of(set, boxes);
    kolo_loader *l;
    bool same = true, drew = true;
    if (kolo_loader_create(&l, &c) < 0) diag("%s", kolo_error_text());
    const int64_t epoch = kolo_loader_steps(l);
    for (int64_t s = 0; s < STEPS; s++)
        drew &= (side_of[s] = look(l, &c, want[s])) == drawn(s / epoch, s % epoch);
    ok(drew && epoch < STEPS, "%s: images have the side that is drawn", what);
    for (int64_t s = STEPS - 1; s >= 0; s -= 4) {
        kolo_loader_seek(l, s / epoch, s % epoch);
        same &= look(l, &c, got[s]) == side_of[s] && !memcmp(got[s], want[s], sizeof *got);
    }
    ok(same, "%s: and the same bytes after a start anywhere", what);
    kolo_loader_destroy(&l);
    same = true;
    for (c.rank = 0, c.ranks = 2; c.rank < 2; c.rank++) {
        if (kolo_loader_create(&l, &c) < 0) diag("%s", kolo_error_text());
        for (int64_t s = 0; s < STEPS; s++) same &= look(l, &c, got[s]) == side_of[s];
        kolo_loader_destroy(&l);
    }
    ok(same && !memcmp(got, want, sizeof got), "%s: two ranks share these", what);
    c = config_of(set, boxes);
    c.sides = (kolo_sides){0};
    same = true;
    for (int side = sides.low; side <= sides.high; side += sides.step) {
        c.height = c.width = c.detect.height = c.detect.width = side;
        if (kolo_loader_create(&l, &c) < 0) diag("%s", kolo_error_text());
        for (int64_t s = 0; s < STEPS; s++) {
            if (side_of[s] != side) continue;
            kolo_loader_seek(l, s / epoch, s % epoch);
            same &= look(l, &c, got[s]) == side && !memcmp(got[s], want[s], sizeof *got);
        }
        kolo_loader_destroy(&l);
    }
    ok(same, "%s: they are those of a loader of that side alone", what);
}

static void test_refusals(const kolo_dataset *set)
{
    kolo_loader_config c = config_of(set, false);
    kolo_loader *l;
    c.height = c.width = sides.high + 8;
    is_int(kolo_loader_create(&l, &c), KOLO_EINTERNAL, "room for another size is refused");
    c = config_of(set, false);
    c.train = false;
    is_int(kolo_loader_create(&l, &c), KOLO_EINTERNAL, "and a validation of various sides");
}

/* One of 100 samples is damaged. A mosaic has five images, so some 5 in 100 rows meet it; it is one bad
 * sample all the same. */
static void test_bad_sample(const fixture *f, const kolo_dataset *set)
{
    fixture_damage(f, 1, (const int[]){41});
    kolo_loader_config c = config_of(set, true);
    kolo_loader *l;
    kolo_loader_stats stats;
    int rc = 0;
    c.sides = (kolo_sides){0};
    c.max_bad = 1;
    if (kolo_loader_create(&l, &c) < 0) diag("%s", kolo_error_text());
    for (int64_t s = 0; s < STEPS && rc == 0; s++) {
        kolo_batch b;
        rc = kolo_loader_next(l, &b);
        if (rc == 0) kolo_loader_release(l, &b);
    }
    kolo_loader_get_stats(l, &stats);
    ok(rc == 0 && stats.bad > 2, "a damaged sample in %d mosaics is one bad sample: %s", (int)stats.bad,
       rc < 0 ? kolo_error_text() : "");
    kolo_loader_destroy(&l);
}

int main(void)
{
    fixture raw = {.count = 100, .shards = 2, .height = 32, .width = 32, .channels = 3},
            boxes = {.count = 100,
                     .shards = 2,
                     .height = 40,
                     .width = 50,
                     .channels = 3,
                     .task = "detection",
                     .box_form = "xywh",
                     .tables = boxes_of};
    kolo_dataset *r = NULL, *b = NULL;
    if (fixture_make(&raw) < 0 || kolo_dataset_open(&r, raw.folder) < 0) diag("%s", kolo_error_text());
    if (fixture_make(&boxes) < 0 || kolo_dataset_open(&b, boxes.folder) < 0) diag("%s", kolo_error_text());
    test_draw();
    test_loader(r, false, "classes");
    test_loader(b, true, "boxes");
    test_refusals(r);
    fixture jpeg = {.count = 100,
                    .shards = 1,
                    .height = 40,
                    .width = 50,
                    .channels = 3,
                    .encoding = KOLO_ENCODING_JPEG,
                    .task = "detection",
                    .box_form = "xywh",
                    .tables = boxes_of};
    kolo_dataset *j = NULL;
    if (fixture_make(&jpeg) < 0 || kolo_dataset_open(&j, jpeg.folder) < 0) diag("%s", kolo_error_text());
    test_bad_sample(&jpeg, j);
    kolo_dataset_close(&j);
    fixture_remove(&jpeg);
    kolo_dataset_close(&r);
    kolo_dataset_close(&b);
    fixture_remove(&raw);
    fixture_remove(&boxes);
    return done_testing();
}
