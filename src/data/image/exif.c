#include "data/image/exif.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "data/image/image.h"

static uint32_t get16(const uint8_t *p, bool big)
{
    return big ? (uint32_t)p[0] << 8 | p[1] : (uint32_t)p[1] << 8 | p[0];
}

static uint32_t get32(const uint8_t *p, bool big)
{
    return big ? get16(p, true) << 16 | get16(p + 2, true) : get16(p + 2, false) << 16 | get16(p, false);
}

/* A TIFF header, then directories of 12-byte entries; orientation is tag 0x112 of the first, one SHORT. */
static int orientation_of_tiff(const uint8_t *p, size_t n)
{
    if (n < 8 || (memcmp(p, "II*\0", 4) != 0 && memcmp(p, "MM\0*", 4) != 0)) return 1;
    const bool big = p[0] == 'M';
    const size_t start = get32(p + 4, big);
    if (start > n || n - start < 2) return 1;
    const size_t entries = get16(p + start, big);
    for (size_t i = 0; i < entries; i++) {
        const size_t at = start + 2 + 12 * i;
        if (at + 12 > n) return 1;
        if (get16(p + at, big) != 0x112) continue;
        const uint32_t value = get16(p + at + 8, big);
        return get16(p + at + 2, big) == 3 && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* EXIF as a chunk holds it: a TIFF, before which some programs leave the six bytes that JPEG has there. */
static int orientation_of_chunk(const uint8_t *p, size_t n)
{
    const size_t skip = n >= 6 && memcmp(p, "Exif\0\0", 6) == 0 ? 6 : 0;
    return orientation_of_tiff(p + skip, n - skip);
}

static int orientation_of_jpeg(const uint8_t *p, size_t bytes)
{
    for (size_t at = 2; at + 4 <= bytes && p[at] == 0xFF;) {
        const uint8_t marker = p[at + 1];
        if (marker == 0xFF) { /* fill byte */
            at++;
            continue;
        }
        if (marker == 0xDA || marker == 0xD9) break; /* scan or end */
        const size_t length = get16(p + at + 2, true);
        if (length < 2 || at + 2 + length > bytes) break;
        if (marker == 0xE1 && length >= 16 && memcmp(p + at + 4, "Exif\0\0", 6) == 0)
            return orientation_of_tiff(p + at + 10, length - 8);
        at += 2 + length;
    }
    return 1;
}

/* After the signature chunks of length, name, data, checksum; eXIf may stand before the pixels or behind. */
static int orientation_of_png(const uint8_t *p, size_t bytes)
{
    for (size_t at = 8; at <= bytes && bytes - at >= 12;) {
        const size_t length = get32(p + at, true);
        if (length > bytes - at - 12) break;
        if (memcmp(p + at + 4, "eXIf", 4) == 0) return orientation_of_chunk(p + at + 8, length);
        at += 12 + length;
    }
    return 1;
}

/* After RIFF, size, WEBP chunks of name, length, data, padded to an even length. */
static int orientation_of_webp(const uint8_t *p, size_t bytes)
{
    for (size_t at = 12; at <= bytes && bytes - at >= 8;) {
        const size_t length = get32(p + at + 4, false);
        if (length > bytes - at - 8) break;
        if (memcmp(p + at, "EXIF", 4) == 0) return orientation_of_chunk(p + at + 8, length);
        at += 8 + length + (length & 1);
    }
    return 1;
}

int kolo_exif_orientation(const void *image, size_t bytes)
{
    switch (kolo_image_sniff(image, bytes)) {
    case KOLO_IMAGE_JPEG: return orientation_of_jpeg(image, bytes);
    case KOLO_IMAGE_PNG: return orientation_of_png(image, bytes);
    case KOLO_IMAGE_TIFF: return orientation_of_tiff(image, bytes);
    case KOLO_IMAGE_WEBP: return orientation_of_webp(image, bytes);
    case KOLO_IMAGE_BMP:
    case KOLO_IMAGE_PNM:
    case KOLO_IMAGE_UNKNOWN: break;
    }
    return 1;
}
