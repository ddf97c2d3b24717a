#include "data/image/image.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/image/exif.h"
#include "data/image/jpeg.h"
#include "kolo/error.h"

int kolo_image_shape(kolo_image *p, int height, int width, int channels)
{
    if (height < 1 || width < 1 || height > KOLO_IMAGE_MAX_SIDE || width > KOLO_IMAGE_MAX_SIDE ||
        (uint64_t)height * (uint64_t)width > KOLO_IMAGE_MAX_PIXELS)
        return kolo_fail(
            KOLO_EINPUT,
            "has %d x %d pixels (width x height); %d of a side and %u in all are decoded at most", width,
            height, KOLO_IMAGE_MAX_SIDE, KOLO_IMAGE_MAX_PIXELS);
    const size_t need = (size_t)height * (size_t)width * (size_t)channels + KOLO_IMAGE_SLACK;
    if (need > p->capacity) {
        free(p->pixels);
        p->capacity = 0;
        p->pixels = malloc(need);
        if (!p->pixels) return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for an image", need);
        p->capacity = need;
        memset(p->pixels + need - KOLO_IMAGE_SLACK, 0, KOLO_IMAGE_SLACK);
    }
    p->height = height;
    p->width = width;
    p->channels = channels;
    return 0;
}

void kolo_image_free(kolo_image *image)
{
    free(image->pixels);
    *image = (kolo_image){0};
}

enum kolo_image_kind kolo_image_sniff(const void *data, size_t bytes)
{
    const uint8_t *p = data;
    if (bytes >= 3 && p[0] == 0xFF && p[1] == 0xD8 && p[2] == 0xFF) return KOLO_IMAGE_JPEG;
    if (bytes >= 8 && memcmp(p, "\x89PNG\r\n\x1a\n", 8) == 0) return KOLO_IMAGE_PNG;
    if (bytes >= 2 && p[0] == 'B' && p[1] == 'M') return KOLO_IMAGE_BMP;
    if (bytes >= 3 && p[0] == 'P' && p[1] >= '1' && p[1] <= '6' && strchr(" \t\r\n#", p[2]) && p[2])
        return KOLO_IMAGE_PNM;
    if (bytes >= 4 && (memcmp(p, "II*\0", 4) == 0 || memcmp(p, "MM\0*", 4) == 0 ||
                       memcmp(p, "II+\0", 4) == 0 || memcmp(p, "MM\0+", 4) == 0))
        return KOLO_IMAGE_TIFF;
    if (bytes >= 12 && memcmp(p, "RIFF", 4) == 0 && memcmp(p + 8, "WEBP", 4) == 0) return KOLO_IMAGE_WEBP;
    return KOLO_IMAGE_UNKNOWN;
}

static int decode_jpeg(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, kolo_image *image)
{
    kolo_jpeg_info info;
    KOLO_TRY(kolo_jpeg_inspect(jpeg, data, bytes, &info));
    if (channels == 0) channels = info.components == 1 ? 1 : 3;
    return kolo_jpeg_decode(jpeg, data, bytes, channels, 1, NULL, image, NULL);
}

static int decode_stored(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, kolo_image *image)
{
    if (bytes == 0) return kolo_fail(KOLO_EINPUT, "is empty (0 bytes)");
    switch (kolo_image_sniff(data, bytes)) {
    case KOLO_IMAGE_JPEG: return decode_jpeg(jpeg, data, bytes, channels, image);
    case KOLO_IMAGE_PNG: return kolo_image_decode_png(data, bytes, channels, image);
    case KOLO_IMAGE_BMP: return kolo_image_decode_bmp(data, bytes, channels, image);
    case KOLO_IMAGE_PNM: return kolo_image_decode_pnm(data, bytes, channels, image);
    case KOLO_IMAGE_TIFF: return kolo_image_decode_tiff(data, bytes, channels, image);
    case KOLO_IMAGE_WEBP: return kolo_image_decode_webp(data, bytes, channels, image);
    case KOLO_IMAGE_UNKNOWN: break;
    }
    return kolo_fail(KOLO_EINPUT,
                     "is not an image (by its first bytes neither JPEG, PNG, BMP, PPM, TIFF nor WebP)");
}

int kolo_image_decode(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, kolo_image *image)
{
    /* a TIFF's orientation is its reader's business */
    const bool tiff = kolo_image_sniff(data, bytes) == KOLO_IMAGE_TIFF;
    const int orientation = tiff ? 1 : kolo_exif_orientation(data, bytes);
    if (orientation == 1) return decode_stored(jpeg, data, bytes, channels, image);
    kolo_image stored = {0};
    int rc = decode_stored(jpeg, data, bytes, channels, &stored);
    if (rc == 0) rc = kolo_image_turn(&stored, orientation, image);
    kolo_image_free(&stored);
    return rc;
}
static uint8_t luma(const uint8_t *rgb)
{
    return (uint8_t)((rgb[0] * 19595u + rgb[1] * 38470u + rgb[2] * 7471u + 32768) >> 16);
}

int kolo_image_convert(kolo_image *p, int channels)
{
    if (channels == 0 || channels == p->channels) return 0;
    const size_t pixels = (size_t)p->height * (size_t)p->width;
    if (channels == 1) {
        for (size_t i = 0; i < pixels; i++) p->pixels[i] = luma(p->pixels + 3 * i);
        p->channels = 1;
        return 0;
    }
    const size_t need = pixels * 3 + KOLO_IMAGE_SLACK;
    if (need > p->capacity) {
        uint8_t *grown = realloc(p->pixels, need);
        if (!grown) return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for an image", need);
        p->pixels = grown;
        p->capacity = need;
    }
    for (size_t i = pixels; i-- > 0;) memset(p->pixels + 3 * i, p->pixels[i], 3);
    p->channels = 3;
    return 0;
}

/* Where pixel (0, 0) of the upright image lies in the stored one, and the steps per upright column and
 * row. */
int kolo_image_turn(const kolo_image *from, int orientation, kolo_image *to)
{
    const int h = from->height, w = from->width, c = from->channels;
    const bool swap = orientation >= 5;
    const ptrdiff_t row = (ptrdiff_t)w * c, last_row = (h - 1) * row, last_column = (ptrdiff_t)(w - 1) * c;
    /* bit 0: from the right; bit 1: from the bottom */
    static const uint8_t corner[9] = {0, 0, 1, 3, 2, 0, 2, 3, 1};
    const int at = corner[orientation >= 1 && orientation <= 8 ? orientation : 1];
    const ptrdiff_t start = (at & 1 ? last_column : 0) + (at & 2 ? last_row : 0);
    const ptrdiff_t step_x = at & 1 ? -c : c, step_y = at & 2 ? -row : row;
    KOLO_TRY(kolo_image_shape(to, swap ? w : h, swap ? h : w, c));
    uint8_t *out = to->pixels;
    for (int y = 0; y < to->height; y++)
        for (int x = 0; x < to->width; x++, out += c)
            memcpy(out, from->pixels + start + (swap ? y * step_x + x * step_y : y * step_y + x * step_x),
                   (size_t)c);
    return 0;
}
