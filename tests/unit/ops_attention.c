/* Window attention: against the formula in f64, whatever the layout; the same bits for any number of threads;
 * bf16 within its rounding. */
#include "golden_file.h"
#include "ops_rig.h"

enum { N = 2, HEADS = 3, DEPTH = 5, M = 3, H = 6, W = 9, C = HEADS * DEPTH, T = M * M };
static const int64_t shift[2] = {1, 2};

static void fill(rig *r, int t, const char *name, double b)
{
    const int64_t n = kolo_tensor_count(&r->g->tensor[t]);
    float *v = malloc((size_t)n * sizeof *v);
    golden_fill(name, 1, 0, b, v, n);
    rig_set(r, t, v);
    free(v);
}

static rig open_attention(kolo_backend *b, enum kolo_dtype dtype, int64_t block, int64_t rows, int *x, int *y)
{
    rig r = rig_open(b, dtype, block);
    *x = rig_input(&r, "x", 4, (const int64_t[]){rows, 3 * C, H, W});
    *y = kolo_window_attention(r.g, "a", *x, HEADS, M, shift);
    rig_check(*y, "attention");
    const int dy = rig_backward(&r, *y);
    rig_layout(&r);
    fill(&r, *x, "x", golden_unit);
    fill(&r, kolo_graph_find(r.g, "a.relative_position_bias_table"), "t", 2);
    fill(&r, dy, "dy", golden_unit);
    rig_run(&r);
    return r;
}

/* Which of the regions of the rolled map a row, or a column, is in. */
static int region(int64_t at, int64_t size, int64_t moved)
{
    return at < size - M ? 0 : at < size - moved ? 1 : 2;
}

/* Output channel c at pixel (h, w) of the map, of row n. x: (N, 3C, H, W) */
static double formula(const float *x, const float *table, int64_t n, int64_t c, int64_t h, int64_t w)
{
    const int64_t head = c / DEPTH, i = (h - shift[0] + H) % H, j = (w - shift[1] + W) % W, top = i / M * M,
                  left = j / M * M;
    double sum = 0, value = 0;
    for (int64_t t = 0; t < T; t++) {
        const int64_t a = top + t / M, b = left + t % M, p = (a + shift[0]) % H, q = (b + shift[1]) % W;
        double s = 0;
        for (int64_t k = 0; k < DEPTH; k++)
            s += (double)x[((n * 3 * C + head * DEPTH + k) * H + h) * W + w] *
                 (double)x[((n * 3 * C + C + head * DEPTH + k) * H + p) * W + q];
        s = s / sqrt(DEPTH) + (double)table[((i - a + M - 1) * (2 * M - 1) + j - b + M - 1) * HEADS + head];
        if (region(i, H, shift[0]) != region(a, H, shift[0]) ||
            region(j, W, shift[1]) != region(b, W, shift[1]))
            s -= 100;
        sum += exp(s);
        value += exp(s) * (double)x[((n * 3 * C + 2 * C + c) * H + p) * W + q];
    }
    return value / sum;
}

static void test_formula(kolo_backend *b, enum kolo_dtype dtype, int64_t block, const char *name)
{
    int x, y;
    rig r = open_attention(b, dtype, block, N, &x, &y);
    float v[N * 3 * C * H * W], table[(2 * M - 1) * (2 * M - 1) * HEADS], out[N * C * H * W];
    rig_get(&r, x, v);
    rig_get(&r, kolo_graph_find(r.g, "a.relative_position_bias_table"), table);
    rig_get(&r, y, out);
    double worst = 0;
    for (int64_t i = 0; i < N * C * H * W; i++)
        worst = fmax(worst, fabs((double)out[i] -
                                 formula(v, table, i / (C * H * W), i / (H * W) % C, i / W % H, i % W)));
    ok(worst < (dtype == KOLO_F32 ? 3e-6 : 2e-2), "%s %s: what the formula gives (%.2g)",
       kolo_dtype_name(dtype), name, worst);
    ok(rig_padding_is_zero(&r), "%s %s: the padding is zero", kolo_dtype_name(dtype), name);
    rig_close(&r);
}

static void test_threads(void)
{
    kolo_backend *one = rig_backend(1), *three = rig_backend(3);
    int x, y, same = 1;
    rig a = open_attention(one, KOLO_F32, RIG_NHWC, 11, &x, &y),
        b = open_attention(three, KOLO_F32, RIG_NHWC, 11, &x, &y);
    for (int64_t t = 0; t < a.g->tensors; t++) same &= !memcmp(a.buffer[t], b.buffer[t], a.layout[t].bytes);
    ok(same, "1 and 3 threads give the same bits, the gradient of the table too");
    rig_close(&a);
    rig_close(&b);
    kolo_backend_destroy(&one);
    kolo_backend_destroy(&three);
}

int main(void)
{
    static const int64_t block[] = {1, 8, 16, RIG_NHWC};
    static const char *const name[] = {"nchw", "nChw8c", "nChw16c", "nhwc"};
    kolo_backend *b = rig_backend(2);
    for (int i = 0; i < 4; i++) {
        test_formula(b, KOLO_F32, block[i], name[i]);
        test_formula(b, KOLO_BF16, block[i], name[i]);
    }
    test_threads();
    kolo_backend_destroy(&b);
    return done_testing();
}
