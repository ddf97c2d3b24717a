/* Autodiff and fusion on small graphs whose result can be written by hand. */
#include "graph/graph.h"
#include "kolo/error.h"
#include "tap.h"

static const float mean[4] = {0}, one[4] = {1, 1, 1, 1};
static const kolo_init init = {KOLO_INIT_NORMAL, 0.1};

static kolo_graph *fresh(enum kolo_dtype dtype, bool train, int *x)
{
    kolo_graph *g = NULL;
    if (kolo_graph_create(&g, "test", train, dtype) < 0) exit(1);
    *x = kolo_normalize(g, kolo_input(g, 2, 8, 8, 4, 1), mean, one);
    return g;
}

static int conv(kolo_graph *g, const char *name, int x)
{
    kolo_conv_spec s = {.out = 4, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = init};
    return kolo_conv(g, name, x, &s);
}

static int norm(kolo_graph *g, const char *name, int x) { return kolo_batch_norm(g, name, x, 1e-5, 0.1, 1); }

static void finish(kolo_graph *g, int x)
{
    if (kolo_cross_entropy(g, kolo_global_avg_pool(g, "pool", x), 0) < 0) printf("Bail out! %s\n", kolo_error_text());
}

/* "op op op" of the nodes from `first` on. */
static void ops_are(const kolo_graph *g, int64_t first, const char *want, const char *what)
{
    char got[1000] = "";
    for (int64_t i = first; i < g->nodes; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i == first ? "" : " ", kolo_op_table[g->node[i].op].name);
    is_text(got, want, "%s", what);
}

static const kolo_node *maker(const kolo_graph *g, const char *tensor)
{
    int t = kolo_graph_find(g, tensor);
    static const kolo_node none = {.op = KOLO_OP_COUNT};
    return t < 0 || g->tensor[t].producer < 0 ? &none : &g->node[g->tensor[t].producer];
}

static void chain(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_BF16, true, &x);
    int y = kolo_relu(g, "relu", conv(g, "b", conv(g, "a", x)));
    finish(g, y);
    int64_t forward = g->nodes;
    is_int(kolo_graph_backward(g), 0, "backward of a chain");
    ops_are(g, forward, "cross_entropy_grad global_avg_pool_grad relu_grad conv_grad_weight conv_grad_data conv_grad_weight",
            "runs in reverse, weights first, and stops before the pixels");
    int w = kolo_graph_find(g, "a.weight"), d = kolo_graph_find(g, "grad:a.weight");
    is_int(g->grad[w], d, "a parameter's gradient is found");
    ok(g->tensor[d].role == KOLO_ROLE_GRADIENT && g->tensor[d].of == w, "and points back");
    is_int(g->tensor[d].dtype, KOLO_F32, "it is f32");
    is_int(g->tensor[g->grad[kolo_graph_find(g, "a")]].dtype, KOLO_BF16, "an activation's gradient has the activations' type");
    is_int(g->grad[x], -1, "the pixels have none");
    ok(g->node[forward].backward && !g->node[forward - 1].backward, "backward nodes are marked");
    is_int(kolo_graph_backward(g), KOLO_EINTERNAL, "a second backward is refused");
    is_int(kolo_graph_fuse(g), KOLO_EINTERNAL, "and so is fusion after it");
    kolo_graph_destroy(&g);
}

static void fan_out(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int a = conv(g, "a", x), b = conv(g, "b", a), c = conv(g, "c", a);
    finish(g, kolo_add(g, "sum", kolo_add(g, "bc", b, c), a));
    int64_t forward = g->nodes;
    is_int(kolo_graph_backward(g), 0, "backward where a tensor is read three times");
    ops_are(g, forward,
            "cross_entropy_grad global_avg_pool_grad conv_grad_weight conv_grad_data add conv_grad_weight "
            "conv_grad_data conv_grad_weight",
            "three parts: an addition, since the gradient of the sum is read later, then the last convolution adds");
    is_int(g->grad[b], g->grad[kolo_graph_find(g, "sum")], "both inputs of an addition share its gradient");
    const kolo_node *last = &g->node[g->tensor[g->grad[a]].producer];
    is_int(last->op, KOLO_OP_conv_grad_data, "the whole gradient is what that convolution makes");
    is_int(g->node[g->tensor[last->in[2]].producer].op, KOLO_OP_add, "of the other two parts' sum");
    is_int(g->tensor[last->in[2]].role, KOLO_ROLE_ACTIVATION, "whose memory it may take");
    is_int(maker(g, "grad:a.weight")->in[1], g->grad[a], "which the convolution before it reads");
    int readers = 0;
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++) readers += g->node[i].in[k] == g->grad[b];
    is_int(readers, 5, "the shared gradient is read by four convolution gradients and one addition");
    kolo_graph_destroy(&g);
}

static void doubled(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int a = conv(g, "a", x);
    finish(g, kolo_add(g, "twice", a, a));
    is_int(kolo_graph_backward(g), 0, "backward of a + a");
    const kolo_node *sum = &g->node[g->tensor[g->grad[a]].producer];
    ok(sum->op == KOLO_OP_add && sum->in[0] == sum->in[1], "is the sum's gradient twice");
    kolo_graph_destroy(&g);
}

static void shared_parameter(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int a = conv(g, "a", x);
    kolo_node first = g->node[g->tensor[a].producer];
    int in[] = {a, first.in[1]};
    int again = kolo_graph_node(g, KOLO_OP_conv, 2, in, 1, &first.a, "again");
    finish(g, g->node[again].out[0]);
    is_int(kolo_graph_backward(g), KOLO_EINTERNAL, "a parameter of two operations is refused");
    ok(strstr(kolo_error_text(), "a.weight"), "by its name: %s", kolo_error_text());
    kolo_graph_destroy(&g);
}

static void plain_norm(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    finish(g, norm(g, "bn", x));
    int64_t forward = g->nodes;
    is_int(kolo_graph_backward(g), 0, "backward of a norm on pixels");
    ops_are(g, forward, "cross_entropy_grad global_avg_pool_grad norm_grad_stats", "needs no gradient of the pixels");
    const kolo_node *stats = &g->node[g->nodes - 1];
    is_int(stats->in[2], -1, "without relu y is not read");
    const kolo_tensor *dsums = &g->tensor[stats->out[0]];
    ok(dsums->role == KOLO_ROLE_PARTIAL && dsums->dtype == KOLO_F64 && dsums->dim[0] == 8, "its sums are a partial of 2C in f64");
    ok(g->grad[kolo_graph_find(g, "bn.bias")] == stats->out[2], "weight and bias have gradients");
    kolo_graph_destroy(&g);
}

/* relu(norm(conv(x)) + branch) in both orders */
static void residual(bool train, bool swapped)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, train, &x);
    int a = conv(g, "a", x), n = norm(g, "bn", conv(g, "b", a));
    finish(g, kolo_relu(g, "out", swapped ? kolo_add(g, "sum", a, n) : kolo_add(g, "sum", n, a)));
    is_int(kolo_graph_fuse(g), 0, "fuse %s, norm %s", train ? "training" : "evaluation", swapped ? "second" : "first");
    ops_are(g, 0,
            train ? "normalize conv conv norm_stats norm_apply global_avg_pool cross_entropy" : "normalize conv conv norm_infer global_avg_pool cross_entropy",
            "norm, addition and relu are one");
    const kolo_node *joined = maker(g, "out");
    ok(joined->a.relu, "with relu");
    is_int(joined->in[joined->n_in - 1], kolo_graph_find(g, "a"), "and the residual last");
    is_int(kolo_graph_find(g, "bn"), -1, "tensors between are gone");
    is_int(g->tensor[g->logits].producer, g->nodes - 2, "the logits are renumbered");
    if (train) is_int(g->tensor[joined->out[1]].of, kolo_graph_find(g, "bn.running_mean"), "and the statistic's buffer");
    if (train) {
        int64_t forward = g->nodes;
        is_int(kolo_graph_backward(g), 0, "backward");
        ops_are(g, forward,
                "cross_entropy_grad global_avg_pool_grad norm_grad_stats norm_grad_apply conv_grad_weight "
                "conv_grad_data conv_grad_weight",
                "the residual's gradient joins the branch's");
        const kolo_node *apply = &g->node[forward + 3];
        ok(apply->n_out == 2 && apply->in[2] == kolo_graph_find(g, "out"), "it comes from the norm, masked by y");
    }
    kolo_graph_destroy(&g);
}

static void two_norms(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int a = conv(g, "a", x), n = norm(g, "main", conv(g, "b", a)), d = norm(g, "down", conv(g, "c", a));
    finish(g, kolo_relu(g, "out", kolo_add(g, "sum", n, d)));
    is_int(kolo_graph_fuse(g), 0, "fuse two norms into one addition");
    const kolo_node *joined = maker(g, "out");
    is_int(joined->in[4], kolo_graph_find(g, "c"), "what the second one norms is the first one's residual");
    is_int(joined->in[6], kolo_graph_find(g, "down.weight"), "with its norm");
    ok(joined->n_out == 4 && g->tensor[joined->out[3]].of == kolo_graph_find(g, "down.running_mean"), "whose statistic is made there");
    is_int(kolo_graph_find(g, "down"), -1, "and nothing else of it is left");
    is_int(kolo_graph_backward(g), 0, "backward");
    is_int(maker(g, "grad:down.weight")->in[0], maker(g, "grad:main.weight")->in[0], "both norms' gradients read that of the sum");
    is_int(maker(g, "grad:down.weight")->in[2], kolo_graph_find(g, "out"), "and its sign from what the relu made");
    is_int(maker(g, "grad:b")->n_out, 1, "so that none is written for the other");
    kolo_graph_destroy(&g);
}

/* One norm's arithmetic cannot serve another. */
static void unlike_norms(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int a = conv(g, "a", x), n = norm(g, "main", conv(g, "b", a)), d = kolo_batch_norm(g, "down", conv(g, "c", a), 1e-3, 0.1, 1);
    finish(g, kolo_relu(g, "out", kolo_add(g, "sum", n, d)));
    is_int(kolo_graph_fuse(g), 0, "fuse two norms of unlike epsilon");
    is_int(maker(g, "out")->in[4], kolo_graph_find(g, "down"), "the second stays a norm by itself");
    is_int(kolo_graph_backward(g), 0, "backward");
    is_int(maker(g, "grad:down.weight")->in[0], maker(g, "grad:b")->out[1], "which gets the residual's gradient");
    kolo_graph_destroy(&g);
}

static void kept_apart(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int n = norm(g, "bn", conv(g, "a", x)), r = kolo_relu(g, "relu", n);
    finish(g, kolo_add(g, "sum", r, n));
    int64_t nodes = g->nodes, tensors = g->tensors;
    is_int(kolo_graph_fuse(g), 0, "a norm that is read twice");
    ok(g->nodes == nodes && g->tensors == tensors, "stays apart from its relu");
    kolo_graph_destroy(&g);
    g = fresh(KOLO_F32, true, &x);
    n = norm(g, "bn", conv(g, "a", x));
    finish(g, kolo_relu(g, "relu", kolo_add(g, "twice", n, n)));
    nodes = g->nodes;
    is_int(kolo_graph_fuse(g), 0, "norm + norm of the same tensor");
    is_int(g->nodes, nodes, "stays apart, too");
    kolo_graph_destroy(&g);
}

/* For devices, after the gradients: sums with the convolution that they are of. */
static void sums(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F16, true, &x);
    kolo_conv_spec biased = {
        .out = 4, .kernel = {1, 1}, .stride = {1, 1}, .bias = true, .weight = init, .bias_init = init};
    kolo_conv_spec grouped = {.out = 4, .kernel = {1, 1}, .stride = {1, 1}, .groups = 2, .weight = init};
    x = kolo_relu(g, "r", norm(g, "na", conv(g, "a", x)));
    x = norm(g, "nc", kolo_conv(g, "c", norm(g, "nb", kolo_conv(g, "b", x, &biased)), &grouped));
    finish(g, x);
    is_int(kolo_graph_fuse(g), 0, "norm and relu are joined");
    is_int(kolo_graph_backward(g), 0, "gradients");
    const int64_t tensors = g->tensors, nodes = g->nodes;
    is_int(kolo_graph_fuse_conv(g), 0, "then convolutions and sums");
    char ops[200] = "";
    for (int64_t i = 0; i < 9; i++)
        snprintf(ops + strlen(ops), sizeof ops - strlen(ops), "%s ", kolo_op_table[g->node[i].op].name);
    is_text(ops, "normalize conv_stats norm_apply conv norm_stats norm_apply conv norm_stats norm_apply ",
            "one convolution has its sums; with a bias, or in groups, it has not");
    ok(g->tensors == tensors && g->nodes == nodes - 1, "one operation is gone, and no tensor");
    ok(maker(g, "a")->op == KOLO_OP_conv_stats && maker(g, "na:sums") == maker(g, "a"),
       "y and its sums have one maker");
    ok(maker(g, "grad:a.weight")->op == KOLO_OP_conv_grad_weight &&
           g->grad[kolo_graph_find(g, "a.weight")] == kolo_graph_find(g, "grad:a.weight"),
       "gradients are found as before");
    kolo_graph_destroy(&g);
}

int main(void)
{
    sums();
    chain();
    fan_out();
    doubled();
    shared_parameter();
    plain_norm();
    for (int i = 0; i < 4; i++) residual(i & 1, i & 2);
    two_norms();
    unlike_norms();
    kept_apart();
    return done_testing();
}
