/* The forms in which an activation may be kept between its last reader of the forward half and the first of
 * the backward half, and the arithmetic of those that are encoded. Jain et al., "Gist: Efficient data
 * encoding for deep neural network training", ISCA 2018: signs where a gradient asks for nothing else, four
 * bits for which element of a window was its maximum, numbers of fewer bits. */
#ifndef KOLO_OPS_FORM_H
#define KOLO_OPS_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "kolo/dtype.h"
#include "ops/element.h"

typedef uint8_t kolo_form; /* enum kolo_form_kind */
enum kolo_form_kind {
    KOLO_FORM_KEPT,      /* as it is */
    KOLO_FORM_DROPPED,   /* not at all: what makes it runs again */
    KOLO_FORM_OFFLOADED, /* as it is, in the file or host memory of the arena OFFLOADED */
    KOLO_FORM_SIGNS,     /* f32, bf16: a bit, 1 where it is above 0; comes back as 1 or 0 */
    KOLO_FORM_NIBBLES,   /* u8 below 16: four bits */
    KOLO_FORM_FP16,      /* f32: IEEE half precision */
    KOLO_FORM_BF16,      /* f32 */
    KOLO_FORM_FP8,       /* f32, bf16: E4M3 of Micikevicius et al., arXiv:2209.05433; too large becomes 448 */
    KOLO_FORMS
};

static inline bool kolo_form_is_encoded(enum kolo_form_kind form) { return form >= KOLO_FORM_SIGNS; }
/* Comes back with the bits that it had. */
static inline bool kolo_form_is_exact(enum kolo_form_kind form) { return form <= KOLO_FORM_NIBBLES; }

/* Tensors of this type have that encoded form, and it is smaller. */
static inline bool kolo_form_takes(enum kolo_form_kind form, enum kolo_dtype dtype)
{
    switch (form) {
    case KOLO_FORM_SIGNS:
    case KOLO_FORM_FP8: return dtype == KOLO_F32 || dtype == KOLO_BF16;
    case KOLO_FORM_FP16:
    case KOLO_FORM_BF16: return dtype == KOLO_F32;
    case KOLO_FORM_NIBBLES: return dtype == KOLO_U8;
    default: return false;
    }
}

/* Bytes of `count` elements in that form; 0: it is not encoded. */
static inline size_t kolo_form_bytes(enum kolo_form_kind form, size_t count)
{
    switch (form) {
    case KOLO_FORM_SIGNS: return (count + 15) / 16 * 2;
    case KOLO_FORM_NIBBLES: return (count + 1) / 2;
    case KOLO_FORM_FP16:
    case KOLO_FORM_BF16: return 2 * count;
    case KOLO_FORM_FP8: return count;
    default: return 0;
    }
}

/* E4M3: four bits of exponent (bias 7), three of fraction, no infinities; 0x7F and 0xFF are no numbers, 0x7E
 * is 448, 0x01 is 2^-9. To nearest, ties to even. */
KOLO_INLINE uint8_t kolo_to_fp8(float x)
{
    const uint32_t bits = kolo_float_bits(x), sign = (bits >> 24) & 0x80u, size = bits & 0x7FFFFFFFu,
                   most = size < 0x43E00000u ? size : 0x43E00000u; /* 448 */
    /* below 2^-6 in steps of 2^-9, as 2^14 has them */
    const uint32_t low = kolo_float_bits(kolo_bits_float(most) + 16384.0f) - 0x46800000u,
                   high = ((most + 0x7FFFFu + ((most >> 20) & 1u)) >> 20) - (120u << 3);
    const uint32_t code = most < 0x3C800000u ? low : high;
    return (uint8_t)(sign | (size > 0x7F800000u ? 0x7Fu : code));
}

KOLO_INLINE float kolo_from_fp8(uint8_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x80u) << 24, size = h & 0x7Fu;
    const float low = (float)(int32_t)size * 0.001953125f; /* 2^-9 */
    const uint32_t bits = size < 8u ? kolo_float_bits(low) : (size << 20) + (120u << 23);
    return kolo_bits_float(sign | (size == 0x7Fu ? 0x7FC00000u : bits));
}

/* kolo_to_f16 and kolo_from_f16 (element.h) without branches, so that loops of them become wide. */
KOLO_INLINE uint16_t kolo_to_half(float x)
{
    const uint32_t bits = kolo_float_bits(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7FFFFFFFu;
    const uint32_t small = size < 0x38800000u ? size : 0; /* below 2^-14 in steps of 2^-24, as 1/2 has them */
    const uint32_t low = kolo_float_bits(kolo_bits_float(small) + 0.5f) - 0x3F000000u,
                   high = ((size + 0xFFFu + ((size >> 13) & 1u)) >> 13) - (112u << 10);
    const uint32_t number = size < 0x38800000u ? low : size >= 0x477FF000u ? 0x7C00u : high;
    return (uint16_t)(sign | (size > 0x7F800000u ? 0x7E00u : number));
}

KOLO_INLINE float kolo_from_half(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, size = h & 0x7FFFu;
    const float low = (float)(int32_t)size * 0x1p-24f;
    const uint32_t number = size < 0x400u ? kolo_float_bits(low) : (size << 13) + (112u << 23);
    return kolo_bits_float(sign | (size >= 0x7C00u ? 0x7F800000u | (size & 0x3FFu) << 13 : number));
}

#endif
