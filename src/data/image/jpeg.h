/* JPEG to pixels and back by libjpeg-turbo. One decoder a thread; it keeps its memory
 * from image to image. */
#ifndef KOLO_DATA_IMAGE_JPEG_H
#define KOLO_DATA_IMAGE_JPEG_H

#include "data/image/image.h"

int kolo_jpeg_create(kolo_jpeg **jpeg);
void kolo_jpeg_destroy(kolo_jpeg **jpeg);

typedef struct kolo_jpeg_info {
    int height, width; /* as stored, before any turn */
    int components;    /* 1 gray, 3 colour, 4 CMYK or YCCK */
    int orientation;   /* EXIF, 1 when absent or invalid */
} kolo_jpeg_info;

int kolo_jpeg_inspect(kolo_jpeg *jpeg, const void *data, size_t bytes, kolo_jpeg_info *info);

typedef struct kolo_jpeg_window {
    int top, left, height, width;
} kolo_jpeg_window;

/* Decodes at 1/denominator of the size (1, 2, 4, 8) what covers `window`, which is given in stored full-size
 * pixels (NULL: everything). The result may be larger than asked (whole blocks); *origin (may be NULL) tells
 * which part of the scaled image it is: top and left of image->pixels[0], height and width of the whole
 * scaled image. channels 1 or 3. A JPEG that ends early or has damaged data is an error. */
int kolo_jpeg_decode(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, int denominator,
                     const kolo_jpeg_window *window, kolo_image *image, kolo_jpeg_window *origin);
/* The same; the data are read as far as for `within`, which holds the window: so they are found damaged
 * whichever part of it is decoded. */
int kolo_jpeg_decode_part(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, int denominator,
                          const kolo_jpeg_window *window, const kolo_jpeg_window *within, kolo_image *image,
                          kolo_jpeg_window *origin);

/* Baseline, 4:2:0, optimised tables off: the same bytes for the same pixels and library. *data grows as
 * needed (kept by the caller, freed with free()), *bytes is the length. */
int kolo_jpeg_encode(const kolo_image *image, int quality, uint8_t **data, size_t *capacity, size_t *bytes);

#endif
