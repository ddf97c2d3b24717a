/* BMP (uncompressed, 8-bit palette, 24 or 32 bits) and PGM/PPM (binary, 8 bits). */
#include "data/image/image.h"

#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"

static uint32_t le16(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t le32(const uint8_t *p) { return le16(p) | le16(p + 2) << 16; }

typedef struct bmp {
    const uint8_t *rows, *palette;
    size_t stride;
    int height, width, bits, colors;
    bool bottom_up;
} bmp;

static int bmp_header(const uint8_t *p, size_t bytes, bmp *b)
{
    if (bytes < 54) return kolo_fail(KOLO_EINPUT, "BMP: truncated header");
    const uint32_t start = le32(p + 10), header = le32(p + 14), compression = le32(p + 30),
                   used = le32(p + 46);
    const int32_t width = (int32_t)le32(p + 18), height = (int32_t)le32(p + 22);
    b->bits = (int)le16(p + 28);
    b->bottom_up = height > 0;
    if (width < 1 || width > KOLO_IMAGE_MAX_SIDE || height == 0 || height > KOLO_IMAGE_MAX_SIDE ||
        height < -KOLO_IMAGE_MAX_SIDE)
        return kolo_fail(KOLO_EINPUT, "BMP: size out of range");
    b->width = width;
    b->height = abs(height);
    /* 3 (bit fields) with 32 bits is what many programs write for plain BGRX */
    if ((b->bits != 8 && b->bits != 24 && b->bits != 32) ||
        (compression != 0 && !(compression == 3 && b->bits == 32)) || header < 40)
        return kolo_fail(
            KOLO_EINPUT,
            "BMP: %d bits, compression %u; only uncompressed 8, 24 and 32 bits are read, convert it first",
            b->bits, compression);
    b->colors = b->bits == 8 ? (used && used <= 256 ? (int)used : 256) : 0;
    b->stride = ((size_t)b->width * (size_t)b->bits + 31) / 32 * 4;
    const size_t palette_end = 14 + (size_t)header + 4 * (size_t)b->colors;
    if (palette_end > bytes || start > bytes || (bytes - start) / b->stride < (size_t)b->height)
        return kolo_fail(KOLO_EINPUT, "BMP: truncated");
    b->palette = p + 14 + header;
    b->rows = p + start;
    return 0;
}

static bool gray_palette(const bmp *b)
{
    for (int i = 0; i < b->colors; i++)
        if (b->palette[4 * i] != b->palette[4 * i + 1] || b->palette[4 * i] != b->palette[4 * i + 2])
            return false;
    return b->bits == 8;
}

static void bmp_row(const bmp *b, const uint8_t *from, uint8_t *to, int channels)
{
    const int step = b->bits / 8;
    for (int x = 0; x < b->width; x++, to += channels) {
        const uint8_t *bgr = from + (size_t)x * (size_t)step;
        if (b->bits == 8) {
            static const uint8_t black[3];
            bgr = *bgr < b->colors ? b->palette + 4 * (size_t)*bgr : black;
        }
        to[0] = bgr[2];
        if (channels == 3) to[1] = bgr[1], to[2] = bgr[0];
    }
}

int kolo_image_decode_bmp(const void *data, size_t bytes, int channels, kolo_image *image)
{
    bmp b = {0};
    KOLO_TRY(bmp_header(data, bytes, &b));
    KOLO_TRY(kolo_image_shape(image, b.height, b.width, gray_palette(&b) ? 1 : 3));
    for (int y = 0; y < b.height; y++)
        bmp_row(&b, b.rows + b.stride * (size_t)(b.bottom_up ? b.height - 1 - y : y),
                image->pixels + (size_t)y * (size_t)b.width * (size_t)image->channels, image->channels);
    return kolo_image_convert(image, channels);
}

/* One number of a PNM header: blanks and # comments may stand before it. */
static const uint8_t *pnm_number(const uint8_t *p, const uint8_t *end, int *number)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n' || *p == '#')) {
        if (*p == '#')
            while (p < end && *p != '\n') p++;
        else p++;
    }
    if (p == end || *p < '0' || *p > '9') return NULL;
    for (*number = 0; p < end && *p >= '0' && *p <= '9' && *number < 1000000; p++)
        *number = *number * 10 + (*p - '0');
    return p;
}

int kolo_image_decode_pnm(const void *data, size_t bytes, int channels, kolo_image *image)
{
    const uint8_t *p = data, *end = p + bytes;
    const uint8_t kind = p[1];
    int width, height, most;
    if (kind != '5' && kind != '6')
        return kolo_fail(KOLO_EINPUT, "PNM: only binary P5 and P6 are read, convert it first");
    p = pnm_number(p + 2, end, &width);
    if (p) p = pnm_number(p, end, &height);
    if (p) p = pnm_number(p, end, &most);
    if (!p || p == end) return kolo_fail(KOLO_EINPUT, "PNM: damaged header");
    if (most < 1 || most > 255)
        return kolo_fail(KOLO_EINPUT, "PNM: largest value %d; only 8 bits are read, convert it first", most);
    KOLO_TRY(kolo_image_shape(image, height, width, kind == '5' ? 1 : 3));
    const size_t need = (size_t)height * (size_t)width * (size_t)image->channels;
    if ((size_t)(end - ++p) < need) return kolo_fail(KOLO_EINPUT, "PNM: truncated");
    for (size_t i = 0; i < need; i++) {
        int value = most == 255 ? p[i] : (p[i] * 255 + most / 2) / most;
        image->pixels[i] = (uint8_t)(value > 255 ? 255 : value);
    }
    return kolo_image_convert(image, channels);
}
