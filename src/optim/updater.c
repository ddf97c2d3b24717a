/* Updaters: the updates of a plan on the memory where its arenas are. Here the host's; the CUDA
 * library has its own row. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/plugin.h"
#include "kolo/error.h"
#include "optim/grad_scaler.h"
#include "optim/optim.h"
#include "optim/rules.h"

static void *updater_copy(const void *from, size_t bytes)
{
    void *to = kolo_alloc(bytes + 1);
    if (to && bytes) memcpy(to, from, bytes);
    return to;
}

int kolo_updater_create(kolo_updater **updater, const kolo_updater_config *config)
{
    *updater = NULL;
    bool host = kolo_backend_is_host(config->backend);
    const kolo_updater_type *type = host ? &kolo_cpu_updater : kolo_cuda_symbol("kolo_cuda_updater");
    if (!type) return KOLO_ELAUNCH;
    kolo_updater *u = kolo_alloc(sizeof *u);
    if (!u) return KOLO_ENOMEM;
    u->type = type;
    u->config = *config;
    u->config.slice = updater_copy(config->slice, (size_t)config->slices * sizeof *config->slice);
    u->config.running = updater_copy(config->running, (size_t)config->runnings * sizeof *config->running);
    u->config.segment = updater_copy(config->segment, (size_t)config->layers * sizeof *config->segment);
    u->config.leaf = updater_copy(config->leaf, (size_t)config->layers * sizeof *config->leaf);
    u->config.measured = updater_copy(config->measured, (size_t)config->measures * sizeof *config->measured);
    const bool copied =
        u->config.slice && u->config.running && u->config.segment && u->config.leaf && u->config.measured;
    int rc = copied ? type->create(u) : KOLO_ENOMEM;
    if (rc < 0) kolo_updater_destroy(&u);
    *updater = u;
    return rc;
}

void kolo_updater_destroy(kolo_updater **updater)
{
    kolo_updater *u = *updater;
    if (!u) return;
    u->type->destroy(u);
    free((void *)(uintptr_t)u->config.slice);
    free((void *)(uintptr_t)u->config.running);
    free((void *)(uintptr_t)u->config.segment);
    free((void *)(uintptr_t)u->config.leaf);
    free((void *)(uintptr_t)u->config.measured);
    free(u);
    *updater = NULL;
}

int kolo_updater_update(kolo_updater *u, int first, int count, enum kolo_update how, const kolo_step *step)
{
    return u->type->update(u, first, count, how, step);
}
int kolo_updater_running(kolo_updater *u, const kolo_step *step) { return u->type->running(u, step); }
int kolo_updater_measure(kolo_updater *u, double *sum) { return u->type->measure(u, sum); }
int kolo_updater_decide(kolo_updater *u, const double *sum, int64_t sums, kolo_step *step)
{
    return u->type->decide(u, sum, sums, step);
}

int kolo_updater_layers_measure(kolo_updater *u, const kolo_step *step, double *sum)
{
    return u->type->layers_measure(u, step, sum);
}

int kolo_updater_layers_decide(kolo_updater *u, const kolo_step *step, const double *sum)
{
    return u->type->layers_decide(u, step, sum);
}

int kolo_updater_square(kolo_updater *u, const float *grad, int64_t count, bool more, kolo_step *step)
{
    return u->type->square(u, grad, count, more, step);
}

/* ---- in host memory ---- */

static int create(kolo_updater *u)
{
    (void)u;
    return 0;
}

static void destroy(kolo_updater *u) { (void)u; }

static int update(kolo_updater *u, int first, int count, enum kolo_update how, const kolo_step *step)
{
    const kolo_updater_config *c = &u->config;
    if (step->skip) return 0;
    for (int i = first; i < first + count; i++) {
        const kolo_slice *s = &c->slice[i];
        kolo_slice own = *s;
        own.delta = how == KOLO_UPDATE_DELTA;
        (how == KOLO_UPDATE_APPLY ? kolo_apply_update : c->optimizer->update)(&own, c->options, step);
        if (s->half && !own.delta)
            KOLO_TRY(kolo_backend_narrow(c->backend, s->half, s->half_type, s->param, s->count));
    }
    return 0;
}

/* running = (1 - m) running + m mean; blocks without a valid row have weight 0. */
static int running(kolo_updater *u, const kolo_step *step)
{
    for (int i = 0; i < u->config.runnings; i++) {
        const kolo_running *k = &u->config.running[i];
        float weight = k->statistic[2 * k->channels];
        for (int j = 0; j < 2; j++)
            for (int64_t c = 0; c < k->channels; c++)
                kolo_running_add(&k->running[j][c], k->ema[j] ? &k->ema[j][c] : NULL,
                                 k->statistic[j * k->channels + c], weight, k->momentum, step);
    }
    return 0;
}

static int measure(kolo_updater *u, double *sum)
{
    const kolo_updater_config *c = &u->config;
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < c->measures; i++)
        sum[c->measured[i].sum] = kolo_square_leaf(c->measured[i].value, c->measured[i].count);
    return 0;
}

static int decide(kolo_updater *u, const double *sum, int64_t sums, kolo_step *step)
{
    const kolo_grad_scaler_rule rule = {.clip_norm = (float)u->config.options->clip_norm,
                                        .dynamic = u->config.dynamic_scale};
    double all = 0;
    for (int64_t i = 0; i < sums; i++) all += sum[i];
    kolo_grad_scaler(&rule, all, step);
    return 0;
}

static int layers_measure(kolo_updater *u, const kolo_step *step, double *sum)
{
    const kolo_updater_config *c = &u->config;
    for (int i = 0; i < c->slices && !step->skip; i++)
        c->optimizer->measure(&c->slice[i], c->options, step, sum + 2 * c->slice[i].leaf);
    return 0;
}

static int layers_decide(kolo_updater *u, const kolo_step *step, const double *sum)
{
    const kolo_updater_config *c = &u->config;
    const kolo_rule_layer rule = kolo_layer_rule(c->optimizer, c->options);
    for (int i = 0; i < c->layers && !step->skip; i++) {
        kolo_layer *of = &c->layer[i];
        const int64_t end = c->leaf[i].first + c->leaf[i].count;
        of->sum[0] = of->sum[1] = 0;
        for (int64_t leaf = c->leaf[i].first; leaf < end; leaf++)
            of->sum[0] += sum[2 * leaf], of->sum[1] += sum[2 * leaf + 1];
        kolo_layer_decide(&rule, c->segment[i].decay ? step->weight_decay : 0, step->lr * c->segment[i].rate,
                          of);
    }
    return 0;
}

static int square(kolo_updater *u, const float *grad, int64_t count, bool more, kolo_step *step)
{
    (void)u;
    step->square = (more ? step->square : 0) + kolo_square_sum(grad, count);
    return 0;
}

const kolo_updater_type kolo_cpu_updater = {create, destroy,        update,        running, measure,
                                            decide, layers_measure, layers_decide, square};
