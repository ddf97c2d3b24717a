/* A pixel has the same bits whether it is made with the whole map or with a strip of it, in every layout and
 * type: what wide halos (graph/halo.c) rest on. Convolutions by oneDNN, which takes another order of sums for
 * some sizes of a map, are as near as that. */
#include "ops_rig.h"

enum { ROWS = 2 };

static float noise(int64_t i) { return (float)((uint64_t)(i + 7) * 2654435761u % 1000003) / 500000 - 1; }

/* Parameters of both have the numbers of their place. */
static void fill(rig *r)
{
    for (int t = 0; t < (int)r->g->tensors; t++) {
        const kolo_tensor *x = &r->g->tensor[t];
        if (x->producer >= 0) continue;
        const int64_t n = kolo_tensor_count(x);
        float *v = malloc((size_t)n * sizeof *v);
        for (int64_t i = 0; i < n; i++) v[i] = noise(3 * i) * (x->role == KOLO_ROLE_PARAM ? .3F : 2);
        rig_set(r, t, v);
        free(v);
    }
}

typedef struct trial {
    const char *name;
    enum kolo_op op;
    int64_t channels, out, kernel, stride, groups;
    enum kolo_activation activation;
} trial;

static int gate_of(kolo_graph *g, int x)
{
    const int there = kolo_graph_find(g, "gates");
    const int64_t dim[] = {ROWS, g->tensor[x].dim[1]};
    return there >= 0 ? there : kolo_graph_tensor(g, "gates", KOLO_ROLE_ACTIVATION, g->dtype, 2, dim);
}

/* norm(x) by the sums of the whole map, which the first call forms. */
static int norm_of(kolo_graph *g, const char *name, int x)
{
    if (!strcmp(name, "whole")) return kolo_batch_norm(g, name, x, 1e-5, .1, 1);
    const kolo_node of = g->node[g->tensor[kolo_graph_find(g, "whole")].producer];
    const int64_t dim = g->tensor[of.out[1]].dim[0];
    int in[] = {x, of.in[1], of.in[2], of.in[3]},
        out[] = {kolo_graph_tensor(g, name, KOLO_ROLE_ACTIVATION, g->dtype, 4, g->tensor[x].dim),
                 kolo_graph_tensor(g, "unread", KOLO_ROLE_TERM, KOLO_F32, 1, &dim)};
    rig_check(kolo_graph_node_with(g, KOLO_OP_norm_apply, 4, in, 2, out, &of.a), name);
    return out[0];
}

static int apply(kolo_graph *g, const trial *t, const char *name, int x)
{
    const kolo_conv_spec s = {.out = t->out,
                              .kernel = {t->kernel, t->kernel},
                              .stride = {t->stride, t->stride},
                              .groups = t->groups,
                              .weight = rig_init};
    switch (t->op) {
    case KOLO_OP_conv: return kolo_conv(g, name, x, &s);
    case KOLO_OP_max_pool: return kolo_max_pool(g, name, x, t->kernel, t->stride, 0);
    case KOLO_OP_avg_pool: return kolo_avg_pool(g, name, x, t->kernel, t->stride, 0, true);
    case KOLO_OP_activation: return kolo_activate(g, name, x, t->activation, 0.1);
    case KOLO_OP_layer_norm: return kolo_layer_norm(g, name, x, 1e-6);
    case KOLO_OP_linear: return kolo_linear(g, name, x, t->out, true, rig_init, rig_init);
    case KOLO_OP_gate: return kolo_gate(g, name, x, gate_of(g, x));
    case KOLO_OP_norm_apply: return norm_of(g, name, x);
    case KOLO_OP_space_to_depth: return kolo_space_to_depth(g, name, x);
    default: return kolo_relu(g, name, x);
    }
}

/* Numbers that differ by more than `most` between rows `at` on and columns `left` on of y, and z. */
static int64_t differ(rig *r, int y, int z, int64_t at, int64_t left, float most)
{
    const int64_t *big = r->g->tensor[y].dim, *small = r->g->tensor[z].dim;
    float *a = malloc((size_t)kolo_tensor_count(&r->g->tensor[y]) * sizeof *a),
          *b = malloc((size_t)kolo_tensor_count(&r->g->tensor[z]) * sizeof *b);
    int64_t wrong = 0;
    rig_get(r, y, a);
    rig_get(r, z, b);
    for (int64_t i = 0; i < small[0] * small[1] * small[2] * small[3]; i++) {
        const int64_t plane = i / (small[2] * small[3]), h = at + i / small[3] % small[2],
                      w = left + i % small[3];
        wrong += !(fabsf(a[(plane * big[2] + h) * big[3] + w] - b[i]) <= most);
    }
    free(a), free(b);
    return wrong;
}

static bool by_library(const trial *t)
{
    return t->op == KOLO_OP_linear || (t->op == KOLO_OP_conv && t->groups != t->channels);
}

/* rows, columns: of the result, from row `at` and column `left` on. */
static int64_t strip(kolo_backend *b, enum kolo_dtype dtype, int64_t block, const trial *t, int64_t at,
                     int64_t rows, int64_t left, int64_t columns)
{
    rig r = rig_open(b, dtype, block);
    const int64_t size[] = {31, 37};
    const int x = rig_input(&r, "x", 4, (const int64_t[]){ROWS, t->channels, size[0], size[1]}),
              y = apply(r.g, t, "whole", x);
    rig_check(y, t->name);
    const int64_t dim[] = {ROWS, t->channels, (rows - 1) * t->stride + t->kernel,
                           (columns - 1) * t->stride + t->kernel};
    kolo_node tile = {.op = KOLO_OP_tile, .n_in = 1, .n_out = 1, .in = {x}};
    tile.a.at[0] = at * t->stride;
    tile.a.at[1] = left * t->stride;
    tile.out[0] = kolo_graph_tensor(r.g, "strip", KOLO_ROLE_ACTIVATION, dtype, 4, dim);
    rig_check(kolo_graph_node_as(r.g, &tile), "strip");
    const int z = apply(r.g, t, "part", tile.out[0]);
    rig_check(z, t->name);
    rig_layout(&r);
    fill(&r);
    rig_run(&r);
    /* sums of a few thousand products below 1, whose size is some tens */
    const float apart = !by_library(t) ? 0 : dtype == KOLO_BF16 ? .5F : 1e-4F;
    const int64_t wrong = differ(&r, y, z, at, left, apart);
    rig_close(&r);
    return wrong;
}

int main(void)
{
    static const trial trials[] = {
        {"convolution 1 x 1, 16 to 64", KOLO_OP_conv, 16, 64, 1, 1, 1, 0},
        {"convolution 1 x 1, 144 to 24", KOLO_OP_conv, 144, 24, 1, 1, 1, 0},
        {"convolution 1 x 1, 256 to 512, stride 2", KOLO_OP_conv, 256, 512, 1, 2, 1, 0},
        {"convolution 1 x 1, 12 to 20", KOLO_OP_conv, 12, 20, 1, 1, 1, 0},
        {"convolution 3 x 3, 3 to 32, stride 2", KOLO_OP_conv, 3, 32, 3, 2, 1, 0},
        {"convolution 3 x 3, 64 to 64", KOLO_OP_conv, 64, 64, 3, 1, 1, 0},
        {"convolution 3 x 3, 20 to 12", KOLO_OP_conv, 20, 12, 3, 1, 1, 0},
        {"convolution 3 x 3, 256 to 128", KOLO_OP_conv, 256, 128, 3, 1, 1, 0},
        {"convolution 7 x 7, 3 to 64, stride 2", KOLO_OP_conv, 3, 64, 7, 2, 1, 0},
        {"convolution 3 x 3 in 8 groups", KOLO_OP_conv, 64, 64, 3, 1, 8, 0},
        {"convolution 3 x 3 of each channel", KOLO_OP_conv, 32, 32, 3, 1, 32, 0},
        {"convolution 3 x 3 of each channel, stride 2", KOLO_OP_conv, 96, 96, 3, 2, 96, 0},
        {"convolution 5 x 5 of each channel", KOLO_OP_conv, 20, 20, 5, 1, 20, 0},
        {"convolution 7 x 7 of each channel", KOLO_OP_conv, 96, 96, 7, 1, 96, 0},
        {"max pool", KOLO_OP_max_pool, 20, 0, 3, 2, 1, 0},
        {"average pool", KOLO_OP_avg_pool, 20, 0, 3, 1, 1, 0},
        {"space to depth", KOLO_OP_space_to_depth, 3, 0, 2, 2, 1, 0},
        {"SiLU", KOLO_OP_activation, 32, 0, 1, 1, 1, KOLO_SILU},
        {"GELU", KOLO_OP_activation, 20, 0, 1, 1, 1, KOLO_GELU},
        {"hard swish", KOLO_OP_activation, 20, 0, 1, 1, 1, KOLO_HARD_SWISH},
        {"sigmoid", KOLO_OP_activation, 20, 0, 1, 1, 1, KOLO_SIGMOID},
        {"tanh", KOLO_OP_activation, 20, 0, 1, 1, 1, KOLO_TANH},
        {"batch norm", KOLO_OP_norm_apply, 20, 0, 1, 1, 1, 0},
        {"layer norm", KOLO_OP_layer_norm, 96, 0, 1, 1, 1, 0},
        {"linear, 96 to 384", KOLO_OP_linear, 96, 384, 1, 1, 1, 0},
        {"linear, 384 to 96", KOLO_OP_linear, 384, 96, 1, 1, 1, 0},
        {"gate", KOLO_OP_gate, 20, 0, 1, 1, 1, 0},
        {"ReLU", KOLO_OP_relu, 20, 0, 1, 1, 1, 0}};
    static const int64_t places[][4] = {{3, 1, 0, 15}, {0, 12, 9, 1}, {4, 5, 3, 7}},
                         blocks[] = {16, RIG_NHWC};
    kolo_backend *b = rig_backend(1);
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++)
        for (int half = 0; half < 2; half++) {
            int64_t wrong = 0;
            for (size_t k = 0; k < sizeof blocks / sizeof *blocks; k++)
                for (size_t p = 0; p < sizeof places / sizeof *places; p++)
                    wrong += strip(b, half ? KOLO_BF16 : KOLO_F32, blocks[k], &trials[i], places[p][0],
                                   places[p][1], places[p][2], places[p][3]);
            is_int(wrong, 0, "%s, %s: strips %s the whole map", trials[i].name, half ? "bf16" : "f32",
                   by_library(&trials[i]) ? "are as near as sums in another order to" : "have the bits of");
        }
    kolo_backend_destroy(&b);
    return done_testing();
}
