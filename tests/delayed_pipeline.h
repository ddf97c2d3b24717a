/* Asynchronous pipelines: a stage a rank. */
#ifndef TESTS_DELAYED_PIPELINE_H
#define TESTS_DELAYED_PIPELINE_H

#include "delayed_case.h"
#include "plan/program.h"

static struct {
    kolo_grid grid;
    kolo_placement *placement;
    kolo_program *program;
} delayed_line;

static int delayed_line_stages(const cJSON *config)
{
    const int stages = cJSON_GetArraySize(golden_at(config, "stages"));
    return stages ? stages : 2;
}

/* The order of that name, an enum kolo_pipeline; -1: there is none. */
static int delayed_line_order(const char *name)
{
    int order = KOLO_PIPELINES - 1;
    while (order >= 0 && strcmp(kolo_pipeline[order].name, name) != 0) order--;
    return order;
}

static int delayed_line_ranks(const cJSON *config, const delayed_how *how)
{
    (void)how;
    return delayed_line_order(golden_text(config, "mode", "")) < 0 ? 0 : delayed_line_stages(config);
}

/* It makes a tensor of the module, or reads a parameter of it. */
static bool delayed_is_of(const char *name, const char *module)
{
    const size_t n = strlen(module);
    return !strncmp(name, module, n) && (!name[n] || name[n] == '.' || name[n] == ':');
}

static bool delayed_node_is_of(const kolo_graph *g, const kolo_node *n, const char *module)
{
    bool found = n->out[0] >= 0 && delayed_is_of(g->tensor[n->out[0]].name, module);
    for (int k = 0; k < n->n_in; k++)
        found |= n->in[k] >= 0 && g->tensor[n->in[k]].role == KOLO_ROLE_PARAM &&
                 delayed_is_of(g->tensor[n->in[k]].name, module);
    return found;
}

/* The first operation of a stage of the case. */
static int delayed_first_of(const kolo_graph *g, const cJSON *modules)
{
    const int64_t chain = kolo_graph_forward_nodes(g);
    const cJSON *module;
    for (int64_t i = 0; i < chain; i++)
        cJSON_ArrayForEach(
            module, modules) if (delayed_node_is_of(g, &g->node[i], module->valuestring)) return (int)i;
    return -1;
}

/* Behind which operations the stages end; where the case does not say, at places of about the same number of
 * operations. */
static int delayed_line_cuts(const delayed_case *c, int stages, int *cut)
{
    const kolo_graph *g = c->net.graph;
    const int64_t chain = kolo_graph_forward_nodes(g);
    const cJSON *list = golden_at(c->config, "stages");
    bool *allowed = calloc((size_t)chain + 1, sizeof *allowed);
    double *crossing = calloc((size_t)chain + 1, sizeof *crossing);
    size_t *bytes = calloc((size_t)g->tensors + 1, sizeof *bytes);
    int rc = kolo_placement_cuts(g, bytes, allowed, crossing);
    for (int s = 1; rc == 0 && s < stages; s++) {
        int at = list ? delayed_first_of(g, cJSON_GetArrayItem(list, s)) - 1 : (int)(chain * s / stages);
        while (!list && at < chain - 1 && !allowed[at]) at++;
        if (at < 0) rc = kolo_fail(KOLO_EINPUT, "%s: no module of stage %d", c->name, s);
        cut[s - 1] = at;
    }
    free(allowed);
    free(crossing);
    free(bytes);
    return rc;
}

/* The whole network's plan, of which each stage takes its part. */
static int delayed_line_plan(delayed_case *c)
{
    const int stages = c->launch->size;
    /* a pipeline that is drained behind every step has no late weights */
    const char *order = !strcmp(c->how.wrong, "drain") ? "1f1b" : golden_text(c->config, "mode", "");
    int cut[64];
    kolo_plan *whole = NULL;
    kolo_plan_config config = {.ranks = 1,
                               .slots = c->how.slots ? c->how.slots : 1,
                               .bucket_bytes = 1 << 18,
                               .decay_norms = c->options.decay_norms,
                               .clip_norm = c->options.clip_norm > 0,
                               .predict = c->options.late_correction >= KOLO_late_correction_predict,
                               .optimizer = kolo_optimizer_find(c->options.optimizer)};
    KOLO_TRY(kolo_grid_create(&delayed_line.grid, c->launch, stages, false));
    KOLO_TRY(delayed_line_cuts(c, stages, cut));
    KOLO_TRY(kolo_placement_create(&delayed_line.placement, c->net.graph, stages, 1, 1,
                                   (enum kolo_pipeline)delayed_line_order(order), cut));
    KOLO_TRY(kolo_plan_create(&whole, c->net.graph, c->backend, &config, NULL));
    const int rc =
        kolo_plan_create_stage(&c->net.plan, whole, delayed_line.placement, delayed_line.grid.stage, NULL);
    kolo_plan_destroy(&whole);
    return rc;
}

static int delayed_line_open(delayed_case *c)
{
    static const char *const how[] = {"none", "spike", "predict", "both"};
    for (int i = 0; i < 4 && strcmp(c->how.wrong, "late"); i++)
        if (!strcmp(golden_text(c->config, "correction", ""), how[i])) c->options.late_correction = i;
    KOLO_TRY(delayed_line_plan(c));
    KOLO_TRY(kolo_program_create(&delayed_line.program, &delayed_line.grid, c->net.plan, NULL));
    KOLO_TRY(kolo_program_check(delayed_line.program));
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = delayed_line.program->comm_bytes,
                                     .timeout = 60,
                                     .spin = -1};
    KOLO_TRY(kolo_comm_create(&c->comm, c->launch, &config));
    return kolo_exec_create(&c->net.exec, &c->net.plan, 1, c->backend, c->comm, &c->options, NULL);
}

/* The mistake "stash": older versions of the weights are lost, and the newest stand in their places. */
static int delayed_line_forget(delayed_case *c)
{
    const kolo_graph *g = c->net.graph;
    char version[16];
    for (int t = 0; t < g->tensors; t++) {
        if (g->tensor[t].role != KOLO_ROLE_PARAM || !kolo_plan_owns(c->net.plan, t)) continue;
        float *values = calloc((size_t)kolo_tensor_count(&g->tensor[t]), sizeof *values);
        int rc = kolo_exec_get_own(c->net.exec, "param", t, values);
        for (int v = 0; rc == 0 && v < kolo_plan_weight_versions(c->net.plan); v++) {
            kolo_plan_version_name(v, version);
            rc = kolo_exec_set(c->net.exec, version, t, values);
        }
        free(values);
        KOLO_TRY(rc);
    }
    return 0;
}

/* Batches go in ahead of the steps that end with them. */
static int delayed_line_run(delayed_case *c)
{
    const int64_t rows = (int64_t)golden_number(c->config, "batch", 1);
    for (int t = 0; t < c->steps + kolo_exec_batches_ahead(c->net.exec); t++) {
        const bool more = t < c->steps;
        kolo_batch batch = {0};
        kolo_step step = {0};
        kolo_metrics m;
        if (more) batch = delayed_batch(c, t, 0, rows, rows), step = delayed_step(c, t);
        delayed_sleep(c, t);
        KOLO_TRY(kolo_exec_step(c->net.exec, more ? &batch : NULL, more ? &step : NULL, &m));
        if (m.step >= 0) c->losses[m.step] = m.loss / (double)rows;
        if (!strcmp(c->how.wrong, "stash")) KOLO_TRY(delayed_line_forget(c));
    }
    return 0;
}

static void delayed_line_close(delayed_case *c)
{
    (void)c;
    kolo_program_destroy(&delayed_line.program);
    kolo_placement_destroy(&delayed_line.placement);
    kolo_grid_free(&delayed_line.grid);
}

static const delayed_mode delayed_pipedream = {"pipedream",      delayed_line_ranks, delayed_line_open,
                                               delayed_line_run, delayed_line_close, NULL};
static const delayed_mode delayed_vertical = {"pipedream_vertical", delayed_line_ranks, delayed_line_open,
                                              delayed_line_run,     delayed_line_close, NULL};
static const delayed_mode delayed_two_buffered = {"two_buffered",   delayed_line_ranks, delayed_line_open,
                                                  delayed_line_run, delayed_line_close, NULL};
static const delayed_mode delayed_pipelined = {"pipelined",      delayed_line_ranks, delayed_line_open,
                                               delayed_line_run, delayed_line_close, NULL};

#endif
