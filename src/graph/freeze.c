/* Freezing, for fine-tuning: modules that are named, and all that comes before them, compute as in an
 * evaluation (batch norm by its running statistics, nothing is dropped) and keep their parameters. No
 * gradient is formed in them, so nothing of them waits for the backward half. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "graph/graph.h"
#include "kolo/error.h"

typedef struct freezing {
    kolo_graph *g;
    bool *frozen; /* [nodes] */
    bool *dead;   /* [nodes] */
    int *instead; /* [tensors] what is read in the place of what a dead node made */
} freezing;

/* Is `name` the module, or of it? A norm's sums are "bn1:sums". */
static bool freeze_is_of(const char *name, const char *module)
{
    const size_t length = strlen(module);
    return !strncmp(name, module, length) && (!name[length] || name[length] == '.' || name[length] == ':');
}

static bool is_parameter(const kolo_graph *g, int t)
{
    return t >= 0 && g->tensor[t].role == KOLO_ROLE_PARAM;
}

/* It makes a tensor of the module, or reads a parameter of it. */
static bool freeze_holds(const kolo_graph *g, const kolo_node *n, const char *module)
{
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0 && freeze_is_of(g->tensor[n->out[k]].name, module)) return true;
    for (int k = 0; k < n->n_in; k++)
        if (is_parameter(g, n->in[k]) && freeze_is_of(g->tensor[n->in[k]].name, module)) return true;
    return false;
}

static int fail_unknown(const kolo_graph *g, const char *module)
{
    const char **name = kolo_alloc((size_t)(g->nodes + 1) * sizeof *name);
    if (!name) return KOLO_ENOMEM;
    for (int64_t i = 0; i < g->nodes; i++) {
        const int t = g->node[i].out[0];
        name[i] = t < 0 ? "" : g->tensor[t].name;
    }
    const char *near = kolo_nearest(module, name, (int)g->nodes);
    const int rc = kolo_fail(KOLO_ECONFIG, "freeze=: %s has no module %s%s%s; `kolo models %s` lists them",
                             g->name, module, near ? "; did you mean " : "", near ? near : "", g->name);
    free(name);
    return rc;
}

static int freeze_mark(freezing *f, const char *module)
{
    bool found = false;
    for (int64_t i = 0; i < f->g->nodes; i++)
        if (freeze_holds(f->g, &f->g->node[i], module)) found = f->frozen[i] = true;
    return found ? 0 : fail_unknown(f->g, module);
}

static int freeze_mark_all(freezing *f, const char *modules)
{
    for (const char *at = modules; *at;) {
        const size_t length = strcspn(at, ",");
        char module[256];
        if (length == 0 || length >= sizeof module)
            return kolo_fail(KOLO_ECONFIG, "freeze=%.100s: a list of modules, comma separated: conv1,layer1",
                             modules);
        memcpy(module, at, length);
        module[length] = 0;
        KOLO_TRY(freeze_mark(f, module));
        at += length;
        at += *at == ',';
    }
    return 0;
}

/* What a frozen operation reads is made by frozen ones. */
static void freeze_mark_before(freezing *f)
{
    for (int64_t i = f->g->nodes; i-- > 0;)
        for (int k = 0; f->frozen[i] && k < f->g->node[i].n_in; k++) {
            const int t = f->g->node[i].in[k];
            if (t >= 0 && f->g->tensor[t].producer >= 0) f->frozen[f->g->tensor[t].producer] = true;
        }
}

/* In the order of its inputs: x, w, b, running mean, running variance. */
static void freeze_norm(kolo_graph *g, kolo_node *n)
{
    const int mean = g->tensor[n->out[1]].of;
    const int in[] = {n->in[0], n->in[2], n->in[3], mean, mean + 1};
    n->op = KOLO_OP_norm_infer;
    memcpy(n->in, in, sizeof in);
    n->n_in = 5;
    g->tensor[n->out[1]].of = -1;
    n->out[1] = -1;
    n->n_out = 1;
}

static void freeze_node(freezing *f, int64_t i)
{
    kolo_node *n = &f->g->node[i];
    for (int k = 0; k < n->n_in; k++)
        if (is_parameter(f->g, n->in[k])) f->g->tensor[n->in[k]].frozen = true;
    if (n->op == KOLO_OP_norm_stats) f->dead[i] = true;
    if (n->op == KOLO_OP_norm_apply) freeze_norm(f->g, n);
    if (n->op == KOLO_OP_residual) n->a.drop = 0;
    if (n->op != KOLO_OP_dropout) return;
    f->dead[i] = true;
    f->instead[n->out[0]] = n->in[0];
}

static void freeze_pass_by(freezing *f)
{
    kolo_graph *g = f->g;
    for (int64_t i = 0; i < g->nodes; i++)
        for (int k = 0; k < g->node[i].n_in; k++) {
            int *t = &g->node[i].in[k];
            while (*t >= 0 && f->instead[*t] >= 0) *t = f->instead[*t];
        }
    if (g->features >= 0 && f->instead[g->features] >= 0) g->features = f->instead[g->features];
}

static int freeze_check(const kolo_graph *g, const char *modules)
{
    for (int64_t t = 0; t < g->tensors; t++)
        if (g->tensor[t].role == KOLO_ROLE_PARAM && !g->tensor[t].frozen) return 0;
    return kolo_fail(KOLO_ECONFIG, "freeze=%.200s leaves nothing of %s to train; name an earlier module",
                     modules, g->name);
}

int kolo_graph_freeze(kolo_graph *g, const char *modules)
{
    if (g->grad)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has gradients: it is too late to freeze", g->name);
    int rc = KOLO_ENOMEM;
    freezing f = {g, kolo_alloc((size_t)(g->nodes + 1) * sizeof *f.frozen),
                  kolo_alloc((size_t)(g->nodes + 1) * sizeof *f.dead),
                  kolo_alloc((size_t)(g->tensors + 1) * sizeof *f.instead)};
    if (!f.frozen || !f.dead || !f.instead) goto fail;
    for (int64_t t = 0; t < g->tensors; t++) f.instead[t] = -1;
    KOLO_TRY_GOTO(rc, freeze_mark_all(&f, modules));
    freeze_mark_before(&f);
    for (int64_t i = 0; i < g->nodes; i++)
        if (f.frozen[i]) freeze_node(&f, i);
    freeze_pass_by(&f);
    KOLO_TRY_GOTO(rc, freeze_check(g, modules));
    rc = kolo_graph_compact(g, f.dead);
fail:
    free(f.frozen);
    free(f.dead);
    free(f.instead);
    return rc;
}
