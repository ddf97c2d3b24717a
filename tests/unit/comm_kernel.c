/* Folds: order, every type, in place, counts that fit no vector. */
#include "comm/core/kernel.h"

#include "base/philox.h"
#include "tap.h"

enum { MAX = 5000, SOURCES = 17 };

static float value(int rank, int64_t i)
{
    kolo_philox4 r = kolo_philox(7, (uint64_t)rank, (uint64_t)i);
    return (kolo_uniform(r.v[0]) - 0.5f) * (float)(1 << (r.v[1] % 12));
}

/* The definition, element by element. */
static float tree(const float *v, int n)
{
    if (n == 1) return v[0];
    int half = 1;
    while (half * 2 < n) half *= 2;
    return tree(v, half) + tree(v + half, n - half);
}

static float chain(const float *v, int n)
{
    float sum = v[0];
    for (int i = 1; i < n; i++) sum += v[i];
    return sum;
}

static float data[SOURCES][MAX + 1];

static int wrong(int n, int64_t count, bool as_tree, int target)
{
    const void *source[SOURCES];
    void *out[SOURCES];
    int bad = 0;
    for (int r = 0; r < n; r++) {
        for (int64_t i = 0; i <= MAX; i++) data[r][i] = value(r, i);
        source[r] = data[r];
        out[r] = data[(r + target) % n];
    }
    comm_fold(&(comm_folding){.type = KOLO_F32, .op = KOLO_SUM, .tree = as_tree}, out, n, source, n, count);
    for (int64_t i = 0; i < count; i++) {
        float v[SOURCES];
        for (int r = 0; r < n; r++) v[r] = value(r, i);
        float want = as_tree ? tree(v, n) : chain(v, n);
        for (int r = 0; r < n; r++) bad += memcmp(&data[r][i], &want, 4) != 0;
    }
    for (int r = 0; r < n; r++) bad += data[r][count] != value(r, count); /* the guard after the end */
    return bad;
}

int main(void)
{
    const int64_t counts[] = {1, 3, 15, 1023, 1024, 1025, 4999};
    for (int as_tree = 0; as_tree < 2; as_tree++) {
        int bad = 0;
        for (int n = 1; n <= SOURCES; n++)
            for (int c = 0; c < 7; c++)
                for (int target = 0; target < n; target += 3) bad += wrong(n, counts[c], as_tree, target);
        is_int(bad, 0, "fold as a %s of 1 to 17 sources, in place, any target, bit for bit",
               as_tree ? "tree" : "chain");
    }
    const double d[2][3] = {{1, -5, 0.5}, {2, 3, -0.5}};
    double e[3];
    comm_combine_of(KOLO_F64, KOLO_MAX)(e, d[0], d[1], 3);
    ok(e[0] == 2 && e[1] == 3 && e[2] == 0.5, "max of f64");
    comm_combine_of(KOLO_F64, KOLO_MIN)(e, d[0], d[1], 3);
    ok(e[0] == 1 && e[1] == -5 && e[2] == -0.5, "min of f64");
    comm_combine_of(KOLO_F64, KOLO_SUM)(e, d[0], d[1], 3);
    ok(e[0] == 3 && e[1] == -2 && e[2] == 0, "sum of f64");
    float nan[2] = {NAN, 1}, one[2] = {1, NAN}, f[2];
    comm_combine_of(KOLO_F32, KOLO_MAX)(f, nan, one, 2);
    ok(isnan(f[0]) && isnan(f[1]), "max passes a NaN on from either side");
    int64_t a[2] = {INT64_MAX, -3}, b[2] = {1, 2}, s[2];
    comm_combine_of(KOLO_I64, KOLO_SUM)(s, a, b, 2);
    ok(s[0] == INT64_MIN && s[1] == -1, "sum of i64 wraps");
    uint8_t u[3] = {200, 1, 7}, w[3] = {100, 2, 7}, x[3];
    comm_combine_of(KOLO_U8, KOLO_SUM)(x, u, w, 3);
    ok(x[0] == 44 && x[1] == 3 && x[2] == 14, "sum of u8");
    comm_combine_of(KOLO_U8, KOLO_MIN)(x, u, w, 3);
    ok(x[0] == 100 && x[1] == 1 && x[2] == 7, "min of u8");
    return done_testing();
}
