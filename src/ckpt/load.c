/* Tensors of a file into an executor: a checkpoint, or weights from elsewhere. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "ckpt/head.h"
#include "ckpt/items.h"
#include "ckpt/manifest.h"
#include "ckpt/names.h"
#include "kolo/error.h"

/* three shares, a path and some words fit in an error's text */
enum { LISTED = 10, SHARE = 1100, ENTRY = 500 };

/* Names that do not fit: the first ones, and how many. */
typedef struct complaint {
    const char *what;
    int count, listed;
    char text[SHARE];
} complaint;

static void complain(complaint *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void complain(complaint *c, const char *format, ...)
{
    char name[ENTRY];
    const size_t used = strlen(c->text);
    va_list list;
    va_start(list, format);
    vsnprintf(name, sizeof name, format, list);
    va_end(list);
    /* one that found no room ends the list */
    if (c->listed < c->count++ || c->listed == LISTED || used + strlen(name) + 3 > SHARE) return;
    snprintf(c->text + used, SHARE - used, "%s%s", used ? ", " : "", name);
    c->listed++;
}

static void shape_text(const int64_t *dim, int rank, char text[96])
{
    size_t used = 0;
    text[0] = 0;
    for (int d = 0; d < rank && used < 90; d++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%lld", d ? "x" : "", (long long)dim[d]);
}

static int fail_complaints(const char *path, const char *model, complaint *const kind[3])
{
    char text[3 * (SHARE + 64)] = "";
    for (int i = 0; i < 3; i++) {
        const size_t used = strlen(text);
        complaint *c = kind[i];
        if (c->count == 0) continue;
        char more[32] = "";
        if (c->count > c->listed) snprintf(more, sizeof more, " and %d more", c->count - c->listed);
        snprintf(text + used, sizeof text - used, "%s%d %s: %s%s", used ? "; " : "", c->count, c->what,
                 c->text, more);
    }
    return kolo_fail(
        KOLO_ECONFIG,
        "%.300s: its tensors are not those of %s (give the model and the options it was trained with): %s",
        path, model, text);
}

/* The same numbers in the same order: (C) may be (C,1,1), and a linear layer a convolution
 * over all of its input. */
static bool fits(const kolo_weight *w, const kolo_tensor *t)
{
    int64_t count = 1;
    if (w->type == KOLO_I64) return false;
    if (w->rank == t->rank) return !memcmp(w->dim, t->dim, (size_t)t->rank * sizeof *t->dim);
    for (int d = 0; d < w->rank; d++)
        if (__builtin_mul_overflow(count, w->dim[d], &count)) return false;
    return w->rank > 0 && t->rank > 0 && w->dim[0] == t->dim[0] && count == kolo_tensor_count(t);
}

typedef struct rules {
    const char *path;
    const char *model;
    bool plain_only; /* other names than state-dict ones ("momentum:x", "ema:x") are nobody's business here */
    bool *head;      /* [graph->tensors] layers that make the result; NULL: they are like others */
    bool renewed;    /* and stay as they are in any case, not only where their number of classes differs */
    bool partial;    /* the file ends before the network does */
    /* other numbers are refused: in weights from elsewhere; a checkpoint is taken as it was */
    bool finite;
} rules;

/* Left as it is: nobody minds what the file has in its place. */
static bool left(const rules *r, const item *one, const kolo_weight *w, const kolo_tensor *t)
{
    if (!w && r->partial) return true;
    if (!r->head || !r->head[one->tensor]) return false;
    if (r->renewed) return true;
    return w && w->type != KOLO_I64 && !fits(w, t) && w->rank == t->rank &&
           !memcmp(w->dim + 1, t->dim + 1, (size_t)(t->rank - 1) * sizeof *t->dim);
}

static int compare_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Tensors of the file that the model does not have. */
static int find_extra(const kolo_weights *weights, const item *items, int n, const rules *r, complaint *extra)
{
    const char **known = kolo_alloc((size_t)(n + 1) * sizeof *known);
    if (!known) return KOLO_ENOMEM;
    for (int i = 0; i < n; i++) known[i] = items[i].name;
    qsort(known, (size_t)n, sizeof *known, compare_text);
    for (int i = 0; i < kolo_weights_count(weights); i++) {
        const char *name = kolo_weights_at(weights, i)->name;
        if (kolo_names_made_anew(name) || (r->plain_only && strchr(name, ':'))) continue;
        if (r->plain_only && kolo_names_auxiliary(name)) continue;
        if (!bsearch(&name, known, (size_t)n, sizeof *known, compare_text)) complain(extra, "%.400s", name);
    }
    free(known);
    return 0;
}

static int load_check(const kolo_weights *weights, const item *items, int n, const rules *r)
{
    complaint missing = {.what = "missing"}, extra = {.what = "unknown"},
              wrong = {.what = "of another shape"}, same = {.what = "as initialised"};
    KOLO_TRY(find_extra(weights, items, n, r, &extra));
    for (int i = 0; i < n; i++) {
        const kolo_tensor *t = kolo_item_tensor(&items[i]);
        const kolo_weight *w = kolo_weights_find(weights, items[i].name);
        char is[96], wanted[96];
        if (left(r, &items[i], w, t)) complain(&same, "%.400s", items[i].name);
        else if (!w) complain(&missing, "%.400s", items[i].name);
        else if (!fits(w, t)) {
            shape_text(w->dim, w->rank, is);
            shape_text(t->dim, t->rank, wanted);
            complain(&wrong, "%.250s (%s %s, the model has %s)", items[i].name,
                     kolo_weight_type_name(w->type), is, wanted);
        }
    }
    if (missing.count + extra.count + wrong.count)
        return fail_complaints(r->path, r->model, (complaint *const[]){&missing, &extra, &wrong});
    if (same.count)
        kolo_info("%s: %s: %d tensors stay as initialised: %s%s", r->path,
                  r->partial ? "it ends before the network does" : "the last layer begins anew", same.count,
                  same.text, same.count > same.listed ? " ..." : "");
    return 0;
}

static int check_finite(const rules *r, const char *name, const float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return kolo_fail(KOLO_EINPUT,
                             "%s: tensor \"%.400s\" holds %s (element %" PRId64
                             "): a training that diverged, or a damaged file; take an earlier one",
                             r->path, name,
                             isnan(values[i]) ? "what is not a number" : "what is infinite in f32", i);
    return 0;
}

/* This rank has the item, or a slab of it. */
static bool has_item(const kolo_plan *plan, const item *one)
{
    bool has = false;
    for (int t = one->tensor; t >= 0; t = kolo_graph_next_slab(plan->graph, t))
        has |= kolo_plan_owns(plan, t);
    return has;
}

/* One number of a tensor, which all its slabs have. */
static int set_scalar(kolo_exec *exec, const kolo_plan *plan, const item *one, const float *values)
{
    for (int t = one->tensor; t >= 0; t = kolo_graph_next_slab(plan->graph, t))
        if (kolo_plan_owns(plan, t)) KOLO_TRY(kolo_exec_set(exec, one->which, t, values));
    return 0;
}

/* values: of the whole item. */
static int set_item(kolo_exec *exec, const kolo_plan *plan, const item *one, const float *values)
{
    if (one->scalar) return set_scalar(exec, plan, one, values);
    if (!one->slabs) return kolo_exec_set(exec, one->which, one->tensor, values);
    float *slab = kolo_alloc((size_t)kolo_graph_largest_slab(plan->graph, one->tensor) * sizeof *slab);
    int rc = slab ? 0 : KOLO_ENOMEM;
    for (int t = one->tensor; rc == 0 && t >= 0; t = kolo_graph_next_slab(plan->graph, t)) {
        if (!kolo_plan_owns(plan, t)) continue;
        kolo_slab_take(&plan->graph->tensor[t], slab, values);
        rc = kolo_exec_set(exec, one->which, t, slab);
    }
    free(slab);
    return rc;
}

/* Of a pipeline the stage's own tensors: the rest of the file is not read. */
static int set_all(const kolo_weights *weights, kolo_exec *exec, const kolo_plan *plan, const item *items,
                   int n, const rules *r)
{
    int64_t largest = 1;
    for (int i = 0; i < n; i++) {
        int64_t count = kolo_tensor_count(kolo_item_tensor(&items[i]));
        if (count > largest && has_item(plan, &items[i])) largest = count;
    }
    float *values = kolo_alloc((size_t)largest * sizeof *values);
    int rc = values ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < n; i++) {
        const kolo_tensor *t = kolo_item_tensor(&items[i]);
        const kolo_weight *w = kolo_weights_find(weights, items[i].name);
        if (left(r, &items[i], w, t) || !has_item(plan, &items[i])) continue;
        kolo_weight_to_f32(w, values, kolo_tensor_count(t));
        if (r->finite) rc = check_finite(r, items[i].name, values, kolo_tensor_count(t));
        if (rc == 0) rc = set_item(exec, plan, &items[i], values);
    }
    free(values);
    return rc;
}

static int load_load(const kolo_weights *weights, kolo_exec *exec, const kolo_plan *plan, bool state,
                     bool ema, const rules *r)
{
    item *items = NULL;
    int n = 0, rc = kolo_items_make(plan, state, ema, &items, &n);
    if (rc == 0) rc = load_check(weights, items, n, r);
    if (rc == 0) rc = set_all(weights, exec, plan, items, n, r);
    kolo_items_free(&items, n);
    return rc;
}

static int read_manifest(const char *path, manifest *m)
{
    char *list = kolo_format("%s/manifest.json", path);
    int rc = list ? kolo_record_read(list, m) : KOLO_ENOMEM;
    free(list);
    return rc;
}

int kolo_checkpoint_load(const char *path, kolo_exec *exec, const kolo_plan *plan)
{
    manifest m;
    kolo_weights *weights = NULL;
    char *file = kolo_format("%s/tensors.safetensors", path);
    int rc = file ? read_manifest(path, &m) : KOLO_ENOMEM;
    if (rc < 0) rc = kolo_fail_in(rc, "this checkpoint cannot be loaded: ");
    /* an evaluation takes the weights and leaves the optimizer's */
    rules r = {.path = file, .model = plan->graph->name, .plain_only = !plan->config.optimizer};
    if (rc == 0) rc = kolo_weights_open(&weights, file, NULL);
    if (rc == 0) rc = load_load(weights, exec, plan, true, true, &r);
    kolo_weights_close(&weights);
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
        int64_t count = kolo_tensor_count(kolo_item_tensor(&items[i]));
        if (count > largest) largest = count;
    }
    rc = (values = kolo_alloc((size_t)largest * sizeof *values)) ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < n; i++)
        for (int t = items[i].tensor; rc == 0 && t >= 0; t = kolo_graph_next_slab(plan->graph, t)) {
            rc = kolo_exec_get(exec, "param", t, values);
            if (rc == 0) rc = kolo_exec_set(exec, "ema", t, values);
        }
fail:
    free(values);
    kolo_items_free(&items, n);
    return rc;
}

static void load_report(const char *path, const kolo_weights *weights, const name_map *names)
{
    const char *taken = kolo_weights_chosen_set(weights), *beside = kolo_weights_other_set(weights);
    char more[512] = "";
    if (beside)
        snprintf(more, sizeof more, ", %s%.100s%s; it also holds %s, which FILE:%s takes",
                 taken ? "of its \"" : "the weights", taken ? taken : "", taken ? "\"" : " themselves",
                 beside, beside);
    kolo_info("%s: %d tensors in %s's form, under %s names%s", path, kolo_weights_count(weights),
              kolo_weights_kind(weights), kolo_names_program(names), more);
}

int kolo_weights_import(const char *path, kolo_exec *exec, const kolo_plan *plan, int head)
{
    const kolo_graph *g = plan->graph;
    const name_map *names = NULL;
    kolo_weights *weights = NULL;
    rules r = {.path = path,
               .model = g->name,
               .plain_only = true,
               .renewed = head == KOLO_init_head_new,
               .finite = true};
    int rc;
    KOLO_TRY_GOTO(rc, kolo_weights_open(&weights, path, g));
    KOLO_TRY_GOTO(rc, kolo_names_recognise(weights, g, &names));
    KOLO_TRY_GOTO(rc, kolo_names_translate(weights, names));
    r.partial = kolo_weights_partial(weights);
    if (head != KOLO_init_head_load) {
        if (!(r.head = kolo_alloc((size_t)g->tensors * sizeof *r.head + 1))) rc = KOLO_ENOMEM;
        if (rc == 0) rc = kolo_graph_head(g, r.head);
    }
    if (rc == 0) rc = load_load(weights, exec, plan, false, false, &r);
    if (rc == 0) load_report(path, weights, names);
    if (rc == 0) rc = start_averages(exec, plan);
fail:
    free(r.head);
    kolo_weights_close(&weights);
    return rc;
}
