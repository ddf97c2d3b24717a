/* The executor on a GPU beside the CPU's: the same steps, told later; recorded steps give the bits of those
 * that were not; loss scaling, averages, evaluation, values, errors. The network has norms and pooling only,
 * so its sums, not libraries, are what differs. */
#include "cuda_rig.h"
#include "exec_forms.h"

static kolo_backend *cpu, *gpu;

/* normalize, norm + relu, pool, eleven channels (eight of them zero), norm, average: trained by its
 * norms' weights and biases. */
static int build_norms(kolo_graph **graph, const kolo_model_config *c)
{
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(&g, "norms", c->train, c->dtype));
    *graph = g;
    int x = kolo_normalize(g, kolo_input(g, c->rows, c->height, c->width, c->channels, 1), c->mean, c->std);
    x = kolo_relu(g, "relu1", kolo_batch_norm(g, "bn1", x, 1e-5, .1, 1));
    x = kolo_max_pool(g, "pool", x, 2, 2, 0);
    x = kolo_shortcut_a(g, "widen", x, 11);
    x = kolo_relu(g, "relu2", kolo_batch_norm(g, "bn2", x, 1e-5, .1, 1));
    x = kolo_global_avg_pool(g, "mean", x);
    KOLO_TRY(kolo_cross_entropy(g, x, .1));
    KOLO_TRY(kolo_graph_fuse(g));
    return c->train ? kolo_graph_backward(g) : 0;
}

static const rig_config norms = {.model = "norms",
                                 .build = build_norms,
                                 .rows = 6,
                                 .side = 12,
                                 .channels = 3,
                                 .slots = 2,
                                 .clip = true,
                                 .ema = true};

static bool opened(rig *r, const rig_config *c, kolo_backend *b, const rig *train)
{
    int rc = rig_open(r, c, b, NULL, train);
    if (rc < 0) ok(0, "%s: %s", c->model, kolo_error_text());
    return rc >= 0;
}

typedef struct told {
    kolo_metrics m[64];
    int late[64]; /* steps that were issued when it was told, less its own number */
    int n, wrong; /* out of order */
} told;

static void note(told *t, const kolo_metrics *m, int64_t issued)
{
    if (m->step < 0) return;
    if (m->step != t->n) t->wrong++;
    t->late[t->n] = (int)(issued - m->step);
    t->m[t->n++] = *m;
}

/* Steps [first, first + n), the last batch of every four short; then all are told. */
static int train_steps(rig *r, int first, int n, told *t)
{
    kolo_metrics m;
    for (int i = first; i < first + n; i++) {
        kolo_batch b = rig_batch(r);
        kolo_step s = rig_step(i, .2);
        rig_fill(r, i * r->rows);
        if (i % 4 == 3) b.valid = b.valid_global = r->rows - 4;
        KOLO_TRY(kolo_exec_step(r->exec, &b, &s, &m));
        memset(r->pixels, 0xFF, (size_t)(r->rows * r->image)); /* the batch was read */
        note(t, &m, i);
    }
    do {
        KOLO_TRY(kolo_exec_drain(r->exec, &m));
        note(t, &m, first + n);
    } while (m.step >= 0);
    return 0;
}

static double far_from(double a, double b) { return fabs(a - b) / (fabs(b) + 1e-3); }

static void compare_training(const rig_config *c, double tolerance, const char *what)
{
    rig r[2];
    told t[2] = {{.n = 0}, {.n = 0}};
    rig_config exact = *c;
    exact.dtype = KOLO_F32;
    if (!opened(&r[0], &exact, cpu, NULL) || !opened(&r[1], c, gpu, NULL)) return;
    for (int k = 0; k < 2; k++)
        if (train_steps(&r[k], 0, 12, &t[k]) < 0) ok(0, "%s: %s", what, kolo_error_text());
    double loss = 0, norm = 0;
    for (int i = 0; i < 12; i++) {
        loss = fmax(loss, far_from(t[1].m[i].loss, t[0].m[i].loss));
        norm = fmax(norm, far_from(t[1].m[i].grad_norm, t[0].m[i].grad_norm));
    }
    ok(t[1].n == 12 && loss < tolerance && norm < 4 * tolerance, "%s: 12 losses apart by %.2g, norms by %.2g",
       what, loss, norm);
    ok(t[0].m[0].loss > t[0].m[11].loss && t[1].m[3].rows == 8 && t[1].m[4].rows == 12,
       "%s: it trains, and short batches count their rows", what);
    static const char *const kind[] = {"param", "momentum", "ema"};
    for (int k = 0; k < 3; k++) {
        int64_t n;
        float *a = rig_all(&r[1], kind[k], &n), *b = rig_all(&r[0], kind[k], &n);
        ok(rig_apart(a, b, n) < 4 * tolerance, "%s: %s apart by %.2g", what, kind[k], rig_apart(a, b, n));
        free(a);
        free(b);
    }
    float a[11], b[11];
    kolo_exec_get(r[1].exec, "param", kolo_graph_find(r[1].graph, "bn2.running_var"), a);
    kolo_exec_get(r[0].exec, "param", kolo_graph_find(r[0].graph, "bn2.running_var"), b);
    ok(rig_apart(a, b, 11) < 4 * tolerance, "%s: running variances apart by %.2g", what, rig_apart(a, b, 11));
    rig_close(&r[0]);
    rig_close(&r[1]);
}

static void test_late(void)
{
    rig r;
    told t = {.n = 0};
    if (!opened(&r, &norms, gpu, NULL)) return;
    is_int(train_steps(&r, 0, 10, &t), 0, "ten steps");
    ok(t.n == 10 && t.wrong == 0, "every step is told once, in order: %d", t.n);
    int same = 1;
    for (int i = 0; i < 10 - KOLO_EXEC_AHEAD; i++) same &= t.late[i] == KOLO_EXEC_AHEAD;
    ok(same, "each %d steps later, on every rank alike", KOLO_EXEC_AHEAD);
    kolo_metrics m;
    kolo_exec_drain(r.exec, &m);
    is_int(m.step, -1, "then there is nothing left to tell");
    rig_close(&r);
}

static void test_replay(void)
{
    float *w[2] = {NULL, NULL};
    double loss[2] = {0};
    int64_t n = 0;
    for (int k = 0; k < 2; k++) {
        rig r;
        told t = {.n = 0};
        if (!opened(&r, &norms, gpu, NULL)) return;
        r.options.replay = k;
        kolo_exec_destroy(&r.exec);
        if (kolo_exec_create(&r.exec, &r.plan, 1, gpu, NULL, &r.options, NULL) < 0 ||
            kolo_exec_initialise(r.exec, 1) < 0 || train_steps(&r, 0, 9, &t) < 0)
            ok(0, "%s", kolo_error_text());
        loss[k] = t.m[8].loss;
        w[k] = rig_all(&r, "param", &n);
        rig_close(&r);
    }
    ok(loss[0] == loss[1] && !memcmp(w[0], w[1], (size_t)n * sizeof(float)),
       "replayed steps have the bits of launched ones");
    free(w[0]);
    free(w[1]);
}

static double evaluated(rig *r, bool ema)
{
    double sum = 0;
    kolo_metrics m;
    kolo_exec_use_ema(r->exec, ema);
    for (int i = 0; i < 5; i++) {
        kolo_batch b = rig_batch(r);
        kolo_step s = {.step = i};
        rig_fill(r, 5000 + i * r->rows);
        if (kolo_exec_step(r->exec, &b, &s, &m) < 0) diag("%s", kolo_error_text());
        if (m.step >= 0) sum += m.loss;
    }
    do {
        if (kolo_exec_drain(r->exec, &m) < 0) diag("%s", kolo_error_text());
        if (m.step >= 0) sum += m.loss;
    } while (m.step >= 0);
    return sum;
}

static void test_evaluation(const rig_config *c, double tolerance, const char *what)
{
    rig train[2], eval[2];
    rig_config e = *c;
    double plain[2], averaged[2], again[2], set[2];
    e.eval = true;
    e.slots = 1;
    for (int k = 0; k < 2; k++) {
        told t = {.n = 0};
        rig_config a = *c, b = e;
        if (k == 0) a.dtype = b.dtype = KOLO_F32;
        if (!opened(&train[k], &a, k ? gpu : cpu, NULL) || !opened(&eval[k], &b, k ? gpu : cpu, &train[k]))
            return;
        if (train_steps(&train[k], 0, 6, &t) < 0) diag("%s", kolo_error_text());
        plain[k] = evaluated(&eval[k], false);
        averaged[k] = evaluated(&eval[k], true);
        again[k] = evaluated(&eval[k], false);
        float bias[11] = {1, 2, 3};
        kolo_exec_set(train[k].exec, "param", kolo_graph_find(train[k].graph, "bn2.bias"), bias);
        set[k] = evaluated(&eval[k], false);
    }
    ok(far_from(plain[1], plain[0]) < tolerance && far_from(averaged[1], averaged[0]) < tolerance &&
           far_from(set[1], set[0]) < tolerance,
       "%s: validation losses %.5f, averaged %.5f, of other weights %.5f", what, plain[1], averaged[1],
       set[1]);
    ok(plain[1] == again[1] && plain[1] != averaged[1] && plain[1] != set[1],
       "%s: each of the weights that it is meant to have", what);
    for (int k = 0; k < 2; k++) {
        rig_close(&eval[k]);
        rig_close(&train[k]);
    }
}

static void test_scaling(void)
{
    rig r;
    rig_config c = norms;
    told t = {.n = 0};
    c.scaled = true;
    c.dtype = KOLO_F16;
    if (!opened(&r, &c, gpu, NULL)) return;
    const kolo_scaler huge = {.scale = 3e38f};
    kolo_scaler s = {.scale = 0};
    int64_t n;
    kolo_exec_set_scaler(r.exec, &huge);
    float *before = rig_all(&r, "param", &n);
    is_int(train_steps(&r, 0, 3, &t), 0, "steps whose gradients overflow are no error");
    float *after = rig_all(&r, "param", &n);
    kolo_exec_get_scaler(r.exec, &s);
    ok(!memcmp(before, after, (size_t)n * sizeof *before), "their updates are left out");
    ok(t.n == 3 && t.m[2].skipped == 3 && s.skipped == 3 && s.scale == 3e38f / 8, "the scale falls: %g",
       (double)s.scale);
    free(before);
    free(after);
    rig_close(&r);
}

/* The status of up to eight steps and a drain. */
static int until_error(rig *r, int64_t first, int bad)
{
    kolo_metrics m;
    for (int i = 0; i < 8; i++) {
        kolo_batch b = rig_batch(r);
        kolo_step s = rig_step(first + i, .1);
        rig_fill(r, i * r->rows);
        if (i == 4) r->labels[7] = bad;
        KOLO_TRY(kolo_exec_step(r->exec, &b, &s, &m));
    }
    do KOLO_TRY(kolo_exec_drain(r->exec, &m));
    while (m.step >= 0);
    return 0;
}

static void test_errors(void)
{
    rig r;
    rig_config c = norms;
    if (!opened(&r, &c, gpu, NULL)) return;
    int rc = until_error(&r, 20, 99);
    ok(rc == KOLO_EINPUT && strstr(kolo_error_text(), "step 25: row 1 of micro-batch 1 has label 99"),
       "a label out of range: %s", kolo_error_text());
    rig_close(&r);
    if (!opened(&r, &c, gpu, NULL)) return;
    float bias[11] = {NAN};
    kolo_exec_set(r.exec, "param", kolo_graph_find(r.graph, "bn2.bias"), bias);
    rc = until_error(&r, 30, 0);
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "step 31: the loss is not a number"),
       "a loss that is none: %s", kolo_error_text());
    rig_close(&r);
    c.scaled = true;
    c.loss_scale = 128;
    const kolo_scaler huge = {.scale = 3e38f};
    c.dtype = KOLO_F16;
    if (!opened(&r, &c, gpu, NULL)) return;
    kolo_exec_set_scaler(r.exec, &huge);
    rc = until_error(&r, 40, 0);
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "step 41: the gradient norm is"),
       "an overflow at a fixed scale: %s", kolo_error_text());
    rig_close(&r);
}

static void test_profile(void)
{
    rig r;
    told t = {.n = 0};
    if (!opened(&r, &norms, gpu, NULL)) return;
    kolo_exec_profile *p = calloc((size_t)r.plan->actions, sizeof *p);
    is_int(kolo_exec_set_profile(r.exec, p), 0, "times are taken");
    is_int(train_steps(&r, 0, 5, &t), 0, "of five steps");
    int64_t calls = 0;
    double seconds = 0;
    for (int64_t i = 0; i < r.plan->actions; i++) {
        calls += p[i].calls;
        seconds += p[i].seconds;
    }
    ok(calls == 5 * r.plan->actions && seconds > 0, "every action of each: %lld, %.3g s", (long long)calls,
       seconds);
    free(p);
    rig_close(&r);
}

int main(void)
{
    cuda_rig();
    cpu = rig_backend(2, true);
    kolo_backend_config config = {.threads = 2, .deterministic = true};
    if (kolo_backend_create(&gpu, "cuda", &config) < 0) skip_all("no GPU: %s", kolo_error_text());
    rig_config half = norms, brain = norms, scaled = norms;
    half.dtype = scaled.dtype = KOLO_F16;
    brain.dtype = KOLO_BF16;
    scaled.scaled = true;
    compare_training(&norms, 1e-5, "f32");
    compare_training(&brain, .03, "bf16");
    compare_training(&half, .02, "f16");
    compare_training(&scaled, .02, "f16 with loss scaling");
    test_late();
    test_replay();
    forms_check(gpu, &norms); /* each recorded by itself */
    test_evaluation(&norms, 1e-5, "f32");
    test_evaluation(&half, .01, "f16");
    test_scaling();
    test_errors();
    test_profile();
    kolo_backend_destroy(&gpu);
    kolo_backend_destroy(&cpu);
    return done_testing();
}
