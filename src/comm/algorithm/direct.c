/* One message between every two members: the owner of a part gets what all bring of it and
 * sums it in the tree. */
#include "comm/algorithm/build.h"

#include "kolo/error.h"

static comm_range all_of(int64_t count) { return (comm_range){0, count}; }

/* How a vector is cut: into these parts, or, there being none, evenly. */
typedef struct parts {
    comm_range whole;
    const comm_parts *of;
} parts;

static comm_range part_of(const comm_build *b, const parts *cut, int i)
{
    if (cut->of) return (comm_range){cut->of->at[i], cut->of->at[i] + cut->of->count[i]};
    int64_t count = comm_length(cut->whole), from = cut->whole.from;
    return (comm_range){from + comm_part(count, b->n, i), from + comm_part(count, b->n, i + 1)};
}

/* This member's part comes in from every fragment and is merged in the tree's order; the last merge goes to
 * `out`. What was brought stays as it is. */
static void reduce_parts(comm_build *b, const parts *cut, const comm_tree *tree, comm_place out)
{
    comm_range mine = part_of(b, cut, b->me);
    int64_t count = comm_length(mine), slots = 0;
    bool raw = comm_build_raw(b);
    comm_place *place = comm_build_memory(b, (size_t)tree->fragments * sizeof *place);
    if (!place) return;
    for (int f = 0; f < tree->fragments; f++) {
        const comm_fragment *fragment = &tree->fragment[f];
        if (fragment->node == b->me) {
            place[f] = (comm_place){COMM_PART + fragment->index, mine.from};
            for (int k = 1; k < b->n; k++) {
                int to = (b->me + k) % b->n;
                comm_range theirs = part_of(b, cut, to);
                comm_build_send(b, to, (comm_place){COMM_PART + fragment->index, theirs.from},
                                comm_length(theirs));
            }
        } else {
            place[f] = comm_build_slot(b->spare + slots++ * count, count, raw);
            comm_build_receive(b, fragment->node, place[f], count);
        }
    }
    comm_build_wait_all(b);
    for (int m = 0; m < tree->merges; m++) {
        comm_place *left = &place[tree->merge[m].left], right = place[tree->merge[m].right];
        comm_place to = m == tree->merges - 1 ? out : *left;
        if (to.buffer == COMM_RAW) to = comm_scratch((to.at - count) / 2);
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
    reduce_parts(b, &cut, tree ? tree : &members, comm_build_sum(b, part_of(b, &cut, b->me).from));
    if (b->n > 1) {
        b->brought = false;
        comm_build_settle(b, part_of(b, &cut, b->me));
    }
    spread_parts(b, &cut);
    if (!tree) comm_tree_free(&members);
    return b->s->status;
}

COMM_MAKE(allreduce, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    KOLO_TRY(comm_direct(&b, all_of(p->count), NULL));
    return comm_build_end(&b, all_of(p->count));
}

COMM_MAKE(reduce_scatter, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    int64_t mine = p->counts[p->me];
    /* in place it may lie across its sources */
    comm_place sum = p->in_place ? comm_scratch((p->members - 1) * mine) : comm_own(0);
    comm_tree tree;
    KOLO_TRY(comm_tree_nodes(&tree, p->members));
    comm_parts of = comm_parts_of(&b, p->counts);
    if (of.at) reduce_parts(&b, &(parts){.of = &of}, &tree, sum);
    if (p->members == 1) sum = comm_input(0);
    if (p->in_place != (p->members == 1)) comm_build_copy(&b, comm_own(0), sum, mine);
    comm_tree_free(&tree);
    return schedule->status;
}

COMM_MAKE(allgather, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts of = comm_parts_of(&b, p->counts);
    if (!of.at) return KOLO_ENOMEM;
    if (!p->in_place) comm_build_copy(&b, comm_own(of.at[b.me]), comm_input(0), of.count[b.me]);
    spread_parts(&b, &(parts){.of = &of});
    return schedule->status;
}

COMM_MAKE(gather, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts of = comm_parts_of(&b, p->counts);
    if (!of.at) return KOLO_ENOMEM;
    if (b.me) comm_build_send(&b, 0, comm_input(0), of.count[b.me]);
    else if (!p->in_place) comm_build_copy(&b, comm_own(of.at[0]), comm_input(0), of.count[0]);
    for (int i = 1; !b.me && i < b.n; i++) comm_build_receive(&b, i, comm_own(of.at[i]), of.count[i]);
    comm_build_wait_all(&b);
    return schedule->status;
}

COMM_MAKE(scatter, direct)
{
    comm_build b = comm_build_begin(schedule, p);
    comm_parts of = comm_parts_of(&b, p->counts);
    if (!of.at) return KOLO_ENOMEM;
    if (b.me) comm_build_receive(&b, 0, comm_own(0), of.count[b.me]);
    for (int i = 1; !b.me && i < b.n; i++) comm_build_send(&b, i, comm_input(of.at[i]), of.count[i]);
    comm_build_wait_all(&b);
    if (!b.me && !(p->in_place && of.at[0] == 0))
        comm_build_copy(&b, comm_own(0), comm_input(of.at[0]), of.count[0]);
    return schedule->status;
}
