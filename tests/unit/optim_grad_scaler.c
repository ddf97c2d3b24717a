/* Gradient scaling and clipping: clipping in torch's form, loss scaling as torch.amp.GradScaler does
 * it, sums in a fixed order. */
#include <omp.h>

#include "golden_optim.h"
#include "optim/grad_scaler.h"
#include "optim/rules.h"
#include "ops/element.h"

static kolo_step scaled_step(float clip_norm, int dynamic, float scale, double sum)
{
    const kolo_grad_scaler_rule rule = {.clip_norm = clip_norm, .dynamic = dynamic};
    kolo_step step = {.scaler.scale = scale};
    kolo_grad_scaler(&rule, sum, &step);
    return step;
}

static void test_clip(void)
{
    kolo_step s = scaled_step(1, 0, 1, 16);
    is_near(s.norm, 4, 0, "the norm is the root of the sum");
    is_near((double)s.clip, (double)(float)(1 / 4.000001), 0,
            "a long gradient is cut to clip_norm, by torch's formula");
    is_near((double)scaled_step(1, 0, 1, .25).clip, 1, 0, "a short one is left alone");
    is_near((double)scaled_step(0, 0, 1, 1e30).clip, 1, 0, "so is every one without clip_norm");
    s = scaled_step(1, 0, 1024, 16.0 * 1024 * 1024);
    is_near(s.norm, 4, 0, "the norm is that of the unscaled gradients");
    is_near((double)s.clip, (double)(float)(1 / 4.000001) / 1024, 0,
            "and the factor takes the loss scale away");
    s = scaled_step(1, 0, 1, 0);
    ok(s.norm == 0 && s.clip == 1.0f && !s.skip, "no gradient at all is no fault");
}

static void test_overflow(void)
{
    const double bad[] = {INFINITY, NAN};
    for (int i = 0; i < 2; i++) {
        kolo_step s = scaled_step(1, 1, 65536, bad[i]);
        ok(s.skip && s.scaler.scale == 32768 && s.scaler.skipped == 1 && s.scaler.good == 0,
           "a sum that is %g: the update is left out and the scale halved", bad[i]);
        s = scaled_step(1, 0, 128, bad[i]);
        ok(s.skip && s.scaler.scale == 128 && s.scaler.skipped == 1,
           "a fixed scale stays, the update is left out too");
    }
    ok(scaled_step(0, 1, 1, INFINITY).scaler.scale == 1.0f, "a scale never falls below 1");
    kolo_step s = scaled_step(0, 1, 1024, 1e300);
    ok(!s.skip && s.scaler.scale == 1024 && s.scaler.good == 1, "a large norm that is finite is sound");
}

static void test_growth(void)
{
    const kolo_grad_scaler_rule rule = {.dynamic = 1};
    kolo_step step = {.scaler.scale = KOLO_SCALE_START};
    float before = 0;
    for (int t = 0; t < KOLO_SCALE_GROWTH_INTERVAL; t++) {
        before = step.scaler.scale;
        kolo_grad_scaler(&rule, 1, &step);
    }
    ok(before == 65536 && step.scaler.scale == 131072, "after 2000 good steps the scale doubles, not before");
    is_near((double)step.clip, 1 / 65536., 0,
            "the step that brings it about is unscaled by the scale that it had");
    for (int t = 0; t < KOLO_SCALE_GROWTH_INTERVAL - 1; t++) kolo_grad_scaler(&rule, 1, &step);
    kolo_grad_scaler(&rule, INFINITY, &step);
    ok(step.scaler.scale == 65536 && step.scaler.good == 0, "an overflow starts the count again");
    for (int t = 0; t < 40 * KOLO_SCALE_GROWTH_INTERVAL; t++) kolo_grad_scaler(&rule, 1, &step);
    is_near((double)step.scaler.scale, 16777216, 0, "the scale ends at 2^24");
}

static void test_square_sum(void)
{
    enum { N = 300007 };
    static float x[N];
    golden_fill("x", 1, 0, 1, x, N);
    double want = 0, sum[3];
    for (int i = 0; i < N; i++) want += (double)x[i] * (double)x[i];
    for (int threads = 1; threads <= 3; threads++) {
        omp_set_num_threads(threads);
        sum[threads - 1] = kolo_square_sum(x, N);
    }
    ok(sum[0] == sum[1] && sum[0] == sum[2] && fabs(sum[0] - want) < 1e-10 * want,
       "the sum of squares has the same bits for any threads, and is right");
    x[N - 1] = NAN;
    ok(isnan(kolo_square_sum(x, N)), "a NaN at the end is found");
    x[N - 1] = 0;
    x[0] = -INFINITY;
    ok(isinf(kolo_square_sum(x, N)), "an infinity at the start is found");
    float few[3] = {3, 4, 12};
    is_near(kolo_square_sum(few, 3), 169, 0, "three elements");
    is_near(kolo_square_sum(few, 0), 0, 0, "none");
}

/* Two slices of one parameter, with average and 16-bit copy, through the updater of the host's memory. */
static void test_updater(void)
{
    enum { N = 40 };
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    kolo_backend *backend = NULL;
    kolo_options o;
    kolo_options_default(&o);
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        ok(0, "backend: %s", kolo_error_text());
        return;
    }
    float w[N], g[N], m[N] = {0}, e[N], was[N];
    uint16_t half[N] = {0};
    golden_fill("w", 1, 0, 1, w, N);
    golden_fill("g", 1, 0, 1, g, N);
    memcpy(e, w, sizeof e);
    memcpy(was, w, sizeof was);
    kolo_slice slice[2];
    for (int i = 0; i < 2; i++)
        slice[i] = (kolo_slice){.param = w + i * 16,
                                .grad = g + i * 16,
                                .rate = 1,
                                .state = {m + i * 16},
                                .ema = e + i * 16,
                                .half = half + i * 16,
                                .half_type = KOLO_F16,
                                .count = i ? N - 16 : 16};
    float statistic[5] = {4, 8, 2, 6, 2}, mean[2] = {1, 1}, var[2] = {1, 1};
    kolo_running running = {.statistic = statistic, .running = {mean, var}, .channels = 2, .momentum = .5f};
    kolo_updater_config c = {.backend = backend,
                             .optimizer = kolo_optimizer_find("sgd"),
                             .options = &o,
                             .slice = slice,
                             .slices = 2,
                             .running = &running,
                             .runnings = 1,
                             .measured = (const kolo_measured[]){{g, 16, 1}, {g + 16, N - 16, 0}},
                             .measures = 2,
                             .dynamic_scale = true};
    kolo_updater *u = NULL;
    kolo_step step = {.lr = .5f, .ema_decay = .75f, .scaler.scale = 4};
    is_int(kolo_updater_create(&u, &c), 0, "an updater for host memory");
    memset(slice, 0, sizeof slice); /* it has its own copy */
    double sum[2];
    float large = g[3];
    g[3] = INFINITY;
    kolo_updater_measure(u, sum);
    kolo_updater_decide(u, sum, 2, &step);
    kolo_updater_update(u, 0, 2, KOLO_UPDATE, &step);
    ok(step.skip && step.scaler.scale == 2 && !memcmp(w, was, sizeof w) && !memcmp(e, was, sizeof e),
       "an infinite gradient changes no weight and no average");
    g[3] = large;
    kolo_updater_measure(u, sum);
    kolo_updater_decide(u, sum, 2, &step);
    kolo_updater_update(u, 1, 1, KOLO_UPDATE, &step);
    ok(!step.skip && !memcmp(w, was, 16 * sizeof *w) && w[16] != was[16], "one slice alone can be updated");
    kolo_updater_update(u, 0, 1, KOLO_UPDATE, &step);
    int wrong = 0, halves = 0;
    for (int i = 0; i < N; i++) {
        wrong += w[i] != was[i] - .5f * (g[i] * .5f); /* the scale is 2 */
        wrong += e[i] != kolo_rule_ema(was[i], w[i], .75f);
        halves += half[i] != kolo_to_f16(w[i]);
    }
    is_int(wrong, 0, "a sound step unscales, moves every weight, and the average follows");
    is_int(halves, 0, "and the 16-bit copy is rounded anew");
    kolo_updater_running(u, &step);
    ok(mean[0] == 1.5f && mean[1] == 2.5f && var[0] == 1 && var[1] == 2,
       "running statistics follow the means of two blocks");
    kolo_updater_destroy(&u);
    kolo_backend_destroy(&backend);
    kolo_options_free(&o);
}

int main(void)
{
    test_clip();
    test_overflow();
    test_growth();
    test_square_sum();
    test_updater();
    return done_testing();
}
