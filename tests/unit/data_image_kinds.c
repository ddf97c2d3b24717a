/* TIFF and WebP, each where its library was found at build, and what turns an image upright. The files were
 * written by Pillow, whose ImageOps.exif_transpose says how they stand. */
#include "tap.h"

#include "data/image/exif.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"

static const uint8_t lzw_tiff[] = {
    73,  73,  42, 0,  26, 0, 0, 0, 128, 63, 192, 16, 56, 20, 16,  20, 20, 15, 10, 6,  67, 199, 211,
    237, 249, 1,  10, 0,  0, 1, 3, 0,   1,  0,   0,  0,  3,  0,   0,  0,  1,  1,  3,  0,  1,   0,
    0,   0,   2,  0,  0,  0, 2, 1, 3,   0,  3,   0,  0,  0,  152, 0,  0,  0,  3,  1,  3,  0,   1,
    0,   0,   0,  5,  0,  0, 0, 6, 1,   3,  0,   1,  0,  0,  0,   2,  0,  0,  0,  17, 1,  4,   0,
    1,   0,   0,  0,  8,  0, 0, 0, 21,  1,  3,   0,  1,  0,  0,   0,  3,  0,  0,  0,  22, 1,   3,
    0,   1,   0,  0,  0,  2, 0, 0, 0,   23, 1,   4,  0,  1,  0,   0,  0,  18, 0,  0,  0,  28,  1,
    3,   0,   1,  0,  0,  0, 1, 0, 0,   0,  0,   0,  0,  0,  8,   0,  8,  0,  8,  0};
static const uint8_t turned_tiff[] = {
    73, 73, 42, 0, 8, 0, 0,  0, 10, 0, 0,  1, 4, 0, 1,  0, 0, 0, 3, 0, 0, 0, 1,   1, 4, 0, 1,  0,
    0,  0,  2,  0, 0, 0, 2,  1, 3,  0, 1,  0, 0, 0, 8,  0, 0, 0, 3, 1, 3, 0, 1,   0, 0, 0, 1,  0,
    0,  0,  6,  1, 3, 0, 1,  0, 0,  0, 1,  0, 0, 0, 17, 1, 4, 0, 1, 0, 0, 0, 134, 0, 0, 0, 18, 1,
    3,  0,  1,  0, 0, 0, 6,  0, 0,  0, 22, 1, 4, 0, 1,  0, 0, 0, 2, 0, 0, 0, 23,  1, 4, 0, 1,  0,
    0,  0,  6,  0, 0, 0, 28, 1, 3,  0, 1,  0, 0, 0, 1,  0, 0, 0, 0, 0, 0, 0, 1,   2, 3, 4, 5,  250};
static const uint8_t webp[] = {
    82,  73,  70, 70,  74,  0,   0,   0,   87,  69,  66,  80,  86,  80,  56,  76,  61,  0,   0,   0,   47,
    2,   64,  0,  0,   47,  160, 160, 109, 27,  166, 133, 209, 61,  254, 28,  47,  13,  133, 108, 35,  64,
    135, 112, 4,  231, 239, 248, 42,  104, 219, 134, 105, 137, 156, 141, 63,  196, 55,  255, 1,   252, 7,
    241, 208, 30, 98,  43,  9,   8,   4,   40,  99,  197, 3,   219, 68,  244, 63,  198, 11,  0};
static const uint8_t turned_png[] = {
    137, 80, 78,  71,  13,  10,  26,  10,  0,   0,  0,   13,  73, 72, 68,  82,  0,   0,   0,  3,
    0,   0,  0,   2,   8,   2,   0,   0,   0,   18, 22,  241, 77, 0,  0,   0,   26,  101, 88, 73,
    102, 77, 77,  0,   42,  0,   0,   0,   8,   0,  1,   1,   18, 0,  3,   0,   0,   0,   1,  0,
    6,   0,  0,   0,   0,   0,   0,   214, 103, 75, 105, 0,   0,  0,  24,  73,  68,  65,  84, 120,
    156, 99, 248, 207, 192, 192, 0,   193, 92,  34, 114, 26,  70, 54, 191, 126, 255, 1,   0,  55,
    109, 6,  193, 127, 41,  77,  218, 0,   0,   0,  0,   73,  69, 78, 68,  174, 66,  96,  130};
static const uint8_t turned_webp[] = {
    82,  73,  70,  70,  126, 0,   0,   0,   87,  69,  66,  80,  86,  80,  56, 88,  10,  0,   0,  0,
    8,   0,   0,   0,   2,   0,   0,   1,   0,   0,   86,  80,  56,  76,  61, 0,   0,   0,   47, 2,
    64,  0,   0,   47,  160, 160, 109, 27,  166, 133, 209, 61,  254, 28,  47, 13,  133, 108, 35, 64,
    135, 112, 4,   231, 239, 248, 42,  104, 219, 134, 105, 137, 156, 141, 63, 196, 55,  255, 1,  252,
    7,   241, 208, 30,  98,  43,  9,   8,   4,   40,  99,  197, 3,   219, 68, 244, 63,  198, 11, 0,
    69,  88,  73,  70,  26,  0,   0,   0,   77,  77,  0,   42,  0,   0,   0,  8,   0,   1,   1,  18,
    0,   3,   0,   0,   0,   1,   0,   8,   0,   0,   0,   0,   0,   0};
static const uint8_t animation[] = {
    82,  73,  70,  70,  222, 0,   0,   0,   87,  69,  66,  80,  86,  80,  56,  88,  10,  0,   0,   0,   18,
    0,   0,   0,   2,   0,   0,   1,   0,   0,   65,  78,  73,  77,  6,   0,   0,   0,   0,   0,   0,   0,
    0,   0,   65,  78,  77,  70,  90,  0,   0,   0,   0,   0,   0,   0,   0,   0,   2,   0,   0,   1,   0,
    0,   10,  0,   0,   2,   86,  80,  56,  76,  66,  0,   0,   0,   47,  2,   64,  0,   0,   47,  160, 168,
    141, 20,  104, 79,  9,   124, 241, 111, 5,   85,  216, 80,  208, 182, 13,  211, 118, 127, 32,  198, 31,
    207, 16,  41,  8,   64,  0,   81,  59,  252, 159, 225, 153, 249, 15,  224, 31,  52,  91,  123, 117, 63,
    141, 128, 66,  182, 17,  224, 212, 238, 81,  56,  145, 139, 232, 127, 140, 23,  65,  78,  77,  70,  80,
    0,   0,   0,   0,   0,   0,   0,   0,   0,   2,   0,   0,   1,   0,   0,   10,  0,   0,   0,   86,  80,
    56,  76,  55,  0,   0,   0,   47,  2,   64,  0,   16,  39,  160, 144, 109, 4,   232, 94,  131, 243, 215,
    59,  37,  5,   109, 219, 48,  61,  251, 252, 129, 14,  130, 130, 0,   4,   16,  245, 195, 255, 83,  174,
    152, 255, 0,   0,   248, 93,  253, 167, 25,  32,  144, 180, 197, 219, 254, 136, 254, 135, 95,  0};

static const uint8_t colors[] = {255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 40, 50, 60, 250, 251, 252};
static kolo_jpeg *jpeg;

/* Is the kind left out of this program? It then says so. */
static int left_out(const void *data, size_t bytes)
{
    kolo_image p = {0};
    const int rc = kolo_image_decode(jpeg, data, bytes, 3, &p);
    kolo_image_free(&p);
    return rc == KOLO_EINPUT && strstr(kolo_error_text(), "was built without");
}

static void is_image(const void *data, size_t bytes, int height, int width, int channels,
                     const uint8_t *pixels, const char *text)
{
    kolo_image p = {0};
    const int rc = kolo_image_decode(jpeg, data, bytes, 0, &p);
    ok(rc == 0 && p.height == height && p.width == width && p.channels == channels &&
           memcmp(p.pixels, pixels, (size_t)height * (size_t)width * (size_t)channels) == 0,
       "%s%s%s", text, rc < 0 ? ": " : "", rc < 0 ? kolo_error_text() : "");
    kolo_image_free(&p);
}

/* Every beginning of the file is refused; the whole one is read afterwards. */
static void is_refused_cut(const uint8_t *data, size_t bytes, size_t needed, const char *text)
{
    kolo_image p = {0};
    int refused = 1;
    for (size_t n = 0; n < needed; n++) refused &= kolo_image_decode(jpeg, data, n, 3, &p) == KOLO_EINPUT;
    ok(refused, "%s that is cut off anywhere is refused: %s", text, kolo_error_text());
    ok(kolo_image_decode(jpeg, data, bytes, 3, &p) == 0, "and the whole one is read after that");
    kolo_image_free(&p);
}

static void test_tiff(void)
{
    static const uint8_t upright[] = {4, 1, 5, 2, 250, 3};
    kolo_image p = {0};
    is_image(lzw_tiff, sizeof lzw_tiff, 2, 3, 3, colors, "a TIFF packed by LZW");
    is_image(turned_tiff, sizeof turned_tiff, 3, 2, 1, upright,
             "a gray TIFF is turned as its orientation says");
    ok(kolo_image_decode(jpeg, turned_tiff, sizeof turned_tiff, 3, &p) == 0 && p.channels == 3 &&
           p.pixels[1] == 4,
       "gray to RGB on request");
    kolo_image_free(&p);
    is_refused_cut(lzw_tiff, sizeof lzw_tiff, sizeof lzw_tiff - 8, "a TIFF");
}

/* A chunk that says it is longer than the file, wherever it says so, is no orientation and no read beyond. */
static void is_safe_damaged(const uint8_t *data, size_t bytes, const char *text)
{
    uint8_t *damaged = malloc(bytes); /* of its size, so that a sanitizer sees what is read beyond it */
    int right = damaged != NULL;
    for (size_t at = 0; right && at < bytes; at++) {
        memcpy(damaged, data, bytes);
        damaged[at] = 255;
        const int o = kolo_exif_orientation(damaged, bytes);
        right = o >= 1 && o <= 8;
    }
    ok(right, "%s with any byte changed has an orientation", text);
    free(damaged);
}

static void test_png(void)
{
    static const uint8_t upright[] = {10, 20, 30, 255, 0, 0, 40, 50, 60, 0, 255, 0, 250, 251, 252, 0, 0, 255};
    is_image(turned_png, sizeof turned_png, 3, 2, 3, upright, "a PNG is turned as its eXIf chunk says");
    is_safe_damaged(turned_png, sizeof turned_png, "a PNG");
}

static void test_webp(void)
{
    static const uint8_t upright[] = {0, 0, 255, 250, 251, 252, 0, 255, 0, 40, 50, 60, 255, 0, 0, 10, 20, 30};
    kolo_image p = {0};
    is_image(turned_webp, sizeof turned_webp, 3, 2, 3, upright, "a WebP is turned as its EXIF chunk says");
    is_safe_damaged(turned_webp, sizeof turned_webp, "a WebP");
    is_image(webp, sizeof webp, 2, 3, 3, colors, "a WebP without loss");
    is_refused_cut(webp, sizeof webp, sizeof webp - 8, "a WebP");
    is_int(kolo_image_decode(jpeg, animation, sizeof animation, 3, &p), KOLO_EINPUT,
           "an animation is refused: %s", kolo_error_text());
    kolo_image_free(&p);
}

int main(void)
{
    if (kolo_jpeg_create(&jpeg) < 0) return 1;
    is_int(kolo_image_sniff(lzw_tiff, sizeof lzw_tiff), KOLO_IMAGE_TIFF,
           "a TIFF is known by its first bytes");
    is_int(kolo_image_sniff(webp, sizeof webp), KOLO_IMAGE_WEBP, "a WebP too");
    if (left_out(lzw_tiff, sizeof lzw_tiff)) skip("no libtiff in this build");
    else test_tiff();
    test_png();
    if (left_out(webp, sizeof webp)) skip("no libwebp in this build");
    else test_webp();
    kolo_jpeg_destroy(&jpeg);
    return done_testing();
}
