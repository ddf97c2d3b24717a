/* The arithmetic of one element, shared by the CPU loops and CUDA kernels, so that both round alike. */
#ifndef KOLO_OPS_ELEMENT_H
#define KOLO_OPS_ELEMENT_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/half.h"

/* Keeps a NaN, as torch does. */
KOLO_INLINE float kolo_relu1(float x) { return x < 0.0f ? 0.0f : x; }
KOLO_INLINE float kolo_relu_grad1(float dy, float y) { return y > 0.0f ? dy : 0.0f; }

/* A u8 pixel as torchvision's ToTensor and Normalize give it. */
KOLO_INLINE float kolo_pixel1(uint8_t pixel, float mean, float std)
{
    return ((float)pixel / 255.0f - mean) / std;
}

/* scale = weight / sqrt(var + epsilon) */
KOLO_INLINE float kolo_norm1(float x, float mean, float scale, float bias)
{
    return (x - mean) * scale + bias;
}

/* mean_g = sum(g) / M; slope = sum(g xhat) / M / sqrt(var + epsilon) */
KOLO_INLINE float kolo_norm_grad1(float g, float x, float mean, float scale, float mean_g, float slope)
{
    return (g - mean_g - (x - mean) * slope) * scale;
}

/* One term of the gradient of a loss of classes; p: softmax (or sigmoid), y: the target (1 for the label's
 * own class), smoothing eps over `classes`. */
KOLO_INLINE float kolo_cross_entropy_grad1(float p, float y, float eps, float classes, float inverse_rows)
{
    return (p - y * (1.0f - eps) - eps / classes) * inverse_rows;
}

/* A class's terms of binary cross entropy by the logit x, with their weights: yes softplus(-x) + no
 * softplus(x). s: sigmoid(x) */
KOLO_INLINE double kolo_bce_weighed(float x, float yes, float no)
{
    const double tail = (double)log1pf(expf(x > 0 ? -x : x)), size = (double)(x > 0 ? x : -x);
    return (double)yes * (x > 0 ? tail : size + tail) + (double)no * (x > 0 ? size + tail : tail);
}
KOLO_INLINE float kolo_bce_weighed_grad(float s, float yes, float no, float factor)
{
    return ((yes + no) * s - yes) * factor;
}

#endif
