/* Loaders that make parts of images: the bytes of whole ones, for files of every kind, crops, mirror images,
 * sides and grids; what they decode for it; files that are damaged outside of a part. */
#include "data_fixture.h"
#include "tap.h"

#include <jpeglib.h>

#include "base/log.h"
#include "base/option.h"
#include "base/part.h"
#include "data/loader.h"

enum { SAMPLES = 20, BATCH = 5, STEPS = SAMPLES / BATCH, KINDS = 10, CUT_OFF = 13 };

/* ---- files --------------------------------------------------------------------------------------------- */

/* How a JPEG is stored: sampling of its first component, scans, restarts, components. */
static const struct kind {
    int across, down, progressive, restart, components, height, width;
} kinds[KINDS] = {
    {2, 2, 0, 0, 3, 150, 203}, {2, 1, 0, 0, 3, 97, 131}, {1, 1, 0, 0, 3, 64, 64}, {1, 2, 0, 0, 3, 121, 80},
    {2, 2, 1, 0, 3, 133, 170}, {2, 2, 0, 3, 3, 200, 96}, {1, 1, 0, 0, 1, 90, 77}, {1, 1, 1, 0, 3, 45, 61},
    {4, 1, 0, 0, 3, 111, 143}, {1, 1, 0, 0, 4, 72, 99},
};

static void draw(uint8_t *line, int y, int bytes, int64_t sample)
{
    for (int x = 0; x < bytes; x++)
        line[x] = (uint8_t)(128 + 70 * sin(x * .21 + (double)sample) + 50 * cos(y * .33 * (1 + x % 3)));
}

static int encode(int64_t sample, uint8_t **blob, size_t *bytes)
{
    const struct kind *k = &kinds[sample % KINDS];
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned long n = 0;
    uint8_t *line = malloc((size_t)(k->width * k->components));
    *blob = NULL;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, blob, &n);
    c.image_width = (JDIMENSION)k->width;
    c.image_height = (JDIMENSION)k->height;
    c.input_components = k->components;
    c.in_color_space = k->components == 1 ? JCS_GRAYSCALE : k->components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 88, TRUE);
    c.comp_info[0].h_samp_factor = k->across;
    c.comp_info[0].v_samp_factor = k->down;
    c.restart_interval = (unsigned)k->restart;
    if (k->progressive) jpeg_simple_progression(&c);
    jpeg_start_compress(&c, TRUE);
    for (int y = 0; y < k->height; y++) {
        draw(line, y, k->width * k->components, sample);
        jpeg_write_scanlines(&c, &line, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    free(line);
    *bytes = sample == CUT_OFF ? n * 3 / 4 : n;
    return 0;
}

/* ---- batches ------------------------------------------------------------------------------------------- */

typedef struct seen {
    uint8_t *pixels; /* [SAMPLES] rows of `row` bytes */
    size_t row;
    int64_t sample[SAMPLES], decoded, bad;
} seen;

static int look(const kolo_loader_config *c, seen *s)
{
    kolo_loader *l;
    kolo_batch b;
    kolo_loader_stats stats;
    s->row = 0;
    for (int i = 0; i < c->parts; i++) {
        const int row = c->part[i] / c->grid[1], column = c->part[i] % c->grid[1];
        s->row += (size_t)((kolo_part_start(c->height, c->grid[0], row + 1) -
                            kolo_part_start(c->height, c->grid[0], row)) *
                           (kolo_part_start(c->width, c->grid[1], column + 1) -
                            kolo_part_start(c->width, c->grid[1], column)) *
                           c->channels);
    }
    if (!c->parts) s->row = (size_t)(c->height * c->width * c->channels);
    s->pixels = malloc(SAMPLES * s->row);
    if (kolo_loader_create(&l, c) < 0) return -1;
    int rc = 0;
    for (int64_t t = 0; rc == 0 && t < STEPS; t++) {
        rc = kolo_loader_next(l, &b);
        if (rc != 0) break;
        memcpy(s->pixels + (size_t)(t * BATCH) * s->row, b.pixels, BATCH * s->row);
        memcpy(s->sample + t * BATCH, b.samples, sizeof *s->sample * BATCH);
        kolo_loader_release(l, &b);
    }
    kolo_loader_get_stats(l, &stats);
    s->decoded = stats.decoded;
    s->bad = stats.bad;
    kolo_loader_destroy(&l);
    return rc;
}

/* Rows of parts that are not the whole's pixels. */
static int64_t unlike(const kolo_loader_config *c, const seen *whole, const seen *parts)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        const uint8_t *all = whole->pixels + (size_t)i * whole->row,
                      *at = parts->pixels + (size_t)i * parts->row;
        int same = whole->sample[i] == parts->sample[i];
        for (int k = 0; k < c->parts; k++) {
            const int row = c->part[k] / c->grid[1], column = c->part[k] % c->grid[1];
            const int64_t left = kolo_part_start(c->width, c->grid[1], column),
                          width = kolo_part_start(c->width, c->grid[1], column + 1) - left;
            const size_t bytes = (size_t)(width * c->channels);
            for (int64_t y = kolo_part_start(c->height, c->grid[0], row);
                 y < kolo_part_start(c->height, c->grid[0], row + 1); y++, at += bytes)
                same &= !memcmp(at, all + (y * c->width + left) * c->channels, bytes);
        }
        if (!same && wrong++ == 0)
            diag("sample %ld (%d x %d), part %d of %d x %d", (long)whole->sample[i],
                 kinds[whole->sample[i] % KINDS].height, kinds[whole->sample[i] % KINDS].width, c->part[0],
                 c->grid[0], c->grid[1]);
    }
    return wrong;
}

static kolo_loader_config config_of(const kolo_dataset *d, int height, int width)
{
    return (kolo_loader_config){.dataset = d,
                                .channels = 3,
                                .height = height,
                                .width = width,
                                .classes = 10,
                                .train = true,
                                .seed = 3,
                                .max_bad = 2,
                                .batch = BATCH,
                                .ranks = 1,
                                .tail = KOLO_tail_pad,
                                .crop_pad = 9,
                                .area_min = .2,
                                .area_max = 1,
                                .readers = 1,
                                .prefetch = 2};
}

/* Every part by itself, then all but the first together. */
static int64_t compare(kolo_loader_config c, const int grid[2])
{
    seen whole = {0}, parts = {0};
    int64_t wrong = look(&c, &whole) != 0;
    const int n = grid[0] * grid[1];
    memcpy(c.grid, grid, sizeof c.grid);
    for (int p = 0; p <= n; p++) {
        c.parts = p < n ? 1 : n - 1;
        for (int i = 0; i < c.parts; i++) c.part[i] = p < n ? p : i + 1;
        wrong += look(&c, &parts) != 0 ? 1 : unlike(&c, &whole, &parts);
        wrong += whole.bad != parts.bad;
        free(parts.pixels);
    }
    free(whole.pixels);
    return wrong;
}

static void test_bytes(const kolo_dataset *d, const char *what)
{
    static const int grids[][2] = {{2, 2}, {3, 1}, {1, 4}, {2, 3}},
                     sides[][2] = {{45, 61}, {64, 64}, {130, 97}};
    static const struct {
        const char *name;
        int crop, interpolation;
        bool flip;
    } ways[] = {{"centred", KOLO_crop_center, KOLO_interpolation_bilinear, false},
                {"centred, mirrored", KOLO_crop_center, KOLO_interpolation_bicubic, true},
                {"moved by up to 9 pixels, mirrored", KOLO_crop_pad, KOLO_interpolation_bilinear, true},
                {"resized, mirrored", KOLO_crop_resized, KOLO_interpolation_bicubic, true},
                {"resized, Lanczos", KOLO_crop_resized, KOLO_interpolation_lanczos, false}};
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        int64_t wrong = 0;
        for (size_t s = 0; s < 3; s++)
            for (size_t g = 0; g < 4; g++) {
                kolo_loader_config c = config_of(d, sides[s][0], sides[s][1]);
                c.crop = ways[w].crop;
                c.interpolation = ways[w].interpolation;
                c.flip = ways[w].flip;
                wrong += compare(c, grids[g]);
            }
        is_int(wrong, 0, "%s, %s: parts of four grids and three sizes have the bytes of whole images", what,
               ways[w].name);
    }
}

/* ---- what is decoded ----------------------------------------------------------------------------------- */

static void test_decoded(void)
{
    fixture f = {.count = SAMPLES,
                 .shards = 1,
                 .height = 320,
                 .width = 320,
                 .channels = 3,
                 .classes = 10,
                 .encoding = KOLO_ENCODING_JPEG};
    kolo_dataset *d = NULL;
    seen whole, part;
    if (fixture_make(&f) < 0 || kolo_dataset_open(&d, f.folder) < 0) {
        ok(0, "large images: %s", kolo_error_text());
        return;
    }
    kolo_loader_config c = config_of(d, 320, 320);
    c.crop = KOLO_crop_center;
    look(&c, &whole);
    c.grid[0] = c.grid[1] = 2;
    c.parts = 1;
    int64_t most = 0;
    for (int p = 0; p < 4; p++) {
        c.part[0] = p;
        look(&c, &part);
        if (part.decoded > most) most = part.decoded;
        free(part.pixels);
    }
    /* margins of a filter's reach and of whole blocks of chroma */
    ok(whole.decoded == SAMPLES * 320 * 320 && most <= SAMPLES * (160 + 4) * (160 + 32) &&
           most >= SAMPLES * 160 * 160,
       "of 320 x 320 pixels, whole %ld, a quarter decodes at most %ld", (long)(whole.decoded / SAMPLES),
       (long)(most / SAMPLES));
    free(whole.pixels);
    kolo_dataset_close(&d);
    fixture_remove(&f);
}

static void test_refused(const kolo_dataset *d)
{
    kolo_loader_config c = config_of(d, 45, 61);
    kolo_loader *l = NULL;
    c.grid[0] = 2, c.grid[1] = 1, c.parts = 1;
    ok(kolo_loader_cuts(&c), "crops and mirror images: parts can be made");
    c.augment = "blur";
    ok(!kolo_loader_cuts(&c) && kolo_loader_create(&l, &c) < 0, "with augmentations they are refused");
    c.augment = NULL;
    c.mix.mixup = 0.5;
    ok(!kolo_loader_cuts(&c), "nor where images are mixed");
}

int main(void)
{
    kolo_log_set_level(KOLO_LOG_ERROR);
    fixture files = {.count = SAMPLES,
                     .shards = 2,
                     .height = 64,
                     .width = 64,
                     .channels = 3,
                     .classes = 10,
                     .encoding = KOLO_ENCODING_JPEG,
                     .encode = encode};
    fixture turned = {.count = SAMPLES,
                      .shards = 1,
                      .height = 75,
                      .width = 52,
                      .channels = 3,
                      .classes = 10,
                      .encoding = KOLO_ENCODING_JPEG,
                      .orientation = 6};
    fixture raw = {.count = SAMPLES, .shards = 2, .height = 64, .width = 64, .channels = 3, .classes = 10};
    fixture *all[] = {&files, &turned, &raw};
    static const char *const names[] = {"JPEG of ten kinds, one cut off", "turned JPEG", "raw"};
    for (int i = 0; i < 3; i++) {
        kolo_dataset *d = NULL;
        if (fixture_make(all[i]) < 0 || kolo_dataset_open(&d, all[i]->folder) < 0)
            ok(0, "%s: %s", names[i], kolo_error_text());
        else test_bytes(d, names[i]);
        if (i == 0 && d) test_refused(d);
        kolo_dataset_close(&d);
        fixture_remove(all[i]);
    }
    test_decoded();
    return done_testing();
}
