/* The table of optimizers, and what is refused before a run. */
#include "optim/optim.h"

#include <string.h>

#include "kolo/error.h"

#define OPTIMIZER(name, help, states, ...) {#name, help, states, {__VA_ARGS__}, kolo_##name##_update},
const kolo_optimizer kolo_optimizer_table[] = {
#include "optim/optimizers.def"
};
#undef OPTIMIZER
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

int kolo_optim_check(const kolo_options *options)
{
    if (!kolo_optimizer_find(options->optimizer) || !kolo_schedule_find(options->schedule)) return KOLO_ECONFIG;
    if (options->nesterov && (options->momentum == 0 || options->dampening != 0))
        return kolo_fail(KOLO_ECONFIG,
                         "nesterov=true needs momentum above 0 and dampening=0 (momentum=%g, dampening=%g)",
                         options->momentum, options->dampening);
    return kolo_milestones_check(options->milestones);
}
