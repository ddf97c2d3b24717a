/* What must hold for the layers of transformers and of networks built like them, whatever they compute: work
 * in place, zero padding, the same bits for any number of threads and wherever a row of the global batch is
 * computed, the same numbers in every layout, bf16 within its rounding. */
#include "golden_file.h"
#include "ops/activation.h"
#include "ops/draw.h"
#include "ops_rig.h"

enum { ROWS = 6, CHANNELS = 20 };

/* x (rows, 20, 9, 11). pixels: with the layers that want all channels of a pixel together. */
static rig open_layers(kolo_backend *b, enum kolo_dtype dtype, int64_t block, int64_t rows, bool pixels)
{
    rig r = rig_open(b, dtype, block);
    kolo_graph *g = r.g;
    int x = rig_input(&r, "x", 4, (const int64_t[]){rows, CHANNELS, 9, 11});
    kolo_conv_spec s = {.out = CHANNELS,
                        .kernel = {5, 5},
                        .stride = {1, 1},
                        .pad = {2, 2},
                        .groups = CHANNELS,
                        .bias = true,
                        .weight = rig_init};
    int y = kolo_conv(g, "c", x, &s),
        scale = kolo_param(g, "scale", 1, (const int64_t[]){CHANNELS}, rig_init, false);
    if (pixels) y = kolo_layer_norm(g, "n", y, 1e-6);
    y = kolo_activate(g, "sigmoid", kolo_activate(g, "gelu", y, KOLO_GELU, 0), KOLO_SIGMOID, 0);
    if (pixels) y = kolo_linear(g, "l", y, CHANNELS, true, rig_init, rig_init);
    y = kolo_dropout(g, "drop", kolo_residual(g, "res", x, y, scale, 0.5), 0.2);
    rig_check(y, "network");
    r.step.seed = 11;
    rig_backward(&r, y);
    rig_layout(&r);
    for (int t = 0; t < (int)g->tensors; t++) {
        const kolo_tensor *p = &g->tensor[t];
        if (p->producer >= 0) continue;
        int64_t n = kolo_tensor_count(p);
        float *v = malloc((size_t)n * sizeof *v);
        golden_fill(p->name, 3, p->rank == 1 ? 0.7 : 0, 0.8, v, n);
        rig_set(&r, t, v);
        free(v);
    }
    return r;
}

/* Largest distance of what the two computed, relative to the l2 norm of each tensor. */
static double distance(rig *a, rig *b, const char **worst)
{
    double most = 0;
    for (int t = 0; t < (int)a->g->tensors; t++) {
        const kolo_tensor *x = &a->g->tensor[t];
        if (x->producer < 0) continue;
        int64_t n = kolo_tensor_count(x);
        float *v = malloc((size_t)n * sizeof *v), *w = malloc((size_t)n * sizeof *w);
        rig_get(a, t, v);
        rig_get(b, t, w);
        double square = 0, apart = 0;
        for (int64_t i = 0; i < n; i++) {
            square += (double)v[i] * (double)v[i];
            apart += ((double)v[i] - (double)w[i]) * ((double)v[i] - (double)w[i]);
        }
        double far = isfinite(apart) && square > 0 ? sqrt(apart / square) : INFINITY;
        if (far > most) {
            most = far;
            *worst = x->name;
        }
        free(v);
        free(w);
    }
    return most;
}

static kolo_backend *backend[4]; /* of 1, 2, 3 threads */
static const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
static const char *const block_name[] = {"nchw", "nChw8c", "nChw16c", "nhwc"};

static void test_layout(int i, bool pixels)
{
    const char *which, *name = pixels ? "nhwc, layers of pixels" : block_name[i];
    for (int dtype = KOLO_F32; dtype <= KOLO_BF16; dtype++) {
        rig a = open_layers(backend[2], (enum kolo_dtype)dtype, blocks[i], ROWS, pixels),
            over = open_layers(backend[2], (enum kolo_dtype)dtype, blocks[i], ROWS, pixels);
        over.in_place = true;
        rig_run(&a);
        rig_run(&over);
        which = "";
        const char *type = kolo_dtype_name((enum kolo_dtype)dtype);
        ok(rig_same_bits(&a, &over, &which), "%s %s: in place, the same bits %s", name, type, which);
        ok(rig_padding_is_zero(&a), "%s %s: the padding is zero", name, type);
        for (int threads = 1; threads <= 3 && !pixels; threads += 2) {
            rig other = open_layers(backend[threads], (enum kolo_dtype)dtype, blocks[i], ROWS, pixels);
            rig_run(&other);
            which = "";
            ok(rig_same_bits(&a, &other, &which), "%s %s: with %d threads the same bits as with 2 %s", name,
               type, threads, which);
            rig_close(&other);
        }
        if (dtype == KOLO_BF16) {
            rig wide = open_layers(backend[2], KOLO_F32, blocks[i], ROWS, pixels);
            rig_run(&wide);
            which = "";
            double far = distance(&wide, &a, &which);
            ok(far > 1e-5 && far < 0.05, "%s: bf16 is near f32 (%.2g of the norm, %s)", name, far, which);
            rig_close(&wide);
        } else if (!pixels && i) {
            rig plain = open_layers(backend[2], KOLO_F32, 1, ROWS, pixels);
            rig_run(&plain);
            which = "";
            double far = distance(&plain, &a, &which);
            ok(far < 1e-6, "%s: as in nchw, draws too (%.2g of the norm, %s)", name, far, which);
            rig_close(&plain);
        }
        rig_close(&a);
        rig_close(&over);
    }
}

/* Rows 2 and 3 of the global batch, alone on a rank, are what they are among all. */
static void test_rows(void)
{
    rig all = open_layers(backend[2], KOLO_F32, 16, ROWS, false),
        some = open_layers(backend[1], KOLO_F32, 16, 2, false);
    int y = kolo_graph_find(all.g, "drop"), x = kolo_graph_find(all.g, "x"), other = 0;
    size_t row = all.layout[x].bytes / ROWS;
    memcpy(some.buffer[x], (char *)all.buffer[x] + 2 * row, 2 * row);
    some.step.row[0] = 2;
    rig_run(&all);
    rig_run(&some);
    ok(!memcmp(some.buffer[y], (char *)all.buffer[y] + 2 * row, 2 * row),
       "draws belong to rows of the global batch");
    some.step.row[0] = 0;
    for (int64_t step = 0; step < 3; step++) {
        all.step.step = step + 1;
        some.step.step = step;
        float *before = rig_raw(&all, y);
        rig_run(&all);
        other += memcmp(before, all.buffer[y], all.layout[y].bytes) != 0;
        free(before);
    }
    is_int(other, 3, "and change from step to step");
    rig_close(&all);
    rig_close(&some);
}

/* The share of rows and elements that is kept. */
static void test_shares(void)
{
    enum { N = 40000 };
    int rows = 0, elements = 0;
    for (int i = 0; i < N; i++) {
        rows += kolo_row_kept(5, i % 100, i / 100, 3, 0.3);
        elements += kolo_draw_keeps(kolo_draw4(5, 7, i / 4096, 3, i % 4096 / 4).v[i % 4], 0.3);
    }
    /* 5 deviations */
    ok(abs(rows - N * 7 / 10) < 500, "of rows, %.3f are kept where 0.7 are meant to be", (double)rows / N);
    ok(abs(elements - N * 7 / 10) < 500, "of elements, %.3f", (double)elements / N);
    ok(kolo_row_kept(1, 2, 3, 4, 0), "all are kept where none is to be dropped");
}

/* Against the library's functions in f64. */
static void test_activations(void)
{
    double worst[3] = {0, 0, 0};
    for (double at = -12; at < 12; at += 1.0 / 1024) {
        float x = (float)at;
        double wide = (double)x, gelu = wide * erfc(-wide / sqrt(2)) / 2, sigmoid = 1 / (1 + exp(-wide));
        worst[0] =
            fmax(worst[0], fabs((double)kolo_activation1(KOLO_GELU, 0, x) - gelu) / fmax(fabs(gelu), 0.01));
        worst[1] = fmax(worst[1], fabs((double)kolo_activation1(KOLO_SIGMOID, 0, x) - sigmoid) / sigmoid);
        worst[2] = fmax(worst[2], fabs((double)kolo_activation1(KOLO_TANH, 0, x) - tanh(wide)) /
                                      fmax(fabs(tanh(wide)), 1e-9));
    }
    ok(worst[0] < 6e-7, "GELU within %.2g of itself, or of 0.01", worst[0]);
    ok(worst[1] < 2.4e-7 && worst[2] < 2.4e-7,
       "sigmoid and tanh within two units of the last place (%.2g, %.2g)", worst[1], worst[2]);
    static const float odd[] = {NAN, INFINITY, -1e30f, 1e30f, 0.0f};
    bool nan = true, finite = true;
    for (int kind = KOLO_GELU; kind <= KOLO_TANH; kind++) {
        nan &= isnan(kolo_activation1((enum kolo_activation)kind, 0.1f, odd[0])) || kind == KOLO_HARD_SIGMOID;
        finite &= kolo_activation1((enum kolo_activation)kind, 0.1f, odd[1]) >= 1;
        for (int i = 2; i < 5; i++)
            finite &= isfinite(kolo_activation_grad1((enum kolo_activation)kind, 0.1f, 1, odd[i]));
    }
    ok(nan, "a NaN stays one");
    ok(finite, "infinity gives no NaN, large numbers have finite slopes");
}

int main(void)
{
    for (int t = 1; t <= 3; t++) backend[t] = rig_backend(t);
    for (int i = 0; i < 4; i++) test_layout(i, false);
    test_layout(3, true);
    test_rows();
    test_shares();
    test_activations();
    for (int t = 1; t <= 3; t++) kolo_backend_destroy(&backend[t]);
    return done_testing();
}
