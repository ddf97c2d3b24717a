/* Golden cases of `train/`: steps of a network with an optimizer, losses, norms and what the weights become,
 * held against PyTorch's and, sign by sign, against a forward pass in f64. */
#ifndef TESTS_GOLDEN_TRAIN_H
#define TESTS_GOLDEN_TRAIN_H

#include "golden_models.h"
#include "reference_f64.h"

static void golden_changes(golden_net *n, const char *name, const cJSON *json, float **start)
{
    golden_worst w = {0}, c = {0}, rest = {0};
    const cJSON *record;
    cJSON_ArrayForEach(record, golden_at(json, "weights"))
        golden_one(n, &w, record, "param", record->string, record->string);
    golden_result(name, "weights", &w);
    cJSON_ArrayForEach(record, golden_at(json, "change"))
    {
        int64_t count;
        int t = kolo_graph_find(n->graph, record->string);
        float *values = golden_get(n, "param", t, &count);
        double *moved = malloc((size_t)(count + 1) * sizeof *moved);
        for (int64_t i = 0; i < count; i++) moved[i] = (double)values[i] - (double)start[t][i];
        golden_values(&c, record, record->string, n->seed, moved, count);
        free(values);
        free(moved);
    }
    golden_result(name, "change", &c);
    cJSON_ArrayForEach(record, golden_at(json, "running"))
        golden_one(n, &rest, record, "param", record->string, record->string);
    cJSON_ArrayForEach(record, golden_at(json, "ema"))
        golden_one(n, &rest, record, "ema", record->string, record->string);
    if (rest.compared) golden_result(name, "running statistics and averages", &rest);
}

/* l2 of all gradients of this rank, before any clipping. */
static double golden_norm(golden_net *n)
{
    double sum = 0;
    for (int t = 0; t < n->graph->tensors; t++) {
        if (n->graph->tensor[t].role != KOLO_ROLE_PARAM || n->graph->tensor[t].frozen) continue;
        int64_t count;
        float *values = golden_get(n, "gradient", t, &count);
        sum += golden_l2(values, count) * golden_l2(values, count);
        free(values);
    }
    return sqrt(sum);
}

/* How the ReLUs of a trajectory behaved. */
typedef struct golden_signs {
    /* signs that differ from those of f64 at this program's weights, but for inputs near 0 after the first
     * step: mistakes, or rounding at the very first step */
    int64_t flips;
    /* first step but the first with an input so near 0 that its rounding, or that of earlier
     * steps, may move it across; -1: none */
    int near;
    double margin; /* of that step */
} golden_signs;

/* One step, seen by the f64 reference too where it knows the network. */
static int golden_watched(golden_net *n, const char *input, const char *labels, kolo_step *step,
                          golden_signs *signs)
{
    f64_values reference = {0};
    golden_fill(input, n->seed, 0, golden_unit, n->input, n->elements);
    const bool known = f64_forward(n->exec, n->graph, n->input, &reference);
    int rc = golden_step(n, input, labels, step);
    if (known && rc == 0) signs->flips += f64_flips(n->exec, n->graph, &reference, step->step > 0);
    if (known && step->step > 0 && signs->near < 0 && reference.margin < F64_NEAR)
        signs->near = (int)step->step, signs->margin = reference.margin;
    f64_free(n->graph, &reference);
    return rc;
}

/* Up to the step in which a sign may have changed nothing may be off; from there on gradients differ by up to
 * some percent, although both are right. */
static void golden_judge(const char *name, const cJSON *json, const golden_signs *signs, const double *losses,
                         const double *norms)
{
    golden_worst sharp = {0};
    const cJSON *l = golden_at(json, "losses"), *g = golden_at(json, "grad_norms");
    for (int t = 0; t <= signs->near; t++) {
        const double loss = cJSON_GetArrayItem(golden_at(l, "f64"), t)->valuedouble,
                     norm = cJSON_GetArrayItem(golden_at(g, "f64"), t)->valuedouble;
        golden_note(&sharp, "loss", fabs(losses[t] - loss) / loss, golden_tolerance(l, "rel_l2"));
        if (t < signs->near)
            golden_note(&sharp, "norm", fabs(norms[t] - norm) / norm, golden_tolerance(g, "rel_l2"));
    }
    ok(signs->flips == 0 && sharp.share <= 1,
       "%s: at step %d an input of a ReLU lies %.1e of its tensor's size from 0 and may be on either side; "
       "no sign farther from 0 differs from f64 at these weights, and before it all is sharp (%s)",
       name, signs->near, signs->margin, sharp.what);
    golden_loose = 0.1;
}

static int golden_run(golden_net *n, const char *name, const cJSON *json, const kolo_options *o)
{
    const cJSON *config = n->config, *optimizer = golden_at(config, "optimizer");
    int steps = (int)golden_number(config, "steps", 0);
    double losses[64] = {0}, norms[64] = {0};
    golden_worst l = {0}, g = {0};
    golden_signs signs = {.near = -1};
    for (int t = 0; t < steps && t < 64; t++) {
        char input[64], labels[64];
        snprintf(input, sizeof input, "%.40s.%d", golden_text(config, "input", "input"), t);
        snprintf(labels, sizeof labels, "labels.%d", t);
        kolo_step step = {.step = t,
                          .lr = (float)golden_rate(optimizer, t),
                          .momentum = (float)kolo_momentum(o, t, steps),
                          .weight_decay = (float)o->weight_decay,
                          .ema_decay = (float)kolo_ema_decay(o, t + 1, t + 1, 1)};
        KOLO_TRY(golden_watched(n, input, labels, &step, &signs));
        losses[t] = n->loss;
        norms[t] = golden_norm(n);
        if (o->clip_norm > 0)
            golden_note(&g, "the executor's norm", fabs(n->norm - norms[t]) / norms[t], 1e-6);
    }
    golden_values(&l, golden_at(json, "losses"), "losses", n->seed, losses, steps);
    if (l.share > 1 && signs.near >= 0) {
        golden_judge(name, json, &signs, losses, norms);
        l = (golden_worst){0};
        golden_values(&l, golden_at(json, "losses"), "losses", n->seed, losses, steps);
    }
    golden_result(name, "losses", &l);
    golden_values(&g, golden_at(json, "grad_norms"), "grad_norms", n->seed, norms, steps);
    golden_result(name, "gradient norms", &g);
    return 0;
}

static void golden_train_case(const char *name, const cJSON *json, kolo_backend *backend)
{
    const cJSON *config = golden_at(json, "config"), *average = golden_at(config, "ema");
    const kolo_model *model = golden_model(config);
    kolo_options options;
    const char *why = golden_optimizer(golden_at(config, "optimizer"), &options);
    if (!model) why = "this build lacks the network";
    if (why) {
        skip("%s: %s", name, why);
        kolo_options_free(&options);
        return;
    }
    options.ema = golden_number(average, "decay", 0);
    options.ema_ramp = golden_number(average, "ramp", 0);
    golden_net n;
    float **start = NULL;
    int rc = golden_open(&n, model, config, golden_seed(json), backend, &options,
                         golden_number(config, "smoothing", 0), true);
    if (rc == 0) {
        start = calloc((size_t)n.graph->tensors, sizeof *start);
        int64_t count;
        for (int t = 0; t < n.graph->tensors; t++)
            if (n.graph->tensor[t].role == KOLO_ROLE_PARAM) start[t] = golden_get(&n, "param", t, &count);
        rc = golden_run(&n, name, json, &options);
    }
    if (rc < 0) ok(0, "%s: %s", name, kolo_error_text());
    else golden_changes(&n, name, json, start);
    golden_loose = 0;
    for (int t = 0; start && t < n.graph->tensors; t++) free(start[t]);
    free(start);
    golden_close(&n);
    kolo_options_free(&options);
}

#endif
