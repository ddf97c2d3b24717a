#include "ops/compose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

typedef struct part {
    kolo_kernel kernel;
    int args, arg[2 * KOLO_MAX_ARGS]; /* which of the whole's arguments; -1: not there */
} part;

typedef struct composed {
    int parts;
    part part[KOLO_COMPOSED];
} composed;

int kolo_compose_nodes(const kolo_node *n, kolo_node to[KOLO_COMPOSED])
{
    if (n->op != KOLO_OP_conv_stats) return 0;
    kolo_node conv = *n, stats = *n;
    conv.op = KOLO_OP_conv;
    conv.n_out = 1;
    stats.op = KOLO_OP_norm_stats;
    stats.n_in = stats.n_out = 1;
    stats.in[0] = n->out[0];
    stats.out[0] = n->out[1];
    to[0] = conv;
    to[1] = stats;
    return 2;
}

int kolo_compose_layout(const kolo_kernel_request *r, kolo_layout *layout)
{
    kolo_node node[KOLO_COMPOSED];
    const int parts = kolo_compose_nodes(r->node, node);
    for (int i = 0; i < parts; i++) {
        const kolo_kernel_request request = {r->backend, r->graph, &node[i], r->layout};
        const kolo_op_row *row = r->backend->type->rows[node[i].op];
        if (row->layout) KOLO_TRY(row->layout(&request, layout));
    }
    return 0;
}

static void release(void *state)
{
    composed *c = state;
    if (!c) return;
    for (int i = 0; i < c->parts; i++)
        if (c->part[i].kernel.release) c->part[i].kernel.release(c->part[i].kernel.state);
    free(c);
}

/* The argument of the whole that tensor t is; -1: an optional one that is not there. */
static int argument_of(const kolo_node *whole, int t)
{
    for (int i = 0; i < whole->n_in + whole->n_out && t >= 0; i++)
        if ((i < whole->n_in ? whole->in[i] : whole->out[i - whole->n_in]) == t) return i;
    return -1;
}

const kolo_kernel *kolo_composed_part(const kolo_kernel *k, int i)
{
    return &((const composed *)k->state)->part[i].kernel;
}

int kolo_composed_run(const kolo_kernel *k, int i, void *const *args, void *workspace, const kolo_step *step,
                      int slot)
{
    const part *p = &((const composed *)k->state)->part[i];
    void *own[2 * KOLO_MAX_ARGS];
    for (int a = 0; a < p->args; a++) own[a] = p->arg[a] >= 0 ? args[p->arg[a]] : NULL;
    return p->kernel.run(&p->kernel, own, workspace, step, slot);
}

static int run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step, int slot)
{
    const composed *c = k->state;
    for (int i = 0; i < c->parts; i++) KOLO_TRY(kolo_composed_run(k, i, args, workspace, step, slot));
    return 0;
}

int kolo_compose_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    kolo_node node[KOLO_COMPOSED];
    composed *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ECONFIG;
    k->state = c;
    k->release = release;
    k->run = run;
    const int parts = kolo_compose_nodes(r->node, node);
    while (c->parts < parts) {
        const kolo_node *n = &node[c->parts];
        part *p = &c->part[c->parts++];
        const kolo_kernel_request request = {r->backend, r->graph, n, r->layout};
        p->kernel.backend = r->backend;
        for (int i = 0; i < n->n_in; i++) p->arg[p->args++] = argument_of(r->node, n->in[i]);
        for (int i = 0; i < n->n_out; i++) p->arg[p->args++] = argument_of(r->node, n->out[i]);
        KOLO_TRY(r->backend->type->rows[n->op]->prepare(&request, &p->kernel));
        if (p->kernel.workspace > k->workspace) k->workspace = p->kernel.workspace;
        if (c->parts == 1) snprintf(k->name, sizeof k->name, "%s", p->kernel.name);
    }
    return 0;
}
