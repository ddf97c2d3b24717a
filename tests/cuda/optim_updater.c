/* Updates on CUDA beside those on the CPU: the same bits in weights, state, average, 16-bit copy and running
 * statistics, whatever the options; what no slice covers stays as it is; a step that is skipped changes
 * nothing; the norm and what follows from it. */
#include <math.h>
#include <string.h>

#include "cuda_rig.h"
#include "kolo/error.h"
#include "ops/element.h"
#include "optim/optim.h"

enum { CPU, GPU, SIDES };
static kolo_backend *backend[SIDES];

static void check(int rc, const char *what)
{
    if (rc >= 0) return;
    printf("Bail out! %s: %s\n", what, kolo_error_text());
    exit(1);
}

static uint64_t seed = 1;
static float chance(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ((float)(seed >> 40) * 0x1p-24f - 0.5f) * (seed & 16 ? 2.0f : 0.003f);
}

/* ---- the arenas of both sides ---- */

enum arena { PARAM, GRAD, EMA, HALF, STATISTIC, RUNNING, STATE, STATE1, STATE2, SLOW, LAYER, ARENAS };
enum { COUNT = 90000, BYTES = COUNT * 4 };
/* tensors from the beginning of GRAD whose norms are measured, in leaves; the last one's leaves first */
static const int64_t measured_counts[] = {0, 1, 3, 16, 1000, 1024, 1025, 4096, 4097, 70001, COUNT};
enum { MEASURES = sizeof measured_counts / sizeof *measured_counts, LEAVES = 100 };
static int64_t first_leaf(int tensor)
{
    int64_t leaf = 0;
    for (int i = MEASURES - 1; i > tensor; i--) leaf += kolo_leaves(measured_counts[i]);
    return leaf;
}
static const int64_t slices[][2] = {{0, 16},        {16, 48},    {64, 4096},   {4160, 8208},
                                    {12800, 65536}, {80000, 10}, {80016, 4097}};
enum { SLICES = sizeof slices / sizeof *slices };
static const int64_t channels[] = {1, 64, 256, 300};
enum { RUNNINGS = 4, SPACE = 1024 /* elements apart */ };

static float rate_of(int slice) { return slice == 2 ? 0.64f : 1; } /* a layer whose learning rate is lower */

typedef struct world {
    void *arena[SIDES][ARENAS];
    kolo_step *step[SIDES];
    kolo_updater *updater[SIDES];
    kolo_options options;
    const char *optimizer; /* NULL: sgd */
    bool ema;
    enum kolo_dtype half; /* F32: none */
} world;

/* The same numbers on both sides. */
static void fill(world *w, enum arena a, float base)
{
    float *v = malloc(BYTES);
    for (int i = 0; i < COUNT; i++) v[i] = base + chance();
    if (a == STATISTIC) /* weights */
        for (int i = 0; i < RUNNINGS; i++) v[i * SPACE + 2 * channels[i]] = i == 2 ? 0 : (float)i + 1;
    for (int s = 0; s < SIDES; s++) check(kolo_backend_write(backend[s], w->arena[s][a], v, BYTES), "write");
    free(v);
}

static void open_side(world *w, int s)
{
    kolo_layer *layer = w->arena[s][LAYER];
    kolo_segment segment[SLICES];
    kolo_leaf_run leaf[SLICES];
    int64_t leaves_before = 0;
    for (int i = 0; i < SLICES; i++) {
        segment[i] = (kolo_segment){.count = slices[i][1], .decay = i % 2, .rate = rate_of(i)};
        leaf[i] = (kolo_leaf_run){leaves_before, kolo_leaves(slices[i][1])};
        leaves_before += leaf[i].count;
    }
    kolo_slice slice[SLICES];
    kolo_running running[RUNNINGS];
    for (int i = 0; i < SLICES; i++) {
        float *base[ARENAS];
        for (int a = 0; a < ARENAS; a++) base[a] = (float *)w->arena[s][a] + slices[i][0];
        slice[i] = (kolo_slice){.param = base[PARAM],
                                .grad = base[GRAD],
                                .rate = rate_of(i),
                                .state = {base[STATE], base[STATE1], base[STATE2]},
                                .ema = w->ema ? base[EMA] : NULL,
                                .slow = w->options.lookahead ? base[SLOW] : NULL,
                                .layer = layer + i,
                                .leaf = leaf[i].first,
                                .count = slices[i][1],
                                .decay = i % 2};
        if (w->half != KOLO_F32)
            slice[i].half = (uint16_t *)w->arena[s][HALF] + slices[i][0], slice[i].half_type = w->half;
    }
    for (int i = 0; i < RUNNINGS; i++) {
        float *r = (float *)w->arena[s][RUNNING] + 4 * i * SPACE;
        running[i] = (kolo_running){.statistic = (float *)w->arena[s][STATISTIC] + i * SPACE,
                                    .running = {r, r + SPACE},
                                    .channels = channels[i],
                                    .momentum = 0.1f};
        if (w->ema) running[i].ema[0] = r + 2 * SPACE, running[i].ema[1] = r + 3 * SPACE;
    }
    kolo_measured measured[LEAVES];
    int64_t leaves = 0;
    for (int i = 0; i < MEASURES; i++)
        for (int64_t at = 0; at < measured_counts[i]; at += KOLO_LEAF, leaves++)
            measured[leaves] =
                (kolo_measured){(float *)w->arena[s][GRAD] + at,
                                measured_counts[i] - at < KOLO_LEAF ? measured_counts[i] - at : KOLO_LEAF,
                                first_leaf(i) + at / KOLO_LEAF};
    const kolo_updater_config config = {.backend = backend[s],
                                        .optimizer = kolo_optimizer_find(w->optimizer ? w->optimizer : "sgd"),
                                        .options = &w->options,
                                        .slice = slice,
                                        .slices = SLICES,
                                        .running = running,
                                        .runnings = RUNNINGS,
                                        .layer = layer,
                                        .segment = segment,
                                        .leaf = leaf,
                                        .layers = SLICES,
                                        .measured = measured,
                                        .measures = leaves,
                                        .dynamic_scale = true};
    check(kolo_updater_create(&w->updater[s], &config), "updater");
}

static void open_world(world *w)
{
    for (int s = 0; s < SIDES; s++) {
        for (int a = 0; a < ARENAS; a++)
            if (!(w->arena[s][a] = kolo_backend_alloc(backend[s], BYTES))) check(KOLO_ECONFIG, "memory");
        if (!(w->step[s] = kolo_backend_alloc(backend[s], sizeof(kolo_step)))) check(KOLO_ECONFIG, "memory");
        open_side(w, s);
    }
    for (int a = 0; a < STATE; a++) fill(w, a, a == PARAM || a == RUNNING ? 1 : 0);
    void *zero = calloc(1, BYTES);
    for (int s = 0; s < SIDES; s++)
        for (int a = STATE; a < ARENAS; a++)
            check(kolo_backend_write(backend[s], w->arena[s][a], zero, BYTES), "write");
    free(zero);
}

static void close_world(world *w)
{
    for (int s = 0; s < SIDES; s++) {
        kolo_updater_destroy(&w->updater[s]);
        for (int a = 0; a < ARENAS; a++) kolo_backend_free(backend[s], &w->arena[s][a], BYTES);
        kolo_backend_free(backend[s], (void **)&w->step[s], sizeof(kolo_step));
    }
}

static void set_step(world *w, const kolo_step *step)
{
    for (int s = 0; s < SIDES; s++)
        check(kolo_backend_write(backend[s], w->step[s], step, sizeof *step), "step");
}

/* Arenas that differ between the sides. */
static int differing(const world *w)
{
    int n = 0;
    void *bytes[SIDES] = {malloc(BYTES), malloc(BYTES)};
    for (int a = 0; a < ARENAS; a++) {
        for (int s = 0; s < SIDES; s++)
            check(kolo_backend_read(backend[s], bytes[s], w->arena[s][a], BYTES), "read");
        if (!memcmp(bytes[CPU], bytes[GPU], BYTES)) continue;
        n++;
        for (int i = 0; i < COUNT; i++)
            if (((uint32_t *)bytes[CPU])[i] != ((uint32_t *)bytes[GPU])[i]) {
                diag("arena %d, element %d: %08x, wanted %08x", a, i, ((uint32_t *)bytes[GPU])[i],
                     ((uint32_t *)bytes[CPU])[i]);
                break;
            }
    }
    free(bytes[CPU]);
    free(bytes[GPU]);
    return n;
}

static void update_both(world *w, int first, int count, enum kolo_update how)
{
    for (int s = 0; s < SIDES; s++) {
        check(kolo_updater_update(w->updater[s], first, count, how, w->step[s]), "update");
        check(kolo_backend_finish(backend[s]), "update");
    }
}

/* ---- tests ---- */

typedef struct kase {
    const char *name;
    float momentum, decay;
    double dampening, clip_value;
    bool nesterov, ema;
    enum kolo_dtype half;
} kase;

static void test_update(const kase *k)
{
    world w = {.ema = k->ema, .half = k->half};
    kolo_options_default(&w.options);
    w.options.dampening = k->dampening;
    w.options.nesterov = k->nesterov;
    w.options.clip_value = k->clip_value;
    open_world(&w);
    int wrong = 0;
    for (int t = 0; t < 3; t++) {
        const kolo_step step = {.step = t,
                                .lr = 0.1f / (float)(t + 1),
                                .momentum = k->momentum,
                                .weight_decay = k->decay,
                                .ema_decay = 0.9f + 0.03f * (float)t,
                                .clip = t == 1 ? 0.37f : 1};
        fill(&w, GRAD, 0);
        set_step(&w, &step);
        update_both(&w, 0, t == 2 ? 3 : SLICES, KOLO_UPDATE); /* some, then the others but one */
        if (t == 2) update_both(&w, 4, SLICES - 4, KOLO_UPDATE);
        wrong += differing(&w);
    }
    is_int(wrong, 0, "three steps of SGD %s: the CPU's bits", k->name);
    close_world(&w);
    kolo_options_free(&w.options);
}

/* Largest difference of weights, states and averages, relative to the largest number there. */
static double apart(const world *w)
{
    double worst = 0;
    float *v[SIDES] = {malloc(BYTES), malloc(BYTES)};
    for (int a = 0; a < LAYER; a++) {
        double most = 0, off = 0;
        if (a == HALF) continue;
        for (int s = 0; s < SIDES; s++)
            check(kolo_backend_read(backend[s], v[s], w->arena[s][a], BYTES), "read");
        for (int i = 0; i < COUNT; i++) {
            most = fmax(most, fabs((double)v[CPU][i]));
            double d = fabs((double)v[CPU][i] - (double)v[GPU][i]);
            off = d <= off ? off : d; /* a NaN stays */
        }
        worst = fmax(worst, most > 0 ? off / most : off);
    }
    free(v[CPU]);
    free(v[GPU]);
    return worst;
}

static void layers(world *w, int s)
{
    double *sum = kolo_backend_alloc(backend[s], 2 * LEAVES * sizeof *sum);
    check(sum ? kolo_updater_layers_measure(w->updater[s], w->step[s], sum) : KOLO_ENOMEM, "layers");
    check(kolo_updater_layers_decide(w->updater[s], w->step[s], sum), "layers");
    check(kolo_backend_finish(backend[s]), "layers");
    kolo_backend_free(backend[s], (void **)&sum, 2 * LEAVES * sizeof *sum);
}

/* Six steps, one of them skipped, one in delta form; of the others the bits where no norm of a tensor is in
 * between, whose sum may be rounded another way. */
static void test_rule(const char *optimizer, int64_t lookahead)
{
    world w = {.optimizer = optimizer, .ema = true, .half = KOLO_BF16};
    kolo_options_default(&w.options);
    kolo_option_set(&w.options, "optimizer", optimizer, "test");
    w.options.lookahead = lookahead;
    w.options.clip_value = 0.4;
    open_world(&w);
    int wrong = 0;
    double worst = 0;
    bool layerwise = kolo_is_layerwise(kolo_optimizer_find(optimizer));
    for (int t = 0; t < 6; t++) {
        const kolo_step step = {.step = t,
                                .lr = 0.01f / (float)(t + 1),
                                .momentum = (float)kolo_momentum(&w.options, t, 6),
                                .weight_decay = 0.05f,
                                .ema_decay = 0.9f,
                                .clip = t == 1 ? 0.37f : 1,
                                .skip = t == 3,
                                .scaler.skipped = t >= 3};
        fill(&w, GRAD, 0);
        set_step(&w, &step);
        for (int s = 0; layerwise && s < SIDES; s++) layers(&w, s);
        update_both(&w, 0, SLICES, t == 4 ? KOLO_UPDATE_DELTA : KOLO_UPDATE); /* one in two halves */
        if (t == 4) update_both(&w, 0, SLICES, KOLO_UPDATE_APPLY);
        if (!layerwise) wrong += differing(&w);
        worst = fmax(worst, apart(&w));
    }
    ok(wrong == 0 && worst < 1e-6, "six steps of %s%s: %s", optimizer, lookahead ? " with Lookahead" : "",
       layerwise ? "the CPU's values" : "the CPU's bits");
    if (wrong || !(worst < 1e-6)) diag("worst %.3g", worst);
    close_world(&w);
    kolo_options_free(&w.options);
}

static void test_skip(void)
{
    world w = {.ema = true, .half = KOLO_BF16};
    kolo_options_default(&w.options);
    open_world(&w);
    void *before = malloc(BYTES), *after = malloc(BYTES);
    const kolo_step step = {.lr = 1, .momentum = 0.9f, .ema_decay = 0.9f, .clip = 1, .skip = 1};
    set_step(&w, &step);
    int changed = 0;
    for (int a = 0; a < ARENAS; a++) {
        check(kolo_backend_read(backend[GPU], before, w.arena[GPU][a], BYTES), "read");
        update_both(&w, 0, SLICES, KOLO_UPDATE);
        check(kolo_backend_read(backend[GPU], after, w.arena[GPU][a], BYTES), "read");
        changed += memcmp(before, after, BYTES) != 0;
    }
    is_int(changed, 0, "a step that is skipped changes nothing");
    free(before);
    free(after);
    close_world(&w);
    kolo_options_free(&w.options);
}

static void test_running(bool ema)
{
    world w = {.ema = ema};
    kolo_options_default(&w.options);
    open_world(&w);
    int wrong = 0;
    for (int t = 0; t < 2; t++) {
        const kolo_step step = {.ema_decay = 0.9f, .skip = t};
        set_step(&w, &step);
        for (int s = 0; s < SIDES; s++) {
            check(kolo_updater_running(w.updater[s], w.step[s]), "running");
            check(kolo_backend_finish(backend[s]), "running");
        }
        wrong += differing(&w);
    }
    is_int(wrong, 0, "running statistics%s, one without a valid row: the CPU's bits",
           ema ? " and their averages" : "");
    close_world(&w);
    kolo_options_free(&w.options);
}

/* spoilt: an element that is infinite or NaN; -1: none */
static int norm_differs(world *w, int which, int64_t spoilt, float by)
{
    const int64_t count = measured_counts[which];
    const int64_t at = first_leaf(which);
    float *v = malloc(BYTES);
    for (int i = 0; i < COUNT; i++) v[i] = chance() * 100;
    if (spoilt >= 0) v[spoilt] = by;
    kolo_step got[SIDES], step = {.step = 7, .scaler = {.scale = 1024, .good = 1999, .skipped = 3}};
    set_step(w, &step);
    for (int s = 0; s < SIDES; s++) {
        check(kolo_backend_write(backend[s], w->arena[s][GRAD], v, BYTES), "write");
        double *sum = kolo_backend_alloc(backend[s], LEAVES * sizeof *sum);
        check(sum ? kolo_updater_measure(w->updater[s], sum) : KOLO_ENOMEM, "measure");
        check(kolo_updater_decide(w->updater[s], sum + at, kolo_leaves(count), w->step[s]), "decide");
        check(kolo_updater_square(w->updater[s], w->arena[s][GRAD], count, false, w->step[s]), "square");
        check(kolo_updater_square(w->updater[s], w->arena[s][GRAD], count / 2, true, w->step[s]), "square");
        check(kolo_backend_finish(backend[s]), "norm");
        kolo_backend_free(backend[s], (void **)&sum, LEAVES * sizeof *sum);
        check(kolo_backend_read(backend[s], &got[s], w->step[s], sizeof(kolo_step)), "read");
    }
    free(v);
    const kolo_step *c = &got[CPU], *g = &got[GPU];
    bool squares =
        isfinite(c->square) ? fabs(c->square - g->square) <= 1e-12 * c->square : !isfinite(g->square);
    bool norm = isfinite(c->norm) ? fabs(c->norm - g->norm) <= 1e-12 * c->norm : !isfinite(g->norm);
    bool same = norm && squares && fabs((double)c->clip - (double)g->clip) <= 2e-7 * fabs((double)c->clip) &&
                c->skip == g->skip && g->step == 7 && !memcmp(&c->scaler, &g->scaler, sizeof c->scaler);
    if (!same)
        diag("%ld elements: norm %.17g, wanted %.17g; clip %.9g, wanted %.9g; skip %d, wanted %d",
             (long)count, g->norm, c->norm, (double)g->clip, (double)c->clip, g->skip, c->skip);
    return !same + (c->skip != (spoilt >= 0 && spoilt < count)); /* the case is what it should be */
}

static void test_norm(double clip_norm)
{
    world w = {0};
    kolo_options_default(&w.options);
    w.options.clip_norm = clip_norm;
    open_world(&w);
    int wrong = 0;
    for (int i = 0; i < MEASURES; i++) wrong += norm_differs(&w, i, -1, 0);
    wrong += norm_differs(&w, MEASURES - 1, COUNT - 1, INFINITY) + norm_differs(&w, 6, 1024, NAN) +
             norm_differs(&w, 5, 1024, NAN);
    is_int(wrong, 0, "the norm, clip_norm=%g, and the loss scale", clip_norm);
    close_world(&w);
    kolo_options_free(&w.options);
}

static int make_with(const kolo_optimizer *optimizer)
{
    kolo_options options;
    kolo_options_default(&options);
    const kolo_updater_config config = {.backend = backend[GPU], .optimizer = optimizer, .options = &options};
    kolo_updater *u = NULL;
    int rc = kolo_updater_create(&u, &config);
    kolo_updater_destroy(&u);
    kolo_options_free(&options);
    return rc;
}

static void test_optimizers(void)
{
    for (int i = 0; i < kolo_optimizer_count; i++)
        is_int(make_with(&kolo_optimizer_table[i]), 0, "%s has a kernel", kolo_optimizer_table[i].name);
    kolo_optimizer odd = *kolo_optimizer_find("sgd");
    odd.name = "fresh";
    int rc = make_with(&odd);
    ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), "optimizer=fresh"),
       "an optimizer without a kernel is refused: %s", kolo_error_text());
}

int main(void)
{
    static const kase kases[] = {
        {.name = "without momentum", .decay = 0.01f},
        {.name = "without momentum, averaged, with a copy", .decay = 0.01f, .ema = true, .half = KOLO_F16},
        {.name = "with momentum", .momentum = 0.9f, .decay = 0.01f},
        {.name = "with momentum, averaged", .momentum = 0.9f, .decay = 0.01f, .ema = true},
        {.name = "with a bf16 copy", .momentum = 0.9f, .decay = 0.01f, .half = KOLO_BF16},
        {.name = "with an f16 copy, averaged",
         .momentum = 0.9f,
         .decay = 0.01f,
         .ema = true,
         .half = KOLO_F16},
        {.name = "with dampening and clip_value", .momentum = 0.8f, .dampening = 0.2, .clip_value = 0.3},
        {.name = "of Nesterov's kind",
         .momentum = 0.9f,
         .decay = 0.1f,
         .nesterov = true,
         .ema = true,
         .half = KOLO_BF16},
    };
    cuda_rig();
    kolo_backend_config config = {.threads = 1, .deterministic = true};
    check(kolo_backend_create(&backend[CPU], "cpu", &config), "cpu");
    check(kolo_backend_create(&backend[GPU], "cuda", &config), "cuda");
    for (size_t i = 0; i < sizeof kases / sizeof *kases; i++) test_update(&kases[i]);
    for (int i = 0; i < kolo_optimizer_count; i++) test_rule(kolo_optimizer_table[i].name, i % 2 ? 2 : 0);
    test_skip();
    test_running(false);
    test_running(true);
    test_norm(0);
    test_norm(5);
    test_optimizers();
    kolo_backend_destroy(&backend[GPU]);
    kolo_backend_destroy(&backend[CPU]);
    return done_testing();
}
