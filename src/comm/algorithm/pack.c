/* Several spanning trees use the links that a single ring or tree leaves idle (Wang et al., Blink, MLSys
 * 2020). Blink packs them by multiplicative weights and then thins out the many trees it gets. Edmonds'
 * theorem is shorter and exact: as long as every rank can still be reached by a flow of k - w from the root
 * when a tree of weight w is taken away, that many more trees fit (Lovász, "On two minimax theorems in
 * graph", JCT B 1976, is the proof that we follow): a tree grows link by link, and a link is taken if the
 * flow to its end stays large enough. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "comm/algorithm/stages.h"

/* UNITS: into so many the bound is cut at most, a tree each */
enum { RANKS = COMM_PACK_RANKS, UNITS = 96 };

typedef struct packed_trees {
    int trees, units; /* units: sum of weights */
    int weight[UNITS];
    int parent[UNITS][RANKS]; /* -1: the root */
} packed_trees;

typedef struct net {
    int n, root;
    double cap[RANKS][RANKS];
} net;

static double larger(double a, double b) { return a > b ? a : b; }
static double lesser(double a, double b) { return a < b ? a : b; }

static void net_open(net *g, const double *links, int n, int root, bool both)
{
    *g = (net){.n = n, .root = root};
    for (int u = 0; u < n; u++)
        for (int v = 0; v < n; v++) {
            double c = links[u * n + v], back = links[v * n + u];
            if (both && !(back >= c)) c = back;
            if (u != v && c > 0 && isfinite(c)) g->cap[u][v] = c;
        }
}

/* Augments along the shortest path; returns by how much, 0 when there is none. */
static double augment(double rest[RANKS][RANKS], int n, int root, int to)
{
    int from[RANKS], queue[RANKS], head = 0, tail = 0;
    for (int v = 0; v < n; v++) from[v] = -1;
    from[root] = root;
    queue[tail++] = root;
    while (head < tail && from[to] < 0) {
        int u = queue[head++];
        for (int v = 0; v < n; v++)
            if (from[v] < 0 && rest[u][v] > 1e-9) {
                from[v] = u;
                queue[tail++] = v;
            }
    }
    if (from[to] < 0) return 0;
    double least = INFINITY;
    for (int v = to; v != root; v = from[v]) least = lesser(least, rest[from[v]][v]);
    for (int v = to; v != root; v = from[v]) {
        rest[from[v]][v] -= least;
        rest[v][from[v]] += least;
    }
    return least;
}

/* The largest flow from the root, or `enough`, where it is more. */
static double flow_to(const net *g, int to, double enough)
{
    double rest[RANKS][RANKS], flow = 0, more;
    memcpy(rest, g->cap, sizeof rest);
    while (flow < enough && (more = augment(rest, g->n, g->root, to)) > 0) flow += more;
    return lesser(flow, enough);
}

static double least_flow(const net *g)
{
    double least = INFINITY;
    for (int v = 0; v < g->n; v++)
        if (v != g->root) least = flow_to(g, v, least);
    return g->n > 1 ? least : 0;
}

double comm_pack_bound(const double *links, int n, int root, bool both)
{
    net g;
    net_open(&g, links, n, root, both);
    return least_flow(&g);
}

/* Takes a tree of weight w out of the net such that a flow of `left` to everybody stays; false: there is
 * none, and nothing is taken. */
static bool grow(net *g, int w, double left, int parent[RANKS])
{
    int in[RANKS] = {g->root}, count = 1;
    const net before = *g;
    for (int v = 0; v < g->n; v++) parent[v] = -1;
    while (count < g->n) {
        bool found = false;
        for (int i = 0; i < count && !found; i++) /* nearest to the root first: shallow trees */
            for (int v = 0; v < g->n && !found; v++) {
                double *cap = &g->cap[in[i]][v];
                if (v == g->root || parent[v] >= 0 || *cap < w) continue;
                *cap -= w;
                found = flow_to(g, v, left) >= left;
                if (!found) *cap += w;
                else parent[v] = in[i];
                if (found) in[count++] = v;
            }
        if (!found) {
            *g = before;
            return false;
        }
    }
    return true;
}

/* No tree is heavier: everybody has a link that carries as much. */
static int heaviest(const net *g)
{
    double least = INFINITY;
    for (int v = 0; v < g->n; v++) {
        double best = 0;
        for (int u = 0; u < g->n; u++) best = larger(best, g->cap[u][v]);
        if (v != g->root) least = lesser(least, best);
    }
    return (int)least;
}

/* The largest capacity below `limit` that a link still has. */
static int next_weight(const net *g, int limit)
{
    double best = 1;
    for (int u = 0; u < g->n; u++)
        for (int v = 0; v < g->n; v++)
            if (g->cap[u][v] < limit) best = larger(best, g->cap[u][v]);
    return (int)best;
}

/* Capacities in whole units, so that all sums are exact: as few units as lose no more than 4 % of the bound,
 * or those that lose least. */
static void round_down(net *g)
{
    const net exact = *g;
    double bound = least_flow(g), best = 0;
    for (int units = 1; units <= UNITS && best < .96; units++) {
        net cut = exact;
        for (int u = 0; u < g->n; u++)
            for (int v = 0; v < g->n; v++)
                cut.cap[u][v] = floor(lesser(exact.cap[u][v] * units / bound + 1e-6, units));
        double share = least_flow(&cut) / units;
        if (share <= best) continue;
        best = share;
        *g = cut;
    }
}

/* Trees of which no link carries more than it can, close to the bound together; 0 trees: some rank cannot
 * be reached. Where results and sums flow at the same time, a link may be taken by a tree's sums and by
 * another's results, and carry up to twice as much. */
static void pack(packed_trees *packing, const double *links, int n, int root, bool both)
{
    net g;
    *packing = (packed_trees){0};
    net_open(&g, links, n, root, both);
    if (!(least_flow(&g) > 0)) return;
    round_down(&g);
    int rest = (int)least_flow(&g);
    while (rest > 0) {
        int w = rest < heaviest(&g) ? rest : heaviest(&g);
        /* w = 1 always grows */
        while (!grow(&g, w, rest - w, packing->parent[packing->trees])) w = next_weight(&g, w);
        packing->weight[packing->trees++] = w;
        packing->units += w;
        rest -= w;
    }
}

static int depth_of(const int *parent, int v)
{
    int depth = 0;
    for (; parent[v] >= 0; v = parent[v]) depth++;
    return depth;
}

static int deepest_of(const packed_trees *packing, int n)
{
    int deepest = 0;
    for (int t = 0; t < packing->trees; t++)
        for (int v = 0; v < n; v++)
            if (depth_of(packing->parent[t], v) > deepest) deepest = depth_of(packing->parent[t], v);
    return deepest;
}

double comm_pack_seconds(const double *links, int n, int root, bool both, double bytes, int *deepest)
{
    packed_trees *packing = kolo_alloc(sizeof *packing);
    double sends[RANKS] = {0}, most = -1;
    if (packing) pack(packing, links, n, root, both);
    for (int t = 0; packing && t < packing->trees; t++)
        for (int v = 0; v < n; v++) {
            int up = packing->parent[t][v];
            double share = bytes * packing->weight[t] / packing->units / 1e9;
            if (up < 0) continue;
            sends[up] += share / links[up * n + v];
            if (both) sends[v] += share / links[v * n + up];
        }
    for (int v = 0; packing && packing->trees && v < n; v++) most = larger(most, sends[v]);
    *deepest = packing ? deepest_of(packing, n) : 0;
    free(packing);
    return most;
}

static void tree_node_of(comm_tree_node *l, const int *parent, int n, int me)
{
    *l = (comm_tree_node){.parent = parent[me], .depth = depth_of(parent, me)};
    for (int v = 0; v < n; v++)
        if (parent[v] == me) l->child[l->children++] = v;
}

/* The vector is cut in proportion to the trees' weights. */
static int64_t share_before(const packed_trees *packing, int64_t count, int64_t weights)
{
    return count / packing->units * weights + count % packing->units * weights / packing->units;
}

static int packed(comm_schedule *schedule, const comm_problem *p, bool up)
{
    comm_build b = comm_build_begin(schedule, p);
    packed_trees *packing = comm_build_memory(&b, sizeof *packing);
    comm_tree_node *node = comm_build_memory(&b, UNITS * sizeof *node);
    bool source = up || p->me == p->root;
    int64_t before = 0;
    b.member = NULL; /* links are those of members by their numbers */
    b.me = p->me;
    if (!packing || !node) return schedule->status;
    pack(packing, p->links, p->members, up ? 0 : p->root, up);
    for (int t = 0; t < packing->trees; t++) {
        tree_node_of(&node[t], packing->parent[t], p->members, p->me);
        node[t].range.from = share_before(packing, p->count, before);
        node[t].range.to = share_before(packing, p->count, before += packing->weight[t]);
    }
    comm_flow(&b, node, packing->trees, p->segment, up ? deepest_of(packing, p->members) : -1,
              source && !p->in_place ? comm_input(0) : comm_own(0));
    b.brought = source && !p->in_place && (!up || p->members == 1);
    return comm_build_end(&b, (comm_range){0, p->count});
}

COMM_MAKE(allreduce, packed_trees) { return packed(schedule, p, true); }
COMM_MAKE(broadcast, packed_trees) { return packed(schedule, p, false); }
