/* Loss scaling through plan and executor: what it leaves alone, what it skips, what is an error; metrics
 * and drain on the host. */
#include "exec_rig.h"

static kolo_backend *backend;
static const rig_config resnet = {.model = "resnet20", .rows = 8, .side = 16, .channels = 3};

static bool opened(rig *r, rig_config c)
{
    int rc = rig_open(r, &c, backend, NULL, NULL);
    if (rc < 0) ok(0, "%s: %s", c.model, kolo_error_text());
    return rc >= 0;
}

static int steps(rig *r, int first, int n, kolo_metrics *m)
{
    kolo_batch b = rig_batch(r);
    for (int t = first; t < first + n; t++) {
        kolo_step s = rig_step(t, .05);
        rig_fill(r, t * r->rows);
        KOLO_TRY(kolo_exec_step(r->exec, &b, &s, m));
    }
    return 0;
}

static float *trained(rig_config c, double *loss, int64_t *n)
{
    rig r;
    kolo_metrics m = {0};
    if (!opened(&r, c)) return NULL;
    if (steps(&r, 0, 6, &m) < 0) diag("%s", kolo_error_text());
    float *w = rig_all(&r, "param", n);
    *loss = m.loss;
    rig_close(&r);
    return w;
}

static void test_same_bits(void)
{
    rig_config c = resnet;
    int64_t n = 0;
    double loss[4];
    c.slots = 2;
    float *plain = trained(c, &loss[0], &n);
    c.scaled = true;
    c.loss_scale = 1024;
    float *scaled = trained(c, &loss[1], &n);
    ok(plain && scaled && loss[0] == loss[1] && !memcmp(plain, scaled, (size_t)n * sizeof *plain),
       "a loss scale of 1024 changes no bit of six steps");
    c.loss_scale = 0;
    float *dynamic = trained(c, &loss[2], &n);
    ok(dynamic && !memcmp(plain, dynamic, (size_t)n * sizeof *plain),
       "nor does the dynamic one, which starts at 65536");
    c.loss_scale = 1000;
    float *odd = trained(c, &loss[3], &n);
    ok(odd && memcmp(plain, odd, (size_t)n * sizeof *plain),
       "a scale that is no power of two does, so it is applied");
    free(plain);
    free(scaled);
    free(dynamic);
    free(odd);
}

static void test_clipped(void)
{
    rig_config c = resnet;
    int64_t n = 0;
    double loss[2];
    c.clip = true;
    float *plain = trained(c, &loss[0], &n);
    c.scaled = true;
    c.loss_scale = 4096;
    float *scaled = trained(c, &loss[1], &n);
    ok(plain && scaled && rig_apart(scaled, plain, n) < 1e-6,
       "with clip_norm the norm is the unscaled one's: apart by %.2g", rig_apart(scaled, plain, n));
    free(plain);
    free(scaled);
}

static void test_skip(void)
{
    rig r;
    rig_config c = resnet;
    kolo_metrics m;
    c.scaled = c.ema = true;
    if (!opened(&r, c)) return;
    int64_t n;
    is_int(steps(&r, 0, 2, &m), 0, "two steps");
    ok(m.loss_scale == 65536 && m.skipped == 0 && m.grad_norm > 0,
       "their metrics tell the scale and the norm");
    float *before = rig_all(&r, "param", &n), *momentum = rig_all(&r, "momentum", &n);
    const kolo_scaler huge = {.scale = 3e38f, .good = 7};
    kolo_scaler s;
    is_int(kolo_exec_set_scaler(r.exec, &huge), 0, "a scale at which gradients overflow");
    is_int(steps(&r, 2, 1, &m), 0, "is no error");
    float *after = rig_all(&r, "param", &n), *kept = rig_all(&r, "momentum", &n);
    ok(!memcmp(before, after, (size_t)n * sizeof *before) &&
           !memcmp(momentum, kept, (size_t)n * sizeof *before),
       "the update is left out");
    ok(isfinite(m.loss) && m.skipped == 1 && m.loss_scale == (double)1.5e38f,
       "and said so: skipped %lld, scale %g", (long long)m.skipped, m.loss_scale);
    is_int(steps(&r, 3, 1, &m), 0, "the next step");
    ok(m.skipped == 1 && m.loss_scale == (double)1.5e38f, "is sound at half the scale");
    is_int(kolo_exec_get_scaler(r.exec, &s), 0, "its state comes out");
    ok((double)s.scale == m.loss_scale && s.skipped == m.skipped && s.good == 1, "as the metrics have it");
    float *moved = rig_all(&r, "param", &n);
    ok(memcmp(moved, after, (size_t)n * sizeof *moved), "and training goes on");
    free(before);
    free(momentum);
    free(after);
    free(kept);
    free(moved);
    rig_close(&r);
}

static void test_errors(void)
{
    rig r;
    rig_config c = resnet;
    kolo_metrics m;
    const kolo_scaler huge = {.scale = 3e38f};
    c.scaled = true;
    c.loss_scale = 128;
    if (!opened(&r, c)) return;
    kolo_exec_set_scaler(r.exec, &huge);
    int rc = steps(&r, 41, 1, &m);
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "step 42") && strstr(kolo_error_text(), "loss_scale"),
       "an overflow under a fixed scale is one: %s", kolo_error_text());
    rig_close(&r);
    c.scaled = false;
    if (!opened(&r, c)) return;
    is_int(kolo_exec_set_scaler(r.exec, &huge), KOLO_EINTERNAL, "a plan without scaling takes no scale");
    rig_close(&r);
    c.clip = true;
    if (!opened(&r, c)) return;
    float bias[10] = {INFINITY};
    kolo_exec_set(r.exec, "param", kolo_graph_find(r.graph, "linear.bias"), bias);
    rc = steps(&r, 5, 1, &m);
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "step 6: the loss is"),
       "a loss that is not finite: %s", kolo_error_text());
    rig_close(&r);
}

static void test_told(void)
{
    rig r;
    kolo_metrics m = {.step = 77};
    if (!opened(&r, resnet)) return;
    is_int(kolo_exec_drain(r.exec, &m), 0, "an executor that did nothing can be drained");
    is_int(m.step, -1, "of nothing");
    steps(&r, 12, 1, &m);
    ok(m.step == 12 && m.rows == 8 && m.loss_scale == 1 && m.grad_norm == 0,
       "on the host metrics are those of the step itself");
    kolo_exec_drain(r.exec, &m);
    is_int(m.step, -1, "so nothing is left to drain");
    size_t bytes = r.plan->arena_bytes[KOLO_ARENA_PARAM];
    char *arena = malloc(bytes);
    float *all = malloc(bytes);
    is_int(kolo_exec_read_arena(r.exec, KOLO_ARENA_PARAM, arena), 0, "an arena comes out whole");
    int t = kolo_graph_find(r.graph, "linear.bias");
    kolo_exec_get(r.exec, "param", t, all);
    ok(!memcmp(arena + r.plan->fixed[t].offset, all, 10 * sizeof *all),
       "with its tensors where the plan has them");
    ok(kolo_exec_bytes(r.plan, NULL) == kolo_plan_bytes(r.plan), "it takes the bytes that are planned");
    free(arena);
    free(all);
    rig_close(&r);
}

int main(void)
{
    backend = rig_backend(2, false);
    test_same_bits();
    test_clipped();
    test_skip();
    test_errors();
    test_told();
    kolo_backend_destroy(&backend);
    return done_testing();
}
