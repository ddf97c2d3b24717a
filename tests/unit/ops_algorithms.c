/* The error of every algorithm of a convolution, against sums in f64: an algorithm may be chosen by a clock
 * only if it is right. */
#include "golden_file.h"
#include "ops/cpu/conv_direct.h"
#include "ops/cpu/conv_pointwise.h"
#include "ops/cpu/conv_winograd.h"
#include "ops/cpu/dnnl.h"
#include "ops_rig.h"

typedef struct shape {
    int64_t rows, in, out, size, kernel, pad, block, stride;
} shape;

static int64_t side_of_y(const shape *s) { return (s->size + 2 * s->pad - s->kernel) / s->stride + 1; }

/* f64 results: y, dx, dw */
static void reference(const shape *s, const float *x, const float *w, const float *dy, double *y, double *dx,
                      double *dw)
{
    int64_t n = s->size, m = side_of_y(s), k = s->kernel;
    memset(y, 0, (size_t)(s->rows * s->out * m * m) * sizeof *y);
    memset(dx, 0, (size_t)(s->rows * s->in * n * n) * sizeof *dx);
    memset(dw, 0, (size_t)(s->out * s->in * k * k) * sizeof *dw);
    for (int64_t b = 0; b < s->rows; b++)
        for (int64_t o = 0; o < s->out; o++)
            for (int64_t c = 0; c < s->in; c++)
                for (int64_t i = 0; i < m * m; i++)
                    for (int64_t t = 0; t < k * k; t++) {
                        int64_t h = i / m * s->stride + t / k - s->pad,
                                v = i % m * s->stride + t % k - s->pad;
                        if (h < 0 || v < 0 || h >= n || v >= n) continue;
                        int64_t at_x = (b * s->in + c) * n * n + h * n + v,
                                at_y = (b * s->out + o) * m * m + i, at_w = (o * s->in + c) * k * k + t;
                        y[at_y] += (double)x[at_x] * (double)w[at_w];
                        dx[at_x] += (double)dy[at_y] * (double)w[at_w];
                        dw[at_w] += (double)dy[at_y] * (double)x[at_x];
                    }
}

static double error_of(rig *r, int t, const double *want)
{
    int64_t n = kolo_tensor_count(&r->g->tensor[t]);
    float *v = malloc((size_t)n * sizeof *v);
    double square = 0, apart = 0;
    rig_get(r, t, v);
    for (int64_t i = 0; i < n; i++) {
        square += want[i] * want[i];
        apart += ((double)v[i] - want[i]) * ((double)v[i] - want[i]);
    }
    free(v);
    return sqrt(apart / square);
}

/* A backend that is told to take `algorithm` for this shape, in the form in which rank 0 tells the others. */
static kolo_backend *told(const shape *s, const char *algorithm)
{
    static const char *const op[] = {"conv", "conv_grad_data", "conv_grad_weight"};
    char text[1024] = "";
    for (int i = 0; i < 3; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%s f32 x %ld %ld %ld %ld w %ld %ld %ld %ld s %ld %ld p %ld %ld d 1 1 g 1 b %ld %ld = %s\n",
                 op[i], (long)s->rows, (long)s->in, (long)s->size, (long)s->size, (long)s->out, (long)s->in,
                 (long)s->kernel, (long)s->kernel, (long)s->stride, (long)s->stride, (long)s->pad,
                 (long)s->pad, (long)(s->block == RIG_NHWC ? s->in : s->block),
                 (long)(s->block == RIG_NHWC ? s->out : s->block), algorithm);
    kolo_backend_config config = {.threads = 2, .choices = text};
    kolo_backend *b = NULL;
    rig_check(kolo_backend_create(&b, "cpu", &config), "backend");
    return b;
}

static void fill(rig *r, int t, double b, float *keep)
{
    golden_fill(r->g->tensor[t].name, 5, 0, b, keep, kolo_tensor_count(&r->g->tensor[t]));
    rig_set(r, t, keep);
}

static void check(const shape *s, const char *algorithm, double allowed)
{
    kolo_backend *backend = told(s, algorithm);
    rig r = rig_open(backend, KOLO_F32, s->block);
    kolo_graph *g = r.g;
    kolo_conv_spec spec = {.out = s->out,
                           .kernel = {s->kernel, s->kernel},
                           .stride = {s->stride, s->stride},
                           .pad = {s->pad, s->pad},
                           .weight = rig_init};
    int x = rig_input(&r, "x", 4, (const int64_t[]){s->rows, s->in, s->size, s->size}),
        y = kolo_conv(g, "c", x, &spec);
    int w = kolo_graph_find(g, "c.weight"), dy = rig_backward(&r, y);
    rig_layout(&r);
    int64_t nx = kolo_tensor_count(&g->tensor[x]), nw = kolo_tensor_count(&g->tensor[w]),
            ny = kolo_tensor_count(&g->tensor[y]);
    float *fx = malloc((size_t)nx * 4), *fw = malloc((size_t)nw * 4), *fy = malloc((size_t)ny * 4);
    double *wx = malloc((size_t)nx * 8), *ww = malloc((size_t)nw * 8), *wy = malloc((size_t)ny * 8);
    fill(&r, x, golden_unit, fx);
    fill(&r, w, golden_unit / sqrt((double)(s->in * s->kernel * s->kernel)), fw);
    fill(&r, dy, golden_unit, fy);
    rig_run(&r);
    reference(s, fx, fw, fy, wy, wx, ww);
    char names[400] = "";
    for (int i = 0; i < 3; i++) {
        kolo_kernel *k;
        size_t bytes;
        rig_check(kolo_backend_prepare(backend, g, i, r.layout, &k, &bytes), "prepare");
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "",
                 kolo_kernel_name(k));
    }
    double ey = error_of(&r, y, wy), ex = error_of(&r, g->grad[x], wx), ew = error_of(&r, g->grad[w], ww);
    ok(ey < allowed && ex < allowed && ew < allowed,
       "%ldx%ld / %ld %ld -> %ld at %ld, %s: y %.2g, dx %.2g, dw %.2g of f64's norm (%s)", (long)s->kernel,
       (long)s->kernel, (long)s->stride, (long)s->in, (long)s->out, (long)s->size, algorithm, ey, ex, ew,
       names);
    free(fx), free(fw), free(fy), free(wx), free(ww), free(wy);
    rig_close(&r);
    kolo_backend_destroy(&backend);
}

/* 64 -> 64, 3x3, of 128 x 128 pixels, as oneDNN has it: only described, so no memory is taken. */
static int make(kolo_dnnl *d, int64_t rows, bool winograd)
{
    const int64_t map[] = {rows, 64, 128, 128}, weight[] = {64, 64, 3, 3};
    kolo_dnnl_primitive *p = NULL;
    kolo_dnnl_conv c = {.winograd = winograd, .stride = {1, 1}, .pad = {1, 1}, .dilation = {1, 1}};
    c.x = c.y = kolo_dnnl_map(d, KOLO_F32, map, 16, false);
    c.w = kolo_dnnl_any(d, KOLO_F32, 4, weight);
    const int rc = c.x && c.w ? kolo_dnnl_make_conv(d, &c, &p) : KOLO_ECONFIG;
    kolo_dnnl_destroy(&p);
    return rc;
}

/* What oneDNN would compute these rows of 16 channels of 256 x 256 pixels with: 2048 are 2^31 numbers. */
static const char *implementation(kolo_dnnl *d, int64_t rows, int pass, int64_t kernel, enum kolo_dtype dtype,
                                  int64_t block, bool winograd)
{
    static char name[64];
    const int64_t map[] = {rows, 16, 256, 256}, weight[] = {16, 16, kernel, kernel};
    kolo_dnnl_primitive *p = NULL;
    kolo_dnnl_conv c = {.pass = (enum kolo_dnnl_pass)pass,
                        .winograd = winograd,
                        .stride = {1, 1},
                        .pad = {kernel / 2, kernel / 2},
                        .dilation = {1, 1}};
    c.x = c.y = kolo_dnnl_map(d, dtype, map, block, block == RIG_NHWC);
    c.w = kolo_dnnl_any(d, pass == KOLO_DNNL_WEIGHT ? KOLO_F32 : dtype, 4, weight);
    const int rc = c.x && c.w ? kolo_dnnl_make_conv(d, &c, &p) : KOLO_ECONFIG;
    snprintf(name, sizeof name, "%s", rc == 0 ? kolo_dnnl_name(p) : rc > 0 ? "none" : "error");
    kolo_dnnl_destroy(&p);
    return name;
}

static bool counts_in_32_bits(const char *name)
{
    return !strncmp(name, "jit_wino", 8) || !strncmp(name, "brg", 3);
}

/* Those that end in a segmentation fault with 2^31 numbers or more, of which these CPUs may have some. */
static void check_overruns(kolo_dnnl *d)
{
    int small = 0, large = 0, none = 0;
    for (int i = 0; i < 3 * 2 * 2 * 3; i++) {
        const int pass = i % 3, kernel = i / 3 % 2 ? 1 : 3,
                  kind = i / 12; /* f32 Winograd, f32 and bf16 with all channels of a pixel together */
        const enum kolo_dtype dtype = kind == 2 ? KOLO_BF16 : KOLO_F32;
        const int64_t block = kind ? RIG_NHWC : 16;
        const bool more = i / 6 % 2;
        const char *name = implementation(d, more ? 2048 : 2047, pass, kernel, dtype, block, kind == 0);
        if (more)
            large += counts_in_32_bits(name),
                none += kind && !strcmp(name, "none") && (dtype == KOLO_F32 || kolo_dnnl_has_bf16());
        else small += counts_in_32_bits(name);
    }
    diag("%d of 18 convolutions of fewer than 2^31 numbers are by Winograd or batch-reduce products", small);
    ok(large == 0, "tensors of 2^31 numbers: none of them is computed by what counts in 32 bits");
    ok(none == 0, "and each has a direct algorithm");
}

/* A clock runs nothing in memory that the job has not been given: 128 MiB of tensors where it has 64. */
static void check_trials(void)
{
    setenv("SLURM_MEM_PER_NODE", "64", 1);
    kolo_backend_config config = {.threads = 2};
    kolo_backend *backend = NULL;
    kolo_kernel *k = NULL;
    size_t bytes, before = kolo_memory_peak();
    rig_check(kolo_backend_create(&backend, "cpu", &config), "backend");
    rig r = rig_open(backend, KOLO_F32, 16);
    kolo_conv_spec spec = {.out = 16, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = rig_init};
    kolo_conv(r.g, "c", rig_input(&r, "x", 4, (const int64_t[]){16, 16, 256, 256}), &spec);
    kolo_layout *layout = kolo_alloc((size_t)r.g->tensors * sizeof *layout);
    int rc = layout ? kolo_backend_layout(backend, r.g, NULL, NULL, layout) : KOLO_ECONFIG;
    if (rc == 0) rc = kolo_backend_prepare(backend, r.g, 0, layout, &k, &bytes);
    ok(rc == 0, "a convolution of 128 MiB in a job that has 64 is prepared%s%s", rc ? ": " : "",
       rc ? kolo_error_text() : "");
    ok(kolo_memory_peak() < before + ((size_t)32 << 20), "and no algorithm was tried in that memory");
    free(layout);
    kolo_graph_destroy(&r.g);
    kolo_backend_destroy(&backend);
    unsetenv("SLURM_MEM_PER_NODE");
}

/* The gradient of x in two parts of the batch, the second with the weight that the first has transformed, is
 * that of the whole batch, by any number of threads. */
static void check_arranged(void)
{
    enum { ROWS = 4, CHANNELS = 32, SIDE = 9, MAP = CHANNELS * SIDE * SIDE };
    static float w[CHANNELS * CHANNELS * 9], dy[ROWS * MAP], whole[ROWS * MAP], part[ROWS * MAP];
    kolo_view v = {ROWS, CHANNELS, SIDE, SIDE, CHANNELS / 16, 16, SIDE * SIDE, false};
    golden_fill("w", 5, 0, golden_unit, w, (int64_t)(sizeof w / sizeof *w));
    golden_fill("dy", 5, 0, golden_unit, dy, ROWS * MAP);
    kolo_conv_winograd s = {v, v, {1, 1}, 3}, half = {v, v, {1, 1}, 2};
    half.x.rows = half.y.rows = ROWS / 2;
    void *space = malloc(kolo_conv_winograd_bytes(&s, KOLO_DNNL_DATA));
    kolo_conv_winograd_data(&s, whole, w, dy, space, false);
    free(space);
    space = malloc(kolo_conv_winograd_bytes(&half, KOLO_DNNL_DATA));
    for (int i = 0; i < 2; i++)
        kolo_conv_winograd_data(&half, part + i * ROWS / 2 * MAP, w, dy + i * ROWS / 2 * MAP, space, i > 0);
    free(space);
    ok(whole[0] != 0 && !memcmp(whole, part, sizeof whole),
       "own winograd, gradient of x: two parts of a batch have the bytes of the whole");
}

/* What is added while a product is made has the bytes of what is added afterwards, by any number of
 * threads. */
static void check_pointwise(void)
{
    enum { ROWS = 3, IN = 32, OUT = 64, SIDE = 5, PIXELS = SIDE * SIDE, MAP = ROWS * IN * PIXELS };
    static float w[IN * OUT], x[MAP], y[2 * MAP], plain[2 * MAP], dw[2][IN * OUT], more[OUT], sum[OUT],
        space[IN * OUT];
    const kolo_view in = {ROWS, IN, SIDE, SIDE, IN / 16, 16, PIXELS, false};
    const kolo_view out = {ROWS, OUT, SIDE, SIDE, OUT / 16, 16, PIXELS, false};
    const kolo_conv_pointwise one = {in, out, 1}, three = {in, out, 3};
    bool added = true, summed = true;
    golden_fill("w", 5, 0, golden_unit, w, IN * OUT);
    golden_fill("x", 5, 0, golden_unit, x, MAP);
    golden_fill("bias", 5, 0, golden_unit, more, OUT);
    kolo_conv_pointwise_forward(&one, x, w, NULL, plain);
    kolo_conv_pointwise_forward(&three, x, w, more, y);
    for (int i = 0; i < 2 * MAP; i++) {
        const int channel = i / PIXELS / 16 % (OUT / 16) * 16 + i % 16;
        added = added && y[i] == plain[i] + more[channel];
    }
    ok(added, "own pointwise: a bias is added to every channel");
    kolo_conv_pointwise_weight(&one, x, dw[0], NULL, y);
    kolo_conv_pointwise_weight(&three, x, dw[1], sum, y);
    for (int c = 0; c < OUT; c++) {
        double want = 0;
        for (int i = 0; i < 2 * MAP; i++)
            if (i / PIXELS / 16 % (OUT / 16) * 16 + i % 16 == c) want += (double)y[i];
        summed = summed && fabs((double)sum[c] - want) < 1e-5 * (1 + fabs(want));
    }
    ok(!memcmp(dw[0], dw[1], sizeof *dw) && summed, "its gradients, by one thread and by three");
    kolo_conv_pointwise_data(&one, plain, w, y, NULL, space, false);
    for (int i = 0; i < MAP; i++) plain[i] += x[i];
    kolo_conv_pointwise_data(&three, x, w, y, x, space, true);
    ok(!memcmp(plain, x, sizeof x), "and a gradient of x is added to what stands there");
}

/* Stride 2: a bias, what is added to the gradient of x, and sums over the pixels of dy; by one thread and by
 * three, which have the same bytes. */
static void check_direct(void)
{
    enum { ROWS = 3, IN = 32, OUT = 64, SIDE = 15, HALF = 8, MAP = ROWS * IN * SIDE * SIDE };
    enum { RESULTS = ROWS * OUT * HALF * HALF, WEIGHTS = IN * OUT * 9 };
    static float w[WEIGHTS], x[MAP], y[RESULTS], plain[RESULTS], dx[MAP], dw[2][WEIGHTS], more[OUT], sum[OUT];
    const kolo_view in = {ROWS, IN, SIDE, SIDE, IN / 16, 16, SIDE * SIDE, false};
    const kolo_view out = {ROWS, OUT, HALF, HALF, OUT / 16, 16, HALF * HALF, false};
    const kolo_conv_direct one = {in, out, {3, 3}, 2, {1, 1}, 1}, three = {in, out, {3, 3}, 2, {1, 1}, 3};
    bool added = true, summed = true;
    size_t bytes = 0;
    for (int pass = KOLO_DNNL_FORWARD; pass <= KOLO_DNNL_WEIGHT; pass++) {
        const size_t needed = kolo_conv_direct_bytes(&three, (enum kolo_dnnl_pass)pass);
        bytes = needed > bytes ? needed : bytes;
    }
    void *space = malloc(bytes);
    golden_fill("w", 5, 0, golden_unit, w, WEIGHTS);
    golden_fill("x", 5, 0, golden_unit, x, MAP);
    golden_fill("bias", 5, 0, golden_unit, more, OUT);
    kolo_conv_direct_forward(&one, x, w, NULL, plain, space);
    kolo_conv_direct_forward(&three, x, w, more, y, space);
    for (int i = 0; i < RESULTS; i++) {
        const int channel = i / (HALF * HALF) / 16 % (OUT / 16) * 16 + i % 16;
        added = added && y[i] == plain[i] + more[channel];
    }
    ok(added, "own direct: a bias is added to every channel");
    kolo_conv_direct_weight(&one, x, dw[0], NULL, y, space);
    kolo_conv_direct_weight(&three, x, dw[1], sum, y, space);
    for (int c = 0; c < OUT; c++) {
        double want = 0;
        for (int i = 0; i < RESULTS; i++)
            if (i / (HALF * HALF) / 16 % (OUT / 16) * 16 + i % 16 == c) want += (double)y[i];
        summed = summed && fabs((double)sum[c] - want) < 1e-5 * (1 + fabs(want));
    }
    ok(!memcmp(dw[0], dw[1], sizeof *dw) && summed, "its gradients, by one thread and by three");
    kolo_conv_direct_data(&three, dx, w, y, NULL, space, false);
    for (int i = 0; i < MAP; i++) dx[i] += x[i];
    kolo_conv_direct_data(&three, x, w, y, x, space, true);
    ok(!memcmp(dx, x, sizeof x), "and a gradient of x is added to what stands there");
    free(space);
}

static void check_limits(void)
{
    kolo_dnnl *d = NULL;
    rig_check(kolo_dnnl_open(&d), "oneDNN");
    ok(make(d, 16384, false) == 0 && make(d, 16384, true) >= 0,
       "where Winograd's code for 64 GiB cannot be generated there is none, but a direct one");
    ok(make(d, 32767, false) == 0, "2^31 pixels of 16 channels, less some, can be counted");
    ok(make(d, 32768, false) == KOLO_ECONFIG && strstr(kolo_error_text(), "32768 x 64 x 128 x 128") &&
           strstr(kolo_error_text(), "micro_batch"),
       "as many are refused, with what they are and the cure");
    check_overruns(d);
    kolo_dnnl_close(&d);
}

int main(void)
{
    const shape wide = {2, 64, 64, 28, 3, 1, 16, 1}, few = {9, 6, 16, 14, 5, 2, 1, 1},
                one = {9, 1, 6, 28, 5, 2, 1, 1};
    const shape bottleneck = {2, 64, 256, 7, 1, 0, 16, 1}, deep = {3, 544, 96, 6, 1, 0, 16, 1};
    const shape odd = {3, 48, 80, 13, 3, 1, 16, 1}, whole_pixels = {2, 32, 48, 7, 3, 1, RIG_NHWC, 1};
    const shape many = {2, 160, 288, 7, 3, 1, 16, 1};  /* channels: more than a block of weights */
    const shape images = {9, 32, 48, 14, 3, 1, 16, 1}; /* maps of unlike tiles */
    const shape two = {2, 64, 64, 28, 3, 1, 16, 2}, two_odd = {3, 160, 96, 15, 3, 1, 16, 2};
    const shape two_deep = {5, 288, 352, 14, 3, 1, 16, 2}, two_small = {3, 32, 64, 7, 3, 1, 16, 2};
    const shape two_by_two = {3, 160, 96, 15, 2, 0, 16, 2};
    check_trials(); /* before anything else takes memory: it goes by the peak */
    check(&wide, "direct", 1e-6);
    check(&wide, "winograd", 1e-5);
    check(&wide, "own winograd", 1e-5);
    check(&odd, "own winograd", 1e-5);
    check(&whole_pixels, "own winograd", 1e-5);
    check(&many, "own winograd", 1e-5);
    check(&images, "own winograd", 1e-5);
    check(&bottleneck, "own pointwise", 1e-6);
    check(&deep, "own pointwise", 1e-6);
    check(&two, "own direct", 1e-6);
    check(&two_odd, "own direct", 1e-6);
    check(&two_deep, "own direct", 1e-6);
    check(&two_small, "own direct", 1e-6);
    check(&two_by_two, "own direct", 1e-6);
    check(&few, "small", 1e-6);
    check(&few, "direct", 1e-6);
    check(&one, "small", 1e-6);
    check_arranged();
    check_pointwise();
    check_direct();
    check_limits();
    return done_testing();
}
