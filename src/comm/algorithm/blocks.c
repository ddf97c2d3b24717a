/* Recursive halving, farthest partner first, within blocks of powers of two (members of the bits of n,
 * largest first); the sums then go from block to block, smallest first, and back. Traffic between neighbours
 * is the least here: for ranks that were dealt to nodes in turn. Thakur, Rabenseifner, Gropp, IJHPCA 2005. */
#include "comm/algorithm/build.h"

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

/* Piece i of a block of d: the highest bit chose first, so that pieces lie in order and those of a larger
 * block nest in these. */
static comm_range piece_of(comm_range r, int i, int d)
{
    for (int bit = d / 2; bit >= 1; bit /= 2) r = comm_half(r, (i & bit) != 0);
    return r;
}

static void blocks_take(comm_build *b, int from, comm_range r, bool mine_left)
{
    comm_build_receive(b, from, comm_scratch(b->spare), comm_length(r));
    comm_build_wait_all(b);
    comm_build_add(b, r, mine_left, comm_scratch(b->spare));
}

static void reduce_block(comm_build *b, const blocks *v, comm_range whole)
{
    int i = b->me - v->first;
    for (int d = v->size / 2, parts = 2; d >= 1; d /= 2, parts *= 2) {
        comm_range give = piece_of(whole, (i ^ d) / d, parts);
        comm_build_send(b, v->first + (i ^ d), comm_build_mine(b, give.from), comm_length(give));
        blocks_take(b, v->first + (i ^ d), piece_of(whole, i / d, parts), (i & d) == 0);
    }
}

static void gather_block(comm_build *b, const blocks *v, comm_range whole)
{
    int i = b->me - v->first;
    for (int d = 1, parts = v->size; d < v->size; d *= 2, parts /= 2) {
        comm_range other = piece_of(whole, (i ^ d) / d, parts), mine = piece_of(whole, i / d, parts);
        comm_build_receive(b, v->first + (i ^ d), comm_build_result(b, other.from), comm_length(other));
        comm_build_send(b, v->first + (i ^ d), comm_build_result(b, mine.from), comm_length(mine));
        comm_build_wait_all(b);
    }
}

COMM_MAKE(allreduce, binary_blocks)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_range whole = {0, p->count};
    blocks v = blocks_of(b.me, b.n);
    int i = b.me - v.first, share = v.larger ? v.larger / v.size : 0;
    comm_range mine = piece_of(whole, i, v.size);
    comm_build_widen(&b, whole);
    reduce_block(&b, &v, whole);
    if (v.smaller) blocks_take(&b, v.smaller_first + i / (v.size / v.smaller), mine, true);
    for (int x = 0; x < share; x++) {
        comm_range r = piece_of(whole, i * share + x, v.larger);
        comm_build_send(&b, v.larger_first + i * share + x, comm_build_mine(&b, r.from), comm_length(r));
    }
    comm_build_wait_all(&b);
    for (int x = 0; x < share; x++) {
        comm_range r = piece_of(whole, i * share + x, v.larger);
        comm_build_receive(&b, v.larger_first + i * share + x, comm_build_result(&b, r.from), comm_length(r));
    }
    comm_build_wait_all(&b);
    if (!v.larger) comm_build_settle(&b, mine);
    b.settled = true;
    if (v.smaller)
        comm_build_send(&b, v.smaller_first + i / (v.size / v.smaller), comm_build_result(&b, mine.from),
                        comm_length(mine));
    comm_build_wait_all(&b);
    gather_block(&b, &v, whole);
    b.brought = b.brought && p->members == 1;
    return comm_build_end(&b, whole);
}
