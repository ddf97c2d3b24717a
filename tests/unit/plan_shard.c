/* Plans with shards: they pass the checker for every network, number of ranks and micro-batches, take the
 * bytes that ZeRO's formulas give (reference: arXiv 1910.02054, table 1, for f32), and one broken action is
 * named. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/error.h"
#include "models/models.h"
#include "plan/play.h"
#include "plan/shard.h"
#include "tap.h"

static kolo_backend *backend;
static const char *const level_name[] = {"none", "optimizer", "gradients", "parameters"};

static kolo_graph *graph_of(const char *model, int64_t side, int64_t channels)
{
    kolo_model_config c = {.rows = 2,
                           .height = side,
                           .width = side,
                           .channels = channels,
                           .classes = 10,
                           .train = true,
                           .mean = {.5f, .5f, .5f},
                           .std = {.25f, .25f, .25f}};
    kolo_graph *g = NULL;
    if (kolo_model_graph(&g, model, &c) < 0) diag("%s: %s", model, kolo_error_text());
    return g;
}

static kolo_plan_config config_of(int shard, int ranks, int slots, const char *optimizer)
{
    return (kolo_plan_config){.ranks = ranks,
                              .slots = slots,
                              .bn = KOLO_bn_local,
                              .bucket_bytes = 1 << 18,
                              .optimizer = kolo_optimizer_find(optimizer),
                              .shard = shard,
                              .shards = ranks,
                              .reshard = true};
}

static kolo_plan *plan_of(const kolo_graph *g, const kolo_plan_config *c)
{
    kolo_plan *p = NULL;
    if (kolo_plan_create(&p, g, backend, c, NULL) < 0) diag("%s", kolo_error_text());
    return p;
}

static void test_networks(void)
{
    static const struct {
        const char *name;
        int64_t side, channels;
    } net[] = {{"lenet5", 28, 1}, {"resnet20", 16, 3}, {"vgg11", 32, 3}, {"swin_t", 64, 3}};
    static const int ranks[] = {2, 3, 4, 7}, slots[] = {1, 2, 3, 4, 8};
    static const char *const rule[] = {"sgd", "adamw", "lamb", "lars"};
    for (size_t n = 0; n < sizeof net / sizeof *net; n++) {
        kolo_graph *g = graph_of(net[n].name, net[n].side, net[n].channels);
        int good = 0, all = 0;
        for (int i = 0; g && i < 3 * 4 * 5 * 2 * 2; i++) {
            kolo_plan_config c =
                config_of(KOLO_shard_optimizer + i % 3, ranks[i / 3 % 4], slots[i / 12 % 5], rule[i % 4]);
            c.canonical = i / 60 % 2;
            c.clip_norm = c.noise = i / 120 % 2;
            c.ema = i % 2;
            c.reshard = i % 5 > 0;
            c.offload = i % 7 == 0;
            if (c.canonical && (c.slots & (c.slots - 1))) continue;
            kolo_plan *p = plan_of(g, &c);
            const int rc = p ? kolo_plan_check(p) : -1;
            if (rc < 0)
                diag("%s, %s: %d ranks, %d slots: %s", net[n].name, level_name[c.shard], c.ranks, c.slots,
                     kolo_error_text());
            good += rc == 0;
            all++;
            kolo_plan_destroy(&p);
        }
        ok(all > 200 && good == all, "%s: %d plans of %d pass", net[n].name, good, all);
        kolo_graph_destroy(&g);
    }
}

/* Bytes a parameter that a rank of n keeps, by the formulas: what all have, and what is shared. */
static void formula(int shard, int states, double *whole, double *shared)
{
    const double of_state = 4.0 * states;
    *whole = shard == KOLO_shard_parameters ? 0 : shard == KOLO_shard_gradients ? 4 : 8;
    *shared = shard == KOLO_shard_parameters  ? 8 + of_state
              : shard == KOLO_shard_gradients ? 4 + of_state
                                              : of_state;
}

/* The two units, one behind the other, that take most. */
static size_t two_units(const kolo_plan *p)
{
    size_t most = 0;
    for (int u = 0; u < p->units; u++) {
        const int64_t both = p->unit[u].params + (u + 1 < p->units ? p->unit[u + 1].params : 0);
        if ((size_t)both * sizeof(float) > most) most = (size_t)both * sizeof(float);
    }
    return most;
}

static void test_bytes(void)
{
    kolo_graph *g = graph_of("resnet50", 64, 3);
    for (int i = 0; g && i < 3 * 3 * 2; i++) {
        const int shard = KOLO_shard_optimizer + i % 3, n = (int[]){2, 4, 7}[i / 3 % 3], states = 1 + i / 9;
        const kolo_plan_config c = config_of(shard, n, 1, states == 2 ? "adamw" : "sgd");
        kolo_plan *p = plan_of(g, &c);
        double whole, shared;
        if (!p) continue;
        formula(shard, states, &whole, &shared);
        const double params = (double)p->param_bytes / 4;
        const size_t *bytes = p->arena_bytes;
        const size_t gradients =
                         shard == KOLO_shard_optimizer ? bytes[KOLO_ARENA_GRADIENT] - p->reduced_front : 0,
                     windows =
                         shard >= KOLO_shard_gradients ? bytes[KOLO_ARENA_GRADIENT] - p->reduced_front : 0;
        const double kept = (double)(bytes[KOLO_ARENA_PARAM] + gradients + bytes[KOLO_ARENA_STATE] +
                                     bytes[KOLO_ARENA_SUM] + bytes[KOLO_ARENA_PART]),
                     ideal = params * (whole + shared / n),
                     rounding =
                         shared / 4 * (4 * 4096.0 * p->units + 64); /* a part is a leaf longer at most */
        ok(kept >= ideal - 1 && kept <= ideal + rounding,
           "%s, %s, %d ranks: %.0f bytes kept, %.0f by the formula", level_name[shard],
           states == 2 ? "adamw" : "sgd", n, kept, ideal);
        const size_t gathered = bytes[KOLO_ARENA_GATHERED];
        ok(windows <= two_units(p) + 128 && gathered <= two_units(p) + 128 &&
               (gathered > 0) == (shard == KOLO_shard_parameters),
           "and beside it no more than two units of each: %zu, %zu of %zu", windows, gathered, two_units(p));
        kolo_plan_destroy(&p);
    }
    kolo_graph_destroy(&g);
}

/* ---- parameters and state in a file -------------------------------------------------------------------- */

static int unit_of(const kolo_plan *p, int64_t param)
{
    for (int u = 0; u < p->units; u++)
        if (param >= p->unit[u].param && param < p->unit[u].param + p->unit[u].params) return u;
    return -1;
}

/* Of parameters and state (the counts of the unit's numbers) the most that is in memory, action by action: a
 * unit's parameters from the first use on until they are let go, its state while it is updated. */
static int64_t most_resident(const kolo_plan *p)
{
    bool *in = calloc((size_t)p->units, sizeof *in);
    const int states = kolo_plan_states(p);
    int64_t now = 0, most = 0;
    for (int64_t i = 0; in && i < p->actions; i++) {
        const kolo_action *a = &p->action[i];
        for (int64_t k = a->binding;
             a->kind == KOLO_ACTION_RUN && k < a->binding + kolo_action_bindings(p, a); k++) {
            const kolo_binding *b = &p->binding[k];
            const int u =
                b->arena == KOLO_ARENA_PARAM ? unit_of(p, (int64_t)(b->offset / sizeof(float))) : -1;
            if (u >= 0 && !in[u]) in[u] = true, now += p->unit[u].params;
        }
        if (a->kind == KOLO_ACTION_EVICT) { /* it has just been updated */
            const int64_t updated = now + p->unit[a->unit].params * (states + !in[a->unit]);
            if (updated > most) most = updated;
        }
        if (now > most) most = now;
        if (a->kind == KOLO_ACTION_EVICT_PARAM && in[a->unit])
            in[a->unit] = false, now -= p->unit[a->unit].params;
    }
    free(in);
    return most;
}

static void test_offload(void)
{
    static const char *const net[] = {"resnet20", "resnet50", "vgg11", "swin_t"}, *const rule[] = {"sgd",
                                                                                                   "adamw"};
    for (size_t i = 0; i < 2 * sizeof net / sizeof *net; i++) {
        kolo_graph *g = graph_of(net[i / 2], 64, 3);
        kolo_plan_config c = config_of(KOLO_shard_none, 1, 1, rule[i % 2]);
        c.shards = 1;
        c.offload = KOLO_OFFLOAD_STATE | KOLO_OFFLOAD_PARAM;
        kolo_plan *p = g ? plan_of(g, &c) : NULL;
        const double planned =
                         p ? (double)(kolo_plan_resident(p, KOLO_ARENA_PARAM) +
                                      kolo_plan_resident(p, KOLO_ARENA_STATE) - kolo_plan_resident_apart(p))
                           : 0,
                     played = p ? (double)most_resident(p) * sizeof(float) : 1;
        ok(planned >= played && planned <= 1.1 * played + 65536,
           "%s, %s: parameters and state in a file: %.0f bytes in memory at a time, %.0f played", net[i / 2],
           rule[i % 2], planned, played);
        kolo_plan_destroy(&p);
        kolo_graph_destroy(&g);
    }
}

/* ---- one action left out, done twice, or of another bucket or unit ------------------------------------- */

enum { DROPPED, DOUBLED, RETARGETED, WAYS };

static bool is_checked(const kolo_action *a)
{
    return a->kind != KOLO_ACTION_RUN && a->kind != KOLO_ACTION_LOAD;
}

static void damage(kolo_plan *p, int64_t i, int way)
{
    kolo_action *a = &p->action[i];
    const size_t behind = (size_t)(p->actions - i - 1);
    if (way == DROPPED) {
        memmove(a, a + 1, behind * sizeof *a);
        p->actions--;
    } else if (way == DOUBLED) {
        kolo_action *more = realloc(p->action, (size_t)(p->actions + 1) * sizeof *more);
        if (!more) return;
        p->action = more;
        memmove(more + i + 1, more + i, (behind + 1) * sizeof *more);
        p->actions++;
    } else if (a->kind >= KOLO_ACTION_FETCH) {
        a->unit = (a->unit + 1) % p->units;
    } else {
        a->bucket = (a->bucket + 1) % p->buckets;
    }
}

/* Nothing is wrong with these. */
static bool harmless(const kolo_action *a, int way)
{
    if (a->kind == KOLO_ACTION_CLEAR) return way == DOUBLED;
    const bool all = a->kind == KOLO_ACTION_NORM || a->kind == KOLO_ACTION_NOISE ||
                     a->kind == KOLO_ACTION_LAYERS || a->kind == KOLO_ACTION_BUFFERS;
    return way == RETARGETED && all; /* they are of no bucket */
}

static void test_damage(void)
{
    kolo_graph *g = graph_of("resnet20", 16, 3);
    for (int shard = KOLO_shard_none; g && shard <= KOLO_shard_parameters; shard++) {
        kolo_plan_config c = config_of(shard, 3, 4, "lamb");
        c.canonical = c.clip_norm = c.noise = true;
        c.offload = shard == KOLO_shard_none        ? KOLO_OFFLOAD_STATE | KOLO_OFFLOAD_PARAM
                    : shard == KOLO_shard_gradients ? KOLO_OFFLOAD_STATE
                                                    : 0;
        if (shard == KOLO_shard_none) c.shards = 1;
        kolo_plan *whole = plan_of(g, &c);
        int found = 0, all = 0;
        for (int64_t i = 0; whole && i < whole->actions * WAYS; i++) {
            const kolo_action *a = &whole->action[i / WAYS];
            if (!is_checked(a) || harmless(a, (int)(i % WAYS))) continue;
            kolo_plan *p = plan_of(g, &c);
            damage(p, i / WAYS, (int)(i % WAYS));
            const int rc = kolo_plan_check(p);
            if (rc == 0)
                diag("%s, way %d: action %d of kind %d", level_name[shard], (int)(i % WAYS), (int)(i / WAYS),
                     (int)a->kind);
            found += rc == KOLO_EINTERNAL;
            all++;
            kolo_plan_destroy(&p);
        }
        kolo_plan_destroy(&whole);
        ok(all > 100 && found == all, "%s: %d of %d damages are found", level_name[shard], found, all);
    }
    kolo_graph_destroy(&g);
}

/* To gather parameters a rank copies its own part, on the clock of what computes. */
static void test_gathers_are_played(void)
{
    const kolo_fabric fabric = {.gpus = 8, .link = 1e9, .link_latency = 1e-9, .network = 1e9, .share = 1};
    const kolo_plan_config c = config_of(KOLO_shard_parameters, 2, 1, "sgd");
    kolo_graph *g = graph_of("resnet20", 16, 3);
    kolo_plan *p = g ? plan_of(g, &c) : NULL;
    kolo_play_time *time = p ? calloc((size_t)p->actions + 1, sizeof *time) : NULL;
    kolo_play *played = NULL;
    int gathers = 0;
    for (int64_t i = 0; time && i < p->actions; i++)
        if (p->action[i].kind == KOLO_ACTION_GATHER) time[i] = (kolo_play_time){1, 1}, gathers++;
    const kolo_play_input in = {.plan = p, .ranks = 2, .fabric = &fabric, .time = &time};
    const bool there = time && kolo_play_create(&played, &in) == 0;
    ok(there && gathers > 1 && fabs(played->step - gathers) < 1e-3,
       "a step of %d gathers of a second each takes as many: %g", gathers, there ? played->step : 0);
    kolo_play_destroy(&played);
    free(time);
    kolo_plan_destroy(&p);
    kolo_graph_destroy(&g);
}

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .deterministic = true};
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        printf("Bail out! %s\n", kolo_error_text());
        return 1;
    }
    test_networks();
    test_bytes();
    test_offload();
    test_damage();
    test_gathers_are_played();
    kolo_backend_destroy(&backend);
    return done_testing();
}
