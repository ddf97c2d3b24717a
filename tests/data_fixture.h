/* Makes small splits for tests: raw or JPEG samples whose content follows from their number. */
#ifndef TESTS_DATA_FIXTURE_H
#define TESTS_DATA_FIXTURE_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/image/jpeg.h"
#include "data/shard/file.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"

typedef struct fixture {
    char folder[256];
    int64_t count;
    int shards, height, width, channels, classes;
    enum kolo_encoding encoding;
    int orientation; /* EXIF, put into every JPEG; 0: none */
    /* JPEG: makes sample number i instead; *blob is freed here */
    int (*encode)(int64_t i, uint8_t **blob, size_t *bytes);
    const char *task, *box_form;
    /* Fills in what samples first .. first + n - 1 have beside their label; returns how many tables. Their
     * data are freed here. */
    int (*tables)(int64_t first, int64_t n, kolo_shard_table *tables);
} fixture;

/* Smooth, so that JPEG keeps it nearly; different for every sample. */
static inline void fixture_pixels(const fixture *f, int64_t sample, uint8_t *pixels)
{
    for (int y = 0; y < f->height; y++)
        for (int x = 0; x < f->width; x++)
            for (int c = 0; c < f->channels; c++)
                *pixels++ = (uint8_t)((sample * 37 + y * 3 + x * (c + 1) * 2 + c * 50) % 251);
}

/* Puts an EXIF block that holds only the orientation behind the start marker. */
static inline void fixture_orient(uint8_t **data, size_t *bytes, int orientation)
{
    const uint8_t block[] = {0xFF, 0xE1, 0, 34,  'E', 'x', 'i', 'f', 0, 0,
                             'M',  'M',  0, '*', 0,   0,   0,   8,   0, 1,
                             0x01, 0x12, 0, 3,   0,   0,   0,   1,   0, (uint8_t)orientation,
                             0,    0,    0, 0,   0,   0};
    uint8_t *with = malloc(*bytes + sizeof block);
    memcpy(with, *data, 2);
    memcpy(with + 2, block, sizeof block);
    memcpy(with + 2 + sizeof block, *data + 2, *bytes - 2);
    free(*data);
    *data = with;
    *bytes += sizeof block;
}

static inline int fixture_shard(const fixture *f, kolo_manifest *m, int s)
{
    const int64_t first = f->count * s / f->shards, n = f->count * (s + 1) / f->shards - first;
    const char *const names[] = {"c00", "c01", "c02", "c03", "c04", "c05", "c06", "c07", "c08", "c09"};
    uint64_t counts[10] = {0}, *offsets = kolo_alloc(8 * (size_t)(n + 1)),
             *sources = kolo_alloc(8 * (size_t)(n + 1));
    int32_t *labels = kolo_alloc(4 * (size_t)n + 8);
    int64_t *ids = kolo_alloc(8 * (size_t)n + 8);
    uint32_t *crcs = kolo_alloc(4 * (size_t)n + 8);
    uint8_t **blobs = kolo_alloc(sizeof *blobs * (size_t)n + 8);
    char *text = kolo_alloc((size_t)n * 16 + 1);
    kolo_image image = {0};
    kolo_image_shape(&image, f->height, f->width, f->channels);
    const size_t raw = (size_t)f->height * (size_t)f->width * (size_t)f->channels;
    for (int64_t i = 0; i < n; i++) {
        size_t bytes = raw, capacity = 0;
        labels[i] = (int32_t)((first + i) % f->classes);
        ids[i] = first + i;
        sources[i + 1] =
            sources[i] + (uint64_t)sprintf(text + sources[i], "pic%06lld", (long long)(first + i));
        fixture_pixels(f, first + i, image.pixels);
        if (f->encoding == KOLO_ENCODING_JPEG && f->encode) {
            if (f->encode(first + i, &blobs[i], &bytes) < 0) return -1;
        } else if (f->encoding == KOLO_ENCODING_JPEG) {
            if (kolo_jpeg_encode(&image, 95, &blobs[i], &capacity, &bytes) < 0) return -1;
            if (f->orientation) fixture_orient(&blobs[i], &bytes, f->orientation);
        } else {
            blobs[i] = malloc(raw);
            memcpy(blobs[i], image.pixels, raw);
        }
        crcs[i] = kolo_crc32c(0, blobs[i], bytes);
        offsets[i + 1] = offsets[i] + bytes;
    }
    for (int64_t i = 0; i < f->count; i++) counts[i % f->classes]++;
    kolo_shard_spec spec = {.dataset = "toy",
                            .split = "train",
                            .generator = "test",
                            .encoding = f->encoding,
                            .channels = f->channels,
                            .height = f->height,
                            .width = f->width,
                            .count = n,
                            .first = first,
                            .total = f->count,
                            .shard = s,
                            .shards = f->shards,
                            .classes = f->classes,
                            .class_names = names,
                            .class_counts = counts,
                            .labels = labels,
                            .ids = ids,
                            .offsets = offsets,
                            .sources = text,
                            .source_offsets = sources,
                            .rejects = "",
                            .task = f->task,
                            .box_form = f->box_form};
    kolo_shard_table tables[KOLO_SHARD_MOST_TABLES] = {0};
    spec.tables = tables;
    spec.table_count = f->tables ? f->tables(first, n, tables) : 0;
    kolo_manifest_shard *e = &m->shards[s];
    char path[512];
    kolo_shard_places p;
    kolo_shard_header h;
    kolo_shard_arrays a;
    const kolo_shard_stats stats = {.mean = {.5, .5, .5}, .std = {.25, .25, .25}};
    snprintf(e->file, sizeof e->file, "toy-train-%05d-of-%05d.h5", s, f->shards);
    snprintf(path, sizeof path, "%s/%s", f->folder, e->file);
    KOLO_TRY(kolo_shard_create(path, &spec));
    KOLO_TRY(kolo_shard_inspect(path, NULL, &p, NULL));
    int fd = open(path, O_RDWR);
    uint8_t *states = malloc((size_t)n + 1);
    memset(states, KOLO_SAMPLE_OK, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++)
        KOLO_TRY(kolo_file_pwrite(fd, path, blobs[i], offsets[i + 1] - offsets[i], p.data + offsets[i]));
    KOLO_TRY(kolo_file_pwrite(fd, path, crcs, 4 * (size_t)n, p.crc));
    KOLO_TRY(kolo_file_pwrite(fd, path, states, (size_t)n, p.state));
    close(fd);
    KOLO_TRY(kolo_shard_complete(path, "00000000-0000-0000-0000-000000000001", &stats));
    KOLO_TRY(kolo_shard_inspect(path, &h, NULL, &a));
    e->count = n, e->first = first, e->bytes = h.bytes, e->metadata_crc = a.metadata_crc;
    m->info.bytes += h.bytes;
    kolo_shard_arrays_free(&a);
    for (int64_t i = 0; i < n; i++) free(blobs[i]);
    free(blobs), free(offsets), free(sources), free(labels), free(ids), free(crcs), free(text), free(states);
    for (int i = 0; i < spec.table_count; i++) free((void *)tables[i].data);
    kolo_image_free(&image);
    return 0;
}

/* Fills f->folder (a fresh temporary folder). 0 or negative. */
static inline int fixture_make(fixture *f)
{
    kolo_manifest m = {
        .info = {.name = "toy", .split = "train", .uuid = "00000000-0000-0000-0000-000000000001"}};
    snprintf(f->folder, sizeof f->folder, "%s/kolo-test-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(f->folder)) return -1;
    if (f->classes == 0) f->classes = 10;
    m.info.encoding = f->encoding, m.info.channels = f->channels, m.info.count = f->count,
    m.info.classes = f->classes, m.info.shards = f->shards;
    snprintf(m.info.task, sizeof m.info.task, "%s", f->task ? f->task : "classification");
    if (f->encoding == KOLO_ENCODING_RAW) m.info.height = f->height, m.info.width = f->width;
    for (int c = 0; c < 3; c++) m.info.mean[c] = .5f, m.info.std[c] = .25f;
    m.shards = kolo_alloc(sizeof *m.shards * (size_t)f->shards);
    for (int s = 0; s < f->shards; s++) KOLO_TRY(fixture_shard(f, &m, s));
    int rc = kolo_manifest_write(f->folder, &m);
    kolo_manifest_free(&m);
    return rc;
}

static inline void fixture_remove(fixture *f) { kolo_folder_remove(f->folder); }

/* Of a split of one shard: bytes of these samples' JPEG files are overwritten, behind their first few. */
static inline void fixture_damage(const fixture *f, int n, const int *sample)
{
    char path[512];
    kolo_shard_places p;
    kolo_shard_arrays a;
    uint8_t junk[64];
    memset(junk, 0xFF, sizeof junk);
    snprintf(path, sizeof path, "%s/toy-train-00000-of-00001.h5", f->folder);
    if (kolo_shard_inspect(path, NULL, &p, &a) < 0) {
        printf("Bail out! %s\n", kolo_error_text());
        exit(1);
    }
    int fd = open(path, O_RDWR);
    for (int i = 0; i < n; i++)
        kolo_file_pwrite(fd, path, junk, sizeof junk, p.data + a.offsets[sample[i]] + 20);
    close(fd);
    kolo_shard_arrays_free(&a);
}

#endif
