/* A decoded image, u8, (height, width, channels) without row padding; and files to images. */
#ifndef KOLO_DATA_IMAGE_H
#define KOLO_DATA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_image {
    uint8_t *pixels;
    int height, width, channels; /* channels: 1 or 3 */
    size_t capacity;             /* bytes behind `pixels`; the buffer is kept from image to image */
} kolo_image;

#define KOLO_IMAGE_SLACK 64       /* readable bytes after the last pixel: vector loads may pass the end */
#define KOLO_IMAGE_MAX_SIDE 65500 /* libjpeg's own limit */
#define KOLO_IMAGE_MAX_PIXELS (1u << 27)

/* Makes room and sets the shape; pixels are undefined. */
int kolo_image_shape(kolo_image *image, int height, int width, int channels);
void kolo_image_free(kolo_image *image);

enum kolo_image_kind {
    KOLO_IMAGE_UNKNOWN,
    KOLO_IMAGE_JPEG,
    KOLO_IMAGE_PNG,
    KOLO_IMAGE_BMP,
    KOLO_IMAGE_PNM,
    KOLO_IMAGE_TIFF, /* these two: where their libraries were found when this program was built */
    KOLO_IMAGE_WEBP
};
/* by the first bytes, never by a name */
enum kolo_image_kind kolo_image_sniff(const void *data, size_t bytes);

typedef struct kolo_jpeg kolo_jpeg;

/* Decodes any known kind. channels: 1 (luma), 3, or 0 (as stored: 1 or 3). An image is turned upright
 * as its EXIF orientation says. `jpeg` is the caller's decoder. Errors are KOLO_EINPUT and name the
 * cause, not the file. */
int kolo_image_decode(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, kolo_image *image);
int kolo_image_decode_png(const void *data, size_t bytes, int channels, kolo_image *image);
int kolo_image_decode_bmp(const void *data, size_t bytes, int channels, kolo_image *image);
int kolo_image_decode_pnm(const void *data, size_t bytes, int channels, kolo_image *image);
int kolo_image_decode_tiff(const void *data, size_t bytes, int channels, kolo_image *image);
int kolo_image_decode_webp(const void *data, size_t bytes, int channels, kolo_image *image);

/* Gray to RGB by repetition, RGB to gray by luma (ITU-R 601, 16-bit integers), in place. */
int kolo_image_convert(kolo_image *image, int channels);
/* EXIF orientation 1..8 to upright; `from` keeps its pixels. */
int kolo_image_turn(const kolo_image *from, int orientation, kolo_image *to);

int kolo_image_write_png(const kolo_image *image, const char *path);

#endif
