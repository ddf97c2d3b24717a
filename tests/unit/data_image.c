/* Image files and partial JPEG decoding. */
#include "tap.h"

#include <dirent.h>
#include <unistd.h>

#include <jpeglib.h>

#include "base/file.h"
#include "base/philox.h"
#include "data/augment/augment.h"
#include "data/image/exif.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"

static kolo_jpeg *jpeg;

static void draw(kolo_image *p, int height, int width, int channels)
{
    kolo_image_shape(p, height, width, channels);
    kolo_random r = kolo_random_at(1, 2, 3);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                p->pixels[((size_t)y * (size_t)width + (size_t)x) * (size_t)channels + (size_t)c] =
                    (uint8_t)(128 + 60 * sin(x * .31 + c) + 40 * cos(y * .23 * (c + 1)) +
                              (int)kolo_random_below(&r, 20));
}

/* True if the window of a partial decode holds the whole decode's pixels. */
static int window_fits(const void *data, size_t bytes, int channels, int denominator, const kolo_image *whole,
                       kolo_jpeg_window w)
{
    kolo_image part = {0};
    kolo_jpeg_window o;
    int fits = kolo_jpeg_decode(jpeg, data, bytes, channels, denominator, &w, &part, &o) == 0 &&
               o.height == whole->height && o.width == whole->width;
    const int top = w.top / denominator, bottom = (w.top + w.height + denominator - 1) / denominator;
    const int left = w.left / denominator, right = (w.left + w.width + denominator - 1) / denominator;
    fits = fits && o.top <= top && o.left <= left &&
           o.top + part.height >= (bottom < whole->height ? bottom : whole->height) &&
           o.left + part.width >= (right < whole->width ? right : whole->width);
    for (int y = top; fits && y < bottom && y < whole->height; y++)
        for (int x = left * channels; x < right * channels && x < whole->width * channels; x++)
            if (part.pixels[(y - o.top) * part.width * channels + x - o.left * channels] !=
                whole->pixels[y * whole->width * channels + x])
                fits = 0;
    kolo_image_free(&part);
    return fits;
}

static void test_windows(const char *name, const void *data, size_t bytes, int channels)
{
    kolo_jpeg_info info;
    kolo_random r = kolo_random_at(5, 6, 7);
    if (kolo_jpeg_inspect(jpeg, data, bytes, &info) < 0) {
        ok(0, "%s: %s", name, kolo_error_text());
        return;
    }
    for (int d = 1; d <= 8; d *= 2) {
        kolo_image whole = {0};
        int fits = kolo_jpeg_decode(jpeg, data, bytes, channels, d, NULL, &whole, NULL) == 0;
        for (int i = 0; i < 30 && fits; i++) {
            kolo_jpeg_window w = {.height = 1 + (int)kolo_random_below(&r, (uint32_t)info.height),
                                  .width = 1 + (int)kolo_random_below(&r, (uint32_t)info.width)};
            w.top = (int)kolo_random_below(&r, (uint32_t)(info.height - w.height + 1));
            w.left = (int)kolo_random_below(&r, (uint32_t)(info.width - w.width + 1));
            fits = window_fits(data, bytes, channels, d, &whole, w);
            if (!fits)
                diag("window %d+%d, %d+%d of %d x %d at 1/%d", w.top, w.height, w.left, w.width, info.height,
                     info.width, d);
        }
        ok(fits, "%s at 1/%d: a part is decoded as in the whole", name, d);
        kolo_image_free(&whole);
    }
}

static void test_encoded(void)
{
    const int sizes[][2] = {{1, 1}, {7, 5}, {33, 64}, {96, 81}, {200, 131}};
    for (int i = 0; i < 5; i++)
        for (int channels = 1; channels <= 3; channels += 2) {
            kolo_image p = {0}, back = {0};
            uint8_t *data = NULL;
            size_t capacity = 0, bytes;
            char name[64];
            snprintf(name, sizeof name, "%d x %d x %d", sizes[i][0], sizes[i][1], channels);
            draw(&p, sizes[i][0], sizes[i][1], channels);
            int rc = kolo_jpeg_encode(&p, 95, &data, &capacity, &bytes);
            if (rc == 0) rc = kolo_image_decode(jpeg, data, bytes, 0, &back);
            double square = 0;
            const size_t n = (size_t)p.height * (size_t)p.width * (size_t)channels;
            for (size_t k = 0; rc == 0 && k < n; k++)
                square += (p.pixels[k] - back.pixels[k]) * (p.pixels[k] - back.pixels[k]);
            ok(rc == 0 && back.channels == channels && sqrt(square / (double)n) < 14, "%s survives JPEG",
               name);
            test_windows(name, data, bytes, channels);
            free(data);
            kolo_image_free(&p);
            kolo_image_free(&back);
        }
}

static void test_files(void)
{
    const char *root = getenv("KOLO_SHARED") ? getenv("KOLO_SHARED") : "../shared";
    const char *const names[] = {"imagenet-sample/n01440764_tench.JPEG",
                                 "imagenet-sample/n02692877_airship.JPEG",
                                 "odd-images/jd-restarts.jpg",
                                 "odd-images/jd-jpg-progressive.jpg",
                                 "odd-images/pil-pil_sample_cmyk.jpg",
                                 "odd-images/ljt-testorig.jpg",
                                 "odd-images/jd-rgb.jpg",
                                 "imagenette224/val/n03028079/ILSVRC2012_val_00003351.JPEG"};
    for (int i = 0; i < 8; i++) {
        char path[512], *data;
        size_t bytes;
        snprintf(path, sizeof path, "%s/data/%s", root, names[i]);
        if (kolo_file_read(path, &data, &bytes) < 0) {
            skip("%s is not there", names[i]);
            continue;
        }
        test_windows(strrchr(path, '/') + 1, data, bytes, 3);
        free(data);
    }
}

static void test_plain(void)
{
    static const uint8_t ppm[] = "P6 # a comment\n2 2\n255\n\1\2\3\4\5\6\7\10\11\12\13\14",
                         pgm[] = "P5\n3 1\n15\n\0\7\17";
    uint8_t bmp[54 + 16] = {'B', 'M', [10] = 54, [14] = 40, [18] = 2, [22] = 2, [26] = 1, [28] = 24};
    kolo_image p = {0};
    ok(kolo_image_decode(jpeg, ppm, sizeof ppm - 1, 0, &p) == 0 && p.channels == 3 && p.pixels[0] == 1 &&
           p.pixels[11] == 12,
       "PPM with a comment");
    ok(kolo_image_decode(jpeg, pgm, sizeof pgm - 1, 0, &p) == 0 && p.channels == 1 && p.pixels[1] == 119 &&
           p.pixels[2] == 255,
       "PGM of 4 bits is stretched");
    is_int(kolo_image_decode(jpeg, ppm, sizeof ppm - 2, 0, &p), KOLO_EINPUT,
           "a PPM that is cut off is refused");
    bmp[54] = 30, bmp[55] = 20, bmp[56] = 10; /* bottom left, BGR */
    ok(kolo_image_decode(jpeg, bmp, sizeof bmp, 3, &p) == 0 && p.pixels[6] == 10 && p.pixels[7] == 20 &&
           p.pixels[8] == 30,
       "BMP: bottom up, BGR");
    is_int(kolo_image_decode(jpeg, bmp, sizeof bmp - 1, 3, &p), KOLO_EINPUT,
           "a BMP that is cut off is refused");
    is_int(kolo_image_decode(jpeg, "GIF89a......", 12, 3, &p), KOLO_EINPUT, "an unknown kind is refused: %s",
           kolo_error_text());
    is_int(kolo_image_decode(jpeg, "", 0, 3, &p), KOLO_EINPUT, "nothing is refused: %s", kolo_error_text());
    kolo_image_free(&p);
}

static void test_png(void)
{
    char path[64] = "/tmp/kolo-test-XXXXXX";
    kolo_image p = {0}, back = {0};
    char *data;
    size_t bytes;
    close(mkstemp(path));
    for (int channels = 1; channels <= 3; channels += 2) {
        draw(&p, 20, 31, channels);
        int rc = kolo_image_write_png(&p, path);
        if (rc == 0) rc = kolo_file_read(path, &data, &bytes);
        if (rc == 0) rc = kolo_image_decode(jpeg, data, bytes, 0, &back);
        ok(rc == 0 && back.channels == channels &&
               memcmp(p.pixels, back.pixels, (size_t)(20 * 31 * channels)) == 0,
           "PNG of %d channels comes back", channels);
        is_int(kolo_image_decode(jpeg, data, bytes - 20, 0, &back), KOLO_EINPUT, "cut off it is refused: %s",
               kolo_error_text());
        free(data);
    }
    unlink(path);
    kolo_image_free(&p);
    kolo_image_free(&back);
}

static void test_truncated(void)
{
    kolo_image p = {0};
    uint8_t *data = NULL;
    size_t capacity = 0, bytes;
    int refused = 1;
    draw(&p, 64, 64, 3);
    kolo_jpeg_encode(&p, 90, &data, &capacity, &bytes);
    for (size_t cut = 0; cut < bytes; cut += bytes / 37)
        refused &= kolo_image_decode(jpeg, data, cut, 3, &p) == KOLO_EINPUT;
    ok(refused, "a JPEG cut off anywhere is refused");
    ok(kolo_image_decode(jpeg, data, bytes, 3, &p) == 0, "the decoder works on after errors");
    free(data);
    kolo_image_free(&p);
}

static void test_turn(void)
{
    kolo_image p = {0}, q = {0};
    draw(&p, 5, 7, 3);
    /* the pixel that must come to the upper left corner */
    const int corner[9][2] = {{0}, {0, 0}, {0, 6}, {4, 6}, {4, 0}, {0, 0}, {4, 0}, {4, 6}, {0, 6}};
    int right = 1;
    for (int o = 1; o <= 8; o++) {
        kolo_image_turn(&p, o, &q);
        right &= memcmp(q.pixels, p.pixels + (corner[o][0] * 7 + corner[o][1]) * 3, 3) == 0 &&
                 q.height == (o > 4 ? 7 : 5);
    }
    ok(right, "the eight EXIF orientations");
    const uint8_t broken[] = {0xFF, 0xD8, 0xFF, 0xE1, 0,   40, 'E',  'x',  'i',  'f',
                              0,    0,    'I',  'I',  '*', 0,  0xFF, 0xFF, 0xFF, 0xFF};
    is_int(kolo_exif_orientation(broken, sizeof broken), 1, "a damaged EXIF block counts as none");
    kolo_image_free(&p);
    kolo_image_free(&q);
}

static void test_views(void)
{
    double area = 0, aspect = 0;
    int inside = 1, n = 4000;
    kolo_view v;
    for (int i = 0; i < n; i++) {
        kolo_random r = kolo_augment_random(3, 0, i, KOLO_OPERATION_CROP);
        kolo_view_resized(&v, 300, 400, 224, 224, .08, 1, &r);
        const kolo_resize *q = &v.resize;
        area += q->height * q->width / 120000;
        aspect += log(q->width / q->height);
        inside &= q->top >= 0 && q->left >= 0 && q->top + q->height <= 300 && q->left + q->width <= 400 &&
                  q->height >= 1;
    }
    ok(inside, "random boxes lie inside the image");
    /* boxes that do not fit are drawn again: the mean area lies below (.08 + 1) / 2 */
    ok(area / n > .43 && area / n < .54, "their mean area is %.3f", area / n);
    ok(fabs(aspect / n) < .06, "their mean log aspect is near 0 (%.3f)", aspect / n);
    kolo_random r = kolo_augment_random(3, 0, 0, KOLO_OPERATION_CROP);
    kolo_view_resized(&v, 20, 1000, 32, 32, .9, 1, &r);
    ok(v.resize.height == 20 && v.resize.width == 27 && v.resize.left == 486,
       "a panorama falls back to a centred box of aspect 4/3");
    kolo_view_center(&v, 300, 400, 224, 224, 256);
    ok(v.resize.full_height == 256 && v.resize.full_width == 341 && v.resize.row == 16 &&
           v.resize.column == 58,
       "validation: 256, then the middle 224");
    int hits[9] = {0};
    for (int i = 0; i < 900; i++) {
        r = kolo_augment_random(3, 0, i, KOLO_OPERATION_CROP);
        kolo_view_pad(&v, 32, 32, 32, 32, 4, &r);
        const int down = v.resize.row - v.top;
        if (down >= -4 && down <= 4) hits[down + 4]++;
    }
    int even = 1;
    for (int i = 0; i < 9; i++) even &= hits[i] > 60 && hits[i] < 140;
    ok(even, "pad-and-crop shifts by -4 to 4 equally often");
}

static void test_pad_pixels(void)
{
    kolo_image p = {0};
    kolo_resampler *resampler;
    uint8_t out[8 * 8];
    int right = 1;
    kolo_resampler_create(&resampler);
    draw(&p, 8, 8, 1);
    for (int i = 0; i < 64; i++) {
        kolo_random r = kolo_augment_random(4, 0, i, KOLO_OPERATION_CROP);
        kolo_view v;
        kolo_view_pad(&v, 8, 8, 8, 8, 3, &r);
        const int down = v.resize.row - v.top, across = v.resize.column - v.left;
        const int flip = i & 1;
        if (flip) kolo_view_flip(&v, 8);
        kolo_view_render(&v, resampler, &p, 1, 0, 0, 8, 8, out);
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 8; x++) {
                const int sy = y + down, sx = (flip ? 7 - x : x) + across;
                const int want = sy < 0 || sy > 7 || sx < 0 || sx > 7 ? 0 : p.pixels[sy * 8 + sx];
                right &= out[y * 8 + x] == want;
            }
    }
    ok(right, "pad-and-crop with flip puts every pixel where it belongs");
    kolo_resampler_destroy(&resampler);
    kolo_image_free(&p);
}

/* A gray JPEG of as many scans as there are coefficients, `passes` for each. */
static uint8_t *encode_scans(int passes, unsigned long *bytes, int *scans)
{
    enum { SIDE = 64 };
    static jpeg_scan_info info[2 * 64];
    struct jpeg_error_mgr errors;
    struct jpeg_compress_struct c = {.err = jpeg_std_error(&errors)};
    uint8_t *data = NULL, row[SIDE];
    int n = 0;
    for (int pass = 0; pass < passes; pass++)
        for (int k = 0; k < 64; k++)
            info[n++] = (jpeg_scan_info){
                .comps_in_scan = 1, .Ss = k, .Se = k, .Ah = pass ? 1 : 0, .Al = passes - 1 - pass};
    *bytes = 0;
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &data, bytes);
    c.image_width = c.image_height = SIDE;
    c.input_components = 1;
    c.in_color_space = JCS_GRAYSCALE;
    jpeg_set_defaults(&c);
    c.scan_info = info;
    c.num_scans = *scans = n;
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < SIDE) {
        JSAMPROW rows[1] = {row};
        for (int x = 0; x < SIDE; x++)
            row[x] = (uint8_t)(x * 3 + (int)c.next_scanline * 7 + x * (int)c.next_scanline);
        jpeg_write_scanlines(&c, rows, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    return data;
}

/* Each scan goes over the whole image, so a file of a few bytes a scan takes as long as one likes. */
static void test_scans(void)
{
    kolo_image p = {0};
    for (int passes = 1; passes <= 2; passes++) {
        unsigned long bytes;
        int scans;
        uint8_t *data = encode_scans(passes, &bytes, &scans);
        const int rc = kolo_image_decode(jpeg, data, bytes, 1, &p);
        if (passes == 1) is_int(rc, 0, "a progressive JPEG of %d scans is decoded", scans);
        else
            ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), "more than 64 scans"),
               "one of %d is refused: %s", scans, kolo_error_text());
        free(data);
    }
    kolo_image_free(&p);
}

int main(void)
{
    kolo_jpeg_create(&jpeg);
    test_scans();
    test_encoded();
    test_files();
    test_plain();
    test_png();
    test_truncated();
    test_turn();
    test_views();
    test_pad_pixels();
    kolo_jpeg_destroy(&jpeg);
    return done_testing();
}
