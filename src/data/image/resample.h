/* Antialiased resize, the same bits as Pillow's Image.resize: horizontal, then vertical, each rounded to u8,
 * weights as integers at 2^22. (KOLO_interpolation_plain is not Pillow's: two pixels a side without
 * antialias, within a level of OpenCV's INTER_LINEAR.) */
#ifndef KOLO_DATA_IMAGE_RESAMPLE_H
#define KOLO_DATA_IMAGE_RESAMPLE_H

#include "data/image/image.h"

typedef struct kolo_resampler kolo_resampler; /* scratch of one thread */

int kolo_resampler_create(kolo_resampler **resampler);
void kolo_resampler_destroy(kolo_resampler **resampler);

typedef struct kolo_resize {
    /* the box that is resized, in pixels of the image; nothing outside is read */
    double top, left, height, width;
    int full_height, full_width;    /* size that the box becomes */
    int row, column, rows, columns; /* the part of that result which is wanted */
    bool flip;                      /* the wanted part is mirrored left to right */
    int filter;                     /* KOLO_interpolation_*; 0: bilinear */
} kolo_resize;

/* to: (rows, columns, channels), `stride` bytes from row to row. */
int kolo_resample(kolo_resampler *resampler, const kolo_image *image, const kolo_resize *resize, uint8_t *to,
                  size_t stride);

/* How far a filter reaches, in pixels of the coarser of input and output. */
double kolo_resample_support(int filter);

#endif
