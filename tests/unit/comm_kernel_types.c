/* Every type under every reduction, scaling, averages, neutral elements; against definitions in wider
 * integers and long double. */
#include "comm/core/kernel.h"

#include <stdint.h>

#include "base/philox.h"
#include "tap.h"

typedef struct integer {
    enum kolo_dtype type;
    const char *name;
    int bytes;
    bool is_signed;
} integer;
static const integer integers[] = {{KOLO_U8, "u8", 1, false},   {KOLO_I8, "i8", 1, true},
                                   {KOLO_U16, "u16", 2, false}, {KOLO_I16, "i16", 2, true},
                                   {KOLO_I32, "i32", 4, true},  {KOLO_I64, "i64", 8, true}};
enum { N = 1000 };

/* Any bits as a number of the type: cut, and for signed types with its sign drawn out. */
static __int128 cut(const integer *t, __int128 v)
{
    __int128 whole = (__int128)1 << (8 * t->bytes), rest = v % whole;
    if (rest < 0) rest += whole;
    return t->is_signed && rest >= whole / 2 ? rest - whole : rest;
}

static __int128 get(const integer *t, const void *from, int64_t i)
{
    int64_t v = 0;
    memcpy(&v, (const char *)from + i * t->bytes, (size_t)t->bytes);
    return cut(t, v);
}

static void put(const integer *t, void *to, int64_t i, __int128 v)
{
    int64_t bits = (int64_t)v;
    memcpy((char *)to + i * t->bytes, &bits, (size_t)t->bytes);
}

static void fill(const integer *t, void *to, uint64_t stream)
{
    for (int64_t i = 0; i < N; i++) {
        kolo_philox4 r = kolo_philox(17, stream, (uint64_t)i);
        __int128 v = (int64_t)((uint64_t)r.v[0] << 32 | r.v[1]);
        /* an end */
        if (r.v[2] % 8 == 0)
            v = cut(t, v) < 0 ? -((__int128)1 << (8 * t->bytes - 1))
                              : ((__int128)1 << (8 * t->bytes - t->is_signed)) - 1;
        if (r.v[2] % 8 == 1) v = r.v[3] % 5;
        put(t, to, i, v);
    }
}

static __int128 define(enum kolo_reduce op, __int128 a, __int128 b)
{
    switch (op) {
    case KOLO_MIN: return a < b ? a : b;
    case KOLO_MAX: return a > b ? a : b;
    case KOLO_PRODUCT: return (__int128)((unsigned __int128)a * (unsigned __int128)b);
    default: return a + b;
    }
}

static void test_integer(const integer *t)
{
    static const enum kolo_reduce ops[] = {KOLO_SUM, KOLO_AVERAGE, KOLO_MIN, KOLO_MAX, KOLO_PRODUCT};
    static int64_t a[N], b[N], c[N];
    int wrong = 0;
    fill(t, a, 2 * (uint64_t)t->type);
    fill(t, b, 2 * (uint64_t)t->type + 1);
    for (int o = 0; o < 5; o++) {
        comm_combine_of(t->type, ops[o])(c, a, b, N);
        for (int i = 0; i < N; i++)
            wrong += get(t, c, i) != cut(t, define(ops[o], get(t, a, i), get(t, b, i)));
    }
    is_int(wrong, 0, "%s: sum, average, min, max, product wrap as two's complement does", t->name);
    wrong = 0;
    const int64_t divisors[] = {1, 2, 3, 7, 512};
    for (int d = 0; d < 5; d++) {
        comm_scale(c, a, N, t->type, divisors[d], 1);
        for (int i = 0; i < N; i++) wrong += get(t, c, i) != get(t, a, i) / divisors[d];
    }
    is_int(wrong, 0, "%s: an average is the exact quotient, toward zero; divided by 1 every bit stays",
           t->name);
    wrong = 0;
    const double factors[] = {0.5, -1.5, 3e9, 1e-30, 1.0 / 3};
    __int128 most = ((__int128)1 << (8 * t->bytes - t->is_signed)) - 1, least = t->is_signed ? -most - 1 : 0;
    for (int f = 0; f < 5; f++) {
        comm_scale(c, a, N, t->type, 1, factors[f]);
        for (int i = 0; i < N; i++) {
            double v = trunc((double)get(t, a, i) * factors[f]);
            wrong += get(t, c, i) != (v >= (double)most ? most : v <= (double)least ? least : (__int128)v);
        }
    }
    comm_scale(c, a, 8, t->type, 1, NAN);
    for (int i = 0; i < 8; i++) wrong += get(t, c, i) != 0;
    is_int(wrong, 0, "%s: a factor in f64, toward zero, held at the ends of the range; NaN gives 0", t->name);
    wrong = 0;
    for (int o = 0; o < 5; o++) {
        comm_fill_neutral(b, N, t->type, ops[o]);
        comm_combine_of(t->type, ops[o])(c, a, b, N);
        wrong += memcmp(c, a, (size_t)(N * t->bytes)) != 0;
    }
    is_int(wrong, 0, "%s: the neutral element of every operation changes nothing", t->name);
}

static void test_bool(void)
{
    const uint8_t a[6] = {0, 0, 1, 1, 2, 0}, b[6] = {0, 1, 0, 1, 0, 255}, or_[6] = {0, 1, 1, 1, 1, 1},
                  and_[6] = {0, 0, 0, 1, 0, 0};
    uint8_t c[6], one[6];
    int wrong = 0;
    const enum kolo_reduce ors[] = {KOLO_SUM, KOLO_AVERAGE, KOLO_MAX}, ands[] = {KOLO_MIN, KOLO_PRODUCT};
    for (int o = 0; o < 3; o++)
        comm_combine_of(KOLO_BOOL, ors[o])(c, a, b, 6), wrong += memcmp(c, or_, 6) != 0;
    for (int o = 0; o < 2; o++)
        comm_combine_of(KOLO_BOOL, ands[o])(c, a, b, 6), wrong += memcmp(c, and_, 6) != 0;
    comm_scale(c, a, 6, KOLO_BOOL, 3, 0.1);
    wrong += memcmp(c, a, 6) != 0;
    comm_fill_neutral(one, 6, KOLO_BOOL, KOLO_MIN);
    wrong += one[0] != 1 || one[5] != 1;
    is_int(wrong, 0, "bool: or and and of whatever is not 0; factors and divisors leave it");
}

static void test_float(void)
{
    static float f[N], g[N], h[N];
    static double d[N], e[N], w[N];
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        kolo_philox4 r = kolo_philox(18, 0, (uint64_t)i);
        memcpy(&f[i], &r.v[0], 4);
        memcpy(&g[i], &r.v[1], 4);
        memcpy(&d[i], &r.v[0], 8);
        memcpy(&e[i], &r.v[2], 8);
    }
    comm_combine_of(KOLO_F32, KOLO_PRODUCT)(h, f, g, N);
    comm_combine_of(KOLO_F64, KOLO_PRODUCT)(w, d, e, N);
    for (int i = 0; i < N; i++) {
        volatile float p = f[i] * g[i];
        volatile double q = d[i] * e[i];
        wrong += isnan(p) ? !isnan(h[i]) : h[i] != p;
        wrong += isnan(q) ? !isnan(w[i]) : w[i] != q;
    }
    for (int larger = 0; larger < 2; larger++) {
        enum kolo_reduce op = larger ? KOLO_MAX : KOLO_MIN;
        comm_combine_of(KOLO_F32, op)(h, f, g, N);
        comm_combine_of(KOLO_F64, op)(w, d, e, N);
        for (int i = 0; i < N; i++) {
            wrong += isnan(f[i]) || isnan(g[i]) ? !isnan(h[i])
                                                : h[i] != (larger ? fmaxf(f[i], g[i]) : fminf(f[i], g[i]));
            wrong += isnan(d[i]) || isnan(e[i]) ? !isnan(w[i])
                                                : w[i] != (larger ? fmax(d[i], e[i]) : fmin(d[i], e[i]));
        }
    }
    is_int(wrong, 0, "f32, f64: product, min and max of random bits; NaN wins");
    wrong = 0;
    comm_scale(h, f, N, KOLO_F32, 3, 1.1);
    comm_scale(w, d, N, KOLO_F64, 7, 1);
    for (int i = 0; i < N; i++) {
        float want = (float)((double)f[i] / 3 * 1.1);
        wrong += isnan(want) ? !isnan(h[i]) : h[i] != want;
        wrong += isnan(d[i]) ? !isnan(w[i]) : w[i] != d[i] / 7;
    }
    comm_scale(h, f, N, KOLO_F32, 1, 1);
    wrong += memcmp(h, f, sizeof f) != 0;
    is_int(wrong, 0, "f32, f64: scaled in f64, rounded once; by 1 every bit stays");
}

/* Factors and divisor within a fold do what they do apart. */
static void test_fold(void)
{
    static int32_t a[3][N], out[N], sum[N], one[N];
    const void *source[3] = {a[0], a[1], a[2]};
    void *target = out;
    for (int v = 0; v < 3; v++)
        for (int i = 0; i < N; i++)
            a[v][i] = (int32_t)(kolo_philox(19, (uint64_t)v, (uint64_t)i).v[0] % 2001) - 1000;
    comm_fold(
        &(comm_folding){.type = KOLO_I32, .op = KOLO_SUM, .divisor = 3, .prescale = 2.5, .postscale = 0.5},
        &target, 1, source, 3, N);
    memset(sum, 0, sizeof sum);
    for (int v = 0; v < 3; v++) {
        comm_scale(one, a[v], N, KOLO_I32, 1, 2.5);
        for (int i = 0; i < N; i++) sum[i] += one[i];
    }
    comm_scale(sum, sum, N, KOLO_I32, 3, 0.5);
    ok(!memcmp(sum, out, sizeof sum), "a fold with factors and a divisor is scaling, fold, scaling");
    const int64_t big[2] = {INT64_MAX - 1, 1};
    int64_t total;
    void *to = &total;
    comm_fold(&(comm_folding){.type = KOLO_I64, .op = KOLO_SUM}, &to, 1,
              (const void *const[]){&big[0], &big[1]}, 2, 1);
    is_int(total, INT64_MAX, "i64 above 2^53 loses nothing where nothing is scaled");
}

int main(void)
{
    for (int t = 0; t < 6; t++) test_integer(&integers[t]);
    test_bool();
    test_float();
    test_fold();
    ok(!comm_combine_of(KOLO_F32, KOLO_ADASUM) && !comm_combine_of(KOLO_DTYPES, KOLO_SUM) &&
           kolo_dtype_size(KOLO_DTYPES) == 0,
       "what does not exist is told");
    return done_testing();
}
