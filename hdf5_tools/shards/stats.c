#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/file.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/chart.h"
#include "shards/shards.h"
#include "shards/tally.h"

#define MOST_CHARTS 12

typedef struct counting {
    const char *folder, *out;
    int64_t sample, threads;
    bool json;
    kolo_dataset *dataset;
    int64_t count; /* samples that are decoded */
    shards_reader *readers;
    kolo_image *images;
    shards_tally *tallies; /* [threads] */
    kolo_shard_stats stats, stored;
    shards_chart charts[MOST_CHARTS];
    int chart_count;
} counting;

static int count_block(void *context, int thread, int64_t first, int64_t last, int64_t *bytes)
{
    counting *c = context;
    shards_reader *r = &c->readers[thread];
    kolo_image *p = &c->images[thread];
    for (int64_t i = first; i < last; i++) {
        const int64_t sample = (int64_t)((__int128)i * kolo_dataset_get_info(c->dataset)->count / c->count);
        KOLO_TRY(shards_read_bytes(r, c->dataset, sample));
        if (kolo_dataset_check_bytes(c->dataset, sample, r->data) < 0)
            return kolo_fail_in(KOLO_EINPUT, "%s: sample %" PRId64 ": ",
                                kolo_dataset_shard_of(c->dataset, sample, NULL), sample);
        KOLO_TRY(shards_decode(r, c->dataset, sample, 0, p));
        shards_tally_add(&c->tallies[thread], p->pixels, (size_t)p->height * (size_t)p->width, p->channels);
        *bytes += (int64_t)r->bytes;
    }
    return 0;
}

/* ---- charts -------------------------------------------------------------------------------------------- */

static int chart_classes(counting *c)
{
    const int n = kolo_dataset_get_info(c->dataset)->classes;
    shards_chart *chart = &c->charts[c->chart_count++];
    KOLO_TRY(shards_chart_create(chart, "classes", n));
    kolo_dataset_count_classes(c->dataset, chart->count);
    for (int k = 0; k < n; k++)
        snprintf(chart->label[k], sizeof *chart->label, "%.31s", kolo_dataset_class_name(c->dataset, k));
    return 0;
}

static int chart_values(counting *c)
{
    static const char *const titles[] = {"values of channel 1 (red, gray)", "values of channel 2 (green)",
                                         "values of channel 3 (blue)"};
    for (int ch = 0; ch < kolo_dataset_get_info(c->dataset)->channels; ch++) {
        shards_chart *chart = &c->charts[c->chart_count++];
        KOLO_TRY(shards_chart_create(chart, titles[ch], 16));
        for (int k = 0; k < 16; k++)
            snprintf(chart->label[k], sizeof *chart->label, "%d-%d", 16 * k, 16 * k + 15);
        for (int v = 0; v < 256; v++) chart->count[v / 16] += c->tallies[0].value[ch][v];
    }
    return 0;
}

enum measure { HEIGHT, WIDTH, BYTES, BOXES, MEASURES };

static double measure_of(const kolo_dataset *d, enum measure what, int64_t sample)
{
    const kolo_targets *t = kolo_dataset_targets(d);
    int height, width;
    kolo_dataset_size(d, sample, &height, &width);
    switch (what) {
    case HEIGHT: return height;
    case WIDTH: return width;
    case BYTES: return (double)kolo_dataset_bytes(d, sample);
    case BOXES: return (double)(t->box_offset[sample + 1] - t->box_offset[sample]);
    case MEASURES: break;
    }
    return 0;
}

static int chart_sizes(counting *c)
{
    static const char *const titles[] = {"height in pixels", "width in pixels", "bytes stored",
                                         "boxes of an image"};
    const kolo_targets *t = kolo_dataset_targets(c->dataset);
    const int64_t n = kolo_dataset_get_info(c->dataset)->count;
    double *values = kolo_alloc(sizeof *values * (size_t)n + 8);
    int rc = values ? 0 : KOLO_ENOMEM;
    for (int m = 0; m < MEASURES && rc == 0; m++) {
        if (m == BOXES && !(t && t->box_offset)) continue;
        for (int64_t i = 0; i < n; i++) values[i] = measure_of(c->dataset, (enum measure)m, i);
        rc = shards_chart_of(&c->charts[c->chart_count++], titles[m], values, n, true);
    }
    free(values);
    return rc;
}

/* Root of a box's area over that of the image; boxes of which nothing is stored do not count. */
static int chart_boxes(counting *c)
{
    const kolo_targets *t = kolo_dataset_targets(c->dataset);
    if (!t || !t->box_offset) return 0;
    double *values = kolo_alloc(sizeof *values * (size_t)t->boxes + 8);
    if (!values) return KOLO_ENOMEM;
    int64_t n = 0;
    for (int64_t i = 0; i < kolo_dataset_get_info(c->dataset)->count; i++) {
        int height, width;
        kolo_dataset_size(c->dataset, i, &height, &width);
        for (int64_t k = t->box_offset[i]; k < t->box_offset[i + 1]; k++) {
            const float *b = t->box[k];
            if (t->box_flags[k] & KOLO_BOX_OUTSIDE) continue;
            values[n++] = sqrt((double)(b[2] - b[0]) * (double)(b[3] - b[1]) / ((double)height * width));
        }
    }
    const int rc = shards_chart_of(&c->charts[c->chart_count++], "side of boxes, as a part of the image's",
                                   values, n, false);
    free(values);
    return rc;
}

static void print_numbers(const char *name, const double *values, int n)
{
    printf("%-18s", name);
    for (int i = 0; i < n; i++) printf("%s%.6f", i ? ", " : "", values[i]);
    printf("\n");
}

static void print_text(const counting *c)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(c->dataset);
    printf("%s-%s: %" PRId64 " of %" PRId64 " images, %.0f pixels\n", i->name, i->split, c->count, i->count,
           c->stats.count[0]);
    print_numbers("mean", c->stats.mean, i->channels);
    print_numbers("std", c->stats.std, i->channels);
    print_numbers("min", c->stats.min, i->channels);
    print_numbers("max", c->stats.max, i->channels);
    print_numbers("mean as stored", c->stored.mean, i->channels);
    print_numbers("std as stored", c->stored.std, i->channels);
    for (int k = 0; k < c->chart_count; k++) shards_chart_print(&c->charts[k]);
}

static void json_numbers(const char *name, const double *values, int n)
{
    printf(",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) putchar(',');
        kolo_json_number(stdout, values[i], 17);
    }
    putchar(']');
}

static void print_json(const counting *c)
{
    const kolo_dataset_info *i = kolo_dataset_get_info(c->dataset);
    printf("{\"samples\":%" PRId64 ",\"of\":%" PRId64 ",\"pixels\":%.0f", c->count, i->count,
           c->stats.count[0]);
    json_numbers("mean", c->stats.mean, i->channels);
    json_numbers("std", c->stats.std, i->channels);
    json_numbers("min", c->stats.min, i->channels);
    json_numbers("max", c->stats.max, i->channels);
    json_numbers("stored_mean", c->stored.mean, i->channels);
    json_numbers("stored_std", c->stored.std, i->channels);
    printf(",\"histograms\":[");
    for (int k = 0; k < c->chart_count; k++) {
        if (k) putchar(',');
        shards_chart_json(&c->charts[k]);
    }
    printf("]}\n");
}

static int stats(counting *c)
{
    const int64_t all = kolo_dataset_get_info(c->dataset)->count;
    c->count = c->sample && c->sample < all ? c->sample : all;
    c->readers = kolo_alloc(sizeof *c->readers * (size_t)c->threads);
    c->images = kolo_alloc(sizeof *c->images * (size_t)c->threads);
    c->tallies = kolo_alloc(sizeof *c->tallies * (size_t)c->threads);
    if (!c->readers || !c->images || !c->tallies) return KOLO_ENOMEM;
    KOLO_TRY(kolo_shard_read_stats(kolo_dataset_shard_path(c->dataset, 0), &c->stored));
    shards_work work = {.what = "counting",
                        .total = c->count,
                        .block = 16,
                        .threads = (int)c->threads,
                        .run = count_block,
                        .context = c};
    KOLO_TRY(shards_run(&work));
    for (int64_t t = 1; t < c->threads; t++) shards_tally_join(&c->tallies[0], &c->tallies[t]);
    shards_tally_stats(&c->tallies[0], kolo_dataset_get_info(c->dataset)->channels, &c->stats);
    KOLO_TRY(chart_classes(c));
    KOLO_TRY(chart_sizes(c));
    KOLO_TRY(chart_boxes(c));
    KOLO_TRY(chart_values(c));
    if (c->json) print_json(c);
    else print_text(c);
    if (!c->out) return 0;
    kolo_image sheet = {0};
    int rc = shards_chart_draw(c->charts, c->chart_count, &sheet);
    if (rc == 0) rc = kolo_image_write_png(&sheet, c->out);
    kolo_image_free(&sheet);
    return rc;
}

int shards_stats(int argc, char **argv)
{
    counting c = {.threads = kolo_cpu_count()};
    const shards_option options[] = {
        {"--sample", "N", "decode only N images, spread evenly [all]", SHARDS_NUMBER, &c.sample, 1,
         INT64_MAX},
        {"--out", "FILE.png", "the histograms as an image", SHARDS_TEXT, &c.out, 0, 0},
        {"--threads", "T", "threads [all CPUs]", SHARDS_NUMBER, &c.threads, 1, 1024},
        {"--json", NULL, "the same as one line of JSON", SHARDS_FLAG, &c.json, 0, 0}};
    const shards_line line = {
        "stats DIR",
        "Mean and deviation counted anew over all pixels, beside those that are stored, and "
        "histograms: classes, sizes,\n"
        "boxes, values.",
        options,
        (int)(sizeof options / sizeof *options),
        1,
        1,
        &c.folder,
        NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    if (c.out && !shards_ends_with(c.out, ".png"))
        return kolo_fail(KOLO_ECONFIG, "stats: --out %s: the name must end in .png", c.out);
    KOLO_TRY(kolo_dataset_open(&c.dataset, c.folder));
    rc = stats(&c);
    for (int64_t i = 0; i < c.threads; i++) {
        if (c.readers) shards_reader_free(&c.readers[i]);
        if (c.images) kolo_image_free(&c.images[i]);
    }
    for (int k = 0; k < c.chart_count; k++) shards_chart_free(&c.charts[k]);
    free(c.readers);
    free(c.images);
    free(c.tallies);
    kolo_dataset_close(&c.dataset);
    return rc;
}
