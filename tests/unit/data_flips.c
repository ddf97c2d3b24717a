/* Single flipped bits all over small shards, raw, jpeg and with boxes: each is refused by name when the
 * split is opened, or makes one sample bad when it is read, or is never read: then everything that can be
 * asked of the split is what it was. KOLO_FLIPS: how many for each kind (tests/long/flips.t: 5,000);
 * KOLO_FLIP_SEED: of which campaign. */
#include "data_fixture.h"
#include "flip.h"

#include "base/option.h"
#include "data/loader.h"
#include "data/shard/dataset.h"
#include "data/shard/targets.h"
#include "tap.h"

enum fate { REFUSED, BAD, UNREAD, WRONG };

static char path[512];

/* Boxes, and whom they belong to, that follow from the sample's number. */
static int boxes_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    const kolo_shard_table kinds[] = {
        {.name = "box", .type = KOLO_TABLE_F32, .rank = 2, .dim = {n, 4}},
        {.name = "box_class", .type = KOLO_TABLE_I32, .rank = 1, .dim = {n, 1}},
        {.name = "box_flags", .type = KOLO_TABLE_U8, .rank = 1, .dim = {n, 1}},
        {.name = "box_area", .type = KOLO_TABLE_F32, .rank = 1, .dim = {n, 1}},
        {.name = "box_id", .type = KOLO_TABLE_I64, .rank = 1, .dim = {n, 1}},
        {.name = "box_offset", .type = KOLO_TABLE_U64, .rank = 1, .dim = {n + 1, 1}},
        {.name = "transform", .type = KOLO_TABLE_F32, .rank = 2, .dim = {n, 4}}};
    enum { COUNT = sizeof kinds / sizeof *kinds };
    void *data[COUNT];
    for (int k = 0; k < COUNT; k++) {
        t[k] = kinds[k];
        t[k].data = data[k] = kolo_alloc(kolo_shard_table_bytes(&t[k]) + 8);
    }
    for (int64_t i = 0; i < n; i++) {
        const float low = (float)((first + i) % 5), box[4] = {low, low + 1, low + 6, low + 5},
                    same[4] = {1, 1, 0, 0};
        memcpy((float *)data[0] + 4 * i, box, sizeof box);
        ((int32_t *)data[1])[i] = (int32_t)((first + i) % 10);
        ((float *)data[3])[i] = 24;
        ((int64_t *)data[4])[i] = 100 + first + i;
        ((uint64_t *)data[5])[i + 1] = (uint64_t)i + 1;
        memcpy((float *)data[6] + 4 * i, same, sizeof same);
    }
    return COUNT;
}

static void mix(uint32_t *sum, const void *data, size_t bytes) { *sum = kolo_crc32c(*sum, data, bytes); }

static void mix_text(uint32_t *sum, const char *text) { mix(sum, text, strlen(text) + 1); }

/* What a shard says beside its samples, as the tools ask for it. */
static int ask_shard(const kolo_dataset *d, uint32_t *sum)
{
    static const kolo_shard_table tables[] = {
        {.name = "id", .type = KOLO_TABLE_I64, .rank = 1, .dim = {-1, 1}},
        {.name = "source", .type = KOLO_TABLE_U8, .rank = 1, .dim = {-1, 1}},
        {.name = "source_offset", .type = KOLO_TABLE_U64, .rank = 1, .dim = {-1, 1}}};
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    kolo_shard_header h;
    kolo_shard_stats stats;
    char **names, note[256];
    uint64_t counts[10];
    int64_t ids[10];
    KOLO_TRY(kolo_shard_inspect(path, &h, NULL, NULL));
    KOLO_TRY(kolo_shard_read_stats(path, &stats));
    KOLO_TRY(kolo_shard_read_classes(path, info->classes, &names, counts));
    for (int c = 0; c < info->classes; c++) mix_text(sum, names[c]);
    free(names);
    KOLO_TRY(kolo_shard_read_class_ids(path, info->classes, ids));
    KOLO_TRY(kolo_shard_read_note(path, "options", note, sizeof note));
    for (int i = 0; i < 3; i++) {
        void *data;
        kolo_shard_table t = tables[i];
        KOLO_TRY(kolo_shard_read_table(path, &t, &data));
        mix(sum, data, kolo_shard_table_bytes(&t));
        free(data);
    }
    mix_text(sum, h.dataset), mix_text(sum, h.split), mix_text(sum, h.uuid), mix_text(sum, h.generator);
    mix_text(sum, h.task), mix_text(sum, h.box_form), mix_text(sum, h.tables), mix_text(sum, note);
    mix(sum, h.version, sizeof h.version);
    mix(sum, &h.pack_seed, sizeof h.pack_seed);
    mix(sum, &stats, sizeof stats);
    mix(sum, counts, sizeof counts);
    mix(sum, ids, sizeof ids);
    return 0;
}

static int ask_dataset(const kolo_dataset *d, uint32_t *sum)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    const kolo_targets *t = kolo_dataset_targets(d);
    const int64_t numbers[] = {info->encoding, info->channels, info->height, info->width,
                               info->count,    info->classes,  info->shards, (int64_t)info->bytes};
    mix_text(sum, info->name), mix_text(sum, info->split), mix_text(sum, info->uuid),
        mix_text(sum, info->task);
    mix(sum, numbers, sizeof numbers);
    mix(sum, info->mean, 3 * sizeof *info->mean);
    mix(sum, info->std, 3 * sizeof *info->std);
    for (int c = 0; c < info->classes; c++) mix_text(sum, kolo_dataset_class_name(d, c));
    for (int64_t i = 0; i < info->count; i++) {
        char text[128];
        int size[2];
        const int32_t label = kolo_dataset_label(d, i);
        kolo_dataset_size(d, i, &size[0], &size[1]);
        KOLO_TRY(kolo_dataset_source(d, i, text, sizeof text));
        mix_text(sum, text);
        mix(sum, size, sizeof size);
        mix(sum, &label, sizeof label);
    }
    if (!t) return 0;
    const size_t n = (size_t)t->boxes;
    mix(sum, t->box, n * sizeof *t->box);
    mix(sum, t->box_class, n * sizeof *t->box_class);
    mix(sum, t->box_flags, n);
    mix(sum, t->box_area, n * sizeof *t->box_area);
    mix(sum, t->box_id, n * sizeof *t->box_id);
    mix(sum, t->box_offset, (size_t)(info->count + 1) * sizeof *t->box_offset);
    mix(sum, t->transform, (size_t)info->count * sizeof *t->transform);
    return 0;
}

/* An evaluation's batches, then one epoch of training's. */
static int read_batches(const fixture *f, const kolo_dataset *d, bool train, uint32_t *sum)
{
    const bool boxes = f->tables != NULL;
    kolo_loader_config c = {.dataset = d,
                            .channels = 3,
                            .height = f->height,
                            .width = f->width,
                            .classes = 10,
                            .train = train,
                            .seed = 5,
                            .batch = 6,
                            .ranks = 1,
                            .tail = KOLO_tail_pad,
                            .readers = 1,
                            .words = boxes ? 6 : 0};
    if (boxes) c.detect = (kolo_detect_config){.height = f->height, .width = f->width};
    kolo_loader *l;
    kolo_batch b;
    KOLO_TRY(kolo_loader_create(&l, &c));
    int rc = 0;
    for (int64_t t = 0; t < kolo_loader_steps(l) && rc == 0; t++) {
        rc = kolo_loader_next(l, &b);
        if (rc != 0) break;
        mix(sum, b.pixels, (size_t)(b.rows * b.height * b.width) * 3);
        mix(sum, b.labels, (size_t)(b.rows * b.words) * sizeof *b.labels);
        kolo_loader_release(l, &b);
    }
    kolo_loader_destroy(&l);
    return rc;
}

/* Opens and reads all. opened: it was refused later, if at all. */
static int ask(const fixture *f, uint32_t *sum, bool *opened)
{
    kolo_dataset *d;
    *sum = 0;
    int rc = kolo_dataset_open(&d, f->folder);
    *opened = rc == 0;
    if (rc == 0) rc = ask_dataset(d, sum);
    if (rc == 0) rc = ask_shard(d, sum);
    if (rc == 0) rc = read_batches(f, d, false, sum);
    if (rc == 0) rc = read_batches(f, d, true, sum);
    kolo_dataset_close(&d);
    return rc;
}

static enum fate fate_of(const fixture *f, uint32_t whole)
{
    uint32_t sum;
    bool opened;
    const int rc = ask(f, &sum, &opened);
    if (rc == 0) return sum == whole ? UNREAD : WRONG;
    if ((rc != KOLO_EINPUT && rc != KOLO_EIO) || !strstr(kolo_error_text(), opened ? path : f->folder))
        return WRONG;
    if (!opened) return REFUSED;
    return strstr(kolo_error_text(), "sample ") && strstr(kolo_error_text(), "crc32c") ? BAD : WRONG;
}

/* counts: of every fate. */
static void flip_all(const fixture *f, const char *kind, const char *target, uint32_t whole, uint64_t seed,
                     int64_t flips, int64_t counts[4])
{
    static const char *const names[] = {"refused", "bad", "unread", "wrong"};
    for (int64_t i = 0; i < flips; i++) {
        const int64_t bit = flip_choose(seed, i, flip_bits(target));
        flip_bit(target, bit);
        const enum fate fate = fate_of(f, whole);
        counts[fate]++;
        if (fate == WRONG)
            diag("%s: bit %lld of byte %lld: %s", kind, (long long)bit % 8, (long long)bit / 8,
                 kolo_error_text());
        flip_bit(target, bit);
    }
    for (int k = 0; k < 4; k++) printf("# %s: %lld %s\n", kind, (long long)counts[k], names[k]);
}

static void campaign(const char *kind, fixture f, uint64_t seed, int64_t flips)
{
    char manifest[512];
    int64_t shard[4] = {0}, index[4] = {0};
    uint32_t whole, again;
    bool opened;
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    snprintf(manifest, sizeof manifest, "%s/toy-train.index", f.folder);
    is_int(ask(&f, &whole, &opened), 0, "%s: the shard as it is, of %lld bytes, is read", kind,
           (long long)flip_bits(path) / 8);
    flip_all(&f, kind, path, whole, seed, flips, shard);
    is_int(shard[WRONG], 0,
           "%s, %lld flipped bits: every one is refused by name, makes a sample bad, or is never read", kind,
           (long long)flips);
    ok(shard[REFUSED] > 0 && shard[BAD] > 0, "%s: some in tables, some in samples", kind);
    flip_all(&f, "manifest", manifest, whole, seed, flips, index);
    is_int(index[WRONG] + index[BAD], 0,
           "%s, %lld flipped bits of its manifest: refused by name, or never read", kind, (long long)flips);
    ok(ask(&f, &again, &opened) == 0 && again == whole, "%s: with all bits back it is what it was", kind);
    fixture_remove(&f);
}

int main(void)
{
    const uint64_t seed = flip_seed();
    const int64_t flips = flip_count(150);
    fixture f = {
        .count = 20, .shards = 1, .height = 12, .width = 12, .channels = 3, .encoding = KOLO_ENCODING_RAW};
    campaign("raw", f, seed, flips);
    f.encoding = KOLO_ENCODING_JPEG;
    campaign("jpeg", f, seed, flips);
    f.task = "detection", f.box_form = "xyxy", f.tables = boxes_of;
    campaign("boxes", f, seed, flips);
    return done_testing();
}
