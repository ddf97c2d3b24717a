/* The orientation tag of an image's EXIF block: JPEG, PNG, WebP; TIFF has it in its own header. */
#ifndef KOLO_DATA_IMAGE_EXIF_H
#define KOLO_DATA_IMAGE_EXIF_H

#include <stddef.h>

/* 1 to 8; 1 where there is none, or it is invalid or damaged. */
int kolo_exif_orientation(const void *image, size_t bytes);

#endif
