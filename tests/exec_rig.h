/* A network with plan and executor, and batches of images that depend on their number alone. */
#ifndef TESTS_EXEC_RIG_H
#define TESTS_EXEC_RIG_H

#include "base/philox.h"
#include "exec/exec.h"
#include "kolo/error.h"
#include "models/models.h"
#include "tap.h"

#pragma GCC diagnostic ignored "-Wunused-function"

typedef struct rig {
    kolo_graph *graph;
    kolo_plan *plan;
    kolo_exec *exec;
    kolo_options options;
    uint8_t *pixels;
    int32_t *labels;
    kolo_form *form;     /* [graph->tensors] where the plan has a share of them */
    int64_t rows, image; /* of the batch; bytes of one image */
} rig;

typedef struct rig_config {
    const char *model;
    int (*build)(kolo_graph **graph, const kolo_model_config *config); /* instead of a model of the table */
    int64_t rows, side, channels;                                      /* of a micro-batch */
    int slots, ranks, rank;
    int bn;
    int lag, backup;
    int servers, first_server;
    int64_t bound;
    const char *optimizer; /* NULL: sgd */
    bool lookahead;
    bool canonical, eval, clip, ema, scaled, adasum, noise, swa;
    double loss_scale;
    double drop_path, dropout; /* negative: the network's own */
    int percent;               /* of the tensors, drawn from `draw`, are dropped: made again in backward */
    uint32_t draw;
    int (*choose)(const kolo_plan *plain, int how, kolo_form *form); /* instead: forms of the activations */
    int how;
    enum kolo_dtype dtype;
} rig_config;

/* fixed: layouts by rule instead of a clock, the same in every process. */
static kolo_backend *rig_backend(int threads, bool fixed)
{
    kolo_backend *b = NULL;
    kolo_backend_config config = {.threads = threads, .direct = true, .deterministic = fixed};
    if (kolo_backend_create(&b, "cpu", &config) < 0) {
        printf("Bail out! %s\n", kolo_error_text());
        exit(1);
    }
    return b;
}

/* Images and labels [first, first + rows) of the endless set. */
static void rig_fill(rig *r, int64_t first)
{
    for (int64_t i = 0; i < r->rows; i++) {
        r->labels[i] = (int32_t)(kolo_philox(7, 0, (uint64_t)(first + i)).v[0] % 10);
        for (int64_t k = 0; k < r->image; k += 4) { /* a little of the label shows in the image */
            kolo_philox4 z = kolo_philox(7, (uint64_t)(first + i) + 1, (uint64_t)k);
            for (int j = 0; j < 4 && k + j < r->image; j++)
                r->pixels[i * r->image + k + j] =
                    (uint8_t)(z.v[j] % 200 + (uint32_t)((k / 16 % 10 == r->labels[i]) * 55));
        }
    }
}

static kolo_batch rig_batch(const rig *r)
{
    return (kolo_batch){
        .pixels = r->pixels, .labels = r->labels, .rows = r->rows, .valid = r->rows, .valid_global = r->rows};
}

static int rig_open(rig *r, const rig_config *c, kolo_backend *backend, kolo_comm *comm, const rig *train)
{
    memset(r, 0, sizeof *r);
    kolo_options_default(&r->options);
    r->options.clip_norm = c->clip ? 1 : 0;
    r->options.loss_scale = c->loss_scale;
    if (c->lookahead) r->options.lookahead = 3;
    kolo_model_config m = {.rows = c->rows,
                           .height = c->side,
                           .width = c->side,
                           .channels = c->channels,
                           .classes = 10,
                           .dtype = c->dtype,
                           .train = !c->eval,
                           .drop_path = c->drop_path,
                           .dropout = c->dropout,
                           .mean = {.5f, .5f, .5f},
                           .std = {.25f, .25f, .25f}};
    KOLO_TRY(c->build ? c->build(&r->graph, &m) : kolo_model_graph(&r->graph, c->model, &m));
    r->form = calloc((size_t)r->graph->tensors + 1, sizeof *r->form);
    for (int t = 0; t < r->graph->tensors; t++)
        r->form[t] = (int)(kolo_philox(c->draw, 9, (uint64_t)t).v[0] % 100) < c->percent;
    const char *optimizer = c->optimizer ? c->optimizer : "sgd";
    kolo_plan_config p = {.ranks = c->ranks ? c->ranks : 1,
                          .slots = c->slots ? c->slots : 1,
                          .bn = c->bn,
                          .lag = c->lag,
                          .backup = c->backup,
                          .servers = c->servers,
                          .first_server = c->first_server,
                          .bound = c->bound,
                          .lookahead = c->lookahead,
                          .canonical = c->canonical,
                          .ema = c->ema,
                          .swa = c->swa,
                          .bucket_bytes = 1 << 17,
                          .clip_norm = c->clip,
                          .scaled = c->scaled,
                          .adasum = c->adasum,
                          .noise = c->noise,
                          .form = c->percent ? r->form : NULL,
                          .optimizer = c->eval ? NULL : kolo_optimizer_find(optimizer)};
    if (c->choose) {
        kolo_plan *plain = NULL;
        int rc = kolo_plan_create(&plain, r->graph, backend, &p, NULL);
        if (rc == 0) rc = c->choose(plain, c->how, r->form);
        kolo_plan_destroy(&plain);
        KOLO_TRY(rc);
        p.form = r->form;
    }
    KOLO_TRY(kolo_plan_create(&r->plan, r->graph, backend, &p, train ? train->plan : NULL));
    KOLO_TRY(kolo_plan_check(r->plan));
    r->rows = c->rows * p.slots;
    r->image = c->side * c->side * c->channels;
    r->pixels = calloc((size_t)r->rows, (size_t)r->image);
    r->labels = calloc((size_t)r->rows, sizeof *r->labels);
    /* the caller makes comm from the plan, then the executor */
    if ((c->ranks > 1 || c->servers) && !comm) return 0;
    KOLO_TRY(kolo_exec_create(&r->exec, &r->plan, 1, backend, comm, &r->options, train ? train->exec : NULL));
    return train ? 0 : kolo_exec_initialise(r->exec, 1);
}

static void rig_close(rig *r)
{
    kolo_exec_destroy(&r->exec);
    kolo_plan_destroy(&r->plan);
    kolo_graph_destroy(&r->graph);
    kolo_options_free(&r->options);
    free(r->pixels);
    free(r->labels);
    free(r->form);
}

static kolo_step rig_step(int64_t t, double lr)
{
    return (kolo_step){.step = t, .lr = (float)lr, .momentum = .9f, .weight_decay = 1e-4f, .ema_decay = .9f};
}

/* All parameters' gradients (or "param"), canonical, one after another; caller frees. */
static float *rig_all(rig *r, const char *which, int64_t *count)
{
    float *all = calloc((size_t)kolo_graph_parameters(r->graph) + 1, sizeof *all);
    *count = 0;
    for (int t = 0; t < r->graph->tensors; t++) {
        if (r->graph->tensor[t].role != KOLO_ROLE_PARAM) continue;
        if (kolo_exec_get(r->exec, which, t, all + *count) < 0) diag("%s", kolo_error_text());
        *count += kolo_tensor_count(&r->graph->tensor[t]);
    }
    return all;
}

static double rig_apart(const float *a, const float *b, int64_t n)
{
    double far = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        far += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)b[i] * (double)b[i];
    }
    return sqrt(far / (size > 0 ? size : 1));
}

#endif
