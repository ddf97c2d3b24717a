/* The executor alone in its process: steps, accumulation, short batches, evaluation, averages,
 * values, no allocation. */
#include "exec_rig.h"

/* every allocation that our own code makes is counted; oneDNN makes some in every call, which is its
 * affair */
extern char __executable_start, etext;
#define ALLOCATION_COUNTS(caller) \
    ((const char *)(caller) >= &__executable_start && (const char *)(caller) < &etext)
#include "allocations.h"

static kolo_backend *backend;

static bool opened(rig *r, rig_config c, const rig *train)
{
    int rc = rig_open(r, &c, backend, NULL, train);
    if (rc < 0) ok(0, "%s: %s", c.model, kolo_error_text());
    return rc >= 0;
}

static const rig_config lenet = {.model = "lenet5", .rows = 16, .side = 28, .channels = 1};
static const rig_config resnet = {.model = "resnet20", .rows = 8, .side = 16, .channels = 3};

static void test_no_allocation(void)
{
    rig r;
    rig_config c = resnet;
    c.slots = 2;
    c.clip = c.ema = true;
    if (!opened(&r, c, NULL)) return;
    kolo_batch b = rig_batch(&r);
    kolo_metrics m;
    rig_fill(&r, 0);
    long before = 0;
    int rc = 0;
    for (int t = 0; t < 6 && rc == 0; t++) {
        kolo_step s = rig_step(t, .01);
        if (t == 1) before = allocations;
        rc = kolo_exec_step(r.exec, &b, &s, &m);
    }
#if COUNTING
    long after = allocations;
    is_int(rc, 0, "six steps");
    ok(before > 100, "allocations are seen: %ld before", before);
    is_int(after - before, 0, "five steps make none");
#else
    (void)before;
    skip("allocations cannot be counted here");
#endif
    rig_close(&r);
}

static void test_learns(void)
{
    rig r;
    if (!opened(&r, resnet, NULL)) return;
    kolo_batch b = rig_batch(&r);
    kolo_metrics m = {0}, first = {0};
    rig_fill(&r, 0);
    for (int t = 0; t < 30; t++) {
        kolo_step s = rig_step(t, .02);
        if (kolo_exec_step(r.exec, &b, &s, &m) < 0) diag("%s", kolo_error_text());
        if (t == 0) first = m;
    }
    ok(first.loss / 8 > 2 && m.loss / 8 < .1, "ResNet-20 learns a batch by heart: loss %.3f to %.3f",
       first.loss / 8, m.loss / 8);
    ok(m.rows == 8 && m.top1 == 8 && m.top5 == 8, "and counts its hits: %g and %g of %g", m.top1, m.top5,
       m.rows);
    rig_close(&r);
}

/* Loss and gradients of `c` on images [0, rows), of which `valid` count. */
static float *gradients(rig_config c, int64_t valid, double *loss, int64_t *count)
{
    rig r;
    *count = 0;
    if (!opened(&r, c, NULL)) return NULL;
    kolo_batch b = rig_batch(&r);
    kolo_metrics m;
    kolo_step s = rig_step(0, 0);
    rig_fill(&r, 0);
    for (int64_t i = valid; i < r.rows; i++) {
        r.labels[i] = -1;
        memset(r.pixels + i * r.image, 0, (size_t)r.image);
    }
    b.valid = b.valid_global = valid;
    if (kolo_exec_step(r.exec, &b, &s, &m) < 0) diag("%s", kolo_error_text());
    *loss = m.loss / m.rows;
    float *g = rig_all(&r, "gradient", count);
    rig_close(&r);
    return g;
}

static void same_gradients(rig_config a, int64_t valid_a, rig_config b, int64_t valid_b, const char *what)
{
    double loss_a, loss_b;
    int64_t n, k;
    float *x = gradients(a, valid_a, &loss_a, &n), *y = gradients(b, valid_b, &loss_b, &k);
    double apart = x && y && n == k ? rig_apart(x, y, n) : INFINITY;
    ok(apart < 2e-6 && fabs(loss_a - loss_b) < 2e-6, "%s: losses %.9g and %.9g, gradients apart by %.2g",
       what, loss_a, loss_b, apart);
    free(x);
    free(y);
}

static void test_accumulation(void)
{
    rig_config whole = lenet, parts = lenet;
    for (int slots = 2; slots <= 8; slots *= 2) {
        char what[64];
        parts.slots = slots;
        parts.rows = 16 / slots;
        snprintf(what, sizeof what, "%d micro-batches, one after another", slots);
        parts.canonical = false;
        same_gradients(parts, 16, whole, 16, what);
        snprintf(what, sizeof what, "%d micro-batches in the tree", slots);
        parts.canonical = true;
        same_gradients(parts, 16, whole, 16, what);
    }
}

static void test_short_batches(void)
{
    rig_config full = resnet, small = resnet, parts = lenet, some = lenet;
    small.rows = 5;
    same_gradients(full, 5, small, 5, "5 valid rows of 8 are a batch of 5, batch norm included");
    parts.slots = 4;
    parts.rows = 4;
    some.rows = 6;
    same_gradients(parts, 6, some, 6, "6 valid rows in 4 micro-batches, two of them empty");
    double loss;
    int64_t n;
    float *g = gradients(full, 0, &loss, &n);
    double size = 0;
    for (int64_t i = 0; g && i < n; i++) size += (double)g[i] * (double)g[i];
    ok(g && size == 0, "no valid row, no gradient");
    free(g);
}

static void test_empty_slot_statistics(void)
{
    rig r;
    rig_config c = resnet;
    c.slots = 2;
    if (!opened(&r, c, NULL)) return;
    kolo_batch b = rig_batch(&r);
    kolo_metrics m;
    kolo_step s = rig_step(0, 0);
    rig_fill(&r, 0);
    b.valid = b.valid_global = 8; /* the second micro-batch is empty */
    int rc = kolo_exec_step(r.exec, &b, &s, &m);
    float half[2][16], whole[2][16];
    for (int i = 0; i < 2; i++)
        kolo_exec_get(r.exec, "param", kolo_graph_find(r.graph, i ? "bn1.running_var" : "bn1.running_mean"),
                      half[i]);
    rig_close(&r);
    if (!opened(&r, resnet, NULL)) return;
    b = rig_batch(&r);
    rig_fill(&r, 0);
    rc |= kolo_exec_step(r.exec, &b, &s, &m);
    for (int i = 0; i < 2; i++)
        kolo_exec_get(r.exec, "param", kolo_graph_find(r.graph, i ? "bn1.running_var" : "bn1.running_mean"),
                      whole[i]);
    ok(rc == 0 && rig_apart(half[0], whole[0], 32) < 1e-6,
       "an empty micro-batch has no say in the running statistics");
    ok(whole[1][0] != 1, "which do move");
    rig_close(&r);
}

static void test_repeats(void)
{
    float *w[2] = {NULL, NULL};
    int64_t n = 0;
    double loss[2] = {0};
    for (int run = 0; run < 2; run++) {
        rig r;
        rig_config c = resnet;
        c.slots = 2;
        if (!opened(&r, c, NULL)) return;
        kolo_batch b = rig_batch(&r);
        kolo_metrics m;
        for (int t = 0; t < 5; t++) {
            kolo_step s = rig_step(t, .1);
            rig_fill(&r, t * r.rows);
            if (kolo_exec_step(r.exec, &b, &s, &m) < 0) diag("%s", kolo_error_text());
        }
        loss[run] = m.loss;
        w[run] = rig_all(&r, "param", &n);
        rig_close(&r);
    }
    ok(n == 269722 && loss[0] == loss[1] && !memcmp(w[0], w[1], (size_t)n * sizeof(float)),
       "two runs of 5 steps give the same bits");
    free(w[0]);
    free(w[1]);
}

static void test_values(void)
{
    rig r;
    rig_config c = resnet;
    c.ema = true;
    if (!opened(&r, c, NULL)) return;
    int t = kolo_graph_find(r.graph, "layer2.0.conv1.weight"),
        v = kolo_graph_find(r.graph, "bn1.running_var");
    int64_t n = kolo_tensor_count(&r.graph->tensor[t]), wrong = 0;
    float *x = calloc((size_t)n, sizeof *x), *y = calloc((size_t)n, sizeof *y);
    is_int(kolo_exec_get(r.exec, "param", t, x), 0, "a parameter comes out");
    for (int64_t i = 0; i < n; i++) wrong += x[i] != kolo_initial_value(&r.graph->tensor[t], 1, i);
    is_int(wrong, 0, "with its initial values in canonical order");
    kolo_exec_get(r.exec, "ema", t, y);
    ok(!memcmp(x, y, (size_t)n * sizeof *x), "the average begins with them");
    kolo_exec_get(r.exec, "momentum", t, y);
    for (int64_t i = 0; i < n; i++) wrong += y[i] != 0;
    is_int(wrong, 0, "the momentum with nothing");
    for (int64_t i = 0; i < n; i++) x[i] = (float)i;
    kolo_exec_set(r.exec, "momentum", t, x);
    kolo_exec_get(r.exec, "momentum", t, y);
    ok(!memcmp(x, y, (size_t)n * sizeof *x), "what goes in comes out");
    kolo_exec_get(r.exec, "param", v, y);
    ok(y[0] == 1 && y[15] == 1, "buffers too");
    ok(kolo_exec_get(r.exec, "exp_avg", t, y) < 0 && strstr(kolo_error_text(), "exp_avg"),
       "a state that the optimizer lacks: %s", kolo_error_text());
    ok(kolo_exec_get(r.exec, "momentum", v, y) < 0, "a buffer has no momentum");
    free(x);
    free(y);
    rig_close(&r);
}

static void test_evaluation(void)
{
    rig train, eval;
    rig_config c = resnet;
    c.ema = true;
    if (!opened(&train, c, NULL)) return;
    c.eval = true;
    if (!opened(&eval, c, &train)) return;
    kolo_batch b = rig_batch(&train), e = rig_batch(&eval);
    kolo_metrics before, after, averaged, again, m;
    rig_fill(&train, 0);
    rig_fill(&eval, 0);
    kolo_step none = {0};
    int rc = kolo_exec_step(eval.exec, &e, &none, &before);
    for (int t = 0; t < 10; t++) {
        kolo_step s = rig_step(t, .02);
        s.ema_decay = .5f;
        rc |= kolo_exec_step(train.exec, &b, &s, &m);
    }
    rc |= kolo_exec_step(eval.exec, &e, &none, &after);
    kolo_exec_use_ema(eval.exec, true);
    rc |= kolo_exec_step(eval.exec, &e, &none, &averaged);
    kolo_exec_use_ema(eval.exec, false);
    rc |= kolo_exec_step(eval.exec, &e, &none, &again);
    ok(rc == 0 && after.loss != before.loss, "evaluation sees the weights of training: %.4f, then %.4f",
       before.loss / 8, after.loss / 8);
    ok(averaged.loss != after.loss && again.loss == after.loss, "or their average, and back: %.4f",
       averaged.loss / 8);
    float bias[10] = {3}, seen[10] = {0};
    int t = kolo_graph_find(train.graph, "linear.bias");
    kolo_exec_set(train.exec, "param", t, bias);
    kolo_exec_get(eval.exec, "param", kolo_graph_find(eval.graph, "linear.bias"), seen);
    ok(!memcmp(bias, seen, sizeof bias), "without a copy");
    e.valid = e.valid_global = 3;
    kolo_exec_step(eval.exec, &e, &none, &m);
    is_int((int64_t)m.rows, 3, "a short batch counts its valid rows");
    rig_close(&eval);
    rig_close(&train);
}

static void test_failures(void)
{
    rig r;
    if (!opened(&r, lenet, NULL)) return;
    kolo_batch b = rig_batch(&r);
    kolo_metrics m;
    rig_fill(&r, 0);
    int rc = 0;
    for (int t = 0; t < 20 && rc == 0; t++) {
        kolo_step s = rig_step(t, 1e20);
        rc = kolo_exec_step(r.exec, &b, &s, &m);
    }
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "smaller lr"), "a loss that is not finite: %s",
       kolo_error_text());
    b.rows = 8;
    kolo_step s = rig_step(0, 0);
    is_int(kolo_exec_step(r.exec, &b, &s, &m), KOLO_EINTERNAL, "a batch of other rows is refused");
    rig_close(&r);
}

static void test_profile(void)
{
    rig r;
    if (!opened(&r, lenet, NULL)) return;
    kolo_exec_profile *p = calloc((size_t)r.plan->actions, sizeof *p);
    kolo_batch b = rig_batch(&r);
    kolo_metrics m;
    rig_fill(&r, 0);
    kolo_exec_set_profile(r.exec, p);
    for (int t = 0; t < 3; t++) {
        kolo_step s = rig_step(t, .01);
        kolo_exec_step(r.exec, &b, &s, &m);
        if (t == 1) kolo_exec_set_profile(r.exec, NULL);
    }
    int64_t calls = 0;
    double seconds = 0;
    for (int64_t i = 0; i < r.plan->actions; i++) {
        calls += p[i].calls;
        seconds += p[i].seconds;
    }
    ok(calls == 2 * r.plan->actions && seconds > 0, "two of three steps were timed, every action: %lld",
       (long long)calls);
    free(p);
    rig_close(&r);
}

/* All running statistics, "param" or "ema". */
static float *statistics(rig *r, const char *which, int64_t *count)
{
    float *all = calloc(1 << 16, sizeof *all);
    *count = 0;
    for (int t = 0; t < r->graph->tensors; t++) {
        if (r->graph->tensor[t].role != KOLO_ROLE_BUFFER) continue;
        if (kolo_exec_get(r->exec, which, t, all + *count) < 0) diag("%s", kolo_error_text());
        *count += kolo_tensor_count(&r->graph->tensor[t]);
    }
    return all;
}

/* The plain mean over three batches of the statistics of the averaged weights. A batch's own are read off
 * another executor with these weights: new = .9 old + .1 own. */
static void test_statistics(void)
{
    rig_config c = resnet;
    rig r, other;
    kolo_metrics m;
    int64_t n, params;
    c.slots = 2;
    c.ema = c.clip = true;
    if (!opened(&r, c, NULL) || !opened(&other, c, NULL)) return;
    kolo_batch batch = rig_batch(&r), same = rig_batch(&other);
    for (int64_t t = 0; t < 4; t++) {
        const kolo_step step = rig_step(t, .1);
        rig_fill(&r, t * r.rows);
        kolo_exec_step(r.exec, &batch, &step, &m);
    }
    float *weights = rig_all(&r, "param", &params), *average = rig_all(&r, "ema", &params),
          *momentum = rig_all(&r, "momentum", &params);
    float *running = statistics(&r, "param", &n), *values = calloc((size_t)params, sizeof *values);
    double *want = calloc((size_t)n, sizeof *want);
    for (int t = 0; t < r.graph->tensors; t++) {
        if (r.graph->tensor[t].role != KOLO_ROLE_PARAM) continue;
        kolo_exec_get(r.exec, "ema", t, values);
        kolo_exec_set(other.exec, "param", t, values);
    }
    for (int64_t k = 0; k < 3; k++) {
        const kolo_step step = rig_step(k, 0);
        float *before = statistics(&other, "param", &n);
        rig_fill(&other, (20 + k) * r.rows);
        kolo_exec_step(other.exec, &same, &step, &m);
        float *after = statistics(&other, "param", &n);
        for (int64_t i = 0; i < n; i++) want[i] += ((double)after[i] - .9 * (double)before[i]) / .1 / 3;
        free(before);
        free(after);
        rig_fill(&r, (20 + k) * r.rows);
        is_int(kolo_exec_statistics(r.exec, &batch, &step, k), 0, "batch %d", (int)k);
    }
    float *got = statistics(&r, "ema", &n);
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)got[i] - want[i]) / (1e-2 + fabs(want[i])));
    ok(worst < 2e-5 && n > 100, "statistics of the average are the mean over its batches: %.2g off", worst);
    int64_t unused;
    float *weights2 = rig_all(&r, "param", &unused), *average2 = rig_all(&r, "ema", &unused),
          *momentum2 = rig_all(&r, "momentum", &unused), *running2 = statistics(&r, "param", &n);
    const size_t bytes = (size_t)params * sizeof(float);
    ok(!memcmp(weights, weights2, bytes) && !memcmp(average, average2, bytes) &&
           !memcmp(momentum, momentum2, bytes) && !memcmp(running, running2, (size_t)n * sizeof(float)),
       "weights, their average, the optimizer's state and the weights' own statistics stay");
    float *const all[] = {weights, average,  momentum, running,   values,
                          got,     weights2, average2, momentum2, running2};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    free(want);
    rig_close(&r);
    rig_close(&other);
}

int main(void)
{
    backend = rig_backend(2, false);
    test_no_allocation();
    test_learns();
    test_accumulation();
    test_short_batches();
    test_empty_slot_statistics();
    test_repeats();
    test_values();
    test_evaluation();
    test_statistics();
    test_failures();
    test_profile();
    kolo_backend_destroy(&backend);
    return done_testing();
}
