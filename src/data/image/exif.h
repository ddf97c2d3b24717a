/* The orientation tag of a JPEG's EXIF block. */
#ifndef KOLO_DATA_IMAGE_EXIF_H
#define KOLO_DATA_IMAGE_EXIF_H

#include <stddef.h>

/* 1 to 8; 1 where there is none, or it is invalid or damaged. */
int kolo_exif_orientation(const void *jpeg, size_t bytes);

#endif
