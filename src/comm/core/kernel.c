/* Two vectors into one. */
#include "comm/core/kernel_wide.h"

#define COMBINE(name, type, expression)                                                             \
    KOLO_CLONES_512 static void name(void *out, const void *left, const void *right, int64_t count) \
    {                                                                                               \
        type *o = out;                                                                              \
        const type *l = left, *r = right;                                                           \
        COMM_FREE_LOOP                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                       \
            type a = l[i], b = r[i];                                                                \
            o[i] = (type)(expression);                                                              \
        }                                                                                           \
    }

#define COMBINE_FLOAT(suffix, type)                           \
    COMBINE(sum_##suffix, type, a + b)                        \
    COMBINE(product_##suffix, type, a *b)                     \
    COMBINE(max_##suffix, type, ((a > b) | (a != a)) ? a : b) \
    COMBINE(min_##suffix, type, ((a < b) | (a != a)) ? a : b)

/* wrap: an unsigned type that wraps as `type` does, and is no narrower than int */
#define COMBINE_INTEGER(suffix, type, wrap)           \
    COMBINE(sum_##suffix, type, (wrap)a + (wrap)b)    \
    COMBINE(product_##suffix, type, (wrap)a *(wrap)b) \
    COMBINE(max_##suffix, type, a > b ? a : b)        \
    COMBINE(min_##suffix, type, a < b ? a : b)

COMBINE_FLOAT(f32, float)
COMBINE_FLOAT(f64, double)
COMBINE_INTEGER(u8, uint8_t, uint32_t)
COMBINE_INTEGER(i8, int8_t, uint32_t)
COMBINE_INTEGER(u16, uint16_t, uint32_t)
COMBINE_INTEGER(i16, int16_t, uint32_t)
COMBINE_INTEGER(i32, int32_t, uint32_t)
COMBINE_INTEGER(i64, int64_t, uint64_t)
COMBINE(or_bool, uint8_t, (a | b) != 0)
COMBINE(and_bool, uint8_t, (a != 0) & (b != 0))

static const comm_combine table[KOLO_DTYPES][KOLO_REDUCE_COUNT] = {
    [KOLO_U8] = COMM_COMBINES(u8),
    [KOLO_I8] = COMM_COMBINES(i8),
    [KOLO_U16] = COMM_COMBINES(u16),
    [KOLO_I16] = COMM_COMBINES(i16),
    [KOLO_I32] = COMM_COMBINES(i32),
    [KOLO_I64] = COMM_COMBINES(i64),
    [KOLO_F32] = COMM_COMBINES(f32),
    [KOLO_F64] = COMM_COMBINES(f64),
    [KOLO_BOOL] = {[KOLO_SUM] = or_bool,
                   [KOLO_AVERAGE] = or_bool,
                   [KOLO_MIN] = and_bool,
                   [KOLO_MAX] = or_bool,
                   [KOLO_PRODUCT] = and_bool},
};

comm_combine comm_combine_of(enum kolo_dtype type, enum kolo_reduce op)
{
    if ((unsigned)type >= KOLO_DTYPES || (unsigned)op >= KOLO_REDUCE_COUNT) return NULL;
    return kolo_dtype_is_half(type) ? comm_combine_16(type, op) : table[type][op];
}
