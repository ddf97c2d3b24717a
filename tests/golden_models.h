/* Golden cases of whole networks: one forward and backward through graph, plan and executor; golden_train.h
 * has those of several steps. */
#ifndef TESTS_GOLDEN_MODELS_H
#define TESTS_GOLDEN_MODELS_H

#include "exec/exec.h"
#include "golden_file.h"
#include "golden_optim.h"
#include "models/models.h"

typedef struct golden_net {
    kolo_graph *graph;
    kolo_plan *plan;
    kolo_exec *exec;
    const cJSON *config;
    uint64_t seed;
    int64_t rows, classes, elements; /* elements of the input */
    float *input;
    int32_t *label;
    double loss, norm;  /* of the last step */
    bool channels_last; /* maps are N,H,W,C in the files: Swin; or tokens: ViT */
    char logits[64];    /* their name in the whole network */
} golden_net;

/* The case's network by this build's name; NULL: unknown here. */
static const kolo_model *golden_model(const cJSON *config)
{
    const char *shortcut;
    char plain[64];
    golden_network(golden_text(config, "model", ""), plain, &shortcut);
    for (int i = 0; i < kolo_model_count; i++)
        if (!strcmp(kolo_model_table[i].name, plain)) return &kolo_model_table[i];
    return NULL;
}

/* Rows and columns that maps are cut into (kolo_graph_split); 0: not. */
static int golden_parts[2];

/* Parts that channels are cut into (kolo_graph_split_channels); 0: not. */
static int golden_channels;
/* spatial=RxC,MODULE:tensor[=N]: from which on channels are cut instead of maps */
static char golden_late[64];
static int golden_late_parts;

/* f32 images (N,C,H,W) straight into the network, then loss, fusion, backward: what kolo_model_graph
 * does after `normalize`. */
static int golden_graph(golden_net *n, const kolo_model *model, const cJSON *config, double smoothing,
                        bool train)
{
    int64_t size[8] = {0}, rows = (int64_t)golden_number(config, "batch", 1),
            channels = (int64_t)golden_number(config, "channels", 3);
    golden_dims(golden_at(config, "size"), size);
    int64_t dim[] = {rows, channels, size[0], size[1]};
    kolo_model_config c = {.rows = rows,
                           .height = size[0],
                           .width = size[1],
                           .channels = channels,
                           .train = train,
                           .smoothing = smoothing,
                           .auxiliary = golden_number(config, "auxiliary", 0),
                           .classes = (int64_t)golden_number(config, "classes", 10),
                           .shortcut = !strcmp(golden_text(config, "option", "A"), "B") ? "b" : "a"};
    KOLO_TRY(kolo_graph_create(&n->graph, model->name, train, KOLO_F32));
    kolo_graph *g = n->graph;
    int x = g->input = kolo_graph_tensor(g, "input", KOLO_ROLE_INPUT, KOLO_F32, 4, dim);
    const bool boxes = model->detector != NULL;
    int64_t label_dim[] = {rows, boxes ? 6 : 1}; /* of a detector: no box */
    g->label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_I32, boxes ? 2 : 1, label_dim);
    g->rows = n->rows = rows;
    n->classes = c.classes;
    n->elements = dim[0] * dim[1] * dim[2] * dim[3];
    n->config = config;
    int logits = model->build(g, x, model, &c);
    KOLO_TRY(logits);
    snprintf(n->logits, sizeof n->logits, "%s", g->tensor[logits].name);
    if (!boxes) KOLO_TRY(kolo_cross_entropy(g, logits, smoothing));
    if (g->auxiliary >= 0 && !train) KOLO_TRY(kolo_graph_prune(g));
    /* PyTorch's side goes by the number of axes, and a layer scale has three */
    for (int t = 0; t < g->tensors; t++)
        if (golden_ends(g->tensor[t].name, "layer_scale")) g->tensor[t].decay = true;
    const char *freeze = golden_text(config, "freeze", "");
    if (train && *freeze) KOLO_TRY(kolo_graph_freeze(g, freeze));
    KOLO_TRY(kolo_graph_fuse(g));
    if (golden_channels) KOLO_TRY(kolo_graph_split_channels(g, golden_channels));
    kolo_cut_range late = {.parts = {1, 1}, .channels = golden_late_parts};
    snprintf(late.from, sizeof late.from, "%s", golden_late);
    const kolo_cuts cuts = {.parts = {golden_parts[0], golden_parts[1]},
                            .range = &late,
                            .ranges = *golden_late != 0,
                            .apart = true};
    KOLO_TRY(kolo_graph_split_late(g, &cuts));
    if (golden_parts[0]) KOLO_TRY(kolo_graph_split(g, &cuts));
    return train ? kolo_graph_backward(g) : 0;
}

/* A tensor by its name in the whole network: of one in slabs the first. */
static int golden_named(const kolo_graph *g, const char *name)
{
    char slab[300];
    const int t = kolo_graph_find(g, name);
    snprintf(slab, sizeof slab, "%.290s:part0", name);
    const int first = t < 0 ? kolo_graph_find(g, slab) : -1;
    return first >= 0 && g->tensor[first].slab.runs ? first : t;
}

static bool golden_is_norm_bias(const kolo_graph *g, const char *name)
{
    char mean[300];
    if (!golden_ends(name, ".bias")) return false;
    snprintf(mean, sizeof mean, "%.*srunning_mean", (int)(strlen(name) - 4), name);
    return golden_named(g, mean) >= 0;
}

static int golden_weights(golden_net *n)
{
    const kolo_graph *g = n->graph;
    double shift = golden_number(n->config, "norm_bias", 0), gain = golden_number(n->config, "gain", 1);
    for (int t = 0; t < g->tensors; t++) {
        const kolo_tensor *x = &g->tensor[t];
        if (x->role != KOLO_ROLE_PARAM && x->role != KOLO_ROLE_BUFFER) continue;
        double a, b;
        char name[256];
        const kolo_tensor whole = kolo_tensor_whole(x, name);
        int64_t count = kolo_tensor_count(&whole);
        float *values = malloc((size_t)count * sizeof *values), *slab = malloc((size_t)count * sizeof *slab);
        golden_coefficients(name, x->rank, whole.dim, gain, &a, &b);
        if (golden_is_norm_bias(g, name)) a = shift;
        golden_fill(name, n->seed, a, b, values, count);
        if (x->slab.runs) {
            kolo_slab_take(x, slab, values);
            memcpy(values, slab, (size_t)kolo_tensor_count(x) * sizeof *values);
        }
        free(slab);
        int rc = kolo_exec_set(n->exec, "param", t, values);
        if (rc == 0 && n->plan->config.ema) rc = kolo_exec_set(n->exec, "ema", t, values);
        free(values);
        KOLO_TRY(rc);
    }
    return 0;
}

/* train: with SGD (rate 0 leaves the weights alone). */
static int golden_open(golden_net *n, const kolo_model *model, const cJSON *config, uint64_t seed,
                       kolo_backend *backend, const kolo_options *options, double smoothing, bool train)
{
    memset(n, 0, sizeof *n);
    n->seed = seed;
    n->channels_last = !strncmp(model->name, "swin", 4) || !strncmp(model->name, "vit", 3);
    KOLO_TRY(golden_graph(n, model, config, smoothing, train));
    kolo_plan_config c = {.ranks = 1,
                          .slots = 1,
                          .bucket_bytes = 1 << 18,
                          .keep = true,
                          .decay_norms = options->decay_norms,
                          .optimizer = train ? kolo_optimizer_find(options->optimizer) : NULL,
                          .clip_norm = options->clip_norm > 0,
                          .ema = train && options->ema > 0};
    KOLO_TRY(kolo_plan_create(&n->plan, n->graph, backend, &c, NULL));
    KOLO_TRY(kolo_plan_check(n->plan));
    KOLO_TRY(kolo_exec_create(&n->exec, &n->plan, 1, backend, NULL, options, NULL));
    n->input = malloc((size_t)n->elements * sizeof *n->input);
    n->label = calloc((size_t)n->rows, 6 * sizeof *n->label);
    return golden_weights(n);
}

static void golden_close(golden_net *n)
{
    kolo_exec_destroy(&n->exec);
    kolo_plan_destroy(&n->plan);
    kolo_graph_destroy(&n->graph);
    free(n->input);
    free(n->label);
}

static int golden_step(golden_net *n, const char *input, const char *labels, kolo_step *step)
{
    kolo_metrics m;
    golden_fill(input, n->seed, 0, golden_unit, n->input, n->elements);
    if (labels) golden_labels(labels, n->seed, n->classes, n->label, n->rows);
    kolo_batch batch = {.pixels = (const uint8_t *)n->input,
                        .labels = n->label,
                        .rows = n->rows,
                        .valid = n->rows,
                        .valid_global = n->rows};
    int rc = kolo_exec_step(n->exec, &batch, step, &m);
    if (rc >= 0 && m.step < 0) rc = kolo_exec_drain(n->exec, &m); /* a device tells it later */
    n->loss = m.loss / (double)n->rows;
    n->norm = m.grad_norm;
    return rc;
}

/* Of a tensor in slabs the whole, by its first. */
static float *golden_get_slabs(golden_net *n, const char *which, int tensor, int64_t *count)
{
    char name[256];
    const kolo_tensor whole = kolo_tensor_whole(&n->graph->tensor[tensor], name);
    *count = kolo_tensor_count(&whole);
    float *values = calloc((size_t)*count + 1, sizeof *values),
          *slab = calloc((size_t)*count + 1, sizeof *slab);
    for (int t = tensor; t >= 0; t = kolo_graph_next_slab(n->graph, t)) {
        if (kolo_exec_get(n->exec, which, t, slab) < 0) slab[0] = NAN;
        kolo_slab_put(&n->graph->tensor[t], slab, values);
    }
    free(slab);
    return values;
}

static float *golden_get(golden_net *n, const char *which, int tensor, int64_t *count)
{
    if (tensor >= 0 && n->graph->tensor[tensor].slab.runs) return golden_get_slabs(n, which, tensor, count);
    *count = tensor >= 0 ? kolo_tensor_count(&n->graph->tensor[tensor]) : 0;
    float *values = calloc((size_t)*count + 1, sizeof *values);
    if (tensor < 0 || kolo_exec_get(n->exec, which, tensor, values) < 0) values[0] = NAN;
    return values;
}

/* Map `name` of a graph that is cut, put together, of size dim; NULL: it has no parts. Caller frees. */
static float *golden_whole(golden_net *n, const char *name, int64_t dim[4])
{
    const int parts = golden_parts[0] * golden_parts[1];
    const kolo_tensor *of[KOLO_MAX_ARGS];
    int number[KOLO_MAX_ARGS];
    for (int p = 0; p < parts; p++) {
        char part[300];
        snprintf(part, sizeof part, "%s:part%d", name, p);
        if ((number[p] = kolo_graph_find(n->graph, part)) < 0) return NULL;
        of[p] = &n->graph->tensor[number[p]];
    }
    if (parts == 0 || of[0]->rank != 4) return NULL;
    if (*golden_late && of[0]->producer >= kolo_graph_module(n->graph, n->graph->nodes, golden_late))
        return NULL; /* of its channels */
    memcpy(dim, of[0]->dim, 4 * sizeof *dim);
    dim[2] = dim[3] = 0;
    for (int r = 0; r < golden_parts[0]; r++) dim[2] += of[r * golden_parts[1]]->dim[2];
    for (int c = 0; c < golden_parts[1]; c++) dim[3] += of[c]->dim[3];
    float *whole = calloc((size_t)(dim[0] * dim[1] * dim[2] * dim[3]) + 1, sizeof *whole);
    for (int p = 0; p < parts; p++) {
        int64_t count;
        float *values = golden_get(n, "activation", number[p], &count);
        const int64_t top = kolo_part_start(dim[2], golden_parts[0], p / golden_parts[1]),
                      left = kolo_part_start(dim[3], golden_parts[1], p % golden_parts[1]),
                      height = of[p]->dim[2], width = of[p]->dim[3];
        for (int64_t i = 0; i < count; i++)
            whole[(i / width / height * dim[2] + top + i / width % height) * dim[3] + left + i % width] =
                values[i];
        free(values);
    }
    return whole;
}

static double golden_l2(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* (N,C,H,W) -> (N,H,W,C) */
static void golden_turn(const kolo_tensor *t, float *values)
{
    const int64_t count = kolo_tensor_count(t), channels = t->dim[1], pixels = t->dim[2] * t->dim[3];
    float *turned = malloc((size_t)count * sizeof *turned);
    for (int64_t i = 0; i < count; i++) {
        const int64_t plane = i / pixels,
                      at = (plane / channels * pixels + i % pixels) * channels + plane % channels;
        turned[at] = values[i];
    }
    memcpy(values, turned, (size_t)count * sizeof *values);
    free(turned);
}

static void golden_all(golden_net *n, golden_worst *w, const cJSON *record, const char *probe,
                       const float *values, int64_t count)
{
    golden_floats(w, record, probe, n->seed, values, count);
    const cJSON *rows = golden_at(record, "rows");
    if (rows && cJSON_GetArraySize(golden_at(rows, "f64")) <= count)
        golden_floats(w, rows, probe, n->seed, values, cJSON_GetArraySize(golden_at(rows, "f64")));
}

static void golden_one(golden_net *n, golden_worst *w, const cJSON *record, const char *which,
                       const char *tensor, const char *probe)
{
    int64_t count;
    const int t = golden_named(n->graph, tensor);
    float *values = golden_get(n, which, t, &count);
    if (n->channels_last && t >= 0 && n->graph->tensor[t].rank == 4 && !strcmp(which, "activation"))
        golden_turn(&n->graph->tensor[t], values);
    golden_all(n, w, record, probe, values, count);
    free(values);
}

/* Logits of a training, whose classes may be in parts. */
static void golden_logits(golden_net *n, golden_worst *w, const cJSON *record)
{
    static const char probe[] = "logits.train";
    if (n->graph->logits >= 0) {
        golden_one(n, w, record, "activation", n->logits, probe);
        return;
    }
    const int64_t all = n->rows * n->classes;
    float *whole = malloc((size_t)all * sizeof *whole);
    int64_t count, first = 0;
    for (int p = 0; first < n->classes; p++) {
        char name[300];
        snprintf(name, sizeof name, "%s:part%d", n->logits, p);
        float *part = golden_get(n, "activation", kolo_graph_find(n->graph, name), &count);
        const int64_t classes = count / n->rows;
        for (int64_t i = 0; i < n->rows; i++)
            memcpy(whole + i * n->classes + first, part + i * classes, (size_t)classes * sizeof *part);
        first += classes;
        free(part);
    }
    golden_all(n, w, record, probe, whole, all);
    free(whole);
}

/* The same of a map that is cut; what is not, or has no such name, is left out. */
static void golden_cut(golden_net *n, golden_worst *w, const cJSON *record, const char *map, const char *name)
{
    kolo_tensor t = {.rank = 4};
    float *values = golden_whole(n, map, t.dim);
    if (!values) return;
    if (n->channels_last) golden_turn(&t, values);
    golden_floats(w, record, name, n->seed, values, kolo_tensor_count(&t));
    free(values);
}

/* ---- models/ ---- */

/* A module's output: the tensor of that name, or the last one that the modules inside it make. */
static const char *golden_module(const kolo_graph *g, const char *module)
{
    if (kolo_graph_find(g, module) >= 0) return module;
    size_t length = strlen(module);
    const char *last = NULL;
    for (int64_t i = 0; i < g->nodes; i++) {
        const char *name =
            g->node[i].n_out && g->node[i].out[0] >= 0 ? g->tensor[g->node[i].out[0]].name : "";
        if (!g->node[i].backward && !strncmp(name, module, length) && name[length] == '.') last = name;
    }
    return last;
}

/* Some operation makes it, and makes all of it. */
static bool golden_is_whole(const kolo_graph *g, const char *name)
{
    const int t = kolo_graph_find(g, name);
    for (int64_t i = 0; i < g->nodes && !strstr(name, ":part"); i++)
        for (int k = 0; k < g->node[i].n_out; k++)
            if (g->node[i].out[k] == t) return true;
    return false;
}

static golden_worst golden_gradients_worst(golden_net *n, const cJSON *grads)
{
    golden_worst w = {0};
    const cJSON *record;
    double largest = 0;
    cJSON_ArrayForEach(record, grads) largest =
        fmax(largest, golden_number(golden_at(record, "f64"), "l2", 0));
    cJSON_ArrayForEach(record, grads)
    {
        /* nobody wants the gradient of the images, so it is not formed */
        if (!strcmp(record->string, "input")) continue;
        if (!golden_number(record, "zero", 0)) {
            golden_one(n, &w, record, "gradient", record->string, record->string);
            continue;
        }
        int64_t count;
        float *values = golden_get(n, "gradient", golden_named(n->graph, record->string), &count);
        golden_note(&w, record->string, golden_l2(values, count) / largest, 1e-6);
        free(values);
    }
    return w;
}

/* Where an input of a ReLU lies within rounding of 0, another program may take the other side of it than
 * either of the file's results did: such a file is judged by the looser figures, all others sharply. */
static void golden_gradients(golden_net *n, const char *name, const cJSON *json)
{
    const cJSON *grads = golden_at(json, "grads");
    const double margin = golden_number(golden_at(json, "relu"), "margin", 1);
    golden_worst w = golden_gradients_worst(n, grads);
    if (w.share > 1 && margin < 3e-6) {
        diag("%s: %s: an input of a ReLU lies %.1e of its tensor's size from 0", name, w.what, margin);
        golden_loose = 0.03;
        w = golden_gradients_worst(n, grads);
        golden_loose = 0;
    }
    golden_result(name, "gradients", &w);
}

/* A loss holds no more digits than the logits that it is made of, even where f32 and f64
 * happened to agree in it. */
static void golden_loss(golden_worst *w, const cJSON *json, const char *key, double value)
{
    const cJSON *record = golden_at(json, key);
    double want = golden_number(record, "f64", NAN),
           logits = golden_number(golden_at(json, "logits_train"), "rel_l2", 0);
    golden_note(w, key, fabs(value - want) / fabs(want), fmax(golden_tolerance(record, "rel"), logits));
}

static void golden_train_mode(golden_net *n, const char *name, const cJSON *json)
{
    golden_worst loss = {0}, logits = {0}, inside = {0}, running = {0};
    const cJSON *record;
    golden_loss(&loss, json, "loss", n->loss);
    golden_result(name, "loss", &loss);
    golden_logits(n, &logits, golden_at(json, "logits_train"));
    golden_result(name, "logits_train", &logits);
    cJSON_ArrayForEach(record, golden_at(json, "activations"))
    {
        if (golden_parts[0]) {
            golden_cut(n, &inside, record, record->string, record->string);
            continue;
        }
        const char *tensor = golden_module(n->graph, record->string);
        /* else fused with its neighbour, or its channels are in parts */
        if (tensor && golden_is_whole(n->graph, tensor))
            golden_one(n, &inside, record, "activation", tensor, record->string);
    }
    if ((golden_parts[0] || golden_channels) && !inside.compared)
        skip("%s activations: all maps are in parts of channels, or none is in parts", name);
    else golden_result(name, "activations", &inside);
    golden_gradients(n, name, json);
    cJSON_ArrayForEach(record, golden_at(json, "running"))
        golden_one(n, &running, record, "param", record->string, record->string);
    if (running.compared) golden_result(name, "running statistics", &running);
}

static void golden_other_modes(const kolo_model *model, const char *name, const cJSON *json, uint64_t seed,
                               kolo_backend *backend, const kolo_options *options, const char *input)
{
    golden_net n;
    kolo_step step = {0};
    const cJSON *config = golden_at(json, "config"), *smooth = golden_at(json, "loss_smooth_0.1");
    golden_worst w = {0}, v = {0};
    if (smooth) {
        if (golden_open(&n, model, config, seed, backend, options, 0.1, true) < 0 ||
            golden_step(&n, input, "labels", &step) < 0)
            ok(0, "%s: %s", name, kolo_error_text());
        else {
            golden_loss(&w, json, "loss_smooth_0.1", n.loss);
            golden_result(name, "loss_smooth_0.1", &w);
        }
        golden_close(&n);
    }
    if (golden_open(&n, model, config, seed, backend, options, 0, false) < 0 ||
        golden_step(&n, input, "labels", &step) < 0)
        ok(0, "%s: %s", name, kolo_error_text());
    else {
        golden_one(&n, &v, golden_at(json, "logits_eval"), "activation",
                   n.graph->tensor[n.graph->logits].name, "logits.eval");
        golden_result(name, "logits_eval", &v);
    }
    golden_close(&n);
}

static void golden_model_case(const char *name, const cJSON *json, kolo_backend *backend)
{
    const cJSON *config = golden_at(json, "config");
    const kolo_model *model = golden_model(config);
    uint64_t seed = golden_seed(json);
    if (!model || !golden_at(json, "logits_train")) {
        skip("%s: this build lacks the network %s", name, golden_text(config, "model", ""));
        return;
    }
    if (golden_at(golden_at(json, "grads"), "AuxLogits.fc.weight") && !golden_at(config, "auxiliary"))
        cJSON_AddNumberToObject((cJSON *)config, "auxiliary", 0.4);
    kolo_options options;
    kolo_options_default(&options);
    golden_net n;
    kolo_step step = {0};
    const char *input = golden_text(config, "input", "input");
    const int opened = golden_open(&n, model, config, seed, backend, &options, 0, true);
    if (opened == KOLO_ECONFIG && (golden_parts[0] || golden_channels)) {
        skip("%s: %s", name, kolo_error_text()); /* it has no such parts */
        golden_close(&n);
        kolo_options_free(&options);
        return;
    }
    if (opened < 0 || golden_step(&n, input, "labels", &step) < 0) ok(0, "%s: %s", name, kolo_error_text());
    else golden_train_mode(&n, name, json);
    golden_close(&n);
    golden_other_modes(model, name, json, seed, backend, &options, input);
    kolo_options_free(&options);
}

#endif
