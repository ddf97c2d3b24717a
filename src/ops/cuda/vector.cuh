/* Vectors of 16 bytes: 4 f32 or 8 bf16/f16, loaded and stored at once, computed with as f32. */
#ifndef KOLO_OPS_CUDA_VECTOR_CUH
#define KOLO_OPS_CUDA_VECTOR_CUH

#include "ops/cuda/launch.cuh"
#include "ops/element.h"

/* Storage types: kolo_bf16 and kolo_f16 are the bit patterns, so that host and device convert by the
 * same lines of element.h. */
struct kolo_bf16 {
    uint16_t bits;
};
struct kolo_f16 {
    uint16_t bits;
};

KOLO_INLINE float kolo_widen(float x) { return x; }
KOLO_INLINE float kolo_widen(kolo_bf16 x) { return kolo_from_bf16(x.bits); }
KOLO_INLINE float kolo_widen(kolo_f16 x) { return kolo_from_f16(x.bits); }
KOLO_INLINE void kolo_round(float x, float *to) { *to = x; }
KOLO_INLINE void kolo_round(float x, kolo_bf16 *to) { to->bits = kolo_to_bf16(x); }
KOLO_INLINE void kolo_round(float x, kolo_f16 *to) { to->bits = kolo_to_f16(x); }

/* The numbers of a word: one f32, or two of 16 bits, the lower half first. The pointer only names the
 * type. */
KOLO_INLINE void kolo_unpack(const float *, uint32_t word, float *to) { to[0] = kolo_bits_float(word); }
KOLO_INLINE void kolo_unpack(const kolo_bf16 *, uint32_t word, float *to)
{
    to[0] = kolo_bits_float(word << 16);
    to[1] = kolo_bits_float(word & 0xFFFF0000u);
}
KOLO_INLINE void kolo_unpack(const kolo_f16 *, uint32_t word, float *to)
{
    to[0] = kolo_from_f16((uint16_t)word);
    to[1] = kolo_from_f16((uint16_t)(word >> 16));
}

/* The way back. CUDA rounds two numbers by one instruction; the bits are those of element.h, but that
 * there is one NaN, 0x7FFF. */
#ifndef __CUDA_ARCH__
KOLO_INLINE float kolo_one_nan(float x) { return x != x ? kolo_bits_float(0x7FFFFFFFu) : x; }
#endif
KOLO_INLINE uint32_t kolo_repack(const float *, const float *from) { return kolo_float_bits(from[0]); }
KOLO_INLINE uint32_t kolo_repack(const kolo_bf16 *, const float *from)
{
#ifdef __CUDA_ARCH__
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(from[0]), "f"(from[1]));
    return word;
#else
    return (uint32_t)kolo_to_bf16(kolo_one_nan(from[0])) | (uint32_t)kolo_to_bf16(kolo_one_nan(from[1]))
                                                               << 16;
#endif
}
KOLO_INLINE uint32_t kolo_repack(const kolo_f16 *, const float *from)
{
#ifdef __CUDA_ARCH__
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(word) : "f"(from[0]), "f"(from[1]));
    return word;
#else
    return (uint32_t)kolo_to_f16(kolo_one_nan(from[0])) | (uint32_t)kolo_to_f16(kolo_one_nan(from[1])) << 16;
#endif
}

/* 16 bytes as they are moved: in four registers, however many numbers they hold. may_alias:
 * they lie in arrays of T. */
struct __attribute__((may_alias)) __align__(16) kolo_words { uint32_t at[4]; };
template <typename T> struct kolo_vector {
    enum { N = 16 / sizeof(T) };
}; /* kolo_vector<T>::N numbers */

template <typename T> KOLO_INLINE kolo_words kolo_read16(const T *from) { return *(const kolo_words *)from; }
template <typename T> KOLO_INLINE void kolo_write16(T *to, const kolo_words &words)
{
    *(kolo_words *)to = words;
}
template <typename T>
KOLO_INLINE void kolo_widen16(const T *type, const kolo_words &words, float (&to)[16 / sizeof(T)])
{
#pragma unroll
    for (int i = 0; i < 4; i++) kolo_unpack(type, words.at[i], to + i * (4 / (int)sizeof(T)));
}
template <typename T> KOLO_INLINE kolo_words kolo_round16(const T *type, const float (&from)[16 / sizeof(T)])
{
    kolo_words words;
#pragma unroll
    for (int i = 0; i < 4; i++) words.at[i] = kolo_repack(type, from + i * (4 / (int)sizeof(T)));
    return words;
}

template <typename T> KOLO_INLINE void kolo_load16(const T *from, float (&to)[16 / sizeof(T)])
{
    kolo_widen16(from, kolo_read16(from), to);
}
template <typename T> KOLO_INLINE void kolo_store16(T *to, const float (&from)[16 / sizeof(T)])
{
    kolo_write16(to, kolo_round16(to, from));
}

/* Calls `body` with T = the storage type of `dtype` (F32, BF16, F16): KOLO_FOR_DTYPE(dtype, T,
 * rc = launch<T>(...)). */
#define KOLO_FOR_DTYPE(dtype, T, ...) \
    do {                              \
        switch (dtype) {              \
        case KOLO_BF16: {             \
            using T = kolo_bf16;      \
            __VA_ARGS__;              \
        } break;                      \
        case KOLO_F16: {              \
            using T = kolo_f16;       \
            __VA_ARGS__;              \
        } break;                      \
        default: {                    \
            using T = float;          \
            __VA_ARGS__;              \
        } break;                      \
        }                             \
    } while (0)

#endif
