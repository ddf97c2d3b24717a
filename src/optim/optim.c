/* The table of optimizers, and what is refused before a run. */
#include "optim/optim.h"

#include <string.h>

#include "kolo/error.h"

#define OPTIMIZER(name, beta1, help, states, ...) \
    {#name, help, states, {__VA_ARGS__}, kolo_##name##_update, beta1, NULL, {0, 0, 0, 0, false, false}},
#define LAYERWISE(name, beta1, kind, epsilon, b2, help, states, ...)                                    \
    {#name, help, states, {__VA_ARGS__}, kolo_##name##_update, beta1, kolo_##name##_measure, \
     {KOLO_LAYER_##kind, 0, epsilon, b2, false, false}},
const kolo_optimizer kolo_optimizer_table[] = {
#include "optim/optimizers.def"
};
#undef OPTIMIZER
#undef LAYERWISE
const int kolo_optimizer_count = sizeof kolo_optimizer_table / sizeof *kolo_optimizer_table;

const kolo_optimizer *kolo_optimizer_find(const char *name)
{
    const char *names[sizeof kolo_optimizer_table / sizeof *kolo_optimizer_table];
    for (int i = 0; i < kolo_optimizer_count; i++) {
        names[i] = kolo_optimizer_table[i].name;
        if (!strcmp(names[i], name)) return &kolo_optimizer_table[i];
    }
    const char *nearest = kolo_nearest(name, names, kolo_optimizer_count);
    kolo_fail(KOLO_ECONFIG,
              nearest ? "unknown optimizer \"%s\"; did you mean \"%s\"?"
                      : "unknown optimizer \"%s\"; `kolo help optimizers` lists them%s",
              name, nearest ? nearest : "");
    return NULL;
}

kolo_rule_layer kolo_layer_rule(const kolo_optimizer *optimizer, const kolo_options *o)
{
    kolo_rule_layer rule = optimizer->layer;
    rule.coefficient = o->trust;
    rule.epsilon = kolo_own(o->epsilon, rule.epsilon);
    rule.b2 = kolo_own(o->beta2, rule.b2);
    rule.all = o->trust_all;
    rule.clip = o->trust_clip;
    return rule;
}

int kolo_optim_check(const kolo_options *options)
{
    const kolo_optimizer *optimizer = kolo_optimizer_find(options->optimizer);
    if (!optimizer || !kolo_schedule_find(options->schedule)) return KOLO_ECONFIG;
    const bool moved = !strcmp(options->schedule, "onecycle");
    if (optimizer->beta1 > 0 && (options->beta1 >= 1 || options->beta2 >= 1 ||
                                 (moved && (options->momentum_high >= 1 || options->momentum_low >= 1))))
        return kolo_fail(KOLO_ECONFIG, "optimizer=%s divides by 1 - beta: beta1, beta2%s must be below 1", optimizer->name,
                         moved ? ", momentum_high and momentum_low" : "");
    if (options->nesterov && strcmp(optimizer->name, "sgd") && strcmp(optimizer->name, "lars"))
        return kolo_fail(KOLO_ECONFIG, "optimizer=%s has no Nesterov's momentum: nesterov=false", optimizer->name);
    if (options->nesterov && (options->momentum == 0 || options->dampening != 0))
        return kolo_fail(KOLO_ECONFIG,
                         "nesterov=true needs momentum above 0 and dampening=0 (momentum=%g, dampening=%g)",
                         options->momentum, options->dampening);
    if (options->swa > 0 && options->ema > 0)
        return kolo_fail(KOLO_ECONFIG, "ema=%g and swa=%g: only one average of the weights is kept; leave one out", options->ema,
                         options->swa);
    if (moved && options->warmup > 0)
        return kolo_fail(KOLO_ECONFIG, "schedule=onecycle has a rise of its own (rise=): set warmup=0");
    if (options->hold > 0 && strcmp(options->schedule, "cosine") && strcmp(options->schedule, "polynomial"))
        return kolo_fail(KOLO_ECONFIG, "hold=%g is for schedule=cosine and polynomial, not %s", options->hold, options->schedule);
    return kolo_milestones_check(options->milestones);
}
