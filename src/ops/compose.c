#include "ops/compose.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

enum { ABSENT = -1, BETWEEN = -2 };

typedef struct part {
    enum kolo_op op;
    kolo_kernel kernel;
    /* which of the whole's arguments; ABSENT; BETWEEN: in front of the workspace */
    int args, arg[2 * KOLO_MAX_ARGS];
} part;

typedef struct composed {
    int parts;
    part part[KOLO_COMPOSED];
    size_t between; /* bytes */
} composed;

/* ---- what was made of what ---- */

static kolo_part part_of(const kolo_node *whole, enum kolo_op op, int n_in, const int *in, int n_out,
                         const int *out)
{
    kolo_part p = {
        .node = {.op = op, .n_in = n_in, .n_out = n_out, .a = whole->a, .backward = whole->backward}};
    memcpy(p.node.in, in, (size_t)n_in * sizeof *in);
    memcpy(p.node.out, out, (size_t)n_out * sizeof *out);
    return p;
}

/* relu(norm(x)), between; sums_w_b: as norm_apply reads them; statistic: a tensor, or ABSENT */
static kolo_part norm_of(const kolo_node *n, const int *sums_w_b, int statistic)
{
    const int x = n->in[0];
    kolo_part p = part_of(n, KOLO_OP_norm_apply, 4, (const int[]){x, sums_w_b[0], sums_w_b[1], sums_w_b[2]},
                          2, (const int[]){x, statistic});
    p.between = 1u << 4;
    return p;
}

/* The mask is applied where the gradient lies; the sums are then of what it left. */
static int conv_grad_norm(const kolo_node *n, kolo_part p[KOLO_COMPOSED])
{
    enum { DY, W, OTHER, NORM, RESIDUAL = 7, PARTS = 2 };
    const int g = n->out[0], masked[] = {g, n->in[NORM], n->in[NORM + 1], n->in[NORM + 2], n->in[NORM + 3]};
    p[0] = part_of(n, KOLO_OP_conv_grad_data, n->in[OTHER] < 0 ? 2 : 3, n->in, 1, &g);
    p[1] = part_of(n, KOLO_OP_norm_mask, 5, masked, 1, &g);
    for (int i = RESIDUAL; i < n->n_in; i++) p[1].node.in[p[1].node.n_in++] = n->in[i];
    for (int k = 0; k < n->n_out / 3; k++) {
        const int *norm = n->in + (k ? RESIDUAL : NORM);
        const int sums[] = {g, norm[0], ABSENT, norm[1], norm[2], norm[3]};
        p[PARTS + k] = part_of(n, KOLO_OP_norm_grad_stats, 6, sums, 3, n->out + 1 + 3 * k);
        p[PARTS + k].node.a.relu = false;
    }
    return PARTS + n->n_out / 3;
}

/* The second first: dx may lie in dy's place. b: only signs that follow from x read it. */
static int norms_grad_apply(const kolo_node *n, kolo_part p[KOLO_COMPOSED])
{
    enum { DY, X, Y, SUMS, DSUMS, W, SECOND };
    const int *in = n->in, *two = in + SECOND;
    p[0] = part_of(n, KOLO_OP_norm_grad_apply, 7,
                   (const int[]){in[DY], two[0], in[Y], two[1], two[2], two[3], two[3]}, 1, n->out + 1);
    p[1] = part_of(n, KOLO_OP_norm_grad_apply, 7,
                   (const int[]){in[DY], in[X], in[Y], in[SUMS], in[DSUMS], in[W], in[W]}, 1, n->out);
    return 2;
}

int kolo_compose_parts(const kolo_node *n, kolo_part p[KOLO_COMPOSED])
{
    const int *in = n->in, *out = n->out;
    switch (n->op) {
    case KOLO_OP_conv_stats:
        p[0] = part_of(n, KOLO_OP_conv, 2, in, 1, out);
        p[1] = part_of(n, KOLO_OP_norm_stats, 1, out, 1, out + 1);
        return 2;
    case KOLO_OP_norm_conv_stats:
        p[0] = norm_of(n, in + 2, out[2]);
        p[1] = part_of(n, KOLO_OP_conv, 2, in, 1, out);
        p[1].between = 1;
        p[2] = part_of(n, KOLO_OP_norm_stats, 1, out, 1, out + 1);
        return 3;
    case KOLO_OP_norm_conv_grad_weight:
        p[0] = norm_of(n, in + 2, ABSENT);
        p[1] = part_of(n, KOLO_OP_conv_grad_weight, 2, in, 1, out);
        p[1].between = 1;
        return 2;
    case KOLO_OP_conv_grad_norm: return conv_grad_norm(n, p);
    case KOLO_OP_norms_grad_apply: return norms_grad_apply(n, p);
    case KOLO_OP_norm_max_pool:
        p[0] = norm_of(n, in + 1, out[2]);
        p[1] = part_of(n, KOLO_OP_max_pool, 1, in, 2, out);
        p[1].between = 1;
        return 2;
    case KOLO_OP_norm_max_pool_grad_stats:
        p[0] = part_of(n, KOLO_OP_max_pool_grad, 2, (const int[]){in[0], in[2]}, 1, in + 1);
        p[0].between = 1u << 2;
        p[1] = part_of(n, KOLO_OP_norm_grad_stats, 6,
                       (const int[]){in[1], in[1], ABSENT, in[3], in[4], in[5]}, 3, out);
        p[1].between = 1;
        return 2;
    case KOLO_OP_norm_max_pool_grad_apply: /* dx first holds the gradient of what was pooled */
        p[0] = part_of(n, KOLO_OP_max_pool_grad, 2, (const int[]){in[0], in[2]}, 1, out);
        p[1] = part_of(n, KOLO_OP_norm_grad_apply, 7,
                       (const int[]){out[0], in[1], ABSENT, in[3], in[4], in[5], in[6]}, 1, out);
        return 2;
    default: return 0;
    }
}

/* ---- rows ---- */

int kolo_compose_layout(const kolo_kernel_request *r, kolo_layout *layout)
{
    kolo_part p[KOLO_COMPOSED];
    const int parts = kolo_compose_parts(r->node, p);
    for (int i = 0; i < parts; i++) {
        const kolo_kernel_request request = {r->backend, r->graph, &p[i].node, r->layout};
        const kolo_op_row *row = r->backend->type->rows[p[i].node.op];
        if (row->layout) KOLO_TRY(row->layout(&request, layout));
    }
    return 0;
}

static void compose_release(void *state)
{
    composed *c = state;
    if (!c) return;
    for (int i = 0; i < c->parts; i++)
        if (c->part[i].kernel.release) c->part[i].kernel.release(c->part[i].kernel.state);
    free(c);
}

const kolo_kernel *kolo_composed_part(const kolo_kernel *k, enum kolo_op op)
{
    const composed *c = k->state;
    for (int i = 0; i < c->parts; i++)
        if (c->part[i].op == op) return &c->part[i].kernel;
    return NULL;
}

static int compose_run(const kolo_kernel *k, void *const *args, void *workspace, const kolo_step *step,
                       int slot)
{
    const composed *c = k->state;
    for (int i = 0; i < c->parts; i++) {
        const part *p = &c->part[i];
        void *own[2 * KOLO_MAX_ARGS];
        for (int a = 0; a < p->args; a++)
            own[a] = p->arg[a] == BETWEEN ? workspace : p->arg[a] == ABSENT ? NULL : args[p->arg[a]];
        KOLO_TRY(p->kernel.run(&p->kernel, own, (char *)workspace + c->between, step, slot));
    }
    return 0;
}

/* The argument of the whole that tensor t is. */
static int argument_of(const kolo_node *whole, int t)
{
    for (int i = 0; i < whole->n_in + whole->n_out && t >= 0; i++)
        if ((i < whole->n_in ? whole->in[i] : whole->out[i - whole->n_in]) == t) return i;
    return ABSENT;
}

static void bind_part(composed *c, part *p, const kolo_part *of, const kolo_kernel_request *whole)
{
    const kolo_node *n = &of->node;
    p->args = n->n_in + n->n_out;
    for (int i = 0; i < p->args; i++) {
        const int t = i < n->n_in ? n->in[i] : n->out[i - n->n_in];
        p->arg[i] = of->between >> i & 1 ? BETWEEN : argument_of(whole->node, t);
        if (p->arg[i] == BETWEEN) c->between = kolo_round_up(whole->layout[t].bytes, 256);
    }
}

int kolo_compose_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    kolo_part of[KOLO_COMPOSED];
    composed *c = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    k->state = c;
    k->release = compose_release;
    k->run = compose_run;
    size_t most = 0;
    const int parts = kolo_compose_parts(r->node, of);
    while (c->parts < parts) {
        const kolo_part *from = &of[c->parts];
        part *p = &c->part[c->parts++];
        const kolo_kernel_request request = {r->backend, r->graph, &from->node, r->layout};
        p->op = from->node.op;
        p->kernel.backend = r->backend;
        bind_part(c, p, from, r);
        KOLO_TRY(r->backend->type->rows[p->op]->prepare(&request, &p->kernel));
        if (p->kernel.workspace > most) most = p->kernel.workspace;
        if (p->op != KOLO_OP_norm_apply && !*k->name) snprintf(k->name, sizeof k->name, "%s", p->kernel.name);
    }
    k->workspace = c->between + most;
    return 0;
}
