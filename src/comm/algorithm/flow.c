/* Trees along which a vector flows segment by segment, several side by side: sums up, results down. Two
 * binary trees in which nobody is inner twice carry half of the vector each (Sanders, Speck, Träff,
 * Parallel Computing 2009). */
#include "comm/algorithm/build.h"

enum { FLOW_SEGMENT = 32768 }; /* elements */

typedef struct flow {
    const comm_tree_node *node;
    int trees;
    int64_t segment;
    int deepest;     /* sums flow up through as many levels first; -1: they do not */
    comm_place from; /* of element 0 of what this member brings, in sums also where these are of f32 */
} flow;

static comm_range segment_of(const flow *f, const comm_tree_node *l, int64_t k)
{
    if (k < 0 || k > comm_length(l->range) / f->segment) return (comm_range){0, 0};
    int64_t from = l->range.from + k * f->segment;
    return (comm_range){from, from + f->segment < l->range.to ? from + f->segment : l->range.to};
}

/* The segment that this member handles in a round, on its way up and down. What a member sends in a
 * round, its neighbour takes in the next one, in every tree: so messages between two members come in one
 * order, and nobody waits in a circle. The 2: the request that sent a sum is over before the result comes
 * into the same memory. */
static comm_range going_up(const flow *f, const comm_tree_node *l, int64_t round)
{
    return segment_of(f, l, f->deepest < 0 ? -1 : round - (f->deepest - l->depth));
}
static comm_range going_down(const flow *f, const comm_tree_node *l, int64_t round)
{
    return segment_of(f, l, round - l->depth - (f->deepest < 0 ? 0 : f->deepest + 2));
}

static comm_place slot(const comm_build *b, const flow *f, int tree, int child, int64_t round)
{
    int64_t index = 0;
    for (int t = 0; t < tree; t++) index += f->node[t].children;
    return comm_scratch(b->spare + (2 * (index + child) + round % 2) * f->segment);
}

/* Receives of a round are posted in the round before. */
static int64_t post_receives(comm_build *b, const flow *f, int64_t round)
{
    for (int t = 0; t < f->trees; t++) {
        comm_range r = going_up(f, &f->node[t], round);
        for (int c = 0; c < f->node[t].children; c++)
            comm_build_receive(b, f->node[t].child[c], slot(b, f, t, c, round), comm_length(r));
    }
    for (int t = 0; t < f->trees; t++) {
        comm_range r = going_down(f, &f->node[t], round);
        if (f->node[t].parent >= 0)
            comm_build_receive(b, f->node[t].parent, comm_build_result(b, r.from), comm_length(r));
    }
    return b->s->posts - 1;
}

static void send_up(comm_build *b, const flow *f, int t, int64_t round)
{
    const comm_tree_node *l = &f->node[t];
    comm_range r = going_up(f, l, round);
    comm_place place[COMM_TREE_CHILDREN + 1], sum = comm_shift(f->from, r.from);
    if (l->children) {
        for (int c = 0; c < l->children; c++) place[c + (c >= l->before)] = slot(b, f, t, c, round);
        place[l->before] = sum;
        sum = comm_build_sum(b, r.from);
        comm_build_fold(b, place, l->children + 1, l->before, sum, comm_length(r));
    }
    if (l->parent >= 0) comm_build_send(b, l->parent, sum, comm_length(r));
    else if (f->deepest >= 0) comm_build_settle(b, r);
}

static void send_down(comm_build *b, const flow *f, int t, int64_t round)
{
    const comm_tree_node *l = &f->node[t];
    comm_range r = going_down(f, l, round);
    comm_place from =
        f->deepest >= 0 || l->parent >= 0 ? comm_build_result(b, r.from) : comm_shift(f->from, r.from);
    for (int c = 0; c < l->children; c++) comm_build_send(b, l->child[c], from, comm_length(r));
}

void comm_flow(comm_build *b, const comm_tree_node *node, int trees, int64_t segment, int deepest,
               comm_place from)
{
    flow f = {node, trees, segment > 0 ? segment : FLOW_SEGMENT, deepest,
              b->half ? comm_build_sum(b, 0) : from};
    int64_t longest = 0, last = 0;
    for (int t = 0; t < trees && b->half; t++)
        comm_build_copy(b, comm_build_sum(b, node[t].range.from), comm_input(node[t].range.from),
                        comm_length(node[t].range));
    b->settled = b->half;
    for (int t = 0; t < trees; t++) {
        if (comm_length(node[t].range) > longest) longest = comm_length(node[t].range);
        if (node[t].depth > last) last = node[t].depth;
    }
    if (f.segment > longest) f.segment = longest ? longest : 1;
    int64_t rounds = (longest + f.segment - 1) / f.segment + last + (deepest < 0 ? 0 : deepest + 2);
    int64_t due = post_receives(b, &f, 0);
    for (int64_t round = 0; round < rounds; round++) {
        int64_t next = post_receives(b, &f, round + 1);
        comm_build_wait(b, due);
        for (int t = 0; t < trees; t++) send_up(b, &f, t, round);
        for (int t = 0; t < trees; t++) send_down(b, &f, t, round);
        due = next;
    }
    comm_build_wait_all(b);
}

/* The in-order binary tree over 1 .. n - 1 with 0 on top: a number's lowest bit is its height. */
static void binary_node(comm_tree_node *l, int v, int n)
{
    int bit = v & -v;
    *l = (comm_tree_node){.parent = -1};
    if (v == 0) {
        if (n > 1) l->child[l->children++] = comm_power_until(n - 1);
        return;
    }
    for (int at = v; at; l->depth++) { /* up to the root */
        int low = at & -at, up = (at ^ low) | (low * 2);
        at = up < n ? up : at ^ low;
        if (l->parent < 0) l->parent = at;
    }
    if (bit == 1) return;
    l->child[l->children++] = v - bit / 2;
    l->before = 1;
    for (bit /= 2; bit; bit /= 2) {
        if (v + bit >= n) continue;
        l->child[l->children++] = v + bit;
        break;
    }
}

/* node[0]: the tree; node[1]: the same on members shifted by one, or mirrored, so that leaves become
 * inner. */
static void two_trees(comm_tree_node node[2], int v, int n, comm_range whole)
{
    for (int t = 0; t < 2; t++) {
        int at = t == 0 ? v : n % 2 == 0 ? n - 1 - v : (v + n - 1) % n;
        binary_node(&node[t], at, n);
        for (int c = -1; c < node[t].children; c++) {
            int *who = c < 0 ? &node[t].parent : &node[t].child[c];
            if (*who >= 0) *who = (t == 0 ? *who : n % 2 == 0 ? n - 1 - *who : *who + 1) % n;
        }
        node[t].range = comm_cut(whole, 2, t);
    }
}

COMM_MAKE(allreduce, double_binary_tree)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_tree_node node[2];
    two_trees(node, b.me, b.n, (comm_range){0, p->count});
    int deepest = 0;
    while (p->members > 1 << deepest) deepest++;
    comm_flow(&b, node, 2, p->segment, deepest, p->in_place ? comm_own(0) : comm_input(0));
    b.brought = b.brought && p->members == 1;
    return comm_build_end(&b, (comm_range){0, p->count});
}

/* The root feeds both trees: it stands on top of them, above the two trees over the other members. */
COMM_MAKE(broadcast, pipelined_tree)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_tree_node node[2];
    int n = p->members - 1; /* others */
    bool root = b.me == 0;
    comm_range whole = {0, p->count};

    for (int t = 0; t < 2; t++) node[t] = (comm_tree_node){.parent = -1, .range = comm_cut(whole, 2, t)};
    if (n > 0 && !root) two_trees(node, b.me - 1, n, whole);
    for (int t = 0; t < 2 && n > 0; t++) {
        int top = t == 0 ? 0 : n % 2 == 0 ? n - 1 : 1 % n;
        if (root) {
            node[t].child[node[t].children++] = 1 + top;
            continue;
        }
        node[t].depth++;
        node[t].parent++; /* -1 becomes the root */
        for (int c = 0; c < node[t].children; c++) node[t].child[c]++;
    }
    comm_flow(&b, node, 2, p->segment, -1, root && !p->in_place ? comm_input(0) : comm_own(0));
    b.brought = root && !p->in_place;
    return comm_build_end(&b, whole);
}
