/* f16 and bf16: every bit pattern, and f32 near all that rounds; against definitions by real numbers. */
#include "comm/core/kernel.h"

#include <stdint.h>

#include "base/philox.h"
#include "tap.h"

typedef struct format {
    enum kolo_dtype type;
    const char *name;
    int exponent, mantissa; /* bits */
} format;
static const format formats[] = {{KOLO_F16, "f16", 5, 10}, {KOLO_BF16, "bf16", 8, 7}};

static int bias(const format *f) { return (1 << (f->exponent - 1)) - 1; }
static int top(const format *f) { return (1 << f->exponent) - 1; }

static double number(const format *f, unsigned bits)
{
    int e = (int)(bits >> f->mantissa) & top(f), m = (int)(bits & ((1u << f->mantissa) - 1));
    double sign = bits >> 15 ? -1 : 1;
    if (e == top(f)) return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexp(1 + ldexp(m, -f->mantissa), e - bias(f)) : ldexp(m, 1 - bias(f) - f->mantissa));
}

/* Nearest number of the format, ties to even; x is not NaN. */
static unsigned nearest(const format *f, double x)
{
    unsigned sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    int e = 0;
    if (isinf(a)) return sign | (unsigned)top(f) << f->mantissa;
    if (a > 0) frexp(a, &e);
    e = e - 1 < 1 - bias(f) || a == 0 ? 1 - bias(f) : e - 1;
    double units = nearbyint(ldexp(a, f->mantissa - e)); /* below 2^(mantissa + 1) or just that */
    long whole = (long)units - (1l << f->mantissa);      /* negative: denormal */
    long code = whole < 0 ? (long)units : ((long)(e + bias(f)) << f->mantissa) + whole;
    long infinity = (long)top(f) << f->mantissa;
    return sign | (unsigned)(code > infinity ? infinity : code);
}

static bool is_nan(const format *f, unsigned bits) { return isnan(number(f, bits)); }
static bool quiet(const format *f, unsigned bits)
{
    return is_nan(f, bits) && (bits >> (f->mantissa - 1) & 1);
}

enum { ALL = 65536 };
static uint16_t half[ALL + 1], back[ALL + 1];
static float wide[ALL + 1];

static void test_all(const format *f)
{
    int wrong = 0, other = 0;
    for (int i = 0; i < ALL; i++) half[i] = (uint16_t)i;
    comm_widen(wide, half, ALL, f->type);
    comm_narrow(back, wide, ALL, f->type);
    for (unsigned i = 0; i < ALL; i++) {
        double want = number(f, i);
        wrong += isnan(want) ? !isnan(wide[i]) : wide[i] != want || !signbit(wide[i]) != !signbit(want);
        other += isnan(want) ? !quiet(f, back[i]) || (back[i] & 0x8000) != (i & 0x8000) : back[i] != i;
    }
    is_int(wrong, 0, "%s: all 65536 patterns widen to the number that they are", f->name);
    is_int(other, 0, "%s: and come back, NaN quiet with its sign", f->name);
    other = 0;
    for (int i = 0; i < ALL; i += 4) { /* too few for a vector */
        float w[4];
        uint16_t b[4];
        comm_widen(w, half + i, 4, f->type);
        comm_narrow(b, w, 4, f->type);
        other += memcmp(w, wide + i, sizeof w) != 0 || memcmp(b, back + i, sizeof b) != 0;
    }
    is_int(other, 0, "%s: plain code gives the same bits as vectors", f->name);
}

/* The f32 at, just below and just above the middle between every two neighbours, and random bits; lengths
 * that leave a rest to plain code. */
static void test_rounding(const format *f)
{
    int wrong = 0;
    for (int shift = -1; shift <= 1; shift++) {
        for (unsigned i = 0; i < ALL; i++) {
            double a = number(f, i), b = i + 1 < ALL ? number(f, i + 1) : NAN;
            float middle = isfinite(a) && isfinite(b) ? (float)((a + b) / 2) : (float)a;
            wide[i] = shift ? nextafterf(middle, shift * INFINITY) : middle;
        }
        comm_narrow(back, wide, ALL - 1, f->type); /* 65535 leaves a rest of 15 */
        for (int i = 0; i < ALL - 1; i++)
            wrong += isnan(wide[i]) ? !quiet(f, back[i]) : back[i] != nearest(f, (double)wide[i]);
    }
    is_int(wrong, 0, "%s: the middle between neighbours rounds to even, beside it to the nearer", f->name);
    wrong = 0;
    for (uint64_t round = 0; round < 16; round++) {
        for (uint64_t i = 0; i < ALL; i += 4) memcpy(wide + i, kolo_philox(3, round, i).v, 16);
        comm_narrow(back, wide, ALL, f->type);
        for (int i = 0; i < ALL; i++)
            wrong += isnan(wide[i]) ? !quiet(f, back[i]) : back[i] != nearest(f, (double)wide[i]);
    }
    is_int(wrong, 0, "%s: a million random f32 round to the nearest", f->name);
    wrong = 0;
    for (int n = 0; n < 40; n++) { /* whatever does the rest does as the vector code */
        uint16_t short_one[41];
        memset(short_one, 0xa5, sizeof short_one);
        comm_narrow(short_one, wide + 100, n, f->type);
        wrong += memcmp(short_one, back + 100, (size_t)n * 2) != 0 || short_one[n] != 0xa5a5;
    }
    is_int(wrong, 0, "%s: any length gives the same bits and writes no further", f->name);
}

static uint16_t left[ALL], right[ALL], out[ALL];

static unsigned combined(const format *f, enum kolo_reduce op, unsigned a, unsigned b)
{
    float x = (float)number(f, a), y = (float)number(f, b), z;
    if (op == KOLO_MAX || op == KOLO_MIN) {
        if (is_nan(f, a)) return ALL;
        if (is_nan(f, b)) return ALL;
        return (op == KOLO_MAX ? x > y : x < y) ? a : b;
    }
    z = op == KOLO_SUM ? x + y : x * y;
    return isnan(z) ? ALL : nearest(f, (double)z);
}

static void test_pairs(const format *f, enum kolo_reduce op, const char *what)
{
    int wrong = 0;
    for (uint64_t round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < ALL; i++) {
            kolo_philox4 r = kolo_philox(5, round, i);
            left[i] = (uint16_t)i;
            right[i] = (uint16_t)r.v[0];
            if (round & 1) right[i] = (uint16_t)((i & 0xff00) ^ (r.v[0] & 0x80ff)); /* of like size */
        }
        comm_combine_of(f->type, op)(out, left, right, ALL - (int)round);
        for (int i = 0; i < ALL - (int)round; i++) {
            unsigned want = combined(f, op, left[i], right[i]);
            wrong += want == ALL ? !quiet(f, out[i]) : out[i] != want;
        }
    }
    is_int(wrong, 0, "%s: %s of every pattern with random ones", f->name, what);
}

/* One rounding, however many sources: sums that every step in 16 bits would lose. */
static void test_fold(const format *f, bool tree)
{
    enum { N = 300, COUNT = 1500 };
    static uint16_t data[N][COUNT], result[COUNT];
    const void *source[N];
    void *target = result;
    int wrong = 0;
    for (uint64_t r = 0; r < N; r++) {
        source[r] = data[r];
        for (uint64_t i = 0; i < COUNT; i++)
            data[r][i] = (uint16_t)nearest(f, 1 + (double)(kolo_philox(9, r, i).v[0] % 128) / 128);
    }
    comm_fold(&(comm_folding){.type = f->type, .op = KOLO_SUM, .tree = tree}, &target, 1, source, N, COUNT);
    for (int i = 0; i < COUNT; i++) {
        double sum = 0; /* of multiples of 1/128 below 1024: exact in f32, too, in any order */
        for (int r = 0; r < N; r++) sum += number(f, data[r][i]);
        wrong += result[i] != nearest(f, sum);
    }
    is_int(wrong, 0, "%s: a %s of 300 is the exact sum, rounded once", f->name, tree ? "tree" : "chain");
    comm_fold(&(comm_folding){.type = f->type, .op = KOLO_AVERAGE, .tree = tree, .divisor = N, .prescale = 4},
              &target, 1, source, N, COUNT);
    wrong = 0;
    for (int i = 0; i < COUNT; i++) {
        double sum = 0;
        for (int r = 0; r < N; r++) sum += number(f, data[r][i]);
        wrong += result[i] != nearest(f, (double)(float)(4 * sum / N));
    }
    is_int(wrong, 0, "%s: so is its average with a factor", f->name);
}

int main(void)
{
    for (int k = 0; k < 2; k++) {
        const format *f = &formats[k];
        test_all(f);
        test_rounding(f);
        test_pairs(f, KOLO_SUM, "the sum");
        test_pairs(f, KOLO_PRODUCT, "the product");
        test_pairs(f, KOLO_MIN, "the smaller");
        test_pairs(f, KOLO_MAX, "the larger");
        test_fold(f, false);
        test_fold(f, true);
    }
    return done_testing();
}
