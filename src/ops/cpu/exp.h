/* e^x in f32 for loops that are to become vectors: within 1.5 units of the last place, 0 below -87.3 (what
 * softmax needs: activation.h's stays a normal number), infinity above 88.3. */
#ifndef KOLO_OPS_CPU_EXP_H
#define KOLO_OPS_CPU_EXP_H

#include "ops/cpu/access.h"

/* x = n ln 2 + r, |r| <= ln 2 / 2: 2^n by its exponent, e^r by a polynomial (the coefficients are those of
 * Cephes, Moshier 1992). */
KOLO_ALWAYS float kolo_exp_zero1(float x)
{
    /* 1.5 2^23: a sum with it is a whole number */
    const float low = -87.3f, high = 88.8f, shift = 12582912.0f;
    const float in = x < low    ? low
                     : x > high ? high
                                : x,
                moved = in * 1.44269504088896341f + shift, n = moved - shift;
    const float r = (in - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    const float power = kolo_bits_float((kolo_float_bits(moved) - kolo_float_bits(shift) + 127u) << 23);
    return x < low ? 0.0f : p * power;
}

#endif
