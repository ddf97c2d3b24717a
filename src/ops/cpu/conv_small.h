/* Convolution of few channels in plain (N, C, H, W) order, stride 1, f32: vectors run along the rows of an
 * image, so channels need no padding. For networks such as LeNet, where layouts made for many channels
 * waste most of their lanes. */
#ifndef KOLO_OPS_CPU_CONV_SMALL_H
#define KOLO_OPS_CPU_CONV_SMALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct kolo_conv_small {
    int64_t rows, in, out; /* N, C, O */
    int64_t height, width; /* of x */
    int64_t out_height, out_width;
    int64_t kernel[2], pad[2];
    int threads;
} kolo_conv_small;

/* Whether the shape is worth it and possible. */
bool kolo_conv_small_fits(const kolo_conv_small *shape);
/* Bytes of workspace of each pass. */
size_t kolo_conv_small_forward_bytes(const kolo_conv_small *shape);
size_t kolo_conv_small_data_bytes(const kolo_conv_small *shape);
size_t kolo_conv_small_weight_bytes(const kolo_conv_small *shape);

/* x (N, C, H, W), w (O, C, KH, KW), bias (O) or NULL, y (N, O, OH, OW). */
void kolo_conv_small_forward(const kolo_conv_small *shape, const float *x, const float *w, const float *bias,
                             float *y, void *workspace);
void kolo_conv_small_data(const kolo_conv_small *shape, float *dx, const float *w, const float *dy,
                          void *workspace);
/* dbias may be NULL */
void kolo_conv_small_weight(const kolo_conv_small *shape, const float *x, float *dw, float *dbias,
                            const float *dy, void *workspace);

/* ---- inside -------------------------------------------------------------------------------------------- */

enum { KOLO_SMALL_LANES = 16, KOLO_SMALL_KERNEL = 7 };

/* An image with a border of zeros, its rows long enough to be read in whole vectors. */
typedef struct kolo_bordered {
    int64_t channels, height, stride, plane;
} kolo_bordered;

kolo_bordered kolo_border(int64_t channels, int64_t height, int64_t reach);
int64_t kolo_bordered_floats(const kolo_bordered *b); /* with a vector behind it */
/* Copies (channels, h, w) into it from (top, left) on; the border stays as it is. */
void kolo_bordered_copy(const kolo_bordered *b, float *to, const float *from, int64_t h, int64_t w,
                        int64_t top, int64_t left);

static inline int64_t kolo_round16(int64_t n) { return (n + 15) / 16 * 16; }

#endif
