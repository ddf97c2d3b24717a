/* Golden cases of weights that are late, or averaged (tests/golden/delayed): a case as one rank sees it.
 * Ranks are processes of their own, started by tests/helpers/delayed.c; each makes the network from the
 * formula, trains it through plan, executor and comm, and rank 0 holds what comes out against the figures. */
#ifndef TESTS_DELAYED_CASE_H
#define TESTS_DELAYED_CASE_H

#include <unistd.h>

#include "base/thread.h"
#include "golden_train.h"
#include "launch/launch.h"

enum { DELAYED_STEPS = 64 };

/* What all ranks of a case are told beside it. */
typedef struct delayed_how {
    int slots;         /* micro-batches a step; 0: one */
    uint64_t slow;     /* above 0: a rank that this number chooses sleeps at random */
    const char *wrong; /* a mistake that must show, by name; "": none */
} delayed_how;

typedef struct delayed_case {
    const char *name;
    const cJSON *json, *config;
    uint64_t seed;
    int steps;
    delayed_how how;
    kolo_launch *launch;
    kolo_backend *backend;
    kolo_options options; /* of the optimizer */
    kolo_comm *comm;      /* of the mode; destroyed with the case */
    golden_net net;
    float **start;                /* [net.graph->tensors] weights before the first step */
    double losses[DELAYED_STEPS]; /* of step t, the mean over the batch, on rank 0 */
} delayed_case;

typedef struct delayed_mode {
    const char *name;                                          /* `mode` of a case */
    int (*ranks)(const cJSON *config, const delayed_how *how); /* that it asks for */
    int (*open)(delayed_case *c);                              /* net.plan and net.exec, of net.graph */
    int (*run)(delayed_case *c);                               /* all steps; fills losses on rank 0 */
    void (*close)(delayed_case *c);
    int (*share)(const delayed_case *c); /* a rank takes so many-th of a batch's rows; NULL: all */
} delayed_mode;

/* The loss and optimizer settings of step t. */
static kolo_step delayed_step(const delayed_case *c, int t)
{
    return (kolo_step){.step = t,
                       .lr = (float)golden_rate(golden_at(c->config, "optimizer"), t),
                       .momentum = (float)kolo_momentum(&c->options, t, c->steps),
                       .weight_decay = (float)c->options.weight_decay};
}

/* Batch t: rows [first, first + rows) of it, in memory of the net, which has room for all. all: rows of the
 * whole batch. */
static kolo_batch delayed_batch(delayed_case *c, int t, int64_t first, int64_t rows, int64_t all)
{
    golden_net *n = &c->net;
    char name[64];
    const int64_t each = n->elements / n->rows;
    snprintf(name, sizeof name, "%.40s.%d", golden_text(c->config, "input", "input"), t);
    golden_fill(name, c->seed, 0, golden_unit, n->input, all * each);
    snprintf(name, sizeof name, "labels.%d", t);
    golden_labels(name, c->seed, n->classes, n->label, all);
    return (kolo_batch){.pixels = (const uint8_t *)(n->input + first * each),
                        .labels = n->label + first,
                        .rows = rows,
                        .valid = rows,
                        .valid_global = all,
                        .first = first};
}

/* Before a step: a rank of how.slow's choice is late, by up to 30 ms. */
static void delayed_sleep(const delayed_case *c, int t)
{
    if (!c->how.slow || (uint64_t)c->launch->rank != c->how.slow % (uint64_t)c->launch->size) return;
    usleep((useconds_t)(golden_z(c->how.slow, t) % 30000));
}

/* The network of the case with `rows` rows in a micro-batch. */
static int delayed_graph(delayed_case *c, const kolo_model *model, int64_t rows)
{
    cJSON *config = cJSON_Duplicate(c->config, true);
    cJSON_ReplaceItemInObjectCaseSensitive(config, "batch", cJSON_CreateNumber((double)rows));
    memset(&c->net, 0, sizeof c->net);
    const int rc = golden_graph(&c->net, model, config, golden_number(c->config, "smoothing", 0), true);
    cJSON_Delete(config);
    const int64_t batch = (int64_t)golden_number(c->config, "batch", 1);
    c->net.config = c->config;
    c->net.seed = c->seed;
    c->net.channels_last = !strncmp(model->name, "swin", 4);
    c->net.input = calloc((size_t)(c->net.elements / rows * batch), sizeof *c->net.input);
    c->net.label = calloc((size_t)batch, sizeof *c->net.label);
    return rc;
}

/* Of the whole network, on all ranks. Collective. */
static float **delayed_weights(delayed_case *c)
{
    const kolo_graph *g = c->net.graph;
    float **all = calloc((size_t)g->tensors + 1, sizeof *all);
    int64_t count;
    for (int t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM) all[t] = golden_get(&c->net, "param", t, &count);
    return all;
}

/* All that the case states. Collective; rank 0 reports. */
static void delayed_judge(delayed_case *c)
{
    golden_worst losses = {0};
    golden_values(&losses, golden_at(c->json, "losses"), "losses", c->seed, c->losses, c->steps);
    golden_result(c->name, "losses", &losses);
    golden_changes(&c->net, c->name, c->json, c->start);
}

static int delayed_carry_out(delayed_case *c, const delayed_mode *mode, const kolo_model *model)
{
    const int64_t batch = (int64_t)golden_number(c->config, "batch", 1),
                  parts = (c->how.slots ? c->how.slots : 1) * (mode->share ? mode->share(c) : 1);
    if (batch % parts)
        return kolo_fail(KOLO_ECONFIG, "%d rows are not %d micro-batches", (int)batch, (int)parts);
    KOLO_TRY(delayed_graph(c, model, batch / parts));
    KOLO_TRY(mode->open(c));
    KOLO_TRY(golden_weights(&c->net));
    c->start = delayed_weights(c);
    KOLO_TRY(mode->run(c));
    delayed_judge(c);
    return 0;
}

static void delayed_close(delayed_case *c, const delayed_mode *mode)
{
    for (int t = 0; c->start && t < c->net.graph->tensors; t++) free(c->start[t]);
    free(c->start);
    kolo_exec_destroy(&c->net.exec);
    kolo_comm_destroy(&c->comm);
    if (mode->close) mode->close(c);
    kolo_plan_destroy(&c->net.plan);
    kolo_graph_destroy(&c->net.graph);
    free(c->net.input);
    free(c->net.label);
}

#endif
