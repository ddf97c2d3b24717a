/* Builders and shape rules: shapes, roles, names, and what is refused. */
#include "base/memory.h"
#include "graph/graph.h"
#include "kolo/error.h"
#include "tap.h"

static const float mean[4] = {0.5f, 0.5f, 0.5f, 0.5f}, std_[4] = {0.25f, 0.25f, 0.25f, 0.25f};
static const kolo_init init = {KOLO_INIT_NORMAL, 0.1};

static kolo_graph *fresh(bool train, int64_t size, int64_t channels, int *x)
{
    kolo_graph *g = NULL;
    if (kolo_graph_create(&g, "test", train, KOLO_F32) < 0) exit(1);
    *x = kolo_normalize(g, kolo_input(g, 4, size, size + 2, channels, 1), mean, std_);
    return g;
}

static void shape_is(const kolo_graph *g, int t, int rank, const int64_t *dim, const char *what)
{
    char got[160] = "", want[160] = "";
    for (int i = 0; t >= 0 && i < g->tensor[t].rank; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%lld ", (long long)g->tensor[t].dim[i]);
    for (int i = 0; i < rank; i++)
        snprintf(want + strlen(want), sizeof want - strlen(want), "%lld ", (long long)dim[i]);
    is_text(t < 0 ? kolo_error_text() : got, want, "%s", what);
}
#define SHAPE(g, t, what, ...)                                         \
    do {                                                               \
        const int64_t dim_[] = {__VA_ARGS__};                          \
        shape_is(g, t, (int)(sizeof dim_ / sizeof *dim_), dim_, what); \
    } while (0)

static kolo_conv_spec spec(int64_t out, int64_t kernel, int64_t stride, int64_t pad)
{
    return (kolo_conv_spec){.out = out,
                            .kernel = {kernel, kernel},
                            .stride = {stride, stride},
                            .pad = {pad, pad},
                            .weight = init};
}

static void forward_shapes(void)
{
    int x;
    kolo_graph *g = fresh(true, 31, 3, &x);
    SHAPE(g, g->input, "pixels are (N,H,W,C)", 4, 31, 33, 3);
    is_int(g->tensor[g->input].dtype, KOLO_U8, "of bytes");
    SHAPE(g, g->label, "one label a row", 4);
    SHAPE(g, x, "normalize gives (N,C,H,W)", 4, 3, 31, 33);
    kolo_conv_spec s = spec(8, 7, 2, 3);
    s.bias = true;
    int y = kolo_conv(g, "conv", x, &s);
    SHAPE(g, y, "7x7 stride 2 pad 3", 4, 8, 16, 17);
    SHAPE(g, kolo_graph_find(g, "conv.weight"), "its weight is (O,I,KH,KW)", 8, 3, 7, 7);
    SHAPE(g, kolo_graph_find(g, "conv.bias"), "and its bias (O)", 8);
    ok(g->tensor[kolo_graph_find(g, "conv.weight")].decay, "weights decay");
    ok(!g->tensor[kolo_graph_find(g, "conv.bias")].decay, "biases do not");
    is_int(kolo_graph_find(g, "conv"), y, "the output bears the module's name");
    is_int(kolo_graph_find(g, "nothing"), -1, "an unknown name is not found");
    int n = kolo_batch_norm(g, "bn", y, 1e-5, 0.1, 1);
    SHAPE(g, n, "batch norm keeps the shape", 4, 8, 16, 17);
    int sums = kolo_graph_find(g, "bn:sums"), statistic = g->node[g->tensor[n].producer].out[1];
    SHAPE(g, sums, "its sums and their count", 17);
    ok(g->tensor[sums].role == KOLO_ROLE_PARTIAL && g->tensor[sums].dtype == KOLO_F64,
       "are a partial in f64");
    SHAPE(g, statistic, "mean, variance and validity", 17);
    is_int(g->tensor[statistic].of, kolo_graph_find(g, "bn.running_mean"), "update the running mean");
    is_int(g->tensor[statistic].of + 1, kolo_graph_find(g, "bn.running_var"),
           "and the running variance after it");
    int p = kolo_max_pool(g, "pool", n, 3, 2, 1);
    SHAPE(g, p, "3x3 pool stride 2 pad 1", 4, 8, 8, 9);
    SHAPE(g, kolo_graph_find(g, "pool:1"), "and its index", 4, 8, 8, 9);
    SHAPE(g, kolo_avg_pool(g, "avg", p, 2, 2, 0, false), "2x2 average pool rounds down", 4, 8, 4, 4);
    SHAPE(g, kolo_shortcut_a(g, "short", p, 16), "shortcut a: every second pixel, more channels", 4, 16, 4,
          5);
    SHAPE(g, kolo_flatten(g, "flat", p), "flatten", 4, 576);
    SHAPE(g, kolo_adaptive_avg_pool(g, "even", p, 7, 12), "average pool to any number of pixels", 4, 8, 7,
          12);
    int q = kolo_global_avg_pool(g, "gap", p);
    SHAPE(g, q, "global average pool", 4, 8);
    int l = kolo_linear(g, "fc", q, 10, true, init, init);
    SHAPE(g, l, "linear", 4, 10);
    SHAPE(g, kolo_cross_entropy(g, l, 0.1), "loss sum, top-1, top-5, rows", 4);
    is_int(g->classes, 10, "the loss counts the classes");
    is_int(g->logits, l, "and names the logits");
    is_int(kolo_graph_parameters(g), 8 * 3 * 49 + 8 + 16 + 90, "parameters are counted");
    is_near(kolo_graph_macs(g), 8.0 * 16 * 17 * 147 + 80, 0, "multiply-accumulates a row, too");
    kolo_graph_destroy(&g);
    ok(g == NULL, "destroy nulls the pointer");
}

static void evaluation(void)
{
    int x;
    kolo_graph *g = fresh(false, 8, 3, &x);
    int n = kolo_batch_norm(g, "bn", x, 1e-5, 0.1, 1);
    const kolo_node *node = &g->node[g->tensor[n].producer];
    is_int(node->op, KOLO_OP_norm_infer, "evaluation takes the running statistics");
    is_int(node->in[4], kolo_graph_find(g, "bn.running_var"), "as its last input");
    is_int(kolo_cross_entropy(g, kolo_linear(g, "fc", kolo_flatten(g, "f", n), 5, false, init, init), 0) >= 0,
           1, "a loss to measure");
    is_int(kolo_graph_backward(g), KOLO_EINTERNAL, "an evaluation graph has no gradients");
    kolo_graph_destroy(&g);
}

static void groups(void)
{
    int x;
    kolo_graph *g = fresh(true, 8, 4, &x);
    kolo_conv_spec s = spec(6, 3, 1, 1);
    s.groups = 2;
    SHAPE(g, kolo_conv(g, "grouped", x, &s), "two groups", 4, 6, 8, 10);
    SHAPE(g, kolo_graph_find(g, "grouped.weight"), "halve the weight's input channels", 6, 2, 3, 3);
    is_near(kolo_graph_macs(g), 6.0 * 80 * 18, 0, "and the work");
    s.groups = 3;
    is_int(kolo_conv(g, "uneven", x, &s), KOLO_ECONFIG, "groups that do not divide the channels are refused");
    kolo_graph_destroy(&g);
}

static void refused(void)
{
    int x;
    kolo_graph *g = fresh(true, 8, 3, &x);
    kolo_conv_spec s = spec(8, 11, 1, 1);
    is_int(kolo_conv(g, "big", x, &s), KOLO_ECONFIG, "a kernel larger than the image");
    ok(strstr(kolo_error_text(), "big") && strstr(kolo_error_text(), "size="), "is named with a cure: %s",
       kolo_error_text());
    s = spec(-4, 3, 1, 1);
    is_int(kolo_conv(g, "negative", x, &s), KOLO_ECONFIG, "a negative channel count");
    ok(strstr(kolo_error_text(), "negative.weight"), "is named: %s", kolo_error_text());
    s = spec(4, 3, 0, 1);
    is_int(kolo_conv(g, "still", x, &s), KOLO_ECONFIG, "stride 0");
    int64_t dim[] = {8, 5, 3, 3};
    kolo_attributes a = {.kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1}, .groups = 1};
    int in[] = {x, kolo_param(g, "five", 4, dim, init, true)};
    is_int(kolo_graph_node(g, KOLO_OP_conv, 2, in, 1, &a, "wrong"), KOLO_ECONFIG,
           "a weight for another channel count");
    ok(strstr(kolo_error_text(), "3 channels") && strstr(kolo_error_text(), "5"), "says both: %s",
       kolo_error_text());
    is_int(kolo_graph_node(g, KOLO_OP_conv, 1, in, 1, &a, "few"), KOLO_EINTERNAL, "too few inputs");
    is_int(kolo_graph_node(g, KOLO_OP_conv_grad_data, 2, in, 1, &a, "back"), KOLO_EINTERNAL,
           "a backward operation has no shape rule");
    is_int(kolo_add(g, "sum", x, kolo_max_pool(g, "p", x, 2, 2, 0)), KOLO_ECONFIG,
           "an addition of different shapes");
    is_int(kolo_max_pool(g, "padded", x, 3, 1, 2), KOLO_ECONFIG, "a pad beyond half of the window");
    is_int(kolo_max_pool(g, "huge", x, 1 << 20, 1, 0), KOLO_ECONFIG, "a huge window");
    is_int(kolo_shortcut_a(g, "odd", x, 6), KOLO_ECONFIG, "an uneven number of zero channels");
    is_int(kolo_linear(g, "vector", kolo_param(g, "v", 1, dim, init, true), 4, true, init, init),
           KOLO_ECONFIG, "linear on a vector");
    is_int(kolo_relu(g, "p", x), KOLO_EINTERNAL, "a name used twice");
    is_int(kolo_conv(g, "pass", KOLO_ECONFIG, &s), KOLO_ECONFIG, "a failed input is passed through");
    is_int(kolo_add(g, "pass", x, KOLO_EINPUT), KOLO_EINPUT, "with its own status");
    is_int(kolo_cross_entropy(g, kolo_flatten(g, "f", x), 1.5), KOLO_ECONFIG, "label smoothing above 1");
    kolo_graph_destroy(&g);
    is_int(kolo_graph_create(&g, "x", true, KOLO_U8), KOLO_ECONFIG, "activations in bytes");
    if (kolo_graph_create(&g, "x", true, KOLO_F32) < 0) exit(1);
    is_int(kolo_input(g, -1, 8, 8, 3, 1), KOLO_ECONFIG, "a negative batch");
    is_int(kolo_input(g, INT64_C(1) << 40, 1 << 20, 1 << 20, 3, 1), KOLO_ECONFIG,
           "an image whose elements cannot be counted");
    int five = kolo_input(g, 2, 8, 8, 5, 1);
    is_int(kolo_normalize(g, five, mean, std_), KOLO_ECONFIG, "an image of five channels");
    kolo_graph_destroy(&g);
    if (kolo_graph_create(&g, "x", true, KOLO_F32) < 0) exit(1);
    const float zero[4] = {0};
    is_int(kolo_normalize(g, kolo_input(g, 2, 8, 8, 1, 1), mean, zero), KOLO_ECONFIG,
           "a standard deviation of 0");
    kolo_graph_destroy(&g);
}

int main(void)
{
    forward_shapes();
    evaluation();
    groups();
    refused();
    return done_testing();
}
