/* Convolutions and linear layers of the CUDA backend against the CPU's, which computes in f32 from values
 * that the GPU's type holds: outputs, all gradients, padding; and the choices that the clock makes. */
#include "cuda_rig.h"
#include "ops_rig.h"
#include "standin/ask.h"

static kolo_backend *cpu, *gpu;

/* A layer, x (rows, in, height, width) or, without a height, (rows, in). */
typedef struct layer {
    const char *what;
    int64_t rows, in, height, width, out, kernel[2], stride[2], pad[2], groups;
    bool bias;
} layer;

static const layer layers[] = {
    {"3 x 3", 2, 16, 9, 9, 24, {3, 3}, {1, 1}, {1, 1}, 1, false},
    {"3 x 3, stride 2, with bias", 3, 8, 10, 7, 16, {3, 3}, {2, 2}, {1, 1}, 1, true},
    {"1 x 1, stride 2", 2, 24, 8, 8, 8, {1, 1}, {2, 2}, {0, 0}, 1, false},
    {"7 x 7 of 3 channels", 2, 3, 20, 20, 8, {7, 7}, {2, 2}, {3, 3}, 1, false},
    {"channels 5 to 11, with bias", 2, 5, 6, 6, 11, {3, 3}, {1, 1}, {0, 0}, 1, true},
    {"oblong", 2, 8, 7, 11, 8, {1, 5}, {1, 2}, {0, 2}, 1, true},
    {"two groups", 2, 16, 6, 6, 32, {3, 3}, {1, 1}, {1, 1}, 2, true},
    {"5 x 5 of 1 channel", 8, 1, 28, 28, 6, {5, 5}, {1, 1}, {2, 2}, 1, true},
    {"depthwise", 2, 16, 6, 6, 16, {3, 3}, {1, 1}, {1, 1}, 16, false},
    {"depthwise, stride 2", 2, 72, 19, 21, 72, {3, 3}, {2, 2}, {1, 1}, 72, true},
    {"depthwise, 5 x 5", 2, 16, 11, 9, 16, {5, 5}, {1, 1}, {2, 2}, 16, false},
    {"depthwise, 5 x 5, stride 2", 1, 8, 17, 24, 8, {5, 5}, {2, 2}, {2, 2}, 8, false},
    {"depthwise, 7 x 7", 2, 80, 13, 18, 80, {7, 7}, {1, 1}, {3, 3}, 80, true},
    {"depthwise, 7 x 7, stride 2", 1, 16, 15, 14, 16, {7, 7}, {2, 2}, {3, 3}, 16, false},
    {"depthwise, 4 x 2", 2, 16, 9, 10, 16, {4, 2}, {1, 2}, {1, 0}, 16, false},
    {"linear", 8, 64, 0, 0, 16, {0}, {0}, {0}, 0, true},
    {"linear without bias", 5, 24, 0, 0, 40, {0}, {0}, {0}, 0, false},
    {"linear, odd", 3, 33, 0, 0, 7, {0}, {0}, {0}, 0, true},
    {"linear to 1", 9, 17, 0, 0, 1, {0}, {0}, {0}, 0, true},
};
#define LAYERS (sizeof layers / sizeof *layers)

static rig open_layer(kolo_backend *b, enum kolo_dtype dtype, const layer *l)
{
    rig r = rig_open(b, dtype, b == cpu ? 8 : RIG_OWN);
    const int64_t dim[4] = {l->rows, l->in, l->height, l->width};
    int x = rig_input(&r, "x", l->height ? 4 : 2, dim), y;
    if (l->height) {
        kolo_conv_spec s = {
            .out = l->out, .groups = l->groups, .bias = l->bias, .weight = rig_init, .bias_init = rig_init};
        memcpy(s.kernel, l->kernel, sizeof s.kernel);
        memcpy(s.stride, l->stride, sizeof s.stride);
        memcpy(s.pad, l->pad, sizeof s.pad);
        y = kolo_conv(r.g, "l", x, &s);
    } else y = kolo_linear(r.g, "l", x, l->out, l->bias, rig_init, rig_init);
    rig_check(y, l->what);
    rig_backward(&r, y);
    rig_layout(&r);
    return r;
}

static float rounded(float x, enum kolo_dtype t)
{
    return t == KOLO_BF16  ? kolo_from_bf16(kolo_to_bf16(x))
           : t == KOLO_F16 ? kolo_from_f16(kolo_to_f16(x))
                           : x;
}

static void fill(rig *a, rig *b, enum kolo_dtype dtype)
{
    uint64_t state = 5;
    for (int t = 0; t < (int)a->g->tensors; t++) {
        if (a->g->tensor[t].producer >= 0) continue;
        int64_t n = kolo_tensor_count(&a->g->tensor[t]);
        float *v = malloc((size_t)n * sizeof *v);
        for (int64_t i = 0; i < n; i++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            v[i] = rounded((float)(state >> 40) * 0x1p-23f - 1, dtype);
        }
        rig_set(a, t, v);
        rig_set(b, t, v);
        free(v);
    }
}

/* Distance of a tensor on both sides over the l2 norm of the first. */
static double distance(rig *a, rig *b, int t)
{
    int64_t n = kolo_tensor_count(&a->g->tensor[t]);
    float *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);
    double far = 0, norm = 0;
    rig_get(a, t, want);
    rig_get(b, t, got);
    for (int64_t i = 0; i < n; i++) {
        far += pow((double)want[i] - (double)got[i], 2);
        norm += pow((double)want[i], 2);
    }
    free(want);
    free(got);
    return sqrt(far / norm);
}

/* Whether what lies between the channels of a weight's gradient is zero: no more numbers than
 * its own differ from 0. */
static bool gradient_padding_is_zero(rig *r, int t)
{
    const int64_t n = kolo_tensor_count(&r->g->tensor[t]),
                  all = (int64_t)(r->layout[t].bytes / sizeof(float));
    float *own = malloc((size_t)n * sizeof *own), *raw = rig_raw(r, t);
    int64_t difference = 0;
    rig_get(r, t, own);
    for (int64_t i = 0; i < all; i++) difference += raw[i] != 0;
    for (int64_t i = 0; i < n; i++) difference -= own[i] != 0;
    free(own);
    free(raw);
    return difference == 0;
}

static void test_layer(const layer *l, enum kolo_dtype dtype, const char *name, double allowed)
{
    rig a = open_layer(cpu, KOLO_F32, l), b = open_layer(gpu, dtype, l);
    bool padded = true;
    double worst = 0;
    fill(&a, &b, dtype);
    rig_run(&a);
    rig_run(&b);
    for (int t = 0; t < (int)a.g->tensors; t++) {
        const kolo_tensor *x = &a.g->tensor[t];
        if (x->producer < 0) continue;
        double far = distance(&a, &b, t);
        if (!(far <= allowed)) diag("%s: %g from the CPU's, allowed %g", x->name, far, allowed);
        if (!(far <= worst)) worst = far;
        if (x->role == KOLO_ROLE_GRADIENT) padded &= gradient_padding_is_zero(&b, t);
    }
    ok(worst <= allowed, "%s, %s: output and gradients are the CPU's (%.1e)", l->what, name, worst);
    ok(padded && rig_padding_is_zero(&b), "%s, %s: padding is zero", l->what, name);
    rig_close(&a);
    rig_close(&b);
}

/* ---- choices ------------------------------------------------------------------------------------------- */

/* Prepares every layer, and runs it; the kernels' names, one a line. */
static char *names_of(const kolo_backend_config *config, char **choices)
{
    kolo_backend *b = NULL;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    rig_check(kolo_backend_create(&b, "cuda", config), "backend");
    for (size_t i = 0; i < LAYERS; i++) {
        rig r = open_layer(b, KOLO_BF16, &layers[i]);
        for (int n = 0; n < (int)r.g->nodes; n++) {
            kolo_kernel *k;
            size_t bytes;
            rig_check(kolo_backend_prepare(b, r.g, n, r.layout, &k, &bytes), "prepare");
            fprintf(f, "%s\n", kolo_kernel_name(k));
        }
        rig_close(&r);
    }
    fclose(f);
    *choices = kolo_backend_choices(b);
    kolo_backend_destroy(&b);
    return text;
}

static void test_choices(void)
{
    kolo_backend_config config = {.threads = 1};
    char *made, *used, *none, *names = names_of(&config, &made);
    config.choices = made;
    char *again = names_of(&config, &used);
    is_text(again, names, "with the choices of one process another prepares the same kernels");
    is_text(used, made, "and hands on the same choices");
    config = (kolo_backend_config){.threads = 1, .deterministic = true};
    char *ruled = names_of(&config, &none), *ruled_again;
    is_text(none, "", "deterministic=true: nothing is chosen by a clock");
    free(none);
    ruled_again = names_of(&config, &none);
    is_text(ruled_again, ruled, "and the rule says the same every time");
    free(ruled_again), free(ruled), free(none), free(again), free(used), free(names), free(made);
}

/* ---- the clock ----------------------------------------------------------------------------------------- */

static const layer timed = {"3 x 3 to be timed", 2, 32, 12, 12, 32, {3, 3}, {1, 1}, {1, 1}, 1, false};

typedef struct trials {
    char name[160]; /* of the forward kernel */
    int64_t runs;   /* of all three passes */
} trials;

static trials prepare_timed(const char *cache, double seconds)
{
    const kolo_backend_config config = {.threads = 1, .cache = cache, .trial_seconds = seconds};
    kolo_backend *b = NULL;
    trials t = {.name = ""};
    rig_check(kolo_backend_create(&b, "cuda", &config), "backend");
    rig r = open_layer(b, KOLO_BF16, &timed);
    const int64_t runs = ask_count("cudnnBackendExecute");
    for (int n = 0; n < (int)r.g->nodes; n++) {
        kolo_kernel *k;
        size_t bytes;
        rig_check(kolo_backend_prepare(b, r.g, n, r.layout, &k, &bytes), "prepare");
        if (r.g->node[n].op == KOLO_OP_conv) snprintf(t.name, sizeof t.name, "%s", kolo_kernel_name(k));
    }
    t.runs = ask_count("cudnnBackendExecute") - runs;
    rig_close(&r);
    kolo_backend_destroy(&b);
    return t;
}

/* The stand-in proposes what is fastest (dnn_conv_seconds) behind more than 12 others, 6 of them settings of
 * its engine. It has all the time that it takes: emulated, and in a sanitizer, a run is no matter of ms. */
static void test_clock(void)
{
    char folder[] = "/tmp/kolo-clock-XXXXXX", cache[64];
    if (!mkdtemp(folder)) return;
    snprintf(cache, sizeof cache, "%s/choices", folder);
    trials all = prepare_timed(cache, 1e6), again = prepare_timed(cache, 0),
           hasty = prepare_timed(NULL, 1e-9);
    is_text(all.name, "cuDNN 0 2:3 17:0, tensor cores",
            "the clock finds the fastest of all that is proposed");
    ok(all.runs >= 3 * 2 * 12, "every admissible proposal is run (%ld runs)", (long)all.runs);
    is_text(again.name, all.name, "a second run takes what was kept");
    is_int(again.runs, 0, "and times nothing");
    ok(hasty.runs > 0 && hasty.runs <= 3 * 30 && hasty.runs < all.runs / 3,
       "without time for more only the first admissible one is run (%ld runs)", (long)hasty.runs);
    remove(cache);
    rmdir(folder);
}

/* A candidate that wants more scratch than there is: the others go on in what they have. */
static void test_scratch(void)
{
    const kolo_backend_config config = {.threads = 1};
    kolo_backend *b = NULL;
    char fail[64];
    void *memory = NULL, *more = NULL;
    int (*need)(kolo_backend *, size_t, void **) = NULL;
    void (*end)(kolo_backend *) = NULL;
    *(void **)&need = ask_symbol("kolo_cuda_trial_scratch");
    *(void **)&end = ask_symbol("kolo_cuda_trial_end");
    rig_check(kolo_backend_create(&b, "cuda", &config), "backend");
    const int64_t alive = ask_count("alive");
    rig_check(need(b, 4096, &memory), "scratch");
    snprintf(fail, sizeof fail, "cudaMalloc:%ld", (long)ask_count("cudaMalloc") + 1);
    setenv("STANDIN_FAIL", fail, 1);
    is_int(need(b, 8192, &more), KOLO_ENOMEM, "scratch of twice the size is not to be had");
    unsetenv("STANDIN_FAIL");
    ok(kolo_backend_fill(b, KOLO_LANE_COMPUTE, memory, 0, 4096) == 0 && kolo_backend_finish(b) == 0,
       "what other candidates work in is still there");
    ok(need(b, 8192, &more) == 0 && kolo_backend_fill(b, KOLO_LANE_COMPUTE, more, 0, 8192) == 0,
       "and grows when there is more");
    end(b);
    is_int(ask_count("alive"), alive, "nothing is left when a choice is made");
    kolo_backend_destroy(&b);
}

/* A convolution with its sums, prepared with these choices (NULL: by the clock); what is
 * chosen, and its kernel. */
static void prepare_summed(enum kolo_dtype dtype, const char *given, char **choices, char name[160])
{
    const kolo_backend_config config = {.threads = 1, .choices = given};
    kolo_backend *b = NULL;
    size_t bytes;
    kolo_kernel *k;
    rig_check(kolo_backend_create(&b, "cuda", &config), "backend");
    rig r = rig_open(b, dtype, RIG_OWN);
    kolo_conv_spec s = {.out = 32, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = rig_init};
    int y = kolo_conv(r.g, "c", rig_input(&r, "x", 4, (const int64_t[]){2, 32, 12, 12}), &s);
    rig_check(kolo_batch_norm(r.g, "n", y, 1e-5, 0.1, 1), "norm");
    rig_check(kolo_graph_fuse_conv(r.g, false), "fuse");
    rig_layout(&r);
    rig_check(kolo_backend_prepare(b, r.g, 0, r.layout, &k, &bytes), "prepare");
    snprintf(name, 160, "%s", kolo_kernel_name(k));
    *choices = kolo_backend_choices(b);
    rig_close(&r);
    kolo_backend_destroy(&b);
}

/* With its sums or without is a choice like any other: kept, and handed to other ranks. */
static void test_sums_choice(enum kolo_dtype dtype)
{
    static const char key[] = "conv_stats %s n 2 x 32 12 12 y 32 12 12 k 3 3 s 1 1 p 1 1 d 1 1 g 1 not 4 = ";
    char line[200], split[220], name[160], again[160], *made, *used;
    snprintf(line, sizeof line, key, kolo_dtype_name(dtype));
    prepare_summed(dtype, NULL, &made, name);
    ok(strstr(made, line) && strstr(name, "with sums"),
       "%s: the clock takes sums that are formed with y (%s)", kolo_dtype_name(dtype), name);
    if (!strstr(made, line)) diag("%s", made);
    prepare_summed(dtype, made, &used, again);
    is_text(again, name, "%s: and another process the same", kolo_dtype_name(dtype));
    free(used);
    snprintf(split, sizeof split, "%ssplit\n", line);
    prepare_summed(dtype, split, &used, again);
    ok(!strstr(again, "with sums"), "%s: where split was chosen it is split (%s)", kolo_dtype_name(dtype),
       again);
    free(used);
    free(made);
}

/* The gradients of relu(norm(x)) behind a convolution, prepared with these choices. */
static void prepare_masked(const char *given, char **choices, char name[160])
{
    const kolo_backend_config config = {.threads = 1, .choices = given};
    kolo_backend *b = NULL;
    size_t bytes;
    kolo_kernel *k;
    rig_check(kolo_backend_create(&b, "cuda", &config), "backend");
    rig r = rig_open(b, KOLO_F16, RIG_OWN);
    kolo_conv_spec s = {.out = 32, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = rig_init};
    int x = rig_input(&r, "x", 4, (const int64_t[]){2, 32, 12, 12});
    x = kolo_relu(r.g, "r", kolo_batch_norm(r.g, "n", kolo_conv(r.g, "a", x, &s), 1e-5, 0.1, 1));
    int y = kolo_conv(r.g, "b", x, &s);
    rig_check(y, "layers");
    rig_check(kolo_graph_fuse(r.g), "fuse");
    rig_backward(&r, kolo_graph_find(r.g, "b"));
    free(r.g->grad);
    r.g->grad = NULL;
    rig_check(kolo_graph_fuse_grad(r.g), "fuse gradients");
    rig_layout(&r);
    for (int i = 0; i < (int)r.g->nodes; i++) {
        if (r.g->node[i].op != KOLO_OP_conv_grad_norm) continue;
        rig_check(kolo_backend_prepare(b, r.g, i, r.layout, &k, &bytes), "prepare");
        snprintf(name, 160, "%s", kolo_kernel_name(k));
    }
    *choices = kolo_backend_choices(b);
    rig_close(&r);
    kolo_backend_destroy(&b);
}

/* So is a data gradient with the sums of the norm in front. */
static void test_mask_choice(void)
{
    static const char key[] =
        "conv_grad_norm f16 n 2 x 32 12 12 y 32 12 12 k 3 3 s 1 1 p 1 1 d 1 1 g 1 mask not 4 = ";
    char split[220], name[160] = "", again[160] = "", *made, *used;
    prepare_masked(NULL, &made, name);
    ok(strstr(made, key) && strstr(name, "with a norm's sums"),
       "the clock takes a norm's sums with the gradient (%s)", name);
    if (!strstr(made, key)) diag("%s", made);
    prepare_masked(made, &used, again);
    is_text(again, name, "and another process the same");
    free(used);
    snprintf(split, sizeof split, "%ssplit\n", key);
    prepare_masked(split, &used, again);
    ok(*again && !strstr(again, "with a norm's sums"), "where split was chosen it is split (%s)", again);
    free(used);
    free(made);
}

/* A norm in front of a convolution, forward and in its weights' gradient: the clock takes both in f16. */
static void test_norm_choice(void)
{
    const kolo_backend_config config = {.threads = 1};
    static const char *const name[] = {"with norm and sums, cuDNN", "with norm, cuDNN"};
    kolo_backend *b = NULL;
    size_t bytes;
    rig_check(kolo_backend_create(&b, "cuda", &config), "backend");
    rig r = rig_open(b, KOLO_F16, RIG_OWN);
    kolo_conv_spec s = {.out = 32, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = rig_init};
    int x = rig_input(&r, "x", 4, (const int64_t[]){2, 32, 12, 12});
    for (int i = 0; i < 2; i++)
        x = kolo_relu(
            r.g, i ? "rb" : "ra",
            kolo_batch_norm(r.g, i ? "nb" : "na", kolo_conv(r.g, i ? "b" : "a", x, &s), 1e-5, 0.1, 1));
    rig_check(kolo_graph_fuse(r.g), "fuse");
    rig_backward(&r, r.g->node[r.g->nodes - 1].out[0]);
    rig_check(kolo_graph_fuse_conv(r.g, true), "fuse");
    rig_layout(&r);
    int found = 0;
    for (int i = 0; i < (int)r.g->nodes; i++) {
        const enum kolo_op op = r.g->node[i].op;
        if (op != KOLO_OP_norm_conv_stats && op != KOLO_OP_norm_conv_grad_weight) continue;
        kolo_kernel *k;
        rig_check(kolo_backend_prepare(b, r.g, i, r.layout, &k, &bytes), "prepare");
        ok(strstr(kolo_kernel_name(k), name[op == KOLO_OP_norm_conv_grad_weight]),
           "the clock takes the engine of both: %s", kolo_kernel_name(k));
        found++;
    }
    is_int(found, 2, "a norm is done by the convolution behind it, forward and in its weights' gradient");
    rig_close(&r);
    kolo_backend_destroy(&b);
}

int main(void)
{
    const bool standin = cuda_rig();
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    cpu = rig_backend(2);
    rig_check(kolo_backend_create(&gpu, "cuda", &config), "backend");
    for (size_t i = 0; i < LAYERS; i++) {
        test_layer(&layers[i], KOLO_F32, "f32", 2e-6);
        test_layer(&layers[i], KOLO_BF16, "bf16", 4e-3);
        test_layer(&layers[i], KOLO_F16, "f16", 6e-4);
    }
    kolo_backend_destroy(&gpu);
    config.tf32 = true;
    rig_check(kolo_backend_create(&gpu, "cuda", &config), "backend");
    for (size_t i = 0; i < LAYERS; i++) test_layer(&layers[i], KOLO_F32, "tf32", 1e-3);
    kolo_backend_destroy(&gpu);
    test_choices();
    if (standin) {
        test_clock();
        test_scratch();
        test_sums_choice(KOLO_F16);
        test_sums_choice(KOLO_BF16);
        test_mask_choice();
        test_norm_choice();
    }
    kolo_backend_destroy(&cpu);
    return done_testing();
}
