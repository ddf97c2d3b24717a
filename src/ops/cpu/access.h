/* Elements of f32 or bf16 memory as f32. `bf16` is a constant wherever these are inlined. */
#ifndef KOLO_OPS_CPU_ACCESS_H
#define KOLO_OPS_CPU_ACCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/cpu/simd.h"
#include "ops/element.h"

#define KOLO_ALWAYS static inline __attribute__((always_inline))

KOLO_ALWAYS void kolo_load16(kolo_v16 *out, const void *p, int64_t i, bool bf16)
{
    if (bf16) {
        const kolo_u16x16 half = *(const kolo_u16x16 *)((const uint16_t *)p + i);
        *out = (kolo_v16)(__builtin_convertvector(half, kolo_u16x32) << 16);
    } else {
        *out = *(const kolo_v16 *)((const float *)p + i);
    }
}

/* The first, or the last, eight numbers of two vectors in turn. */
#if defined(__clang__)
#define KOLO_INTERLEAVE_LOW(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define KOLO_INTERLEAVE_HIGH(a, b) \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#else
#define KOLO_INTERLEAVE_LOW(a, b) \
    __builtin_shuffle(a, b, (kolo_u16x32){0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23})
#define KOLO_INTERLEAVE_HIGH(a, b) \
    __builtin_shuffle(a, b, (kolo_u16x32){8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31})
#endif

/* 16 x 16 numbers, rows to columns: four times the rows of both halves are interleaved, and each time the
 * bits of a number's place move around by one. */
KOLO_ALWAYS void kolo_transpose16(kolo_v16 *to, const kolo_v16 *from)
{
    kolo_v16 row[16], next[16];
    for (int i = 0; i < 16; i++) row[i] = from[i];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            next[2 * i] = KOLO_INTERLEAVE_LOW(row[i], row[i + 8]);
            next[2 * i + 1] = KOLO_INTERLEAVE_HIGH(row[i], row[i + 8]);
        }
        for (int i = 0; i < 16; i++) row[i] = next[i];
    }
    for (int i = 0; i < 16; i++) to[i] = row[i];
}

KOLO_ALWAYS float kolo_load(const void *p, int64_t i, bool bf16)
{
    return bf16 ? kolo_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}

KOLO_ALWAYS void kolo_store(void *p, int64_t i, float x, bool bf16)
{
    if (bf16) ((uint16_t *)p)[i] = kolo_to_bf16(x);
    else ((float *)p)[i] = x;
}

/* Statement `call` with the constant `bf16_` in place of the value `bf16`. */
#define KOLO_FOR_TYPE(bf16, call)     \
    do {                              \
        if (bf16) {                   \
            const bool bf16_ = true;  \
            call;                     \
        } else {                      \
            const bool bf16_ = false; \
            call;                     \
        }                             \
    } while (0)

#endif
