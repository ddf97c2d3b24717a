/* Tensors of a file into an executor: a checkpoint, or weights from elsewhere. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ckpt/items.h"
#include "ckpt/safetensors.h"
#include "ckpt/verify.h"
#include "kolo/error.h"

enum { LISTED = 8, ENTRY = 320 };

/* Names that do not fit, up to eight of a kind. */
typedef struct complaint {
    int count;
    char text[LISTED * ENTRY];
} complaint;

static void complain(complaint *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(complaint *c, const char *format, ...)
{
    if (c->count++ >= LISTED) return;
    size_t used = strlen(c->text);
    va_list list;
    used += (size_t)snprintf(c->text + used, sizeof c->text - used, "%s", used ? ", " : "");
    va_start(list, format);
    vsnprintf(c->text + used, sizeof c->text - used, format, list);
    va_end(list);
}

static void shape_text(const int64_t *dim, int rank, char text[96])
{
    size_t used = 0;
    text[0] = 0;
    for (int d = 0; d < rank && used < 90; d++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%lld", d ? "x" : "", (long long)dim[d]);
}

static int fail_complaints(const char *path, const char *model, const complaint *missing, const complaint *extra,
                           const complaint *wrong)
{
    char text[3 * sizeof missing->text + 512] = "";
    const struct {
        const char *what;
        const complaint *c;
    } kind[] = {{"missing", missing}, {"unknown", extra}, {"of another shape", wrong}};
    for (int i = 0; i < 3; i++) {
        size_t used = strlen(text);
        int more = kind[i].c->count - LISTED;
        if (kind[i].c->count == 0) continue;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d %s: %s", used ? "; " : "", kind[i].c->count,
                                 kind[i].what, kind[i].c->text);
        if (more > 0 && used < sizeof text) snprintf(text + used, sizeof text - used, " and %d more", more);
    }
    return kolo_fail(KOLO_EINPUT,
                     "%s: its tensors are not those of %s (give the model and the options it was trained with): %s",
                     path, model, text);
}

static bool has_prefix(const char *name, const char *prefix)
{
    return prefix && !strncmp(name, prefix, strlen(prefix));
}

static bool fits(const kolo_weight *w, const kolo_tensor *t)
{
    return w->type != KOLO_WEIGHT_I64 && w->rank == t->rank &&
           !memcmp(w->dim, t->dim, (size_t)t->rank * sizeof *t->dim);
}

typedef struct rules {
    const char *head; /* tensors of this prefix may be missing, unknown or of another shape; or NULL */
    bool plain_only;  /* other names than state-dict ones ("momentum:x", "ema:x") are nobody's business here */
} rules;

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors of the file that the model does not have. */
static int find_extra(const kolo_weights *weights, const item *items, int n, const rules *r, complaint *extra)
{
    static const char counter[] = "num_batches_tracked";
    const char **known = kolo_alloc((size_t)(n + 1) * sizeof *known);
    if (!known) return KOLO_ECONFIG;
    for (int i = 0; i < n; i++) known[i] = items[i].name;
    qsort(known, (size_t)n, sizeof *known, compare_text);
    for (int i = 0; i < kolo_weights_count(weights); i++) {
        const char *name = kolo_weights_at(weights, i)->name;
        size_t length = strlen(name), tail = sizeof counter - 1;
        bool counts = length >= tail && !strcmp(name + length - tail, counter);
        if (counts || has_prefix(name, r->head) || (r->plain_only && strchr(name, ':'))) continue;
        if (!bsearch(&name, known, (size_t)n, sizeof *known, compare_text)) complain(extra, "%.120s", name);
    }
    free(known);
    return 0;
}

static int check(const char *path, const kolo_weights *weights, const kolo_graph *g, const item *items, int n,
                 const rules *r)
{
    complaint missing = {.count = 0}, extra = {.count = 0}, wrong = {.count = 0};
    KOLO_TRY(find_extra(weights, items, n, r, &extra));
    for (int i = 0; i < n; i++) {
        const kolo_tensor *t = kolo_item_tensor(g, &items[i]);
        const kolo_weight *w = kolo_weights_find(weights, items[i].name);
        char is[96], wanted[96];
        if (has_prefix(items[i].name, r->head)) continue;
        if (!w) complain(&missing, "%.120s", items[i].name);
        if (!w || fits(w, t)) continue;
        shape_text(w->dim, w->rank, is);
        shape_text(t->dim, t->rank, wanted);
        complain(&wrong, "%.80s (%s %s, the model has %s)", items[i].name, kolo_weight_type_name(w->type), is, wanted);
    }
    return missing.count + extra.count + wrong.count ? fail_complaints(path, g->name, &missing, &extra, &wrong) : 0;
}

static int set_all(const kolo_weights *weights, kolo_exec *exec, const kolo_graph *g, const item *items, int n,
                   float *values)
{
    for (int i = 0; i < n; i++) {
        const kolo_tensor *t = kolo_item_tensor(g, &items[i]);
        const kolo_weight *w = kolo_weights_find(weights, items[i].name);
        if (!w || !fits(w, t)) continue; /* of the head: check has seen the rest */
        kolo_weight_to_f32(w, values, kolo_tensor_count(t));
        KOLO_TRY(kolo_exec_set(exec, items[i].which, items[i].tensor, values));
    }
    return 0;
}

static int load(const char *path, kolo_exec *exec, const kolo_plan *plan, bool state, bool ema, const rules *r)
{
    kolo_weights *weights = NULL;
    item *items = NULL;
    float *values = NULL;
    int n = 0, rc;
    int64_t largest = 1;
    KOLO_TRY_GOTO(rc, kolo_weights_open(&weights, path));
    KOLO_TRY_GOTO(rc, kolo_items_make(plan, state, ema, &items, &n));
    KOLO_TRY_GOTO(rc, check(path, weights, plan->graph, items, n, r));
    for (int i = 0; i < n; i++) {
        int64_t count = kolo_tensor_count(&plan->graph->tensor[items[i].tensor]);
        if (count > largest) largest = count;
    }
    rc = (values = kolo_alloc((size_t)largest * sizeof *values)) ? 0 : KOLO_ECONFIG;
    if (rc == 0) rc = set_all(weights, exec, plan->graph, items, n, values);
fail:
    free(values);
    kolo_items_free(&items, n);
    kolo_weights_close(&weights);
    return rc;
}

int kolo_checkpoint_load(const char *path, kolo_exec *exec, const kolo_plan *plan)
{
    manifest m;
    int rc = kolo_checkpoint_verify(path, &m);
    if (rc < 0) return kolo_fail_in(rc, "this checkpoint cannot be loaded: ");
    char *file = kolo_format("%s/tensors.safetensors", path);
    rules r = {.plain_only = !plan->config.optimizer}; /* an evaluation takes the weights and leaves the optimizer's */
    rc = file ? load(file, exec, plan, true, true, &r) : KOLO_ECONFIG;
    free(file);
    if (rc == 0 && plan->config.scaled && m.scaler.scale > 0) rc = kolo_exec_set_scaler(exec, &m.scaler);
    return rc;
}

/* Averages start as the weights do. */
static int start_averages(kolo_exec *exec, const kolo_plan *plan)
{
    item *items = NULL;
    float *values = NULL;
    int n = 0, rc;
    int64_t largest = 1;
    if (!plan->config.ema) return 0;
    KOLO_TRY_GOTO(rc, kolo_items_make(plan, false, false, &items, &n));
    for (int i = 0; i < n; i++) {
        int64_t count = kolo_tensor_count(&plan->graph->tensor[items[i].tensor]);
        if (count > largest) largest = count;
    }
    rc = (values = kolo_alloc((size_t)largest * sizeof *values)) ? 0 : KOLO_ECONFIG;
    for (int i = 0; rc == 0 && i < n; i++) {
        rc = kolo_exec_get(exec, "param", items[i].tensor, values);
        if (rc == 0) rc = kolo_exec_set(exec, "ema", items[i].tensor, values);
    }
fail:
    free(values);
    kolo_items_free(&items, n);
    return rc;
}

int kolo_weights_import(const char *path, kolo_exec *exec, const kolo_plan *plan, const char *head)
{
    rules r = {.head = head && *head ? head : NULL, .plain_only = true};
    KOLO_TRY(load(path, exec, plan, false, false, &r));
    return start_averages(exec, plan);
}
