/* Conversions to and from 16-bit types, by arithmetic instead of bits: not the program's own,
 * which they help to test. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "standin/dnn.h"

enum { BITS = 1 << 16, LOWEST = -32, HIGHEST = 32 };
static float half_value[BITS], bf16_value[BITS], power[HIGHEST - LOWEST]; /* 2^LOWEST and so on */
static pthread_once_t made = PTHREAD_ONCE_INIT;

static float half_of(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    float size, fraction = (float)(bits & 1023);
    if (exponent == 31) size = bits & 1023 ? NAN : INFINITY;
    else size = exponent ? ldexpf(1024 + fraction, exponent - 25) : ldexpf(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

static float bf16_of(uint16_t bits)
{
    int exponent = bits >> 7 & 255;
    float size, fraction = (float)(bits & 127);
    if (exponent == 255) size = bits & 127 ? NAN : INFINITY;
    else size = exponent ? ldexpf(128 + fraction, exponent - 134) : ldexpf(fraction, -133);
    return bits & 0x8000 ? -size : size;
}

/* All that there are, once: most of what the stand-in does is to read them. */
static void make_values(void)
{
    for (int i = 0; i < BITS; i++) half_value[i] = half_of((uint16_t)i);
    for (int i = 0; i < BITS; i++) bf16_value[i] = bf16_of((uint16_t)i);
    for (int e = LOWEST; e < HIGHEST; e++) power[e - LOWEST] = ldexpf(1, e);
}

float standin_from_half(uint16_t bits)
{
    pthread_once(&made, make_values);
    return half_value[bits];
}

float standin_from_bf16(uint16_t bits)
{
    pthread_once(&made, make_values);
    return bf16_value[bits];
}

/* The nearest multiple of `step` (a power of two), ties to even multiples. */
static float nearest(float x, float step) { return rintf(x / step) * step; }

uint16_t standin_to_half(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    int exponent;
    if (isnan(x)) return (uint16_t)(sign | 0x7E00);
    if (size >= 65520) return (uint16_t)(sign | 0x7C00);
    pthread_once(&made, make_values);
    frexpf(size, &exponent); /* size < 2^exponent */
    if (exponent < -13) exponent = -13;
    size = nearest(size, power[exponent - 11 - LOWEST]);
    if (size < power[-14 - LOWEST]) return (uint16_t)(sign | (int)(size * power[24 - LOWEST]));
    float fraction = frexpf(size, &exponent);
    return (uint16_t)(sign | ((exponent + 14) << 10) | ((int)(fraction * 2048) & 1023));
}

static float round_to(float x, int bits)
{
    int exponent;
    if (!isfinite(x) || x == 0) return x;
    frexpf(x, &exponent);
    if (exponent < -125) exponent = -125;
    double step = ldexp(1, exponent - bits);
    return (float)(rint((double)x / step) * step);
}

uint16_t standin_to_bf16(float x)
{
    uint32_t u;
    x = round_to(x, 8);
    memcpy(&u, &x, sizeof u);
    return isnan(x) ? (uint16_t)(0x7FC0 | (u >> 16 & 0x8000)) : (uint16_t)(u >> 16);
}

/* Ten bits of fraction, as tensor cores read f32. */
float standin_to_tf32(float x) { return round_to(x, 11); }
