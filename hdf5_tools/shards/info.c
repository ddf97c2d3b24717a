#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/shard/dataset.h"
#include "data/shard/file.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/shards.h"

static const char *const encodings[] = {"raw", "jpeg", "mixed"};

static void print_header(const kolo_dataset *d, const kolo_shard_header *h, const char *options)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(d);
    printf("name        %s\nsplit       %s\nuuid        %s\n", i->name, i->split, i->uuid);
    printf("format      kolo %u.%u, written by %s\n", h->version[0], h->version[1], h->generator);
    const int unsealed = kolo_dataset_unsealed(d);
    if (!unsealed) printf("checksums   of every sample, and of all tables and attributes\n");
    else
        printf("checksums   of every sample; %d of %d shards without one of its tables (kolo-shards reshard "
               "--shards N gives them one)\n",
               unsealed, i->shards);
    printf("samples     %" PRId64 " in %d shard%s, %.1f MB\n", i->count, i->shards, i->shards == 1 ? "" : "s",
           (double)i->bytes / 1e6);
    if (i->encoding == KOLO_ENCODING_RAW)
        printf("encoding    raw, %d x %d x %d\n", i->height, i->width, i->channels);
    else
        printf("encoding    %s, %s, %.0f bytes on average\n", encodings[i->encoding],
               i->channels == 1 ? "gray" : "rgb", i->count ? (double)i->bytes / (double)i->count : 0);
    printf("order       %s", h->pack_seed ? "shuffled, seed " : "as in the source\n");
    if (h->pack_seed) printf("%" PRIu64 "\n", h->pack_seed);
    printf("mean        ");
    for (int c = 0; c < i->channels; c++)
        printf("%.6f%s", (double)i->mean[c], c + 1 < i->channels ? ", " : "\n");
    printf("std         ");
    for (int c = 0; c < i->channels; c++)
        printf("%.6f%s", (double)i->std[c], c + 1 < i->channels ? ", " : "\n");
    if (options[0]) printf("options     %s\n", options);
}

static void print_histogram(const kolo_dataset *d, const uint64_t *counts)
{
    const int classes = kolo_dataset_get_info(d)->classes;
    uint64_t most = 1;
    size_t width = 5;
    for (int c = 0; c < classes; c++) {
        const size_t length = strlen(kolo_dataset_class_name(d, c));
        if (counts[c] > most) most = counts[c];
        if (length > width) width = length < 32 ? length : 32;
    }
    printf("classes     %d\n", classes);
    for (int c = 0; c < classes; c++) {
        printf("%7d  %-*.32s %9" PRIu64 "  ", c, (int)width, kolo_dataset_class_name(d, c), counts[c]);
        for (uint64_t i = 0; i < counts[c] * 40 / most; i++) putchar('#');
        putchar('\n');
    }
}

typedef struct extent { /* smallest, middle and largest of the samples */
    int64_t low, middle, high;
} extent;

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static extent extent_of(int64_t *values, int64_t n)
{
    qsort(values, (size_t)n, sizeof *values, by_number);
    return n ? (extent){values[0], values[n / 2], values[n - 1]} : (extent){0, 0, 0};
}

enum { HEIGHT, WIDTH, BYTES, BOXES, EXTENTS };
static const char *const extent_names[] = {"height", "width", "bytes", "boxes"};

/* BOXES only where there are boxes: 0 0 0 else. */
static int info_measure(const kolo_dataset *d, extent of[EXTENTS])
{
    const int64_t n = kolo_dataset_get_info(d)->count;
    const kolo_targets *t = kolo_dataset_targets(d);
    int64_t *values = kolo_alloc(sizeof *values * (size_t)n * EXTENTS + 8);
    if (!values) return KOLO_ENOMEM;
    for (int64_t i = 0; i < n; i++) {
        int height, width;
        kolo_dataset_size(d, i, &height, &width);
        values[HEIGHT * n + i] = height, values[WIDTH * n + i] = width;
        values[BYTES * n + i] = (int64_t)kolo_dataset_bytes(d, i);
        values[BOXES * n + i] = t && t->box_offset ? t->box_offset[i + 1] - t->box_offset[i] : 0;
    }
    for (int k = 0; k < EXTENTS; k++) of[k] = extent_of(values + k * n, n);
    free(values);
    return 0;
}

static void print_targets(const kolo_dataset *d, const kolo_shard_header *h, const extent of[EXTENTS])
{
    const kolo_targets *t = kolo_dataset_targets(d);
    printf("sizes       height %" PRId64 " to %" PRId64 " (middle %" PRId64 "), width %" PRId64 " to %" PRId64
           " (%" PRId64 "), bytes %" PRId64 " to %" PRId64 " (%" PRId64 ")\n",
           of[HEIGHT].low, of[HEIGHT].high, of[HEIGHT].middle, of[WIDTH].low, of[WIDTH].high,
           of[WIDTH].middle, of[BYTES].low, of[BYTES].high, of[BYTES].middle);
    printf("task        %s\n", h->task);
    if (h->tables[0]) printf("tables      %s\n", h->tables);
    if (t && t->box_offset) {
        int64_t flags[8] = {0}, background = 0;
        static const char *const names[] = {"crowd",    "difficult", "truncated", "group-of",
                                            "occluded", "depiction", "inside",    "outside"};
        for (int64_t k = 0; k < t->boxes; k++)
            for (int f = 0; f < 8; f++) flags[f] += t->box_flags[k] >> f & 1;
        for (int64_t i = 0; i < kolo_dataset_get_info(d)->count; i++)
            background += t->box_offset[i] == t->box_offset[i + 1];
        printf("boxes       %" PRId64 ", at most %" PRId64 " an image, numbers of the source as %s; %" PRId64
               " images without",
               t->boxes, of[BOXES].high, t->box_form, background);
        for (int f = 0; f < 8; f++)
            if (flags[f]) printf("; %" PRId64 " %s", flags[f], names[f]);
        printf("\n");
    }
    if (t && t->tag_offset) printf("tags        %" PRId64 "\n", t->tags);
    for (int s = 0; t && s < t->pair_sets; s++) {
        int64_t same = 0;
        for (int64_t i = 0; i < t->pairs[s].count; i++) same += t->pairs[s].same[i];
        printf("pairs       %s: %" PRId64 ", %" PRId64 " of them of the same class\n", t->pairs[s].name,
               t->pairs[s].count, same);
    }
}

static void print_json_targets(const kolo_dataset *d, const kolo_shard_header *h, const extent of[EXTENTS])
{
    const kolo_targets *t = kolo_dataset_targets(d);
    printf(",\"task\":\"%s\",\"tables\":\"%s\",\"boxes\":%" PRId64 ",\"box_form\":\"%s\",\"tags\":%" PRId64,
           h->task, h->tables, t ? t->boxes : 0, t ? t->box_form : "", t ? t->tags : 0);
    for (int k = 0; k < EXTENTS; k++)
        printf(",\"%s_range\":[%" PRId64 ",%" PRId64 ",%" PRId64 "]", extent_names[k], of[k].low,
               of[k].middle, of[k].high);
    printf(",\"pairs\":{");
    for (int s = 0; t && s < t->pair_sets; s++)
        printf("%s\"%s\":%" PRId64, s ? "," : "", t->pairs[s].name, t->pairs[s].count);
    printf("}}\n");
}

static void print_json(const kolo_dataset *d, const kolo_shard_header *h, const uint64_t *counts)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(d);
    printf("{\"name\":");
    kolo_json_string(stdout, i->name);
    printf(",\"split\":\"%s\",\"uuid\":\"%s\",\"format\":\"%u.%u\",\"unsealed_shards\":%d,\"encoding\":\"%"
           "s\",\"channels\":%d,\"height\":%d,"
           "\"width\":%d,\"samples\":%" PRId64 ",\"shards\":%d,\"bytes\":%" PRIu64 ",\"pack_seed\":%" PRIu64
           ",\"mean\":[",
           i->split, i->uuid, h->version[0], h->version[1], kolo_dataset_unsealed(d), encodings[i->encoding],
           i->channels, i->height, i->width, i->count, i->shards, i->bytes, h->pack_seed);
    for (int c = 0; c < i->channels; c++) printf("%s%.9g", c ? "," : "", (double)i->mean[c]);
    printf("],\"std\":[");
    for (int c = 0; c < i->channels; c++) printf("%s%.9g", c ? "," : "", (double)i->std[c]);
    printf("],\"classes\":[");
    for (int c = 0; c < i->classes; c++) {
        printf("%s{\"name\":", c ? "," : "");
        kolo_json_string(stdout, kolo_dataset_class_name(d, c));
        printf(",\"count\":%" PRIu64 "}", counts[c]);
    }
    printf("]");
}

static int print(const kolo_dataset *d, bool json)
{
    const char *path = kolo_dataset_shard_path(d, 0);
    kolo_shard_header h = {0};
    char options[512];
    extent of[EXTENTS];
    uint64_t *counts = kolo_alloc(sizeof *counts * (size_t)kolo_dataset_get_info(d)->classes + 8);
    int rc = counts ? kolo_shard_inspect(path, &h, NULL, NULL) : KOLO_ENOMEM;
    if (rc == 0) rc = kolo_shard_read_note(path, "options", options, sizeof options);
    if (rc == 0) rc = info_measure(d, of);
    if (rc == 0) kolo_dataset_count_classes(d, counts);
    if (rc == 0 && json) {
        print_json(d, &h, counts);
        print_json_targets(d, &h, of);
    } else if (rc == 0) {
        print_header(d, &h, options);
        print_targets(d, &h, of);
        print_histogram(d, counts);
    }
    free(counts);
    return rc;
}

int shards_info(int argc, char **argv)
{
    const char *folder;
    bool json = false;
    const shards_option options[] = {
        {"--json", NULL, "the same as one line of JSON", SHARDS_FLAG, &json, 0, 0}};
    const shards_line line = {
        "info DIR",
        "What a split is: header, statistics, sizes, boxes, tags, pairs, and a histogram of its classes.",
        options,
        1,
        1,
        1,
        &folder,
        NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    kolo_dataset *d;
    KOLO_TRY(kolo_dataset_open(&d, folder));
    rc = print(d, json);
    kolo_dataset_close(&d);
    return rc;
}
