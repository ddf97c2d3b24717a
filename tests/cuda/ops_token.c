/* Layers of transformers and of networks built like them on the CUDA backend, against the CPU backend's. */
#include "cuda_pair.h"

/* A network of one layer, its input first. Returns y. */
typedef int layer(rig *r, int x, const int64_t *number);

typedef struct layer_case {
    const char *what;
    layer *make;
    int rank;
    int64_t dim[4], number[5];
} layer_case;

static int layer_norm(rig *r, int x, const int64_t *n)
{
    (void)n;
    return kolo_layer_norm(r->g, "y", x, 1e-6);
}
static int activate(rig *r, int x, const int64_t *n)
{
    return kolo_activate(r->g, "y", x, (enum kolo_activation)n[0], 0.1);
}
static int linear(rig *r, int x, const int64_t *n)
{
    return n[2] ? kolo_pointwise(r->g, "y", x, n[0], n[1] != 0, rig_init, rig_init)
                : kolo_linear(r->g, "y", x, n[0], n[1] != 0, rig_init, rig_init);
}
static int depthwise(rig *r, int x, const int64_t *n)
{
    const int64_t c = r->g->tensor[x].dim[1];
    const kolo_conv_spec s = {.out = c,
                              .groups = c,
                              .kernel = {n[0], n[0]},
                              .stride = {n[1], n[1]},
                              .pad = {n[2], n[2]},
                              .bias = n[3] != 0,
                              .weight = rig_init,
                              .bias_init = rig_init};
    return kolo_conv(r->g, "y", x, &s);
}
static int attention(rig *r, int x, const int64_t *n)
{
    return kolo_window_attention(r->g, "y", x, n[0], n[1], n + 2);
}
static int attention_of_all(rig *r, int x, const int64_t *n)
{
    return kolo_attention_of_all(r->g, "y", x, n[0]);
}
static int embed(rig *r, int x, const int64_t *n)
{
    (void)n;
    const int64_t *dim = r->g->tensor[x].dim, first[] = {1, 1, dim[1]},
                  all[] = {1, 1 + dim[2] * dim[3], dim[1]};
    return kolo_embed(r->g, "y", x, kolo_param(r->g, "first", 3, first, rig_init, false),
                      kolo_param(r->g, "position", 3, all, rig_init, false));
}
static int dropout(rig *r, int x, const int64_t *n)
{
    (void)n;
    return kolo_dropout(r->g, "y", x, 0.4);
}
/* number: layer scale, sum, drop in percent */
static int residual(rig *r, int x, const int64_t *n)
{
    const kolo_tensor *t = &r->g->tensor[x];
    const int64_t channels = t->dim[1], dim[4] = {t->dim[0], t->dim[1], t->dim[2], t->dim[3]};
    int in[3] = {x, -1, -1};
    if (n[0]) in[1] = kolo_param(r->g, "scale", 1, &channels, rig_init, false);
    if (n[1]) in[2] = rig_input(r, "other", t->rank, dim);
    const kolo_attributes a = {.drop = (double)n[2] / 100, .draw = 3};
    int node = kolo_graph_node(r->g, KOLO_OP_residual, 3, in, 1, &a, "y");
    return node < 0 ? node : r->g->node[node].out[0];
}
static int gate(rig *r, int x, const int64_t *n)
{
    (void)n;
    return kolo_gate(r->g, "y", x, rig_input(r, "s", 2, r->g->tensor[x].dim));
}

static const layer_case sums[] = {
    {"layer_norm", layer_norm, 4, {2, 3, 5, 4}, {0}},
    {"layer_norm", layer_norm, 4, {2, 96, 7, 7}, {0}},
    {"layer_norm", layer_norm, 4, {1, 300, 3, 3}, {0}},
    {"layer_norm", layer_norm, 4, {1, 2056, 2, 2}, {0}},
    {"layer_norm", layer_norm, 4, {30, 24, 5, 11}, {0}},
    {"layer_norm", layer_norm, 2, {9, 768}, {0}},
    {"layer_norm", layer_norm, 2, {5, 33}, {0}},
    {"layer_norm", layer_norm, 2, {3, 1501}, {0}},
    {"linear", linear, 4, {2, 16, 5, 7}, {24, 1, 0}},
    {"linear without bias", linear, 4, {2, 24, 3, 3}, {16, 0, 0}},
    {"linear, odd", linear, 4, {2, 5, 6, 3}, {11, 1, 0}},
    {"linear to 12", linear, 4, {2, 8, 6, 3}, {12, 1, 0}},
    {"pointwise, odd", linear, 4, {2, 13, 4, 4}, {6, 1, 1}},
    {"pointwise", linear, 4, {1, 32, 4, 4}, {64, 1, 1}},
    {"depthwise 7", depthwise, 4, {2, 24, 9, 11}, {7, 1, 3, 1}},
    {"depthwise 7 of 70", depthwise, 4, {2, 70, 14, 7}, {7, 1, 3, 1}},
    {"depthwise 5", depthwise, 4, {3, 8, 8, 17}, {5, 1, 2, 0}},
    {"depthwise 3", depthwise, 4, {2, 33, 10, 5}, {3, 1, 1, 0}},
    {"depthwise 3 without pad", depthwise, 4, {1, 16, 10, 12}, {3, 1, 0, 1}},
    {"depthwise 3, stride 2", depthwise, 4, {2, 12, 11, 12}, {3, 2, 1, 0}},
    {"depthwise 5, stride 2", depthwise, 4, {2, 72, 13, 12}, {5, 2, 2, 1}},
    {"depthwise 4", depthwise, 4, {2, 6, 7, 9}, {4, 1, 1, 0}},
    {"tokens", embed, 4, {3, 16, 4, 5}, {0}},
    {"tokens of 13 channels", embed, 4, {2, 13, 3, 3}, {0}},
    {"gate", gate, 4, {3, 12, 7, 5}, {0}},
    {"gate", gate, 4, {2, 130, 5, 5}, {0}},
    {"residual with scale", residual, 4, {3, 20, 6, 5}, {1, 1, 0}},
    {"residual with scale and drop", residual, 4, {7, 20, 3, 5}, {1, 1, 30}},
    {"residual with scale alone", residual, 4, {2, 9, 8, 8}, {1, 0, 0}},
    {"residual with scale, rows", residual, 2, {40, 17}, {1, 1, 50}},
};
static const layer_case attentions[] = {
    {"attention", attention, 4, {2, 3 * 2 * 8, 6, 9}, {2, 3, 0, 0}},
    {"attention, shifted", attention, 4, {1, 3 * 2 * 16, 14, 7}, {2, 7, 3, 0}},
    {"attention, shifted along one axis", attention, 4, {2, 3 * 20, 8, 4}, {1, 4, 2, 0}},
    {"attention of 5 channels", attention, 4, {2, 3 * 10, 4, 4}, {2, 2, 1, 1}},
    {"attention of 64 channels", attention, 4, {1, 3 * 64, 4, 4}, {1, 4, 0, 0}},
    {"attention of all", attention_of_all, 4, {2, 3 * 2 * 8, 5, 7}, {2}},
    {"attention of all, 197 tokens", attention_of_all, 4, {1, 3 * 1 * 64, 197, 1}, {1}},
    {"attention of all, odd", attention_of_all, 4, {3, 3 * 3 * 5, 3, 3}, {3}},
    {"attention, heads of 32 channels", attention, 4, {2, 3 * 3 * 32, 14, 14}, {3, 7, 3, 3}},
    {"attention, 8 x 8", attention, 4, {1, 3 * 2 * 64, 16, 8}, {2, 8, 4, 0}},
    {"attention, many windows", attention, 4, {1, 3 * 16, 66, 64}, {1, 2, 1, 1}},
    {"attention, 12 x 12", attention, 4, {1, 3 * 6, 12, 12}, {1, 12, 6, 6}},
};
static const layer_case drawn[] = {
    {"residual", residual, 4, {5, 12, 4, 4}, {0, 1, 30}},
    {"residual without sum", residual, 2, {21, 9}, {0, 0, 30}},
    {"dropout", dropout, 2, {5, 33}, {0}},
    {"dropout", dropout, 4, {2, 5, 6, 7}, {0}},
};

static void check(enum kolo_dtype dtype, const layer_case *c, double tolerance, double floor)
{
    pair p = pair_open(dtype, c->what);
    for (int i = 0; i < 2; i++) {
        rig *r = &p.side[i];
        int x = rig_input(r, "x", c->rank, c->dim), y = c->make(r, x, c->number);
        rig_check(y, c->what);
        rig_backward(r, y);
        r->step.seed = 7;
        r->step.step = 11;
        r->step.row[0] = 1000;
        rig_layout(r);
    }
    snprintf(p.shape, sizeof p.shape, "%ldx%ldx%ldx%ld, %ld %ld %ld %ld", (long)c->dim[0], (long)c->dim[1],
             (long)c->dim[2], (long)c->dim[3], (long)c->number[0], (long)c->number[1], (long)c->number[2],
             (long)c->number[3]);
    for (int t = 0; t < (int)p.side[0].g->tensors; t++)
        if (p.side[0].g->tensor[t].producer < 0) pair_fill(&p, t, SMOOTH);
    pair_check_above(&p, tolerance, floor);
}

static void check_all(enum kolo_dtype dtype, const char *what, const layer_case *c, size_t n,
                      double tolerance, double floor)
{
    failures = 0;
    for (size_t i = 0; i < n; i++) check(dtype, &c[i], tolerance, floor);
    is_int(failures, 0, "%s: %s, %zu cases, as the CPU has them", kolo_dtype_name(dtype), what, n);
}

static void activations(enum kolo_dtype dtype)
{
    failures = 0;
    for (int kind = KOLO_GELU; kind <= KOLO_TANH; kind++) {
        const layer_case rows = {"activation", activate, 2, {7, 333}, {kind}},
                         map = {"activation", activate, 4, {2, 21, 5, 5}, {kind}};
        check(dtype, &rows, ulp(dtype), 0.3);
        check(dtype, &map, ulp(dtype), 0.3);
    }
    is_int(failures, 0, "%s: activations, of rows and maps, also those that make something of 0",
           kolo_dtype_name(dtype));
}

/* The same bits again, whatever the order of threads and blocks. */
static void steady(void)
{
    const layer_case *some[] = {&sums[1], &sums[14], &sums[25], &attentions[1], &attentions[8]};
    bool same_bits = true;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        rig r = rig_open(gpu, KOLO_BF16, RIG_OWN);
        int y = some[i]->make(&r, rig_input(&r, "x", some[i]->rank, some[i]->dim), some[i]->number);
        rig_check(y, "layer");
        rig_backward(&r, y);
        rig_layout(&r);
        uint64_t state = 3;
        for (int t = 0; t < (int)r.g->tensors; t++) {
            int64_t n = kolo_tensor_count(&r.g->tensor[t]);
            float *v = malloc((size_t)n * sizeof *v);
            for (int64_t k = 0; k < n; k++) v[k] = value(SMOOTH, &state);
            if (r.g->tensor[t].producer < 0) rig_set(&r, t, v);
            free(v);
        }
        void *first[64];
        for (int turn = 0; turn < 2; turn++) {
            rig_run(&r);
            for (int t = 0; t < (int)r.g->tensors; t++) {
                void *raw = rig_raw(&r, t);
                if (turn) same_bits &= !memcmp(raw, first[t], r.layout[t].bytes);
                else first[t] = raw;
                if (turn) free(first[t]), free(raw);
            }
        }
        rig_close(&r);
    }
    ok(same_bits, "a second run has the same bits");
}

static void refused(void)
{
    const layer_case far = {"", attention, 4, {1, 3 * 80, 7, 7}, {1, 7, 0, 0}};
    rig r = rig_open(gpu, KOLO_F32, RIG_OWN);
    kolo_kernel *k;
    size_t bytes;
    far.make(&r, rig_input(&r, "x", 4, far.dim), far.number);
    rig_layout(&r);
    is_int(kolo_backend_prepare(gpu, r.g, 0, r.layout, &k, &bytes), KOLO_ECONFIG,
           "heads of 80 channels are refused: %s", kolo_error_text());
    rig_close(&r);
}

int main(void)
{
    cuda_rig();
    pair_backends();
    for (int i = 0; i < 3; i++) {
        const double some = types[i] == KOLO_F32 ? 1e-5 : ulp(types[i]);
        activations(types[i]);
        check_all(types[i], "layers that sum", sums, sizeof sums / sizeof *sums, 2 * some, 1);
        /* tensor cores take weights and slopes of 16 bits */
        check_all(types[i], "window attention", attentions, sizeof attentions / sizeof *attentions,
                  types[i] == KOLO_F32 ? some : 2 * some, 1);
        check_all(types[i], "layers that draw", drawn, sizeof drawn / sizeof *drawn, ulp(types[i]), 1);
    }
    steady();
    refused();
    pair_backends_close();
    return done_testing();
}
