#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/input.h"
#include "shards/shards.h"

#define BLOCK 64
#define MOST_LINES 20

typedef struct verifying {
    const char *folder, *against;
    int64_t sample, threads;
    bool full, decode, json;
    kolo_dataset *dataset;
    shards_input input;     /* with --against */
    int64_t count;          /* how many samples are looked at */
    shards_reader *readers; /* [threads] */
    kolo_image *images;     /* [threads] */
    pthread_mutex_t lock;   /* of what follows */
    int64_t bad, first_bad, compared, made_anew;
    double seconds;
    int64_t bytes;
} verifying;

static void complain(verifying *v, int64_t sample, const char *what)
{
    char source[512];
    int64_t index;
    const char *path = kolo_dataset_shard_of(v->dataset, sample, &index);
    if (kolo_dataset_source(v->dataset, sample, source, sizeof source) < 0) source[0] = 0;
    pthread_mutex_lock(&v->lock);
    if (v->bad++ < MOST_LINES)
        fprintf(stderr, "%s: sample %" PRId64 " (of the split: %" PRId64 ", made from %s): %s\n", path, index,
                sample, source[0] ? kolo_plain(source) : "?", what);
    if (v->bad == 1 || sample < v->first_bad) v->first_bad = sample;
    pthread_mutex_unlock(&v->lock);
}

static void check_crc(verifying *v, const shards_reader *r, int64_t sample)
{
    char text[96];
    const uint32_t crc = kolo_crc32c(0, r->data, r->bytes), want = kolo_dataset_crc(v->dataset, sample);
    snprintf(text, sizeof text, "checksum %08x, stored %08x: the bytes were changed", crc, want);
    if (crc != want) complain(v, sample, text);
}

/* Every box lies in its image; one of which nothing is left is a point. */
static void check_boxes(verifying *v, int64_t sample)
{
    const kolo_targets *t = kolo_dataset_targets(v->dataset);
    int height, width;
    if (!t || !t->box_offset) return;
    kolo_dataset_size(v->dataset, sample, &height, &width);
    for (int64_t k = t->box_offset[sample]; k < t->box_offset[sample + 1]; k++) {
        const float *b = t->box[k];
        const bool inside = b[0] >= 0 && b[1] >= 0 && b[2] <= (float)width && b[3] <= (float)height;
        const bool whole = (t->box_flags[k] & KOLO_BOX_OUTSIDE) || (b[2] > b[0] && b[3] > b[1]);
        char text[160];
        snprintf(text, sizeof text, "box %" PRId64 " (%.2f %.2f %.2f %.2f) %s an image of %d x %d",
                 k - t->box_offset[sample], (double)b[0], (double)b[1], (double)b[2], (double)b[3],
                 inside ? "is empty, in" : "leaves", width, height);
        if (!inside || !whole) complain(v, sample, text);
    }
}

static void check_image(verifying *v, shards_reader *r, kolo_image *p, int64_t sample)
{
    int height, width;
    if (shards_decode(r, v->dataset, sample, 0, p) < 0) {
        complain(v, sample, kolo_error_text());
        return;
    }
    kolo_dataset_size(v->dataset, sample, &height, &width);
    char text[96];
    snprintf(text, sizeof text, "is %d x %d pixels, /size says %d x %d", p->width, p->height, width, height);
    if (p->height != height || p->width != width) complain(v, sample, text);
}

/* A JPEG file whose bytes were kept is the file that it was made from. */
static int check_source(verifying *v, const shards_reader *r, int64_t sample)
{
    int64_t index, before = 0;
    int part = 0;
    char path[4096];
    kolo_dataset_shard_of(v->dataset, sample, &index);
    while (before + v->input.parts[part].header.count <= sample)
        before += v->input.parts[part++].header.count;
    const bool kept = v->input.parts[part].arrays.states[index] == KOLO_SAMPLE_OK &&
                      kolo_dataset_codec(v->dataset, sample) == KOLO_CODEC_JPEG;
    pthread_mutex_lock(&v->lock);
    v->compared += kept, v->made_anew += !kept;
    pthread_mutex_unlock(&v->lock);
    if (!kept) return 0;
    KOLO_TRY(kolo_dataset_source(v->dataset, sample, path, sizeof path));
    char *data = NULL, *full = path[0] == '/' ? kolo_strdup(path) : kolo_format("%s/%s", v->against, path);
    size_t bytes = 0;
    if (!full) return KOLO_ENOMEM;
    if (kolo_file_read(full, &data, &bytes) < 0) complain(v, sample, kolo_error_text());
    else if (bytes != r->bytes || memcmp(data, r->data, bytes) != 0)
        complain(v, sample, "is not the file of this name");
    free(data);
    free(full);
    return 0;
}

static int check_block(void *context, int thread, int64_t first, int64_t last, int64_t *bytes)
{
    verifying *v = context;
    shards_reader *r = &v->readers[thread];
    const int64_t all = kolo_dataset_get_info(v->dataset)->count;
    for (int64_t i = first; i < last; i++) {
        const int64_t sample = (int64_t)((__int128)i * all / v->count);
        check_boxes(v, sample);
        if (shards_read_bytes(r, v->dataset, sample) < 0) {
            complain(v, sample, kolo_error_text());
            continue;
        }
        check_crc(v, r, sample);
        if (v->decode) check_image(v, r, &v->images[thread], sample);
        if (v->against) KOLO_TRY(check_source(v, r, sample));
        *bytes += (int64_t)r->bytes;
    }
    return 0;
}

/* /classes/count against labels, boxes or tags. */
static int check_counts(const kolo_dataset *d)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    uint64_t *have = kolo_alloc(sizeof *have * (size_t)info->classes + 8),
             *want = kolo_alloc(sizeof *want * (size_t)info->classes + 8);
    char **names = NULL;
    int rc = have && want ? 0 : KOLO_ENOMEM;
    if (rc == 0) kolo_dataset_count_classes(d, have);
    for (int s = 0; rc == 0 && s < info->shards; s++) {
        rc = kolo_shard_read_classes(kolo_dataset_shard_path(d, s), info->classes, &names, want);
        for (int c = 0; rc == 0 && c < info->classes; c++)
            if (have[c] != want[c])
                rc = kolo_fail(KOLO_EINPUT,
                               "%s: class %s has %" PRIu64 " samples, /classes/count says %" PRIu64,
                               kolo_dataset_shard_path(d, s), names[c], have[c], want[c]);
        free(names);
        names = NULL;
    }
    free(have);
    free(want);
    return rc;
}

static void report(const verifying *v)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(v->dataset);
    const kolo_targets *t = kolo_dataset_targets(v->dataset);
    const double speed = v->seconds > 0 ? (double)v->bytes / v->seconds / 1e9 : 0;
    if (v->json) {
        printf("{\"whole\":%s,\"samples\":%" PRId64 ",\"of\":%" PRId64 ",\"bad\":%" PRId64
               ",\"bytes\":%" PRId64 ",\"decoded\":%s,\"compared\":%" PRId64
               ",\"unsealed_shards\":%d,\"seconds\":%.3f}\n",
               v->bad ? "false" : "true", v->count, info->count, v->bad, v->bytes,
               v->decode ? "true" : "false", v->compared, kolo_dataset_unsealed(v->dataset), v->seconds);
        return;
    }
    if (v->bad) return;
    printf("%s-%s: ", info->name, info->split);
    if (v->count < info->count) printf("%" PRId64 " of ", v->count);
    printf("%" PRId64 " samples in %d shard%s are whole (%.1f MB, %.2f GB/s)", info->count, info->shards,
           info->shards == 1 ? "" : "s", (double)v->bytes / 1e6, speed);
    if (v->decode) printf("; all of them decode");
    if (t && t->boxes) printf("; %" PRId64 " boxes", t->boxes);
    if (t && t->tags) printf("; %" PRId64 " tags", t->tags);
    if (v->against)
        printf("; %" PRId64 " are the source's files, %" PRId64 " were made anew and are not compared",
               v->compared, v->made_anew);
    const int unsealed = kolo_dataset_unsealed(v->dataset);
    if (unsealed)
        printf("; %d of %d shards without a checksum of its tables (format 1.0 or 1.1; kolo-shards reshard "
               "--shards N gives them one)",
               unsealed, info->shards);
    printf("\n");
}

static int verify(verifying *v)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(v->dataset);
    v->count = v->sample && v->sample < info->count ? v->sample : info->count;
    v->readers = kolo_alloc(sizeof *v->readers * (size_t)v->threads);
    v->images = kolo_alloc(sizeof *v->images * (size_t)v->threads);
    if (!v->readers || !v->images) return KOLO_ENOMEM;
    if (v->against) KOLO_TRY(shards_input_load(&v->input, v->dataset, 0));
    shards_work work = {.what = "verifying",
                        .total = v->count,
                        .block = BLOCK,
                        .threads = (int)v->threads,
                        .run = check_block,
                        .context = v};
    KOLO_TRY(shards_run(&work));
    v->seconds = work.seconds;
    v->bytes = work.bytes;
    if (!v->bad) KOLO_TRY(check_counts(v->dataset));
    report(v);
    if (!v->bad) return 0;
    int64_t index;
    const char *path = kolo_dataset_shard_of(v->dataset, v->first_bad, &index);
    return kolo_fail(KOLO_EINPUT,
                     "%" PRId64 " fault%s in %" PRId64 " samples, first %s sample %" PRId64
                     "; copy the shard again or pack again",
                     v->bad, v->bad == 1 ? "" : "s", v->count, path, index);
}

int shards_verify(int argc, char **argv)
{
    verifying v = {.threads = kolo_cpu_count()};
    const shards_option options[] = {
        {"--sample", "N", "only N samples, spread evenly [all]", SHARDS_NUMBER, &v.sample, 1, INT64_MAX},
        {"--full", NULL, "all samples, which is what it does without --sample", SHARDS_FLAG, &v.full, 0, 0},
        {"--decode", NULL, "decode every image too, and compare its size", SHARDS_FLAG, &v.decode, 0, 0},
        {"--against", "SRC", "compare kept JPEG files with those below this folder", SHARDS_TEXT, &v.against,
         0, 0},
        {"--threads", "T", "threads [all CPUs]", SHARDS_NUMBER, &v.threads, 1, 1024},
        {"--json", NULL, "the result as a line of JSON", SHARDS_FLAG, &v.json, 0, 0}};
    const shards_line line = {
        "verify DIR",
        "Checks manifest, headers and tables of all shards (checksums, offsets that rise, classes in range), "
        "then every\n"
        "sample: its checksum, and that its boxes lie in the image. Exit status 2 where anything differs.",
        options,
        (int)(sizeof options / sizeof *options),
        1,
        1,
        &v.folder,
        NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (v.full && v.sample) return kolo_fail(KOLO_ECONFIG, "verify: either --full or --sample N");
    KOLO_TRY(kolo_dataset_open(&v.dataset, v.folder)); /* formats, uuids, positions, states, tables */
    pthread_mutex_init(&v.lock, NULL);
    rc = verify(&v);
    pthread_mutex_destroy(&v.lock);
    for (int64_t i = 0; i < v.threads; i++) {
        if (v.readers) shards_reader_free(&v.readers[i]);
        if (v.images) kolo_image_free(&v.images[i]);
    }
    if (v.input.dataset) shards_input_free(&v.input);
    free(v.readers);
    free(v.images);
    kolo_dataset_close(&v.dataset);
    return rc;
}
