/* The table of optimizers, and what is refused before a run. */
#include "optim/optim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"

#define ROW(name, measure, kind, options, beta1, beta2, epsilon, help, states, ...) \
    {#name,                                                                         \
     help,                                                                          \
     options,                                                                       \
     states,                                                                        \
     {__VA_ARGS__},                                                                 \
     kolo_##name##_update,                                                          \
     beta1,                                                                         \
     beta2,                                                                         \
     epsilon,                                                                       \
     measure,                                                                       \
     {KOLO_LAYER_##kind, 0, 0, 0, false, false}},
#define OPTIMIZER(name, ...) ROW(name, NULL, NONE, __VA_ARGS__)
#define LAYERWISE(name, kind, ...) ROW(name, kolo_##name##_measure, kind, __VA_ARGS__)
const kolo_optimizer kolo_optimizer_table[] = {
#include "optim/optimizers.def"
};
#undef OPTIMIZER
#undef LAYERWISE
#undef ROW
const int kolo_optimizer_count = sizeof kolo_optimizer_table / sizeof *kolo_optimizer_table;

const void *kolo_optim_row(const char *what, const char *name, const void *table, int rows, size_t size)
{
    const char *names[64];
    for (int i = 0; i < rows; i++) {
        const char *row = (const char *)table + (size_t)i * size;
        memcpy(&names[i], row, sizeof names[i]); /* a row's first member */
        if (!strcmp(names[i], name)) return row;
    }
    const char *nearest = kolo_nearest(name, names, rows);
    if (nearest) kolo_fail(KOLO_ECONFIG, "unknown %s \"%s\"; did you mean \"%s\"?", what, name, nearest);
    else kolo_fail(KOLO_ECONFIG, "unknown %s \"%s\"; `kolo help %ss` lists them", what, name, what);
    return NULL;
}

const kolo_optimizer *kolo_optimizer_find(const char *name)
{
    return kolo_optim_row("optimizer", name, kolo_optimizer_table, kolo_optimizer_count,
                          sizeof *kolo_optimizer_table);
}

kolo_rule_layer kolo_layer_rule(const kolo_optimizer *optimizer, const kolo_options *o)
{
    kolo_rule_layer rule = optimizer->layer;
    rule.coefficient = o->trust;
    rule.epsilon = kolo_epsilon(optimizer, o);
    rule.b2 = kolo_beta2(optimizer, o);
    rule.all = o->trust_all;
    rule.clip = o->trust_clip;
    return rule;
}

static bool reads(const kolo_optimizer *optimizer, const char *key, size_t length)
{
    for (const char *word = optimizer->options; *word; word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        if (n == length && !strncmp(word, key, n)) return true;
        word += n;
    }
    return false;
}

/* Refuses another value than the standard one of an option that this optimizer does not read. */
static int check_unread(const kolo_options *options, const char *key, size_t length)
{
    char name[64], readers[256] = "";
    snprintf(name, sizeof name, "%.*s", (int)length, key);
    const kolo_option_entry *entry = kolo_option_find(name);
    if (!entry) return kolo_fail(KOLO_EINTERNAL, "there is no option %s", name);
    char *text = kolo_option_text(options, entry);
    if (!text) return KOLO_ENOMEM;
    for (int i = 0; i < kolo_optimizer_count; i++)
        if (reads(&kolo_optimizer_table[i], key, length))
            snprintf(readers + strlen(readers), sizeof readers - strlen(readers), "%s%s", *readers ? " " : "",
                     kolo_optimizer_table[i].name);
    const int rc = !strcmp(text, entry->default_value)
                       ? 0
                       : kolo_fail(KOLO_ECONFIG, "%s=%s is for optimizer=%s, not %s; leave it out", name,
                                   text, readers, options->optimizer);
    free(text);
    return rc;
}

/* Options that only some optimizers read: with any other one they are a mistake. */
static int check_own(const kolo_optimizer *optimizer, const kolo_options *options)
{
    for (int i = 0; i < kolo_optimizer_count; i++)
        for (const char *word = kolo_optimizer_table[i].options; *word; word += strspn(word, " ")) {
            const size_t length = strcspn(word, " ");
            if (!reads(optimizer, word, length)) KOLO_TRY(check_unread(options, word, length));
            word += length;
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
        return kolo_fail(KOLO_ECONFIG, "optimizer=%s divides by 1 - beta: beta1, beta2%s must be below 1",
                         optimizer->name, moved ? ", momentum_high and momentum_low" : "");
    KOLO_TRY(check_own(optimizer, options));
    if (options->nesterov && (options->momentum == 0 || options->dampening != 0))
        return kolo_fail(KOLO_ECONFIG,
                         "nesterov=true needs momentum above 0 and dampening=0 (momentum=%g, dampening=%g)",
                         options->momentum, options->dampening);
    if (options->swa > 0 && options->ema > 0)
        return kolo_fail(KOLO_ECONFIG,
                         "ema=%g and swa=%g: only one average of the weights is kept; leave one out",
                         options->ema, options->swa);
    if (moved && options->warmup > 0)
        return kolo_fail(KOLO_ECONFIG, "schedule=onecycle has a rise of its own (rise=): set warmup=0");
    if (options->cooldown > 0 && strcmp(options->schedule, "cosine") &&
        strcmp(options->schedule, "polynomial"))
        return kolo_fail(KOLO_ECONFIG, "cooldown=%g is for schedule=cosine and polynomial, not %s",
                         options->cooldown, options->schedule);
    return kolo_milestones_check(options->milestones);
}
