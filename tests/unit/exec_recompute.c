/* Recomputation: whatever set of activations is dropped and made again in the backward half, weights, running
 * statistics, optimizer state and averages are those of the plain run, byte for byte. */
#include "exec_rig.h"

static kolo_backend *backend;

enum { STEPS = 2 };

/* All that lasts from step to step, behind one another; and the losses. */
typedef struct lasting {
    char *bytes;
    size_t size, activation;
    double loss[STEPS];
    int64_t again; /* operations a step that ran a second time */
} lasting;

static lasting train(rig_config c)
{
    static const enum kolo_arena arena[] = {KOLO_ARENA_PARAM, KOLO_ARENA_BUFFER, KOLO_ARENA_STATE,
                                            KOLO_ARENA_EMA};
    lasting l = {0};
    rig r;
    if (rig_open(&r, &c, backend, NULL, NULL) < 0) {
        ok(0, "%s: %s", c.model, kolo_error_text());
        return l;
    }
    kolo_batch b = rig_batch(&r);
    kolo_metrics m;
    for (int t = 0; t < STEPS; t++) {
        kolo_step s = rig_step(t, .01);
        rig_fill(&r, t * r.rows);
        if (kolo_exec_step(r.exec, &b, &s, &m) < 0) diag("%s", kolo_error_text());
        l.loss[t] = m.loss;
    }
    for (int a = 0; a < 4; a++) l.size += r.plan->arena_bytes[arena[a]];
    l.bytes = calloc(1, l.size + 1);
    for (size_t a = 0, at = 0; a < 4; at += r.plan->arena_bytes[arena[a++]])
        if (r.plan->arena_bytes[arena[a]]) kolo_exec_read_arena(r.exec, arena[a], l.bytes + at);
    for (int64_t i = 0; i < r.plan->actions; i++) l.again += r.plan->action[i].again;
    l.activation = r.plan->arena_bytes[KOLO_ARENA_ACTIVATION];
    rig_close(&r);
    return l;
}

/* The first `sets` sets of activations are dropped, one after the other. */
static void same(rig_config c, uint32_t sets, const char *what)
{
    static const int percent[] = {80, 100, 50};
    lasting plain = train(c);
    for (uint32_t i = 0; i < sets && plain.bytes; i++) {
        c.percent = percent[i];
        c.draw = i + 1;
        lasting l = train(c);
        ok(l.again > 0 && l.size == plain.size && !memcmp(l.bytes, plain.bytes, plain.size) &&
               !memcmp(l.loss, plain.loss, sizeof l.loss),
           "%s, %d %% dropped: the plain run's bytes; %lld operations again, activations %.2f of plain", what,
           c.percent, (long long)l.again, (double)l.activation / (double)plain.activation);
        free(l.bytes);
    }
    free(plain.bytes);
}

static void test_networks(void)
{
    static const struct {
        const char *model;
        int64_t side;
    } net[] = {{"resnet20", 16}, {"efficientnet_b0", 32}};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        rig_config c = {.model = net[i].model, .rows = 2, .side = net[i].side, .channels = 3};
        c.drop_path = .3;
        c.dropout = .4;
        c.ema = true;
        same(c, i == 0 ? 3 : 1, net[i].model);
    }
}

static void test_modes(void)
{
    rig_config c = {.model = "resnet20", .rows = 4, .side = 16, .channels = 3, .slots = 3};
    same(c, 3, "3 micro-batches");
    c.canonical = c.clip = c.ema = c.noise = true;
    same(c, 3, "3 in the tree, clipped, averaged, with the noise scale");
    c = (rig_config){.model = "resnet20", .rows = 4, .side = 16, .channels = 3, .dtype = KOLO_BF16};
    same(c, 1, "bf16");
}

int main(void)
{
    backend = rig_backend(1, true);
    test_networks();
    test_modes();
    kolo_backend_destroy(&backend);
    return done_testing();
}
