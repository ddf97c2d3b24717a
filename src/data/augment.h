/* From a stored picture to the network's input: where to crop (geometry), then what to change (augmentations).
 * Every draw comes from a stream keyed by (seed, epoch, sample, operation). */
#ifndef KOLO_DATA_AUGMENT_H
#define KOLO_DATA_AUGMENT_H

#include "base/philox.h"
#include "data/loader.h"
#include "data/resample.h"

/* An augmentation changes `pixels` (height, width, channels) in place. */
typedef void kolo_augment_function(uint8_t *pixels, int height, int width, int channels, kolo_random *random);

typedef struct kolo_augmentation {
    const char *name, *help;
    kolo_augment_function *apply;
} kolo_augmentation;

extern const kolo_augmentation kolo_augmentation_table[];
extern const int kolo_augmentation_count;

#define AUGMENT(name, help) kolo_augment_function kolo_augment_##name;
#include "data/augment.def"
#undef AUGMENT

/* Parses a comma separated list of names into indices of the table. *n <= most. KOLO_ECONFIG: unknown name. */
int kolo_augment_parse(const char *names, int *list, int most, int *n);

/* The stream of one operation on one sample in one epoch. */
enum { KOLO_OPERATION_CROP = 1, KOLO_OPERATION_FLIP = 2, KOLO_OPERATION_AUGMENT = 16 };
static inline kolo_random kolo_augment_random(uint64_t seed, int64_t epoch, int64_t sample, int operation)
{
    return kolo_random_at(kolo_random_key(seed, KOLO_RANDOM_AUGMENT), (uint64_t)epoch,
                          (uint64_t)sample | (uint64_t)operation << 40);
}

/* Where the output comes from: resize.box of the picture, resized to full_height x full_width, of which a part goes
 * to (top, left) of the output. Output outside of that part is 0. */
typedef struct kolo_view {
    kolo_resize resize;
    int top, left;
} kolo_view;

/* The view of a picture of height x width as `config` asks; random is used where training crops at random. */
void kolo_view_choose(kolo_view *view, const kolo_loader_config *config, int height, int width, int64_t epoch,
                      int64_t sample);

/* Single views, for tests. `short_side` 0: just large enough to cover the output (nothing is resized if it fits). */
void kolo_view_center(kolo_view *view, int height, int width, int out_height, int out_width, int short_side);
void kolo_view_pad(kolo_view *view, int height, int width, int out_height, int out_width, int pad, kolo_random *random);
void kolo_view_resized(kolo_view *view, int height, int width, int out_height, int out_width, double area_min,
                       double area_max, kolo_random *random);
void kolo_view_flip(kolo_view *view, int out_width);
/* True if the view is the whole picture, pixel by pixel. */
bool kolo_view_is_whole(const kolo_view *view, int height, int width);

/* Makes the output from a picture in which the box of the view was taken down by `denominator` and which begins at
 * (origin_top, origin_left) of the so reduced picture. to: (out_height, out_width, channels). */
int kolo_view_render(const kolo_view *view, kolo_resampler *resampler, const kolo_picture *picture, int denominator,
                     int origin_top, int origin_left, int out_height, int out_width, uint8_t *to);

#endif
