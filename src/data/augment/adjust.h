/* Elementary changes of a u8 image, in place: what augmentations are put together from. Where nothing else
 * is said the arithmetic is Pillow's (ImageOps, ImageEnhance, Image.transform), byte for byte; `jitter`
 * functions are torchvision's v2 on u8 tensors. Nothing here allocates or draws random numbers. */
#ifndef KOLO_DATA_AUGMENT_ADJUST_H
#define KOLO_DATA_AUGMENT_ADJUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An image that is being changed, and one thread's memory for that. */
typedef struct kolo_canvas {
    uint8_t *pixels;             /* (height, width, channels), the caller's */
    int height, width, channels; /* channels: 1 or 3 */
    uint8_t *spare;              /* as large, content undefined, readable for KOLO_IMAGE_SLACK more bytes */
    uint16_t *wide;              /* height * width * channels numbers, content undefined */
    uint8_t mean[3];             /* the data set's mean colour */
    /* [3]: quantiles of a normal distribution of the data set's mean and deviation */
    uint8_t (*noise)[1024];
} kolo_canvas;

/* Makes room for images of one shape; mean and std: [channels], in [0, 1], std 0: not known (0.5, 0.25).
 * KOLO_ENOMEM: no memory. */
int kolo_canvas_create(kolo_canvas **canvas, int height, int width, int channels, const float *mean,
                       const float *std);
void kolo_canvas_destroy(kolo_canvas **canvas);
static inline size_t kolo_canvas_bytes(const kolo_canvas *c)
{
    return (size_t)c->height * (size_t)c->width * (size_t)c->channels;
}

/* ---- maps of single values ----------------------------------------------------------------------------- */
void kolo_adjust_invert(kolo_canvas *canvas);
/* keeps the top `bits`, 0 to 8 */
void kolo_adjust_posterize(kolo_canvas *canvas, int bits);
/* inverts values >= threshold */
void kolo_adjust_solarize(kolo_canvas *canvas, double threshold);
/* adds to values < threshold */
void kolo_adjust_solarize_add(kolo_canvas *canvas, int add, double threshold);
void kolo_adjust_autocontrast(kolo_canvas *canvas); /* per channel, no cutoff */
void kolo_adjust_equalize(kolo_canvas *canvas);     /* per channel */

/* ---- factors: 1 changes nothing ------------------------------------------------------------------------ */
void kolo_adjust_brightness(kolo_canvas *canvas, float factor);
void kolo_adjust_contrast(kolo_canvas *canvas, float factor);
void kolo_adjust_color(kolo_canvas *canvas, float factor); /* 0: gray; nothing happens to gray images */
void kolo_adjust_sharpness(kolo_canvas *canvas, float factor);
void kolo_adjust_grayscale(kolo_canvas *canvas); /* luma into all channels */

/* torchvision v2: adjust_contrast, adjust_saturation, adjust_hue (in turns, -0.5 to 0.5). Its
 * adjust_brightness is kolo_adjust_brightness. */
void kolo_jitter_contrast(kolo_canvas *canvas, double factor);
void kolo_jitter_saturation(kolo_canvas *canvas, double factor);
void kolo_jitter_hue(kolo_canvas *canvas, float turn);

/* Gaussian of 2 * radius + 1 taps, mirrored at the borders without repeating the border pixel, as
 * torchvision's gaussian_blur; radius <= 12 and below height and width (else it is cut to that). */
void kolo_adjust_blur(kolo_canvas *canvas, double sigma, int radius);

/* ---- geometry ------------------------------------------------------------------------------------------ */
/* Output (x, y) shows input (m[0] (x + .5) + m[1] (y + .5) + m[2], m[3] (x + .5) + m[4] (y + .5) + m[5]);
 * outside of the image is `fill` ([channels]). */
void kolo_adjust_affine(kolo_canvas *canvas, const double *matrix, bool cubic, const uint8_t *fill);
/* That matrix for a rotation by `degrees` counter-clockwise about the middle (Image.rotate). */
void kolo_matrix_rotate(double *matrix, double degrees, int height, int width);
/* torchvision's F.affine: rotation (clockwise), translation in pixels, scale and shear (degrees) about
 * (center_x, center_y). */
typedef struct kolo_affine {
    double degrees, right, down, scale, shear_x, shear_y, center_x, center_y;
} kolo_affine;
void kolo_matrix_affine(double *matrix, const kolo_affine *affine);

#endif
