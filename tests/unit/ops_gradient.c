/* Gradients of every operation against central differences of the loss sum(y dy), which
 * is accumulated in f64. */
#include "golden_file.h"
#include "ops_rig.h"

typedef struct net {
    rig r;
    int y, dy;
    float *weight_of_y; /* dy's values */
    const char *name;
    bool far;
} net;

static double loss_of(net *n)
{
    kolo_graph *g = n->r.g;
    int64_t count = kolo_tensor_count(&g->tensor[n->y]);
    float *y = malloc((size_t)count * sizeof *y);
    for (int i = 0; i < (int)g->nodes && !g->node[i].backward; i++) rig_check(rig_run_node(&n->r, i), "run");
    rig_get(&n->r, n->y, y);
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += (double)y[i] * (double)n->weight_of_y[i];
    free(y);
    return sum;
}

/* The largest distance between gradient and difference, over the rms of the gradient. */
static double check_tensor(net *n, int t, double h)
{
    kolo_graph *g = n->r.g;
    int64_t count = kolo_tensor_count(&g->tensor[t]), step = count > 40 ? count / 40 : 1;
    float *value = malloc((size_t)count * sizeof *value), *grad = malloc((size_t)count * sizeof *grad);
    rig_get(&n->r, t, value);
    rig_get(&n->r, g->grad[t], grad);
    double square = 0, worst = 0;
    for (int64_t i = 0; i < count; i++) square += (double)grad[i] * (double)grad[i];
    for (int64_t i = 0; i < count; i += step) {
        float was = value[i];
        value[i] = (float)((double)was + h);
        double up = (double)value[i];
        rig_set(&n->r, t, value);
        double high = loss_of(n);
        value[i] = (float)((double)was - h);
        up -= (double)value[i];
        rig_set(&n->r, t, value);
        double difference = (high - loss_of(n)) / up, apart = fabs(difference - (double)grad[i]);
        if (apart > worst) worst = apart;
        value[i] = was;
        rig_set(&n->r, t, value);
    }
    free(value);
    free(grad);
    return worst / (sqrt(square / (double)count) + 1e-12);
}

static void fill(net *n, int t, double a, double b)
{
    int64_t count = kolo_tensor_count(&n->r.g->tensor[t]);
    float *v = malloc((size_t)count * sizeof *v);
    golden_fill(n->r.g->tensor[t].name, 7, a, b, v, count);
    if (n->far) /* no relu within reach of its kink: the residual, or the shift, decides every sign */
        for (int64_t i = 0; i < count; i++) {
            if (!strcmp(n->r.g->tensor[t].name, "r")) v[i] = v[i] < 0 ? -3 : 3;
            if (!strcmp(n->r.g->tensor[t].name, "n.bias")) v[i] = i % 2 ? -0.8f : 0.8f;
            if (!strcmp(n->r.g->tensor[t].name, "n.weight")) v[i] *= 0.3f;
        }
    rig_set(&n->r, t, v);
    if (t == n->dy) n->weight_of_y = v;
    else free(v);
}

/* Fills all inputs and parameters, runs everything, then checks each gradient there is. */
static void check(net *n, double h, double tolerance)
{
    kolo_graph *g = n->r.g;
    n->dy = rig_backward(&n->r, n->y);
    rig_layout(&n->r);
    for (int t = 0; t < (int)g->tensors; t++)
        if (g->tensor[t].producer < 0 && kolo_tensor_count(&g->tensor[t]) > 0)
            fill(n, t, g->tensor[t].rank == 1 && golden_ends(g->tensor[t].name, "weight") ? 1 : 0,
                 g->tensor[t].rank == 1 ? 0.3 : golden_unit);
    rig_run(&n->r);
    double worst = 0;
    int checked = 0;
    for (int t = 0; t < (int)g->tensors; t++) {
        if (g->tensor[t].producer >= 0 || t == n->dy || g->grad[t] < 0 || t >= n->dy) continue;
        double w = check_tensor(n, t, h);
        if (w > worst) worst = w;
        checked++;
    }
    ok(checked > 0 && worst < tolerance, "%s: %d gradients, worst %.2g of their rms (allowed %.2g)", n->name,
       checked, worst, tolerance);
    free(n->weight_of_y);
    rig_close(&n->r);
}

static kolo_backend *backend;
static int64_t block;

static net open_net(const char *name)
{
    net n = {.name = name};
    n.r = rig_open(backend, KOLO_F32, block);
    return n;
}

static int map(net *n, int64_t rows, int64_t c, int64_t h, int64_t w)
{
    return rig_input(&n->r, "x", 4, (const int64_t[]){rows, c, h, w});
}

static void conv(const char *name, int64_t in, int64_t out, int64_t k, int64_t stride, int64_t pad,
                 int64_t groups, bool bias)
{
    net n = open_net(name);
    kolo_conv_spec s = {.out = out,
                        .kernel = {k, k},
                        .stride = {stride, stride},
                        .pad = {pad, pad},
                        .groups = groups,
                        .bias = bias,
                        .weight = rig_init};
    n.y = kolo_conv(n.r.g, "c", map(&n, 3, in, 9, 11), &s);
    check(&n, 0.05, 2e-4);
}

static void norm(const char *name, bool relu, bool residual, int64_t channels)
{
    net n = open_net(name);
    kolo_graph *g = n.r.g;
    int x = map(&n, 4, channels, 5, 6), extra = residual ? rig_input(&n.r, "r", 4, g->tensor[x].dim) : -1;
    int y = kolo_batch_norm(g, "n", x, 1e-3, 0.1, 1);
    if (residual) y = kolo_add(g, "a", y, extra);
    n.y = relu ? kolo_relu(g, "relu", y) : y;
    if (relu) rig_check(kolo_graph_fuse(g), "fuse");
    n.y = g->node[g->nodes - 1].out[0];
    n.far = relu;
    check(&n, 0.01, 2e-3);
}

static void norm_pool(const char *name, int64_t kernel, int64_t pad)
{
    net n = open_net(name);
    kolo_graph *g = n.r.g;
    g->pools = true;
    kolo_max_pool(g, "y", kolo_relu(g, "relu", kolo_batch_norm(g, "n", map(&n, 3, 18, 7, 8), 1e-3, 0.1, 1)),
                  kernel, 2, pad);
    rig_check(kolo_graph_fuse(g), "fuse");
    n.y = g->node[g->nodes - 1].out[0];
    n.far = true;
    check(&n, 1e-3, 5e-3);
}

/* (N,C,H,W) of odd sizes; 5 and 14 channels lie apart in every block. */
static void moves(void)
{
    net n = open_net("pad");
    n.y = kolo_pad(n.r.g, "y", map(&n, 2, 5, 4, 7), 3, 2);
    check(&n, 0.5, 2e-4);
    n = open_net("crop");
    n.y = kolo_crop(n.r.g, "y", map(&n, 2, 20, 6, 7), 2, 0);
    check(&n, 0.5, 2e-4);
    n = open_net("space to depth");
    n.y = kolo_space_to_depth(n.r.g, "y", map(&n, 2, 5, 5, 8));
    check(&n, 0.5, 2e-4);
    n = open_net("upsample 2, then 3");
    n.y = kolo_upsample(n.r.g, "y", kolo_upsample(n.r.g, "u", map(&n, 2, 18, 3, 4), 2), 3);
    check(&n, 0.5, 2e-4);
    n = open_net("concat of three, slice");
    kolo_graph *g = n.r.g;
    int x = map(&n, 2, 5, 4, 7), z = rig_input(&n.r, "z", 4, (const int64_t[]){2, 14, 4, 7}),
        c = kolo_concat(g, "c", 3, (const int[]){x, z, x});
    n.y = kolo_slice_channels(g, "y", c, 3, 18);
    check(&n, 0.5, 2e-4);
    n = open_net("concat and slice of rows");
    x = rig_input(&n.r, "x", 2, (const int64_t[]){3, 5});
    z = rig_input(&n.r, "z", 2, (const int64_t[]){3, 9});
    n.y = kolo_slice_channels(n.r.g, "y", kolo_concat(n.r.g, "c", 2, (const int[]){z, x}), 4, 9);
    check(&n, 0.5, 2e-4);
    n = open_net("gate");
    x = map(&n, 2, 69, 4, 7);
    n.y = kolo_gate(n.r.g, "y", x, kolo_global_avg_pool(n.r.g, "s", x));
    check(&n, 0.05, 5e-4);
    n = open_net("window attention");
    n.y = kolo_window_attention(n.r.g, "y", map(&n, 2, 18, 6, 9), 2, 3, (const int64_t[]){1, 2});
    check(&n, 0.01, 5e-3);
    n = open_net("attention of all pixels");
    n.y = kolo_attention_of_all(n.r.g, "y", map(&n, 2, 18, 5, 7), 2);
    check(&n, 0.01, 5e-3);
    n = open_net("tokens");
    x = map(&n, 3, 20, 3, 4);
    n.y =
        kolo_embed(n.r.g, "y", x, kolo_param(n.r.g, "first", 3, (const int64_t[]){1, 1, 20}, rig_init, false),
                   kolo_param(n.r.g, "position", 3, (const int64_t[]){1, 13, 20}, rig_init, false));
    check(&n, 0.1, 2e-4);
    n = open_net("cosines");
    n.y = kolo_cosine(n.r.g, "y", rig_input(&n.r, "x", 2, (const int64_t[]){3, 11}), 7, rig_init);
    check(&n, 0.01, 2e-3);
}

static void tokens(void)
{
    static const char *const name[] = {"gelu",         "gelu by tanh", "silu",    "leaky relu", "hard swish",
                                       "hard sigmoid", "relu6",        "sigmoid", "tanh"};
    for (int kind = KOLO_GELU; kind <= KOLO_TANH; kind++) {
        net n = open_net(name[kind]);
        n.y = kolo_activate(n.r.g, "y", map(&n, 2, 5, 4, 7), (enum kolo_activation)kind, 0.1);
        check(&n, 0.002, 3e-3);
    }
    net n = open_net("layer norm of pixels");
    n.y = kolo_layer_norm(n.r.g, "n", map(&n, 2, 21, 3, 5), 1e-3);
    check(&n, 0.01, 2e-3);
    n = open_net("layer norm of rows");
    n.y = kolo_layer_norm(n.r.g, "n", rig_input(&n.r, "x", 2, (const int64_t[]){40, 7}), 1e-3);
    check(&n, 0.01, 2e-3);
    n = open_net("linear over a map");
    n.y = kolo_linear(n.r.g, "l", map(&n, 3, 6, 2, 5), 7, true, rig_init, rig_init);
    check(&n, 0.1, 2e-4);
    n = open_net("linear over a map, weight of a convolution");
    n.y = kolo_pointwise(n.r.g, "l", map(&n, 2, 17, 4, 5), 20, false, rig_init, rig_init);
    check(&n, 0.1, 2e-4);
    n = open_net("residual, scaled, some rows dropped");
    int x = map(&n, 8, 18, 3, 5), r = rig_input(&n.r, "r", 4, n.r.g->tensor[x].dim);
    n.y = kolo_residual(n.r.g, "y", x, r,
                        kolo_param(n.r.g, "scale", 1, (const int64_t[]){18}, rig_init, false), 0.3);
    check(&n, 0.1, 2e-4);
    n = open_net("residual of rows, some dropped");
    x = rig_input(&n.r, "x", 2, (const int64_t[]){8, 13});
    n.y = kolo_residual(n.r.g, "y", x, rig_input(&n.r, "r", 2, (const int64_t[]){8, 13}), -1, 0.3);
    check(&n, 0.1, 2e-4);
    n = open_net("dropout");
    n.y = kolo_dropout(n.r.g, "y", map(&n, 2, 18, 3, 5), 0.3);
    check(&n, 0.1, 2e-4);
}

static void all(void)
{
    conv("conv 3x3", 5, 6, 3, 1, 1, 1, true);
    conv("conv 5x5 of few channels", 1, 6, 5, 1, 2, 1, true);
    conv("conv 5x5 valid, 20 outputs", 6, 20, 5, 1, 0, 1, true);
    conv("conv 3x3 stride 2", 16, 32, 3, 2, 1, 1, false);
    conv("conv 1x1", 32, 16, 1, 1, 0, 1, false);
    conv("conv grouped", 8, 8, 3, 1, 1, 4, false);
    conv("conv depthwise 3x3", 21, 21, 3, 1, 1, 21, true);
    conv("conv depthwise 5x5 stride 2", 16, 16, 5, 2, 2, 16, true);
    conv("conv depthwise 7x7", 40, 40, 7, 1, 3, 40, false);
    conv("conv depthwise 4x4 stride 3, valid", 8, 8, 4, 3, 0, 8, true);
    norm("norm", false, false, 5);
    norm("norm + relu", true, false, 16);
    norm("norm + residual + relu", true, true, 20);
    norm_pool("norm + relu + max pool 3x3", 3, 1);
    norm_pool("norm + relu + max pool 2x2", 2, 0);
    net n = open_net("relu");
    n.y = kolo_relu(n.r.g, "y", map(&n, 2, 5, 4, 7));
    check(&n, 1e-4, 2e-3);
    n = open_net("max pool 3x3");
    n.y = kolo_max_pool(n.r.g, "y", map(&n, 2, 18, 9, 8), 3, 2, 1);
    check(&n, 1e-4, 5e-3);
    n = open_net("max pool 2x2");
    n.y = kolo_max_pool(n.r.g, "y", map(&n, 2, 6, 10, 34), 2, 2, 0);
    check(&n, 1e-4, 5e-3);
    n = open_net("average pool");
    n.y = kolo_avg_pool(n.r.g, "y", map(&n, 2, 18, 9, 8), 3, 2, 1, false);
    check(&n, 0.1, 2e-4);
    n = open_net("average pool to 4x7 of 9x5 pixels");
    n.y = kolo_adaptive_avg_pool(n.r.g, "y", map(&n, 2, 18, 9, 5), 4, 7);
    check(&n, 0.1, 2e-4);
    n = open_net("global average pool");
    n.y = kolo_global_avg_pool(n.r.g, "y", map(&n, 2, 18, 5, 8));
    check(&n, 0.5, 2e-4);
    n = open_net("flatten, linear");
    n.y = kolo_linear(n.r.g, "l", kolo_flatten(n.r.g, "f", map(&n, 3, 6, 2, 3)), 7, true, rig_init, rig_init);
    check(&n, 0.1, 2e-4);
    moves();
    tokens();
    n = open_net("shortcut without parameters");
    n.y = kolo_shortcut_a(n.r.g, "s", map(&n, 2, 12, 7, 8), 24);
    check(&n, 0.5, 2e-4);
}

int main(void)
{
    backend = rig_backend(2);
    static const int64_t blocks[] = {1, 8, 16, RIG_NHWC};
    for (int i = 0; i < 4; i++) {
        block = blocks[i];
        diag("channel block %ld", (long)block);
        all();
    }
    kolo_backend_destroy(&backend);
    return done_testing();
}
