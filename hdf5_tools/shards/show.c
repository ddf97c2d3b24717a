#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/augment/augment.h"
#include "data/image/draw.h"
#include "data/image/jpeg.h"
#include "data/shard/dataset.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "shards/shards.h"

typedef struct show {
    const char *folder, *out;
    int64_t index, count;
    bool plain;
    kolo_dataset *dataset;
    shards_reader reader;
    kolo_resampler *resampler;
} show;

/* Every box in the colour of its class, with its name. */
static void draw_boxes(const show *s, int64_t sample, kolo_image *p)
{
    const kolo_targets *t = kolo_dataset_targets(s->dataset);
    if (s->plain || !t || !t->box_offset) return;
    for (int64_t k = t->box_offset[sample]; k < t->box_offset[sample + 1]; k++) {
        const float *b = t->box[k];
        if (t->box_flags[k] & KOLO_BOX_OUTSIDE) continue;
        char text[64];
        snprintf(text, sizeof text, "%.40s%s", kolo_dataset_class_name(s->dataset, t->box_class[k]),
                 t->box_flags[k] & KOLO_BOX_CROWD ? " (crowd)" : "");
        kolo_draw_box(p, (double[]){(double)b[0], (double)b[1], (double)b[2], (double)b[3]}, t->box_class[k],
                      text);
    }
}

/* Decoded, upright, in colour, with its boxes. */
static int show_load(show *s, int64_t sample, kolo_image *p)
{
    KOLO_TRY(shards_read_bytes(&s->reader, s->dataset, sample));
    KOLO_TRY(shards_decode(&s->reader, s->dataset, sample, 3, p));
    draw_boxes(s, sample, p);
    return 0;
}

static bool has_boxes(const show *s, int64_t sample)
{
    const kolo_targets *t = kolo_dataset_targets(s->dataset);
    return !s->plain && t && t->box_offset && t->box_offset[sample + 1] > t->box_offset[sample];
}

/* A JPEG sample on which nothing is drawn goes out as its stored bytes. */
static int save_jpeg(const show *s, int64_t sample, const kolo_image *p)
{
    if (sample >= 0 && kolo_dataset_codec(s->dataset, sample) == KOLO_CODEC_JPEG && !has_boxes(s, sample))
        return kolo_file_write_atomic(s->out, s->reader.data, s->reader.bytes);
    uint8_t *data = NULL;
    size_t capacity = 0, bytes = 0;
    int rc = kolo_jpeg_encode(p, 92, &data, &capacity, &bytes);
    if (rc == 0) rc = kolo_file_write_atomic(s->out, data, bytes);
    free(data);
    return rc;
}

static int save(const show *s, int64_t sample, const kolo_image *p)
{
    if (shards_ends_with(s->out, ".png")) return kolo_image_write_png(p, s->out);
    if (shards_ends_with(s->out, ".jpg") || shards_ends_with(s->out, ".jpeg")) return save_jpeg(s, sample, p);
    return kolo_fail(KOLO_ECONFIG, "show: --out %s: the name must end in .png or .jpg", s->out);
}

static int fit(const show *s, const kolo_image *p, int height, int width, kolo_image *to)
{
    const kolo_resize q = {.height = p->height,
                           .width = p->width,
                           .full_height = height,
                           .full_width = width,
                           .rows = height,
                           .columns = width};
    KOLO_TRY(kolo_image_shape(to, height, width, 3));
    return kolo_resample(s->resampler, p, &q, to->pixels, (size_t)width * 3);
}

/* Two pixels a character by the upper half block, in 24-bit colour; without a terminal in plain
 * characters. */
static int print(const show *s, const kolo_image *p)
{
    static const char ramp[] = " .:-=+*#%@";
    const bool color = isatty(STDOUT_FILENO);
    kolo_image small = {0};
    int width = p->width < 64 ? p->width : 64, height = (int)((int64_t)p->height * width / p->width) & ~1;
    if (height < 2) height = 2;
    if (height > 96) width = width * 96 / height, height = 96;
    if (width < 1) width = 1;
    KOLO_TRY(fit(s, p, height, width, &small));
    for (int y = 0; y < height; y += 2) {
        for (int x = 0; x < width; x++) {
            const uint8_t *a = small.pixels + 3 * ((size_t)y * (size_t)width + (size_t)x),
                          *b = a + 3 * (size_t)width;
            if (color)
                printf("\033[38;2;%d;%d;%dm\033[48;2;%d;%d;%dm\xe2\x96\x80", a[0], a[1], a[2], b[0], b[1],
                       b[2]);
            else putchar(ramp[(a[0] + a[1] + a[2] + b[0] + b[1] + b[2]) * 9 / (6 * 255)]);
        }
        fputs(color ? "\033[0m\n" : "\n", stdout);
    }
    kolo_image_free(&small);
    return 0;
}

static void show_print(const show *s, const kolo_image *p, const char *source)
{
    const int label = kolo_dataset_label(s->dataset, s->index);
    const kolo_targets *t = kolo_dataset_targets(s->dataset);
    printf("sample %" PRId64 ": ", s->index);
    if (label >= 0) printf("%s (label %d), ", kolo_dataset_class_name(s->dataset, label), label);
    printf("%d x %d, %zu bytes, from %s\n", p->width, p->height, kolo_dataset_bytes(s->dataset, s->index),
           source);
    for (int64_t k = t && t->box_offset ? t->box_offset[s->index] : 0;
         t && t->box_offset && k < t->box_offset[s->index + 1]; k++)
        printf("  box %s%s: %.1f %.1f to %.1f %.1f\n", kolo_dataset_class_name(s->dataset, t->box_class[k]),
               t->box_flags[k] & KOLO_BOX_OUTSIDE ? " (outside)"
               : t->box_flags[k] & KOLO_BOX_CROWD ? " (crowd)"
                                                  : "",
               (double)t->box[k][0], (double)t->box[k][1], (double)t->box[k][2], (double)t->box[k][3]);
    for (int64_t k = t && t->tag_offset ? t->tag_offset[s->index] : 0;
         t && t->tag_offset && k < t->tag_offset[s->index + 1]; k++)
        printf("  tag %s: %g\n", kolo_dataset_class_name(s->dataset, t->tag[k]), (double)t->tag_value[k]);
}

static int show_one(show *s)
{
    char source[512];
    kolo_image p = {0};
    int rc = kolo_dataset_source(s->dataset, s->index, source, sizeof source);
    if (rc == 0) rc = show_load(s, s->index, &p);
    if (rc == 0 && s->out) rc = save(s, s->index, &p);
    else if (rc == 0) rc = print(s, &p);
    if (rc == 0) show_print(s, &p, source);
    kolo_image_free(&p);
    return rc;
}

#define TILE 96
#define GAP 4

/* The middle of every image, scaled to a tile. */
static int show_sheet(show *s)
{
    int64_t n = kolo_dataset_get_info(s->dataset)->count - s->index;
    if (n > s->count) n = s->count;
    int columns = 1;
    while ((int64_t)columns * columns < n) columns++;
    const int rows = (int)((n + columns - 1) / columns);
    kolo_image sheet = {0}, p = {0}, tile = {0};
    int rc = kolo_image_shape(&sheet, rows * (TILE + GAP) + GAP, columns * (TILE + GAP) + GAP, 3);
    if (rc == 0) memset(sheet.pixels, 255, (size_t)sheet.height * (size_t)sheet.width * 3);
    if (rc == 0) rc = kolo_image_shape(&tile, TILE, TILE, 3);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        kolo_view view;
        rc = show_load(s, s->index + i, &p);
        if (rc < 0) break;
        kolo_view_center(&view, p.height, p.width, TILE, TILE, 0);
        rc = kolo_view_render(&view, s->resampler, &p, 1, 0, 0, TILE, TILE, tile.pixels);
        const size_t top = (size_t)(GAP + (i / columns) * (TILE + GAP)),
                     left = (size_t)(GAP + (i % columns) * (TILE + GAP));
        for (size_t y = 0; y < TILE; y++)
            memcpy(sheet.pixels + 3 * ((top + y) * (size_t)sheet.width + left), tile.pixels + 3 * TILE * y,
                   3 * TILE);
    }
    if (rc == 0) rc = s->out ? save(s, -1, &sheet) : print(s, &sheet);
    kolo_image_free(&sheet);
    kolo_image_free(&p);
    kolo_image_free(&tile);
    return rc;
}

int shards_show(int argc, char **argv)
{
    show s = {.count = 1};
    const shards_option options[] = {
        {"--index", "I", "the first sample [0]", SHARDS_NUMBER, &s.index, 0, INT64_MAX},
        {"--count", "N", "so many samples as a contact sheet [1: one image]", SHARDS_NUMBER, &s.count, 1,
         10000},
        {"--out", "FILE", "a file that ends in .png or .jpg [the terminal]", SHARDS_TEXT, &s.out, 0, 0},
        {"--plain", NULL, "without its boxes; a JPEG file then comes out as it is stored", SHARDS_FLAG,
         &s.plain, 0, 0}};
    const shards_line line = {
        "show DIR", "One image with its boxes, or a contact sheet, and what is known of it.",
        options,    (int)(sizeof options / sizeof *options),
        1,          1,
        &s.folder,  NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    KOLO_TRY(kolo_dataset_open(&s.dataset, s.folder));
    const int64_t count = kolo_dataset_get_info(s.dataset)->count;
    if (s.index >= count)
        rc =
            kolo_fail(KOLO_ECONFIG, "show: --index %" PRId64 ": there are %" PRId64 " samples, 0 to %" PRId64,
                      s.index, count, count - 1);
    if (rc == 0) rc = kolo_resampler_create(&s.resampler);
    if (rc == 0) rc = s.count > 1 ? show_sheet(&s) : show_one(&s);
    shards_reader_free(&s.reader);
    kolo_resampler_destroy(&s.resampler);
    kolo_dataset_close(&s.dataset);
    return rc;
}
