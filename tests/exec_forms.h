/* Steps of two batch and image sizes in one executor, beside two executors between which everything is
 * carried by hand. Include exec_rig.h first. */
#ifndef TESTS_EXEC_FORMS_H
#define TESTS_EXEC_FORMS_H

#include "exec_rig.h"

enum { FORMS_STEPS = 14 };

static bool forms_small(int t) { return t / 2 % 2 == 1; }

static int forms_drain(kolo_exec *e)
{
    kolo_metrics m;
    do KOLO_TRY(kolo_exec_drain(e, &m));
    while (m.step >= 0);
    return 0;
}

/* Weights, running statistics, averages, momentum. */
static int forms_carry(rig *from, rig *to)
{
    int rc = 0;
    const char *const kind[] = {"param", "ema", kolo_plan_state_name(from->plan, 0)};
    KOLO_TRY(forms_drain(from->exec));
    for (int t = 0; t < from->graph->tensors && rc == 0; t++) {
        const kolo_tensor *x = &from->graph->tensor[t];
        if (x->role != KOLO_ROLE_PARAM && x->role != KOLO_ROLE_BUFFER) continue;
        float *values = malloc((size_t)kolo_tensor_count(x) * sizeof *values);
        for (int k = 0; k < (x->role == KOLO_ROLE_PARAM ? 3 : 2) && rc == 0; k++) {
            rc = kolo_exec_get(from->exec, kind[k], t, values);
            if (rc == 0) rc = kolo_exec_set(to->exec, kind[k], kolo_graph_find(to->graph, x->name), values);
        }
        free(values);
    }
    return rc;
}

static int forms_step(rig *r, kolo_exec *exec, int t, int side)
{
    kolo_metrics m;
    rig_fill(r, t * 8);
    kolo_batch batch = rig_batch(r);
    kolo_step step = rig_step(t, .05);
    batch.height = batch.width = side;
    return kolo_exec_step(exec, &batch, &step, &m);
}

/* backend: with a fixed rule instead of a clock. large: with averages, its side a multiple of 3. */
static void forms_check(kolo_backend *backend, const rig_config *large)
{
    rig_config little = *large;
    little.side = large->side / 3 * 2, little.slots = large->slots == 2 ? 1 : 2;
    const int sides[] = {(int)large->side, (int)little.side};
    rig one, hand[2];
    kolo_graph *graph = NULL;
    kolo_plan *plan = NULL;
    int64_t n;
    int rc;
    if (rig_open(&one, large, backend, NULL, NULL) < 0 ||
        rig_open(&hand[0], large, backend, NULL, NULL) < 0 ||
        rig_open(&hand[1], &little, backend, NULL, NULL) < 0)
        diag("%s", kolo_error_text());
    const kolo_model_config m = {.rows = large->rows,
                                 .height = little.side,
                                 .width = little.side,
                                 .channels = 3,
                                 .classes = 10,
                                 .train = true,
                                 .mean = {.5f, .5f, .5f},
                                 .std = {.25f, .25f, .25f}};
    kolo_plan_config config = one.plan->config;
    config.slots = little.slots;
    rc = large->build ? large->build(&graph, &m) : kolo_model_graph(&graph, large->model, &m);
    if (rc == 0) rc = kolo_plan_create(&plan, graph, backend, &config, one.plan);
    is_int(rc, 0, "a plan for batches of another shape, like the first");
    kolo_plan *const both[] = {one.plan, plan};
    kolo_exec_destroy(&one.exec);
    is_int(kolo_exec_create(&one.exec, both, 2, backend, NULL, &one.options, NULL), KOLO_EINTERNAL,
           "which must be laid in the same memory");
    const size_t workspace = plan->arena_bytes[KOLO_ARENA_WORKSPACE],
                 activation = one.plan->arena_bytes[KOLO_ARENA_ACTIVATION],
                 levels = little.slots > 1 ? plan->arena_bytes[KOLO_ARENA_PART]
                                           : one.plan->arena_bytes[KOLO_ARENA_PART];
    rc = kolo_plan_share(both, 2);
    ok(rc == 0 && !memcmp(plan->arena_bytes, one.plan->arena_bytes, sizeof plan->arena_bytes),
       "then their arenas are the same");
    ok(plan->arena_bytes[KOLO_ARENA_WORKSPACE] >= workspace &&
           plan->arena_bytes[KOLO_ARENA_ACTIVATION] == activation &&
           one.plan->arena_bytes[KOLO_ARENA_PART] == levels && levels > 0,
       "as large as the larger");
    ok(kolo_plan_check(one.plan) == 0 && kolo_plan_check(plan) == 0, "and both pass the checker");
    rc = kolo_exec_create(&one.exec, both, 2, backend, NULL, &one.options, NULL);
    if (rc == 0) rc = kolo_exec_initialise(one.exec, 1);
    is_int(rc, 0, "one executor takes both");
    for (int t = 0; t < FORMS_STEPS && rc >= 0; t++) {
        const int k = forms_small(t), side = sides[k];
        rc = forms_step(&hand[k], one.exec, t, side);
        if (rc >= 0 && t && forms_small(t - 1) != k) rc = forms_carry(&hand[!k], &hand[k]);
        if (rc >= 0) rc = forms_step(&hand[k], hand[k].exec, t, side);
    }
    if (rc >= 0) rc = forms_drain(one.exec);
    if (rc >= 0) rc = forms_drain(hand[forms_small(FORMS_STEPS - 1)].exec);
    is_int(rc, 0, "steps of two sizes in turn%s%s", rc < 0 ? ": " : "", rc < 0 ? kolo_error_text() : "");
    for (int e = 0; e < 2; e++) {
        const char *which = e ? "ema" : "param";
        float *a = rig_all(&one, which, &n), *b = rig_all(&hand[forms_small(FORMS_STEPS - 1)], which, &n);
        ok(n > 0 && !memcmp(a, b, (size_t)n * sizeof *a), "%s: the bits of a run that changes size by hand",
           which);
        free(a);
        free(b);
    }
    is_int(forms_step(&hand[0], one.exec, FORMS_STEPS, sides[0] - 1), KOLO_EINTERNAL,
           "a batch that no plan is for is refused");
    kolo_exec_destroy(&one.exec);
    kolo_plan_destroy(&plan);
    kolo_graph_destroy(&graph);
    rig_close(&one);
    for (int k = 0; k < 2; k++) rig_close(&hand[k]);
}

#endif
