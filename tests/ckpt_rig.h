/* A small network that can be trained, saved and loaded. */
#ifndef TESTS_CKPT_RIG_H
#define TESTS_CKPT_RIG_H

#include <stdlib.h>

#include "base/philox.h"
#include "ckpt/ckpt.h"
#include "kolo/error.h"
#include "models/models.h"

typedef struct rig {
    kolo_options options;
    kolo_backend *backend;
    kolo_graph *graph;
    kolo_plan *plan;
    kolo_exec *exec;
    uint8_t *pixels;
    int32_t *labels;
    int64_t rows, elements;
} rig;

typedef struct rig_config {
    const char *model;
    int64_t size, channels;
    int threads;
    bool direct, ema, scaled;
} rig_config;

static int rig_open(rig *r, const rig_config *c)
{
    *r = (rig){.rows = 4, .elements = 4 * c->size * c->size * c->channels};
    kolo_options_default(&r->options);
    r->options.lr = .05;
    r->options.ema = c->ema ? .9 : 0;
    r->options.threads = c->threads;
    r->pixels = calloc((size_t)r->elements, 1);
    r->labels = calloc((size_t)r->rows, sizeof *r->labels);
    kolo_backend_config b = {.threads = c->threads, .direct = c->direct, .deterministic = true};
    kolo_model_config m = {.rows = r->rows,
                           .height = c->size,
                           .width = c->size,
                           .channels = c->channels,
                           .classes = 10,
                           .train = true,
                           .shortcut = "",
                           .mean = {.5f, .5f, .5f},
                           .std = {.25f, .25f, .25f}};
    kolo_plan_config p = {.ranks = 1,
                          .slots = 1,
                          .bucket_bytes = 1 << 18,
                          .decay_norms = true,
                          .optimizer = kolo_optimizer_find("sgd"),
                          .ema = c->ema,
                          .scaled = c->scaled};
    KOLO_TRY(kolo_backend_create(&r->backend, "cpu", &b));
    KOLO_TRY(kolo_model_graph(&r->graph, c->model, &m));
    KOLO_TRY(kolo_plan_create(&r->plan, r->graph, r->backend, &p, NULL));
    KOLO_TRY(kolo_exec_create(&r->exec, &r->plan, 1, r->backend, NULL, &r->options, NULL));
    return kolo_exec_initialise(r->exec, 1);
}

static void rig_close(rig *r)
{
    kolo_exec_destroy(&r->exec);
    kolo_plan_destroy(&r->plan);
    kolo_graph_destroy(&r->graph);
    kolo_backend_destroy(&r->backend);
    kolo_options_free(&r->options);
    free(r->pixels);
    free(r->labels);
}

/* Step number `step` = 0, 1, ... on images that depend on it alone. */
static int rig_step(rig *r, int64_t step)
{
    kolo_metrics m;
    kolo_random random = kolo_random_at(7, (uint64_t)step, 0);
    for (int64_t i = 0; i < r->elements; i++) r->pixels[i] = (uint8_t)kolo_random_u32(&random);
    for (int64_t i = 0; i < r->rows; i++) r->labels[i] = (int32_t)kolo_random_below(&random, 10);
    kolo_batch batch = {
        .pixels = r->pixels, .labels = r->labels, .rows = r->rows, .valid = r->rows, .valid_global = r->rows};
    kolo_step s = {.step = step, .lr = .05f, .momentum = .9f, .ema_decay = .9f, .clip = 1};
    return kolo_exec_step(r->exec, &batch, &s, &m);
}

#endif
