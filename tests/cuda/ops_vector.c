/* Arithmetic over arenas and biases on CUDA: sums and roundings have the CPU's bits; sums over lines are
 * compared with sums in f64. */
#include <math.h>
#include <string.h>

#include "base/plugin.h"
#include "cuda_rig.h"
#include "kolo/error.h"
#include "ops/element.h"
#include "ops/kernel.h"

enum { CPU, GPU, SIDES };
static kolo_backend *backend[SIDES];

static void check(int rc, const char *what)
{
    if (rc >= 0) return;
    printf("Bail out! %s: %s\n", what, kolo_error_text());
    exit(1);
}

static void *memory(kolo_backend *b, size_t bytes)
{
    void *m = kolo_backend_alloc(b, bytes);
    check(m ? 0 : KOLO_ECONFIG, "memory");
    return m;
}

static uint64_t seed = 1;
static float chance(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((float)(seed >> 40) * 0x1p-24f - 0.5f) * 4;
}

/* ---- fold, divide, narrow ---- */

enum { MOST = 9000, AFTER = 64 };

static void test_fold(void)
{
    static const int64_t counts[] = {0, 1, 3, 4, 5, 16, 1023, 4096, 4099, MOST};
    float a[MOST + AFTER], b[MOST + AFTER], out[SIDES][MOST + AFTER];
    int wrong = 0;
    for (int i = 0; i < MOST + AFTER; i++) a[i] = chance(), b[i] = chance();
    for (int k = 0; k < 10; k++) {
        for (int s = 0; s < SIDES; s++) {
            void *to = memory(backend[s], sizeof a), *from = memory(backend[s], sizeof b);
            check(kolo_backend_write(backend[s], to, a, sizeof a), "write");
            check(kolo_backend_write(backend[s], from, b, sizeof b), "write");
            check(kolo_backend_fold(backend[s], to, from, counts[k]), "fold");
            check(kolo_backend_read(backend[s], out[s], to, sizeof a), "read");
            kolo_backend_free(backend[s], &to, sizeof a);
            kolo_backend_free(backend[s], &from, sizeof b);
        }
        wrong += memcmp(out[CPU], out[GPU], sizeof a) != 0;
        if (counts[k] && out[GPU][counts[k] - 1] == a[counts[k] - 1]) wrong++;
    }
    is_int(wrong, 0, "fold: the CPU's bits, nothing beyond the end");
}

static void test_divide(void)
{
    static const int64_t counts[] = {0, 1, 3, 4, 5, 1023, 4099, MOST};
    float a[MOST + AFTER], out[SIDES][MOST + AFTER];
    int wrong = 0;
    for (int i = 0; i < MOST + AFTER; i++) a[i] = chance();
    for (int k = 0; k < 8; k++) {
        for (int s = 0; s < SIDES; s++) {
            void *to = memory(backend[s], sizeof a), *from = memory(backend[s], sizeof a);
            check(kolo_backend_write(backend[s], to, a, sizeof a), "write");
            check(kolo_backend_write(backend[s], from, a, sizeof a), "write");
            check(kolo_backend_divide(backend[s], to, from, 3, counts[k]), "divide");
            check(kolo_backend_read(backend[s], out[s], to, sizeof a), "read");
            kolo_backend_free(backend[s], &to, sizeof a);
            kolo_backend_free(backend[s], &from, sizeof a);
        }
        wrong += memcmp(out[CPU], out[GPU], sizeof a) != 0;
        for (int64_t i = 0; i < MOST + AFTER; i++) wrong += out[GPU][i] != (i < counts[k] ? a[i] / 3 : a[i]);
    }
    is_int(wrong, 0, "divide: the CPU's bits, nothing beyond the end");
}

static bool alike(uint16_t a, uint16_t b, uint16_t infinity)
{
    return a == b || ((a & 0x7FFF) > infinity && (b & 0x7FFF) > infinity);
}

static void test_narrow(enum kolo_dtype dtype)
{
    static const int64_t counts[] = {0, 1, 7, 8, 9, 4097, MOST};
    float a[MOST];
    uint16_t out[SIDES][MOST];
    int wrong = 0;
    for (int i = 0; i < MOST; i++) { /* of all sizes, some halfway between two numbers */
        a[i] = ldexpf(chance(), i % 61 - 40);
        if (i % 3 == 0) a[i] = kolo_bits_float(kolo_float_bits(a[i]) & 0xFFFF8000u);
        if (i % 5 == 0) a[i] = kolo_bits_float(kolo_float_bits(a[i]) & 0xFFFFF000u);
        if (i % 97 == 5) a[i] = i % 2 ? INFINITY : -INFINITY;
        if (i % 97 == 6) a[i] = NAN;
        if (i % 97 == 7) a[i] = i % 2 ? 65519.998f : 65520;
        if (i % 97 == 8) a[i] = i % 2 ? -3.4028235e38f : 1e-45f;
    }
    for (int k = 0; k < 7; k++) {
        for (int s = 0; s < SIDES; s++) {
            void *to = memory(backend[s], sizeof out[s]), *from = memory(backend[s], sizeof a);
            check(kolo_backend_write(backend[s], from, a, sizeof a), "write");
            check(kolo_backend_narrow(backend[s], to, dtype, from, counts[k]), "narrow");
            check(kolo_backend_read(backend[s], out[s], to, sizeof out[s]), "read");
            kolo_backend_free(backend[s], &to, sizeof out[s]);
            kolo_backend_free(backend[s], &from, sizeof a);
        }
        for (int i = 0; i < MOST; i++)
            wrong += !alike(out[CPU][i], out[GPU][i], dtype == KOLO_BF16 ? 0x7F80 : 0x7C00);
    }
    is_int(wrong, 0, "narrow to %s: the CPU's bits, any NaN for a NaN", kolo_dtype_name(dtype));
}

/* ---- biases ---- */

static int (*bias_add)(kolo_backend *, void *, enum kolo_dtype, const float *, int64_t, int64_t, int64_t);
static size_t (*bias_workspace)(int64_t, int64_t);
static int (*bias_grad)(kolo_backend *, float *, const void *, enum kolo_dtype, int64_t, int64_t, int64_t,
                        void *);

static float get(const void *p, int64_t i, enum kolo_dtype t)
{
    if (t == KOLO_F32) return ((const float *)p)[i];
    return t == KOLO_BF16 ? kolo_from_bf16(((const uint16_t *)p)[i])
                          : kolo_from_f16(((const uint16_t *)p)[i]);
}
static void put(void *p, int64_t i, enum kolo_dtype t, float x)
{
    if (t == KOLO_F32) ((float *)p)[i] = x;
    else ((uint16_t *)p)[i] = t == KOLO_BF16 ? kolo_to_bf16(x) : kolo_to_f16(x);
}

/* Both functions on (rows, stored), channels of them real. */
static int biases_differ(enum kolo_dtype t, int64_t rows, int64_t stored, int64_t channels)
{
    const int64_t n = rows * stored;
    const size_t bytes = (size_t)n * kolo_dtype_size(t), vector = (size_t)channels * sizeof(float),
                 space = bias_workspace(rows, stored);
    char *y = malloc(bytes), *out = malloc(bytes);
    float *bias = malloc(vector), *dbias = malloc(vector);
    void *there = memory(backend[GPU], bytes), *b = memory(backend[GPU], vector),
         *work = memory(backend[GPU], space);
    for (int64_t i = 0; i < n; i++) put(y, i, t, i % stored < channels ? chance() : 0);
    for (int64_t c = 0; c < channels; c++) bias[c] = chance();
    check(kolo_backend_write(backend[GPU], there, y, bytes), "write");
    check(kolo_backend_write(backend[GPU], b, bias, vector), "write");
    check(bias_add(backend[GPU], there, t, b, rows, stored, channels), "bias_add");
    check(kolo_backend_read(backend[GPU], out, there, bytes), "read");
    int wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % stored < channels) put(y, i, t, get(y, i, t) + bias[i % stored]);
        wrong += get(out, i, t) != get(y, i, t);
    }
    check(bias_grad(backend[GPU], b, there, t, rows, stored, channels, work), "bias_grad");
    check(kolo_backend_read(backend[GPU], dbias, b, vector), "read");
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, size = 0;
        for (int64_t r = 0; r < rows; r++)
            sum += (double)get(y, r * stored + c, t), size += fabs((double)get(y, r * stored + c, t));
        if (!(fabs((double)dbias[c] - sum) <= 1e-6 * size + 1e-7 * fabs(sum))) wrong++;
    }
    kolo_backend_free(backend[GPU], &there, bytes);
    kolo_backend_free(backend[GPU], &b, vector);
    kolo_backend_free(backend[GPU], &work, space);
    free(y);
    free(out);
    free(bias);
    free(dbias);
    if (wrong) diag("%ld x %ld of %ld: %d wrong", (long)rows, (long)channels, (long)stored, wrong);
    return wrong;
}

static void test_biases(enum kolo_dtype t)
{
    static const int64_t shape[][3] = {{1, 8, 3},         {7, 8, 8},         {256, 10, 10},  {3000, 16, 10},
                                       {40001, 8, 8},     {700, 1000, 1000}, {5000, 24, 20}, {2100, 72, 65},
                                       {300, 2048, 2048}, {33, 1001, 1001}};
    int wrong = 0;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        wrong += biases_differ(t, shape[i][0], shape[i][1], shape[i][2]);
    is_int(wrong, 0, "biases in %s, added and summed, 10 shapes", kolo_dtype_name(t));
}

/* ---- the numbers that algorithms are timed on ---- */

static int (*noise)(kolo_backend *, void *, enum kolo_dtype, int64_t);

static float number(const void *from, enum kolo_dtype t, int i)
{
    if (t == KOLO_F32) return ((const float *)from)[i];
    const uint16_t bits = ((const uint16_t *)from)[i];
    return t == KOLO_BF16 ? kolo_from_bf16(bits) : kolo_from_f16(bits);
}

/* Moments of a normal distribution; a neighbour says nothing of its neighbour. */
static void test_noise(enum kolo_dtype t)
{
    enum { COUNT = 40000 };
    double sum = 0, square = 0, fourth = 0, neighbours = 0;
    char *host = malloc(COUNT * sizeof(float));
    void *there = memory(backend[GPU], COUNT * sizeof(float));
    check(noise(backend[GPU], there, t, COUNT), "noise");
    check(kolo_backend_read(backend[GPU], host, there, COUNT * kolo_dtype_size(t)), "read");
    for (int i = 0; i < COUNT; i++) {
        const double x = number(host, t, i);
        sum += x, square += x * x, fourth += x * x * x * x;
        neighbours += i ? x * number(host, t, i - 1) : 0;
    }
    ok(fabs(sum / COUNT) < .03 && fabs(square / COUNT - 1) < .04 && fabs(fourth / COUNT - 3) < .4 &&
           fabs(neighbours / COUNT) < .03,
       "%s: what algorithms are timed on is normal: mean %.3f, variance %.3f, fourth moment %.2f, of "
       "neighbours %.3f",
       kolo_dtype_name(t), sum / COUNT, square / COUNT, fourth / COUNT, neighbours / COUNT);
    free(host);
    kolo_backend_free(backend[GPU], &there, COUNT * sizeof(float));
}

int main(void)
{
    cuda_rig();
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    check(kolo_backend_create(&backend[CPU], "cpu", &config), "cpu");
    check(kolo_backend_create(&backend[GPU], "cuda", &config), "cuda");
    *(void **)&bias_add = kolo_cuda_symbol("kolo_cuda_bias_add");
    *(void **)&bias_workspace = kolo_cuda_symbol("kolo_cuda_bias_workspace");
    *(void **)&bias_grad = kolo_cuda_symbol("kolo_cuda_bias_grad");
    *(void **)&noise = kolo_cuda_symbol("kolo_cuda_noise");
    test_fold();
    test_divide();
    test_noise(KOLO_F32);
    test_noise(KOLO_BF16);
    test_noise(KOLO_F16);
    test_narrow(KOLO_BF16);
    test_narrow(KOLO_F16);
    test_biases(KOLO_F32);
    test_biases(KOLO_BF16);
    test_biases(KOLO_F16);
    kolo_backend_destroy(&backend[GPU]);
    kolo_backend_destroy(&backend[CPU]);
    return done_testing();
}
