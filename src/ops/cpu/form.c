/* Activations to the forms in which they are kept for the backward half, and back (ops/form.h). */
#include "ops/cpu/access.h"
#include "ops/cpu/cpu.h"
#include "ops/form.h"

enum { PIECE = 16384 }; /* elements of one call, a multiple of 16 */

typedef void loop(void *to, const void *from, int64_t n, bool bf16);

/* ---- signs ---- */

KOLO_ALWAYS void signs_loop(uint16_t *to, const void *from, int64_t n, bool bf16)
{
    for (int64_t i = 0; i < n; i += 16) {
        const int64_t part = n - i < 16 ? n - i : 16;
        uint32_t word = 0;
        for (int64_t j = 0; j < part; j++) word |= (uint32_t)(kolo_load(from, i + j, bf16) > 0.0f) << j;
        to[i >> 4] = (uint16_t)word;
    }
}
KOLO_BODY to_signs_body(void *to, const void *from, int64_t n, bool bf16)
{
    KOLO_FOR_TYPE(bf16, signs_loop(to, from, n, bf16_));
}
KOLO_WIDE(to_signs, (void *to, const void *from, int64_t n, bool bf16), (to, from, n, bf16))

KOLO_ALWAYS void ones_loop(void *to, const uint16_t *from, int64_t n, bool bf16)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const uint32_t word = from[i >> 4];
#pragma omp simd
        for (int j = 0; j < 16; j++) kolo_store(to, i + j, (float)(int32_t)(word >> j & 1u), bf16);
    }
    for (; i < n; i++) kolo_store(to, i, (float)(from[i >> 4] >> (i & 15) & 1), bf16);
}
KOLO_BODY from_signs_body(void *to, const void *from, int64_t n, bool bf16)
{
    KOLO_FOR_TYPE(bf16, ones_loop(to, from, n, bf16_));
}
KOLO_WIDE(from_signs, (void *to, const void *from, int64_t n, bool bf16), (to, from, n, bf16))

/* ---- nibbles ---- */

KOLO_BODY to_nibbles_body(uint8_t *to, const uint8_t *from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n / 2; i++) to[i] = (uint8_t)((from[2 * i] & 15) | from[2 * i + 1] << 4);
    if (n % 2) to[n / 2] = from[n - 1] & 15;
}
KOLO_WIDE(to_nibbles, (uint8_t * to, const uint8_t *from, int64_t n), (to, from, n))

KOLO_BODY from_nibbles_body(uint8_t *to, const uint8_t *from, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n / 2; i++) {
        to[2 * i] = from[i] & 15;
        to[2 * i + 1] = from[i] >> 4;
    }
    if (n % 2) to[n - 1] = from[n / 2] & 15;
}
KOLO_WIDE(from_nibbles, (uint8_t * to, const uint8_t *from, int64_t n), (to, from, n))

static void pack_nibbles(void *to, const void *from, int64_t n, bool bf16)
{
    (void)bf16;
    to_nibbles(to, from, n);
}
static void unpack_nibbles(void *to, const void *from, int64_t n, bool bf16)
{
    (void)bf16;
    from_nibbles(to, from, n);
}

/* ---- fewer bits ---- */

#define NUMBERS(name, type, narrow, widen)                                                            \
    KOLO_ALWAYS void name##_narrow_loop(type *to, const void *from, int64_t n, bool bf16)             \
    {                                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) to[i] = narrow(kolo_load(from, i, bf16)); \
    }                                                                                                 \
    KOLO_ALWAYS void name##_widen_loop(void *to, const type *from, int64_t n, bool bf16)              \
    {                                                                                                 \
        _Pragma("omp simd") for (int64_t i = 0; i < n; i++) kolo_store(to, i, widen(from[i]), bf16);  \
    }                                                                                                 \
    KOLO_BODY to_##name##_body(void *to, const void *from, int64_t n, bool bf16)                      \
    {                                                                                                 \
        KOLO_FOR_TYPE(bf16, name##_narrow_loop(to, from, n, bf16_));                                  \
    }                                                                                                 \
    KOLO_BODY from_##name##_body(void *to, const void *from, int64_t n, bool bf16)                    \
    {                                                                                                 \
        KOLO_FOR_TYPE(bf16, name##_widen_loop(to, from, n, bf16_));                                   \
    }                                                                                                 \
    KOLO_WIDE(to_##name, (void *to, const void *from, int64_t n, bool bf16), (to, from, n, bf16))     \
    KOLO_WIDE(from_##name, (void *to, const void *from, int64_t n, bool bf16), (to, from, n, bf16))

NUMBERS(fp16, uint16_t, kolo_to_half, kolo_from_half)
NUMBERS(bf16, uint16_t, kolo_to_bf16, kolo_from_bf16)
NUMBERS(fp8, uint8_t, kolo_to_fp8, kolo_from_fp8)

/* ---- all of a tensor ---- */

static loop *const encoder[KOLO_FORMS] = {[KOLO_FORM_SIGNS] = to_signs,
                                          [KOLO_FORM_NIBBLES] = pack_nibbles,
                                          [KOLO_FORM_FP16] = to_fp16,
                                          [KOLO_FORM_BF16] = to_bf16,
                                          [KOLO_FORM_FP8] = to_fp8},
                   *const decoder[KOLO_FORMS] = {[KOLO_FORM_SIGNS] = from_signs,
                                                 [KOLO_FORM_NIBBLES] = unpack_nibbles,
                                                 [KOLO_FORM_FP16] = from_fp16,
                                                 [KOLO_FORM_BF16] = from_bf16,
                                                 [KOLO_FORM_FP8] = from_fp8};

void kolo_cpu_encode(kolo_backend *b, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                     const void *from, int64_t count)
{
    const int threads = kolo_cpu_threads(b, count);
    const size_t size = kolo_dtype_size(dtype);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i += PIECE)
        encoder[form]((char *)to + kolo_form_bytes(form, (size_t)i), (const char *)from + (size_t)i * size,
                      count - i < PIECE ? count - i : PIECE, dtype == KOLO_BF16);
}

void kolo_cpu_decode(kolo_backend *b, enum kolo_form_kind form, enum kolo_dtype dtype, void *to,
                     const void *from, int64_t count)
{
    const int threads = kolo_cpu_threads(b, count);
    const size_t size = kolo_dtype_size(dtype);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < count; i += PIECE)
        decoder[form]((char *)to + (size_t)i * size, (const char *)from + kolo_form_bytes(form, (size_t)i),
                      count - i < PIECE ? count - i : PIECE, dtype == KOLO_BF16);
}
