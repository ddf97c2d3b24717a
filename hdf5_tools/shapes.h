/* Procedural photos: a figure of one of ten classes before a textured background, with noise and things in the way. */
#ifndef HDF5_TOOLS_SHAPES_H
#define HDF5_TOOLS_SHAPES_H

#include "data/picture.h"

#define SHAPES_CLASSES 10
extern const char *const shapes_names[SHAPES_CLASSES]; /* in byte order */

/* The photo with this number, 64 to 96 pixels a side; its class is number mod 10. *quality: of its JPEG. */
int shapes_draw(int64_t number, kolo_picture *picture, int *quality);

#endif
