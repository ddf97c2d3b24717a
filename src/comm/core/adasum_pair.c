#include "comm/core/adasum.h"

#include <float.h>
#include <math.h>

#include "comm/core/kernel_wide.h"

enum { LANES = 16, TILE = 1024 };

/* Sixteen sums side by side, the order whatever the vectors' width. */
#define DOTS(name, type, factor)                                                                    \
    KOLO_CLONES_512 static void name(adasum_dots *sum, const type *a, const type *b, int64_t count) \
    {                                                                                               \
        double ab[LANES] = {0}, aa[LANES] = {0}, bb[LANES] = {0};                                   \
        int64_t i = 0;                                                                              \
        for (; i + LANES <= count; i += LANES)                                                      \
            for (int j = 0; j < LANES; j++) {                                                       \
                double x = (double)a[i + j] * (factor), y = (double)b[i + j] * (factor);            \
                ab[j] += x * y;                                                                     \
                aa[j] += x * x;                                                                     \
                bb[j] += y * y;                                                                     \
            }                                                                                       \
        for (int j = 0; i < count; i++, j++) {                                                      \
            double x = (double)a[i] * (factor), y = (double)b[i] * (factor);                        \
            ab[j] += x * y;                                                                         \
            aa[j] += x * x;                                                                         \
            bb[j] += y * y;                                                                         \
        }                                                                                           \
        for (int half = LANES / 2; half; half /= 2)                                                 \
            for (int j = 0; j < half; j++)                                                          \
                ab[j] += ab[j + half], aa[j] += aa[j + half], bb[j] += bb[j + half];                \
        sum->ab += ab[0];                                                                           \
        sum->aa += aa[0];                                                                           \
        sum->bb += bb[0];                                                                           \
    }

#define SCALE_F64 0x1p-256
DOTS(dots_f32, float, 1.0)
DOTS(dots_f64, double, SCALE_F64)

#define APPLY(name, type)                                                                             \
    KOLO_CLONES_512 static void name(type *o, const type *a, const type *b, int64_t count, double ca, \
                                     double cb)                                                       \
    {                                                                                                 \
        COMM_FREE_LOOP                                                                                \
        for (int64_t i = 0; i < count; i++) o[i] = (type)(ca * (double)a[i] + cb * (double)b[i]);     \
    }
APPLY(apply_f32, float)
APPLY(apply_f64, double)

adasum_dots adasum_dots_of(const void *a, const void *b, int64_t count, enum kolo_dtype type)
{
    adasum_dots sum = {0, 0, 0};
    if (type == KOLO_F32) dots_f32(&sum, a, b, count);
    if (type == KOLO_F64) dots_f64(&sum, a, b, count);
    if (!kolo_dtype_is_half(type)) return sum;
    _Alignas(64) float x[TILE], y[TILE];
    for (int64_t at = 0; at < count; at += TILE) {
        int64_t some = count - at < TILE ? count - at : TILE;
        comm_widen(x, (const uint16_t *)a + at, some, type);
        comm_widen(y, (const uint16_t *)b + at, some, type);
        dots_f32(&sum, x, y, some);
    }
    return sum;
}

void adasum_apply(void *out, const void *a, const void *b, int64_t count, enum kolo_dtype type,
                  const adasum_dots *whole)
{
    double least = sqrt(DBL_MIN) * (type == KOLO_F64 ? SCALE_F64 * SCALE_F64 : 1);
    double ca = whole->aa < least ? 1 : 1 - whole->ab / (2 * whole->aa);
    double cb = whole->bb < least ? 1 : 1 - whole->ab / (2 * whole->bb);
    if (type == KOLO_F32) apply_f32(out, a, b, count, ca, cb);
    if (type == KOLO_F64) apply_f64(out, a, b, count, ca, cb);
    if (!kolo_dtype_is_half(type)) return;
    _Alignas(64) float x[TILE], y[TILE];
    for (int64_t at = 0; at < count; at += TILE) {
        int64_t some = count - at < TILE ? count - at : TILE;
        comm_widen(x, (const uint16_t *)a + at, some, type);
        comm_widen(y, (const uint16_t *)b + at, some, type);
        apply_f32(x, x, y, some, ca, cb);
        comm_narrow((uint16_t *)out + at, x, some, type);
    }
}

void comm_adasum_pair(void *out, const void *left, const void *right, enum kolo_dtype type,
                      const int64_t *count, int tensors)
{
    size_t at = 0, width = kolo_dtype_size(type);
    for (int t = 0; t < tensors; at += (size_t)count[t++] * width) {
        const char *a = (const char *)left + at, *b = (const char *)right + at;
        adasum_dots dots = adasum_dots_of(a, b, count[t], type);
        adasum_apply((char *)out + at, a, b, count[t], type, &dots);
    }
}

void comm_adasum_members(void *const *vector, int members, enum kolo_dtype type, int64_t count)
{
    void *v[COMM_FOLD_MAX];
    int q = 1, r;
    while (q * 2 <= members) q *= 2;
    r = members - q;
    for (int i = 0; i < q; i++) v[i] = vector[i < r ? 2 * i : i + r];
    for (int i = 0; i < r; i++) comm_adasum_pair(v[i], v[i], vector[2 * i + 1], type, &count, 1);
    for (int d = 1; d < q; d *= 2)
        for (int i = 0; i < q; i += 2 * d) comm_adasum_pair(v[i], v[i], v[i + d], type, &count, 1);
}
