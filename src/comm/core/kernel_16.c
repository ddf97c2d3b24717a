/* f16 and bf16. Both instructions of F16C round as specified and keep denormals whatever the processor's
 * mode; AVX512_BF16's flushes denormals, so bf16 is rounded in integers, which vector units do as
 * fast as memory delivers. */
#include "base/half.h"
#include "comm/core/kernel_wide.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- bf16 ---------------------------------------------------------------------------------------------- */

KOLO_CLONES_512 static void widen_bf16(float *restrict out, const uint16_t *restrict in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = kolo_from_bf16(in[i]);
}

KOLO_CLONES_512 static void narrow_bf16(uint16_t *restrict out, const float *restrict in, int64_t count)
{
    for (int64_t i = 0; i < count; i++) out[i] = kolo_to_bf16(in[i]);
}

/* ---- f16 ----------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) static int64_t widen_f16c(float *out, const uint16_t *in, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(in + i))));
    return i;
}

__attribute__((target("avx2,f16c"))) static int64_t narrow_f16c(uint16_t *out, const float *in, int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

__attribute__((target("avx512f"))) static int64_t widen_512(float *out, const uint16_t *in, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm512_storeu_ps(out + i,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(in + i))));
    return i;
}

__attribute__((target("avx512f"))) static int64_t narrow_512(uint16_t *out, const float *in, int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(out + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

/* Every processor with AVX2 has F16C. These return how many they did. */
static int64_t widen_many(float *out, const uint16_t *in, int64_t count)
{
    if (__builtin_cpu_supports("avx512f")) return widen_512(out, in, count);
    return __builtin_cpu_supports("avx2") ? widen_f16c(out, in, count) : 0;
}

static int64_t narrow_many(uint16_t *out, const float *in, int64_t count)
{
    if (__builtin_cpu_supports("avx512f")) return narrow_512(out, in, count);
    return __builtin_cpu_supports("avx2") ? narrow_f16c(out, in, count) : 0;
}
#else
static int64_t widen_many(float *out, const uint16_t *in, int64_t count) { return 0 * (out && in && count); }
static int64_t narrow_many(uint16_t *out, const float *in, int64_t count) { return 0 * (out && in && count); }
#endif

static void widen_f16(float *out, const uint16_t *in, int64_t count)
{
    for (int64_t i = widen_many(out, in, count); i < count; i++) out[i] = kolo_from_f16(in[i]);
}

static void narrow_f16(uint16_t *out, const float *in, int64_t count)
{
    for (int64_t i = narrow_many(out, in, count); i < count; i++) out[i] = kolo_to_f16(in[i]);
}

/* ---- both ---------------------------------------------------------------------------------------------- */

void comm_widen(float *out, const void *in, int64_t count, enum kolo_dtype type)
{
    if (type == KOLO_BF16) widen_bf16(out, in, count);
    else widen_f16(out, in, count);
}

void comm_narrow(void *out, const float *in, int64_t count, enum kolo_dtype type)
{
    if (type == KOLO_BF16) narrow_bf16(out, in, count);
    else narrow_f16(out, in, count);
}

/* Through f32, a piece of the first cache at a time. */
static void combine(enum kolo_dtype type, enum kolo_reduce op, void *out, const void *left, const void *right,
                    int64_t count)
{
    enum { PIECE = 1024 };
    _Alignas(64) float a[PIECE], b[PIECE];
    comm_combine f32 = comm_combine_of(KOLO_F32, op);
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t some = count - at < PIECE ? count - at : PIECE;
        comm_widen(a, (const uint16_t *)left + at, some, type);
        comm_widen(b, (const uint16_t *)right + at, some, type);
        f32(a, a, b, some);
        comm_narrow((uint16_t *)out + at, a, some, type);
    }
}

#define COMBINE_16(suffix, type, name, op)                                                     \
    static void name##_##suffix(void *out, const void *left, const void *right, int64_t count) \
    {                                                                                          \
        combine(type, op, out, left, right, count);                                            \
    }
#define COMBINES_16(suffix, type)           \
    COMBINE_16(suffix, type, sum, KOLO_SUM) \
    COMBINE_16(suffix, type, min, KOLO_MIN) \
    COMBINE_16(suffix, type, max, KOLO_MAX) \
    COMBINE_16(suffix, type, product, KOLO_PRODUCT)
COMBINES_16(f16, KOLO_F16)
COMBINES_16(bf16, KOLO_BF16)

comm_combine comm_combine_16(enum kolo_dtype type, enum kolo_reduce op)
{
    static const comm_combine f16[KOLO_REDUCE_COUNT] = COMM_COMBINES(f16),
                              bf16[KOLO_REDUCE_COUNT] = COMM_COMBINES(bf16);
    return type == KOLO_F16 ? f16[op] : bf16[op];
}
