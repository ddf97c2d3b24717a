/* Plans of convolutions as the installed cuDNN makes them for a GPU that is only described: every convolution
 * of the ResNets, in every precision. The descriptions in share/gpus/ were written by hand from the data
 * sheets and compute capabilities of these GPUs, not recorded on them. */
#include "base/file.h"
#include "graph/rules.h"
#include "models/models.h"
#include "ops/cuda/engine.h"
#include "toolkit_rig.h"

/* These are kernels, which are not there. */
static int prepare_nothing(const kolo_kernel_request *r, kolo_kernel *k)
{
    (void)r, (void)k;
    return 0;
}
static const kolo_op_row nothing = {NULL, prepare_nothing};

static const kolo_op_row *const rows[KOLO_OP_COUNT] = {
    [KOLO_OP_norm_stats] = &nothing,
    [KOLO_OP_norm_mask] = &nothing,
    [KOLO_OP_norm_grad_stats] = &nothing,
    [KOLO_OP_conv_grad_norm] = &kolo_cuda_conv_grad_norm,
    [KOLO_OP_norm_apply] = &nothing,
    [KOLO_OP_norm_conv_stats] = &kolo_cuda_norm_conv_stats,
    [KOLO_OP_norm_conv_grad_weight] = &kolo_cuda_norm_conv_grad_weight,
    [KOLO_OP_conv_stats] = &kolo_cuda_conv_stats,
    [KOLO_OP_conv] = &kolo_cuda_conv,
    [KOLO_OP_conv_grad_data] = &kolo_cuda_conv_grad_data,
    [KOLO_OP_conv_grad_weight] = &kolo_cuda_conv_grad_weight};
static const kolo_backend_type type = {.name = "cuda", .rows = rows, .blocks = kolo_nhwc_blocks};

/* A backend that makes plans for the GPU of a profile and cannot run them. */
typedef struct planner {
    kolo_backend backend;
    kolo_cuda cuda;
} planner;

static planner *open_planner(const char *gpu, bool tf32, const char *choices)
{
    char path[256], *json = NULL;
    planner *p = kolo_alloc(sizeof *p);
    snprintf(path, sizeof path, "share/gpus/%s.json", gpu);
    toolkit_check(kolo_file_read(path, &json, NULL), path);
    toolkit_check(kolo_dnn_profile(&p->cuda.dnn_profile, json), path);
    free(json);
    p->cuda.processors = 132;
    p->backend = (kolo_backend){.type = &type, .tf32 = tf32, .state = &p->cuda};
    toolkit_check(kolo_choices_open(&p->backend.choices, gpu, NULL, choices), "choices");
    return p;
}

static void close_planner(planner *p)
{
    for (int64_t i = 0; i < p->backend.kernels; i++) {
        kolo_kernel *k = p->backend.kernel[i];
        if (k->release) k->release(k->state);
        free(k->key);
        free(k);
    }
    free(p->backend.kernel);
    kolo_choices_close(&p->backend.choices);
    kolo_nhwc_free(&p->backend);
    cudnnBackendDestroyDescriptor(p->cuda.dnn_profile);
    free(p);
}

static bool is_conv(const kolo_node *n)
{
    return n->op == KOLO_OP_conv || n->op == KOLO_OP_conv_grad_data || n->op == KOLO_OP_conv_grad_weight;
}

/* ---- whole networks ------------------------------------------------------------------------------------ */

typedef struct network {
    kolo_graph *graph;
    kolo_layout *layout;
} network;

static network open_network(planner *p, const char *model, int64_t batch, enum kolo_dtype dtype)
{
    const kolo_model *m = kolo_model_find(model);
    kolo_model_config config = {.rows = batch,
                                .height = m->height,
                                .width = m->width,
                                .channels = m->channels,
                                .classes = m->classes,
                                .std = {1, 1, 1, 1},
                                .train = true,
                                .dtype = dtype};
    network n = {NULL, NULL};
    toolkit_check(kolo_model_graph(&n.graph, model, &config), model);
    n.layout = kolo_alloc((size_t)n.graph->tensors * sizeof *n.layout);
    toolkit_check(kolo_backend_layout(&p->backend, n.graph, NULL, NULL, n.layout), "layout");
    return n;
}

static void close_network(network *n)
{
    kolo_graph_destroy(&n->graph);
    free(n->layout);
}

typedef struct tally {
    int convolutions, refused, breaches;
    size_t workspace;
    char first[256];
} tally;

/* breaches: f32 that would round to TF32; a workspace beyond what is allowed. */
static tally plan_network(planner *p, network *n)
{
    tally t = {0};
    for (int i = 0; i < (int)n->graph->nodes; i++) {
        kolo_kernel *k;
        size_t bytes = 0;
        if (!is_conv(&n->graph->node[i])) continue;
        t.convolutions++;
        if (kolo_backend_prepare(&p->backend, n->graph, i, n->layout, &k, &bytes) < 0) {
            if (!t.refused++) snprintf(t.first, sizeof t.first, "%s", kolo_error_text());
            continue;
        }
        if (bytes > t.workspace) t.workspace = bytes;
        t.breaches +=
            n->graph->dtype == KOLO_F32 && !p->backend.tf32 && strstr(kolo_kernel_name(k), "tensor cores");
        t.breaches += bytes > ((size_t)1 << 30) + ((size_t)8 << 20);
    }
    return t;
}

/* brief: fewer networks and precisions, where another GPU has shown the rest. */
static void test_networks(const char *gpu, bool brief)
{
    static const struct {
        const char *model;
        int64_t batch;
        int convolutions; /* a forward and two gradients each, but the first one's input has none */
    } net[] = {{"resnet18", 256, 59},
               {"resnet50", 256, 158},
               {"resnet20", 128, 56},
               {"resnet18", 32, 59},
               {"resnet50", 32, 158}};
    static const struct {
        const char *name;
        enum kolo_dtype dtype;
        bool tf32;
    } precision[] = {{"f32", KOLO_F32, false},
                     {"tf32", KOLO_F32, true},
                     {"bf16", KOLO_BF16, false},
                     {"f16", KOLO_F16, false}};
    for (size_t k = 0; k < sizeof precision / sizeof *precision; k++) {
        const bool usual = precision[k].tf32 || precision[k].dtype == KOLO_BF16;
        if (brief && !usual) continue;
        planner *p = open_planner(gpu, precision[k].tf32, "");
        for (int i = 0; i < (brief || !usual ? 3 : 5); i++) {
            network n = open_network(p, net[i].model, net[i].batch, precision[k].dtype);
            tally t = plan_network(p, &n);
            ok(t.convolutions == net[i].convolutions && !t.refused && !t.breaches,
               "%s: %s, batch %ld, %s: all %d convolutions have a plan within its rules (workspace %.0f MiB)",
               gpu, net[i].model, (long)net[i].batch, precision[k].name, t.convolutions,
               (double)t.workspace / (1 << 20));
            if (t.refused || t.breaches)
                diag("%d refused, %d against the rules; %s", t.refused, t.breaches, t.first);
            close_network(&n);
        }
        close_planner(p);
    }
}

/* ---- one convolution ----------------------------------------------------------------------------------- */

static const kolo_dnn_conv middle = {.pass = KOLO_DNN_FORWARD,
                                     .dtype = KOLO_BF16,
                                     .rows = 64,
                                     .in = 64,
                                     .out = 64,
                                     .group = 1,
                                     .x = {56, 56},
                                     .y = {56, 56},
                                     .kernel = {3, 3},
                                     .stride = {1, 1},
                                     .pad = {1, 1},
                                     .dilation = {1, 1}};
static const kolo_dnn_rules anything = {.workspace = SIZE_MAX};

/* What cuDNN itself says that a plan's configuration holds. */
static kolo_dnn_choice read_back(const kolo_dnn_plan *p)
{
    kolo_dnn_choice c = {0};
    cudnnBackendDescriptor_t engine, knob[KOLO_DNN_KNOBS];
    int64_t n = 0, one;
    cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine);
    cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
                             &engine);
    cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &one, &c.engine);
    for (int i = 0; i < KOLO_DNN_KNOBS; i++)
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knob[i]);
    cudnnBackendGetAttribute(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                             KOLO_DNN_KNOBS, &n, knob);
    c.knobs = (int)n;
    for (int i = 0; i < n; i++) {
        cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                                 &c.knob[i].type);
        cudnnBackendGetAttribute(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
                                 &c.knob[i].value);
    }
    for (int i = 0; i < KOLO_DNN_KNOBS; i++) cudnnBackendDestroyDescriptor(knob[i]);
    cudnnBackendDestroyDescriptor(engine);
    return c;
}

/* Every proposal, as text and back, makes a plan that cuDNN describes by the same engine and knobs. */
static void test_round_trip(const char *gpu, enum kolo_dnn_pass pass, enum kolo_dtype dtype)
{
    static const char *const name[] = {"forward", "data gradient", "weight gradient"};
    planner *p = open_planner(gpu, false, "");
    kolo_dnn_conv c = middle;
    kolo_dnn_graph *g;
    kolo_dnn_choice *list;
    int64_t n;
    int plans = 0, engines = 0, other = 0;
    c.pass = pass;
    c.dtype = dtype;
    toolkit_check(kolo_dnn_graph_create(&g, &p->cuda, &c), "graph");
    toolkit_check(kolo_dnn_proposals(g, &list, &n), "proposals");
    for (int64_t i = 0; i < n; i++) {
        char text[KOLO_DNN_TEXT], again[KOLO_DNN_TEXT];
        kolo_dnn_choice choice;
        kolo_dnn_plan *plan;
        kolo_dnn_choice_write(&list[i], text);
        if (!kolo_dnn_choice_read(&choice, text)) other++;
        if (kolo_dnn_plan_create(&plan, g, &choice, &anything)) continue;
        choice = read_back(plan);
        kolo_dnn_choice_write(&choice, again);
        if (strcmp(text, again) && !other++) diag("%s became %s", text, again);
        plans++;
        engines += !i || list[i].engine != list[i - 1].engine;
        kolo_dnn_plan_destroy(&plan);
    }
    ok(plans >= 5 && engines >= 2 && !other,
       "%s: %s, %s: the texts of %ld choices lead back to their engines and knobs", gpu, name[pass],
       kolo_dtype_name(dtype), (long)n);
    if (plans < 5 || engines < 2) diag("%d plans of %d engines", plans, engines);
    free(list);
    kolo_dnn_graph_destroy(&g);
    close_planner(p);
}

static void test_texts(void)
{
    static const char *const bad[] = {"", "x", "-1", "3 2", "3 2:", "3 :1", "3 2:1x", "3 2:1 y"};
    kolo_dnn_choice c;
    int taken = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) taken += kolo_dnn_choice_read(&c, bad[i]);
    is_int(taken, 0, "no choice is read from damaged texts");
    ok(kolo_dnn_choice_read(&c, "10 12:-1 2:5") && c.engine == 10 && c.knobs == 2 &&
           (int)c.knob[0].type == 12 && c.knob[0].value == -1 && c.knob[1].value == 5,
       "a choice's text is its engine, then type:value of each knob");
}

/* Each rule shuts out some plan that would else be made, and leaves one. */
static void test_rules(void)
{
    static const struct {
        const char *name;
        enum kolo_dnn_pass pass;
        enum kolo_dtype dtype;
        kolo_dnn_rules rules;
    } rule[] = {{"no tensor cores",
                 KOLO_DNN_FORWARD,
                 KOLO_F32,
                 {1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE, 0, SIZE_MAX}},
                {"only the same bits",
                 KOLO_DNN_WEIGHT,
                 KOLO_F32,
                 {1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, 0, SIZE_MAX}},
                {"no 16-bit sums",
                 KOLO_DNN_WEIGHT,
                 KOLO_F16,
                 {1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 0, SIZE_MAX}},
                {"a megabyte", KOLO_DNN_DATA, KOLO_F32, {0, 0, 1 << 20}}};
    planner *p = open_planner("h200", false, "");
    for (size_t k = 0; k < sizeof rule / sizeof *rule; k++) {
        kolo_dnn_conv c = middle;
        kolo_dnn_graph *g;
        kolo_dnn_choice *list;
        int64_t n;
        int shut = 0, left = 0, against = 0;
        c.pass = rule[k].pass;
        c.dtype = rule[k].dtype;
        toolkit_check(kolo_dnn_graph_create(&g, &p->cuda, &c), "graph");
        toolkit_check(kolo_dnn_proposals(g, &list, &n), "proposals");
        for (int64_t i = 0; i < n; i++) {
            kolo_dnn_plan *free_plan, *plan;
            if (kolo_dnn_plan_create(&free_plan, g, &list[i], &anything)) continue;
            bool wrong =
                (free_plan->notes & rule[k].rules.notes) || free_plan->workspace > rule[k].rules.workspace;
            bool made = !kolo_dnn_plan_create(&plan, g, &list[i], &rule[k].rules);
            shut += !made;
            left += made;
            against += made == wrong;
            kolo_dnn_plan_destroy(&free_plan);
            kolo_dnn_plan_destroy(&plan);
        }
        ok(shut && left && !against, "rule \"%s\": %d plans are shut out, %d left", rule[k].name, shut, left);
        free(list);
        kolo_dnn_graph_destroy(&g);
    }
    close_planner(p);
}

/* How many proposals a clock would try: those that make a plan without being compiled first. Of cuDNN
 * 9.19, as it says itself. */
static void test_proposals(void)
{
    static const struct {
        const char *name;
        enum kolo_dnn_pass pass;
        int64_t in, out, side, kernel;
        int proposals, admissible; /* at least */
    } shape[] = {{"1 x 1, 64 to 256", KOLO_DNN_FORWARD, 64, 256, 56, 1, 27, 25},
                 {"3 x 3, 512", KOLO_DNN_FORWARD, 512, 512, 7, 3, 31, 28},
                 {"3 x 3, 512, its weight's gradient", KOLO_DNN_WEIGHT, 512, 512, 7, 3, 40, 36},
                 {"1 x 1, 256 to 128, its data gradient", KOLO_DNN_DATA, 256, 128, 56, 1, 37, 33}};
    const kolo_dnn_rules rules = {.behaviours = 1u << CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION,
                                  .workspace = (size_t)1 << 30};
    planner *p = open_planner("h200", false, "");
    for (size_t k = 0; k < sizeof shape / sizeof *shape; k++) {
        const int64_t side = shape[k].side, pad = shape[k].kernel / 2;
        const kolo_dnn_conv c = {.pass = shape[k].pass,
                                 .dtype = KOLO_BF16,
                                 .rows = 256,
                                 .in = shape[k].in,
                                 .out = shape[k].out,
                                 .group = 1,
                                 .x = {side, side},
                                 .y = {side, side},
                                 .kernel = {shape[k].kernel, shape[k].kernel},
                                 .stride = {1, 1},
                                 .pad = {pad, pad},
                                 .dilation = {1, 1}};
        kolo_dnn_graph *g;
        kolo_dnn_choice *list;
        int64_t n, admissible = 0;
        toolkit_check(kolo_dnn_graph_create(&g, &p->cuda, &c), "graph");
        toolkit_check(kolo_dnn_proposals(g, &list, &n), "proposals");
        for (int64_t i = 0; i < n; i++) {
            kolo_dnn_plan *plan;
            if (kolo_dnn_plan_create(&plan, g, &list[i], &rules)) continue;
            admissible++;
            kolo_dnn_plan_destroy(&plan);
        }
        ok(n >= shape[k].proposals && admissible >= shape[k].admissible,
           "%s: the clock has %ld of %ld proposals to try", shape[k].name, (long)admissible, (long)n);
        free(list);
        kolo_dnn_graph_destroy(&g);
    }
    close_planner(p);
}

/* Which convolutions in front of a norm form its sums by an engine that is there, without being compiled. */
static void test_sums(const char *model, int64_t batch, enum kolo_dtype dtype, int convolutions, int fused)
{
    planner *p = open_planner("h200", false, "");
    network n = open_network(p, model, batch, dtype);
    int all = 0, with = 0, wrong = 0;
    free(n.layout);
    toolkit_check(kolo_graph_fuse_conv(n.graph, false), "fuse");
    n.layout = kolo_alloc((size_t)n.graph->tensors * sizeof *n.layout);
    toolkit_check(kolo_backend_layout(&p->backend, n.graph, NULL, NULL, n.layout), "layout");
    for (int i = 0; i < (int)n.graph->nodes; i++) {
        const kolo_node *node = &n.graph->node[i];
        kolo_kernel *k;
        size_t bytes = 0;
        if (node->op != KOLO_OP_conv_stats) continue;
        toolkit_check(kolo_backend_prepare(&p->backend, n.graph, i, n.layout, &k, &bytes), "prepare");
        const bool sums = strstr(kolo_kernel_name(k), "with sums");
        all++;
        with += sums;
        wrong += dtype == KOLO_F16 && sums != (n.graph->tensor[node->in[0]].dim[1] > 8);
    }
    ok(all == convolutions && with == fused && !wrong,
       "%s, %s: of %d convolutions in front of a norm %d form its sums by a precompiled engine", model,
       kolo_dtype_name(dtype), all, with);
    if (wrong) diag("for %d the rule of bytes (graph/bytes.c) says otherwise", wrong);
    close_network(&n);
    close_planner(p);
}

/* Which data gradients behind a norm form its sums by an engine that is there, without being compiled, and
 * that the rule of bytes counts none of them as several passes. */
static void test_masks(const char *gpu, const char *model, int64_t batch, int gradients)
{
    planner *p = open_planner(gpu, false, "");
    network n = open_network(p, model, batch, KOLO_F16);
    int all = 0, with = 0, wrong = 0;
    free(n.layout);
    toolkit_check(kolo_graph_fuse_grad(n.graph), "fuse");
    n.layout = kolo_alloc((size_t)n.graph->tensors * sizeof *n.layout);
    size_t *bytes = kolo_alloc((size_t)n.graph->tensors * sizeof *bytes), workspace = 0;
    toolkit_check(kolo_backend_layout(&p->backend, n.graph, NULL, NULL, n.layout), "layout");
    for (int64_t t = 0; t < n.graph->tensors; t++) bytes[t] = n.layout[t].bytes;
    const kolo_stored stored = {bytes, true};
    for (int i = 0; i < (int)n.graph->nodes; i++) {
        const kolo_node *node = &n.graph->node[i];
        kolo_kernel *k;
        size_t needs = 0;
        if (node->op != KOLO_OP_conv_grad_norm) continue;
        toolkit_check(kolo_backend_prepare(&p->backend, n.graph, i, n.layout, &k, &needs), "prepare");
        if (needs > workspace) workspace = needs;
        const bool fused = strstr(kolo_kernel_name(k), "with a norm's sums");
        const double once = kolo_bytes_whole(n.graph, node, &stored).written;
        all++;
        with += fused;
        wrong += fused != (kolo_bytes_conv(n.graph, node, &stored).written <= once);
        if (!fused) diag("%s: %s", n.graph->tensor[node->out[0]].name, kolo_kernel_name(k));
    }
    ok(all == gradients && with == all && !wrong && workspace < 64 << 20,
       "%s: %s, fp16: of %d data gradients behind a norm %d form its sums by a precompiled engine (workspace "
       "%.1f MiB)",
       gpu, model, all, with, (double)workspace / (1 << 20));
    if (wrong) diag("for %d the rule of bytes (graph/bytes.c) says otherwise", wrong);
    free(bytes);
    close_network(&n);
    close_planner(p);
}

/* Which norms with relu are done by the convolutions behind them, by engines that are there. */
static void test_norms(const char *model, int64_t batch, int norms)
{
    static const char *const says[] = {"with norm and sums", "with norm, "};
    planner *p = open_planner("h200", false, "");
    network n = open_network(p, model, batch, KOLO_F16);
    int all[2] = {0}, with[2] = {0};
    size_t bytes = 0;
    free(n.layout);
    toolkit_check(kolo_graph_fuse_conv(n.graph, true), "fuse");
    n.layout = kolo_alloc((size_t)n.graph->tensors * sizeof *n.layout);
    toolkit_check(kolo_backend_layout(&p->backend, n.graph, NULL, NULL, n.layout), "layout");
    for (int i = 0; i < (int)n.graph->nodes; i++) {
        const enum kolo_op op = n.graph->node[i].op;
        const int which = op == KOLO_OP_norm_conv_grad_weight;
        kolo_kernel *k;
        if (op != KOLO_OP_norm_conv_stats && !which) continue;
        toolkit_check(kolo_backend_prepare(&p->backend, n.graph, i, n.layout, &k, &bytes), "prepare");
        all[which]++;
        with[which] += strstr(kolo_kernel_name(k), says[which]) != NULL;
    }
    ok(all[0] == norms && all[1] == norms && with[0] == norms && with[1] == norms,
       "%s, f16: %d norms are done by the convolutions behind them, %d of these by a precompiled engine, %d "
       "of their "
       "weights' gradients",
       model, all[0], with[0], with[1]);
    close_network(&n);
    close_planner(p);
}

/* ---- choices and groups -------------------------------------------------------------------------------- */

/* x (4, in, 14, 14), one convolution of 3 x 3, and its gradients. */
static network open_single(planner *p, int64_t in, int64_t out, int64_t groups, enum kolo_dtype dtype)
{
    network n = {NULL, NULL};
    kolo_conv_spec spec = {.out = out,
                           .kernel = {3, 3},
                           .stride = {1, 1},
                           .pad = {1, 1},
                           .groups = groups,
                           .bias = true,
                           .weight = {KOLO_INIT_CONSTANT, 0},
                           .bias_init = {KOLO_INIT_CONSTANT, 0}};
    toolkit_check(kolo_graph_create(&n.graph, "single", true, dtype), "graph");
    int x = kolo_graph_tensor(n.graph, "x", KOLO_ROLE_ACTIVATION, dtype, 4, (const int64_t[]){4, in, 14, 14});
    int y = kolo_conv(n.graph, "c", x, &spec), w = kolo_graph_find(n.graph, "c.weight");
    toolkit_check(y, "convolution");
    int dy = kolo_graph_tensor(n.graph, "dy", KOLO_ROLE_ACTIVATION, dtype, 4, n.graph->tensor[y].dim);
    int dx = kolo_graph_tensor(n.graph, "dx", KOLO_ROLE_ACTIVATION, dtype, 4, n.graph->tensor[x].dim);
    int dw = kolo_graph_tensor(n.graph, "dw", KOLO_ROLE_GRADIENT, KOLO_F32, 4, n.graph->tensor[w].dim);
    int db = kolo_graph_tensor(n.graph, "db", KOLO_ROLE_GRADIENT, KOLO_F32, 1, &out);
    n.graph->tensor[dw].of = w;
    const kolo_attributes a = n.graph->node[0].a;
    toolkit_check(
        kolo_graph_node_with(n.graph, KOLO_OP_conv_grad_weight, 2, (int[]){x, dy}, 2, (int[]){dw, db}, &a),
        "dw");
    toolkit_check(kolo_graph_node_with(n.graph, KOLO_OP_conv_grad_data, 2, (int[]){dy, w}, 1, &dx, &a), "dx");
    n.layout = kolo_alloc((size_t)n.graph->tensors * sizeof *n.layout);
    toolkit_check(kolo_backend_layout(&p->backend, n.graph, NULL, NULL, n.layout), "layout");
    return n;
}

static void test_groups(void)
{
    static const struct {
        const char *name;
        int64_t in, out, groups;
        int plans;
    } group[] = {{"32 groups", 128, 256, 32, 3},
                 {"depthwise", 96, 96, 96, 3},
                 {"depthwise, twice as many", 48, 96, 48, 3},
                 {"groups of padded channels", 12, 20, 4, 0}};
    static const enum kolo_dtype dtypes[] = {KOLO_F32, KOLO_BF16, KOLO_F16};
    for (size_t k = 0; k < sizeof group / sizeof *group; k++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            const bool fits = dtypes[d] == KOLO_F32 || group[k].plans; /* 12 and 20 are whole vectors of 4 */
            planner *p = open_planner("h200", false, "");
            network n = open_single(p, group[k].in, group[k].out, group[k].groups, dtypes[d]);
            tally t = plan_network(p, &n);
            is_int(t.convolutions - t.refused, fits ? 3 : 0, "%s, %s: %s", group[k].name,
                   kolo_dtype_name(dtypes[d]), fits ? "all three passes have a plan" : "refused");
            if (t.refused && fits) diag("%s", t.first);
            if (!fits) ok(strstr(t.first, "multiples of 8"), "the refusal says what is possible");
            close_network(&n);
            close_planner(p);
        }
}

static const char *plan_forward(planner *p, network *n)
{
    kolo_kernel *k;
    size_t bytes;
    toolkit_check(kolo_backend_prepare(&p->backend, n->graph, 0, n->layout, &k, &bytes), "prepare");
    return kolo_kernel_name(k);
}

/* A kept choice is taken instead of the first proposal; one that cannot be had any more is passed over. */
static void test_choices(void)
{
    static const char key[] = "conv bf16 n 4 x 64 14 14 y 64 14 14 k 3 3 s 1 1 p 1 1 d 1 1 g 1 not 4";
    planner *p = open_planner("h200", false, "");
    network n = open_single(p, 64, 64, 1, KOLO_BF16);
    char first[96], kept[256];
    snprintf(first, sizeof first, "%s", plan_forward(p, &n));
    close_network(&n);
    close_planner(p);

    static const struct {
        const char *text, *name, *what;
    } choice[] = {{"0", "cuDNN 0", "the kept engine is taken"},
                  {"9999", NULL, "an engine that is gone is replaced by the rule's"},
                  {"0 2:1 99:99", NULL, "knobs that are gone are replaced by the rule's"},
                  {"nonsense", NULL, "a damaged choice is replaced by the rule's"}};
    ok(strcmp(first, "cuDNN 0"), "the rule would take another (%s)", first);
    for (size_t i = 0; i < sizeof choice / sizeof *choice; i++) {
        snprintf(kept, sizeof kept, "%s = %s\n", key, choice[i].text);
        p = open_planner("h200", false, kept);
        n = open_single(p, 64, 64, 1, KOLO_BF16);
        is_text(plan_forward(p, &n), choice[i].name ? choice[i].name : first, "%s", choice[i].what);
        close_network(&n);
        close_planner(p);
    }
}

int main(void)
{
    test_texts();
    for (int pass = KOLO_DNN_FORWARD; pass <= KOLO_DNN_WEIGHT; pass++) {
        test_round_trip("h200", pass, KOLO_BF16);
        test_round_trip("h200", pass, KOLO_F32);
        test_round_trip("a100", pass, KOLO_F16);
    }
    test_rules();
    test_proposals();
    test_sums("resnet18", 256, KOLO_F16, 20, 19);
    test_sums("resnet50", 256, KOLO_F16, 53, 52);
    test_sums("resnet101", 128, KOLO_F16, 104, 103);
    test_sums("resnet50", 256, KOLO_BF16, 53, 0);
    test_masks("h200", "resnet18", 256, 12);
    test_masks("h200", "resnet50", 256, 47);
    test_masks("h200", "resnet101", 128, 98);
    test_masks("h200", "resnet50", 32, 47);
    test_masks("h100", "resnet50", 256, 47);
    test_masks("h200", "resnet20", 128, 16);
    test_norms("resnet18", 256, 8);
    test_norms("resnet50", 256, 32);
    test_norms("resnet101", 128, 66);
    test_groups();
    test_choices();
    test_networks("h200", false);
    test_networks("a100", true);
    return done_testing();
}
