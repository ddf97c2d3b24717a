/* kolo bench train --profile: the time of every kind of action, and of the slowest kernels, with the bytes that they
 * cannot but move and the arithmetic that they cannot but do over it: rates to be held against what the machine can do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"

enum { SLOWEST = 25 };

typedef struct row {
    const char *name;
    const kolo_kernel *kernel; /* of the second table */
    const kolo_node *node;     /* its first */
    double seconds, bytes, flops;
    int64_t calls;
} row;

static double tensor_bytes(const kolo_plan *plan, int t)
{
    if (t < 0) return 0;
    return (double)plan->layout[t].bytes * (plan->layout[t].half ? 0.5 : 1);
}

/* Every input read once, every output written once. */
static double node_bytes(const kolo_plan *plan, const kolo_node *n)
{
    double bytes = 0;
    for (int k = 0; k < n->n_in; k++) bytes += tensor_bytes(plan, n->in[k]);
    for (int k = 0; k < n->n_out; k++)
        if (n->out[k] >= 0) bytes += (double)plan->layout[n->out[k]].bytes;
    return bytes;
}

/* Weights and state there and back, the gradient, averages and the 16-bit copy. */
static double update_bytes(const kolo_plan *plan, const kolo_bucket *b)
{
    double words = 3 + 2 * kolo_plan_states(plan) + (plan->config.ema ? 2 : 0);
    return (double)b->params * (4 * words + (plan->arena_bytes[KOLO_ARENA_SHADOW] ? 2 : 0));
}

static double action_bytes(const kolo_plan *plan, const kolo_action *a)
{
    const kolo_graph *g = plan->graph;
    switch (a->kind) {
    case KOLO_ACTION_RUN: return node_bytes(plan, &g->node[a->node]);
    case KOLO_ACTION_LOAD: return 2 * (tensor_bytes(plan, g->input) + tensor_bytes(plan, g->label));
    case KOLO_ACTION_FOLD: return 12 * (double)plan->bucket[a->bucket].count;
    case KOLO_ACTION_NORM: return (double)(plan->arena_bytes[KOLO_ARENA_GRADIENT] - plan->reduced_front);
    case KOLO_ACTION_LAYERS: return (double)plan->arena_bytes[KOLO_ARENA_PARAM] * (plan->config.optimizer->layer.kind == KOLO_LAYER_LAMB ? 6 : 2);
    case KOLO_ACTION_SQUARE: return 4 * (double)plan->bucket[a->bucket].params;
    case KOLO_ACTION_APPLY: return 12 * (double)plan->bucket[a->bucket].params;
    case KOLO_ACTION_DELTA:
    case KOLO_ACTION_UPDATE: return update_bytes(plan, &plan->bucket[a->bucket]);
    default: return 0;
    }
}

static void add(row *r, const kolo_plan *plan, const kolo_action *a, const kolo_exec_profile *p)
{
    const kolo_node *n = a->kind == KOLO_ACTION_RUN ? &plan->graph->node[a->node] : NULL;
    r->seconds += p->seconds;
    r->calls += p->calls;
    r->bytes += action_bytes(plan, a) * (double)p->calls;
    if (n && kolo_op_table[n->op].flops) r->flops += kolo_op_table[n->op].flops(plan->graph, n) * (double)p->calls;
}

static int slower(const void *a, const void *b)
{
    double x = ((const row *)a)->seconds, y = ((const row *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_rates(const row *r, int64_t steps)
{
    printf(" %10.4f %8.1f", r->seconds * 1e3 / (double)steps, (double)r->calls / (double)steps);
    if (r->bytes > 0 && r->seconds > 0) printf(" %8.1f", r->bytes / r->seconds * 1e-9);
    else printf(" %8s", "-");
    if (r->flops > 0 && r->seconds > 0) printf(" %8.2f", r->flops / r->seconds * 1e-12);
    else printf(" %8s", "-");
}

static void print_kinds(const kolo_plan *plan, const kolo_exec_profile *profile, int64_t steps)
{
    static const char *const kind[] = {
        [KOLO_ACTION_LOAD] = "load",       [KOLO_ACTION_SUM] = "sum",        [KOLO_ACTION_FOLD] = "fold",     [KOLO_ACTION_REDUCE] = "reduce",
        [KOLO_ACTION_WAIT] = "wait",       [KOLO_ACTION_NORM] = "norm",      [KOLO_ACTION_LAYERS] = "layers", [KOLO_ACTION_UPDATE] = "update",
        [KOLO_ACTION_BUFFERS] = "buffers", [KOLO_ACTION_SQUARE] = "squares", [KOLO_ACTION_NOISE] = "noise",   [KOLO_ACTION_DELTA] = "step",
        [KOLO_ACTION_APPLY] = "apply"};
    row rows[KOLO_OP_COUNT + 16] = {{0}};
    double sum = 0;
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        int op = a->kind == KOLO_ACTION_RUN ? (int)plan->graph->node[a->node].op : -1;
        row *r = op >= 0 ? &rows[op] : &rows[KOLO_OP_COUNT + (int)a->kind];
        r->name = op >= 0 ? kolo_op_table[op].name : kind[a->kind];
        add(r, plan, a, &profile[i]);
        sum += profile[i].seconds;
    }
    qsort(rows, sizeof rows / sizeof *rows, sizeof *rows, slower);
    printf("%-22s %10s %8s %8s %8s %8s\n", "action", "ms/step", "calls", "GB/s", "TFLOP/s", "share");
    for (size_t i = 0; i < sizeof rows / sizeof *rows && rows[i].calls; i++) {
        printf("%-22s", rows[i].name);
        print_rates(&rows[i], steps);
        printf(" %7.1f%%\n", 100 * rows[i].seconds / sum);
    }
}

static void print_shape(const kolo_graph *g, int t)
{
    if (t < 0) return;
    const kolo_tensor *x = &g->tensor[t];
    for (int d = 0; d < x->rank; d++) printf("%s%ld", d ? "x" : " ", (long)x->dim[d]);
}

/* Actions that share a kernel have the same shapes. */
static void print_kernels(const kolo_plan *plan, const kolo_exec_profile *profile, int64_t steps, row *rows)
{
    int64_t n = 0;
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->kind != KOLO_ACTION_RUN) continue;
        int64_t k = 0;
        while (k < n && rows[k].kernel != plan->kernel[a->node]) k++;
        if (k == n) rows[n++] = (row){.kernel = plan->kernel[a->node], .node = &plan->graph->node[a->node]};
        add(&rows[k], plan, a, &profile[i]);
    }
    qsort(rows, (size_t)n, sizeof *rows, slower);
    printf("%-22s %10s %8s %8s %8s  %s\n", "kernel", "ms/step", "calls", "GB/s", "TFLOP/s", "first input, first output; how");
    for (int64_t k = 0; k < n && k < SLOWEST; k++) {
        const kolo_node *node = rows[k].node;
        printf("%-22s", kolo_op_table[node->op].name);
        print_rates(&rows[k], steps);
        printf(" ");
        print_shape(plan->graph, node->in[0]);
        print_shape(plan->graph, node->out[0]);
        printf("; %s\n", kolo_kernel_name(rows[k].kernel));
    }
}

int kolo_bench_profile(const kolo_plan *plan, const kolo_exec_profile *profile, int64_t steps)
{
    row *rows = kolo_alloc((size_t)(plan->actions + 1) * sizeof *rows);
    if (!rows) return KOLO_ECONFIG;
    print_kinds(plan, profile, steps);
    print_kernels(plan, profile, steps, rows);
    free(rows);
    return 0;
}
