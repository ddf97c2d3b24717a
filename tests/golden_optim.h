/* Golden cases of optimizers alone: ten steps on four small tensors, and learning rates. */
#ifndef TESTS_GOLDEN_OPTIM_H
#define TESTS_GOLDEN_OPTIM_H

#include "golden_file.h"
#include "optim/grad_scaler.h"
#include "optim/optim.h"

/* Options of all but SGD. */
static void golden_moments(const cJSON *config, kolo_options *o)
{
    const cJSON *betas = golden_at(config, "betas"), *lookahead = golden_at(config, "lookahead");
    if (betas) {
        o->beta1 = cJSON_GetArrayItem(betas, 0)->valuedouble;
        o->beta2 = cJSON_GetArrayItem(betas, 1)->valuedouble;
    }
    o->epsilon = golden_number(config, "eps", -1);
    o->alpha = golden_number(config, "alpha", 0.99);
    o->trust = golden_number(config, "trust_coeff", 0.001);
    o->trust_all = golden_number(config, "always_adapt", 0) != 0;
    o->trust_clip = golden_number(config, "trust_clip", 0) != 0;
    o->bias_correction = golden_number(config, "bias_correction", 1) != 0;
    o->grad_averaging = golden_number(config, "grad_averaging", 0) != 0;
    if (!lookahead) return;
    o->lookahead = (int64_t)golden_number(lookahead, "k", 0);
    o->lookahead_rate = golden_number(lookahead, "alpha", 0.5);
    kolo_option_set(o, "lookahead_start", golden_text(lookahead, "slow_start", ""), "case");
}

/* Options and decay of a config {kind, lr, momentum, ...}. NULL, or why it cannot be run here.
 * `options` must be freed. */
static const char *golden_optimizer(const cJSON *config, kolo_options *options)
{
    static const char *const known[] = {
        "kind",         "lr",         "momentum",        "weight_decay",  "dampening",
        "nesterov",     "decay",      "clip_norm",       "clip_value",    "lr_scale",
        "betas",        "eps",        "alpha",           "centered",      "trust_coeff",
        "always_adapt", "trust_clip", "bias_correction", "max_grad_norm", "grad_averaging",
        "lookahead"};
    const cJSON *item;
    kolo_options_default(options);
    options->weight_decay = options->momentum = 0;
    cJSON_ArrayForEach(item, config)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= !strcmp(item->string, known[i]);
        if (!found) return "the optimizer has an option that this build lacks";
    }
    const char *kind = golden_text(config, "kind", "");
    if (!strcmp(kind, "lars_clip")) kind = "lars";
    if (golden_number(config, "centered", 0) != 0) kind = "rmsprop_centered";
    if (!kolo_optimizer_find(kind)) return "this build lacks the optimizer";
    kolo_option_set(options, "optimizer", kind, "case");
    golden_moments(config, options);
    options->trust_clip |= !strcmp(golden_text(config, "kind", ""), "lars_clip");
    options->lr = golden_number(config, "lr", 0);
    options->momentum = golden_number(config, "momentum", 0);
    options->weight_decay = golden_number(config, "weight_decay", 0);
    options->dampening = golden_number(config, "dampening", 0);
    options->nesterov = golden_number(config, "nesterov", 0) != 0;
    options->clip_norm = golden_number(config, "clip_norm", golden_number(config, "max_grad_norm", 0));
    options->clip_value = golden_number(config, "clip_value", 0);
    options->decay_norms = strcmp(golden_text(config, "decay", "all"), "matrices") != 0;
    return NULL;
}

static double golden_rate(const cJSON *config, int step) /* step = 0, 1, ... */
{
    const cJSON *scale = golden_at(config, "lr_scale");
    int last = cJSON_GetArraySize(scale) - 1;
    double lr = golden_number(config, "lr", 0);
    return last < 0 ? lr : lr * cJSON_GetArrayItem(scale, step < last ? step : last)->valuedouble;
}

enum { GOLDEN_TENSORS = 8, GOLDEN_ELEMENTS = 1 << 12 }; /* a tensor is a leaf */

typedef struct golden_set {
    int n, rank[GOLDEN_TENSORS];
    int64_t dim[GOLDEN_TENSORS][8], count[GOLDEN_TENSORS];
    const char *name[GOLDEN_TENSORS];
    float w[GOLDEN_TENSORS][GOLDEN_ELEMENTS], g[GOLDEN_TENSORS][GOLDEN_ELEMENTS],
        s[GOLDEN_TENSORS][4][GOLDEN_ELEMENTS];
    float slow[GOLDEN_TENSORS][GOLDEN_ELEMENTS];
    kolo_layer layer[GOLDEN_TENSORS];
} golden_set;

static golden_set *golden_set_of(const cJSON *json, uint64_t seed)
{
    golden_set *set = calloc(1, sizeof *set);
    const cJSON *item;
    cJSON_ArrayForEach(item, golden_at(json, "tensors"))
    {
        int i = set->n;
        double a, b;
        if (i == GOLDEN_TENSORS) break;
        set->name[i] = item->string;
        set->rank[i] = golden_dims(item, set->dim[i]);
        set->count[i] = 1;
        for (int k = 0; k < set->rank[i]; k++) set->count[i] *= set->dim[i][k];
        if (set->count[i] > GOLDEN_ELEMENTS) break;
        golden_coefficients(item->string, set->rank[i], set->dim[i], 1, &a, &b);
        golden_fill(item->string, seed, a, b, set->w[i], set->count[i]);
        set->n++;
    }
    return set;
}

static void golden_update(golden_set *set, const kolo_optimizer *optimizer, const kolo_options *options,
                          double rate, int t, uint64_t seed)
{
    double norm2 = 0;
    for (int i = 0; i < set->n; i++) {
        char name[300];
        snprintf(name, sizeof name, "%.250s.grad.%d", set->name[i], t);
        golden_fill(name, seed, 0, 0.5, set->g[i], set->count[i]);
        for (int64_t k = 0; k < set->count[i]; k++) norm2 += (double)set->g[i][k] * (double)set->g[i][k];
    }
    kolo_step step = {.step = t - 1,
                      .lr = (float)rate,
                      .momentum = (float)kolo_momentum(options, t - 1, 10),
                      .weight_decay = (float)options->weight_decay,
                      .scaler.scale = 1};
    const kolo_grad_scaler_rule rule = {.clip_norm = (float)options->clip_norm};
    kolo_grad_scaler(&rule, norm2, &step);
    const kolo_rule_layer factors = kolo_layer_rule(optimizer, options);
    for (int i = 0; i < set->n; i++) {
        kolo_slice slice = {.param = set->w[i],
                            .grad = set->g[i],
                            .rate = 1,
                            .slow = options->lookahead > 0 ? set->slow[i] : NULL,
                            .layer = &set->layer[i],
                            .count = set->count[i],
                            .decay = options->decay_norms || set->rank[i] > 1};
        for (int k = 0; k < 4; k++) slice.state[k] = set->s[i][k];
        if (optimizer->measure) {
            optimizer->measure(&slice, options, &step, slice.layer->sum);
            kolo_layer_decide(&factors, slice.decay ? step.weight_decay : 0, step.lr, slice.layer);
        }
        optimizer->update(&slice, options, &step);
    }
}

static void golden_optim_case(const char *name, const cJSON *json)
{
    kolo_options options;
    const cJSON *config = golden_at(json, "config"), *kept = golden_at(json, "weights_after_step");
    uint64_t seed = golden_seed(json);
    const char *why = kept ? golden_optimizer(config, &options) : "not ten steps of an optimizer";
    if (why) {
        skip("%s: %s", name, why);
        return;
    }
    const kolo_optimizer *optimizer = kolo_optimizer_find(options.optimizer);
    golden_worst w = {0};
    golden_set *set = golden_set_of(json, seed);
    for (int t = 1; t <= 10; t++) {
        golden_update(set, optimizer, &options, golden_rate(config, t - 1), t, seed);
        char key[16];
        snprintf(key, sizeof key, "%d", t);
        const cJSON *want = golden_at(kept, key);
        for (int i = 0; want && i < set->n; i++)
            golden_floats(&w, golden_at(want, set->name[i]), set->name[i], seed, set->w[i], set->count[i]);
    }
    golden_result(name, "weights", &w);
    free(set);
    kolo_options_free(&options);
}

/* ---- schedules.json ---- */

/* Options of a schedule's config; NULL, or why it cannot be run here. */
static const char *golden_schedule(const cJSON *config, kolo_options *o)
{
    static const char *const kinds[][2] = {
        {"constant", "constant"},       {"step", "step"},       {"multistep", "multistep"},
        {"cosine", "cosine"},           {"poly", "polynomial"}, {"linear", "polynomial"},
        {"exponential", "exponential"}, {"yolox", "cosine"},    {"onecycle", "onecycle"}};
    const char *kind = golden_text(config, "kind", ""), *name = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i][0], kind)) name = kinds[i][1];
    if (!name) return "this build lacks the schedule";
    kolo_option_set(o, "schedule", name, "case");
    o->lr = golden_number(config, "lr", 0);
    o->warmup = golden_number(config, "warmup", 0);
    o->warmup_start = golden_number(config, "warmup_from", 0) / o->lr;
    o->lr_end = golden_number(config, "end", 0);
    kolo_option_set(o, "warmup_shape", golden_text(config, "warmup_shape", "linear"), "case");
    o->cooldown = golden_number(config, "hold", 0);
    o->rise = golden_number(config, "pct_start", 0.3);
    o->divide = golden_number(config, "div_factor", 25);
    o->divide_end = golden_number(config, "final_div_factor", 1e4);
    o->anneal =
        strcmp(golden_text(config, "anneal", "cos"), "linear") ? KOLO_anneal_cosine : KOLO_anneal_linear;
    o->gamma = golden_number(config, "gamma", 0.1);
    o->step_every = golden_number(config, "every", 1);
    o->power = golden_number(config, "power", 1);
    char text[300] = "";
    const cJSON *item;
    cJSON_ArrayForEach(item, golden_at(config, "milestones")) snprintf(
        text + strlen(text), sizeof text - strlen(text), "%s%g", *text ? "," : "", item->valuedouble);
    kolo_option_set(o, "milestones", text, "case");
    return NULL;
}

static void golden_schedules(const char *name, const cJSON *json)
{
    const cJSON *one, *want;
    cJSON_ArrayForEach(one, golden_at(json, "schedules"))
    {
        kolo_options o;
        const cJSON *config = golden_at(one, "config");
        kolo_options_default(&o);
        const char *why = golden_schedule(config, &o);
        if (why) skip("%s %s: %s", name, one->string, why);
        else {
            int64_t t = 0, steps = (int64_t)golden_number(config, "steps", 0);
            double worst = 0;
            cJSON_ArrayForEach(want, golden_at(one, "lr")) worst =
                fmax(worst, fabs(kolo_learning_rate(&o, t++, steps, 1) - want->valuedouble) / o.lr);
            int64_t at = 0;
            cJSON_ArrayForEach(want, golden_at(one, "momentum")) worst =
                fmax(worst, fabs(kolo_momentum(&o, at++, steps) - want->valuedouble));
            ok(t == steps && worst <= 1e-14, "%s %s: %lld rates, worst off by %.2g of lr", name, one->string,
               (long long)t, worst);
        }
        kolo_options_free(&o);
    }
}

#endif
