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
