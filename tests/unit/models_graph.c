/* The graphs of all networks: order, gradients, fusion, initialisation, bad input. */
#include "kolo/error.h"
#include "models/models.h"
#include "tap.h"

static kolo_model_config usual(bool train)
{
    return (kolo_model_config){.rows = 2, .std = {1, 1, 1, 1}, .train = train, .dtype = KOLO_F32};
}

static kolo_graph *build(const char *name, const kolo_model_config *config)
{
    kolo_graph *g = NULL;
    if (kolo_model_graph(&g, name, config) < 0) {
        printf("Bail out! %s: %s\n", name, kolo_error_text());
        exit(1);
    }
    return g;
}

/* Nodes that read a tensor before it is made, tensors made by two nodes, arguments out of range. */
static int disorders(const kolo_graph *g)
{
    int wrong = 0;
    char *made = calloc((size_t)g->tensors, 1);
    for (int64_t t = 0; t < g->tensors; t++) made[t] = g->tensor[t].producer < 0;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        const kolo_op_info *info = &kolo_op_table[n->op];
        wrong += n->n_in < info->min_in || n->n_in > info->max_in || n->n_out < info->min_out ||
                 n->n_out > info->max_out;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) wrong += n->in[k] >= g->tensors || !made[n->in[k]];
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            wrong += made[n->out[k]] || g->tensor[n->out[k]].producer != i;
            made[n->out[k]] = 1;
        }
    }
    for (int64_t t = 0; t < g->tensors; t++) wrong += !made[t];
    free(made);
    return wrong;
}

static int same_dims(const kolo_tensor *a, const kolo_tensor *b)
{
    int same = a->rank == b->rank;
    for (int i = 0; same && i < a->rank; i++) same = a->dim[i] == b->dim[i];
    return same;
}

/* Parameters that have not exactly one gradient, or one of another shape; gradients that nobody reads. */
static int gradient_faults(const kolo_graph *g)
{
    int wrong = 0;
    int *of = calloc((size_t)g->tensors, sizeof *of), *read = calloc((size_t)g->tensors, sizeof *read);
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++)
            if (g->node[i].in[k] >= 0) read[g->node[i].in[k]]++;
    for (int64_t t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_GRADIENT) of[g->tensor[t].of]++;
    for (int64_t t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        int d = g->grad[t];
        if (x->role == KOLO_ROLE_PARAM) {
            char name[200];
            snprintf(name, sizeof name, "grad:%s", x->name);
            wrong += of[t] != 1 || d < 0 || g->tensor[d].of != t || strcmp(g->tensor[d].name, name);
        }
        if (d >= 0) wrong += !same_dims(x, &g->tensor[d]);
        if (d >= 0 && x->role == KOLO_ROLE_ACTIVATION) wrong += !read[d]; /* computed for nothing */
    }
    free(of);
    free(read);
    return wrong;
}

static int count_ops(const kolo_graph *g, enum kolo_op op)
{
    int count = 0;
    for (int64_t i = 0; i < g->nodes; i++) count += g->node[i].op == op;
    return count;
}

static void structure(const kolo_model *model, enum kolo_dtype dtype)
{
    kolo_model_config config = usual(true);
    config.dtype = dtype;
    config.shortcut = "b";
    config.smoothing = 0.1;
    kolo_graph *g = build(model->name, &config);
    const char *type = kolo_dtype_name(dtype);
    is_int(disorders(g), 0, "%s %s: every tensor is made once and before it is read", model->name, type);
    is_int(gradient_faults(g), 0, "%s %s: every parameter has one gradient of its shape", model->name, type);
    is_int(g->grad[kolo_graph_find(g, "normalize")], -1, "%s %s: no gradient of the pixels", model->name,
           type);
    is_int(g->classes, model->classes, "%s %s: classes", model->name, type);
    is_int(count_ops(g, KOLO_OP_conv_grad_data),
           count_ops(g, KOLO_OP_conv) - (count_ops(g, KOLO_OP_conv) > 0),
           "%s %s: every convolution but the first sends a gradient back", model->name, type);
    kolo_graph_destroy(&g);
    config.train = false;
    g = build(model->name, &config);
    is_int(disorders(g), 0, "%s %s: the evaluation graph is in order", model->name, type);
    ok(g->grad == NULL && !count_ops(g, KOLO_OP_norm_apply) && !count_ops(g, KOLO_OP_norm_stats),
       "%s %s: and has neither gradients nor batch statistics", model->name, type);
    kolo_graph_destroy(&g);
}

/* relu: norms with relu; residual: of these, with a residual too; plain: norms without relu */
static void fused(const char *name, const char *shortcut, int relu, int residual, int plain)
{
    for (int train = 0; train < 2; train++) {
        kolo_model_config config = usual(train);
        config.shortcut = shortcut;
        kolo_graph *g = build(name, &config);
        enum kolo_op op = train ? KOLO_OP_norm_apply : KOLO_OP_norm_infer;
        int with_relu = 0, with_residual = 0, without = 0, normed = 0, adds = 0;
        for (int64_t i = 0; i < g->nodes; i++) {
            const kolo_node *n = &g->node[i];
            adds += n->op == KOLO_OP_add && !n->backward;
            if (n->op != op) continue;
            with_relu += n->a.relu;
            without += !n->a.relu;
            with_residual += n->n_in > kolo_op_table[op].min_in;
            normed += n->n_in > kolo_op_table[op].min_in + 1;
        }
        const char *kind = train ? "training" : "evaluation";
        is_int(with_relu, relu, "%s %s: norms with relu", name, kind);
        is_int(with_residual, residual, "%s %s: with residual", name, kind);
        is_int(without, train ? 0 : plain, "%s %s: norms alone", name, kind);
        is_int(normed, train ? plain : 0, "%s %s: norms of a residual", name, kind);
        is_int(count_ops(g, KOLO_OP_relu) + adds, 0, "%s %s: no relu or addition is left", name, kind);
        kolo_graph_destroy(&g);
    }
}

/* Moments of a parameter within 4 standard errors of N(0, deviation^2), or of U(-bound, bound) if uniform. */
static void drawn(const kolo_graph *g, const char *name, bool uniform, double scale)
{
    int t = kolo_graph_find(g, name);
    if (!ok(t >= 0, "%s %s is there", g->name, name)) return;
    int64_t n = kolo_tensor_count(&g->tensor[t]);
    double sum = 0, square = 0;
    for (int64_t i = 0; i < n; i++) {
        double v = kolo_initial_value(&g->tensor[t], 5, i);
        sum += v;
        square += v * v;
    }
    double var = uniform ? scale * scale / 3 : scale * scale, kurtosis = uniform ? 1.8 : 3;
    is_near(sum / (double)n, 0, 4 * sqrt(var / (double)n), "%s %s: mean 0", g->name, name);
    is_near(square / (double)n / var, 1, 4 * sqrt((kurtosis - 1) / (double)n), "%s %s: deviation", g->name,
            name);
}

static double constant(const kolo_graph *g, const char *name)
{
    int t = kolo_graph_find(g, name);
    return t < 0 || g->tensor[t].init.kind != KOLO_INIT_CONSTANT ? NAN
                                                                 : kolo_initial_value(&g->tensor[t], 5, 0);
}

static void initialised(void)
{
    kolo_model_config config = usual(true);
    kolo_graph *g = build("resnet50", &config);
    drawn(g, "conv1.weight", false, sqrt(2. / (49 * 64)));
    drawn(g, "layer3.0.conv2.weight", false, sqrt(2. / (9 * 256)));
    drawn(g, "layer4.0.downsample.0.weight", false, sqrt(2. / 2048));
    drawn(g, "fc.weight", true, 1 / sqrt(2048));
    drawn(g, "fc.bias", true, 1 / sqrt(2048));
    ok(constant(g, "layer1.0.bn3.weight") == 1 && constant(g, "layer1.0.bn3.bias") == 0,
       "norms start at 1 and 0");
    ok(constant(g, "bn1.running_mean") == 0 && constant(g, "bn1.running_var") == 1,
       "running statistics at 0 and 1");
    int decaying = 0;
    for (int64_t t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM) decaying += g->tensor[t].decay;
    is_int(decaying, 54, "53 convolutions and the last layer's weight decay, nothing of one axis");
    kolo_graph_destroy(&g);
    config.zero_init_residual = true;
    g = build("resnet50", &config);
    ok(constant(g, "layer1.0.bn3.weight") == 0 && constant(g, "layer1.0.bn2.weight") == 1 &&
           constant(g, "layer1.0.downsample.1.weight") == 1,
       "zero_init_residual: only the last norm of a block starts at 0");
    kolo_graph_destroy(&g);
    g = build("resnet18", &config);
    ok(constant(g, "layer1.0.bn2.weight") == 0 && constant(g, "layer1.0.bn1.weight") == 1,
       "which is bn2 in a basic block");
    kolo_graph_destroy(&g);
    g = build("resnet20", &config);
    drawn(g, "conv1.weight", false, sqrt(2. / 27));
    drawn(g, "layer2.0.conv1.weight", false, sqrt(2. / (9 * 16)));
    drawn(g, "linear.weight", false, sqrt(2. / 64));
    drawn(g, "linear.bias", true, 1 / sqrt(64));
    kolo_graph_destroy(&g);
    g = build("convnext_tiny", &config);
    drawn(g, "features.5.4.block.0.weight", false, 0.02);
    drawn(g, "classifier.2.weight", false, 0.02);
    ok(constant(g, "features.7.2.layer_scale") == (double)1e-6f && constant(g, "classifier.2.bias") == 0 &&
           !g->tensor[kolo_graph_find(g, "features.7.2.layer_scale")].decay,
       "convnext: layer scale begins at 1e-6 and does not decay");
    kolo_graph_destroy(&g);
    g = build("swin_t", &config);
    drawn(g, "features.0.0.weight", true, 1 / sqrt(48));
    drawn(g, "features.5.4.attn.relative_position_bias_table", false, 0.02);
    ok(!g->tensor[kolo_graph_find(g, "features.5.4.attn.relative_position_bias_table")].decay,
       "swin: which does not decay");
    kolo_graph_destroy(&g);
    g = build("vgg11", &config);
    drawn(g, "features.3.weight", false, sqrt(2. / (9 * 128)));
    drawn(g, "classifier.6.weight", false, 0.01);
    kolo_graph_destroy(&g);
    g = build("efficientnet_b0", &config);
    /* depthwise: as many maps out as weights are long */
    drawn(g, "features.3.0.block.1.0.weight", false, sqrt(2. / (25 * 144)));
    drawn(g, "classifier.1.weight", true, 1 / sqrt(1000));
    kolo_graph_destroy(&g);
    g = build("yolox_s", &config);
    drawn(g, "backbone.backbone.dark3.0.conv.weight", true, 1 / sqrt(9 * 64));
    ok(fabs(constant(g, "head.cls_preds.1.bias") + log(99)) < 1e-6 &&
           fabs(constant(g, "head.obj_preds.2.bias") + log(99)) < 1e-6,
       "yolox: objects and classes begin at 1 in 100");
    kolo_graph_destroy(&g);
    g = build("lenet5", &config);
    drawn(g, "conv2.weight", true, 1 / sqrt(150));
    drawn(g, "fc1.bias", true, 1 / sqrt(400));
    kolo_graph_destroy(&g);
}

static void refused(const char *what, const char *name, const kolo_model_config *config, const char *word)
{
    kolo_graph *g = NULL;
    int rc = kolo_model_graph(&g, name, config);
    ok(rc == KOLO_ECONFIG && g == NULL && strstr(kolo_error_text(), word), "%s: %s", what, kolo_error_text());
    kolo_graph_destroy(&g);
}

/* Nodes that leave something out, the largest probability, and the sum of all. */
static int drops(const char *name, double drop_path, bool train, double *largest)
{
    kolo_model_config config = usual(train);
    config.drop_path = config.dropout = drop_path;
    kolo_graph *g = build(name, &config);
    int count = 0;
    *largest = 0;
    for (int64_t i = 0; i < g->nodes; i++)
        if (!g->node[i].backward && g->node[i].a.drop > 0)
            count++, *largest = fmax(*largest, g->node[i].a.drop);
    kolo_graph_destroy(&g);
    return count;
}

static void depth(void)
{
    double most;
    is_int(drops("convnext_tiny", -1, true, &most), 17,
           "convnext_tiny: all blocks but the first may be left out");
    is_near(most, 0.1, 1e-12, "the last with 0.1, as usual");
    is_int(drops("swin_t", 0.3, true, &most), 22, "swin_t: both branches of all but the first");
    is_near(most, 0.3, 1e-12, "the last with 0.3, as asked");
    is_int(drops("efficientnet_b0", -1, true, &most), 10,
           "efficientnet_b0: nine blocks with a sum, and its dropout");
    is_near(most, 0.2, 1e-12, "which is 0.2");
    is_int(drops("vgg16_bn", -1, true, &most), 2, "vgg16_bn: two dropouts");
    is_near(most, 0.5, 1e-12, "of 0.5");
    is_int(drops("swin_t", -1, false, &most) + drops("vgg16_bn", -1, false, &most), 0,
           "evaluation leaves nothing out");
    is_int(drops("convnext_tiny", 0, true, &most), 0, "nor training with 0");
}

static int windows(int64_t size, int64_t shift[12][2])
{
    kolo_model_config config = usual(false);
    config.height = size;
    config.width = size + 32;
    kolo_graph *g = build("swin_t", &config);
    int n = 0;
    for (int64_t i = 0; i < g->nodes; i++)
        if (g->node[i].op == KOLO_OP_window_attention && n < 12)
            memcpy(shift[n++], g->node[i].a.pad, sizeof shift[0]);
    kolo_graph_destroy(&g);
    return n;
}

/* 224 x 256: maps of 56x64, 28x32, 14x16, 7x8 */
static void shifts(void)
{
    int64_t s[12][2];
    is_int(windows(224, s), 12, "swin_t has 12 attentions");
    ok(s[0][0] == 0 && s[1][0] == 3 && s[1][1] == 3 && s[2][0] == 0 && s[9][1] == 3,
       "every second one is shifted by 3");
    ok(s[11][0] == 0 && s[11][1] == 3, "but not along an axis that one window covers");
}

static void bad_input(void)
{
    kolo_model_config good = usual(true), bad = good;
    refused("unknown model", "resnet5O", &good, "did you mean \"resnet50\"");
    refused("nothing near", "transformer", &good, "kolo models");
    bad.rows = 0;
    refused("no rows", "resnet18", &bad, "at least 1");
    bad = good, bad.height = -224;
    refused("negative height", "resnet18", &bad, "-224");
    bad = good, bad.channels = 5;
    refused("five channels", "resnet18", &bad, "channels");
    bad = good, bad.classes = 1;
    refused("one class", "resnet18", &bad, "1 classes");
    bad = good, bad.classes = -10;
    refused("negative classes", "mlp", &bad, "-10");
    bad = good, bad.height = bad.width = 8;
    refused("images too small for LeNet-5", "lenet5", &bad, "conv2");
    bad = good, bad.height = bad.width = 31;
    refused("images too small for VGG", "vgg16", &bad, "features.30");
    bad = good, bad.height = bad.width = 100;
    refused("a size that YOLOX cannot halve five times", "yolox_s", &bad, "multiples of 32");
    bad = good, bad.drop_path = 1;
    refused("a block that is always left out", "convnext_tiny", &bad, "[0, 1)");
    bad = good, bad.shortcut = "c";
    refused("unknown shortcut", "resnet20", &bad, "shortcut=c");
    bad = good, bad.std[1] = 0;
    refused("deviation 0", "resnet20", &bad, "channel 1");
    bad = good, bad.smoothing = -0.1;
    refused("negative smoothing", "resnet20", &bad, "smoothing");
    bad = good, bad.dtype = KOLO_F64;
    refused("activations in f64", "resnet20", &bad, "f64");
}

int main(void)
{
    for (int i = 0; i < kolo_model_count; i++) {
        structure(&kolo_model_table[i], KOLO_F32);
        ok(kolo_model_find(kolo_model_table[i].name) == &kolo_model_table[i], "%s is found",
           kolo_model_table[i].name);
    }
    structure(kolo_model_find("resnet50"), KOLO_BF16);
    fused("resnet50", NULL, 49, 16, 4); /* 1 + 16 x 3 norms with relu; 4 stages with a downsample */
    fused("resnet18", NULL, 17, 8, 3);  /* 1 + 8 x 2; the first stage has no downsample */
    fused("resnet20", "a", 19, 9, 0);   /* 1 + 9 x 2 */
    fused("resnet20", "b", 19, 9, 2);
    initialised();
    depth();
    shifts();
    bad_input();
    return done_testing();
}
