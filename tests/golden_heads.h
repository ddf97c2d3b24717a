/* Golden cases of detectors: networks whose loss is the sum of the raw heads' elements, each times a number
 * of the formula. A backend takes that in the place of the detector's own loss. */
#ifndef TESTS_GOLDEN_HEADS_H
#define TESTS_GOLDEN_HEADS_H

#include "golden_models.h"
#include "ops/kernel.h"
#include "ops/yolox.h"

/* of the case at hand: a kernel is prepared from its node alone */
static uint64_t golden_probe_seed;

typedef struct golden_probe {
    kolo_backend *backend;
    int heads;
    bool backward;
    const kolo_tensor *tensor[KOLO_MAX_HEADS];
    kolo_layout layout[KOLO_MAX_HEADS];
} golden_probe;

static void golden_head_probe(int head, float *values, int64_t n)
{
    char name[32];
    snprintf(name, sizeof name, "head%d.loss", head);
    golden_fill(name, golden_probe_seed, 0, 1, values, n);
}

/* Forward: heads, boxes -> metrics, ...; backward: heads, boxes, ... -> gradients of the heads. */
static int golden_probe_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                            int slot)
{
    (void)workspace;
    (void)step;
    (void)slot;
    const golden_probe *p = k->state;
    double loss = 0;
    for (int i = 0; i < p->heads; i++) {
        const int64_t n = kolo_tensor_count(p->tensor[i]);
        const size_t bytes = p->layout[i].bytes;
        float *probe = malloc((size_t)n * sizeof *probe), *x = malloc((size_t)n * sizeof *x);
        void *stored = malloc(bytes); /* a device's memory is not the host's */
        golden_head_probe(i, probe, n);
        if (p->backward) {
            KOLO_TRY(kolo_backend_from_canonical(p->backend, p->tensor[i], &p->layout[i], probe, stored));
            KOLO_TRY(kolo_backend_write(p->backend, args[p->heads + 3 + i], stored, bytes));
        } else {
            KOLO_TRY(kolo_backend_read(p->backend, stored, args[i], bytes));
            KOLO_TRY(kolo_backend_to_canonical(p->backend, p->tensor[i], &p->layout[i], stored, x));
            for (int64_t j = 0; j < n; j++) loss += (double)x[j] * (double)probe[j];
        }
        free(stored);
        free(probe);
        free(x);
    }
    const float metrics[KOLO_METRICS] = {(float)loss};
    return p->backward ? 0 : kolo_backend_write(p->backend, args[p->heads + 1], metrics, sizeof metrics);
}

static int golden_probe_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    golden_probe *p = calloc(1, sizeof *p);
    const kolo_node *n = r->node;
    p->backend = r->backend;
    p->backward = n->op == KOLO_OP_detect_loss_grad;
    p->heads = n->n_in - (p->backward ? 3 : 1);
    for (int i = 0; i < p->heads; i++) {
        p->tensor[i] = &r->graph->tensor[n->in[i]];
        p->layout[i] = r->layout[n->in[i]];
    }
    k->state = p;
    k->release = free;
    k->run = golden_probe_run;
    snprintf(k->name, sizeof k->name, "probe");
    return 0;
}

/* A backend with that loss. */
static kolo_backend *golden_probing(const char *name)
{
    static const kolo_op_row probe = {NULL, golden_probe_prepare};
    static const kolo_op_row *rows[KOLO_OP_COUNT];
    static kolo_backend_type type;
    kolo_backend *backend;
    const kolo_backend_config config = {.threads = kolo_cpu_count(), .direct = true, .deterministic = true};
    if (kolo_backend_create(&backend, name, &config) < 0) return NULL;
    memcpy(rows, backend->type->rows, sizeof rows);
    rows[KOLO_OP_detect_loss] = rows[KOLO_OP_detect_loss_grad] = &probe;
    type = *backend->type;
    type.rows = rows;
    backend->type = &type;
    return backend;
}

/* The tensor that a record names: P3..P5, head0..2, or a module. */
static const char *golden_map(const kolo_graph *g, const char *name)
{
    static const char *const pyramid[] = {"backbone.C3_p3", "backbone.C3_n3", "backbone.C3_n4"};
    if (name[0] == 'P' && name[1] >= '3' && name[1] <= '5' && !name[2])
        return golden_module(g, pyramid[name[1] - '3']);
    if (!strncmp(name, "head", 4) && name[4] >= '0' && name[4] < '0' + g->heads && !name[5])
        return g->tensor[g->head[name[4] - '0']].name;
    return golden_module(g, name);
}

/* (N, cells of all heads, 5 + classes): the boxes, as centre and size in pixels, and likelihoods that
 * the heads stand for. */
static void golden_decoded(golden_net *n, golden_worst *w, const cJSON *record)
{
    const kolo_graph *g = n->graph;
    int64_t count, cells = 0, of = 5 + n->classes, before = 0;
    for (int i = 0; i < g->heads; i++) cells += g->tensor[g->head[i]].dim[2] * g->tensor[g->head[i]].dim[3];
    double *box = calloc((size_t)(n->rows * cells * of), sizeof *box);
    for (int i = 0; i < g->heads; i++) {
        const kolo_tensor *t = &g->tensor[g->head[i]];
        const int64_t pixels = t->dim[2] * t->dim[3], stride = g->tensor[g->input].dim[2] / t->dim[2];
        float *head = golden_get(n, "activation", g->head[i], &count);
        for (int64_t k = 0; k < n->rows * pixels; k++) {
            const int64_t row = k / pixels, cell = k % pixels;
            const float *at = head + row * of * pixels + cell;
            double *to = box + (row * cells + before + cell) * of, raw[4], corner[4];
            for (int c = 0; c < 4; c++) raw[c] = (double)at[c * pixels];
            kolo_yolox_decode(raw, cell % t->dim[3], cell / t->dim[3], stride, corner);
            for (int c = 0; c < 2; c++) {
                to[c] = (corner[c] + corner[c + 2]) / 2;
                to[c + 2] = corner[c + 2] - corner[c];
            }
            for (int64_t c = 4; c < of; c++) to[c] = kolo_sigmoid((double)at[c * pixels]);
        }
        before += pixels;
        free(head);
    }
    golden_values(w, record, "decoded", n->seed, box, n->rows * cells * of);
    free(box);
}

/* Of a graph that is cut: the map `tensor`, a part of it, is put together; parts of channels are left out. */
static bool golden_map_in_parts(golden_net *n, golden_worst *w, const cJSON *record, const char *tensor)
{
    char map[300];
    const char *part = tensor ? strstr(tensor, ":part") : NULL;
    if (!part) return false;
    snprintf(map, sizeof map, "%.*s", (int)(part - tensor), tensor);
    if (golden_parts[0]) golden_cut(n, w, record, map, record->string);
    return true;
}

static void golden_maps(golden_net *n, const char *name, const char *part, const cJSON *records)
{
    golden_worst w = {0};
    const cJSON *record;
    cJSON_ArrayForEach(record, records)
    {
        if (!strcmp(record->string, "decoded")) { /* not made in the graph */
            golden_decoded(n, &w, record);
            continue;
        }
        const char *tensor = golden_map(n->graph, record->string);
        if (!golden_map_in_parts(n, &w, record, tensor))
            golden_one(n, &w, record, "activation", tensor ? tensor : "", record->string);
    }
    golden_result(name, part, &w);
}

static void golden_heads_train(golden_net *n, const char *name, const cJSON *json)
{
    golden_worst loss = {0}, running = {0};
    const cJSON *record;
    golden_scalar(&loss, golden_at(json, "loss"), "loss", n->loss * (double)n->rows);
    golden_result(name, "loss", &loss);
    golden_maps(n, name, "activations", golden_at(json, "activations"));
    golden_gradients(n, name, json);
    cJSON_ArrayForEach(record, golden_at(json, "running"))
        golden_one(n, &running, record, "param", record->string, record->string);
    golden_result(name, "running statistics", &running);
}

static void golden_heads_case(const char *name, const cJSON *json, const kolo_backend *like)
{
    const cJSON *config = golden_at(json, "config");
    const kolo_model *model = golden_model(config);
    const char *input = golden_text(config, "input", "input");
    if (!model) {
        skip("%s: this build lacks the network", name);
        return;
    }
    const uint64_t seed = golden_probe_seed = golden_seed(json);
    kolo_backend *backend = golden_probing(kolo_backend_is_host(like) ? "cpu" : "cuda");
    kolo_options options;
    kolo_options_default(&options);
    for (int train = 1; backend && train >= 0; train--) {
        golden_net n;
        kolo_step step = {0};
        if (golden_open(&n, model, config, seed, backend, &options, 0, train) < 0 ||
            golden_step(&n, input, NULL, &step) < 0)
            ok(0, "%s: %s", name, kolo_error_text());
        else if (train) golden_heads_train(&n, name, json);
        else golden_maps(&n, name, "evaluation", golden_at(json, "eval"));
        golden_close(&n);
    }
    kolo_options_free(&options);
    kolo_backend_destroy(&backend);
}

#endif
