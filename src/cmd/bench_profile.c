/* kolo bench train --profile: the time of every kind of action, and of the slowest kernels, with the
 * bytes that they move and the arithmetic that they do (plan/price.h) over it: rates to be held against
 * what the machine can do. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/cmd.h"
#include "kolo/error.h"
#include "plan/price.h"

enum { SLOWEST = 25 };

typedef struct row {
    const char *name;
    const kolo_kernel *kernel; /* of the second table */
    const kolo_node *node;     /* its first */
    double seconds, bytes, flops;
    int64_t calls;
} row;

/* What was measured of an action, and what it costs; what leaves this rank has no rate here. */
static void bench_profile_add(row *r, const kolo_cost *cost, const kolo_exec_profile *p)
{
    r->seconds += p->seconds;
    r->calls += p->calls;
    if (cost->sent <= 0) r->bytes += (cost->read + cost->written) * (double)p->calls;
    r->flops += cost->flops * (double)p->calls;
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

static void print_kinds(const kolo_plan *plan, const kolo_cost *cost, const kolo_exec_profile *profile,
                        int64_t steps)
{
    row rows[KOLO_OP_COUNT + KOLO_ACTIONS] = {{0}};
    double sum = 0;
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        int op = a->kind == KOLO_ACTION_RUN ? (int)plan->graph->node[a->node].op : -1;
        row *r = op >= 0 ? &rows[op] : &rows[KOLO_OP_COUNT + (int)a->kind];
        r->name = op >= 0 ? kolo_op_table[op].name : kolo_action_name(a->kind);
        bench_profile_add(r, &cost[i], &profile[i]);
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
static void print_kernels(const kolo_plan *plan, const kolo_cost *cost, const kolo_exec_profile *profile,
                          int64_t steps, row *rows)
{
    int64_t n = 0;
    for (int64_t i = 0; i < plan->actions; i++) {
        const kolo_action *a = &plan->action[i];
        if (a->kind != KOLO_ACTION_RUN) continue;
        int64_t k = 0;
        while (k < n && rows[k].kernel != plan->kernel[a->node]) k++;
        if (k == n) rows[n++] = (row){.kernel = plan->kernel[a->node], .node = &plan->graph->node[a->node]};
        bench_profile_add(&rows[k], &cost[i], &profile[i]);
    }
    qsort(rows, (size_t)n, sizeof *rows, slower);
    printf("%-22s %10s %8s %8s %8s  %s\n", "kernel", "ms/step", "calls", "GB/s", "TFLOP/s",
           "first input, first output; how");
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
    kolo_cost *cost = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cost);
    const int rc = rows && cost ? kolo_plan_costs(plan, cost) : KOLO_ENOMEM;
    if (rc == 0) {
        print_kinds(plan, cost, profile, steps);
        print_kernels(plan, cost, profile, steps, rows);
    }
    free(rows);
    free(cost);
    return rc;
}
