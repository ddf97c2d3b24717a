/* Rabenseifner's algorithm, nearest partner first: at level d the members form blocks of 2d, cut into a left
 * half (always whole) and a right half of up to d members. Where both are whole, partners halve what they
 * hold; where the right one is short it hands over its sum and rests (binary blocks). So an element's sum is
 * the tree of schedule.h. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004. */
#include "comm/algorithm/build.h"

enum { LEVELS = 32 };

typedef struct level {
    int base, middle, right;
} level; /* right: members of the right half, 0 if there is none */

static level level_of(const comm_build *b, int d)
{
    int base = b->me & ~(2 * d - 1), middle = base + d, end = base + 2 * d < b->n ? base + 2 * d : b->n;
    return (level){base, middle, end > middle ? end - middle : 0};
}

/* One level of the reduce-scatter. Returns false when this member hands over what it holds and rests. */
static bool reduce_level(comm_build *b, int d, level v, bool raw, comm_range whole, comm_range *mine)
{
    bool left = b->me < v.middle;
    if (v.right == d) {
        int peer = b->me ^ d;
        comm_range keep = comm_half(*mine, !left), give = comm_half(*mine, left);
        comm_build_receive(b, peer, comm_build_slot(b->spare, comm_length(keep), raw), comm_length(keep));
        comm_build_send(b, peer, comm_build_mine(b, give.from), comm_length(give));
        comm_build_wait_all(b);
        comm_build_add(b, keep, left, comm_build_slot(b->spare, comm_length(keep), raw));
        *mine = keep;
        return true;
    }
    int holders = comm_power_until(v.right); /* of the right half's sum: its first members */
    if (left) {
        comm_build_receive(b, v.middle + (b->me - v.base) % holders, comm_scratch(b->spare),
                           comm_length(*mine));
        comm_build_wait_all(b);
        comm_build_add(b, *mine, true, comm_scratch(b->spare));
        return true;
    }
    for (int i = b->me - v.middle; i < d; i += holders) {
        comm_range r = comm_halved(whole, i, d);
        comm_build_send(b, v.base + i, comm_build_mine(b, r.from), comm_length(r));
    }
    comm_build_wait_all(b);
    return false;
}

/* The same level on the way back: what was given away returns. before: what this member
 * held before that level. */
static void gather_level(comm_build *b, int d, level v, comm_range whole, comm_range mine, comm_range before)
{
    int holders = comm_power_until(v.right);
    bool left = b->me < v.middle;
    if (v.right == d) {
        comm_range other = comm_half(before, left);
        comm_build_receive(b, b->me ^ d, comm_build_result(b, other.from), comm_length(other));
        comm_build_send(b, b->me ^ d, comm_build_result(b, mine.from), comm_length(mine));
    } else if (left) {
        comm_build_send(b, v.middle + (b->me - v.base) % holders, comm_build_result(b, mine.from),
                        comm_length(mine));
    } else {
        for (int i = b->me - v.middle; i < d; i += holders) {
            comm_range r = comm_halved(whole, i, d);
            comm_build_receive(b, v.base + i, comm_build_result(b, r.from), comm_length(r));
        }
    }
    comm_build_wait_all(b);
}

/* The reduce-scatter. before: what this member held before each level; returns how many
 * levels it took part in. */
static int reduce_levels(comm_build *b, comm_range whole, comm_range before[LEVELS], comm_range *mine,
                         bool *holds)
{
    int levels = 0;
    bool raw = comm_build_raw(b);
    *mine = whole;
    *holds = true;
    for (int d = 1; d < b->n && *holds; d *= 2, levels++) {
        level v = level_of(b, d);
        before[levels] = *mine;
        if (d > 1) comm_build_widen(b, whole);
        if (v.right) *holds = reduce_level(b, d, v, raw && d == 1, whole, mine);
    }
    return levels;
}

/* The way back: of what was cut in `levels`, all get all. */
static void gather_levels(comm_build *b, comm_range whole, comm_range mine, const comm_range before[LEVELS],
                          int levels)
{
    for (int l = levels - 1; l >= 0; l--) {
        level v = level_of(b, 1 << l);
        if (v.right) gather_level(b, 1 << l, v, whole, mine, before[l]);
        mine = before[l];
    }
}

void comm_halve(comm_build *b, comm_range r)
{
    comm_range before[LEVELS], mine;
    bool holds;
    int levels = reduce_levels(b, r, before, &mine, &holds);
    comm_build_widen(b, r);
    if (holds) comm_build_settle(b, mine);
    b->settled = true;
    gather_levels(b, r, mine, before, levels);
}

COMM_MAKE(allreduce, rabenseifner)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_halve(&b, (comm_range){0, p->count});
    b.brought = b.brought && p->members == 1;
    return comm_build_end(&b, (comm_range){0, p->count});
}

/* ---- binary blocks ------------------------------------------------------------------------------------- */

/* Recursive halving, farthest partner first, within blocks of powers of two (members of the bits of n,
 * largest first); the sums then go from block to block, smallest first, and back. Traffic between neighbours
 * is the least here: for ranks that were dealt to nodes in turn. Thakur, Rabenseifner, Gropp, IJHPCA 2005. */
typedef struct blocks {
    int first, size;            /* of this member's block */
    int larger_first, larger;   /* the block before; larger: 0 if there is none */
    int smaller_first, smaller; /* the block behind */
} blocks;

static blocks blocks_of(int me, int n)
{
    blocks v = {0};
    while (n - v.first > 0) {
        v.size = comm_power_until(n - v.first);
        if (me < v.first + v.size) break;
        v.larger_first = v.first;
        v.larger = v.size;
        v.first += v.size;
    }
    v.smaller_first = v.first + v.size;
    v.smaller = n > v.smaller_first ? comm_power_until(n - v.smaller_first) : 0;
    return v;
}

/* i < d with its bits turned around: by such numbers the farthest partner is the nearest, and pieces lie in
 * order, so that those of a larger block nest in these. */
static int reversed(int i, int d)
{
    int r = 0;
    for (int bit = 1; bit < d; bit *= 2, i /= 2) r = 2 * r + i % 2;
    return r;
}

static comm_range piece_of(comm_range r, int i, int d) { return comm_halved(r, reversed(i, d), d); }

COMM_MAKE(allreduce, binary_blocks)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_range whole = {0, p->count}, before[LEVELS], mine;
    blocks v = blocks_of(b.me, b.n);
    int i = b.me - v.first, share = v.larger ? v.larger / v.size : 0,
        smaller = v.smaller ? v.smaller_first + i / (v.size / v.smaller) : 0;
    int *member = comm_build_memory(&b, (size_t)v.size * sizeof *member);
    bool holds;
    if (!member) return schedule->status;
    for (int k = 0; k < v.size; k++) member[reversed(k, v.size)] = comm_member(&b, v.first + k);
    comm_build_widen(&b, whole);
    comm_build team = b;
    team.member = member;
    team.me = reversed(i, v.size);
    team.n = v.size;
    int levels = reduce_levels(&team, whole, before, &mine, &holds);
    b.brought = team.brought;
    if (v.smaller) {
        comm_build_receive(&b, smaller, comm_scratch(b.spare), comm_length(mine));
        comm_build_wait_all(&b);
        comm_build_add(&b, mine, true, comm_scratch(b.spare));
    }
    for (int back = 0; back < 2; back++) { /* pieces of the larger block, there and back */
        for (int x = i * share; x < (i + 1) * share; x++) {
            comm_range r = piece_of(whole, x, v.larger);
            if (back)
                comm_build_receive(&b, v.larger_first + x, comm_build_result(&b, r.from), comm_length(r));
            else comm_build_send(&b, v.larger_first + x, comm_build_mine(&b, r.from), comm_length(r));
        }
        comm_build_wait_all(&b);
    }
    if (!v.larger) comm_build_settle(&b, mine);
    b.settled = true;
    if (v.smaller) comm_build_send(&b, smaller, comm_build_result(&b, mine.from), comm_length(mine));
    comm_build_wait_all(&b);
    gather_levels(&team, whole, mine, before, levels);
    b.brought = b.brought && p->members == 1;
    return comm_build_end(&b, whole);
}

/* Sums are formed in scratch; pieces are halves of halves, wherever the parts' borders lie. Then the holders
 * send the parts to their owners. */
COMM_MAKE(reduce_scatter, recursive_halving)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts part = comm_parts_of(&b, p->counts);
    if (!part.at) return KOLO_ENOMEM;
    comm_range whole = {0, 0}, own = {part.at[b.me], part.at[b.me] + part.count[b.me]}, before[LEVELS], mine;
    for (int i = 0; i < b.n; i++) whole.to += part.count[i];
    bool holds;
    b.brought = true;
    if ((b.me ^ 1) < b.n) {
        comm_range kept = comm_half(whole, b.me & 1);
        b.sum = comm_scratch(-kept.from);
        b.spare = comm_length(kept);
    }
    reduce_levels(&b, whole, before, &mine, &holds);
    int holders = comm_power_until(b.n);
    for (int i = 0; i < holders; i++) {
        comm_range r = comm_both(comm_halved(whole, i, holders), own);
        if (i != b.me) comm_build_receive(&b, i, comm_own(r.from - own.from), comm_length(r));
    }
    for (int k = 0; holds && k < b.n; k++) {
        comm_range r = comm_both(mine, (comm_range){part.at[k], part.at[k] + part.count[k]});
        if (k != b.me) comm_build_send(&b, k, comm_build_mine(&b, r.from), comm_length(r));
        else if (!p->in_place || b.n > 1)
            comm_build_copy(&b, comm_own(r.from - own.from), comm_build_mine(&b, r.from), comm_length(r));
    }
    comm_build_wait_all(&b);
    return schedule->status;
}

/* ---- broadcast ----------------------------------------------------------------------------------------- */

/* The levels of reduce_levels, where nothing is summed. */
static int cut_levels(const comm_build *b, comm_range whole, comm_range before[LEVELS], comm_range *mine)
{
    int levels = 0;
    bool holds = true;
    *mine = whole;
    for (int d = 1; d < b->n && holds; d *= 2, levels++) {
        level v = level_of(b, d);
        before[levels] = *mine;
        if (v.right == d) *mine = comm_half(*mine, b->me >= v.middle);
        else holds = !v.right || b->me < v.middle;
    }
    return levels;
}

/* A binomial tree whose first steps are the nearest, with the largest halves: so every member of the root's
 * node has a part before any leaves it, and all of them, as later those of other nodes, send at once. */
static void scatter_halves(comm_build *b, comm_range piece)
{
    int holders = comm_power_until(b->n), d = 1;
    if (b->me >= holders) return;
    if (b->me > 0) {
        d = comm_power_until(b->me);
        piece = comm_halved(piece, b->me, 2 * d);
        comm_build_receive(b, b->me - d, comm_own(piece.from), comm_length(piece));
        comm_build_wait_all(b);
        d *= 2;
    }
    for (; d < holders; d *= 2) {
        comm_range give = comm_half(piece, true);
        comm_build_send(b, b->me + d, comm_own(give.from), comm_length(give));
        piece = comm_half(piece, false);
    }
    comm_build_wait_all(b);
}

COMM_MAKE(broadcast, scatter_doubling)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_range whole = {0, p->count}, before[LEVELS], mine;
    b.brought = b.me == 0 && !p->in_place;
    if (b.me == 0) comm_build_end(&b, whole);
    int levels = cut_levels(&b, whole, before, &mine);
    scatter_halves(&b, whole);
    gather_levels(&b, whole, mine, before, levels);
    return schedule->status;
}
