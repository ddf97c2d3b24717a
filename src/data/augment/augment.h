/* From a stored image to the network's input: where to crop (geometry), then what to change
 * (augmentations). Every draw comes from a stream keyed by (seed, epoch, view, sample, operation). */
#ifndef KOLO_DATA_AUGMENT_H
#define KOLO_DATA_AUGMENT_H

#include "base/philox.h"
#include "data/augment/adjust.h"
#include "data/loader.h"
#include "data/image/resample.h"

enum { KOLO_AUGMENT_PARAMETERS = 6 };

/* An augmentation changes the canvas; parameter: [KOLO_AUGMENT_PARAMETERS], those it has, in order. */
typedef void kolo_augment_function(kolo_canvas *canvas, const double *parameter, kolo_random *random);

typedef struct kolo_augment_parameter {
    const char *name; /* NULL behind the last */
    double standard, low, high;
    bool whole, rises; /* a whole number; not less than the parameter before */
} kolo_augment_parameter;

typedef struct kolo_augmentation {
    const char *name, *help;
    kolo_augment_function *apply;
    kolo_augment_parameter parameter[KOLO_AUGMENT_PARAMETERS];
} kolo_augmentation;

extern const kolo_augmentation kolo_augmentation_table[];
extern const int kolo_augmentation_count;

#define AUGMENT(name, help, ...) kolo_augment_function kolo_augment_##name;
#include "data/augment/augment.def"
#undef AUGMENT

enum { KOLO_AUGMENT_MOST = 16 }; /* entries */

/* One entry of the option `augment`. */
typedef struct kolo_augment_step {
    int index;  /* in the table */
    int before; /* entries of the same name before this one */
    double parameter[KOLO_AUGMENT_PARAMETERS];
} kolo_augment_step;

/* Parses entries NAME or NAME(NUMBER,...) with commas between; numbers that are not given take their
 * standard value. *n <= most. KOLO_ECONFIG: unknown name (the nearest is offered), a number too many, out
 * of range, no number. */
int kolo_augment_parse(const char *text, kolo_augment_step *list, int most, int *n);
/* "name(parameter=standard, ...)" of one line of the table. */
void kolo_augment_usage(const kolo_augmentation *augmentation, char *text, size_t size);
/* `pass` as kolo_augment_pass makes it. */
void kolo_augment_apply(const kolo_augment_step *list, int n, kolo_canvas *canvas, uint64_t seed,
                        int64_t pass, int64_t sample);

/* The operations that RandAugment and TrivialAugment are made of, for tests. torchvision's: number 0 .. 13 in
 * the order Identity, ShearX, ShearY, TranslateX, TranslateY, Rotate, Brightness, Color, Contrast, Sharpness,
 * Posterize, Solarize, AutoContrast, Equalize; bin 0 .. 30; wide: TrivialAugmentWide. timm's: number 0 .. 14
 * in the order of its increasing transforms (AutoContrast .. TranslateYRel). */
void kolo_rand_operation(kolo_canvas *canvas, bool wide, int operation, int bin, bool negative);
void kolo_timm_operation(kolo_canvas *canvas, int operation, double magnitude, bool negative, bool cubic);

/* Repeated augmentation shows `view` 0, 1, ... of one sample in an epoch. */
static inline int64_t kolo_augment_pass(int64_t epoch, int64_t view) { return epoch | view << 32; }

/* The stream of one operation on one sample in one pass. Operations up to 255; augmentation i of the table
 * has KOLO_OPERATION_AUGMENT + i. */
enum {
    KOLO_OPERATION_CROP = 1,
    KOLO_OPERATION_FLIP = 2,
    KOLO_OPERATION_MIX = 3,
    KOLO_OPERATION_MOSAIC = 4,     /* detection: which images, and where */
    KOLO_OPERATION_WARP = 5,       /* detection: the affine map */
    KOLO_OPERATION_DETECT_MIX = 6, /* detection: mixup's image, its size and place */
    KOLO_OPERATION_HSV = 7,
    KOLO_OPERATION_AUGMENT = 16
};
static inline kolo_random kolo_augment_random(uint64_t seed, int64_t pass, int64_t sample, int operation)
{
    return kolo_random_at(kolo_random_key(seed, KOLO_RANDOM_AUGMENT), (uint64_t)pass,
                          (uint64_t)sample | (uint64_t)operation << 40);
}

/* Where the output comes from: resize.box of the image, resized to full_height x full_width, of which a
 * part goes to (top, left) of the output. Output outside of that part is 0. */
typedef struct kolo_view {
    kolo_resize resize;
    int top, left;
} kolo_view;

/* The view of an image of height x width as `config` asks; random is used where training crops at random. */
void kolo_view_choose(kolo_view *view, const kolo_loader_config *config, int height, int width, int64_t pass,
                      int64_t sample);

/* Single views, for tests. `short_side` 0: just large enough to cover the output (nothing is
 * resized if it fits). */
void kolo_view_center(kolo_view *view, int height, int width, int out_height, int out_width, int short_side);
void kolo_view_pad(kolo_view *view, int height, int width, int out_height, int out_width, int pad,
                   kolo_random *random);
void kolo_view_resized(kolo_view *view, int height, int width, int out_height, int out_width, double area_min,
                       double area_max, kolo_random *random);
void kolo_view_flip(kolo_view *view, int out_width);
/* True if the view is the whole image, pixel by pixel. */
bool kolo_view_is_whole(const kolo_view *view, int height, int width);

/* A part of the output. */
typedef struct kolo_window {
    int top, left, height, width;
} kolo_window;
/* Of the view what makes that part, whose pixels are then the whole's; its rows or columns may be none. */
kolo_view kolo_view_cut(const kolo_view *view, const kolo_window *window);

/* Makes the output from an image in which the box of the view was taken down by `denominator` and which
 * begins at (origin_top, origin_left) of the so reduced image. to: (out_height, out_width, channels). */
int kolo_view_render(const kolo_view *view, kolo_resampler *resampler, const kolo_image *image,
                     int denominator, int origin_top, int origin_left, int out_height, int out_width,
                     uint8_t *to);

#endif
