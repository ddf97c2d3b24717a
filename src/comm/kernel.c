/* Two vectors into one. */
#include "comm/kernel_wide.h"

#define COMBINE(name, type, expression)                                                       \
    COMM_WIDE static void name(void *out, const void *left, const void *right, int64_t count) \
    {                                                                                         \
        type *o = out;                                                                        \
        const type *l = left, *r = right;                                                     \
        COMM_FREE_LOOP                                                                        \
        for (int64_t i = 0; i < count; i++) {                                                 \
            type a = l[i], b = r[i];                                                          \
            o[i] = (type)(expression);                                                        \
        }                                                                                     \
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

#define ROW(suffix)                                                                                                                                       \
    {                                                                                                                                                     \
        [KOLO_SUM] = sum_##suffix, [KOLO_AVERAGE] = sum_##suffix, [KOLO_MIN] = min_##suffix, [KOLO_MAX] = max_##suffix, [KOLO_PRODUCT] = product_##suffix \
    }

static const struct row {
    size_t width;
    comm_combine combine[KOLO_REDUCE_COUNT];
} table[KOLO_WIRE_COUNT] = {
    [KOLO_WIRE_U8] = {1, ROW(u8)},
    [KOLO_WIRE_I8] = {1, ROW(i8)},
    [KOLO_WIRE_U16] = {2, ROW(u16)},
    [KOLO_WIRE_I16] = {2, ROW(i16)},
    [KOLO_WIRE_I32] = {4, ROW(i32)},
    [KOLO_WIRE_I64] = {8, ROW(i64)},
    [KOLO_WIRE_F16] = {2, {0}},
    [KOLO_WIRE_BF16] = {2, {0}},
    [KOLO_WIRE_F32] = {4, ROW(f32)},
    [KOLO_WIRE_F64] = {8, ROW(f64)},
    [KOLO_WIRE_BOOL] = {1, {[KOLO_SUM] = or_bool, [KOLO_AVERAGE] = or_bool, [KOLO_MIN] = and_bool, [KOLO_MAX] = or_bool, [KOLO_PRODUCT] = and_bool}},
};

comm_combine comm_combine_of(enum kolo_wire type, enum kolo_reduce op)
{
    if ((unsigned)type >= KOLO_WIRE_COUNT || (unsigned)op >= KOLO_REDUCE_COUNT) return NULL;
    return type == KOLO_WIRE_F16 || type == KOLO_WIRE_BF16 ? comm_combine_16(type, op) : table[type].combine[op];
}

size_t comm_width(enum kolo_wire type) { return (unsigned)type < KOLO_WIRE_COUNT ? table[type].width : 0; }
