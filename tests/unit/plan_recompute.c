/* Recomputation as plans have it: the bytes that a choice counts with are those that its plan has alive, it
 * fits its budget, the checker passes it, and refuses what is wrong with it. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
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
    kolo_form *form;
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
    n->form = rc == 0 ? calloc((size_t)n->graph->tensors, sizeof *n->form) : NULL;
    for (int64_t i = 0; rc == 0 && i < n->graph->nodes; i++) {
        const kolo_node *node = &n->graph->node[i];
        for (int k = 0; k < node->n_in + node->n_out; k++) {
            const int t = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
            if (t >= 0) n->seconds[i] += 1e-10 * (double)n->plain->layout[t].bytes;
        }
        if (kolo_op_table[node->op].flops)
            n->seconds[i] += 1e-11 * kolo_op_table[node->op].flops(n->graph, node);
    }
    if (rc == 0) rc = kolo_recompute_create(&n->recompute, n->plain, n->seconds);
    if (rc < 0) ok(0, "%s: %s", model, kolo_error_text());
    return rc == 0;
}

static void close_network(network *n)
{
    kolo_recompute_destroy(&n->recompute);
    kolo_plan_destroy(&n->plain);
    kolo_graph_destroy(&n->graph);
    free(n->seconds);
    free(n->form);
}

static kolo_plan *half(const network *n)
{
    kolo_recompute_choice choice;
    kolo_plan *p = NULL;
    if (kolo_recompute_choose(n->recompute, kolo_recompute_plain(n->recompute) / 2, n->form, &choice) == 0 &&
        kolo_plan_create_forms(&p, n->plain, n->form, NULL) < 0)
        diag("%s", kolo_error_text());
    return p;
}

/* Refused, and it says so in these words ("": in any). */
static bool refuses(const kolo_plan *p, const char *words)
{
    const int rc = kolo_plan_check(p);
    const bool right = rc < 0 && strstr(kolo_error_text(), words);
    if (!right) diag("%s", rc < 0 ? kolo_error_text() : "passes");
    return right;
}

/* Without action i. */
static bool without(kolo_plan *p, int64_t i)
{
    const kolo_action one = p->action[i];
    memmove(p->action + i, p->action + i + 1, (size_t)(p->actions - i - 1) * sizeof one);
    p->actions--;
    const bool right = refuses(p, "");
    memmove(p->action + i + 1, p->action + i, (size_t)(p->actions - i) * sizeof one);
    p->actions++;
    p->action[i] = one;
    return right;
}

/* Its statistic among those that are counted. */
static bool counted(kolo_plan *p, const kolo_action *a)
{
    const kolo_node *n = &p->graph->node[a->node];
    kolo_binding *b = &p->binding[a->binding + n->n_in + 1];
    const kolo_binding kept = *b;
    *b = p->fixed[n->out[1]];
    const bool right = refuses(p, "outside the arena of activations");
    *b = kept;
    return right;
}

/* An activation read from beside where it stands; where none is read (the image), what is made. */
static bool beside(kolo_plan *p, const kolo_action *a)
{
    const kolo_node *n = &p->graph->node[a->node];
    int k = 0;
    while (k < n->n_in && (n->in[k] < 0 || p->graph->tensor[n->in[k]].role != KOLO_ROLE_ACTIVATION)) k++;
    p->binding[a->binding + k].offset += KOLO_ALIGN;
    const bool right = refuses(p, "");
    p->binding[a->binding + k].offset -= KOLO_ALIGN;
    return right;
}

static void test_checker(void)
{
    network n;
    if (!open_network(&n, "resnet20", 2, 16)) return;
    kolo_plan *p = half(&n);
    int again = 0, dropped = 0, twice = 0, early = 0, first = 0, moved = 0, statistics = 0, scratch = 0;
    ok(p && kolo_plan_check(p) == 0, "a plan that drops half passes: %s", p ? "" : kolo_error_text());
    for (int64_t i = 0; p && i < p->actions; i++) {
        kolo_action *a = &p->action[i];
        if (a->kind == KOLO_ACTION_RUN && !a->again && !p->graph->node[a->node].backward) {
            first++;
            a->again = true;
            early += refuses(p, "is done again before it was done");
            a->again = false;
        }
        if (a->kind != KOLO_ACTION_RUN || !a->again) continue;
        again++;
        dropped += without(p, i);
        moved += beside(p, a);
        a->again = false;
        twice += refuses(p, "is done twice");
        a->again = true;
        if (p->graph->node[a->node].op != KOLO_OP_norm_apply) continue;
        scratch++;
        statistics += counted(p, a);
    }
    ok(again > 5 && dropped == again, "each of %d operations that run again, left out: refused", again);
    is_int(moved, again, "each reads from elsewhere: refused");
    is_int(twice, again, "each as if it ran for the first time: refused");
    is_int(early, first, "each of %d first ones as if it ran again: refused", first);
    ok(scratch > 0 && statistics == scratch, "each of %d statistics counted twice: refused", scratch);
    kolo_plan_destroy(&p);
    close_network(&n);
}

static void test_sums(void)
{
    network n;
    if (!open_network(&n, "resnet20", 2, 16)) return;
    kolo_plan_config c = n.plain->config;
    kolo_plan *p = NULL, *sync = NULL;
    kolo_recompute_choice choice;
    c.bn = KOLO_bn_sync;
    c.ranks = 2;
    int sums = 0, plain = 0;
    if (kolo_recompute_blocks(n.recompute, n.form, &choice) < 0 ||
        kolo_plan_create(&sync, n.graph, backend, &c, NULL) < 0 ||
        kolo_plan_create_forms(&p, sync, n.form, NULL) < 0)
        diag("%s", kolo_error_text());
    for (int64_t i = 0; p && i < p->actions; i++) sums += p->action[i].kind == KOLO_ACTION_SUM;
    for (int64_t i = 0; sync && i < sync->actions; i++) plain += sync->action[i].kind == KOLO_ACTION_SUM;
    ok(p && kolo_plan_check(p) == 0 && plain > 0 && sums == plain,
       "bn=sync: partial sums are kept, none is sent again (%d)", sums);
    kolo_plan_destroy(&p);
    kolo_plan_destroy(&sync);
    close_network(&n);
}

static void test_share(const network *n, int share)
{
    const double plain = (double)n->plain->least_activation, budget = plain * share / 100;
    kolo_recompute_choice choice;
    kolo_recomputed did = {0};
    kolo_plan *p = NULL;
    double bound = 0;
    int rc = kolo_recompute_choose(n->recompute, (int64_t)budget, n->form, &choice);
    if (rc == 0) rc = kolo_plan_create_forms(&p, n->plain, n->form, NULL);
    if (rc == 0) rc = kolo_recompute_bound(n->recompute, (int64_t)budget, &bound);
    if (rc == 0) rc = kolo_plan_recomputed(p, n->seconds, &did);
    if (rc == 0) rc = kolo_plan_check(p);
    ok(rc == 0 && (double)p->least_activation <= budget && fabs(did.seconds - choice.seconds) < 1e-9 &&
           bound <= choice.seconds * (1 + 1e-9),
       "%d %%: %.3f alive, %d of %d kept, %.1f %% more time%s, at least %.1f %%", share,
       p ? (double)p->least_activation / plain : 0, did.kept, did.activations,
       100 * did.seconds / (did.all - did.seconds), choice.exact ? "" : " (of many cuts)",
       100 * bound / (did.all - did.seconds));
    kolo_plan_destroy(&p);
}

static void test_budgets(const char *model, int64_t side)
{
    network n;
    if (!open_network(&n, model, 2, side)) return;
    const double plain = (double)n.plain->least_activation,
                 counted = (double)kolo_recompute_plain(n.recompute);
    int64_t bytes = 0;
    is_int(kolo_recompute_least(n.recompute, &bytes), 0, "%s: spans are weighed", model);
    const double least = (double)bytes;
    kolo_recompute_choice choice;
    ok(counted >= plain * .999 && counted < plain * 1.02,
       "%s: %.0f bytes are counted, the plan has %.0f alive", model, counted, plain);
    ok(least < .5 * plain, "the least of all cuts is %.2f of that", least / plain);
    for (int share = 100; share >= 40; share -= 10) test_share(&n, share);
    is_int(kolo_recompute_choose(n.recompute, (int64_t)least - 1, n.form, &choice), 1,
           "a byte less than the least: nothing fits");
    close_network(&n);
}

int main(void)
{
    kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) return 1;
    test_budgets("resnet50", 64);
    test_budgets("swin_t", 64);
    test_checker();
    test_sums();
    kolo_backend_destroy(&backend);
    return done_testing();
}
