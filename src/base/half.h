/* Numbers of 16 bits, one at a time: the same bits on the host and in CUDA kernels. */
#ifndef KOLO_BASE_HALF_H
#define KOLO_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#ifndef KOLO_INLINE
#ifdef __CUDACC__
#define KOLO_INLINE static inline __host__ __device__
#else
#define KOLO_INLINE static inline
#endif
#endif

KOLO_INLINE uint32_t kolo_float_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

KOLO_INLINE float kolo_bits_float(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

KOLO_INLINE float kolo_from_bf16(uint16_t b) { return kolo_bits_float((uint32_t)b << 16); }

/* To nearest, ties to even; a NaN becomes a quiet NaN, of the same sign on the host (rounding could carry it
 * to infinity). In CUDA one instruction does each of these, and gives the same bits for all but the sign and
 * the fraction of a NaN. */
KOLO_INLINE uint16_t kolo_to_bf16(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t h;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t u = kolo_float_bits(x);
    uint32_t rounded = (u + 0x7FFFu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    return (uint16_t)((u & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
#endif
}

/* IEEE half precision. To nearest, ties to even; too large becomes infinity, a NaN stays one and becomes
 * quiet. */
KOLO_INLINE float kolo_from_f16(uint16_t h)
{
#ifdef __CUDA_ARCH__
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
    return x;
#else
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3FFu;
    if (exponent == 31)
        return kolo_bits_float(sign | 0x7F800000u | (fraction << 13) | (fraction ? 0x400000u : 0));
    if (exponent) return kolo_bits_float(sign | ((exponent + 112) << 23) | (fraction << 13));
    return kolo_bits_float(sign | kolo_float_bits((float)fraction * 5.9604644775390625e-8f)); /* 2^-24 */
#endif
}

KOLO_INLINE uint16_t kolo_to_f16(float x)
{
#ifdef __CUDA_ARCH__
    uint16_t h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    uint32_t u = kolo_float_bits(x), sign = (u >> 16) & 0x8000u, size = u & 0x7FFFFFFFu;
    if (size > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | ((size >> 13) & 0x3FFu));
    if (size >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and above */
    if (size >= 0x38800000u)
        return (uint16_t)(sign | ((size - 0x38000000u + 0xFFFu + ((size >> 13) & 1u)) >> 13));
    /* below 2^-14: a multiple of 2^-24, rounded by adding 0.5, whose last bit is 2^-24 */
    return (uint16_t)(sign | (kolo_float_bits(kolo_bits_float(size) + 0.5f) - 0x3F000000u));
#endif
}

#endif
