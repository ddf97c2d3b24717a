/* Programs of random networks: chains of blocks, skips over any number of cuts, cut where they may be. SEED
 * repeats a campaign. */
#ifndef PROGRAM_RIG_H
#define PROGRAM_RIG_H

#include "plan/program.h"

#include "base/memory.h"
#include "base/philox.h"
#include "kolo/error.h"
#include "models/models.h"
#include "tap.h"

static kolo_backend *backend;
static uint64_t seed = 1, drawn;
static inline int draw(int n) { return (int)(kolo_philox(seed, 0, drawn++).v[0] % (uint32_t)n); }

typedef struct cuts {
    bool *allowed;
    double *crossing;
    size_t *bytes;
    int chain;
} cuts;

static inline bool cuts_open(cuts *c, const kolo_graph *g)
{
    c->chain = (int)kolo_graph_forward_nodes(g);
    c->allowed = calloc((size_t)c->chain + 1, sizeof *c->allowed);
    c->crossing = calloc((size_t)c->chain + 1, sizeof *c->crossing);
    c->bytes = calloc((size_t)g->tensors + 1, sizeof *c->bytes);
    for (int t = 0; t < g->tensors; t++) c->bytes[t] = (size_t)(100 + t * t);
    return kolo_placement_cuts(g, c->bytes, c->allowed, c->crossing) == 0;
}
static inline void cuts_close(cuts *c)
{
    free(c->allowed);
    free(c->crossing);
    free(c->bytes);
}

enum { CHANNELS = 8, MOST_BLOCKS = 10, MOST_STAGES = 5 };

/* Convolutions, norms, and additions of what any block before has made: chains with skips over any number of
 * cuts. */
static inline int random_graph(kolo_graph **out, int blocks, bool train, int parts)
{
    static const float mean[3] = {.5f, .5f, .5f}, deviation[3] = {.25f, .25f, .25f};
    const kolo_conv_spec spec = {.out = CHANNELS, .kernel = {3, 3}, .stride = {1, 1}, .pad = {1, 1}};
    int made[MOST_BLOCKS + 1];
    kolo_graph *g;
    KOLO_TRY(kolo_graph_create(out, "random", train, KOLO_F32));
    g = *out;
    made[0] = kolo_conv(g, "stem", kolo_normalize(g, kolo_input(g, 2, 6, 6, 3, 1), mean, deviation), &spec);
    for (int i = 0; i < blocks; i++) {
        char name[4][24];
        static const char *const part[] = {"conv", "bn", "relu", "add"};
        for (int k = 0; k < 4; k++) snprintf(name[k], sizeof name[k], "b%d.%s", i, part[k]);
        const int what = draw(4);
        int x = kolo_conv(g, name[0], made[i], &spec);
        if (what > 0) x = kolo_batch_norm(g, name[1], x, 1e-5, .1, 1);
        if (what > 1) x = kolo_add(g, name[3], x, made[what > 2 ? 0 : draw(i + 1)]);
        made[i + 1] = kolo_relu(g, name[2], x);
    }
    const int x = kolo_global_avg_pool(g, "pool", made[blocks]);
    const kolo_init zero = {0};
    KOLO_TRY(kolo_cross_entropy(g, kolo_linear(g, "fc", x, 10, true, zero, zero), 0));
    if (draw(2)) KOLO_TRY(kolo_graph_fuse(g));
    const kolo_cuts rows = {.parts = {parts, 1}, .apart = true, .load_parts = true};
    if (parts > 1) KOLO_TRY(kolo_graph_split(g, &rows));
    return train ? kolo_graph_backward(g) : 0;
}

/* Which of the allowed cuts, drawn without putting back. */
static inline bool random_cut(const kolo_graph *g, int parts, int *cut)
{
    cuts c;
    int left = 0, chosen = 0, n = 0;
    bool good = cuts_open(&c, g);
    for (int i = 0; i < c.chain; i++) left += c.allowed[i];
    good &= left >= parts - 1;
    for (int i = 0; good && i < c.chain; i++)
        if (c.allowed[i] && draw(left--) < parts - 1 - chosen) cut[n++] = i, chosen++;
    cuts_close(&c);
    return good && n == parts - 1;
}

typedef struct trial {
    int stages, slots, chunks, replicas, blocks;
    enum kolo_pipeline order;
    bool evaluates;
    int parts; /* rows of the images, on as many stages side by side; 0: as 1 */
} trial;

typedef struct rig {
    kolo_graph *graph;
    kolo_placement *placement;
    kolo_grid grid;
    int rank[2 * MOST_STAGES];
    kolo_plan *own;
    kolo_program *program;
} rig;

/* 0 too if the network has not so many places for cuts: no program then */
static inline int rig_open(rig *r, const trial *t)
{
    static const char *const rules[] = {"sgd", "sgd", "lamb", "adamw"};
    int cut[3 * MOST_STAGES];
    kolo_plan *whole = NULL;
    *r = (rig){.grid = {.stages = t->stages, .replicas = t->replicas}};
    r->grid.rank = r->rank;
    for (int i = 0; i < t->stages * t->replicas; i++) r->rank[i] = i;
    r->grid.stage = draw(t->stages);
    const int across = t->parts > 1 ? t->parts : 1, chain = t->stages / across * t->chunks;
    KOLO_TRY(random_graph(&r->graph, t->blocks, !t->evaluates, across));
    if (!random_cut(r->graph, chain, cut)) return 0;
    const kolo_plan_config c = {.ranks = t->replicas,
                                .slots = t->slots,
                                .bn = draw(2) ? KOLO_bn_ghost : KOLO_bn_local,
                                .canonical = draw(2) && (t->replicas == 1 || !(t->slots & (t->slots - 1))),
                                .bucket_bytes = 1 << (8 + draw(8)),
                                .optimizer = t->evaluates ? NULL : kolo_optimizer_find(rules[draw(4)]),
                                .ema = !t->evaluates && draw(2),
                                .clip_norm = !t->evaluates && draw(2),
                                .noise = !t->evaluates && !draw(3)};
    KOLO_TRY(kolo_placement_create(&r->placement, r->graph, t->stages, t->chunks, across, t->order, cut));
    int rc = kolo_plan_create(&whole, r->graph, backend, &c, NULL);
    if (rc == 0) rc = kolo_plan_create_stage(&r->own, whole, r->placement, r->grid.stage, NULL);
    if (rc == 0) rc = kolo_program_create(&r->program, &r->grid, r->own, NULL);
    kolo_plan_destroy(&whole);
    return rc;
}

static inline void rig_close(rig *r)
{
    kolo_program_destroy(&r->program);
    kolo_plan_destroy(&r->own);
    kolo_placement_destroy(&r->placement);
    kolo_graph_destroy(&r->graph);
}

static inline bool rig_begin(void)
{
    const kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (getenv("SEED")) seed = strtoull(getenv("SEED"), NULL, 10);
    diag("SEED=%llu", (unsigned long long)seed);
    if (kolo_backend_create(&backend, "cpu", &config) == 0) return true;
    printf("Bail out! %s\n", kolo_error_text());
    return false;
}

static inline int rig_end(void)
{
    kolo_backend_destroy(&backend);
    return done_testing();
}

#endif
