/* Procedural photos: a figure of one of ten classes before a textured background, with noise and things in
 * the way; or scenes of several figures, for detection. */
#ifndef HDF5_TOOLS_SOURCES_DRAW_SHAPES_H
#define HDF5_TOOLS_SOURCES_DRAW_SHAPES_H

#include "data/image/image.h"

#define SHAPES_CLASSES 10
extern const char *const shapes_names[SHAPES_CLASSES]; /* in byte order */

/* The photo with this number, 64 to 96 pixels a side; its class is number mod 10. *quality: of its JPEG. */
int shapes_draw(int64_t number, kolo_image *image, int *quality);

#define SHAPES_MOST 6 /* figures in a scene */

typedef struct shapes_box {
    int label, x, y, width, height; /* pixels; the whole figure, as far as it is in the image */
    double area;                    /* its pixels */
    bool occluded, truncated;
} shapes_box;

/* The scene with this number, 128 to 224 pixels a side, and its boxes: how many. */
int shapes_draw_scene(int64_t number, kolo_image *image, int *quality);
int shapes_list_scene(int64_t number, int *height, int *width, shapes_box boxes[SHAPES_MOST]);

#endif
