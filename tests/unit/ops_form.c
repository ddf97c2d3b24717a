/* Encoded forms of activations: bits, nibbles and numbers of fewer bits, against what is counted by hand, and
 * against tables of the formats' own definitions. */
#include "base/philox.h"
#include "kolo/error.h"
#include "ops/backend.h"
#include "tap.h"

static kolo_backend *backend;

/* ---- E4M3 ---- */

/* By the definition: (1 + f / 8) 2^(e - 7), or f / 8 2^-6 where e is 0. */
static double value_of(int code)
{
    const int e = code >> 3 & 15, f = code & 7;
    const double size = e ? ldexp(1 + f / 8.0, e - 7) : ldexp(f / 8.0, -6);
    return code & 128 ? -size : size;
}

static void test_fp8_values(void)
{
    int wrong = 0, back = 0;
    for (int c = 0; c < 256; c++) {
        const float x = kolo_from_fp8((uint8_t)c);
        if ((c & 127) == 127) {
            wrong += !isnan(x);
            continue;
        }
        wrong += (double)x != value_of(c) || !signbit(x) != !(c & 128);
        back += kolo_to_fp8(x) == c;
    }
    is_int(wrong, 0, "fp8: all 256 codes are what the format says");
    is_int(back, 254, "fp8: each comes back as itself");
}

static void test_fp8_rounding(void)
{
    static const struct {
        float x;
        uint8_t code;
        const char *what;
    } row[] = {{0, 0x00, "0"},
               {1, 0x38, "1"},
               {-1.5f, 0xBC, "-1.5"},
               {448, 0x7E, "448, the largest"},
               {1.0625f, 0x38, "1.0625, a tie: down to the even one"},
               {1.1875f, 0x3A, "1.1875, a tie: up to the even one"},
               {1.07f, 0x39, "1.07: up"},
               {0x1p-6f, 0x08, "2^-6, the smallest normal number"},
               {0x1p-9f, 0x01, "2^-9, the smallest"},
               {7.5f * 0x1p-9f, 0x08, "between the largest subnormal and 2^-6, a tie"},
               {0x1p-10f, 0x00, "2^-10, a tie: to 0"},
               {1.01f * 0x1p-10f, 0x01, "a little more: up"},
               {3 * 0x1p-10f, 0x02, "3 x 2^-10, a tie: up to the even one"},
               {464, 0x7E, "464: the largest"},
               {-1e30f, 0xFE, "-1e30: the smallest"},
               {INFINITY, 0x7E, "infinity: the largest"},
               {255, 0x78, "255: 256"}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        is_int(kolo_to_fp8(row[i].x), row[i].code, "fp8 of %s", row[i].what);
    is_int(kolo_to_fp8(NAN) & 127, 127, "fp8 of no number is none");
    is_int(kolo_to_fp8(-0.0f), 0x80, "fp8 of -0");
}

/* The nearest of all values, the even code of two. */
static int nearest(double x)
{
    int best = 0;
    for (int c = 1; c < 127; c++) {
        const double here = fabs(fabs(x) - value_of(c)), there = fabs(fabs(x) - value_of(best));
        if (here < there || (here == there && c % 2 == 0)) best = c;
    }
    return best | (x < 0 ? 128 : 0);
}

static void test_fp8_nearest(void)
{
    int wrong = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        const kolo_philox4 z = kolo_philox(3, 8, i);
        const float x = ldexpf((float)(int32_t)z.v[0], (int)(z.v[1] % 24) - 43); /* 2^-12 to 2^11 */
        wrong += kolo_to_fp8(x) != nearest((double)x);
    }
    is_int(wrong, 0, "fp8: 20000 numbers go to the nearest of all");
}

/* ---- halves ---- */

static void test_half(void)
{
    int back = 0, to = 0;
    for (int h = 0; h < 65536; h++) {
        const float a = kolo_from_half((uint16_t)h), b = kolo_from_f16((uint16_t)h);
        back += !(a == b || (isnan(a) && isnan(b))) || !signbit(a) != !signbit(b);
    }
    for (uint32_t i = 0; i < 400000; i++) {
        const uint32_t bits = kolo_philox(5, 16, i).v[0];
        const float x = i < 1000 ? ldexpf((float)(2 * i + 1), -25) : kolo_bits_float(bits);
        const uint16_t a = kolo_to_half(x), b = kolo_to_f16(x);
        to += isnan(x) ? (a & 0x7C00) != 0x7C00 || !(a & 0x3FF) : a != b;
    }
    is_int(back, 0, "fp16: all 65536 codes as element.h reads them");
    is_int(to, 0, "fp16: 400000 numbers as element.h rounds them");
}

/* ---- tensors ---- */

enum { MOST = 70001 };

static void test_signs(enum kolo_dtype dtype, int64_t count)
{
    static float x[MOST], y[MOST];
    static uint16_t half[MOST], back[MOST], packed[MOST / 16 + 2];
    int wrong = 0, differs = 0, ones = 0;
    const bool f32 = dtype == KOLO_F32;
    for (int64_t i = 0; i < count; i++) {
        const uint32_t z = kolo_philox(1, 2, (uint64_t)i).v[0];
        x[i] = z % 5 == 0 ? 0 : z % 7 == 0 ? -0.0f : (float)(int32_t)z;
        half[i] = kolo_to_bf16(x[i]);
    }
    const size_t bytes = kolo_form_bytes(KOLO_FORM_SIGNS, (size_t)count);
    packed[bytes / 2] = 0xABCD;
    kolo_backend_encode(backend, KOLO_FORM_SIGNS, dtype, packed, f32 ? (void *)x : half, count);
    kolo_backend_decode(backend, KOLO_FORM_SIGNS, dtype, f32 ? (void *)y : back, packed, count);
    for (int64_t i = 0; i < count; i++) {
        const int bit = packed[i / 16] >> i % 16 & 1;
        ones += bit;
        wrong += bit != (x[i] > 0);
        differs += (f32 ? y[i] : kolo_from_bf16(back[i])) != (float)(x[i] > 0);
    }
    ok(wrong == 0 && ones > 0 && packed[bytes / 2] == 0xABCD,
       "%lld signs of %s: a bit each, in %zu bytes and no more", (long long)count, kolo_dtype_name(dtype),
       bytes);
    is_int(differs, 0, "they come back as 1 and 0");
}

static void test_nibbles(int64_t count)
{
    static uint8_t x[MOST], y[MOST], packed[MOST / 2 + 2];
    int wrong = 0;
    for (int64_t i = 0; i < count; i++) x[i] = (uint8_t)(kolo_philox(1, 3, (uint64_t)i).v[0] % 16);
    const size_t bytes = kolo_form_bytes(KOLO_FORM_NIBBLES, (size_t)count);
    packed[bytes] = 0xAB;
    kolo_backend_encode(backend, KOLO_FORM_NIBBLES, KOLO_U8, packed, x, count);
    kolo_backend_decode(backend, KOLO_FORM_NIBBLES, KOLO_U8, y, packed, count);
    for (int64_t i = 0; i < count; i++) wrong += (packed[i / 2] >> i % 2 * 4 & 15) != x[i] || y[i] != x[i];
    ok(wrong == 0 && bytes == (size_t)(count + 1) / 2 && packed[bytes] == 0xAB,
       "%lld numbers below 16 in %zu bytes, and back", (long long)count, bytes);
}

static float rounded(enum kolo_form_kind form, float x)
{
    return form == KOLO_FORM_FP8    ? kolo_from_fp8(kolo_to_fp8(x))
           : form == KOLO_FORM_BF16 ? kolo_from_bf16(kolo_to_bf16(x))
                                    : kolo_from_f16(kolo_to_f16(x));
}

static void test_numbers(enum kolo_form_kind form, size_t each, int64_t count)
{
    static float x[MOST], y[MOST];
    static uint8_t packed[2 * MOST + 1];
    int wrong = 0;
    for (int64_t i = 0; i < count; i++)
        x[i] = ldexpf((float)(int32_t)kolo_philox(1, 4, (uint64_t)i).v[0], (int)(i % 20) - 40);
    const size_t bytes = kolo_form_bytes(form, (size_t)count);
    packed[bytes] = 0xAB;
    kolo_backend_encode(backend, form, KOLO_F32, packed, x, count);
    kolo_backend_decode(backend, form, KOLO_F32, y, packed, count);
    for (int64_t i = 0; i < count; i++) wrong += y[i] != rounded(form, x[i]);
    ok(wrong == 0 && bytes == each * (size_t)count && packed[bytes] == 0xAB,
       "form %d: %lld numbers in %zu bytes, each rounded once", (int)form, (long long)count, bytes);
}

static void test_tensors(void)
{
    static const int64_t count[] = {1, 15, 16, 33, 16384, MOST};
    for (size_t i = 0; i < sizeof count / sizeof *count; i++) {
        test_signs(KOLO_F32, count[i] < 15 ? 15 : count[i]);
        test_signs(KOLO_BF16, count[i] < 15 ? 17 : count[i]);
        test_nibbles(count[i]);
        test_numbers(KOLO_FORM_FP16, 2, count[i]);
        test_numbers(KOLO_FORM_BF16, 2, count[i]);
        test_numbers(KOLO_FORM_FP8, 1, count[i]);
    }
    uint16_t to[16], from[16] = {0};
    is_int(kolo_backend_encode(backend, KOLO_FORM_BF16, KOLO_BF16, to, from, 16), KOLO_EINTERNAL,
           "bf16 of bf16 is no form");
}

int main(void)
{
    kolo_backend_config config = {.threads = 2, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) return 1;
    test_fp8_values();
    test_fp8_rounding();
    test_fp8_nearest();
    test_half();
    test_tensors();
    kolo_backend_destroy(&backend);
    return done_testing();
}
