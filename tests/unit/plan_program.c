/* Programs: ranks by stage and replica; where a network may be cut; and that the checker passes every program
 * of random networks and finds every single damage done to one. SEED repeats a campaign. */
#include "plan/program.h"

#include "base/memory.h"
#include "base/philox.h"
#include "kolo/error.h"
#include "models/models.h"
#include "tap.h"

static kolo_backend *backend;
static uint64_t seed = 1, drawn;
static int draw(int n) { return (int)(kolo_philox(seed, 0, drawn++).v[0] % (uint32_t)n); }

/* ---- ranks by stage and replica ------------------------------------------------------------------------ */

enum { MOST_RANKS = 24, MOST_NODES = 4 };

typedef struct map {
    kolo_launch launch;
    int node[MOST_RANKS], local[MOST_RANKS];
} map;

/* The ranks of nodes of each[node] ranks, node by node or in turn. */
static void map_open(map *m, int nodes, const int *each, bool cyclic)
{
    int left[MOST_NODES], size = 0;
    memcpy(left, each, sizeof left);
    *m = (map){.launch = {.nodes = nodes, .node_of = m->node, .local_of = m->local}};
    for (int n = 0; n < nodes; n++) size += each[n];
    for (int node = 0; m->launch.size < size;) {
        if (left[node] > 0) {
            m->node[m->launch.size] = node;
            m->local[m->launch.size++] = each[node] - left[node]--;
        }
        if (cyclic || !left[node]) node = (node + 1) % nodes;
    }
}

/* Every rank once, ascending in its stage; all ranks have one map, and each finds itself in it. */
static bool grid_is_whole(map *m, int stages, bool within)
{
    bool good = true;
    kolo_grid first = {0};
    for (int r = 0; r < m->launch.size; r++) {
        kolo_grid g = {0};
        bool seen[MOST_RANKS] = {false};
        m->launch.rank = r;
        if (kolo_grid_create(&g, &m->launch, stages, within) < 0) return false;
        good &= g.stages == stages && g.replicas * stages == m->launch.size;
        good &= kolo_grid_rank(&g, g.stage, g.replica) == r && kolo_grid_stage(&g, r) == g.stage;
        for (int i = 0; i < m->launch.size; i++) {
            good &= g.rank[i] >= 0 && g.rank[i] < m->launch.size && !seen[g.rank[i]];
            seen[g.rank[i]] = true;
            good &= i % g.replicas == 0 || g.rank[i - 1] < g.rank[i];
        }
        if (r == 0) first = g;
        else {
            good &= !memcmp(first.rank, g.rank, (size_t)m->launch.size * sizeof *g.rank);
            kolo_grid_free(&g);
        }
    }
    for (int replica = 0; replica < first.replicas; replica++)
        for (int s = 1; s < stages; s++) {
            const bool same = m->node[kolo_grid_rank(&first, s, replica)] ==
                              m->node[kolo_grid_rank(&first, s - 1, replica)];
            if (within) good &= same;
            /* a node that has no more ranks than a stage cannot hold two ranks of a pipeline */
            else good &= !same || m->launch.size > first.replicas * m->launch.nodes;
        }
    kolo_grid_free(&first);
    return good;
}

static void test_grid(void)
{
    static const struct {
        int nodes, each[MOST_NODES], stages;
        bool within;
    } grids[] = {
        {1, {4}, 2, true},        {1, {6}, 3, false},          {2, {4, 4}, 2, true},
        {2, {4, 4}, 4, true},     {2, {2, 2}, 2, false},       {2, {1, 1}, 2, false},
        {2, {3, 3}, 3, false},    {3, {4, 2, 6}, 2, true},     {4, {6, 6, 6, 6}, 3, true},
        {3, {1, 1, 1}, 3, false}, {4, {2, 2, 2, 2}, 4, false}, {4, {2, 2, 2, 2}, 2, false},
        {2, {4, 4}, 8, false},    {2, {4, 4}, 1, true},        {2, {5, 3}, 4, false},
    };
    int good = 0, all = 0;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++)
        for (int cyclic = 0; cyclic < 2; cyclic++, all++) {
            map m;
            map_open(&m, grids[i].nodes, grids[i].each, cyclic);
            if (grid_is_whole(&m, grids[i].stages, grids[i].within)) good++;
            else diag("grid %zu, %s: %s", i, cyclic ? "in turn" : "node by node", kolo_error_text());
        }
    is_int(good, all, "grids of ranks that are started node by node or in turn");
}

static void test_grid_refused(void)
{
    static const struct {
        int each[MOST_NODES], stages;
        bool within;
        const char *says;
    } bad[] = {
        {{2, 2}, 3, false, "stages=3 does not divide 4 ranks"},
        {{2, 2}, 8, false, "stages=8 does not divide 4 ranks"},
        {{3, 5}, 4, true, "stages_in_node=true: node 0 has 3 ranks"},
        {{4, 6}, 4, true, "stages=4 does not divide 10 ranks"},
        {{4, 2}, 3, true, "stages_in_node=true: node 0 has 4 ranks, which is no multiple of stages=3"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        map m;
        kolo_grid g = {0};
        map_open(&m, 2, bad[i].each, false);
        const int rc = kolo_grid_create(&g, &m.launch, bad[i].stages, bad[i].within);
        ok(rc == KOLO_ECONFIG && strstr(kolo_error_text(), bad[i].says), "refused: %s", kolo_error_text());
    }
}

/* Ranks in any order of nodes: pipelines are within nodes, or refused by name. */
static void test_grid_irregular(void)
{
    static const struct {
        const char *nodes; /* of rank 0, 1, ... */
        int stages;
        bool fits;
    } maps[] = {{"0110", 2, false},  {"001001", 2, true},  {"00111100", 2, true}, {"01100110", 2, true},
                {"012012", 2, true}, {"011220", 2, false}, {"000111000", 3, true}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        map m = {.launch = {.node_of = m.node, .local_of = m.local}};
        int locals[MOST_NODES] = {0};
        for (const char *c = maps[i].nodes; *c; c++) {
            const int node = *c - '0';
            m.node[m.launch.size] = node;
            m.local[m.launch.size++] = locals[node]++;
            if (node >= m.launch.nodes) m.launch.nodes = node + 1;
        }
        const bool fits = grid_is_whole(&m, maps[i].stages, true);
        ok(fits == maps[i].fits && (fits || strstr(kolo_error_text(), "would be of one pipeline")),
           "ranks on nodes %s, stages=%d: %s", maps[i].nodes, maps[i].stages,
           fits ? "within nodes" : kolo_error_text());
    }
}

/* ---- where a network may be cut ------------------------------------------------------------------------ */

static int position(const kolo_graph *g, int64_t node)
{
    return g->node[node].backward ? g->node[node].of : (int)node;
}

/* Which sides of a cut behind forward operation `cut` have to do with each tensor: bit 0 the front, bit 1 the
 * back. A gradient has to do with its parameter, a statistic with its buffers. side: [graph->tensors] */
static void find_sides(const kolo_graph *g, int cut, unsigned *side)
{
    for (int t = 0; t < g->tensors; t++) side[t] = t == g->input || t == g->label;
    for (int64_t i = 0; i < g->nodes; i++) {
        const kolo_node *n = &g->node[i];
        const unsigned here = position(g, i) <= cut ? 1 : 2;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0) side[n->in[k]] |= here;
        for (int k = 0; k < n->n_out; k++) {
            if (n->out[k] < 0) continue;
            const kolo_tensor *t = &g->tensor[n->out[k]];
            side[n->out[k]] |= here;
            if (t->of >= 0) side[t->of] |= here;
            if (t->of >= 0 && t->role == KOLO_ROLE_STATISTIC) side[t->of + 1] |= here;
        }
    }
}

static bool crosses_as_activation(enum kolo_role role)
{
    return role == KOLO_ROLE_ACTIVATION || role == KOLO_ROLE_INPUT || role == KOLO_ROLE_LABEL;
}

static bool placed_well(const kolo_graph *g, const kolo_placement *p)
{
    for (int t = 0; t < g->tensors; t++) { /* a parameter is where its gradient is, a buffer its statistic */
        const enum kolo_role role = g->tensor[t].role;
        const int of = g->tensor[t].of;
        if ((role == KOLO_ROLE_GRADIENT || role == KOLO_ROLE_STATISTIC) && of >= 0 &&
            p->owner[t] != p->owner[of])
            return false;
        if (role == KOLO_ROLE_STATISTIC && of >= 0 && p->owner[of + 1] != p->owner[of]) return false;
    }
    for (int64_t i = 0; i < g->nodes; i++) { /* all else than activations is read where it is */
        const kolo_node *n = &g->node[i];
        if (p->part[i] != p->part[position(g, i)]) return false;
        for (int k = 0; k < n->n_in; k++)
            if (n->in[k] >= 0 && !crosses_as_activation(g->tensor[n->in[k]].role) &&
                p->owner[n->in[k]] != p->part[i])
                return false;
    }
    return true;
}

typedef struct cuts {
    bool *allowed;
    double *crossing;
    size_t *bytes;
    int chain;
} cuts;

static bool cuts_open(cuts *c, const kolo_graph *g)
{
    c->chain = (int)kolo_graph_forward_nodes(g);
    c->allowed = calloc((size_t)c->chain + 1, sizeof *c->allowed);
    c->crossing = calloc((size_t)c->chain + 1, sizeof *c->crossing);
    c->bytes = calloc((size_t)g->tensors + 1, sizeof *c->bytes);
    for (int t = 0; t < g->tensors; t++) c->bytes[t] = (size_t)(100 + t * t);
    return kolo_placement_cuts(g, c->bytes, c->allowed, c->crossing) == 0;
}
static void cuts_close(cuts *c)
{
    free(c->allowed);
    free(c->crossing);
    free(c->bytes);
}

static void test_cuts_of(const char *what, const kolo_graph *g)
{
    cuts c;
    int right = 0, weighed = 0, placed = 0, refused = 0, allowed = 0;
    unsigned *side = calloc((size_t)g->tensors + 1, sizeof *side);
    cuts_open(&c, g);
    for (int cut = 0; cut < c.chain; cut++) {
        bool apart = cut == c.chain - 1; /* nothing would be behind it */
        double bytes = 0;
        find_sides(g, cut, side);
        for (int t = 0; t < g->tensors; t++) {
            if (side[t] != 3) continue;
            if (crosses_as_activation(g->tensor[t].role)) bytes += (double)c.bytes[t];
            else apart = true;
        }
        right += c.allowed[cut] == !apart;
        weighed += c.crossing[cut] == bytes;
        allowed += c.allowed[cut];
        kolo_placement *p = NULL;
        const int rc = kolo_placement_create(&p, g, 2, 1, 1, KOLO_PIPELINE_1F1B, &cut);
        if (c.allowed[cut]) placed += rc == 0 && placed_well(g, p);
        else refused += rc == KOLO_ECONFIG && strstr(kolo_error_text(), "cannot be cut behind");
        kolo_placement_destroy(&p);
    }
    ok(right == c.chain && allowed > 0, "%s: %d of %d cuts, all that leave sums and parameters whole", what,
       allowed, c.chain);
    is_int(weighed, c.chain, "%s: bytes that cross them, counted tensor by tensor", what);
    is_int(placed, allowed, "%s: with gradients and running statistics where their parameters are", what);
    is_int(refused, c.chain - allowed, "%s: the others are refused", what);
    cuts_close(&c);
    free(side);
}

static void test_cuts(void)
{
    static const struct {
        const char *name;
        int64_t side;
        bool boxes;
    } net[] = {{"lenet5", 28, false},   {"resnet20", 16, false},      {"resnet50", 64, false},
               {"swin_t", 64, false},   {"convnext_tiny", 64, false}, {"yolox_nano", 64, true},
               {"vgg16_bn", 32, false}, {"darknet53", 64, false}};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        kolo_graph *g = NULL;
        const kolo_model_config c = {.rows = 2,
                                     .height = net[i].side,
                                     .width = net[i].side,
                                     .channels = 3,
                                     .classes = 10,
                                     .words = net[i].boxes ? 1 + 5 * 4 : 1,
                                     .train = true,
                                     .mean = {.5f, .5f, .5f},
                                     .std = {.25f, .25f, .25f}};
        if (kolo_model_graph(&g, net[i].name, &c) < 0) ok(0, "%s: %s", net[i].name, kolo_error_text());
        else test_cuts_of(net[i].name, g);
        kolo_graph_destroy(&g);
    }
}

/* ---- programs of random networks ----------------------------------------------------------------------- */

enum { CHANNELS = 8, MOST_BLOCKS = 10, MOST_STAGES = 5 };

/* Convolutions, norms, and additions of what any block before has made: chains with skips over any number of
 * cuts. */
static int random_graph(kolo_graph **out, int blocks, bool train)
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
    return train ? kolo_graph_backward(g) : 0;
}

/* Which of the allowed cuts, drawn without putting back. */
static bool random_cut(const kolo_graph *g, int parts, int *cut)
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
static int rig_open(rig *r, const trial *t)
{
    static const char *const rules[] = {"sgd", "sgd", "lamb", "adamw"};
    int cut[3 * MOST_STAGES];
    kolo_plan *whole = NULL;
    *r = (rig){.grid = {.stages = t->stages, .replicas = t->replicas}};
    r->grid.rank = r->rank;
    for (int i = 0; i < t->stages * t->replicas; i++) r->rank[i] = i;
    r->grid.stage = draw(t->stages);
    KOLO_TRY(random_graph(&r->graph, t->blocks, !t->evaluates));
    if (!random_cut(r->graph, t->stages * t->chunks, cut)) return 0;
    const kolo_plan_config c = {.ranks = t->replicas,
                                .slots = t->slots,
                                .bn = draw(2) ? KOLO_bn_ghost : KOLO_bn_local,
                                .canonical = draw(2) && (t->replicas == 1 || !(t->slots & (t->slots - 1))),
                                .bucket_bytes = 1 << (8 + draw(8)),
                                .optimizer = t->evaluates ? NULL : kolo_optimizer_find(rules[draw(4)]),
                                .ema = !t->evaluates && draw(2),
                                .clip_norm = !t->evaluates && draw(2),
                                .noise = !t->evaluates && !draw(3)};
    KOLO_TRY(kolo_placement_create(&r->placement, r->graph, t->stages, t->chunks, 1, t->order, cut));
    int rc = kolo_plan_create(&whole, r->graph, backend, &c, NULL);
    if (rc == 0) rc = kolo_plan_create_stage(&r->own, whole, r->placement, r->grid.stage, NULL);
    if (rc == 0) rc = kolo_program_create(&r->program, &r->grid, r->own, NULL);
    kolo_plan_destroy(&whole);
    return rc;
}

static void rig_close(rig *r)
{
    kolo_program_destroy(&r->program);
    kolo_plan_destroy(&r->own);
    kolo_placement_destroy(&r->placement);
    kolo_graph_destroy(&r->graph);
}

typedef struct tally {
    int all, good, sent;
} tally;

static void check_program(const trial *t, tally *n)
{
    rig r;
    const int rc = rig_open(&r, t);
    if (rc < 0 || r.program) {
        n->all++;
        for (int s = 0; r.program && s < t->stages; s++) n->sent += r.program->plan[s]->transfers;
        if (rc == 0 && kolo_program_check(r.program) == 0) n->good++;
        else
            diag("%d stages, %d chunks, %d micro-batches, %d replicas: %s", t->stages, t->chunks, t->slots,
                 t->replicas, kolo_error_text());
    }
    rig_close(&r);
}

/* Of every order, grid and number of micro-batches four programs that train, and one that does not. */
static void test_programs(void)
{
    enum { MOST_SLOTS = 8, ROUNDS = 5 };
    for (int order = 0; order < KOLO_PIPELINES; order++) {
        tally n = {0};
        for (int i = 0; i < MOST_STAGES * MOST_SLOTS * ROUNDS; i++) {
            drawn = 1000 * (uint64_t)(order * 1000 + i);
            const trial t = {.stages = 1 + i / ROUNDS / MOST_SLOTS,
                             .slots = 1 + i / ROUNDS % MOST_SLOTS,
                             .chunks = kolo_pipeline[order].takes_chunks ? 1 + draw(3) : 1,
                             .replicas = 1 + draw(2),
                             .blocks = 1 + draw(MOST_BLOCKS),
                             .order = (enum kolo_pipeline)order,
                             .evaluates = i % ROUNDS == 0};
            check_program(&t, &n);
        }
        ok(n.good == n.all && n.all > 150 && n.sent > n.all, "%s: %d programs of %d pass, %d transfers",
           kolo_pipeline[order].name, n.good, n.all, n.sent);
    }
}

/* ---- damage -------------------------------------------------------------------------------------------- */

enum damage_kind {
    DROP_TRANSFER,
    DOUBLE_TRANSFER,
    SWAP_TRANSFER,
    OTHER_TRANSFER,
    OTHER_SLOT,
    OTHER_PLACE,
    OTHER_KIND,
    RESIZE,
    MOVE,
    OTHER_TENSOR,
    OTHER_MICRO_BATCH,
    OTHER_PEER,
    OTHER_DIRECTION,
    DROP_RUN,
    DROP_OTHER,
    DOUBLE_OTHER,
    DAMAGES
};
static const char *const damage_name[DAMAGES] = {
    "a send, receive or wait left out",
    "one done twice",
    "one in front of what it must follow",
    "one of another transfer",
    "one of another micro-batch",
    "one at another place",
    "one that is another kind",
    "a transfer of another size",
    "a transfer at another place",
    "a transfer of another tensor",
    "a transfer of another micro-batch",
    "a transfer with another stage",
    "a transfer the other way",
    "an operation left out",
    "a load, fold, reduction, wait or update left out",
    "one of those done twice",
};

typedef struct campaign {
    kolo_program *program;
    int stage; /* that is being damaged */
    kolo_plan *plan;
    char what[256]; /* is damaged */
    int made[DAMAGES], missed[DAMAGES];
} campaign;

static void expect_found(campaign *c, enum damage_kind kind)
{
    c->made[kind]++;
    const int rc = kolo_program_check(c->program);
    if (rc == KOLO_EINTERNAL) return;
    if (c->missed[kind]++ >= 3) return; /* that many are reported */
    diag("missed: %s: stage %d of %d, %s, %s: %d", damage_name[kind], c->stage, c->program->grid->stages,
         kolo_pipeline[c->plan->config.placement->order].name, c->what, rc);
}

static void with_swapped(campaign *c, enum damage_kind kind, int64_t i, int64_t k)
{
    if (i < 0 || k < 0) return;
    const kolo_action a = c->plan->action[i];
    c->plan->action[i] = c->plan->action[k];
    c->plan->action[k] = a;
    expect_found(c, kind);
    c->plan->action[k] = c->plan->action[i];
    c->plan->action[i] = a;
}

static void with_dropped(campaign *c, enum damage_kind kind, int64_t i)
{
    kolo_plan *p = c->plan;
    const kolo_action a = p->action[i];
    const size_t behind = (size_t)(p->actions - i - 1) * sizeof a;
    memmove(&p->action[i], &p->action[i + 1], behind);
    p->actions--;
    expect_found(c, kind);
    p->actions++;
    memmove(&p->action[i + 1], &p->action[i], behind);
    p->action[i] = a;
}

static void with_doubled(campaign *c, enum damage_kind kind, int64_t i)
{
    kolo_plan *p = c->plan;
    kolo_action *before = p->action, *longer = malloc((size_t)(p->actions + 1) * sizeof *longer);
    memcpy(longer, before, (size_t)(i + 1) * sizeof *longer);
    memcpy(longer + i + 1, before + i, (size_t)(p->actions - i) * sizeof *longer);
    p->action = longer;
    p->actions++;
    expect_found(c, kind);
    p->actions--;
    p->action = before;
    free(longer);
}

static void with_action(campaign *c, enum damage_kind kind, int64_t i, kolo_action changed)
{
    const kolo_action a = c->plan->action[i];
    c->plan->action[i] = changed;
    expect_found(c, kind);
    c->plan->action[i] = a;
}

static void with_transfer(campaign *c, enum damage_kind kind, int i, kolo_transfer changed)
{
    const kolo_transfer t = c->plan->transfer[i];
    c->plan->transfer[i] = changed;
    expect_found(c, kind);
    c->plan->transfer[i] = t;
}

/* The action of this kind of a transfer; -1: none. */
static int64_t action_of(const kolo_plan *p, enum kolo_action_kind kind, int transfer)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].kind == kind && p->action[i].transfer == transfer) return i;
    return -1;
}

static bool has(const kolo_plan *p, const kolo_action *a, int tensor, bool makes)
{
    if (a->kind == KOLO_ACTION_LOAD) return makes && (tensor == p->graph->input || tensor == p->graph->label);
    if (a->kind != KOLO_ACTION_RUN) return false;
    const kolo_node *n = &p->graph->node[a->node];
    for (int k = 0; k < (makes ? n->n_out : n->n_in); k++)
        if ((makes ? n->out[k] : n->in[k]) == tensor) return true;
    return false;
}

/* The action of this stage that makes or first reads the tensor of a transfer. */
static int64_t partner_of(const kolo_plan *p, const kolo_transfer *t)
{
    for (int64_t i = 0; i < p->actions; i++)
        if (p->action[i].slot == t->slot && has(p, &p->action[i], t->tensor, t->sends)) return i;
    return -1;
}

/* The next start of a transfer in the same direction with the same stage. */
static int64_t next_like(const kolo_plan *p, int64_t i)
{
    const kolo_action *a = &p->action[i];
    for (int64_t k = i + 1; k < p->actions; k++)
        if (p->action[k].kind == a->kind &&
            p->transfer[p->action[k].transfer].peer == p->transfer[a->transfer].peer)
            return k;
    return -1;
}

static void swap_transfer(campaign *c, int64_t i)
{
    const kolo_plan *p = c->plan;
    const kolo_action *a = &p->action[i];
    const kolo_transfer *t = &p->transfer[a->transfer];
    if (a->kind == KOLO_ACTION_TRANSFERRED) {
        if (!t->sends) with_swapped(c, SWAP_TRANSFER, i, partner_of(p, t));
        return;
    }
    with_swapped(c, SWAP_TRANSFER, i, action_of(p, KOLO_ACTION_TRANSFERRED, a->transfer));
    with_swapped(c, SWAP_TRANSFER, i, next_like(p, i));
    if (t->sends) with_swapped(c, SWAP_TRANSFER, i, partner_of(p, t));
}

static void damage_action(campaign *c, int64_t i)
{
    const kolo_plan *p = c->plan;
    const kolo_action a = p->action[i];
    kolo_action changed = a;
    with_dropped(c, DROP_TRANSFER, i);
    with_doubled(c, DOUBLE_TRANSFER, i);
    swap_transfer(c, i);
    for (int k = 1; k < 3; k++) {
        changed.transfer = k == 1 ? (a.transfer + 1) % p->transfers : draw(p->transfers);
        if (changed.transfer != a.transfer) with_action(c, OTHER_TRANSFER, i, changed);
    }
    changed = a;
    changed.transfer = p->transfers;
    with_action(c, OTHER_TRANSFER, i, changed);
    changed = a;
    changed.slot = a.slot + 1;
    with_action(c, OTHER_SLOT, i, changed);
    changed = a;
    changed.binding = draw((int)p->bindings);
    if (p->binding[changed.binding].arena != p->binding[a.binding].arena ||
        p->binding[changed.binding].offset != p->binding[a.binding].offset)
        with_action(c, OTHER_PLACE, i, changed);
    static const enum kolo_action_kind kinds[] = {KOLO_ACTION_SEND, KOLO_ACTION_RECEIVE,
                                                  KOLO_ACTION_TRANSFERRED};
    for (int k = 0; k < 3; k++) {
        changed = a;
        changed.kind = kinds[k];
        if (changed.kind != a.kind) with_action(c, OTHER_KIND, i, changed);
    }
}

static void damage_transfer(campaign *c, int i)
{
    const kolo_transfer t = c->plan->transfer[i];
    kolo_transfer x = t;
    for (int sign = 0; sign < 2; sign++) {
        x.bytes = sign ? t.bytes - 4 : t.bytes + KOLO_ALIGN;
        with_transfer(c, RESIZE, i, x);
    }
    x = t;
    for (int sign = 0; sign < 2; sign++) {
        x.offset = sign ? t.offset - KOLO_ALIGN : t.offset + KOLO_ALIGN;
        with_transfer(c, MOVE, i, x);
    }
    x = t;
    x.tensor = (t.tensor + 1 + draw((int)c->plan->graph->tensors - 1)) % (int)c->plan->graph->tensors;
    with_transfer(c, OTHER_TENSOR, i, x);
    x = t;
    x.slot = t.slot ? t.slot - 1 : t.slot + 1;
    with_transfer(c, OTHER_MICRO_BATCH, i, x);
    x = t;
    for (x.peer = -1; x.peer <= c->program->grid->stages; x.peer++)
        if (x.peer != t.peer) with_transfer(c, OTHER_PEER, i, x);
    x = t;
    x.sends = !t.sends;
    with_transfer(c, OTHER_DIRECTION, i, x);
}

static void damage_stage(campaign *c)
{
    const kolo_plan *p = c->plan;
    for (int64_t i = 0; i < p->actions; i++) {
        const enum kolo_action_kind kind = p->action[i].kind;
        kolo_plan_action_text(p, i, c->what, sizeof c->what);
        if (kolo_action_transfers(kind)) damage_action(c, i);
        else {
            with_dropped(c, kind == KOLO_ACTION_RUN ? DROP_RUN : DROP_OTHER, i);
            if (kind != KOLO_ACTION_RUN && kind != KOLO_ACTION_LOAD) with_doubled(c, DOUBLE_OTHER, i);
        }
    }
    for (int i = 0; i < p->transfers; i++) {
        snprintf(c->what, sizeof c->what, "transfer %d", i);
        damage_transfer(c, i);
    }
}

static void test_damage(void)
{
    enum { PROGRAMS = 100 };
    campaign c = {0};
    int programs = 0, whole = 0;
    for (int i = 0; programs < PROGRAMS && i < 10 * PROGRAMS; i++) {
        drawn = (1ULL << 32) + 100000 * (uint64_t)i;
        trial t = {.stages = 2 + draw(3), .slots = 1 + draw(4), .chunks = 1, .replicas = 1 + draw(2)};
        t.order = (enum kolo_pipeline)(i % KOLO_PIPELINE_PIPEDREAM);
        if (kolo_pipeline[t.order].takes_chunks) t.chunks = 1 + draw(2);
        t.blocks = 1 + draw(4);
        rig r;
        if (rig_open(&r, &t) == 0 && r.program) {
            programs++;
            c.program = r.program;
            for (c.stage = 0; c.stage < t.stages; c.stage++) {
                c.plan = r.program->plan[c.stage];
                damage_stage(&c);
            }
            whole += kolo_program_check(r.program) == 0;
        }
        rig_close(&r);
    }
    is_int(whole, PROGRAMS, "programs that are damaged, and made whole again");
    for (int k = 0; k < DAMAGES; k++)
        ok(c.made[k] >= PROGRAMS && !c.missed[k], "%s: %d of %d found", damage_name[k],
           c.made[k] - c.missed[k], c.made[k]);
}

/* Late pipelines, in which a wait may stand in front of the send that a later batch's list begins. Whether
 * each version, each copy of statistics is missed shows in the plan of its stage alone. */
static void test_damage_late(void)
{
    enum { PROGRAMS = 6 };
    campaign c = {0};
    int programs = 0, made = 0, missed = 0;
    for (int i = 0; programs < PROGRAMS && i < 10 * PROGRAMS; i++) {
        drawn = (2ULL << 32) + 100000 * (uint64_t)i;
        const trial t = {.stages = 2 + draw(2),
                         .slots = 1 + draw(2),
                         .chunks = 1,
                         .replicas = 1,
                         .order = (enum kolo_pipeline)(KOLO_PIPELINE_PIPEDREAM +
                                                       i % (KOLO_PIPELINES - KOLO_PIPELINE_PIPEDREAM)),
                         .blocks = 1};
        rig r;
        if (rig_open(&r, &t) == 0 && r.program) {
            programs++;
            c.program = r.program;
            for (c.stage = 0; c.stage < t.stages; c.stage++) {
                const kolo_plan *p = c.plan = r.program->plan[c.stage];
                for (int64_t k = 0; k < p->actions; k++) {
                    const bool runs = p->action[k].kind == KOLO_ACTION_RUN;
                    kolo_plan_action_text(p, k, c.what, sizeof c.what);
                    with_dropped(&c, runs ? DROP_RUN : DROP_OTHER, k);
                    if (!runs && p->action[k].kind != KOLO_ACTION_LOAD) with_doubled(&c, DOUBLE_OTHER, k);
                    kolo_action changed = p->action[k];
                    changed.ahead++;
                    /* to wait sooner for what was sent is no mistake */
                    if (changed.kind == KOLO_ACTION_TRANSFERRED && p->transfer[changed.transfer].sends)
                        continue;
                    with_action(&c, OTHER_SLOT, k, changed);
                }
            }
        }
        rig_close(&r);
    }
    for (int k = 0; k < DAMAGES; k++) made += c.made[k], missed += c.missed[k];
    is_int(programs, PROGRAMS, "late pipelines that are damaged");
    ok(made > 100 * PROGRAMS && missed == 0,
       "late pipelines: an action left out, done twice, of another batch: %d of %d found", made - missed,
       made);
}

/* ---- evaluations --------------------------------------------------------------------------------------- */

/* Of every parameter and buffer, one stage has memory for it, and that the owner. */
static bool held_once(const kolo_program *p, const kolo_graph *g)
{
    bool good = true;
    for (int t = 0; t < g->tensors; t++) {
        const enum kolo_role role = g->tensor[t].role;
        if (role != KOLO_ROLE_PARAM && role != KOLO_ROLE_BUFFER) continue;
        int holders = 0;
        for (int s = 0; s < p->grid->stages; s++) {
            holders += p->plan[s]->home[t].arena >= 0;
            good &= (p->plan[s]->home[t].arena >= 0) == kolo_plan_owns(p->plan[s], t);
        }
        good &= holders == 1;
    }
    return good;
}

/* As tensors in the last stage's memory that nothing else takes: no two at one place. */
static bool heads_are_last(const kolo_program *p, const kolo_graph *g)
{
    const kolo_plan *last = p->plan[p->grid->stages - 1];
    bool good = true;
    for (int i = 0; i < g->heads; i++) {
        const kolo_binding b = kolo_plan_binding(last, g->head[i], 0);
        good &= b.arena == KOLO_ARENA_ACTIVATION || b.arena == KOLO_ARENA_TRANSFER;
        for (int k = 0; k < i; k++) {
            const kolo_binding other = kolo_plan_binding(last, g->head[k], 0);
            good &= b.arena != other.arena || b.offset != other.offset;
        }
    }
    return good;
}

/* Cut into three at random, so that heads are made in one, two or three stages. */
static void test_evaluation(const char *name, const kolo_graph *g, const kolo_plan *whole)
{
    enum { STAGES = 3, CUTS = 40 };
    int good = 0, once = 0, last = 0, apart = 0, rank[STAGES] = {0, 1, 2};
    size_t params = 0;
    for (int i = 0; i < CUTS; i++) {
        kolo_grid grid = {.stages = STAGES, .replicas = 1, .rank = rank, .stage = draw(STAGES)};
        kolo_placement *placement = NULL;
        kolo_plan *own = NULL;
        kolo_program *p = NULL;
        int cut[STAGES];
        if (random_cut(g, STAGES, cut) &&
            kolo_placement_create(&placement, g, STAGES, 1, 1, KOLO_PIPELINE_1F1B, cut) == 0 &&
            kolo_plan_create_stage(&own, whole, placement, grid.stage, NULL) == 0 &&
            kolo_program_create(&p, &grid, own, NULL) == 0 && kolo_program_check(p) == 0) {
            good++;
            once += held_once(p, g);
            last += heads_are_last(p, g);
            for (int k = 0; k < g->heads; k++) apart += !kolo_plan_owns(p->plan[STAGES - 1], g->head[k]);
            params = 0;
            for (int s = 0; s < STAGES; s++) params += p->plan[s]->arena_bytes[KOLO_ARENA_PARAM];
        } else {
            diag("%s", kolo_error_text());
        }
        kolo_program_destroy(&p);
        kolo_plan_destroy(&own);
        kolo_placement_destroy(&placement);
    }
    is_int(good, CUTS, "%s, evaluated in three stages: programs pass", name);
    is_int(once, CUTS, "%s, evaluated: every weight is in the memory of one stage", name);
    is_int((int64_t)params, (int64_t)whole->arena_bytes[KOLO_ARENA_PARAM],
           "%s, evaluated: all stages' weights are as large as one rank's", name);
    if (!g->heads) return;
    is_int(last, CUTS, "%s, evaluated: all heads are in the last stage's memory", name);
    ok(apart > CUTS / 4, "%s, evaluated: %d of them made by another stage", name, apart);
}

static void test_evaluations(void)
{
    static const char *const net[] = {"resnet20", "yolox_nano", "yolov3_tiny"};
    for (size_t i = 0; i < sizeof net / sizeof *net; i++) {
        kolo_graph *g = NULL;
        kolo_plan *whole = NULL;
        const kolo_model_config c = {.rows = 2,
                                     .height = 64,
                                     .width = 64,
                                     .channels = 3,
                                     .classes = 10,
                                     .words = i ? 1 + 5 * 4 : 1,
                                     .std = {.25f, .25f, .25f}};
        const kolo_plan_config plan = {.ranks = 1, .slots = 1};
        if (kolo_model_graph(&g, net[i], &c) < 0 || kolo_plan_create(&whole, g, backend, &plan, NULL) < 0)
            ok(0, "%s: %s", net[i], kolo_error_text());
        else test_evaluation(net[i], g, whole);
        kolo_plan_destroy(&whole);
        kolo_graph_destroy(&g);
    }
}

int main(void)
{
    const kolo_backend_config config = {.threads = 1, .direct = true, .deterministic = true};
    if (getenv("SEED")) seed = strtoull(getenv("SEED"), NULL, 10);
    diag("SEED=%llu", (unsigned long long)seed);
    if (kolo_backend_create(&backend, "cpu", &config) < 0) {
        printf("Bail out! %s\n", kolo_error_text());
        return 1;
    }
    test_grid();
    test_grid_refused();
    test_grid_irregular();
    test_cuts();
    test_programs();
    test_evaluations();
    test_damage();
    test_damage_late();
    kolo_backend_destroy(&backend);
    return done_testing();
}
