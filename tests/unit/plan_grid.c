/* Ranks by stage and replica, of nodes in any order. */
#include "plan/program.h"

#include "kolo/error.h"
#include "tap.h"

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

int main(void)
{
    test_grid();
    test_grid_refused();
    test_grid_irregular();
    return done_testing();
}
