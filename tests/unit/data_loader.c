#include "data_fixture.h"
#include "flip.h"
#include "tap.h"

#include "base/option.h"
#include "base/thread.h"
#include "data/augment/augment.h"
#include "data/loader.h"
#include "data/shard/dataset.h"

static kolo_loader_config config_of(const kolo_dataset *d)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(d);
    kolo_loader_config c = {.dataset = d,
                            .channels = i->channels,
                            .height = 16,
                            .width = 16,
                            .classes = 10,
                            .train = true,
                            .seed = 7,
                            .batch = 24,
                            .ranks = 1,
                            .tail = KOLO_tail_drop,
                            .crop = KOLO_crop_resized,
                            .crop_pad = 2,
                            .area_min = .2,
                            .area_max = 1,
                            .flip = true,
                            .readers = 1,
                            .prefetch = 2};
    return c;
}

/* A running checksum over everything a rank sees in `steps` steps, per global row. */
typedef struct seen {
    uint32_t crc[4096];
    int64_t sample[4096];
    int32_t label[4096];
    int64_t n;
} seen;

static void look(kolo_loader_config c, int ranks, int64_t start, int64_t steps, seen *s)
{
    const size_t bytes = (size_t)(c.height * c.width * c.channels);
    memset(s, 0, sizeof *s);
    for (int r = 0; r < ranks; r++) {
        kolo_loader *l;
        kolo_batch b;
        c.rank = r;
        c.ranks = ranks;
        if (kolo_loader_create(&l, &c) < 0) {
            diag("%s", kolo_error_text());
            return;
        }
        const int64_t per_epoch = kolo_loader_steps(l);
        if (start) kolo_loader_seek(l, start / per_epoch, start % per_epoch);
        for (int64_t t = 0; t < steps && kolo_loader_next(l, &b) == 0; t++) {
            for (int64_t i = 0; i < b.rows; i++) {
                const int64_t at = t * c.batch + r * b.rows + i;
                s->crc[at] = kolo_crc32c(0, b.pixels + (size_t)i * bytes, bytes);
                s->sample[at] = b.samples[i];
                s->label[at] = b.labels[i];
            }
            if (b.epoch * per_epoch + b.step != start + t)
                diag("step %lld came as epoch %lld step %lld", (long long)t, (long long)b.epoch,
                     (long long)b.step);
            kolo_loader_release(l, &b);
        }
        kolo_loader_destroy(&l);
    }
    s->n = steps * c.batch;
}

static int equal(const seen *a, const seen *b) { return memcmp(a, b, sizeof *a) == 0; }

static seen one, two;

static void test_determinism(const kolo_dataset *d, const char *kind)
{
    kolo_loader_config c = config_of(d);
    c.augment = "cutout,contrast";
    look(c, 1, 0, 12, &one);
    ok(one.crc[0] != one.crc[1] && one.n > 0, "%s: batches have content", kind);
    for (c.readers = 2; c.readers <= 4; c.readers++) {
        look(c, 1, 0, 12, &two);
        ok(equal(&one, &two), "%s: %d readers give the same batches as one", kind, c.readers);
    }
    c.readers = 2;
    const int ranks[] = {2, 3, 4, 8};
    for (int i = 0; i < 4; i++) {
        look(c, ranks[i], 0, 12, &two);
        ok(equal(&one, &two), "%s: rows of %d ranks together are those of one rank", kind, ranks[i]);
    }
    c.prefetch = 5;
    look(c, 1, 0, 12, &two);
    ok(equal(&one, &two), "%s: the depth of prefetching changes nothing", kind);
    c.seed = 8;
    look(c, 1, 0, 12, &two);
    ok(!equal(&one, &two), "%s: another seed changes something", kind);
}

static void test_seek(const kolo_dataset *d)
{
    kolo_loader_config c = config_of(d);
    c.readers = 2;
    look(c, 1, 0, 12, &one);
    look(c, 1, 7, 5, &two);
    ok(memcmp(one.crc + 7 * 24, two.crc, 5 * 24 * 4) == 0,
       "a loader that starts at step 7 of two epochs continues the same order");
    kolo_loader *l;
    kolo_batch b;
    kolo_loader_create(&l, &c);
    for (int i = 0; i < 20; i++) kolo_loader_seek(l, i, i % kolo_loader_steps(l));
    kolo_loader_seek(l, 0, 3);
    int rc = kolo_loader_next(l, &b);
    ok(rc == 0 && b.step == 3 && b.epoch == 0 && b.samples[0] == one.sample[3 * 24],
       "many seeks: the last one counts");
    kolo_loader_destroy(&l);
    ok(!l, "destroyed with a batch held and readers at work");
}

static void test_order(const kolo_dataset *d)
{
    static int64_t order[100];
    kolo_loader_config c = config_of(d);
    look(c, 1, 0, 8, &one); /* two epochs of four steps */
    kolo_permutation(7, 0, 100, order);
    ok(memcmp(order, one.sample, sizeof *order * 96) == 0, "the first epoch follows the permutation");
    kolo_permutation(7, 1, 100, order);
    ok(memcmp(order, one.sample + 96, sizeof *order * 96) == 0, "the second epoch has its own");
    char hit[100] = {0};
    int n = 0;
    for (int i = 0; i < 100; i++) n += !hit[order[i]]++;
    is_int(n, 100, "a permutation holds every number once");
    ok(one.label[5] == one.sample[5] % 10, "labels follow the samples");
}

static void test_tail(const kolo_dataset *d)
{
    kolo_loader_config c = config_of(d);
    kolo_loader *l;
    kolo_batch b;
    c.tail = KOLO_tail_pad;
    c.ranks = 4;
    c.rank = 3;
    kolo_loader_create(&l, &c);
    is_int(kolo_loader_steps(l), 5, "100 samples in batches of 24, padded: 5 steps");
    kolo_loader_seek(l, 0, 4);
    kolo_loader_next(l, &b);
    ok(b.rows == 6 && b.valid == 0 && b.valid_global == 4, "the last rank of a short batch has no valid row");
    int zero = 1;
    for (size_t i = 0; i < 6 * 16 * 16 * 3; i++) zero &= b.pixels[i] == 0;
    ok(zero && b.labels[0] == -1 && b.samples[5] == -1, "padding: zero pixels, label -1, sample -1");
    kolo_loader_release(l, &b);
    kolo_loader_next(l, &b);
    ok(b.epoch == 1 && b.step == 0 && b.valid == 6, "training goes on with the next epoch");
    kolo_loader_destroy(&l);
    c.rank = 0;
    kolo_loader_create(&l, &c);
    kolo_loader_seek(l, 0, 4);
    kolo_loader_next(l, &b);
    ok(b.valid == 4 && b.labels[3] >= 0 && b.labels[4] == -1, "the first rank has the 4 valid rows");
    kolo_loader_destroy(&l);
}

static void test_validation(const kolo_dataset *d, const char *kind)
{
    kolo_loader_config c = config_of(d);
    kolo_loader *l;
    kolo_batch b;
    int64_t next = 0;
    int rc, ordered = 1;
    c.train = false;
    c.readers = 3;
    c.resize = 18;
    kolo_loader_create(&l, &c);
    while ((rc = kolo_loader_next(l, &b)) == 0) {
        for (int64_t i = 0; i < b.valid; i++) ordered &= b.samples[i] == next++;
        kolo_loader_release(l, &b);
    }
    ok(rc == 1 && next == 100 && ordered, "%s: validation shows every sample once, in order, then ends",
       kind);
    is_int(kolo_loader_next(l, &b), 1, "%s: and stays at its end", kind);
    kolo_loader_seek(l, 0, 0);
    ok(kolo_loader_next(l, &b) == 0 && b.samples[0] == 0, "%s: after a seek it begins again", kind);
    kolo_loader_destroy(&l);
}

/* What a stage that reads no image counts by: the samples and labels of the stage that does. */
static void test_counts_only(const kolo_dataset *d, const char *kind)
{
    kolo_loader_config c = config_of(d);
    kolo_loader *l[2];
    kolo_batch b[2];
    int same = 1, batches = 0, rc[2];
    c.train = false;
    c.ranks = 2; /* the second one's last batch is short, or empty */
    c.rank = 1;
    for (int i = 0; i < 2; i++) {
        c.counts_only = i;
        kolo_loader_create(&l[i], &c);
    }
    for (;; batches++) {
        for (int i = 0; i < 2; i++) rc[i] = kolo_loader_next(l[i], &b[i]);
        same &= rc[0] == rc[1];
        if (rc[0] || rc[1]) break;
        same &= b[1].pixels == NULL && b[0].rows == b[1].rows && b[0].valid == b[1].valid &&
                b[0].valid_global == b[1].valid_global && b[0].words == b[1].words;
        same &= !memcmp(b[0].samples, b[1].samples, (size_t)b[0].rows * sizeof *b[0].samples);
        same &= !memcmp(b[0].labels, b[1].labels, (size_t)(b[0].rows * b[0].words) * sizeof *b[0].labels);
        for (int i = 0; i < 2; i++) kolo_loader_release(l[i], &b[i]);
    }
    ok(same && batches > 2, "%s: a loader that reads no image has the samples and labels of one that does",
       kind);
    for (int i = 0; i < 2; i++) kolo_loader_destroy(&l[i]);
}

static void test_direct(void)
{
    fixture f = {.count = 50, .shards = 3, .height = 28, .width = 28, .channels = 1};
    kolo_dataset *d;
    kolo_loader *l;
    kolo_batch b;
    uint8_t want[784];
    int same = 1, flipped = 0;
    fixture_make(&f);
    kolo_dataset_open(&d, f.folder);
    for (int train = 0; train < 2; train++) {
        kolo_loader_config c = config_of(d);
        c.height = c.width = 28;
        c.train = train;
        c.crop = KOLO_crop_none;
        c.flip = false;
        kolo_loader_create(&l, &c);
        for (int t = 0; t < 2 && kolo_loader_next(l, &b) == 0; t++) {
            for (int i = 0; i < b.valid; i++) {
                fixture_pixels(&f, b.samples[i], want);
                same &= memcmp(want, b.pixels + (size_t)i * 784, 784) == 0;
            }
            kolo_loader_release(l, &b);
        }
        kolo_loader_destroy(&l);
    }
    ok(same, "raw images of the right size come unchanged, in training and validation");
    kolo_loader_config c = config_of(d);
    c.height = c.width = 28;
    c.crop = KOLO_crop_none;
    kolo_loader_create(&l, &c);
    kolo_loader_next(l, &b);
    for (int i = 0; i < b.rows; i++) {
        fixture_pixels(&f, b.samples[i], want);
        const uint8_t *p = b.pixels + (size_t)i * 784;
        if (memcmp(want, p, 784) == 0) continue;
        int mirror = 1;
        for (int x = 0; x < 28; x++) mirror &= p[x] == want[27 - x];
        flipped += mirror;
        same &= mirror;
    }
    ok(same && flipped > 4 && flipped < 20, "flip mirrors about half of them (%d of 24)", flipped);
    kolo_loader_destroy(&l);
    c.channels = 3;
    c.flip = false;
    kolo_loader_create(&l, &c);
    kolo_loader_next(l, &b);
    fixture_pixels(&f, b.samples[0], want);
    ok(b.pixels[0] == want[0] && b.pixels[2] == want[0] && b.pixels[3 * 783 + 1] == want[783],
       "gray is repeated for a colour network");
    kolo_loader_destroy(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_orientation(void)
{
    fixture f = {.count = 4,
                 .shards = 1,
                 .height = 24,
                 .width = 40,
                 .channels = 3,
                 .encoding = KOLO_ENCODING_JPEG,
                 .orientation = 6};
    kolo_dataset *d;
    kolo_loader *l;
    kolo_batch b;
    kolo_jpeg *jpeg;
    kolo_image want = {0};
    fixture_make(&f);
    kolo_dataset_open(&d, f.folder);
    kolo_loader_config c = config_of(d);
    c.train = false, c.batch = 4, c.height = 40, c.width = 24;
    kolo_loader_create(&l, &c);
    const int rc = kolo_loader_next(l, &b);
    uint8_t *blob = malloc(kolo_dataset_bytes(d, 3));
    kolo_dataset_read(d, 3, blob);
    kolo_jpeg_create(&jpeg);
    kolo_image_decode(jpeg, blob, kolo_dataset_bytes(d, 3), 3, &want);
    ok(want.height == 40 && want.width == 24, "an image with EXIF orientation 6 stands upright");
    ok(rc == 0 && memcmp(b.pixels + 3 * 24 * 40 * 3, want.pixels, 24 * 40 * 3) == 0,
       "the loader turns it too");
    free(blob);
    kolo_image_free(&want);
    kolo_jpeg_destroy(&jpeg);
    kolo_loader_destroy(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_refusals(const kolo_dataset *d)
{
    kolo_loader_config c = config_of(d);
    kolo_loader *l;
    c.ranks = 5;
    is_int(kolo_loader_create(&l, &c), KOLO_ECONFIG, "24 rows over 5 ranks: %s", kolo_error_text());
    c = config_of(d), c.batch = 240;
    is_int(kolo_loader_create(&l, &c), KOLO_ECONFIG, "a batch larger than the set: %s", kolo_error_text());
    c = config_of(d), c.augment = "cutuot";
    is_int(kolo_loader_create(&l, &c), KOLO_ECONFIG, "an unknown augmentation");
    ok(strstr(kolo_error_text(), "cutout"), "the nearest name is offered: %s", kolo_error_text());
    c = config_of(d), c.channels = 1;
    is_int(kolo_loader_create(&l, &c), KOLO_EINPUT, "colour for one channel");
    c = config_of(d), c.classes = 9;
    is_int(kolo_loader_create(&l, &c), KOLO_EINPUT, "more classes than outputs");
}

static void test_damage(void)
{
    fixture f = {
        .count = 60, .shards = 1, .height = 40, .width = 40, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
    kolo_dataset *d;
    kolo_loader *l;
    kolo_batch b;
    char path[512];
    kolo_shard_places p;
    kolo_shard_arrays a;
    uint8_t junk[64];
    fixture_make(&f);
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    kolo_shard_inspect(path, NULL, &p, &a);
    memset(junk, 0xFF, sizeof junk);
    int fd = open(path, O_RDWR);
    kolo_file_pwrite(fd, path, junk, 64, p.data + a.offsets[30] + 20);
    close(fd);
    kolo_shard_arrays_free(&a);
    kolo_dataset_open(&d, f.folder);
    kolo_loader_config c = config_of(d);
    c.train = false;
    c.readers = 3;
    kolo_loader_create(&l, &c);
    ok(kolo_loader_next(l, &b) == 0, "a batch before the damaged sample comes");
    kolo_loader_release(l, &b);
    is_int(kolo_loader_next(l, &b), KOLO_EINPUT, "the batch with the damaged sample fails");
    ok(strstr(kolo_error_text(), "sample 30") && strstr(kolo_error_text(), "00000-of-00001.h5") &&
           strstr(kolo_error_text(), "pic000030"),
       "sample, file and source are named: %s", kolo_error_text());
    kolo_loader_destroy(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_bad_samples(void)
{
    fixture f = {
        .count = 100, .shards = 1, .height = 40, .width = 40, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
    kolo_dataset *d;
    kolo_loader *l;
    kolo_batch b;
    kolo_loader_stats s;
    int counted[100] = {0}, wrong = 0, rc = 0;
    fixture_make(&f);
    kolo_dataset_open(&d, f.folder);
    kolo_loader_config c = config_of(d);
    c.batch = 20, c.max_bad = 3, c.readers = 3;
    look(c, 1, 0, 10, &one);
    fixture_damage(&f, 3, (const int[]){30, 31, 77});
    kolo_loader_create(&l, &c);
    for (int t = 0; t < 10 && (rc = kolo_loader_next(l, &b)) == 0; t++) { /* two epochs */
        for (int i = 0; i < 20; i++) {
            const int64_t was = one.sample[t * 20 + i], is = b.samples[i];
            if (t < 5) counted[is]++;
            wrong += is != (was == 30 || was == 31 ? 32 : was == 77 ? 78 : was) || b.labels[i] != is % 10;
        }
        kolo_loader_release(l, &b);
    }
    kolo_loader_get_stats(l, &s);
    ok(rc == 0 && wrong == 0 && counted[32] == 3 && counted[78] == 2 && counted[30] == 0,
       "damaged samples are replaced by the next sound one, with its label");
    is_int(s.bad, 6, "and counted each time");
    kolo_loader_destroy(&l);
    look(c, 1, 0, 10, &one);
    look(c, 4, 0, 10, &two);
    ok(one.n == 200 && equal(&one, &two), "4 ranks replace them as one does");
    c.max_bad = 2;
    kolo_loader_create(&l, &c);
    for (rc = 0; rc == 0 && (rc = kolo_loader_next(l, &b)) == 0;) kolo_loader_release(l, &b);
    ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), "more than max_bad=2") &&
           strstr(kolo_error_text(), "pic0000"),
       "a third one is too many for max_bad=2: %s", kolo_error_text());
    kolo_loader_destroy(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

/* One flipped bit in the middle of sample 7, which every decoder would take for another image. */
static void flip_in_sample(const fixture *f)
{
    char path[512];
    kolo_shard_places p;
    kolo_shard_arrays a;
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f->folder);
    if (kolo_shard_inspect(path, NULL, &p, &a) < 0) diag("%s", kolo_error_text());
    const uint64_t raw = (uint64_t)f->height * (uint64_t)f->width * (uint64_t)f->channels;
    const uint64_t from = a.offsets ? a.offsets[7] : 7 * raw, to = a.offsets ? a.offsets[8] : 8 * raw;
    flip_bit(path, (int64_t)(8 * (p.data + (from + to) / 2) + 2));
    kolo_shard_arrays_free(&a);
}

/* Reads an epoch. used: sample 7 was in it. */
static int read_epoch(const kolo_loader_config *c, int64_t *bad, bool *used)
{
    kolo_loader *l;
    kolo_batch b;
    kolo_loader_stats s;
    int rc = kolo_loader_create(&l, c);
    *used = false;
    for (int64_t t = 0; rc == 0 && t < kolo_loader_steps(l); t++) {
        rc = kolo_loader_next(l, &b);
        for (int64_t i = 0; rc == 0 && i < b.valid; i++) *used |= b.samples[i] == 7;
        if (rc == 0) kolo_loader_release(l, &b);
    }
    if (l) kolo_loader_get_stats(l, &s);
    *bad = s.bad;
    kolo_loader_destroy(&l);
    return rc;
}

/* What the loader makes of a damaged sample that its decoder takes. side: of the batch's images. */
static void checks_samples(const char *what, fixture f, int side, int64_t words)
{
    kolo_dataset *d;
    int64_t bad;
    bool used;
    if (fixture_make(&f) < 0 || kolo_dataset_open(&d, f.folder) < 0) diag("%s", kolo_error_text());
    flip_in_sample(&f);
    kolo_loader_config c = config_of(d);
    c.batch = 5, c.height = c.width = side, c.words = words;
    if (words) c.detect = (kolo_detect_config){.height = side, .width = side};
    for (int train = 0; train < 2; train++) {
        c.train = train;
        const int rc = read_epoch(&c, &bad, &used);
        ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), "sample 7 (number 7 of") &&
               strstr(kolo_error_text(), "00000-of-00001.h5") && strstr(kolo_error_text(), "crc32c"),
           "%s, %s: a flipped bit: %s", what, train ? "training" : "validation", kolo_error_text());
    }
    c.max_bad = 1;
    ok(read_epoch(&c, &bad, &used) == 0 && bad == 1 && !used,
       "%s, max_bad=1: the sample is counted and replaced", what);
    c.train = false;
    is_int(read_epoch(&c, &bad, &used), KOLO_EINPUT, "%s, max_bad=1: validation replaces nothing", what);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

/* What changes after it was read for the first time is found, too, by one of the next reads. */
static void checks_again(fixture f)
{
    kolo_dataset *d;
    uint8_t data[24 * 24 * 3];
    int64_t failed = -1;
    int rc = fixture_make(&f), reads = 0;
    if (rc < 0 || kolo_dataset_open(&d, f.folder) < 0) diag("%s", kolo_error_text());
    kolo_dataset_read_run(d, 7, 1, data);
    is_int(kolo_dataset_check_run(d, 7, 1, data, &failed), 0, "sample 7 is what was packed");
    flip_in_sample(&f);
    kolo_dataset_read_run(d, 7, 1, data);
    while (rc == 0 && reads++ < KOLO_DATASET_CHECK_EVERY) rc = kolo_dataset_check_run(d, 7, 1, data, &failed);
    ok(rc == KOLO_EINPUT && failed == 7, "it is changed: found at read %d from then on", reads);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

/* A box in every image. */
static int one_box(int64_t first, int64_t n, kolo_shard_table *t)
{
    static const char *const names[] = {"box",    "box_class",  "box_flags", "box_area",
                                        "box_id", "box_offset", "transform"};
    static const enum kolo_table_type types[] = {KOLO_TABLE_F32, KOLO_TABLE_I32, KOLO_TABLE_U8,
                                                 KOLO_TABLE_F32, KOLO_TABLE_I64, KOLO_TABLE_U64,
                                                 KOLO_TABLE_F32};
    static const int columns[] = {4, 1, 1, 1, 1, 1, 4};
    (void)first;
    for (int i = 0; i < 7; i++) {
        t[i] = (kolo_shard_table){.name = names[i],
                                  .type = types[i],
                                  .rank = columns[i] > 1 ? 2 : 1,
                                  .dim = {n + (i == 5), columns[i]}};
        t[i].data = kolo_alloc(kolo_shard_table_bytes(&t[i]) + 8);
    }
    for (int64_t i = 0; i < n; i++) {
        const float box[4] = {1, 2, 9, 8}, same[4] = {1, 1, 0, 0};
        memcpy((float *)t[0].data + 4 * i, box, sizeof box);
        ((uint64_t *)t[5].data)[i + 1] = (uint64_t)i + 1;
        memcpy((float *)t[6].data + 4 * i, same, sizeof same);
    }
    return 7;
}

static void test_checksums(void)
{
    fixture raw = {.count = 20,
                   .shards = 1,
                   .height = 24,
                   .width = 24,
                   .channels = 3,
                   .encoding = KOLO_ENCODING_RAW},
            jpeg = raw, boxes = raw;
    jpeg.encoding = KOLO_ENCODING_JPEG;
    boxes.task = "detection", boxes.box_form = "xyxy", boxes.tables = one_box;
    checks_samples("raw, as it lies in the file", raw, 24, 0);
    checks_samples("raw, resized", raw, 16, 0);
    checks_samples("jpeg", jpeg, 24, 0);
    checks_samples("boxes", boxes, 32, 6);
    checks_again(raw);
}

static void test_synthetic(void)
{
    kolo_loader_config c = {.synthetic_count = 1000,
                            .channels = 3,
                            .height = 8,
                            .width = 8,
                            .classes = 10,
                            .train = true,
                            .seed = 3,
                            .batch = 32,
                            .ranks = 1,
                            .readers = 1,
                            .prefetch = 2};
    look(c, 1, 0, 5, &one);
    look(c, 4, 0, 5, &two);
    ok(equal(&one, &two), "synthetic batches do not depend on the number of ranks");
    ok(one.crc[0] != one.crc[1] && one.label[0] >= 0 && one.label[0] < 10,
       "they hold noise and labels in range");
    c.train = false;
    look(c, 1, 0, 32, &one);
    ok(one.sample[999] == 999 && one.sample[1000] == -1 && one.label[1000] == -1,
       "a short synthetic batch is padded");
}

static void test_speed(void)
{
    fixture f = {.count = 20000, .shards = 1, .height = 28, .width = 28, .channels = 1};
    kolo_dataset *d;
    kolo_loader *l;
    kolo_batch b;
    fixture_make(&f);
    kolo_dataset_open(&d, f.folder);
    kolo_loader_config c = config_of(d);
    c.height = c.width = 28, c.batch = 64, c.crop = KOLO_crop_none, c.flip = false, c.prefetch = 3;
    kolo_loader_create(&l, &c);
    double begin = kolo_time();
    int64_t n = 0;
    for (; n < 200000 && kolo_loader_next(l, &b) == 0; n += b.rows) kolo_loader_release(l, &b);
    kolo_loader_stats s;
    kolo_loader_get_stats(l, &s);
    const double seconds = kolo_time() - begin;
    diag("%.0f samples/s of 784 bytes with one reader, %.0f %% of the time spent waiting",
         (double)n / seconds, 100 * s.wait_seconds / seconds);
    ok(s.samples == n && s.bytes == n * 784 && s.wait_seconds <= seconds && s.hits == 0 && s.bad == 0,
       "statistics count samples, bytes and the wait");
    const double p50 = kolo_latency_quantile(&s.sample, .5), p99 = kolo_latency_quantile(&s.sample, .99);
    ok(p50 > 0 && p50 <= p99 && kolo_latency_quantile(&s.read, .5) <= p50 && p50 * (double)n < 4 * seconds,
       "latencies: a read %.2f us, a sample %.2f us, one of a hundred above %.2f us",
       kolo_latency_quantile(&s.read, .5) * 1e6, p50 * 1e6, p99 * 1e6);
    kolo_loader_destroy(&l);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

int main(void)
{
    fixture raw = {.count = 100, .shards = 3, .height = 30, .width = 22, .channels = 3};
    fixture jpeg = {
        .count = 100, .shards = 2, .height = 70, .width = 90, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
    kolo_dataset *r = NULL, *j = NULL;
    if (fixture_make(&raw) < 0 || kolo_dataset_open(&r, raw.folder) < 0) diag("%s", kolo_error_text());
    if (fixture_make(&jpeg) < 0 || kolo_dataset_open(&j, jpeg.folder) < 0) diag("%s", kolo_error_text());
    test_determinism(r, "raw");
    test_determinism(j, "jpeg");
    test_seek(r);
    test_order(r);
    test_tail(r);
    test_validation(r, "raw");
    test_counts_only(r, "raw");
    test_validation(j, "jpeg");
    test_direct();
    test_orientation();
    test_refusals(r);
    test_damage();
    test_bad_samples();
    test_checksums();
    test_synthetic();
    test_speed();
    kolo_dataset_close(&r);
    kolo_dataset_close(&j);
    fixture_remove(&raw);
    fixture_remove(&jpeg);
    return done_testing();
}
