/* Layers of transformers, detectors and faces in the graph: shapes, what their gradients read, what is
 * drawn, what is refused. */
#include "graph/graph.h"
#include "kolo/error.h"
#include "tap.h"

static const float mean[4] = {0}, one[4] = {1, 1, 1, 1};
static const kolo_init init = {KOLO_INIT_NORMAL, 0.1};
enum { BOXES = 7 };

/* Images of 16 x 24 pixels, then a 1x1 convolution to `channels`, which wants a gradient. */
static kolo_graph *fresh(bool train, int64_t channels, int64_t words, int *x)
{
    kolo_graph *g = NULL;
    if (kolo_graph_create(&g, "test", train, KOLO_F32) < 0) exit(1);
    kolo_conv_spec s = {.out = channels, .kernel = {1, 1}, .stride = {1, 1}, .weight = init};
    *x = kolo_conv(g, "stem", kolo_normalize(g, kolo_input(g, 2, 16, 24, 3, words), mean, one), &s);
    return g;
}

static void shape_is(const kolo_graph *g, int t, const char *want, const char *what)
{
    char got[160] = "";
    for (int i = 0; t >= 0 && i < g->tensor[t].rank; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%lld", i ? "," : "",
                 (long long)g->tensor[t].dim[i]);
    is_text(t < 0 ? kolo_error_text() : got, want, "%s", what);
}

/* "out <- in in" of the nodes of `op`, by names. */
static void nodes_are(const kolo_graph *g, enum kolo_op op, const char *want, const char *what)
{
    char got[1000] = "";
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        if (n->op != op) continue;
        for (int k = 0; k < n->n_out + n->n_in; k++) {
            int t = k < n->n_out ? n->out[k] : n->in[k - n->n_out];
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s",
                     !k              ? (*got ? "; " : "")
                     : k == n->n_out ? " <- "
                                     : " ",
                     t < 0 ? "-" : g->tensor[t].name);
        }
    }
    is_text(got, want, "%s", what);
}

static void finish(kolo_graph *g, int x)
{
    int rc = kolo_cross_entropy(g, kolo_global_avg_pool(g, "pool", x), 0);
    if (rc >= 0) rc = kolo_graph_backward(g);
    if (rc < 0) printf("Bail out! %s\n", kolo_error_text());
}

static void rearranging(void)
{
    int x;
    kolo_graph *g = fresh(true, 6, 1, &x);
    int p = kolo_pad(g, "pad", x, 5, 4), s = kolo_space_to_depth(g, "s2d", p);
    shape_is(g, p, "2,6,21,28", "pad adds rows below and columns on the right");
    shape_is(g, s, "2,24,11,14", "squares become channels, an odd last row too");
    int u = kolo_upsample(g, "up", s, 2), c = kolo_crop(g, "crop", u, 1, 0);
    shape_is(g, u, "2,24,22,28", "upsample doubles the sides");
    shape_is(g, c, "2,24,21,28", "crop takes rows away");
    int all[] = {p, kolo_slice_channels(g, "part", c, 3, 5), c};
    int y = kolo_concat(g, "cat", 3, all);
    shape_is(g, y, "2,35,21,28", "concat adds channels");
    finish(g, y);
    nodes_are(g, KOLO_OP_slice,
              "part <- crop; grad:pad <- grad:cat; grad:part <- grad:cat; grad:crop <- grad:cat",
              "concat's gradient is slices of y's");
    int64_t last = g->nodes - 1;
    while (g->node[last].op != KOLO_OP_slice) last--;
    is_int(g->node[last].a.first, 11, "which begin where the input stands");
    is_int(g->node[last].a.count, 24, "and have its channels");
    nodes_are(g, KOLO_OP_slice_grad, "grad:crop:1 <- grad:part", "a slice's gradient has zeros elsewhere");
    nodes_are(g, KOLO_OP_crop, "crop <- up; grad:stem <- grad:pad:2", "a pad's gradient is a crop");
    kolo_graph_destroy(&g);
}

static void tokens(void)
{
    int x;
    kolo_graph *g = fresh(true, 12, 1, &x);
    int n = kolo_layer_norm(g, "norm", x, 1e-5);
    shape_is(g, kolo_graph_find(g, "norm.weight"), "12", "layer norm has a weight a channel");
    ok(!g->tensor[kolo_graph_find(g, "norm.weight")].decay, "which does not decay");
    int qkv = kolo_linear(g, "qkv", n, 36, true, init, init);
    shape_is(g, qkv, "2,36,16,24", "a linear layer works on the channels of each pixel");
    shape_is(g, kolo_graph_find(g, "qkv.weight"), "36,12", "with a weight (O,I)");
    int a = kolo_window_attention(g, "attn", qkv, 2, 8, (const int64_t[]){4, 0});
    shape_is(g, a, "2,12,16,24", "attention gives values");
    shape_is(g, kolo_graph_find(g, "attn.relative_position_bias_table"), "225,2",
             "and has a bias a distance and head");
    int64_t dim[] = {12, 1, 1};
    int scale = kolo_param(g, "layer_scale", 3, dim, init, false);
    int y = kolo_residual(g, "sum", x, kolo_activate(g, "act", a, KOLO_GELU, 0), scale, 0.2);
    y = kolo_residual(g, "sum2", y, kolo_dropout(g, "drop", n, 0.5), -1, 0);
    y = kolo_residual(g, "sum3", y, kolo_pointwise(g, "point", n, 12, false, init, init), -1, 0.1);
    shape_is(g, kolo_graph_find(g, "point.weight"), "12,12,1,1",
             "a pointwise weight is stored as a convolution's");
    is_int(g->node[g->tensor[kolo_graph_find(g, "sum2")].producer].op, KOLO_OP_add,
           "a residual without scale and drop is an addition");
    is_int(g->draws, 3, "what draws is counted");
    is_int(g->node[g->tensor[y].producer].a.draw, 2, "and numbered");
    finish(g, y);
    nodes_are(g, KOLO_OP_residual_grad,
              "grad:point - <- grad:sum3 - -; grad:act grad:layer_scale <- grad:sum3 act layer_scale",
              "without a scale the branch is not read again, and x has y's gradient");
    nodes_are(
        g, KOLO_OP_window_attention_grad,
        "grad:qkv grad:attn.relative_position_bias_table <- grad:attn qkv attn.relative_position_bias_table",
        "attention is computed again in its gradient");
    nodes_are(g, KOLO_OP_layer_norm_grad,
              "grad:stem:1 grad:norm.weight grad:norm.bias <- grad:norm:4 stem norm.weight grad:sum3",
              "layer norm too; what the residual sends to its input is added there");
    kolo_graph_destroy(&g);
}

static void evaluation_drops_nothing(void)
{
    int x;
    kolo_graph *g = fresh(false, 4, 1, &x);
    is_int(kolo_dropout(g, "drop", x, 0.5), x, "no dropout in evaluation");
    int y = kolo_residual(g, "sum", x, kolo_relu(g, "branch", x), -1, 0.5);
    is_int(g->node[g->tensor[y].producer].op, KOLO_OP_add, "no stochastic depth either");
    is_int(g->draws, 0, "nothing draws");
    kolo_graph_destroy(&g);
}

static void labels(void)
{
    int x;
    kolo_graph *g = fresh(true, 5, 3, &x);
    shape_is(g, g->label, "2,3", "a mixed label has two classes and a weight");
    ok(kolo_bce(g, kolo_global_avg_pool(g, "pool", x), 0.1) >= 0, "a loss takes it");
    is_int(g->classes, 5, "the classes are the logits");
    kolo_graph_destroy(&g);
    g = fresh(true, 5, 4, &x);
    is_int(kolo_cross_entropy(g, kolo_global_avg_pool(g, "pool", x), 0), KOLO_EINTERNAL,
           "four words are no label");
    kolo_graph_destroy(&g);
}

static void detectors(void)
{
    for (int train = 0; train < 2; train++) {
        int x;
        kolo_graph *g = fresh(train, 8, 1 + 5 * BOXES, &x);
        int head[] = {x, kolo_max_pool(g, "half", x, 2, 2, 0)};
        int metrics = kolo_detect_loss(g, "yolox", 2, head, 1, true, &(kolo_attributes){.centre = true});
        is_text(g->detector, "yolox", "the graph finds boxes");
        is_int(g->classes, 3, "of as many classes as a head has channels beyond 5");
        is_int(g->heads, 2, "and names its outputs");
        if (!train) is_int(g->metrics, -1, "without a loss in evaluation");
        else {
            shape_is(g, metrics, "8", "with its parts as metrics");
            shape_is(g, g->node[g->tensor[metrics].producer].out[1], "2,480", "and the box of each anchor");
            is_int(kolo_graph_backward(g), 0, "backward");
            nodes_are(g, KOLO_OP_detect_loss_grad,
                      "grad:stem grad:half <- stem half label metrics:1 metrics:2",
                      "one node makes all heads' gradients from what the loss found");
        }
        kolo_graph_destroy(&g);
    }
}

static void faces(void)
{
    int x;
    kolo_graph *g = fresh(true, 5, 1, &x);
    int c = kolo_cosine(g, "head", kolo_global_avg_pool(g, "pool", x), 9, init);
    shape_is(g, c, "2,9", "a cosine a class");
    int y = kolo_arc_margin(g, "margin", c, 0.5, 64);
    is_int(kolo_cross_entropy(g, y, 0) >= 0 && kolo_graph_backward(g) == 0, 1, "with a margin and a loss");
    nodes_are(g, KOLO_OP_cosine_grad, "grad:pool grad:head.weight <- grad:head head pool head.weight",
              "and a gradient");
    nodes_are(g, KOLO_OP_arc_margin_grad, "grad:head <- grad:margin head label", "that knows the labels");
    kolo_graph_destroy(&g);
}

static void refusals(void)
{
    int x;
    kolo_graph *g = fresh(true, 12, 1, &x);
    const int64_t none[2] = {0, 0}, large[2] = {8, 0};
    is_int(kolo_crop(g, "a", x, 16, 0), KOLO_EINTERNAL, "a crop of everything");
    is_int(kolo_slice_channels(g, "b", x, 10, 3), KOLO_ECONFIG, "channels that are not there");
    ok(strstr(kolo_error_text(), "10 to 12"), "says which: %s", kolo_error_text());
    int both[] = {x, kolo_max_pool(g, "half", x, 2, 2, 0)};
    is_int(kolo_concat(g, "c", 2, both), KOLO_ECONFIG, "maps of two sizes put together");
    ok(strstr(kolo_error_text(), "size="), "with the cure: %s", kolo_error_text());
    is_int(kolo_window_attention(g, "d", x, 2, 7, none), KOLO_ECONFIG, "windows that do not fill the map");
    is_int(kolo_window_attention(g, "e", x, 2, 8, large), KOLO_ECONFIG, "a shift of a whole window");
    is_int(kolo_window_attention(g, "f", x, 5, 8, none), KOLO_ECONFIG,
           "heads that do not share the channels");
    is_int(kolo_residual(g, "h", x, x, -1, 1), KOLO_ECONFIG, "a branch that is always dropped");
    is_int(kolo_residual(g, "i", x, both[1], -1, 0.5), KOLO_ECONFIG, "a branch of another shape");
    is_int(kolo_gate(g, "j", x, x), KOLO_ECONFIG, "a gate of maps");
    is_int(kolo_upsample(g, "k", x, 0), KOLO_ECONFIG, "no size at all");
    is_int(kolo_detect_loss(g, "yolox", 1, &x, 1, true, &(kolo_attributes){.centre = true}), KOLO_EINTERNAL,
           "classes instead of boxes");
    is_int(kolo_layer_norm(g, "l", x, 0), KOLO_ECONFIG, "no epsilon");
    is_int(kolo_layer_norm(g, "m", KOLO_EINPUT, 1), KOLO_EINPUT, "a failed input is passed through");
    kolo_graph_destroy(&g);
}

int main(void)
{
    rearranging();
    tokens();
    evaluation_drops_nothing();
    labels();
    detectors();
    faces();
    refusals();
    return done_testing();
}
