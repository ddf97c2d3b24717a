/* Golden cases of single operations, forward and backward, in every layout. */
#ifndef TESTS_GOLDEN_OPS_H
#define TESTS_GOLDEN_OPS_H

#include "golden_file.h"
#include "ops/draw.h"
#include "ops_rig.h"

typedef struct golden_op {
    const char *name;
    const cJSON *json, *config, *inputs;
    uint64_t seed;
    golden_worst worst;
    rig rig;
    bool nhwc; /* the file's maps are (N,H,W,C) */
} golden_op;

/* The file's order of a map's elements to the graph's (N,C,H,W), or back. */
static void golden_op_turn(const golden_op *c, int t, float *v, bool back)
{
    const kolo_tensor *x = &c->rig.g->tensor[t];
    if (!c->nhwc || x->rank != 4 || x->role != KOLO_ROLE_ACTIVATION) return;
    int64_t count = kolo_tensor_count(x), channels = x->dim[1], pixels = x->dim[2] * x->dim[3];
    float *from = malloc((size_t)count * sizeof *from);
    memcpy(from, v, (size_t)count * sizeof *from);
    for (int64_t i = 0; i < count; i++) {
        int64_t n = i / (channels * pixels), p = i / channels % pixels,
                there = (n * channels + i % channels) * pixels + p;
        if (back) v[i] = from[there];
        else v[there] = from[i];
    }
    free(from);
}

static int golden_op_dims(const golden_op *c, const char *input, int64_t *dim)
{
    return golden_dims(golden_at(golden_at(c->inputs, input), "shape"), dim);
}

static void golden_pair(const cJSON *config, const char *key, int64_t otherwise, int64_t pair[2])
{
    const cJSON *n = golden_at(config, key);
    pair[0] = pair[1] = (int64_t)golden_number(config, key, (double)otherwise);
    if (cJSON_IsArray(n))
        for (int i = 0; i < 2; i++) pair[i] = (int64_t)cJSON_GetArrayItem(n, i)->valuedouble;
}

static float *golden_op_values(const golden_op *c, const char *input, int64_t *count)
{
    const cJSON *in = golden_at(c->inputs, input);
    int64_t dim[8], n = 1;
    for (int k = golden_dims(golden_at(in, "shape"), dim); k > 0; k--) n *= dim[k - 1];
    float *v = malloc((size_t)(n + 1) * sizeof *v);
    golden_fill(golden_text(in, "name", ""), c->seed, golden_number(in, "a", 0), golden_number(in, "b", 1), v,
                n);
    if (count) *count = n;
    return v;
}

/* Fills tensor `t` with the values of input `input`. */
static void golden_op_set(golden_op *c, int t, const char *input)
{
    if (t < 0 || !golden_at(c->inputs, input)) return;
    float *v = golden_op_values(c, input, NULL);
    golden_op_turn(c, t, v, false);
    rig_set(&c->rig, t, v);
    free(v);
}

static void golden_op_set_dy(golden_op *c, int dy)
{
    int64_t n = kolo_tensor_count(&c->rig.g->tensor[dy]);
    float *v = malloc((size_t)n * sizeof *v);
    golden_fill(golden_text(c->json, "dy", ""), c->seed, 0, golden_unit, v, n);
    golden_op_turn(c, dy, v, false);
    rig_set(&c->rig, dy, v);
    free(v);
}

static void golden_op_compare(golden_op *c, int t, const char *group, const char *key)
{
    const cJSON *record = golden_at(golden_at(c->json, group), key);
    if (!record) return;
    int64_t n = kolo_tensor_count(&c->rig.g->tensor[t]);
    float *v = malloc((size_t)n * sizeof *v);
    rig_get(&c->rig, t, v);
    golden_op_turn(c, t, v, true);
    golden_floats(&c->worst, record, key, c->seed, v, n);
    free(v);
}

/* Compares the gradient of tensor `t` (-1: none), if the file has one. */
static void golden_op_gradient(golden_op *c, int t, const char *key)
{
    if (t >= 0 && c->rig.g->grad[t] >= 0) golden_op_compare(c, c->rig.g->grad[t], "grads", key);
}

static int golden_find(const golden_op *c, const char *name) { return kolo_graph_find(c->rig.g, name); }

/* ---- one function a kind of operation: builds, fills, runs, compares ----------------------------------- */

static void golden_op_finish(golden_op *c, int y, int dy, const char *const (*pair)[2])
{
    if (dy >= 0) golden_op_set_dy(c, dy);
    rig_run(&c->rig);
    golden_op_compare(c, y, "outputs", "y");
    for (; (*pair)[0]; pair++) golden_op_gradient(c, golden_find(c, (*pair)[0]), (*pair)[1]);
}

static int golden_op_x(golden_op *c)
{
    int64_t dim[8];
    int rank = golden_op_dims(c, "x", dim);
    if (rank == 3 && c->nhwc) { /* tokens: pixels of one column */
        dim[3] = dim[2];
        dim[2] = 1;
        rank = 4;
    }
    if (rank == 3) { /* rows of the last axis */
        dim[0] *= dim[1];
        dim[1] = dim[2];
        rank = 2;
    }
    if (c->nhwc && rank == 4) {
        int64_t channels = dim[3];
        dim[3] = dim[2];
        dim[2] = dim[1];
        dim[1] = channels;
    }
    return rig_input(&c->rig, "x", rank, dim);
}

static void golden_op_conv(golden_op *c)
{
    int64_t w[8];
    golden_op_dims(c, "w", w);
    kolo_conv_spec s = {.out = w[0],
                        .kernel = {w[2], w[3]},
                        .bias = golden_at(c->inputs, "bias") != NULL,
                        .weight = rig_init};
    golden_pair(c->config, "stride", 1, s.stride);
    golden_pair(c->config, "padding", 0, s.pad);
    s.groups = (int64_t)golden_number(c->config, "groups", 1);
    int y = kolo_conv(c->rig.g, "c", golden_op_x(c), &s);
    rig_check(y, c->name);
    int64_t dilation[2];
    golden_pair(c->config, "dilation", 1, dilation);
    kolo_node *node = &c->rig.g->node[0];
    kolo_tensor *out = &c->rig.g->tensor[y];
    for (int i = 0; i < 2; i++) { /* the builder has no dilation yet; the operation has */
        node->a.dilation[i] = dilation[i];
        out->dim[2 + i] =
            (c->rig.g->tensor[node->in[0]].dim[2 + i] + 2 * s.pad[i] - dilation[i] * (s.kernel[i] - 1) - 1) /
                s.stride[i] +
            1;
    }
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    golden_op_set(c, golden_find(c, "x"), "x");
    golden_op_set(c, golden_find(c, "c.weight"), "w");
    golden_op_set(c, golden_find(c, "c.bias"), "bias");
    golden_op_finish(
        c, y, dy, (const char *const[][2]){{"x", "x"}, {"c.weight", "w"}, {"c.bias", "bias"}, {NULL, NULL}});
}

static void golden_op_linear(golden_op *c)
{
    int64_t w[8];
    golden_op_dims(c, "w", w);
    int y = kolo_linear(c->rig.g, "c", golden_op_x(c), w[0], golden_at(c->inputs, "bias") != NULL, rig_init,
                        rig_init);
    rig_check(y, c->name);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    golden_op_set(c, golden_find(c, "x"), "x");
    golden_op_set(c, golden_find(c, "c.weight"), "w");
    golden_op_set(c, golden_find(c, "c.bias"), "bias");
    golden_op_finish(
        c, y, dy, (const char *const[][2]){{"x", "x"}, {"c.weight", "w"}, {"c.bias", "bias"}, {NULL, NULL}});
}

/* running statistics after one step: (1 - m) old + m new */
static void golden_op_running(golden_op *c, int statistic, bool variance)
{
    const cJSON *record = golden_at(golden_at(c->json, "outputs"), variance ? "new_var" : "new_mean");
    double m = golden_number(c->config, "momentum", 0.1);
    int64_t n;
    float *old = golden_op_values(c, variance ? "running_var" : "running_mean", &n),
          *s = rig_raw(&c->rig, statistic);
    for (int64_t i = 0; record && i < n; i++)
        old[i] = (float)((1 - m) * (double)old[i] + m * (double)s[variance * n + i]);
    if (record) golden_floats(&c->worst, record, "running", c->seed, old, n);
    free(old);
    free(s);
}

static void golden_op_norm(golden_op *c)
{
    bool train = golden_number(c->config, "train", 0) != 0;
    c->rig.g->train = train;
    int y = kolo_batch_norm(c->rig.g, "c", golden_op_x(c), golden_number(c->config, "eps", 1e-5), 0.1, 1);
    rig_check(y, c->name);
    int dy = train ? rig_backward(&c->rig, y) : -1;
    rig_layout(&c->rig);
    static const char *const part[][2] = {{"x", "x"},
                                          {"c.weight", "weight"},
                                          {"c.bias", "bias"},
                                          {"c.running_mean", "running_mean"},
                                          {"c.running_var", "running_var"}};
    for (int i = 0; i < 5; i++) golden_op_set(c, golden_find(c, part[i][0]), part[i][1]);
    static const char *const none[][2] = {{NULL, NULL}}, *const some[][2] = {{"x", "x"},
                                                                             {"c.weight", "weight"},
                                                                             {"c.bias", "bias"},
                                                                             {NULL, NULL}};
    golden_op_finish(c, y, dy, train ? some : none);
    if (!train) return;
    const kolo_node *apply = &c->rig.g->node[c->rig.g->tensor[y].producer];
    golden_op_running(c, apply->out[1], false);
    golden_op_running(c, apply->out[1], true);
}

static void golden_op_layer_norm(golden_op *c)
{
    int y = kolo_layer_norm(c->rig.g, "c", golden_op_x(c), golden_number(c->config, "eps", 1e-5));
    rig_check(y, c->name);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    static const char *const part[][2] = {
        {"x", "x"}, {"c.weight", "weight"}, {"c.bias", "bias"}, {NULL, NULL}};
    for (int i = 0; i < 3; i++) golden_op_set(c, golden_find(c, part[i][0]), part[i][1]);
    golden_op_finish(c, y, dy, part);
}

/* The first step whose draws keep the rows of the file's mask. */
static int64_t golden_op_step_of_mask(const golden_op *c, const kolo_attributes *a)
{
    const cJSON *mask = golden_at(c->config, "mask");
    int rows = cJSON_GetArraySize(mask), right = 0;
    int64_t step = -1;
    while (right < rows && ++step < 100000)
        for (right = 0; right < rows; right++) {
            bool keep = cJSON_GetArrayItem(mask, right)->valuedouble != 0;
            if (kolo_row_kept(c->seed, step, right, a->draw, a->drop) != keep) break;
        }
    return step;
}

static void golden_op_drop_path(golden_op *c)
{
    int64_t dim[8];
    kolo_graph *g = c->rig.g;
    int rank = golden_op_dims(c, "r", dim), x = golden_op_x(c), r = rig_input(&c->rig, "r", rank, dim);
    int y = kolo_residual(g, "y", x, r, -1, 1 - golden_number(c->config, "keep", 1));
    rig_check(y, c->name);
    c->rig.step.seed = c->seed;
    c->rig.step.step = golden_op_step_of_mask(c, &g->node[0].a);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    golden_op_set(c, x, "x");
    golden_op_set(c, r, "r");
    golden_op_finish(c, y, dy, (const char *const[][2]){{"r", "r"}, {NULL, NULL}});
}

static void golden_op_layer_scale(golden_op *c)
{
    int64_t dim[8];
    kolo_graph *g = c->rig.g;
    int rank = golden_op_dims(c, "scale", dim), x = golden_op_x(c);
    int scale = kolo_param(g, "scale", rank, dim, rig_init, false);
    rig_check(scale, c->name);
    int node =
        kolo_graph_node(g, KOLO_OP_residual, 2, (const int[]){x, scale}, 1, &(kolo_attributes){0}, "y");
    rig_check(node, c->name);
    int y = g->node[node].out[0], dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    golden_op_set(c, x, "x");
    golden_op_set(c, scale, "scale");
    golden_op_finish(c, y, dy, (const char *const[][2]){{"x", "x"}, {"scale", "scale"}, {NULL, NULL}});
}

static const struct {
    const char *op;
    enum kolo_activation kind;
} golden_activations[] = {{"gelu", KOLO_GELU},
                          {"silu", KOLO_SILU},
                          {"leaky_relu", KOLO_LEAKY_RELU},
                          {"hard_swish", KOLO_HARD_SWISH},
                          {"hard_sigmoid", KOLO_HARD_SIGMOID},
                          {"relu6", KOLO_RELU6},
                          {"sigmoid", KOLO_SIGMOID},
                          {"tanh", KOLO_TANH}};

/* Operations of one input without parameters. */
static void golden_op_unary(golden_op *c, const char *op)
{
    int x = golden_op_x(c), y = KOLO_EINPUT;
    kolo_graph *g = c->rig.g;
    int64_t kernel = (int64_t)golden_number(c->config, "kernel", 1),
            stride = (int64_t)golden_number(c->config, "stride", 1);
    int64_t pad = (int64_t)golden_number(c->config, "padding", 0);
    if (!strcmp(op, "relu")) y = kolo_relu(g, "y", x);
    for (size_t i = 0; i < sizeof golden_activations / sizeof *golden_activations; i++)
        if (!strcmp(op, golden_activations[i].op)) {
            bool tanh_form = strstr(golden_text(c->config, "form", ""), "tanh") != NULL;
            y = kolo_activate(g, "y", x, tanh_form ? KOLO_GELU_TANH : golden_activations[i].kind,
                              golden_number(c->config, "slope", 0));
        }
    if (!strcmp(op, "upsample_nearest"))
        y = kolo_upsample(g, "y", x, (int64_t)golden_number(c->config, "factor", 2));
    if (!strcmp(op, "focus")) y = kolo_space_to_depth(g, "y", x);
    if (!strcmp(op, "maxpool")) y = kolo_max_pool(g, "y", x, kernel, stride, pad);
    if (!strcmp(op, "avgpool"))
        y = kolo_avg_pool(g, "y", x, kernel, stride, pad,
                          golden_number(c->config, "count_include_pad", 1) != 0);
    if (!strcmp(op, "global_average")) y = kolo_global_avg_pool(g, "y", x);
    if (!strcmp(op, "shortcut_a"))
        y = kolo_shortcut_a(g, "y", x,
                            g->tensor[x].dim[1] + 2 * (int64_t)golden_number(c->config, "pad_channels", 0));
    rig_check(y, c->name);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    golden_op_set(c, x, "x");
    golden_op_finish(c, y, dy, (const char *const[][2]){{"x", "x"}, {NULL, NULL}});
}

static void golden_op_two(golden_op *c)
{
    int64_t dim[8];
    int rank = golden_op_dims(c, "z", dim), x = golden_op_x(c), z = rig_input(&c->rig, "z", rank, dim);
    bool sum = !strcmp(golden_text(c->config, "op", ""), "add");
    int y = sum ? kolo_add(c->rig.g, "y", x, z) : kolo_concat(c->rig.g, "y", 2, (const int[]){x, z});
    rig_check(y, c->name);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    golden_op_set(c, x, "x");
    golden_op_set(c, z, "z");
    golden_op_finish(c, y, dy, (const char *const[][2]){{"x", "x"}, {"z", "z"}, {NULL, NULL}});
}

static int golden_op_pixels(golden_op *c, const char *name, int x, const char *weight)
{
    int64_t w[8];
    golden_op_dims(c, weight, w);
    const kolo_conv_spec s = {
        .out = w[0], .kernel = {1, 1}, .stride = {1, 1}, .bias = true, .weight = rig_init};
    return kolo_conv(c->rig.g, name, x, &s);
}

/* Swin's: four pixels become one of four times the channels, which is normed and reduced to half of them. */
static void golden_op_patch_merge(golden_op *c)
{
    int64_t w[8];
    golden_op_dims(c, "reduction", w);
    kolo_graph *g = c->rig.g;
    const kolo_conv_spec s = {.out = w[0], .kernel = {1, 1}, .stride = {1, 1}, .weight = rig_init};
    int y = kolo_layer_norm(g, "norm", kolo_space_to_depth(g, "gather", golden_op_x(c)),
                            golden_number(c->config, "eps", 1e-5));
    y = kolo_conv(g, "reduction", y, &s);
    rig_check(y, c->name);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    static const char *const part[][2] = {{"x", "x"},
                                          {"norm.weight", "norm_weight"},
                                          {"norm.bias", "norm_bias"},
                                          {"reduction.weight", "reduction"},
                                          {NULL, NULL}};
    for (int i = 0; i < 4; i++) golden_op_set(c, golden_find(c, part[i][0]), part[i][1]);
    golden_op_finish(c, y, dy, part);
}

/* The layer: padding to whole windows, queries, keys and values of each pixel, attention, projection. A
 * window that covers an axis is not shifted along it. */
static void golden_op_attention(golden_op *c)
{
    kolo_graph *g = c->rig.g;
    int x = golden_op_x(c);
    int64_t m = (int64_t)golden_number(c->config, "window", 1), shift[2], pad[2];
    for (int i = 0; i < 2; i++) {
        int64_t size = g->tensor[x].dim[2 + i];
        pad[i] = (m - size % m) % m;
        shift[i] = size + pad[i] <= m ? 0 : (int64_t)golden_number(c->config, "shift", 0);
    }
    int y = golden_op_pixels(c, "qkv", kolo_pad(g, "pad", x, pad[0], pad[1]), "qkv_weight");
    y = kolo_window_attention(g, "a", y, (int64_t)golden_number(c->config, "heads", 1), m, shift);
    y = golden_op_pixels(c, "proj", kolo_crop(g, "crop", y, pad[0], pad[1]), "proj_weight");
    rig_check(y, c->name);
    int dy = rig_backward(&c->rig, y);
    rig_layout(&c->rig);
    static const char *const part[][2] = {{"x", "x"},
                                          {"qkv.weight", "qkv_weight"},
                                          {"qkv.bias", "qkv_bias"},
                                          {"proj.weight", "proj_weight"},
                                          {"proj.bias", "proj_bias"},
                                          {"a.relative_position_bias_table", "table"},
                                          {NULL, NULL}};
    for (int i = 0; i < 6; i++) golden_op_set(c, golden_find(c, part[i][0]), part[i][1]);
    golden_op_finish(c, y, dy, part);
}

static void golden_op_cross_entropy(golden_op *c)
{
    kolo_graph *g = c->rig.g;
    int x = golden_op_x(c);
    int64_t rows = g->tensor[x].dim[0];
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_I32, 1, &rows);
    int m = kolo_cross_entropy(g, x, golden_number(c->config, "smoothing", 0));
    rig_check(m, c->name);
    rig_check(kolo_graph_backward(g), c->name);
    if (g->grad[x] < 0) { /* the logits are no parameter's: ask the rule itself */
        g->grad = realloc(g->grad, 64 * sizeof *g->grad);
        for (int i = 0; i < 64; i++) g->grad[i] = -1;
        rig_check(kolo_op_table[KOLO_OP_cross_entropy].gradient(g, 0), c->name);
    }
    rig_layout(&c->rig);
    golden_op_set(c, x, "x");
    int32_t *labels = malloc((size_t)rows * sizeof *labels);
    golden_labels(golden_text(golden_at(golden_at(c->json, "labels"), "labels"), "name", ""), c->seed,
                  g->tensor[x].dim[1], labels, rows);
    rig_check(
        kolo_backend_write(c->rig.backend, c->rig.buffer[g->label], labels, (size_t)rows * sizeof *labels),
        "labels");
    free(labels);
    c->rig.step.valid_global = rows;
    rig_run(&c->rig);
    float metrics[4];
    rig_get(&c->rig, m, metrics);
    double mean = (double)metrics[0] / (double)rows;
    golden_values(&c->worst, golden_at(golden_at(c->json, "outputs"), "loss"), "loss", c->seed, &mean, 1);
    golden_op_gradient(c, x, "x");
}

/* Losses of targets that are numbers: mean over rows of - sum y log p; sum over everything of the
 * binary cross entropy. */
static void golden_op_soft(golden_op *c)
{
    kolo_graph *g = c->rig.g;
    const bool binary = !strcmp(golden_text(c->config, "op", ""), "bce_with_logits");
    const int x = golden_op_x(c);
    const int64_t rows = g->tensor[x].dim[0], classes = g->tensor[x].dim[1];
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_F32, 2, g->tensor[x].dim);
    const int m = (binary ? kolo_bce : kolo_cross_entropy)(g, x, 0);
    rig_check(m, c->name);
    g->grad = malloc(64 * sizeof *g->grad);
    for (int i = 0; i < 64; i++) g->grad[i] = -1;
    rig_check(kolo_op_table[g->node[0].op].gradient(g, 0), c->name);
    rig_layout(&c->rig);
    golden_op_set(c, x, "x");
    float *y = golden_op_values(c, binary ? "target" : "q", NULL);
    for (int64_t n = 0; n < rows && !binary; n++) {
        double sum = 0;
        for (int64_t i = 0; i < classes; i++) sum += exp((double)y[n * classes + i]);
        for (int64_t i = 0; i < classes; i++)
            y[n * classes + i] = (float)(exp((double)y[n * classes + i]) / sum);
    }
    rig_set(&c->rig, g->label, y);
    free(y);
    c->rig.step.valid_global = rows;
    /* the gradient of the sum, not of the mean */
    c->rig.step.scaler.scale = binary ? (float)(rows * classes) : 1;
    rig_run(&c->rig);
    float metrics[4];
    rig_get(&c->rig, m, metrics);
    double loss = (double)metrics[0] * (binary ? (double)classes : 1 / (double)rows);
    golden_values(&c->worst, golden_at(golden_at(c->json, "outputs"), "loss"), "loss", c->seed, &loss, 1);
    golden_op_gradient(c, x, "x");
}

typedef struct golden_op_kind {
    const char *op;
    void (*run)(golden_op *c);
} golden_op_kind;
static const golden_op_kind golden_op_kinds[] = {{"conv2d", golden_op_conv},
                                                 {"linear", golden_op_linear},
                                                 {"batchnorm", golden_op_norm},
                                                 {"layernorm", golden_op_layer_norm},
                                                 {"drop_path", golden_op_drop_path},
                                                 {"layer_scale", golden_op_layer_scale},
                                                 {"gelu", NULL},
                                                 {"silu", NULL},
                                                 {"hard_swish", NULL},
                                                 {"hard_sigmoid", NULL},
                                                 {"relu6", NULL},
                                                 {"leaky_relu", NULL},
                                                 {"sigmoid", NULL},
                                                 {"tanh", NULL},
                                                 {"add", golden_op_two},
                                                 {"concat", golden_op_two},
                                                 {"softmax_cross_entropy", golden_op_cross_entropy},
                                                 {"soft_target_cross_entropy", golden_op_soft},
                                                 {"bce_with_logits", golden_op_soft},
                                                 {"window_attention", golden_op_attention},
                                                 {"window_attention_padded", golden_op_attention},
                                                 {"patch_merge", golden_op_patch_merge},
                                                 {"upsample_nearest", NULL},
                                                 {"focus", NULL},
                                                 {"relu", NULL},
                                                 {"maxpool", NULL},
                                                 {"avgpool", NULL},
                                                 {"global_average", NULL},
                                                 {"shortcut_a", NULL}};

/* Runs one case in the layouts B = 1, 8, 16 and NHWC; skips what this build has no operation for. */
/* device: NULL, for the CPU in all layouts; or a backend, in the one that it wants. */
static void golden_op_case(const char *name, const cJSON *json, kolo_backend *device)
{
    static const struct {
        int64_t block;
        const char *name;
    } all[] = {{1, "nchw"}, {8, "nChw8c"}, {16, "nChw16c"}, {RIG_NHWC, "nhwc"}, {RIG_OWN, "its own layout"}},
      *layout = all;
    golden_op c = {
        .name = name, .json = json, .config = golden_at(json, "config"), .inputs = golden_at(json, "inputs")};
    const char *op = golden_text(c.config, "op", "");
    const golden_op_kind *kind = NULL;
    for (size_t i = 0; i < sizeof golden_op_kinds / sizeof *golden_op_kinds; i++)
        if (!strcmp(golden_op_kinds[i].op, op)) kind = &golden_op_kinds[i];
    if (!kind) {
        skip("%s: this build has no operation %s", name, op);
        return;
    }
    int64_t w[8] = {4, 4};
    if (device && golden_number(c.config, "groups", 1) > 1 && golden_op_dims(&c, "w", w) &&
        (w[0] % 4 || w[1] % 4)) {
        skip("%s: groups of few channels are not for a device", name);
        return;
    }
    c.seed = golden_seed(json);
    c.nhwc = !strcmp(golden_text(c.config, "layout", ""), "NHWC") || golden_number(c.config, "axis", 0) < 0 ||
             (!strcmp(op, "linear") && golden_op_dims(&c, "x", w) == 3);
    kolo_backend *backend = device ? device : rig_backend(2);
    if (device) layout = &all[4];
    for (int i = 0; i < (device ? 1 : 4); i++) {
        c.rig = rig_open(backend, KOLO_F32, layout[i].block);
        c.worst = (golden_worst){0};
        if (kind->run) kind->run(&c);
        else golden_op_unary(&c, op);
        bool forced = c.rig.block != layout[i].block;
        golden_result(name, forced ? "nhwc" : layout[i].name, &c.worst);
        if (!rig_padding_is_zero(&c.rig)) ok(0, "%s %s: the padding is zero", name, layout[i].name);
        rig_close(&c.rig);
        if (forced) break; /* the one layout that its operations have */
    }
    if (!device) kolo_backend_destroy(&backend);
}

#endif
