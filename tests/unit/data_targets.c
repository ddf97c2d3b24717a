/* Boxes, tags and pairs of a split through shards and back; format 1.0 beside 1.2. */
#include "data_fixture.h"
#include "tap.h"

#include "data/shard/dataset.h"
#include "data/shard/h5.h"
#include "data/shard/targets.h"

static kolo_shard_table table(const char *name, enum kolo_table_type type, int64_t rows, int columns)
{
    kolo_shard_table t = {name, type, columns > 1 ? 2 : 1, {rows, columns}, NULL, NULL};
    t.data = kolo_alloc(kolo_shard_table_bytes(&t) + 8);
    return t;
}

#define DATA(t, type) ((type *)(uintptr_t)(t).data)

/* Sample i has i % 3 boxes, of class (i + k) % 10. */
static int boxes_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    int64_t rows = 0, at = 0;
    for (int64_t i = first; i < first + n; i++) rows += i % 3;
    t[0] = table("box_offset", KOLO_TABLE_U64, n + 1, 1), t[1] = table("box", KOLO_TABLE_F32, rows, 4);
    t[2] = table("box_class", KOLO_TABLE_I32, rows, 1), t[3] = table("box_flags", KOLO_TABLE_U8, rows, 1);
    t[4] = table("box_area", KOLO_TABLE_F32, rows, 1), t[5] = table("box_id", KOLO_TABLE_I64, rows, 1);
    t[6] = table("transform", KOLO_TABLE_F32, n, 4), t[7] = table("box_source", KOLO_TABLE_F64, rows, 4);
    for (int64_t i = 0; i < n; i++) {
        const int64_t sample = first + i;
        for (int k = 0; k < sample % 3; k++, at++) {
            const float box[4] = {(float)k, (float)(sample % 5), (float)(k + 3), (float)(sample % 5 + 2)};
            memcpy(&DATA(t[1], float)[4 * at], box, sizeof box);
            DATA(t[2], int32_t)[at] = (int32_t)((sample + k) % 10);
            DATA(t[3], uint8_t)[at] = k ? KOLO_BOX_CROWD : 0;
            DATA(t[4], float)[at] = 6;
            DATA(t[5], int64_t)[at] = sample * 1000000007 + k;
        }
        DATA(t[0], uint64_t)[i + 1] = (uint64_t)at;
        DATA(t[6], float)[4 * i] = DATA(t[6], float)[4 * i + 1] = (float)sample;
    }
    return 8;
}

static int tags_and_pairs_of(int64_t first, int64_t n, kolo_shard_table *t)
{
    t[0] = table("tag_offset", KOLO_TABLE_U64, n + 1, 1), t[1] = table("tag", KOLO_TABLE_I32, 2 * n, 1);
    t[2] = table("tag_value", KOLO_TABLE_F32, 2 * n, 1);
    for (int64_t i = 0; i < 2 * n; i++) {
        DATA(t[0], uint64_t)[i / 2 + 1] = (uint64_t)(i + 1);
        DATA(t[1], int32_t)[i] = (int32_t)((first * 2 + i) % 7);
        DATA(t[2], float)[i] = i % 2 ? .5f : 1;
    }
    if (first) return 3;
    t[3] = table("pair_set_view2", KOLO_TABLE_I32, 2, 2),
    t[4] = table("pair_same_view2", KOLO_TABLE_U8, 2, 1);
    t[5] = table("pair_fold_view2", KOLO_TABLE_I32, 2, 1);
    const int32_t pairs[4] = {0, 19, 7, 3};
    memcpy(DATA(t[3], int32_t), pairs, sizeof pairs);
    DATA(t[4], uint8_t)[0] = 1;
    DATA(t[5], int32_t)[1] = 9;
    return 6;
}

static fixture make(int64_t count, int shards, const char *task,
                    int (*tables)(int64_t, int64_t, kolo_shard_table *))
{
    fixture f = {.count = count,
                 .shards = shards,
                 .height = 8,
                 .width = 8,
                 .channels = 3,
                 .task = task,
                 .tables = tables};
    f.box_form = strcmp(task, "detection") == 0 ? "xywh" : NULL;
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    return f;
}

static void test_boxes(int shards)
{
    fixture f = make(20, shards, "detection", boxes_of);
    kolo_dataset *d;
    is_int(kolo_dataset_open(&d, f.folder), 0, "%d shards with boxes open", shards);
    const kolo_targets *t = d ? kolo_dataset_targets(d) : NULL;
    ok(t && t->boxes == 19 && t->box_offset[20] == 19, "all boxes are there");
    ok(t && strcmp(t->box_form, "xywh") == 0, "and the form of the source's numbers");
    int same = t != NULL;
    for (int64_t i = 0; t && i < 20; i++) {
        same &= t->box_offset[i + 1] - t->box_offset[i] == i % 3 && t->transform[i][1] == (float)i;
        for (int64_t k = 0; k < i % 3; k++) {
            const int64_t at = t->box_offset[i] + k;
            same &= t->box_class[at] == (i + k) % 10 && t->box_id[at] == i * 1000000007 + k &&
                    t->box[at][0] == (float)k && t->box[at][3] == (float)(i % 5 + 2) &&
                    t->box_flags[at] == (k ? KOLO_BOX_CROWD : 0);
        }
    }
    ok(same, "%d shards: every box belongs to its sample", shards);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_tags_and_pairs(void)
{
    fixture f = make(20, 3, "classification,multilabel,pairs", tags_and_pairs_of);
    kolo_dataset *d;
    is_int(kolo_dataset_open(&d, f.folder), 0, "a split with tags and pairs opens");
    const kolo_targets *t = d ? kolo_dataset_targets(d) : NULL;
    int same = t && t->tags == 40;
    for (int64_t i = 0; same && i < 40; i++) same &= t->tag[i] == i % 7 && t->tag_offset[i / 2] == i / 2 * 2;
    ok(same, "tags of every sample");
    ok(t && t->pair_sets == 1 && strcmp(t->pairs[0].name, "view2") == 0 && t->pairs[0].count == 2,
       "one set of pairs");
    ok(t && t->pairs[0].pair[0][1] == 19 && t->pairs[0].pair[1][0] == 7 && t->pairs[0].same[0] == 1 &&
           t->pairs[0].fold[1] == 9,
       "with samples, answers and folds");
    is_text(kolo_dataset_get_info(d)->task, "classification,multilabel,pairs", "the task is told");
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_one_table(void)
{
    fixture f = make(20, 1, "detection", boxes_of);
    char path[512];
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    kolo_shard_table t = {.name = "transform", .type = KOLO_TABLE_F32, .rank = 2, .dim = {-1, 4}};
    void *data;
    is_int(kolo_shard_read_table(path, &t, &data), 1, "one table is read by name");
    ok(data && t.dim[0] == 20 && ((float *)data)[4 * 7] == 7, "with its shape and numbers");
    free(data);
    t = (kolo_shard_table){.name = "transform", .type = KOLO_TABLE_F64, .rank = 2, .dim = {-1, 4}};
    is_int(kolo_shard_read_table(path, &t, &data), KOLO_EINPUT, "another type is refused");
    t = (kolo_shard_table){.name = "novelty", .type = KOLO_TABLE_F32, .rank = 1, .dim = {-1, -1}};
    is_int(kolo_shard_read_table(path, &t, &data), 0, "one that is not there is none");
    fixture_remove(&f);
}

/* Changes one number of a table where it lies in the file. */
static void poke(const char *path, kolo_shard_table t, uint64_t at, const void *data, size_t bytes)
{
    uint64_t place = 0;
    if (kolo_shard_table_place(path, &t, &place) < 0) diag("%s", kolo_error_text());
    int fd = open(path, O_RDWR);
    kolo_file_pwrite(fd, path, data, bytes, place + at);
    close(fd);
}

static void refused(const fixture *f, const char *what, const char *word)
{
    kolo_dataset *d;
    is_int(kolo_dataset_open(&d, f->folder), KOLO_EINPUT, "%s: refused", what);
    ok(strstr(kolo_error_text(), word), "the message says so: %s", kolo_error_text());
    kolo_dataset_close(&d);
}

/* A table that was changed later has another checksum; one that was made wrong has the right one. */
static void seal(const fixture *f, const char *path)
{
    kolo_manifest m;
    kolo_shard_arrays a;
    if (kolo_shard_seal(path) < 0) diag("%s", kolo_error_text());
    kolo_manifest_read(f->folder, &m);
    kolo_shard_inspect(path, NULL, NULL, &a);
    m.shards[0].metadata_crc = a.metadata_crc;
    kolo_manifest_write(f->folder, &m);
    kolo_shard_arrays_free(&a);
    kolo_manifest_free(&m);
}

static void test_damage(void)
{
    fixture f = make(20, 1, "detection", boxes_of);
    char path[512];
    const int32_t big = 10;
    const float bad = NAN;
    const uint64_t far = 21;
    const kolo_shard_table label = {"box_class", KOLO_TABLE_I32, 1, {19, 1}, NULL, NULL},
                           box = {"box", KOLO_TABLE_F32, 2, {19, 4}, NULL, NULL},
                           offset = {"box_offset", KOLO_TABLE_U64, 1, {21, 1}, NULL, NULL};
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    poke(path, label, 8, &big, 4);
    refused(&f, "a class that was changed", "checksum");
    seal(&f, path);
    refused(&f, "a class that does not exist", "class 10");
    poke(path, label, 8, &(int32_t){0}, 4);
    poke(path, box, 16, &bad, 4);
    seal(&f, path);
    refused(&f, "a box without a number", "box[1]");
    poke(path, box, 16, &(float){0}, 4);
    poke(path, offset, 80, &far, 8);
    seal(&f, path);
    refused(&f, "offsets that fall", "box_offset");
    fixture_remove(&f);
}

/* The crc of format 1.0 was over labels, checksums, offsets, states; a 1.0 reader compares it
 * with the manifest's. */
static void test_older_readers(enum kolo_encoding encoding)
{
    fixture f = {.count = 30, .shards = 1, .height = 8, .width = 8, .channels = 3, .encoding = encoding};
    char path[512], text[64];
    kolo_manifest m;
    kolo_shard_arrays a;
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    kolo_manifest_read(f.folder, &m);
    kolo_shard_inspect(path, NULL, NULL, &a);
    uint32_t crc = kolo_crc32c(0, a.labels, 4 * 30);
    crc = kolo_crc32c(crc, a.crcs, 4 * 30);
    if (a.offsets) crc = kolo_crc32c(crc, a.offsets, 8 * 31);
    crc = kolo_crc32c(crc, a.states, 30);
    ok(crc == m.shards[0].metadata_crc, "without tables the checksum is that of format 1.0");
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, false);
    ok(kolo_h5_get_text(file, "task", text, sizeof text) == 0 && strcmp(text, "classification") == 0,
       "the task is the one that 1.0 knows");
    ok(kolo_h5_get_text(file, "tables", text, sizeof text) < 0,
       "and there is nothing that 1.0 does not have");
    H5Fclose(file);
    kolo_h5_unlock();
    kolo_shard_arrays_free(&a);
    kolo_manifest_free(&m);
    fixture_remove(&f);
}

/* A shard and a manifest as format 1.0 had them. */
static void test_old_shard(void)
{
    fixture f = {
        .count = 12, .shards = 1, .height = 8, .width = 8, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
    char path[512], index[512], head[256], *text;
    const uint32_t version[2] = {1, 0};
    kolo_dataset *d;
    if (fixture_make(&f) < 0) diag("%s", kolo_error_text());
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f.folder);
    snprintf(index, sizeof index, "%s/toy-train.index", f.folder);
    kolo_h5_lock();
    hid_t file = kolo_h5_open(path, true);
    kolo_h5_put_u32s(file, "format_version", version, 2);
    H5Adelete(file, "tables_crc32c");
    H5Fclose(file);
    kolo_h5_unlock();
    kolo_file_read(index, &text, NULL);
    char *body = strchr(text, '\n') + 1, *task = strstr(body, "task=classification "),
         *crc = strstr(text, "crc32c=");
    memmove(task, task + strlen("task=classification "), strlen(task + strlen("task=classification ")) + 1);
    snprintf(head, sizeof head, "%.*scrc32c=%08x\n", (int)(crc - text), text,
             kolo_crc32c(0, body, strlen(body)));
    char *old = kolo_format("%s%s", head, body);
    kolo_file_write_atomic(index, old, strlen(old));
    is_int(kolo_dataset_open(&d, f.folder), 0, "a split of format 1.0 opens");
    ok(d && kolo_dataset_targets(d) == NULL && strcmp(kolo_dataset_get_info(d)->task, "classification") == 0,
       "it is for classification, without other targets");
    ok(d && kolo_dataset_codec(d, 3) == KOLO_CODEC_JPEG, "its samples are JPEG files");
    kolo_dataset_close(&d);
    free(old);
    free(text);
    fixture_remove(&f);
}

int main(void)
{
    test_boxes(1);
    test_boxes(4);
    test_tags_and_pairs();
    test_one_table();
    test_damage();
    test_older_readers(KOLO_ENCODING_RAW);
    test_older_readers(KOLO_ENCODING_JPEG);
    test_old_shard();
    return done_testing();
}
