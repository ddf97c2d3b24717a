#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/augment.h"
#include "data/dataset.h"
#include "data/jpeg.h"
#include "kolo/error.h"
#include "shards.h"

typedef struct show {
    const char *folder, *out;
    int64_t index, count;
    kolo_dataset *dataset;
    kolo_jpeg *jpeg;
    kolo_resampler *resampler;
} show;

static int number(const char *name, const char *text, int64_t high, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (end == text || *end || errno || *value < 0 || *value > high)
        return kolo_fail(KOLO_ECONFIG, "show: %s %s: a number from 0 to %" PRId64 " is wanted", name, text, high);
    return 0;
}

static int read_words(show *s, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (strcmp(argv[i], "--index") == 0 && more) KOLO_TRY(number("--index", argv[++i], INT64_MAX, &s->index));
        else if (strcmp(argv[i], "--count") == 0 && more) KOLO_TRY(number("--count", argv[++i], 10000, &s->count));
        else if (strcmp(argv[i], "--out") == 0 && more) s->out = argv[++i];
        else if (argv[i][0] == '-' || s->folder) return kolo_fail(KOLO_ECONFIG, "show: unexpected word %s", argv[i]);
        else s->folder = argv[i];
    }
    return s->folder ? 0 : kolo_fail(KOLO_ECONFIG, "show: which folder?");
}

/* Decoded, upright, in colour. */
static int load(const show *s, int64_t sample, kolo_picture *p)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(s->dataset);
    const size_t bytes = kolo_dataset_bytes(s->dataset, sample);
    uint8_t *data = kolo_alloc(bytes + 1);
    int rc = data ? kolo_dataset_read(s->dataset, sample, data) : KOLO_ECONFIG;
    if (rc == 0 && kolo_dataset_codec(s->dataset, sample) == KOLO_CODEC_JPEG) {
        rc = kolo_picture_decode(s->jpeg, data, bytes, 3, p);
        if (rc < 0) kolo_fail_in(rc, "sample %" PRId64 " ", sample);
    } else if (rc == 0) {
        int height, width;
        kolo_dataset_size(s->dataset, sample, &height, &width);
        rc = kolo_picture_shape(p, height, width, info->channels);
        if (rc == 0) memcpy(p->pixels, data, bytes);
        if (rc == 0) rc = kolo_picture_convert(p, 3);
    }
    free(data);
    return rc;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* A JPEG sample goes out as its stored bytes. */
static int save_jpeg(const show *s, int64_t sample, const kolo_picture *p)
{
    uint8_t *data = NULL;
    size_t capacity = 0, bytes = 0;
    int rc;
    if (sample >= 0 && kolo_dataset_codec(s->dataset, sample) == KOLO_CODEC_JPEG) {
        bytes = kolo_dataset_bytes(s->dataset, sample);
        data = kolo_alloc(bytes + 1);
        rc = data ? kolo_dataset_read(s->dataset, sample, data) : KOLO_ECONFIG;
    } else {
        rc = kolo_jpeg_encode(p, 92, &data, &capacity, &bytes);
    }
    if (rc == 0) rc = kolo_file_write_atomic(s->out, data, bytes);
    free(data);
    return rc;
}

static int save(const show *s, int64_t sample, const kolo_picture *p)
{
    if (ends_with(s->out, ".png")) return kolo_picture_write_png(p, s->out);
    if (ends_with(s->out, ".jpg") || ends_with(s->out, ".jpeg")) return save_jpeg(s, sample, p);
    return kolo_fail(KOLO_ECONFIG, "show: --out %s: a name that ends in .png or .jpg is wanted", s->out);
}

static int fit(const show *s, const kolo_picture *p, int height, int width, kolo_picture *to)
{
    const kolo_resize q = {.height = p->height,
                           .width = p->width,
                           .full_height = height,
                           .full_width = width,
                           .rows = height,
                           .columns = width};
    KOLO_TRY(kolo_picture_shape(to, height, width, 3));
    return kolo_resample(s->resampler, p, &q, to->pixels, (size_t)width * 3);
}

/* Two pixels a character by the upper half block, in 24-bit colour; without a terminal in plain characters. */
static int print(const show *s, const kolo_picture *p)
{
    static const char ramp[] = " .:-=+*#%@";
    const bool color = isatty(STDOUT_FILENO);
    kolo_picture small = {0};
    int width = p->width < 64 ? p->width : 64, height = (int)((int64_t)p->height * width / p->width) & ~1;
    if (height < 2) height = 2;
    if (height > 96) width = width * 96 / height, height = 96;
    if (width < 1) width = 1;
    KOLO_TRY(fit(s, p, height, width, &small));
    for (int y = 0; y < height; y += 2) {
        for (int x = 0; x < width; x++) {
            const uint8_t *a = small.pixels + 3 * ((size_t)y * (size_t)width + (size_t)x), *b = a + 3 * (size_t)width;
            if (color) printf("\033[38;2;%d;%d;%dm\033[48;2;%d;%d;%dm\xe2\x96\x80", a[0], a[1], a[2], b[0], b[1], b[2]);
            else putchar(ramp[(a[0] + a[1] + a[2] + b[0] + b[1] + b[2]) * 9 / (6 * 255)]);
        }
        fputs(color ? "\033[0m\n" : "\n", stdout);
    }
    kolo_picture_free(&small);
    return 0;
}

static int show_one(const show *s)
{
    char source[512];
    kolo_picture p = {0};
    const int label = kolo_dataset_label(s->dataset, s->index);
    int rc = kolo_dataset_source(s->dataset, s->index, source, sizeof source);
    if (rc == 0) rc = load(s, s->index, &p);
    if (rc == 0 && s->out) rc = save(s, s->index, &p);
    else if (rc == 0) rc = print(s, &p);
    if (rc == 0)
        printf("sample %" PRId64 ": %s (label %d), %d x %d, %zu bytes, from %s\n", s->index,
               kolo_dataset_class_name(s->dataset, label), label, p.width, p.height,
               kolo_dataset_bytes(s->dataset, s->index), source);
    kolo_picture_free(&p);
    return rc;
}

#define TILE 96
#define GAP 4

/* The middle of every picture, scaled to a tile. */
static int show_sheet(const show *s)
{
    int64_t n = kolo_dataset_get_info(s->dataset)->count - s->index;
    if (n > s->count) n = s->count;
    int columns = 1;
    while ((int64_t)columns * columns < n) columns++;
    const int rows = (int)((n + columns - 1) / columns);
    kolo_picture sheet = {0}, p = {0}, tile = {0};
    int rc = kolo_picture_shape(&sheet, rows * (TILE + GAP) + GAP, columns * (TILE + GAP) + GAP, 3);
    if (rc == 0) memset(sheet.pixels, 255, (size_t)sheet.height * (size_t)sheet.width * 3);
    if (rc == 0) rc = kolo_picture_shape(&tile, TILE, TILE, 3);
    for (int64_t i = 0; i < n && rc == 0; i++) {
        kolo_view view;
        rc = load(s, s->index + i, &p);
        if (rc < 0) break;
        kolo_view_center(&view, p.height, p.width, TILE, TILE, 0);
        rc = kolo_view_render(&view, s->resampler, &p, 1, 0, 0, TILE, TILE, tile.pixels);
        const size_t top = (size_t)(GAP + (i / columns) * (TILE + GAP)),
                     left = (size_t)(GAP + (i % columns) * (TILE + GAP));
        for (size_t y = 0; y < TILE; y++)
            memcpy(sheet.pixels + 3 * ((top + y) * (size_t)sheet.width + left), tile.pixels + 3 * TILE * y, 3 * TILE);
    }
    if (rc == 0) rc = s->out ? save(s, -1, &sheet) : print(s, &sheet);
    kolo_picture_free(&sheet);
    kolo_picture_free(&p);
    kolo_picture_free(&tile);
    return rc;
}

int shards_show(int argc, char **argv)
{
    show s = {.count = 1};
    KOLO_TRY(read_words(&s, argc, argv));
    KOLO_TRY(kolo_dataset_open(&s.dataset, s.folder));
    const int64_t count = kolo_dataset_get_info(s.dataset)->count;
    int rc = s.index < count
                 ? 0
                 : kolo_fail(KOLO_ECONFIG, "show: --index %" PRId64 ": there are %" PRId64 " samples, 0 to %" PRId64,
                             s.index, count, count - 1);
    if (rc == 0) rc = kolo_jpeg_create(&s.jpeg);
    if (rc == 0) rc = kolo_resampler_create(&s.resampler);
    if (rc == 0) rc = s.count > 1 ? show_sheet(&s) : show_one(&s);
    kolo_jpeg_destroy(&s.jpeg);
    kolo_resampler_destroy(&s.resampler);
    kolo_dataset_close(&s.dataset);
    return rc;
}
