/* Elementary changes and policies against the results of Pillow, torchvision and timm in golden_augment.h. */
#include "tap.h"

#include <zlib.h>

#include "data/augment/augment.h"
#include "golden_augment.h"
#include "kolo/error.h"

#define COUNT(array) (int)(sizeof array / sizeof *array)

/* The formula of augment_figures.py. */
static void draw(const int *shape, uint8_t *to)
{
    const int height = shape[1], width = shape[2], channels = shape[3];
    for (int i = 0; i < height * width * channels; i++) {
        uint64_t z = ((uint64_t)i + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ z >> 27) * 0x94D049BB133111EBull;
        z ^= z >> 31;
        const int c = i % channels, x = i / channels % width, y = i / channels / width;
        to[i] = shape[0] == 0 ? (uint8_t)(z >> 56) : (uint8_t)(40 + 2 * x + y + 20 * c + (int)(z >> 61));
    }
}

static kolo_canvas *canvas_of(const int *shape)
{
    static const float half[3] = {128 / 255.f, 128 / 255.f, 128 / 255.f};
    kolo_canvas *c = NULL;
    if (kolo_canvas_create(&c, shape[1], shape[2], shape[3], half, half) < 0) diag("%s", kolo_error_text());
    c->pixels = malloc(kolo_canvas_bytes(c));
    draw(shape, c->pixels);
    return c;
}

static void drop(kolo_canvas *c)
{
    free(c->pixels);
    kolo_canvas_destroy(&c);
}

static void warp(kolo_canvas *c, const double *matrix, bool cubic)
{
    static const uint8_t fill[3] = {10, 20, 30};
    kolo_adjust_affine(c, matrix, cubic, fill);
}

static void apply(kolo_canvas *c, const char *name, const double *p)
{
    double m[6];
    if (!strcmp(name, "invert")) kolo_adjust_invert(c);
    else if (!strcmp(name, "posterize")) kolo_adjust_posterize(c, (int)p[0]);
    else if (!strcmp(name, "solarize")) kolo_adjust_solarize(c, p[0]);
    else if (!strcmp(name, "solarize_add")) kolo_adjust_solarize_add(c, (int)p[0], p[1]);
    else if (!strcmp(name, "autocontrast")) kolo_adjust_autocontrast(c);
    else if (!strcmp(name, "equalize")) kolo_adjust_equalize(c);
    else if (!strcmp(name, "brightness")) kolo_adjust_brightness(c, (float)p[0]);
    else if (!strcmp(name, "contrast")) kolo_adjust_contrast(c, (float)p[0]);
    else if (!strcmp(name, "color")) kolo_adjust_color(c, (float)p[0]);
    else if (!strcmp(name, "sharpness")) kolo_adjust_sharpness(c, (float)p[0]);
    else if (!strcmp(name, "grayscale")) kolo_adjust_grayscale(c);
    else if (!strcmp(name, "jitter_contrast")) kolo_jitter_contrast(c, p[0]);
    else if (!strcmp(name, "jitter_saturation")) kolo_jitter_saturation(c, p[0]);
    else if (!strcmp(name, "jitter_hue")) kolo_jitter_hue(c, (float)p[0]);
    else if (!strcmp(name, "blur")) kolo_adjust_blur(c, p[0], (int)p[1]);
    else if (!strcmp(name, "rotate")) kolo_matrix_rotate(m, p[0], c->height, c->width), warp(c, m, p[1] > 0);
    else if (!strcmp(name, "affine")) {
        const kolo_affine a = {p[0], p[1], p[2], p[3], p[4], p[5], c->width * .5, c->height * .5};
        kolo_matrix_affine(m, &a);
        warp(c, m, false);
    } else ok(0, "an operation %s", name);
}

static uLong sum_of(uLong crc, const kolo_canvas *c)
{
    return crc32(crc, c->pixels, (uInt)kolo_canvas_bytes(c));
}

static void test_singles(void)
{
    for (int i = 0; i < COUNT(golden_singles); i++) {
        const struct golden_single *g = &golden_singles[i];
        uLong crc = 0;
        for (int s = 0; s < COUNT(golden_shapes); s++) {
            kolo_canvas *c = canvas_of(golden_shapes[s]);
            apply(c, g->name, g->p);
            crc = sum_of(crc, c);
            drop(c);
        }
        ok(crc == g->crc, "%s %g %g: every byte is Pillow's", g->name, g->p[0], g->p[1]);
    }
}

/* Float sums whose rounding depends on the machine that made the figures. */
static void test_near(void)
{
    for (int i = 0; i < COUNT(golden_nears); i++) {
        const struct golden_near *g = &golden_nears[i];
        kolo_canvas *c = canvas_of(golden_near_shape);
        int worst = 0, differ = 0;
        apply(c, g->name, g->p);
        const size_t n = kolo_canvas_bytes(c);
        for (size_t k = 0; k < n; k++) {
            unsigned want = 0;
            sscanf(g->bytes + 2 * k, "%2x", &want);
            const int d = abs(c->pixels[k] - (int)want);
            worst = d > worst ? d : worst;
            differ += d > 0;
        }
        ok(strlen(g->bytes) == 2 * n && worst <= 1 && differ <= (int)n / 10,
           "%s %g: within 1 of torchvision's, %d of %zu bytes not the same", g->name, g->p[0], differ, n);
        drop(c);
    }
}

static void test_policies(void)
{
    for (int wide = 0; wide < 2; wide++)
        for (int operation = 0; operation < 14; operation++) {
            uLong crc = 0;
            for (int s = 0; s < COUNT(golden_shapes); s++)
                for (int b = 0; b < COUNT(golden_bins); b++)
                    for (int negative = 0; negative < 2; negative++) {
                        kolo_canvas *c = canvas_of(golden_shapes[s]);
                        kolo_rand_operation(c, wide, operation, golden_bins[b], negative);
                        crc = sum_of(crc, c);
                        drop(c);
                    }
            ok(crc == (wide ? golden_trivial : golden_rand)[operation],
               "%s, operation %d: torchvision's bytes", wide ? "TrivialAugmentWide" : "RandAugment",
               operation);
        }
}

static void test_timm(void)
{
    for (int operation = 0; operation < 15; operation++) {
        uLong crc = 0;
        for (int s = 0; s < COUNT(golden_shapes); s++)
            for (int l = 0; l < COUNT(golden_levels); l++)
                for (int way = 0; way < 4; way++) {
                    kolo_canvas *c = canvas_of(golden_shapes[s]);
                    kolo_timm_operation(c, operation, golden_levels[l], way >> 1, way & 1);
                    crc = sum_of(crc, c);
                    drop(c);
                }
        ok(crc == golden_timm[operation], "timm's RandAugment, operation %d: its bytes", operation);
    }
}

static void test_resizes(void)
{
    kolo_resampler *resampler;
    kolo_image p = {0};
    kolo_resampler_create(&resampler);
    for (int i = 0; i < COUNT(golden_resizes); i++) {
        const struct golden_resize *g = &golden_resizes[i];
        const int shape[4] = {0, 61, 83, g->channels};
        const size_t stride = (size_t)g->width * (size_t)g->channels;
        uint8_t *to = malloc(stride * (size_t)g->height);
        kolo_image_shape(&p, 61, 83, g->channels);
        draw(shape, p.pixels);
        const kolo_resize q = {.top = g->box[1],
                               .left = g->box[0],
                               .height = g->box[3] - g->box[1],
                               .width = g->box[2] - g->box[0],
                               .full_height = g->height,
                               .full_width = g->width,
                               .rows = g->height,
                               .columns = g->width,
                               .filter = g->filter};
        const int rc = kolo_resample(resampler, &p, &q, to, stride);
        ok(rc == 0 && crc32(0, to, (uInt)(stride * (size_t)g->height)) == g->crc,
           "filter %d, %d channels, %g x %g to %d x %d: every byte is Pillow's", g->filter, g->channels,
           q.height, q.width, g->height, g->width);
        free(to);
    }
    kolo_image_free(&p);
    kolo_resampler_destroy(&resampler);
}

/* Every augmentation of the table stays within its canvas and does the same twice; all
 * sizes down to one pixel. */
enum { EACH = 12 };
static void test_table(void)
{
    static const int shapes[][4] = {{0, 1, 1, 3}, {0, 1, 9, 1},   {0, 9, 1, 3},
                                    {0, 2, 3, 3}, {1, 16, 16, 1}, {0, 65, 130, 3}};
    for (int a = 0; a < kolo_augmentation_count; a++) {
        kolo_augment_step list[1];
        int n, same = 1, changed = 0;
        if (kolo_augment_parse(kolo_augmentation_table[a].name, list, 1, &n) < 0)
            diag("%s", kolo_error_text());
        for (int s = 0; s < COUNT(shapes); s++)
            for (int64_t sample = 0; sample < EACH; sample++) {
                kolo_canvas *c = canvas_of(shapes[s]), *d = canvas_of(shapes[s]),
                            *plain = canvas_of(shapes[s]);
                memset(d->spare, 0xA5, kolo_canvas_bytes(d));
                memset(d->wide, 0xA5, 2 * kolo_canvas_bytes(d));
                kolo_augment_apply(list, 1, c, 5, 3, sample);
                kolo_augment_apply(list, 1, d, 5, 3, sample);
                same &= !memcmp(c->pixels, d->pixels, kolo_canvas_bytes(c));
                changed += memcmp(c->pixels, plain->pixels, kolo_canvas_bytes(c)) != 0;
                drop(c), drop(d), drop(plain);
            }
        ok(same && changed > 0,
           "%s: the same again, whatever the scratch memory holds (%d of %d images changed)",
           kolo_augmentation_table[a].name, changed, EACH * COUNT(shapes));
    }
}

int main(void)
{
    test_singles();
    test_near();
    test_policies();
    test_timm();
    test_resizes();
    test_table();
    return done_testing();
}
