/* Weights as torchvision's load_state_dict takes them. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/items.h"
#include "ckpt/safetensors.h"
#include "kolo/error.h"

static const char variance[] = "running_var", counter[] = "num_batches_tracked";

static bool is_variance(const char *name)
{
    size_t length = strlen(name), tail = sizeof variance - 1;
    return length >= tail && !strcmp(name + length - tail, variance);
}

/* Values of all items one behind the other, and their descriptions; after each norm's variance its counter. names: of the counters, owned. */
static int gather(kolo_exec *exec, const kolo_plan *plan, bool ema, const item *items, int n, float *values,
                  const int64_t *tracked, kolo_weight *weight, char **names, int *written)
{
    for (int i = 0; i < n; i++) {
        const kolo_tensor *t = &plan->graph->tensor[items[i].tensor];
        int64_t count = kolo_tensor_count(t);
        KOLO_TRY(kolo_exec_get(exec, ema ? "ema" : "param", items[i].tensor, values));
        kolo_weight *w = &weight[(*written)++];
        *w = (kolo_weight){.name = t->name,
                           .type = KOLO_WEIGHT_F32,
                           .rank = t->rank,
                           .data = values,
                           .bytes = (size_t)count * sizeof *values};
        memcpy(w->dim, t->dim, sizeof w->dim);
        values += count;
        if (!is_variance(t->name)) continue;
        names[i] = kolo_format("%.*s%s", (int)(strlen(t->name) - strlen(variance)), t->name, counter);
        if (!names[i]) return KOLO_ECONFIG;
        weight[(*written)++] =
            (kolo_weight){.name = names[i], .type = KOLO_WEIGHT_I64, .data = tracked, .bytes = sizeof *tracked};
    }
    return 0;
}

int kolo_weights_export(const char *path, kolo_exec *exec, const kolo_plan *plan, bool ema, int64_t batches_tracked)
{
    item *items = NULL;
    float *values = NULL;
    kolo_weight *weight = NULL;
    char **names = NULL;
    int n = 0, written = 0, rc;
    int64_t total = 0;
    if (ema && !plan->config.ema)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: this model keeps no averaged weights (ema=0): export the weights themselves", path);
    KOLO_TRY_GOTO(rc, kolo_items_make(plan, false, false, &items, &n));
    for (int i = 0; i < n; i++) total += kolo_tensor_count(&plan->graph->tensor[items[i].tensor]);
    values = kolo_alloc((size_t)total * sizeof *values);
    weight = kolo_alloc((size_t)(2 * n + 1) * sizeof *weight);
    names = kolo_alloc((size_t)(n + 1) * sizeof *names);
    static const char *const metadata[] = {"format", "pt", NULL};
    rc = values && weight && names
             ? gather(exec, plan, ema, items, n, values, &batches_tracked, weight, names, &written)
             : KOLO_ECONFIG;
    if (rc == 0) rc = kolo_weights_write(path, weight, written, metadata);
fail:
    for (int i = 0; names && i < n; i++) free(names[i]);
    free(names);
    free(weight);
    free(values);
    kolo_items_free(&items, n);
    return rc;
}
