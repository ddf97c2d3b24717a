/* A decoded picture, u8, (height, width, channels) without row padding; and files to pictures. */
#ifndef KOLO_DATA_PICTURE_H
#define KOLO_DATA_PICTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_picture {
    uint8_t *pixels;
    int height, width, channels; /* channels: 1 or 3 */
    size_t capacity;             /* bytes behind `pixels`; the buffer is kept from picture to picture */
} kolo_picture;

#define KOLO_PICTURE_SLACK 64       /* readable bytes after the last pixel: vector loads may pass the end */
#define KOLO_PICTURE_MAX_SIDE 65500 /* libjpeg's own limit */
#define KOLO_PICTURE_MAX_PIXELS (1u << 27)

/* Makes room and sets the shape; pixels are undefined. */
int kolo_picture_shape(kolo_picture *picture, int height, int width, int channels);
void kolo_picture_free(kolo_picture *picture);

enum kolo_picture_kind {
    KOLO_PICTURE_UNKNOWN,
    KOLO_PICTURE_JPEG,
    KOLO_PICTURE_PNG,
    KOLO_PICTURE_BMP,
    KOLO_PICTURE_PNM,
    KOLO_PICTURE_TIFF, /* these two: where their libraries were found when this program was built */
    KOLO_PICTURE_WEBP
};
/* by the first bytes, never by a name */
enum kolo_picture_kind kolo_picture_sniff(const void *data, size_t bytes);

typedef struct kolo_jpeg kolo_jpeg;

/* Decodes any known kind. channels: 1 (luma), 3, or 0 (as stored: 1 or 3). A JPEG is turned upright as
 * its EXIF orientation says. `jpeg` is the caller's decoder. Errors are KOLO_EINPUT and name the
 * cause, not the file. */
int kolo_picture_decode(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, kolo_picture *picture);
int kolo_picture_decode_png(const void *data, size_t bytes, int channels, kolo_picture *picture);
int kolo_picture_decode_bmp(const void *data, size_t bytes, int channels, kolo_picture *picture);
int kolo_picture_decode_pnm(const void *data, size_t bytes, int channels, kolo_picture *picture);
int kolo_picture_decode_tiff(const void *data, size_t bytes, int channels, kolo_picture *picture);
int kolo_picture_decode_webp(const void *data, size_t bytes, int channels, kolo_picture *picture);

/* Gray to RGB by repetition, RGB to gray by luma (ITU-R 601, 16-bit integers), in place. */
int kolo_picture_convert(kolo_picture *picture, int channels);
/* EXIF orientation 1..8 to upright; `from` keeps its pixels. */
int kolo_picture_turn(const kolo_picture *from, int orientation, kolo_picture *to);

int kolo_picture_write_png(const kolo_picture *picture, const char *path);

#endif
