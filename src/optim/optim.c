/* The table of optimizers, and what is refused before a run. */
#include "optim/optim.h"

#include <stdlib.h>
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

/* Options that only some optimizers read: another value than the standard one with any other optimizer is a mistake. */
static int check_own(const kolo_options *options)
{
    static const struct {
        const char *key, *readers; /* names that begin with one of these words */
    } own[] = {
        {"dampening", "sgd"},       {"alpha", "rmsprop"},           {"trust", "lars"},
        {"trust_all", "lars lamb"}, {"trust_clip", "lars lamb"},    {"bias_correction", "lamb"},
        {"beta1", "adam lamb novograd"}, {"beta2", "adam lamb novograd"}, {"epsilon", "adam rmsprop lars lamb novograd"},
        {"grad_averaging", "novograd"},
    };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        const kolo_option_entry *entry = kolo_option_find(own[i].key);
        char *text = entry ? kolo_option_text(options, entry) : NULL;
        if (!text) return kolo_fail(KOLO_EINTERNAL, "there is no option %s", own[i].key);
        bool read = !strcmp(text, entry->standard);
        for (const char *word = own[i].readers; !read && *word; word += strspn(word, " ")) {
            size_t length = strcspn(word, " ");
            read = !strncmp(options->optimizer, word, length);
            word += length;
        }
        int rc = read ? 0 : kolo_fail(KOLO_ECONFIG, "%s=%s is for optimizer=%s, not %s; leave it out", own[i].key, text, own[i].readers, options->optimizer);
        free(text);
        KOLO_TRY(rc);
    }
    return 0;
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
    KOLO_TRY(check_own(options));
    return kolo_milestones_check(options->milestones);
}
