#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "data/dataset.h"
#include "data/shard_file.h"
#include "kolo/error.h"
#include "shards.h"

static const char *const encodings[] = {"raw", "jpeg", "mixed"};

static void print_header(const kolo_dataset *d, const kolo_shard_header *h, const char *options)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(d);
    printf("name        %s\nsplit       %s\nuuid        %s\n", i->name, i->split, i->uuid);
    printf("format      kolo %u.%u, written by %s\n", h->version[0], h->version[1], h->generator);
    printf("samples     %" PRId64 " in %d shard%s, %.1f MB\n", i->count, i->shards, i->shards == 1 ? "" : "s",
           (double)i->bytes / 1e6);
    if (i->encoding == KOLO_ENCODING_RAW) printf("encoding    raw, %d x %d x %d\n", i->height, i->width, i->channels);
    else
        printf("encoding    %s, %s, %.0f bytes on average\n", encodings[i->encoding], i->channels == 1 ? "gray" : "rgb",
               i->count ? (double)i->bytes / (double)i->count : 0);
    printf("order       %s", h->pack_seed ? "shuffled, seed " : "as in the source\n");
    if (h->pack_seed) printf("%" PRIu64 "\n", h->pack_seed);
    printf("mean        ");
    for (int c = 0; c < i->channels; c++) printf("%.6f%s", (double)i->mean[c], c + 1 < i->channels ? ", " : "\n");
    printf("std         ");
    for (int c = 0; c < i->channels; c++) printf("%.6f%s", (double)i->std[c], c + 1 < i->channels ? ", " : "\n");
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

static void print_json(const kolo_dataset *d, const kolo_shard_header *h, const uint64_t *counts)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(d);
    printf("{\"name\":");
    kolo_json_string(stdout, i->name);
    printf(",\"split\":\"%s\",\"uuid\":\"%s\",\"format\":\"%u.%u\",\"encoding\":\"%s\",\"channels\":%d,\"height\":%d,"
           "\"width\":%d,\"samples\":%" PRId64 ",\"shards\":%d,\"bytes\":%" PRIu64 ",\"pack_seed\":%" PRIu64
           ",\"mean\":[",
           i->split, i->uuid, h->version[0], h->version[1], encodings[i->encoding],
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
    printf("]}\n");
}

int shards_info(int argc, char **argv)
{
    const char *folder = NULL;
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0) json = true;
        else if (argv[i][0] == '-' || folder) return kolo_fail(KOLO_ECONFIG, "info: unexpected word %s", argv[i]);
        else folder = argv[i];
    }
    if (!folder) return kolo_fail(KOLO_ECONFIG, "info: which folder?");
    kolo_dataset *d;
    KOLO_TRY(kolo_dataset_open(&d, folder));
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    kolo_shard_header h = {0};
    char options[512];
    uint64_t *counts = kolo_alloc(sizeof *counts * (size_t)info->classes + 8);
    int rc = counts ? kolo_shard_inspect(kolo_dataset_shard_path(d, 0), &h, NULL, NULL) : KOLO_ECONFIG;
    if (rc == 0) rc = kolo_shard_read_note(kolo_dataset_shard_path(d, 0), "options", options, sizeof options);
    if (rc == 0) kolo_dataset_count_classes(d, counts);
    if (rc == 0 && json) print_json(d, &h, counts);
    if (rc == 0 && !json) {
        print_header(d, &h, options);
        print_histogram(d, counts);
    }
    free(counts);
    kolo_dataset_close(&d);
    return rc;
}
