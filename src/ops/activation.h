/* Activations of one element and their slopes, shared by the CPU loops and CUDA kernels. All are made of
 * additions, products, one division and moves of bits, so loops over them become vectors. Errors: within 2
 * units of the last place; of GELU and its approximation 4 and 8 units where x > -3, and 4e-7 beyond.
 * Coefficients: minimax fits to functions of 50 digits. A NaN stays one. */
#ifndef KOLO_OPS_ACTIVATION_H
#define KOLO_OPS_ACTIVATION_H

#include "graph/graph.h"
#include "ops/element.h"

#define KOLO_INLINED KOLO_INLINE __attribute__((always_inline))

/* e^x; x is taken into [-87, 88.3], where the result is a normal number. */
KOLO_INLINED float kolo_exp1(float x)
{
    const float round = 12582912.0f; /* 1.5 2^23: the sum's last bits are the nearest integer */
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.3f ? 88.3f : x;
    float shifted = x * 1.44269504f + round, n = shifted - round;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.97903410e-4f;
    p = p * r + 1.39446590e-3f;
    p = p * r + 8.33349700e-3f;
    p = p * r + 4.16662950e-2f;
    p = p * r + 0.16666666f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    return p * kolo_bits_float((kolo_float_bits(shifted) << 23) + 0x3F800000u);
}

/* The distribution function of the standard normal distribution. The tail is e t P(t), e = e^(-x^2/2),
 * t = 1 / (1 + 0.3 |x|). */
KOLO_INLINED float kolo_normal_of1(float x, float e, float t)
{
    float p = -0.020623466f;
    p = p * t + 0.112435594f;
    p = p * t - 0.22821356f;
    p = p * t + 0.19178449f;
    p = p * t - 0.07942345f;
    p = p * t + 0.096156806f;
    p = p * t + 0.07838966f;
    p = p * t + 0.11023542f;
    p = p * t + 0.11957181f;
    p = p * t + 0.11968669f;
    float tail = p * t * e;
    return x < 0 ? tail : 1.0f - tail;
}

/* And its density. */
KOLO_INLINED float kolo_normal1(float x, float *density)
{
    float size = x < 0 ? -x : x, e = kolo_exp1(-0.5f * x * x), t = 1.0f / (1.0f + 0.3f * size);
    *density = 0.398942280f * e;
    return kolo_normal_of1(x, e, t);
}

KOLO_INLINED float kolo_sigmoid1(float x) { return 1.0f / (1.0f + kolo_exp1(-x)); }

/* s (1 - s), without the difference */
KOLO_INLINED float kolo_sigmoid_slope1(float x)
{
    float e = kolo_exp1(x < 0 ? x : -x), below = 1.0f + e;
    return e / (below * below);
}

KOLO_INLINED float kolo_tanh1(float x)
{
    float size = x < 0 ? -x : x, q = x * x, p = 2.3954844e-3f;
    p = p * q - 8.4136810e-3f;
    p = p * q + 2.1782743e-2f;
    p = p * q - 5.3959638e-2f;
    p = p * q + 0.13333294f;
    p = p * q - 0.33333330f;
    float near = p * q * x + x, far = 1.0f - 2.0f / (kolo_exp1(2.0f * size) + 1.0f);
    return size < 0.55f ? near : x < 0 ? -far : far;
}

/* 2 sqrt(2/pi) (x + 0.044715 x^3): twice the argument of tanh in GELU's approximation */
KOLO_INLINED float kolo_gelu_argument1(float x) { return 1.59576912f * x * (1.0f + 0.044715f * x * x); }

KOLO_INLINED float kolo_clamp6(float x) { return x < 0 ? 0.0f : x > 6.0f ? 6.0f : x; }

/* `slope`: of leaky ReLU below 0. `kind` is a constant wherever this is inlined. */
KOLO_INLINED float kolo_activation1(enum kolo_activation kind, float slope, float x)
{
    float density;
    switch (kind) {
    case KOLO_GELU: return x * kolo_normal1(x, &density);
    case KOLO_GELU_TANH: return x * kolo_sigmoid1(kolo_gelu_argument1(x));
    case KOLO_SILU: return x * kolo_sigmoid1(x);
    case KOLO_LEAKY_RELU: return x > 0 ? x : slope * x;
    case KOLO_HARD_SWISH: return x * kolo_clamp6(x + 3.0f) / 6.0f;
    case KOLO_HARD_SIGMOID: return kolo_clamp6(x + 3.0f) / 6.0f;
    case KOLO_RELU6: return kolo_clamp6(x);
    case KOLO_SIGMOID: return kolo_sigmoid1(x);
    default: return kolo_tanh1(x);
    }
}

KOLO_INLINED float kolo_activation_grad1(enum kolo_activation kind, float slope, float dy, float x)
{
    float density, s;
    switch (kind) {
    case KOLO_GELU: s = kolo_normal1(x, &density); return dy * (s + x * density);
    case KOLO_GELU_TANH:
        x = x < -10.0f ? -10.0f : x > 10.0f ? 10.0f : x; /* the slope is 0 or 1 beyond, the square finite */
        s = kolo_gelu_argument1(x);
        return dy *
               (kolo_sigmoid1(s) + x * kolo_sigmoid_slope1(s) * 1.59576912f * (1.0f + 0.134145f * x * x));
    case KOLO_SILU: return dy * (kolo_sigmoid1(x) + x * kolo_sigmoid_slope1(x));
    case KOLO_LEAKY_RELU: return x > 0 ? dy : slope * dy;
    case KOLO_HARD_SWISH: return x <= -3.0f ? 0.0f : x < 3.0f ? dy * (x / 3.0f + 0.5f) : dy;
    case KOLO_HARD_SIGMOID: return x > -3.0f && x < 3.0f ? dy / 6.0f : 0.0f;
    case KOLO_RELU6: return x > 0 && x < 6.0f ? dy : 0.0f;
    case KOLO_SIGMOID: return dy * kolo_sigmoid_slope1(x);
    default: s = kolo_sigmoid_slope1(2.0f * x); return dy * (4.0f * s);
    }
}

/* Whether 0 stays 0, so that padding need not be cleared. */
KOLO_INLINE bool kolo_activation_keeps_zero(enum kolo_activation kind)
{
    return kind != KOLO_SIGMOID && kind != KOLO_HARD_SIGMOID;
}

#endif
