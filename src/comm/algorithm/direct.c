/* One message between every two members: the owner of a part gets what all bring of it and sums it in the tree. */
#include "comm/algorithm/build.h"

#include <stdlib.h>

#include "kolo/error.h"

static comm_range all_of(int64_t count) { return (comm_range){0, count}; }

/* How a vector is cut: at offset[i], or, offset being NULL, evenly. */
typedef struct parts {
    comm_range whole;
    const int64_t *offset;
} parts;

static comm_range part_of(const comm_build *b, const parts *cut, int i)
{
    if (cut->offset) return (comm_range){cut->offset[i], cut->offset[i + 1]};
    int64_t count = comm_length(cut->whole), from = cut->whole.from;
    return (comm_range){from + comm_part(count, b->n, i), from + comm_part(count, b->n, i + 1)};
}

/* This member's part comes in from every fragment and is merged in the tree's order; the last merge goes to `out`. What was brought stays as it is. */
static void reduce_parts(comm_build *b, const parts *cut, const comm_tree *tree, comm_place out)
{
    comm_range mine = part_of(b, cut, b->me);
    int64_t count = comm_length(mine), slots = 0;
    comm_place *place = comm_build_places(b, tree->fragments);
    if (!place) return;
    for (int f = 0; f < tree->fragments; f++) {
        const comm_fragment *fragment = &tree->fragment[f];
        if (fragment->node == b->me) {
            place[f] = (comm_place){COMM_PART + fragment->index, mine.from};
            for (int k = 1; k < b->n; k++) {
                int to = (b->me + k) % b->n;
                comm_range theirs = part_of(b, cut, to);
                comm_build_send(b, to, (comm_place){COMM_PART + fragment->index, theirs.from}, comm_length(theirs));
            }
        } else {
            place[f] = comm_scratch(b->spare + slots++ * count);
            comm_build_receive(b, fragment->node, place[f], count);
        }
    }
    comm_build_wait_all(b);
    for (int m = 0; m < tree->merges; m++) {
        comm_place *left = &place[tree->merge[m].left], right = place[tree->merge[m].right];
        comm_place to = m == tree->merges - 1 ? out : *left;
        if (to.buffer >= COMM_PART) to = comm_scratch(b->spare + slots++ * count);
        comm_build_combine(b, to, *left, right, count);
        *left = to;
    }
}

static void spread_parts(comm_build *b, const parts *cut)
{
    comm_range mine = part_of(b, cut, b->me);
    for (int k = 1; k < b->n; k++) {
        int to = (b->me + k) % b->n, of = (b->me + b->n - k) % b->n;
        comm_range theirs = part_of(b, cut, of);
        comm_build_receive(b, of, comm_own(theirs.from), comm_length(theirs));
        comm_build_send(b, to, comm_own(mine.from), comm_length(mine));
    }
    comm_build_wait_all(b);
}

int comm_direct(comm_build *b, comm_range r, const comm_tree *tree)
{
    const parts cut = {r, NULL};
    comm_tree members;
    if (!tree) KOLO_TRY(comm_tree_nodes(&members, b->n));
    reduce_parts(b, &cut, tree ? tree : &members, comm_own(part_of(b, &cut, b->me).from));
    spread_parts(b, &cut);
    b->brought = b->brought && b->n == 1;
    if (!tree) comm_tree_free(&members);
    return b->s->status;
}

int comm_make_allreduce_direct(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    KOLO_TRY(comm_direct(&b, all_of(p->count), NULL));
    return comm_build_end(&b, all_of(p->count));
}

int comm_make_reduce_scatter_direct(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    int64_t mine = p->counts[p->me];
    comm_place sum =
        p->in_place ? comm_scratch((p->members - 1) * mine) : comm_own(0); /* in place it may lie across its sources */
    comm_tree tree;
    KOLO_TRY(comm_tree_nodes(&tree, p->members));
    int64_t *offset = comm_offsets(p->counts, p->members);
    if (!offset) schedule->status = KOLO_ECONFIG;
    else reduce_parts(&b, &(parts){.offset = offset}, &tree, sum);
    if (p->members == 1) sum = comm_input(0);
    if (p->in_place != (p->members == 1)) comm_build_copy(&b, comm_own(0), sum, mine);
    comm_tree_free(&tree);
    free(offset);
    return schedule->status;
}

int comm_make_allgather_direct(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    int64_t *offset = comm_offsets(p->counts, p->members);
    if (!offset) return KOLO_ECONFIG;
    if (!p->in_place) comm_build_copy(&b, comm_own(offset[p->me]), comm_input(0), p->counts[p->me]);
    spread_parts(&b, &(parts){.offset = offset});
    free(offset);
    return schedule->status;
}

int comm_make_gather_direct(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    int64_t at = 0;
    if (p->me != p->root) comm_build_send(&b, p->root, comm_input(0), p->counts[p->me]);
    for (int i = 0; p->me == p->root && i < p->members; at += p->counts[i++]) {
        if (i != p->me) comm_build_receive(&b, i, comm_own(at), p->counts[i]);
        else if (!p->in_place) comm_build_copy(&b, comm_own(at), comm_input(0), p->counts[i]);
    }
    comm_build_wait_all(&b);
    return schedule->status;
}

int comm_make_scatter_direct(comm_schedule *schedule, const comm_problem *p)
{
    comm_build b = comm_build_begin(schedule, p);
    int64_t at = 0, mine = 0;
    if (p->me != p->root) comm_build_receive(&b, p->root, comm_own(0), p->counts[p->me]);
    for (int i = 0; p->me == p->root && i < p->members; at += p->counts[i++]) {
        if (i != p->me) comm_build_send(&b, i, comm_input(at), p->counts[i]);
        else mine = at;
    }
    comm_build_wait_all(&b);
    if (p->me == p->root && !(p->in_place && mine == 0))
        comm_build_copy(&b, comm_own(0), comm_input(mine), p->counts[p->me]);
    return schedule->status;
}
