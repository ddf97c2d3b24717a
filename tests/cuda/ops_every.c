/* Every operation of the table, forward and backward, on the CUDA backend beside the CPU's, in every
 * precision: small networks in shapes that leave rests everywhere, with all rows valid and with few. Each
 * operation starts from the CPU's values, as the device's type holds them. */
#include <stdio.h>

#include "base/plugin.h"
#include "cuda_rig.h"
#include "ops/compose.h"
#include "ops_rig.h"
#include "parity_compare.h"
#include "standin/ask.h"

typedef struct shape {
    const char *name;
    int64_t rows, valid, height, width, channels, width_of_net, classes;
} shape;

static const shape shapes[] = {
    {"even", 4, 4, 12, 12, 3, 16, 10},
    {"odd", 3, 2, 11, 9, 1, 6, 7},
    {"no valid row", 2, 0, 10, 10, 3, 8, 5},
};

enum net { FUSED, SIGNS, APART, PARTS, CHANNELS, EVALUATED, TOKENS, FACES, YOLOX, YOLOV3, NETS };
static const char *const net_name[] = {"fused",     "signs",  "apart", "parts", "channels",
                                       "evaluated", "tokens", "faces", "YOLOX", "YOLOv3"};

typedef struct precision {
    const char *name;
    enum kolo_dtype dtype;
    bool tf32;
} precision;

static const precision precisions[] = {{"f32", KOLO_F32, false},
                                       {"tf32", KOLO_F32, true},
                                       {"bf16", KOLO_BF16, false},
                                       {"fp16", KOLO_F16, false}};

/* run on both sides; an input of it got its gradient; it added its optional input */
static bool seen[KOLO_OP_COUNT], differentiated[KOLO_OP_COUNT], added[KOLO_OP_COUNT];

static int conv(kolo_graph *g, const char *name, int x, int64_t out, int64_t kernel, int64_t stride,
                bool bias)
{
    kolo_conv_spec s = {.out = out,
                        .kernel = {kernel, kernel},
                        .stride = {stride, stride},
                        .pad = {kernel / 2, kernel / 2},
                        .bias = bias,
                        .weight = {KOLO_INIT_NORMAL, 0.2},
                        .bias_init = {KOLO_INIT_NORMAL, 0.1}};
    return kolo_conv(g, name, x, &s);
}

static const kolo_init some = {KOLO_INIT_NORMAL, 0.2};

/* Blocks of windows, of layer norm, of squeeze and excite. x: (N,C,H,W), of at most 7 x 7 pixels */
static int tokens(kolo_graph *g, int x, int64_t c)
{
    const int64_t height = g->tensor[x].dim[2], width = g->tensor[x].dim[3], below = (6 - height % 3) % 3,
                  right = (6 - width % 3) % 3;
    int y = kolo_linear(g, "qkv", kolo_pad(g, "pad", kolo_layer_norm(g, "ln", x, 1e-5), below, right), 3 * c,
                        true, some, some);
    y = kolo_crop(g, "crop", kolo_window_attention(g, "attention", y, 2, 3, (const int64_t[]){1, 0}), below,
                  right);
    const int64_t one[] = {1, 1, c}, all[] = {1, 1 + height * width, c};
    int t = kolo_embed(g, "embed", y, kolo_param(g, "first", 3, one, some, false),
                       kolo_param(g, "position", 3, all, some, false));
    t = kolo_attention_of_all(g, "all", kolo_linear(g, "qkv of all", t, 3 * c, true, some, some), 2);
    t = kolo_flatten(g, "first token", kolo_crop(g, "of one", t, height * width, 0));
    y = kolo_gate(g, "by tokens", y, t);
    x = kolo_residual(g, "sum", x, y, kolo_param(g, "scale", 1, &c, some, false), 0.3);
    y = kolo_activate(g, "gelu", conv(g, "wide", x, 2 * c, 1, 1, true), KOLO_GELU, 0);
    y = kolo_concat(g, "both", 2, (const int[]){kolo_slice_channels(g, "some", y, 1, c), x});
    y = kolo_pointwise(g, "narrow", y, c, false, some, some);
    int s = kolo_activate(
        g, "open", kolo_linear(g, "excite", kolo_global_avg_pool(g, "squeeze", y), c, true, some, some),
        KOLO_SIGMOID, 0);
    y = kolo_upsample(g, "up", kolo_space_to_depth(g, "deep", kolo_gate(g, "gate", y, s)), 2);
    return kolo_dropout(g, "drop",
                        kolo_linear(g, "last",
                                    kolo_flatten(g, "row", kolo_adaptive_avg_pool(g, "even", y, 4, 3)), c,
                                    true, some, some),
                        0.2);
}

static int faces(kolo_graph *g, int x, int64_t classes)
{
    return kolo_arc_margin(g, "margin", kolo_cosine(g, "cosine", kolo_flatten(g, "row", x), classes, some),
                           0.5, 16);
}

static int detects(kolo_graph *g, int x, const shape *s, bool yolox)
{
    static const float anchors[9][2] = {{2, 2}, {3, 2}, {2, 3}, {4, 4}, {6, 4},
                                        {4, 6}, {8, 8}, {8, 6}, {6, 8}};
    static const int32_t masks[2][3] = {{0, 1, 2}, {3, 4, 5}};
    const int64_t channels = (yolox ? 1 : 3) * (5 + s->classes);
    int fine = conv(g, "fine", x, channels, 1, 1, true), coarse = conv(g, "coarse", x, channels, 3, 2, true);
    const int head[] = {fine, coarse};
    kolo_attributes a = {.overlap = KOLO_OVERLAP_GIOU, .l1 = true};
    memcpy(a.anchor, anchors, sizeof anchors);
    memcpy(a.mask, masks, sizeof masks);
    return kolo_detect_loss(g, yolox ? "yolox" : "yolov3", 2, head, yolox ? 1 : 3, yolox, &a);
}

/* Four blocks: one whose shortcut takes every second pixel, one whose shortcut is normalised, one that adds
 * what it reads, one that pools. */
static int classic(kolo_graph *g, int x, const shape *s, enum net net)
{
    const int64_t c = s->width_of_net;
    x = kolo_relu(g, "r0", kolo_batch_norm(g, "n0", conv(g, "c0", x, c, 5, 1, false), 1e-5, 0.1, 1));
    x = kolo_max_pool(g, "mp", x, 3, 2, 1);
    int y = kolo_relu(g, "r1", kolo_batch_norm(g, "n1", conv(g, "c1", x, 2 * c, 3, 2, false), 1e-5, 0.1, 1));
    y = kolo_batch_norm(g, "n2", conv(g, "c2", y, 2 * c, 3, 1, false), 1e-5, 0.1, 1);
    x = kolo_relu(g, "r2", kolo_add(g, "a", y, kolo_shortcut_a(g, "s", x, 2 * c)));
    y = kolo_batch_norm(g, "n3", conv(g, "c4", x, 2 * c, 1, 1, false), 1e-5, 0.1, 1);
    x = kolo_relu(
        g, "r4",
        kolo_add(g, "a3", y, kolo_batch_norm(g, "n4", conv(g, "c5", x, 2 * c, 1, 1, false), 1e-5, 0.1, 1)));
    y = kolo_batch_norm(g, "n5", conv(g, "c6", x, 2 * c, 3, 1, false), 1e-5, 0.1, 1);
    x = kolo_relu(g, "r5", kolo_add(g, "a4", y, x));
    x = kolo_avg_pool(g, "ap", x, 3, 1, 1, net == APART);
    x = conv(g, "c3", x, 2 * c, 1, 1, true);
    int features = kolo_linear(g, "f", kolo_flatten(g, "flat", x), 2 * c, false, some, some);
    features = kolo_relu(g, "r3", kolo_add(g, "a2", features, kolo_global_avg_pool(g, "gap", x)));
    return kolo_cross_entropy(g, kolo_linear(g, "l", features, s->classes, true, some, some), 0.1);
}

enum { BOXES = 3 };
static bool finds_boxes(enum net net) { return net == YOLOX || net == YOLOV3; }

/* In every precision as in fp16, which has all of them. */
static void fuse_for_devices(kolo_graph *g)
{
    const enum kolo_dtype dtype = g->dtype;
    g->dtype = KOLO_F16;
    rig_check(kolo_graph_fuse_grad(g), "fuse gradients");
    rig_check(kolo_graph_fuse_conv(g, true), "fuse convolutions");
    g->dtype = dtype;
}

static void build(rig *r, const shape *s, enum net net)
{
    static const float mean[4] = {.5f, .4f, .3f, .2f}, std[4] = {.2f, .3f, .25f, .2f};
    kolo_graph *g = r->g;
    const int64_t c = s->width_of_net, words = finds_boxes(net) ? 1 + 5 * BOXES : net == TOKENS ? 3 : 1;
    const int64_t height = finds_boxes(net) ? 16 : s->height, width = finds_boxes(net) ? 12 : s->width;
    g->train = net != EVALUATED;
    g->signs = net == SIGNS || net == PARTS;
    g->pools = net == FUSED;
    int x = kolo_normalize(g, kolo_input(g, s->rows, height, width, s->channels, words), mean, std), loss;
    if (net <= EVALUATED) loss = classic(g, x, s, net);
    else {
        x = conv(g, "stem", x, c, 3, 2, false);
        if (net == TOKENS)
            loss = kolo_bce(g, kolo_linear(g, "head", tokens(g, x, c), s->classes, true, some, some), 0.1);
        else if (net == FACES) loss = kolo_cross_entropy(g, faces(g, x, s->classes), 0);
        else loss = detects(g, x, s, net == YOLOX);
    }
    rig_check(loss, "network");
    if (net != APART) rig_check(kolo_graph_fuse(g), "fuse");
    if (net == PARTS) rig_check(kolo_graph_split(g, &(kolo_cuts){.parts = {2, 2}, .apart = true}), "split");
    if (net == CHANNELS) rig_check(kolo_graph_split_channels(g, 2), "split channels");
    if (net != EVALUATED) rig_check(kolo_graph_backward(g), "backward");
    if (net == FUSED) fuse_for_devices(g);
}

static rig open_side(kolo_backend *b, enum kolo_dtype dtype, const shape *s, enum net net)
{
    rig r = rig_open(b, dtype, RIG_OWN);
    build(&r, s, net);
    rig_layout(&r);
    r.step.valid[0] = (int32_t)s->valid;
    r.step.valid_global = s->valid;
    r.step.scaler.scale = dtype == KOLO_F16 ? 256 : 1;
    return r;
}

/* The same values on both sides: those that the device holds. */
static void give(rig *cpu, rig *gpu, int t, float *v)
{
    rig_set(gpu, t, v);
    if (gpu->half[t]) { /* its operations read the rounded copy */
        for (int64_t i = 0, n = kolo_tensor_count(&cpu->g->tensor[t]); i < n; i++)
            v[i] = gpu->g->dtype == KOLO_BF16 ? kolo_from_bf16(kolo_to_bf16(v[i]))
                                              : kolo_from_f16(kolo_to_f16(v[i]));
    } else rig_get(gpu, t, v);
    rig_set(cpu, t, v);
}

static void give_raw(rig *cpu, rig *gpu, int t, const void *bytes)
{
    rig_check(kolo_backend_write(gpu->backend, gpu->buffer[t], bytes, gpu->layout[t].bytes), "write");
    rig_check(kolo_backend_write(cpu->backend, cpu->buffer[t], bytes, cpu->layout[t].bytes), "write");
}

static int32_t label_of(const kolo_tensor *x, int64_t i, uint32_t u, const shape *s)
{
    const int64_t words = x->rank == 2 ? x->dim[1] : 1, at = i % words;
    if (words == 3 && at == 2) return (int32_t)kolo_float_bits(0.7f);
    if (words <= 3 || at % 5 == 1) return (int32_t)(u % (uint32_t)s->classes);
    if (at == 0) return (int32_t)(i / words % (BOXES + 1));
    /* centre, size */
    return (int32_t)kolo_float_bits((at % 5 == 2 || at % 5 == 3 ? 3 : 2) + (float)(u >> 8) * 0x1p-24f * 6);
}

static void first_values(rig *cpu, rig *gpu, const shape *s)
{
    for (int t = 0; t < (int)cpu->g->tensors; t++) {
        const kolo_tensor *x = &cpu->g->tensor[t];
        const int64_t n = kolo_tensor_count(x);
        if (x->producer >= 0) continue;
        float *v = malloc((size_t)n * sizeof *v);
        for (int64_t i = 0; i < n; i++) {
            uint32_t u = (uint32_t)(i + 1000 * t) * 2654435761u;
            v[i] =
                kolo_initial_value(x, 1, i) + (x->rank == 1 ? 0.3f * ((float)(u >> 8) * 0x1p-24f - 0.5f) : 0);
            if (x->role == KOLO_ROLE_LABEL) ((int32_t *)v)[i] = label_of(x, i, u, s);
            if (x->role == KOLO_ROLE_INPUT) ((uint8_t *)v)[i] = (uint8_t)(u >> 24);
        }
        if (x->role == KOLO_ROLE_LABEL || x->role == KOLO_ROLE_INPUT) give_raw(cpu, gpu, t, v);
        else give(cpu, gpu, t, v);
        free(v);
    }
}

/* Both results of an output, as f64. */
static double *values(rig *r, int t)
{
    const kolo_tensor *x = &r->g->tensor[t];
    const int64_t n = kolo_tensor_count(x);
    double *wide = malloc((size_t)(n + 1) * sizeof *wide);
    if (x->dtype == KOLO_F64) {
        rig_check(kolo_backend_read(r->backend, wide, r->buffer[t], (size_t)n * sizeof *wide), "read");
        return wide;
    }
    float *v = malloc((size_t)(n + 1) * sizeof *v);
    rig_get(r, t, v);
    for (int64_t i = 0; i < n; i++) wide[i] = (double)v[i];
    free(v);
    return wide;
}

/* Of elements that are equal only as the device rounds them it takes another. */
static void give_index(rig *cpu, rig *gpu, int t)
{
    float *v = malloc((size_t)(kolo_tensor_count(&cpu->g->tensor[t]) + 1) * sizeof *v);
    rig_get(cpu, t, v);
    rig_set(gpu, t, v);
    free(v);
}

/* Infinities that are equal are no distance: a part of the classes that has none of a row says so. */
static void drop_infinities(double *got, double *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (isinf(want[i]) && got[i] == want[i]) got[i] = want[i] = 0;
}

/* Share of what is allowed; afterwards both sides hold the CPU's values. */
static double compare(rig *cpu, rig *gpu, const kolo_node *n, int t, const char *name)
{
    const kolo_tensor *x = &gpu->g->tensor[t];
    const int64_t count = kolo_tensor_count(x);
    if (x->dtype == KOLO_U8) { /* which element of a window: the gradient shows it */
        if (n->op == KOLO_OP_norm_max_pool) give_index(cpu, gpu, t);
        return 0;
    }
    double *want = values(cpu, t), *got = values(gpu, t), tolerance = parity_allowed(name, n->op, x);
    double *finite = values(cpu, t);
    drop_infinities(got, finite, count);
    double least = x->dtype == KOLO_F16 ? 6e-8 * sqrt((double)count) / tolerance : 0;
    /* other rows of what a norm's convolution makes are read by nobody */
    const bool normed = n->op == KOLO_OP_norm_conv_stats && n->out[0] == t;
    const int64_t alike = normed ? count / x->dim[0] * gpu->step.valid[0] : count;
    double share = parity_is_sums(n->op, n->out[0] != t)
                       ? parity_sums(got, finite, count, tolerance)
                       : parity_distance(got, finite, alike, least, tolerance, parity_strays(n->op, count));
    if (x->dtype == KOLO_F64) give_raw(cpu, gpu, t, want);
    else {
        float *v = malloc((size_t)(count + 1) * sizeof *v);
        for (int64_t i = 0; i < count; i++) v[i] = (float)want[i];
        give(cpu, gpu, t, v);
        free(v);
    }
    free(finite);
    free(want);
    free(got);
    return share;
}

/* Runs node i on the device again, in place where it can be: threads, blocks and copies then come in another
 * order, and the bits must not. */
static bool same_again(rig *gpu, int i)
{
    const kolo_node *n = &gpu->g->node[i];
    void *first[KOLO_MAX_ARGS] = {NULL};
    bool same = true;
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) first[k] = rig_raw(gpu, n->out[k]);
    gpu->in_place = true;
    rig_check(rig_run_node(gpu, i), "again");
    gpu->in_place = false;
    for (int k = 0; k < n->n_out; k++) {
        if (n->out[k] < 0) continue;
        void *again = rig_raw(gpu, n->out[k]);
        same &= !memcmp(first[k], again, gpu->layout[n->out[k]].bytes);
        free(first[k]);
        free(again);
    }
    return same;
}

static void check(kolo_backend *on_cpu, kolo_backend *on_gpu, const precision *p, const shape *s,
                  enum net net)
{
    rig cpu = open_side(on_cpu, KOLO_F32, s, net), gpu = open_side(on_gpu, p->dtype, s, net);
    cpu.step.scaler.scale = gpu.step.scaler.scale;
    first_values(&cpu, &gpu, s);
    double worst = 0;
    const char *where = "", *unsteady = "";
    for (int i = 0; i < (int)gpu.g->nodes; i++) {
        const kolo_node *n = &gpu.g->node[i];
        rig_check(rig_run_node(&cpu, i), kolo_op_table[n->op].name);
        rig_check(rig_run_node(&gpu, i), kolo_op_table[n->op].name);
        kolo_part part[KOLO_COMPOSED];
        for (int k = kolo_compose_parts(n, part) - 1; k >= 0; k--) seen[part[k].node.op] = true;
        seen[n->op] = true;
        added[n->op] |= kolo_node_addend(n) >= 0;
        for (int k = 0; k < n->n_in && gpu.g->grad; k++)
            if (n->in[k] >= 0 && gpu.g->grad[n->in[k]] >= 0) differentiated[n->op] = true;
        /* which is that of the logits, behind what it reads */
        if (n->op == KOLO_OP_class_grad) differentiated[KOLO_OP_class_loss] = true;
        if (net != FUSED && !same_again(&gpu, i)) unsteady = kolo_op_table[n->op].name;
        for (int k = 0; k < n->n_out; k++) {
            double share = n->out[k] < 0 ? 0 : compare(&cpu, &gpu, n, n->out[k], p->name);
            if (share > 1)
                diag("%s, output %d: %.3g of what is allowed", kolo_op_table[n->op].name, k, share);
            if (share > worst) worst = share, where = gpu.g->tensor[n->out[k]].name;
        }
    }
    if (!rig_padding_is_zero(&gpu)) unsteady = "padding that is not zero";
    ok(worst <= 1 && !*unsteady,
       "%s, %s, %s: %d operations as the CPU does them (worst %.2f of what is allowed: %s) %s", p->name,
       s->name, net_name[net], (int)gpu.g->nodes, worst, where, unsteady);
    rig_close(&cpu);
    rig_close(&gpu);
}

static bool has_row(const kolo_backend_type *type, int op)
{
    return type->rows[op] && type->rows[op]->prepare;
}

/* What ops.def promises of every operation: a row of both backends, which a network above ran, and its
 * gradient where it has a rule for one. */
static void check_table(const kolo_backend_type *cuda)
{
    extern const kolo_backend_type kolo_cpu_backend;
    int lacking = 0, left_out = 0, flat = 0, alone = 0;
    for (int op = 0; op < KOLO_OP_COUNT; op++) {
        const char *name = kolo_op_table[op].name;
        const bool cpu = has_row(&kolo_cpu_backend, op), gpu = cuda && has_row(cuda, op);
        const bool constant = kolo_op_table[op].gradient && !differentiated[op];
        if (!cpu || !gpu)
            diag("%s is not there: %s%s%s", name, cpu ? "" : "cpu", cpu || gpu ? "" : ", ",
                 gpu ? "" : "cuda");
        if (!seen[op]) diag("%s was not run", name);
        if (constant) diag("%s has a rule, but nothing its gradient", name);
        if (kolo_op_addend((enum kolo_op)op) >= 0 && !added[op]) diag("%s added nothing", name);
        alone += kolo_op_addend((enum kolo_op)op) >= 0 && !added[op];
        lacking += !cpu || !gpu;
        left_out += !seen[op];
        flat += constant;
    }
    is_int(lacking, 0, "every operation of the table is a row of both backends");
    is_int(left_out, 0, "and was run on both");
    is_int(flat, 0, "those with a rule for it with their gradients");
    is_int(alone, 0, "those that can add another gradient with one");
}

int main(void)
{
    const int standin = cuda_rig();
    const kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    /* by rule, too, but also by engines that form sums, whose bits may be other ones every time */
    const kolo_backend_config by_rule = {.threads = 1, .direct = true, .choices = ""};
    for (size_t i = 0; i < sizeof precisions / sizeof *precisions; i++) {
        kolo_backend_config steady = config, free = by_rule;
        kolo_backend *cpu = NULL, *gpu = NULL, *fused = NULL;
        steady.tf32 = free.tf32 = precisions[i].tf32;
        rig_check(kolo_backend_create(&cpu, "cpu", &config), "cpu");
        rig_check(kolo_backend_create(&gpu, "cuda", &steady), "cuda");
        rig_check(kolo_backend_create(&fused, "cuda", &free), "cuda");
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (int net = 0; net < NETS; net++)
                check(cpu, net == FUSED ? fused : gpu, &precisions[i], &shapes[k], (enum net)net);
        kolo_backend_destroy(&fused);
        kolo_backend_destroy(&gpu);
        kolo_backend_destroy(&cpu);
    }
    check_table(kolo_cuda_symbol("kolo_cuda_backend"));
    if (standin) {
        ok(ask_count("convolution and statistics") > 0, "convolutions formed their sums");
        ok(ask_count("convolution, data gradient, sums of a norm") > 0,
           "and those of the gradients of norms");
        ok(ask_count("convolution of a norm and statistics") > 0 &&
               ask_count("convolution of a norm, weight gradient") > 0,
           "and did the norm in front of them, forward and for their weights");
        is_int(ask_count("defects"), 0, "nothing that a GPU would punish");
        if (ask_defect(0)) diag("%s", ask_defect(0));
        is_int(ask_count("alive"), 0, "everything that was made on the GPU is gone");
    }
    return done_testing();
}
