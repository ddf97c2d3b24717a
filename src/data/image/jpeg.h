/* JPEG to pixels and back by libjpeg-turbo. One decoder a thread; it keeps its memory
 * from picture to picture. */
#ifndef KOLO_DATA_PICTURE_JPEG_H
#define KOLO_DATA_PICTURE_JPEG_H

#include "data/picture/picture.h"

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
 * which part of the scaled picture it is: top and left of picture->pixels[0], height and width of the whole
 * scaled picture. channels 1 or 3. A JPEG that ends early or has damaged data is an error. */
int kolo_jpeg_decode(kolo_jpeg *jpeg, const void *data, size_t bytes, int channels, int denominator,
                     const kolo_jpeg_window *window, kolo_picture *picture, kolo_jpeg_window *origin);

/* Baseline, 4:2:0, optimised tables off: the same bytes for the same pixels and library. *data grows as
 * needed (kept by the caller, freed with free()), *bytes is the length. */
int kolo_jpeg_encode(const kolo_picture *picture, int quality, uint8_t **data, size_t *capacity,
                     size_t *bytes);

#endif
