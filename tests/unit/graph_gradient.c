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
    if (kolo_cross_entropy(g, kolo_global_avg_pool(g, "pool", x), 0) < 0)
        printf("Bail out! %s\n", kolo_error_text());
}

/* "op op op" of the nodes from `first` on. */
static void ops_are(const kolo_graph *g, int64_t first, const char *want, const char *what)
{
    char got[1000] = "";
    for (int64_t i = first; i < g->nodes; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i == first ? "" : " ",
                 kolo_op_table[g->node[i].op].name);
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
    ops_are(
        g, forward,
        "cross_entropy_grad global_avg_pool_grad relu_grad conv_grad_weight conv_grad_data conv_grad_weight",
        "runs in reverse, weights first, and stops before the pixels");
    int w = kolo_graph_find(g, "a.weight"), d = kolo_graph_find(g, "grad:a.weight");
    is_int(g->grad[w], d, "a parameter's gradient is found");
    ok(g->tensor[d].role == KOLO_ROLE_GRADIENT && g->tensor[d].of == w, "and points back");
    is_int(g->tensor[d].dtype, KOLO_F32, "it is f32");
    is_int(g->tensor[g->grad[kolo_graph_find(g, "a")]].dtype, KOLO_BF16,
           "an activation's gradient has the activations' type");
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
            "three parts: an addition, since the gradient of the sum is read later, then the last "
            "convolution adds");
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
    is_int(kolo_graph_backward(g), 0, "backward of a parameter that two operations read");
    const kolo_node *sum = maker(g, "grad:a.weight");
    ok(sum->op == KOLO_OP_total && sum->n_in == 2 && g->node[g->tensor[sum->in[0]].producer].in[0] == x,
       "its gradient is the total of two terms, that of the first reader first");
    const kolo_tensor *term = &g->tensor[sum->in[1]];
    ok(term->role == KOLO_ROLE_TERM && term->of == first.in[1], "which are laid out as it is");
    kolo_graph_destroy(&g);
}

static void plain_norm(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    finish(g, norm(g, "bn", x));
    int64_t forward = g->nodes;
    is_int(kolo_graph_backward(g), 0, "backward of a norm on pixels");
    ops_are(g, forward, "cross_entropy_grad global_avg_pool_grad norm_grad_stats",
            "needs no gradient of the pixels");
    const kolo_node *stats = &g->node[g->nodes - 1];
    is_int(stats->in[2], -1, "without relu y is not read");
    const kolo_tensor *dsums = &g->tensor[stats->out[0]];
    ok(dsums->role == KOLO_ROLE_PARTIAL && dsums->dtype == KOLO_F64 && dsums->dim[0] == 8,
       "its sums are a partial of 2C in f64");
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
    is_int(kolo_graph_fuse(g), 0, "fuse %s, norm %s", train ? "training" : "evaluation",
           swapped ? "second" : "first");
    ops_are(g, 0,
            train ? "normalize conv conv norm_stats norm_apply global_avg_pool cross_entropy"
                  : "normalize conv conv norm_infer global_avg_pool cross_entropy",
            "norm, addition and relu are one");
    const kolo_node *joined = maker(g, "out");
    ok(joined->a.relu, "with relu");
    is_int(joined->in[joined->n_in - 1], kolo_graph_find(g, "a"), "and the residual last");
    is_int(kolo_graph_find(g, "bn"), -1, "tensors between are gone");
    is_int(g->tensor[g->logits].producer, g->nodes - 2, "the logits are renumbered");
    if (train)
        is_int(g->tensor[joined->out[1]].of, kolo_graph_find(g, "bn.running_mean"),
               "and the statistic's buffer");
    if (train) {
        int64_t forward = g->nodes;
        is_int(kolo_graph_backward(g), 0, "backward");
        ops_are(g, forward,
                "cross_entropy_grad global_avg_pool_grad norm_grad_stats norm_grad_apply conv_grad_weight "
                "conv_grad_data conv_grad_weight",
                "the residual's gradient joins the branch's");
        const kolo_node *apply = &g->node[forward + 3];
        ok(apply->n_out == 2 && apply->in[2] == kolo_graph_find(g, "out"),
           "it comes from the norm, masked by y");
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
    ok(joined->n_out == 4 && g->tensor[joined->out[3]].of == kolo_graph_find(g, "down.running_mean"),
       "whose statistic is made there");
    is_int(kolo_graph_find(g, "down"), -1, "and nothing else of it is left");
    is_int(kolo_graph_backward(g), 0, "backward");
    is_int(maker(g, "grad:down.weight")->in[0], maker(g, "grad:main.weight")->in[0],
           "both norms' gradients read that of the sum");
    is_int(maker(g, "grad:down.weight")->in[2], kolo_graph_find(g, "out"),
           "and its sign from what the relu made");
    is_int(maker(g, "grad:b")->n_out, 1, "so that none is written for the other");
    const int64_t nodes = g->nodes;
    is_int(kolo_graph_fuse_conv(g, false), 0, "for devices");
    const kolo_node *both = maker(g, "grad:b");
    ok(both->op == KOLO_OP_norms_grad_apply && both == maker(g, "grad:c") && g->nodes == nodes - 3,
       "both norms' inputs get their gradients from one operation");
    ok(both->in[1] == kolo_graph_find(g, "b") && both->in[6] == kolo_graph_find(g, "c") &&
           both->in[2] == kolo_graph_find(g, "out") && both->in[5] == kolo_graph_find(g, "main.weight") &&
           both->in[9] == kolo_graph_find(g, "down.weight") && both->out[1] == kolo_graph_find(g, "grad:c"),
       "each from its own norm");
    kolo_graph_destroy(&g);
}

/* One norm's arithmetic cannot serve another. */
static void unlike_norms(void)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    int a = conv(g, "a", x), n = norm(g, "main", conv(g, "b", a)),
        d = kolo_batch_norm(g, "down", conv(g, "c", a), 1e-3, 0.1, 1);
    finish(g, kolo_relu(g, "out", kolo_add(g, "sum", n, d)));
    is_int(kolo_graph_fuse(g), 0, "fuse two norms of unlike epsilon");
    is_int(maker(g, "out")->in[4], kolo_graph_find(g, "down"), "the second stays a norm by itself");
    is_int(kolo_graph_backward(g), 0, "backward");
    is_int(maker(g, "grad:down.weight")->in[0], maker(g, "grad:b")->out[1],
           "which gets the residual's gradient");
    is_int(kolo_graph_fuse_conv(g, false), 0, "for devices");
    is_int(maker(g, "grad:b")->op, KOLO_OP_norm_grad_apply, "their gradients stay apart, too");
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

/* A map that a norm with relu makes for a max pool alone. */
static kolo_graph *pooled(bool pools, int64_t kernel, int64_t stride, bool read_twice)
{
    int x;
    kolo_graph *g = fresh(KOLO_F32, true, &x);
    g->pools = pools;
    int r = kolo_relu(g, "relu", norm(g, "bn", conv(g, "a", x))),
        y = kolo_max_pool(g, "y", r, kernel, stride, 0);
    finish(g, read_twice ? kolo_add(g, "sum", y, kolo_avg_pool(g, "mean", r, kernel, stride, 0, false)) : y);
    is_int(kolo_graph_fuse(g), 0, "fuse a norm and a max pool of %d, stride %d", (int)kernel, (int)stride);
    return g;
}

static void pools(void)
{
    kolo_graph *g = pooled(true, 3, 2, false);
    ops_are(g, 0, "normalize conv norm_stats norm_max_pool global_avg_pool cross_entropy",
            "norm, relu and max pool are one");
    const kolo_node *n = maker(g, "y");
    ok(n->a.relu && n->a.epsilon == 1e-5 && n->a.kernel[0] == 3 && n->a.stride[1] == 2,
       "with what each of them says");
    is_int(g->tensor[n->out[2]].of, kolo_graph_find(g, "bn.running_mean"), "it makes the statistic");
    is_int(kolo_graph_find(g, "relu"), -1, "and there is no map between");
    const int64_t forward = g->nodes;
    is_int(kolo_graph_backward(g), 0, "backward");
    ops_are(g, forward,
            "cross_entropy_grad global_avg_pool_grad norm_max_pool_grad_stats norm_max_pool_grad_apply "
            "conv_grad_weight",
            "nor is there its gradient");
    const kolo_node *apply = maker(g, "grad:a");
    ok(apply->in[0] == g->grad[kolo_graph_find(g, "y")] && apply->in[2] == kolo_graph_find(g, "y:1"),
       "it goes from the pool's, by the index");
    kolo_graph_destroy(&g);
    static const char apart[] = "normalize conv norm_stats norm_apply max_pool global_avg_pool cross_entropy";
    g = pooled(false, 3, 2, false);
    ops_are(g, 0, apart, "on a CPU they are two");
    kolo_graph_destroy(&g);
    g = pooled(true, 3, 1, false);
    ops_are(g, 0, apart, "and where every element would be normed nine times");
    kolo_graph_destroy(&g);
    g = pooled(true, 2, 2, true);
    ops_are(g, 0, "normalize conv norm_stats norm_apply max_pool avg_pool add global_avg_pool cross_entropy",
            "and where something else reads the map");
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
    is_int(kolo_graph_fuse_conv(g, false), 0, "then convolutions and sums");
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

/* As a network of residual blocks: maps of `out` channels. */
static int block_conv(kolo_graph *g, const char *name, int x, int64_t out)
{
    kolo_conv_spec s = {.out = out, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = init};
    return kolo_conv(g, name, x, &s);
}

/* A block whose shortcut is x (down false) or the norm of a convolution of it; its tensors
 * are NAMEa, NAMEb, ... */
static int block(kolo_graph *g, const char *name, int x, bool down, int64_t out)
{
    char n[8][16];
    for (int i = 0; i < 8; i++) snprintf(n[i], sizeof n[i], "%s%c", name, 'a' + i);
    int y = kolo_relu(g, n[2], norm(g, n[1], block_conv(g, n[0], x, out)));
    y = norm(g, n[4], block_conv(g, n[3], y, out));
    if (down) x = norm(g, n[6], block_conv(g, n[5], x, out));
    char sum[16];
    snprintf(sum, sizeof sum, "%s+", name);
    return kolo_relu(g, name, kolo_add(g, sum, y, x));
}

static kolo_graph *blocks(enum kolo_dtype dtype, int64_t channels, int64_t *forward)
{
    int x;
    kolo_graph *g = fresh(dtype, true, &x);
    g->signs = true;
    x = kolo_max_pool(g, "stem", kolo_relu(g, "r", norm(g, "n", block_conv(g, "c", x, channels))), 3, 2, 1);
    x = block(g, "1", x, false, channels);
    x = block(g, "2", x, true, channels);
    finish(g, block(g, "3", x, false, channels));
    if (kolo_graph_fuse(g) < 0) exit(1);
    *forward = g->nodes;
    if (kolo_graph_backward(g) < 0) exit(1);
    return g;
}

/* Data gradients with the mask and the sums of the norm in front: what is fused, and what is left. */
static void masked(void)
{
    int64_t forward;
    kolo_graph *g = blocks(KOLO_F16, 16, &forward);
    is_int(kolo_graph_fuse_grad(g), 0, "data gradients and sums of norms, fp16");
    ops_are(g, forward,
            "cross_entropy_grad global_avg_pool_grad norm_grad_stats norm_grad_apply " /* 3: from a pool */
            "conv_grad_weight conv_grad_norm norm_grad_apply conv_grad_weight conv_grad_norm "
            "norm_grad_apply norm_grad_apply conv_grad_weight conv_grad_data " /* 2, and its shortcut */
            /* 1 */
            "conv_grad_weight conv_grad_norm norm_grad_apply conv_grad_weight conv_grad_norm "
            "norm_grad_apply conv_grad_weight conv_grad_norm norm_grad_apply conv_grad_weight conv_grad_data "
            "max_pool_grad norm_grad_stats norm_grad_apply conv_grad_weight",
            "each reads its norm's sums from the convolution behind it, but those behind pools");
    const kolo_node *plain = maker(g, "grad:1a.weight") - 1, *inner = maker(g, "grad:1b.weight");
    const kolo_node *end = maker(g, "grad:1e.weight"), *two = maker(g, "grad:2e.weight");
    is_int(plain->op, KOLO_OP_norm_grad_apply, "what follows");
    ok(plain->in[0] == inner->out[0] && plain->in[2] == -1 && !plain->a.relu,
       "reads g, which is masked already");
    is_int(inner->n_in, 7, "a norm within a block has no residual");
    is_int(inner->in[2], -1, "and its gradient one part");
    ok(end->n_in == 8 && end->in[7] == kolo_graph_find(g, "stem"), "that at the end of a block has");
    ok(g->node[g->tensor[end->in[2]].producer].op == KOLO_OP_conv_grad_data, "and two parts");
    ok(two->n_in == 11 && two->n_out == 7 && two->in[7] == kolo_graph_find(g, "2f"),
       "where the shortcut is normed the sums of that are formed too");
    is_int(maker(g, "grad:2g.bias") - two, 0, "by the same operation");
    const kolo_node *last =
        &g->node[end->out[0] >= 0 ? g->tensor[g->grad[kolo_graph_find(g, "stem")]].producer : 0];
    is_int(last->in[2], end->out[0], "g is what a shortcut's gradient begins with");
    is_int(maker(g, "3")->n_out, 3, "signs are kept where they are read");
    ok(maker(g, "1")->n_out == 2 && maker(g, "2")->out[2] == -1, "and nowhere else");
    int later = 0;
    for (int64_t i = 0; i < g->nodes; i++) {
        const int over = kolo_op_table[g->node[i].op].overwrite,
                  t = kolo_op_addend(g->node[i].op) >= 0 && over < g->node[i].n_in ? g->node[i].in[over] : -1;
        for (int64_t j = i + 1; t >= 0 && j < g->nodes; j++)
            for (int k = 0; k < g->node[j].n_in; k++) later += g->node[j].in[k] == t;
    }
    is_int(later, 0, "whoever adds to g in its place is the last to read it");
    kolo_graph_destroy(&g);
}

static void unmasked(void)
{
    static const struct {
        const char *name;
        enum kolo_dtype dtype;
        int64_t channels;
    } other[] = {{"bf16", KOLO_BF16, 16}, {"f32", KOLO_F32, 16}, {"fp16 of 8 channels", KOLO_F16, 8}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        int64_t forward;
        kolo_graph *g = blocks(other[i].dtype, other[i].channels, &forward);
        const int64_t nodes = g->nodes, tensors = g->tensors;
        int fused = kolo_graph_fuse_grad(g);
        for (int64_t k = 0; k < g->nodes; k++) fused += g->node[k].op == KOLO_OP_conv_grad_norm;
        ok(!fused && g->nodes == nodes && g->tensors == tensors, "%s: nothing is changed", other[i].name);
        kolo_graph_destroy(&g);
    }
    int x;
    kolo_graph *g = fresh(KOLO_F16, true, &x); /* a norm whose relu is apart, and one without */
    x = norm(g, "na", block_conv(g, "a", x, 16));
    x = kolo_relu(g, "r", kolo_add(g, "s", norm(g, "nb", block_conv(g, "b", x, 16)), x));
    finish(g, norm(g, "nc", block_conv(g, "c", x, 16)));
    is_int(kolo_graph_backward(g), 0, "norms that were not joined with their relu");
    const int64_t nodes = g->nodes;
    ok(kolo_graph_fuse_grad(g) == 0 && g->nodes == nodes, "are left as they are");
    kolo_graph_destroy(&g);
    const kolo_conv_spec strided = {
        .out = 16, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}, .weight = init};
    g = fresh(KOLO_F16, true, &x);
    x = kolo_max_pool(g, "p", block_conv(g, "c", x, 16), 3, 2, 1);
    x = kolo_relu(g, "rn", norm(g, "n", kolo_conv(g, "s", block(g, "1", x, false, 16), &strided)));
    finish(g, kolo_conv(g, "t", x, &strided));
    is_int(kolo_graph_fuse(g), 0, "behind convolutions with a stride");
    is_int(kolo_graph_backward(g), 0, "gradients");
    is_int(kolo_graph_fuse_grad(g), 0, "are fused");
    is_int(maker(g, "grad:rn")->op, KOLO_OP_conv_grad_norm, "where a norm is alone");
    is_int(maker(g, "grad:1e.weight")->op, KOLO_OP_norm_grad_stats, "but not where it has a residual");
    kolo_graph_destroy(&g);
}

/* For devices, after the gradients: a norm with relu is done by the convolution behind it, if
 * nothing else reads it. */
static void norms(bool wanted)
{
    kolo_conv_spec to[] = {
        {.out = 16, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}, .weight = init},
        {.out = 8, .kernel = {1, 1}, .stride = {1, 1}, .weight = init},
    };
    int x;
    kolo_graph *g = fresh(KOLO_F16, true, &x);
    x = kolo_relu(g, "ra", norm(g, "na", kolo_conv(g, "a", x, &to[0]))); /* joined with b */
    /* read twice: by c and the sum */
    x = kolo_relu(g, "rb", norm(g, "nb", kolo_conv(g, "b", x, &to[0])));
    int y = norm(g, "nc", kolo_conv(g, "c", x, &to[0]));
    x = kolo_relu(g, "rc", kolo_add(g, "sum", y, x));                    /* has a residual */
    x = norm(g, "nd", kolo_conv(g, "d", x, &to[0]));                     /* no relu */
    x = kolo_relu(g, "re", norm(g, "ne", kolo_conv(g, "e", x, &to[1]))); /* too few channels */
    finish(g, norm(g, "nf", kolo_conv(g, "f", x, &to[0])));
    is_int(kolo_graph_fuse(g), 0, "norm and relu are joined");
    is_int(kolo_graph_backward(g), 0, "gradients");
    const int64_t tensors = g->tensors, nodes = g->nodes;
    is_int(kolo_graph_fuse_conv(g, wanted), 0, "then norms and convolutions%s",
           wanted ? "" : ", which is not wanted");
    int joined[2] = {0};
    for (int64_t i = 0; i < g->nodes; i++) {
        joined[0] += g->node[i].op == KOLO_OP_norm_conv_stats;
        joined[1] += g->node[i].op == KOLO_OP_norm_conv_grad_weight;
    }
    ok(joined[0] == wanted && joined[1] == wanted, "%s",
       wanted ? "one is joined, forward and for its weights" : "none is joined");
    is_int(nodes - 6 - g->nodes, wanted, "beside the sums' operations so many are gone");
    is_int(tensors - g->tensors, wanted, "and so many tensors");
    const kolo_node *b = maker(g, "b");
    ok(!wanted || (b->op == KOLO_OP_norm_conv_stats && b->in[0] == kolo_graph_find(g, "a") && b->a.relu &&
                   b->a.epsilon > 0 && maker(g, "na:1") == b &&
                   maker(g, "na:sums")->op == KOLO_OP_conv_stats && kolo_graph_find(g, "ra") < 0),
       "it reads what the norm read, and makes the norm's statistic");
    kolo_graph_destroy(&g);
}

int main(void)
{
    sums();
    masked();
    unmasked();
    norms(true);
    norms(false);
    chain();
    fan_out();
    doubled();
    shared_parameter();
    plain_norm();
    for (int i = 0; i < 4; i++) residual(i & 1, i & 2);
    two_norms();
    unlike_norms();
    kept_apart();
    pools();
    return done_testing();
}
