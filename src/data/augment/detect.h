/* Augmentation for detection: images together with their boxes, as YOLOX (Ge et al. 2021, release 0.3.0)
 * trains: mosaic of four, random affine map, mixup with a fifth, HSV jitter, mirror. What is drawn
 * (kolo_detect_choose) and what is done (kolo_detect_make) are apart: the draw follows from (seed, epoch,
 * sample) alone and names the images to read.
 *
 * Boxes are x0 y0 x1 y1 in pixels, 0 at the left and upper border of the image, its width and height at the
 * others, so the middle of the first pixel is (0.5, 0.5): pixels and boxes are carried exactly alike.
 * OpenCV's maps, which YOLOX uses, have pixel middles at whole numbers, up to half a pixel of the input away.
 * A box is dropped where its smaller side is left with `side_min` pixels of the output or less, after all
 * clipping. Otherwise than YOLOX: mixup's image is resized once, not twice; images without boxes are
 * jittered and mirrored too; if all boxes are dropped, the result has none (there the boxes of the
 * unchanged image come back). */
#ifndef KOLO_DATA_AUGMENT_DETECT_H
#define KOLO_DATA_AUGMENT_DETECT_H

#include <stdbool.h>
#include <stdint.h>

#include "data/image/image.h"
#include "data/image/resample.h"

/* ---- boxes --------------------------------------------------------------------------------------------- */

typedef struct kolo_boxes {
    float (*box)[4];
    int32_t *cls;            /* -1: a region of a crowd, which is carried along but is no object */
    int64_t count, capacity; /* the arrays are kept from image to image */
} kolo_boxes;

int kolo_boxes_add(kolo_boxes *boxes, const float *box, int32_t cls); /* KOLO_ENOMEM: no memory */
void kolo_boxes_free(kolo_boxes *boxes);
/* All of the following from box number `first` on. */
/* x * scale + right */
void kolo_boxes_move(kolo_boxes *boxes, int64_t first, double scale, double right, double down);
/* left to right in an image of that width */
void kolo_boxes_flip(kolo_boxes *boxes, int64_t first, double width);
void kolo_boxes_clip(kolo_boxes *boxes, int64_t first, double width, double height);
/* Each becomes the upright box round its four corners' images; matrix: [9], rows, input to output. */
void kolo_boxes_warp(kolo_boxes *boxes, int64_t first, const double *matrix);
/* Keeps those of which both sides are longer than side_min. */
void kolo_boxes_drop(kolo_boxes *boxes, double side_min);
int64_t kolo_boxes_objects(const kolo_boxes *boxes); /* how many are no regions */

/* ---- images ------------------------------------------------------------------------------------------ */

/* All of an image in one value. */
void kolo_detect_fill(kolo_image *image, int value);
/* `from`, made full_height x full_width (and mirrored), goes to (top, left) of `canvas`; what lies outside is
 * left away. filter: KOLO_interpolation_*. Both have the same channels. */
typedef struct kolo_detect_place {
    int top, left, full_height, full_width;
    bool flip;
} kolo_detect_place;
int kolo_detect_put(kolo_resampler *resampler, int filter, const kolo_image *from,
                    const kolo_detect_place *place, kolo_image *canvas);
/* The place that fits an image of height x width into out_height x out_width, keeping its aspect; *scale: of
 * its boxes (then moved by left, top). In the upper left corner, or in the middle; sides are rounded down as
 * YOLOX does, or as darknet does. */
void kolo_detect_letterbox(int height, int width, int out_height, int out_width, bool centered,
                           kolo_detect_place *place, double *scale);
/* Bilinear (weights in steps of 1/256): pixel p of `to`, whose shape is given, is `from` at inverse * p, and
 * `fill` outside of it. inverse: [9], row by row, output to input. */
void kolo_detect_warp(const kolo_image *from, const double *inverse, int fill, kolo_image *to);
/* Hue (of 180), saturation and value (of 255) plus these, all in OpenCV's u8 HSV. RGB only. */
void kolo_detect_hsv(kolo_image *image, int hue, int saturation, int value);
/* Left to right, the first `columns` of each row. */
void kolo_detect_mirror(kolo_image *image, int columns);
/* image := (image + other) / 2, rounded down; shapes are the same. */
void kolo_detect_average(kolo_image *image, const kolo_image *other);

/* ---- the whole ----------------------------------------------------------------------------------------- */

typedef struct kolo_detect_config {
    int height, width;                /* of the output */
    double mosaic, mixup, hsv, flip;  /* probabilities; mixup: of mosaics that have objects */
    double degrees, translate, shear; /* either way: degrees, part of the side, degrees */
    double scale_min, scale_max;      /* of the mosaic, whose canvas is twice the output */
    double perspective;               /* either way, per pixel; 0: none */
    double mixup_scale_min, mixup_scale_max;
    double hue, saturation, value; /* either way, in units of kolo_detect_hsv */
    double side_min;               /* pixels */
    int fill;                      /* of what no image covers */
    int filter;                    /* KOLO_interpolation_* */
    /* KOLO_crowd_*: what becomes of boxes of crowds and groups, for those who read boxes */
    int crowd;
    bool centered; /* a single image lies in the middle of the output, else in its upper left corner */
} kolo_detect_config;

/* YOLOX's constants, for -s, -m, -l, -x; `small`: those of -tiny (and -nano, but for its mosaic=0.5). */
void kolo_detect_usual(kolo_detect_config *config, int height, int width, bool small);

/* A box x0 y0 x1 y1 of the output back to the image of height x width that was fitted into it alone. */
void kolo_detect_unfit(const kolo_detect_config *config, int height, int width, const double *box,
                       double *to);

enum { KOLO_DETECT_IMAGES = 5 }; /* own, three more of a mosaic, that of mixup */

typedef struct kolo_detect_draw {
    bool mosaic, mixup, flip, mixup_flip;
    /* to read: [0], and with mosaic [1] to [3], with mixup [4]; else -1 */
    int64_t sample[KOLO_DETECT_IMAGES];
    int center_x, center_y;                      /* of the mosaic, in its canvas */
    double matrix[9];                            /* canvas to output */
    double mixup_scale, mixup_right, mixup_down; /* size, and place as a part of the room there is */
    int hue, saturation, value;
} kolo_detect_draw;

/* The affine map that eight numbers in [0, 1) mean: angle, scale, shear x and y, translation x and y
 * (rotation and scale about the corner, as YOLOX's get_affine_matrix), perspective x and y about the canvas's
 * middle (as Ultralytics'). */
void kolo_detect_matrix(double *matrix, const kolo_detect_config *config, const double *part);

/* count: samples of the split. offset: [count + 1] boxes of sample i from offset[i], to take only images
 * with boxes for mixup; NULL: not known. pass: kolo_augment_pass(). */
void kolo_detect_choose(kolo_detect_draw *draw, const kolo_detect_config *config, uint64_t seed, int64_t pass,
                        int64_t sample, int64_t count, const int64_t *offset);

typedef struct kolo_detector kolo_detector; /* memory of one thread */

int kolo_detector_create(kolo_detector **detector);
void kolo_detector_destroy(kolo_detector **detector);
/* images, boxes: [KOLO_DETECT_IMAGES], those that the draw names (RGB, any size; boxes in their pixels),
 * unchanged. to: (height, width, 3); its boxes replace those of `out`. */
int kolo_detect_make(kolo_detector *detector, const kolo_detect_config *config, const kolo_detect_draw *draw,
                     const kolo_image *images, const kolo_boxes *boxes, uint8_t *to, kolo_boxes *out);

#endif
