/* Optimizers and schedules against PyTorch's figures, and what no figure covers. */
#include <omp.h>

#include "golden_optim.h"
#include "optim/rules.h"

static void test_golden(void)
{
    static const char *const names[] = {"sgd",
                                        "sgd_decay",
                                        "sgd_momentum",
                                        "sgd_momentum_scaled",
                                        "sgd_nesterov",
                                        "sgd_dampening",
                                        "sgd_matrices",
                                        "clip_norm",
                                        "clip_norm_idle",
                                        "clip_value",
                                        "adam",
                                        "adam_decay",
                                        "adamw",
                                        "adamw_matrices",
                                        "rmsprop",
                                        "rmsprop_centered",
                                        "rmsprop_momentum",
                                        "rmsprop_tf",
                                        "lars",
                                        "lars_all",
                                        "lars_clip",
                                        "lars_nesterov",
                                        "lars_scaled",
                                        "lars_tf",
                                        "lamb",
                                        "lamb_all",
                                        "lamb_always",
                                        "lamb_plain",
                                        "lamb_trust_clip",
                                        "novograd",
                                        "novograd_averaging",
                                        "lookahead_adamw",
                                        "lookahead_first_sync",
                                        "lookahead_initial",
                                        "schedules"};
    char path[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, GOLDEN_FOLDER "/optim/%s.json", names[i]);
        cJSON *json = golden_read(path);
        if (!json) ok(0, "%s can be read", path);
        else if (!strcmp(names[i], "schedules")) golden_schedules(names[i], json);
        else golden_optim_case(names[i], json);
        cJSON_Delete(json);
    }
}

/* The figures of an independent f64 program for w = 1, -2, 0.5, 3 and three gradients, lr .1,
 * decay .01, momentum .9. */
static void test_figures(void)
{
    static const double g[3][4] = {{.1, -.2, .3, .4}, {.05, .1, -.15, .2}, {-.3, .25, .1, -.05}};
    static const struct {
        bool nesterov;
        double dampening, want[4];
    } kase[] = {
        {false, 0, {0.987837789, -1.978655578, 0.434496369, 2.841956357}},
        {true, 0, {1.001145863, -1.989919525, 0.414717035, 2.794118549}},
        {false, .1, {0.986072471, -1.974828742, 0.432782540, 2.846105655}},
    };
    for (int k = 0; k < 3; k++) {
        kolo_options o;
        kolo_options_default(&o);
        o.nesterov = kase[k].nesterov;
        o.dampening = kase[k].dampening;
        float w[4] = {1, -2, .5f, 3}, b[4] = {0}, d[4];
        for (int t = 0; t < 3; t++) {
            for (int i = 0; i < 4; i++) d[i] = (float)g[t][i];
            kolo_step step = {.step = t, .lr = .1f, .momentum = .9f, .weight_decay = .01f, .clip = 1};
            kolo_slice s = {.param = w, .grad = d, .rate = 1, .state = {b}, .count = 4, .decay = true};
            kolo_optimizer_find("sgd")->update(&s, &o, &step);
        }
        double worst = 0;
        for (int i = 0; i < 4; i++) worst = fmax(worst, fabs((double)w[i] - kase[k].want[i]));
        ok(worst < 5e-7, "three steps%s%s: worst %.2g", k == 1 ? " of Nesterov" : "",
           k == 2 ? " with dampening" : "", worst);
        kolo_options_free(&o);
    }
}

enum { N = 100003 };
static float w[2][N], g[N], b[2][N], e[2][N];

static void update_all(int which, int threads, int64_t cut)
{
    kolo_options o;
    kolo_options_default(&o);
    o.clip_value = .2;
    omp_set_num_threads(threads);
    golden_fill("w", 1, 0, 1, w[which], N);
    golden_fill("g", 1, 0, 1, g, N);
    memset(b[which], 0, sizeof b[which]);
    memcpy(e[which], w[which], sizeof e[which]);
    for (int t = 0; t < 3; t++)
        for (int64_t at = 0; at < N; at += cut) {
            kolo_step step = {
                .step = t, .lr = .1f, .momentum = .9f, .weight_decay = .01f, .clip = .7f, .ema_decay = .99f};
            kolo_slice s = {.param = w[which] + at,
                            .grad = g + at,
                            .rate = 1,
                            .state = {b[which] + at},
                            .ema = e[which] + at,
                            .count = at + cut < N ? cut : N - at,
                            .decay = true};
            kolo_optimizer_find("sgd")->update(&s, &o, &step);
        }
    kolo_options_free(&o);
}

static void test_bits(void)
{
    update_all(0, 1, N);
    for (int threads = 2; threads <= 4; threads++) {
        update_all(1, threads, N);
        ok(!memcmp(w[0], w[1], sizeof w[0]) && !memcmp(b[0], b[1], sizeof b[0]) &&
               !memcmp(e[0], e[1], sizeof e[0]),
           "%d threads give the bits of one", threads);
    }
    update_all(1, 2, 7777);
    ok(!memcmp(w[0], w[1], sizeof w[0]) && !memcmp(e[0], e[1], sizeof e[0]),
       "other slices give the same bits");
    int same = 1;
    kolo_rule_sgd rule = {.rate = .1f, .decay = .01f, .keep = 0, .take = 1};
    golden_fill("w", 1, 0, 1, w[1], N);
    for (int i = 0; i < N; i++) {
        float buffer = 0, x = w[1][i];
        for (int t = 0; t < 3; t++) {
            rule.keep = t ? .9f : 0;
            x = kolo_rule_sgd_momentum(&rule, x, kolo_rule_clip(g[i], .7f, .2f), &buffer);
        }
        same &= x == w[0][i];
    }
    ok(same, "the wide loop gives the bits of the rule applied to each element");
    float zero[16] = {0}, none[16] = {0};
    kolo_options o;
    kolo_options_default(&o);
    kolo_step step = {.lr = .1f, .momentum = .9f, .weight_decay = .01f, .clip = 1};
    kolo_slice s = {.param = zero, .grad = none, .rate = 1, .state = {none}, .count = 16, .decay = true};
    kolo_optimizer_find("sgd")->update(&s, &o, &step);
    same = 1;
    for (int i = 0; i < 16; i++) same &= zero[i] == 0;
    ok(same, "padding stays zero");
    kolo_options_free(&o);
}

static void test_scalars(void)
{
    kolo_options o;
    kolo_options_default(&o);
    o.ema = .9998;
    o.ema_ramp = 2000;
    is_near(kolo_ema_decay(&o, 1, 1, 1), .9998 * (1 - exp(-1 / 2000.)), 1e-15,
            "the average's decay rises from the first update");
    o.ema_ramp = 0;
    is_near(kolo_ema_decay(&o, 1, 1, 1), .9998, 0, "or is there at once");
    o.warmup = 2;
    o.lr = 1;
    is_near(kolo_learning_rate(&o, 5, 100, 10), .25, 1e-15,
            "warm-up is counted in epochs where there are epochs");
    is_near(kolo_learning_rate(&o, 60, 100, 10), .5, 1e-15, "and cosine's horizon begins after it");
    is_near(kolo_learning_rate(&o, 100, 100, 10), 0, 1e-15, "the rate ends at lr_end");
    o.cooldown = 2;
    is_near(kolo_learning_rate(&o, 80, 100, 10), 0, 1e-15, "and with cooldown= it does so that much earlier");
    o.cooldown = o.warmup = 0;
    o.cycle = 1;
    o.cycle_factor = 2;
    kolo_option_set(&o, "schedule", "restarts", "test");
    is_near(kolo_learning_rate(&o, 5, 100, 10), .5, 1e-15, "restarts: half way through the first cosine");
    is_near(kolo_learning_rate(&o, 10, 100, 10), 1, 1e-15, "the second begins at lr again");
    is_near(kolo_learning_rate(&o, 20, 100, 10), .5, 1e-15, "and is twice as long");
    is_near(kolo_rate_scale(&o, 2048), 1, 0, "lr is for any batch");
    kolo_option_set(&o, "lr_scaling", "linear", "test");
    is_near(kolo_rate_scale(&o, 2048), 8, 0, "or for lr_batch: linear scaling");
    kolo_option_set(&o, "lr_scaling", "sqrt", "test");
    o.lr_batch = 128;
    is_near(kolo_rate_scale(&o, 2048), 4, 0, "square-root scaling");
    kolo_options_free(&o);
}

/* The average that the decays of swa= make of 1, 2, 3, ... is the mean of those at the ends of epochs. */
static void test_swa(void)
{
    kolo_options o;
    kolo_options_default(&o);
    o.swa = 2;
    double mean = 0;
    for (int64_t t = 1; t <= 50; t++) {
        double d = kolo_ema_decay(&o, t, t, 10);
        mean = d * mean + (1 - d) * (double)t;
        if (t == 15) is_near(mean, 15, 1e-12, "before swa= the average follows the weights");
    }
    is_near(mean, (20 + 30 + 40 + 50) / 4., 1e-12, "then it is the mean of the weights after each epoch");
    kolo_options_free(&o);
}

/* Half the rate for a slice is half the rate. */
static void test_rates(void)
{
    kolo_options o;
    kolo_options_default(&o);
    int wrong = 0;
    for (int k = 0; k < kolo_optimizer_count; k++) {
        const kolo_optimizer *optimizer = &kolo_optimizer_table[k];
        float weight[2][16], grad[16], state[2][4][16] = {{{0}}};
        kolo_layer layer[2] = {{{0}, 0, 0}};
        for (int i = 0; i < 16; i++) weight[0][i] = weight[1][i] = (float)(i - 7) / 5;
        for (int t = 0; t < 3; t++)
            for (int s = 0; s < 2; s++) {
                for (int i = 0; i < 16; i++) grad[i] = (float)((i * 7 + t) % 11 - 5) / 9;
                kolo_step step = {.step = t,
                                  .lr = s ? .02f : .01f,
                                  .momentum = .9f,
                                  .weight_decay = .01f,
                                  .clip = 1,
                                  .scaler.scale = 1};
                kolo_slice slice = {.param = weight[s],
                                    .grad = grad,
                                    .rate = s ? .5f : 1,
                                    .layer = &layer[s],
                                    .count = 16,
                                    .decay = true};
                for (int i = 0; i < 4; i++) slice.state[i] = state[s][i];
                if (optimizer->measure) {
                    const kolo_rule_layer rule = kolo_layer_rule(optimizer, &o);
                    optimizer->measure(&slice, &o, &step, layer[s].sum);
                    kolo_layer_decide(&rule, .01f, kolo_slice_rate(&slice, &step), &layer[s]);
                }
                optimizer->update(&slice, &o, &step);
            }
        wrong += memcmp(weight[0], weight[1], sizeof weight[0]) != 0 || weight[0][0] == -1.4f;
    }
    is_int(wrong, 0, "the rate of a slice is a factor on the learning rate, for every optimizer");
    kolo_options_free(&o);
}

/* With fp16 the first steps are often skipped; torch's buffer begins with the first gradient
 * that counts, undamped. */
static void test_skipped_first(void)
{
    kolo_options o;
    kolo_options_default(&o);
    o.dampening = .5;
    float weight = 1, d = .25f, kept = 0;
    const kolo_step step = {
        .step = 2, .lr = 1, .momentum = .9f, .clip = 1, .scaler = {.scale = 1, .skipped = 2}};
    kolo_slice s = {.param = &weight, .grad = &d, .rate = 1, .state = {&kept}, .count = 1};
    kolo_optimizer_find("sgd")->update(&s, &o, &step);
    ok(kept == .25f && weight == .75f, "the first update after skipped steps begins the momentum: %g",
       (double)kept);
    kolo_options_free(&o);
}

static void test_refusals(void)
{
    kolo_options o;
    kolo_options_default(&o);
    is_int(kolo_optim_check(&o), 0, "the defaults are fine");
    kolo_option_set(&o, "optimizer", "sdg", "test");
    ok(kolo_optim_check(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "\"sgd\""),
       "a misspelt optimizer: %s", kolo_error_text());
    kolo_option_set(&o, "optimizer", "adamw", "test");
    o.trust = .02;
    ok(kolo_optim_check(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "trust=0.02 is for optimizer=lars"),
       "an option of another optimizer: %s", kolo_error_text());
    o.trust = .001;
    o.beta2 = .95;
    is_int(kolo_optim_check(&o), 0, "one of its own is fine");
    o.beta2 = -1;
    kolo_option_set(&o, "optimizer", "sgd", "test");
    kolo_option_set(&o, "schedule", "cosin", "test");
    ok(kolo_optim_check(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "\"cosine\""),
       "a misspelt schedule: %s", kolo_error_text());
    kolo_option_set(&o, "schedule", "multistep", "test");
    kolo_option_set(&o, "milestones", "30,x", "test");
    ok(kolo_optim_check(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "30,x"),
       "milestones that are no numbers: %s", kolo_error_text());
    kolo_option_set(&o, "milestones", "30,20", "test");
    is_int(kolo_optim_check(&o), KOLO_ECONFIG, "milestones that fall");
    kolo_option_set(&o, "milestones", "30", "test");
    o.nesterov = true;
    o.momentum = 0;
    ok(kolo_optim_check(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "nesterov"),
       "Nesterov without momentum");
    o.momentum = 0.9;
    kolo_option_set(&o, "optimizer", "adam", "test");
    ok(kolo_optim_check(&o) == KOLO_ECONFIG &&
           strstr(kolo_error_text(), "nesterov=true is for optimizer=sgd lars, not adam"),
       "%s", kolo_error_text());
    o.nesterov = false;
    is_int(kolo_optim_check(&o), 0, "Adam without it");
    o.beta2 = 1;
    ok(kolo_optim_check(&o) == KOLO_ECONFIG && strstr(kolo_error_text(), "below 1"), "%s", kolo_error_text());
    kolo_options_free(&o);
}

int main(void)
{
    test_golden();
    test_figures();
    test_bits();
    test_scalars();
    test_swa();
    test_rates();
    test_skipped_first();
    test_refusals();
    return done_testing();
}
