/* How the CUDA backend lays tensors out: where an element lies, what is padding, the way to canonical order
 * and back, and what two graphs or two ranks agree on. */
#include "cuda_rig.h"
#include "models/models.h"
#include "ops/nhwc.h"
#include "ops_rig.h"

static kolo_backend *open_backend(void)
{
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    kolo_backend *b = NULL;
    rig_check(kolo_backend_create(&b, "cuda", &config), "backend");
    return b;
}

static kolo_graph *open_graph(const char *name, bool train, enum kolo_dtype dtype)
{
    kolo_graph *g = NULL;
    rig_check(kolo_graph_create(&g, name, train, dtype), "graph");
    return g;
}

static kolo_layout *layout_of(kolo_backend *b, const kolo_graph *g, const kolo_graph *like,
                              const kolo_layout *like_layout)
{
    kolo_layout *layout = calloc((size_t)g->tensors, sizeof *layout);
    rig_check(kolo_backend_layout(b, g, like, like_layout, layout), "layout");
    return layout;
}

static int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

static float number(const void *p, int64_t i, enum kolo_dtype t)
{
    if (t == KOLO_F32) return ((const float *)p)[i];
    return t == KOLO_BF16 ? kolo_from_bf16(((const uint16_t *)p)[i])
                          : kolo_from_f16(((const uint16_t *)p)[i]);
}

/* Numbers that every type holds: 1 .. 256, never 0. */
static float *numbers(int64_t n)
{
    float *v = malloc((size_t)(n + 1) * sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(1 + i * 7 % 256);
    return v;
}

/* Puts `t` into its layout over old bytes and takes it out again. The stored elements are then looked at by
 * (row, pixel, channel). */
static void round_trip(kolo_backend *b, const kolo_tensor *t, const kolo_layout *l, int64_t rows,
                       int64_t channels, int64_t stored, int64_t pixels, const char *what)
{
    int64_t n = rows * channels * pixels, wrong = 0, dirty = 0;
    size_t bytes = (size_t)(rows * pixels * stored) * kolo_dtype_size(t->dtype);
    float *in = numbers(n), *out = numbers(n);
    unsigned char *memory = malloc(l->bytes);
    memset(memory, 0xFF, l->bytes);
    memset(out, 0xFF, (size_t)n * sizeof *out);
    rig_check(kolo_backend_from_canonical(b, t, l, in, memory), what);
    rig_check(kolo_backend_to_canonical(b, t, l, memory, out), what);
    for (int64_t i = 0; l->bytes == bytes && i < rows * pixels * stored; i++) {
        int64_t c = i % stored, pixel = i / stored % pixels, row = i / stored / pixels;
        float v = number(memory, i, t->dtype);
        if (c >= channels) dirty += v != 0;
        else wrong += v != in[(row * channels + c) * pixels + pixel];
    }
    ok(l->bytes == bytes && !wrong && !dirty && !memcmp(in, out, (size_t)n * sizeof *in),
       "%s: NHWC, padding zero, back again (%zu bytes, %ld wrong, %ld not zero)", what, l->bytes, (long)wrong,
       (long)dirty);
    free(in);
    free(out);
    free(memory);
}

static void maps(kolo_backend *b, enum kolo_dtype dtype)
{
    static const int64_t shape[][4] = {{1, 1, 1, 1},   {3, 3, 7, 5},  {2, 8, 4, 4},
                                       {5, 10, 13, 9}, {1, 17, 2, 3}, {2, 64, 3, 1}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        kolo_graph *g = open_graph("maps", true, dtype);
        char what[64];
        int x = kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, dtype, 4, shape[i]);
        kolo_layout *l = layout_of(b, g, NULL, NULL);
        snprintf(what, sizeof what, "%s map %ldx%ldx%ldx%ld", kolo_dtype_name(dtype), (long)shape[i][0],
                 (long)shape[i][1], (long)shape[i][2], (long)shape[i][3]);
        int64_t stored = round_up(shape[i][1], dtype == KOLO_F32 ? 4 : 8);
        round_trip(b, &g->tensor[x], &l[x], shape[i][0], shape[i][1], stored, shape[i][2] * shape[i][3],
                   what);
        free(l);
        kolo_graph_destroy(&g);
    }
}

typedef struct net {
    kolo_graph *g;
    kolo_layout *l;
    int weight, pooled, index;
} net;

static net conv_net(kolo_backend *b, enum kolo_dtype dtype, bool train, int64_t in, int64_t out,
                    int64_t kernel, int64_t groups, const net *like)
{
    net n = {.g = open_graph(train ? "train" : "eval", train, dtype)};
    kolo_conv_spec s = {.out = out,
                        .kernel = {kernel, kernel},
                        .stride = {1, 1},
                        .pad = {kernel / 2, kernel / 2},
                        .groups = groups,
                        .weight = rig_init};
    int x = kolo_graph_tensor(n.g, "x", KOLO_ROLE_ACTIVATION, dtype, 4, (const int64_t[]){2, in, 5, 5});
    int y = kolo_conv(n.g, "c", x, &s);
    n.pooled = kolo_max_pool(n.g, "p", kolo_conv(n.g, "d", y, &s), 3, 2, 1);
    rig_check(n.pooled, "network");
    n.weight = kolo_graph_find(n.g, "c.weight");
    n.index = kolo_graph_find(n.g, "p:1");
    n.l = layout_of(b, n.g, like ? like->g : NULL, like ? like->l : NULL);
    return n;
}

static void net_close(net *n)
{
    free(n->l);
    kolo_graph_destroy(&n->g);
}

static void weights(kolo_backend *b, enum kolo_dtype dtype)
{
    static const int64_t shape[][3] = {{3, 64, 7}, {1, 1, 1}, {10, 17, 3}, {64, 64, 1}};
    int64_t v = dtype == KOLO_F32 ? 4 : 8;
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
        int64_t in = shape[i][0], out = shape[i][1], k = shape[i][2];
        kolo_graph *g = open_graph("weights", true, dtype);
        kolo_conv_spec s = {
            .out = out, .kernel = {k, k}, .stride = {1, 1}, .pad = {k / 2, k / 2}, .weight = rig_init};
        char what[64];
        int x = kolo_graph_tensor(g, "x", KOLO_ROLE_ACTIVATION, dtype, 4, (const int64_t[]){2, in, 9, 9});
        rig_check(kolo_conv(g, "c", x, &s), "conv");
        int w = kolo_graph_find(g, "c.weight");
        kolo_layout *l = layout_of(b, g, NULL, NULL);
        snprintf(what, sizeof what, "%s weight %ldx%ldx%ldx%ld", kolo_dtype_name(dtype), (long)out, (long)in,
                 (long)k, (long)k);
        /* rows beyond the outputs are padding too */
        kolo_tensor t = g->tensor[w];
        int64_t rows = round_up(out, v), stored = round_up(in, v);
        ok(l[w].bytes == (size_t)(rows * k * k * stored) * 4 && l[w].half == (dtype != KOLO_F32),
           "%s: %ld bytes, 16-bit copy: %d", what, (long)l[w].bytes, l[w].half);
        float *values = numbers(out * in * k * k), *memory = malloc(l[w].bytes),
              *back = malloc((size_t)(out * in * k * k) * 4);
        memset(memory, 0xFF, l[w].bytes);
        rig_check(kolo_backend_from_canonical(b, &t, &l[w], values, memory), what);
        rig_check(kolo_backend_to_canonical(b, &t, &l[w], memory, back), what);
        int64_t wrong = 0;
        for (int64_t o = 0; o < rows; o++)
            for (int64_t p = 0; p < k * k; p++)
                for (int64_t c = 0; c < stored; c++) {
                    float want = o < out && c < in ? values[(o * in + c) * k * k + p] : 0;
                    wrong += memory[(o * k * k + p) * stored + c] != want;
                }
        ok(!wrong && !memcmp(values, back, (size_t)(out * in * k * k) * 4),
           "%s: stored (O, KH, KW, I), padding zero, back again", what);
        free(values);
        free(memory);
        free(back);
        free(l);
        kolo_graph_destroy(&g);
    }
}

static void agreement(kolo_backend *b)
{
    kolo_backend *other = open_backend();
    net train = conv_net(b, KOLO_BF16, true, 17, 17, 3, 1, NULL),
        rank = conv_net(other, KOLO_BF16, true, 17, 17, 3, 1, NULL),
        eval = conv_net(b, KOLO_BF16, false, 17, 17, 3, 1, &train),
        small = conv_net(b, KOLO_BF16, true, 17, 17, 1, 1, NULL),
        f32 = conv_net(b, KOLO_F32, true, 17, 17, 3, 1, NULL),
        grouped = conv_net(b, KOLO_BF16, true, 12, 12, 3, 4, NULL);
    const kolo_layout *w = &train.l[train.weight];
    int second = kolo_graph_find(train.g, "d.weight");
    ok(w->opaque && w->opaque == train.l[second].opaque, "equal weights share one description");
    ok(w->opaque != rank.l[rank.weight].opaque && w->hash == rank.l[rank.weight].hash && w->hash,
       "another rank finds the same hash");
    ok(w->hash != small.l[small.weight].hash && w->hash != f32.l[f32.weight].hash,
       "another kernel size or padding has another hash");
    ok(eval.l[eval.weight].opaque == w->opaque && eval.l[eval.weight].half &&
           eval.l[eval.weight].bytes == w->bytes,
       "an evaluation graph takes the training graph's weights as they lie");
    ok(train.l[train.index].block == train.l[train.pooled].block && train.l[train.index].block == 24,
       "the index of a max pool is stored as its output is");
    round_trip(b, &f32.g->tensor[f32.pooled], &f32.l[f32.pooled], 2, 17, 20, 9,
               "f32 map behind a convolution");
    is_int(grouped.l[grouped.weight].bytes, 12 * 3 * 3 * 3 * 4,
           "the weight of a grouped convolution has no padding");
    kolo_layout *l = calloc((size_t)f32.g->tensors, sizeof *l);
    is_int(kolo_backend_layout(b, f32.g, train.g, train.l, l), KOLO_EINTERNAL,
           "graphs of two types do not share parameters");
    diag("%s", kolo_error_text());
    free(l);
    net_close(&train);
    net_close(&rank);
    net_close(&eval);
    net_close(&small);
    net_close(&f32);
    net_close(&grouped);
    kolo_backend_destroy(&other);
}

/* What is no map lies row by row as it is. */
static void plain(kolo_backend *b)
{
    static const enum kolo_dtype type[] = {KOLO_F32, KOLO_BF16, KOLO_F16, KOLO_F64, KOLO_I32, KOLO_U8};
    for (int i = 0; i < 6; i++) {
        kolo_graph *g = open_graph("plain", true, KOLO_BF16);
        int t = kolo_graph_tensor(g, "t", KOLO_ROLE_ACTIVATION, type[i], 2, (const int64_t[]){3, 5});
        kolo_layout *l = layout_of(b, g, NULL, NULL);
        float in[15], out[15];
        double memory[15];
        for (int k = 0; k < 15; k++) in[k] = (float)(k * 9);
        rig_check(kolo_backend_from_canonical(b, &g->tensor[t], &l[t], in, memory), "from canonical");
        rig_check(kolo_backend_to_canonical(b, &g->tensor[t], &l[t], memory, out), "to canonical");
        ok(l[t].block == 1 && l[t].bytes == 15 * kolo_dtype_size(type[i]) && !memcmp(in, out, sizeof in),
           "(N, F) of %s is plain", kolo_dtype_name(type[i]));
        free(l);
        kolo_graph_destroy(&g);
    }
}

/* A GPU that is only described: every tensor of a network lies as the backend itself lays it, so that a
 * plan's memory is that of the real one. */
static void described(kolo_backend *b, const char *model, enum kolo_dtype dtype)
{
    const kolo_gpu gpu = {.name = "described", .memory = 1};
    const kolo_model *m = kolo_model_find(model);
    const kolo_model_config config = {.rows = 2,
                                      .height = 64,
                                      .width = 64,
                                      .channels = 3,
                                      .classes = 10,
                                      .words = m && m->detector ? 11 : 0,
                                      .train = true,
                                      .device = true,
                                      .dtype = dtype,
                                      .std = {1, 1, 1}};
    kolo_backend d = {.type = &kolo_described_backend, .gpu = &gpu};
    kolo_graph *g = NULL;
    int apart = 0, halves = 0;
    rig_check(kolo_model_graph(&g, model, &config), model);
    kolo_layout *real = layout_of(b, g, NULL, NULL), *without = layout_of(&d, g, NULL, NULL);
    for (int64_t t = 0; t < g->tensors; t++) {
        const kolo_layout *x = &real[t], *y = &without[t];
        apart += x->block != y->block || x->bytes != y->bytes || x->hash != y->hash || x->half != y->half;
        halves += x->half;
    }
    ok(!apart && (halves > 0) == (dtype != KOLO_F32),
       "%s, %s: %ld tensors lie as on a GPU that is only described", model, kolo_dtype_name(dtype),
       (long)g->tensors);
    if (apart) diag("%d lie otherwise", apart);
    free(real);
    free(without);
    kolo_nhwc_free(&d);
    kolo_graph_destroy(&g);
}

int main(void)
{
    cuda_rig();
    kolo_backend *b = open_backend();
    static const enum kolo_dtype type[] = {KOLO_F32, KOLO_BF16, KOLO_F16};
    for (int i = 0; i < 3; i++) {
        maps(b, type[i]);
        weights(b, type[i]);
    }
    plain(b);
    agreement(b);
    static const char *const model[] = {"resnet50", "convnext_tiny", "swin_t", "efficientnet_b0", "yolox_s"};
    for (size_t k = 0; k < 5; k++)
        for (int i = 0; i < 2; i++) described(b, model[k], type[i]);
    kolo_backend_destroy(&b);
    return done_testing();
}
