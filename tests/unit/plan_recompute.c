/* Recomputation as plans have it: the bytes that a choice counts with are those that its plan has alive, it
 * fits its budget, the checker passes it, and refuses what is wrong with it. */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "kolo/error.h"
#include "models/models.h"
#include "plan/recompute.h"
#include "tap.h"

static kolo_backend *backend;

/* A network's plan that drops nothing, and seconds that are its operations' bytes and products. */
typedef struct network {
    kolo_graph *graph;
    kolo_plan *plain;
    double *seconds;
    kolo_recompute *recompute;
    bool *dropped;
} network;

static bool open_network(network *n, const char *model, int64_t rows, int64_t side)
{
    kolo_model_config c = {.rows = rows,
                           .height = side,
                           .width = side,
                           .channels = 3,
                           .classes = 10,
                           .train = true,
                           .drop_path = .1,
                           .mean = {.5f, .5f, .5f},
                           .std = {.25f, .25f, .25f}};
    kolo_plan_config p = {
        .ranks = 1, .slots = 1, .bucket_bytes = 1 << 20, .optimizer = kolo_optimizer_find("sgd")};
    memset(n, 0, sizeof *n);
    int rc = kolo_model_graph(&n->graph, model, &c);
    if (rc == 0) rc = kolo_plan_create(&n->plain, n->graph, backend, &p, NULL);
    n->seconds = rc == 0 ? calloc((size_t)n->graph->nodes, sizeof *n->seconds) : NULL;
    n->dropped = rc == 0 ? calloc((size_t)n->graph->tensors, sizeof *n->dropped) : NULL;
    for (int64_t i = 0; rc == 0 && i < n->graph->nodes; i++) {
        const kolo_node *node = &n->graph->node[i];
        for (int k = 0; k < node->n_in + node->n_out; k++) {
            const int t = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
            if (t >= 0) n->seconds[i] += 1e-10 * (double)n->plain->layout[t].bytes;
        }
        if (kolo_op_table[node->op].flops)
            n->seconds[i] += 1e-11 * kolo_op_table[node->op].flops(n->graph, node);
    }
    double begin = kolo_time();
    if (rc == 0) rc = kolo_recompute_create(&n->recompute, n->plain, n->seconds);
    if (getenv("VERBOSE")) diag("%s: create %.3f s", model, kolo_time() - begin);
    if (rc < 0) ok(0, "%s: %s", model, kolo_error_text());
    return rc == 0;
}

static void close_network(network *n)
{
    kolo_recompute_destroy(&n->recompute);
    kolo_plan_destroy(&n->plain);
    kolo_graph_destroy(&n->graph);
    free(n->seconds);
    free(n->dropped);
}

static void test_budgets(const char *model, int64_t side)
{
    network n;
    if (!open_network(&n, model, 2, side)) return;
    const double plain = (double)n.plain->least_activation;
    const double counted = (double)kolo_recompute_plain(n.recompute),
                 least = (double)kolo_recompute_least(n.recompute);
    ok(counted >= plain * .999 && counted < plain * 1.02, "%s: counts %.0f bytes, the plan has %.0f alive",
       model, counted, plain);
    ok(least < .5 * plain, "the least of all cuts is %.2f of that", least / plain);
    for (int share = 100; share >= 30; share -= 10) {
        const double budget = plain * share / 100;
        kolo_recompute_choice choice;
        kolo_plan *p = NULL;
        double bound, begin = kolo_time();
        const int rc = kolo_recompute_choose(n.recompute, (int64_t)budget, n.dropped, &choice);
        begin = kolo_time() - begin;
        if (rc == 1) {
            ok(budget < least, "%d %%: nothing fits", share);
            continue;
        }
        kolo_recomputed what = {0};
        int good = rc == 0 && kolo_plan_create_dropping(&p, n.plain, n.dropped, NULL) == 0;
        good = good && kolo_recompute_bound(n.recompute, (int64_t)budget, &bound) == 0;
        good = good && kolo_plan_recomputed(p, n.seconds, &what) == 0;
        ok(good && kolo_plan_check(p) == 0 && p->least_activation <= budget &&
               fabs(what.seconds - choice.seconds) < 1e-9 && bound <= choice.seconds * (1 + 1e-9),
           "%d %%: %.3f alive, %.3f arena, %d of %d kept, %.1f %% more time%s, at least %.1f %%", share,
           p ? (double)p->least_activation / plain : 0,
           p ? (double)p->arena_bytes[KOLO_ARENA_ACTIVATION] /
                   (double)n.plain->arena_bytes[KOLO_ARENA_ACTIVATION]
             : 0,
           what.kept, what.activations, 100 * what.seconds / (what.all - what.seconds),
           choice.exact ? "" : " (thinned)", 100 * bound / (what.all - what.seconds));
        if (getenv("VERBOSE"))
            diag("%.3f s; %s; %g %g", begin, kolo_error_text(), what.seconds, choice.seconds);
        kolo_plan_destroy(&p);
    }
    close_network(&n);
}

int main(int n, char **words)
{
    kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) return 1;
    if (n > 2) test_budgets(words[1], atoi(words[2]));
    else test_budgets("resnet50", 64), test_budgets("swin_t", 64);
    kolo_backend_destroy(&backend);
    return done_testing();
}
