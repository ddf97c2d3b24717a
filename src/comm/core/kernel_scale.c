/* Scaling and neutral elements. */
#include "comm/core/kernel_wide.h"

#include <float.h>
#include <string.h>

#define SCALE_FLOAT(name, type)                                                                 \
    KOLO_CLONES_512 static void name(void *out, const void *in, int64_t count, int64_t divisor, \
                                     double factor)                                             \
    {                                                                                           \
        type *o = out;                                                                          \
        const type *v = in;                                                                     \
        double by = (double)divisor;                                                            \
        if (divisor == 1) {                                                                     \
            COMM_FREE_LOOP                                                                      \
            for (int64_t i = 0; i < count; i++) o[i] = (type)((double)v[i] * factor);           \
        } else {                                                                                \
            COMM_FREE_LOOP                                                                      \
            for (int64_t i = 0; i < count; i++) o[i] = (type)((double)v[i] / by * factor);      \
        }                                                                                       \
    }

/* below: the largest double that is still in range after truncation lies under it; smallest
 * is exact as a double */
#define SCALE_INTEGER(name, type, smallest, largest, below)                                    \
    static inline type name##_one(type value, double factor)                                   \
    {                                                                                          \
        double v = (double)value * factor;                                                     \
        if (v != v) return 0;                                                                  \
        return v >= (below) ? (largest) : v <= (double)(smallest) ? (smallest) : (type)v;      \
    }                                                                                          \
    static void name(void *out, const void *in, int64_t count, int64_t divisor, double factor) \
    {                                                                                          \
        type *o = out;                                                                         \
        const type *v = in;                                                                    \
        for (int64_t i = 0; i < count; i++) {                                                  \
            type quotient = divisor == 1 ? v[i] : (type)((int64_t)v[i] / divisor);             \
            o[i] = factor == 1 ? quotient : name##_one(quotient, factor);                      \
        }                                                                                      \
    }

SCALE_FLOAT(scale_f32, float)
SCALE_FLOAT(scale_f64, double)
SCALE_INTEGER(scale_u8, uint8_t, 0, UINT8_MAX, 0x1p8)
SCALE_INTEGER(scale_i8, int8_t, INT8_MIN, INT8_MAX, 0x1p7)
SCALE_INTEGER(scale_u16, uint16_t, 0, UINT16_MAX, 0x1p16)
SCALE_INTEGER(scale_i16, int16_t, INT16_MIN, INT16_MAX, 0x1p15)
SCALE_INTEGER(scale_i32, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
SCALE_INTEGER(scale_i64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)

static void scale_16(void *out, const void *in, int64_t count, enum kolo_dtype type, int64_t divisor,
                     double factor)
{
    enum { PIECE = 1024 };
    _Alignas(64) float v[PIECE];
    for (int64_t at = 0; at < count; at += PIECE) {
        int64_t some = count - at < PIECE ? count - at : PIECE;
        comm_widen(v, (const uint16_t *)in + at, some, type);
        scale_f32(v, v, some, divisor, factor);
        comm_narrow((uint16_t *)out + at, v, some, type);
    }
}

void comm_scale(void *out, const void *in, int64_t count, enum kolo_dtype type, int64_t divisor,
                double factor)
{
    static void (*const scale[KOLO_DTYPES])(void *, const void *, int64_t, int64_t, double) = {
        [KOLO_U8] = scale_u8,   [KOLO_I8] = scale_i8,   [KOLO_U16] = scale_u16, [KOLO_I16] = scale_i16,
        [KOLO_I32] = scale_i32, [KOLO_I64] = scale_i64, [KOLO_F32] = scale_f32, [KOLO_F64] = scale_f64,
    };
    if ((divisor == 1 && factor == 1) || type == KOLO_BOOL) {
        if (out != in && count) memcpy(out, in, (size_t)count * kolo_dtype_size(type));
    } else if (kolo_dtype_is_half(type)) {
        scale_16(out, in, count, type, divisor, factor);
    } else {
        scale[type](out, in, count, divisor, factor);
    }
}

/* One element that changes nothing, into the first bytes of `one`. */
static void neutral(void *one, enum kolo_dtype type, enum kolo_reduce op)
{
#define OF(suffix, ctype, unit, smallest, largest) \
    [KOLO_##suffix] = {(int64_t)(ctype)(unit), (int64_t)(ctype)(smallest), (int64_t)(ctype)(largest) }
    static const int64_t integer[KOLO_DTYPES][3] = {
        /* product, max, min; bits of what is no integer */
        OF(U8, uint8_t, 1, 0, UINT8_MAX),
        OF(I8, int8_t, 1, INT8_MIN, INT8_MAX),
        OF(U16, uint16_t, 1, 0, UINT16_MAX),
        OF(I16, int16_t, 1, INT16_MIN, INT16_MAX),
        OF(I32, int32_t, 1, INT32_MIN, INT32_MAX),
        OF(I64, int64_t, 1, INT64_MIN, INT64_MAX),
        OF(F16, uint16_t, 0x3c00, 0xfc00, 0x7c00),
        OF(BF16, uint16_t, 0x3f80, 0xff80, 0x7f80),
        OF(F32, uint32_t, 0x3f800000, 0xff800000, 0x7f800000),
        OF(F64, uint64_t, 0x3ff0000000000000, 0xfff0000000000000, 0x7ff0000000000000),
        OF(BOOL, uint8_t, 1, 0, 1),
    };
#undef OF
    const int64_t *row = integer[type];
    int64_t value = op == KOLO_PRODUCT ? row[0] : op == KOLO_MAX ? row[1] : op == KOLO_MIN ? row[2] : 0;
    switch (kolo_dtype_size(type)) {
    case 1: *(uint8_t *)one = (uint8_t)value; break;
    case 2: *(uint16_t *)one = (uint16_t)value; break;
    case 4: *(uint32_t *)one = (uint32_t)value; break;
    default: *(uint64_t *)one = (uint64_t)value; break;
    }
}

void comm_fill_neutral(void *out, int64_t count, enum kolo_dtype type, enum kolo_reduce op)
{
    size_t width = kolo_dtype_size(type), bytes = (size_t)count * width, done = width;
    if (count <= 0) return;
    neutral(out, type, op);
    for (; done < bytes; done *= 2)
        memcpy((char *)out + done, out, bytes - done < done ? bytes - done : done);
}
