/* Buckets whose parts the caller cuts: a reduce_scatter and an allgather have the bytes of an allreduce of
 * the same data, whatever the cut, also compressed, and where windows of the same memory are used in turns;
 * wrong cuts are refused. mpiexec -n 1, 2, 3, 4 or 7 comm_cuts SEED. */
#include "comm_maps.h"

#include "../comm_program.h"
#include "comm/buckets/trainer.h"
#include "comm/core/schedule.h"

enum { MOST = 40000, ARENA = 2 * MOST + 256, CUTS = 6, ROUNDS = 2 };

static const struct {
    map map;
    int owners, owner[8];
} place_of[] = {
    {{1, "one rank", {0}}, 1, {0}},
    {{2, "one node", {0}}, 2, {0, 1}},
    {{2, "1+1", {0, 1}}, 2, {0, 1}},
    {{3, "one node", {0}}, 3, {0, 1, 2}},
    {{3, "2+1", {0, 0, 1}}, 2, {0, 2}},
    {{4, "one node", {0}}, 4, {0, 1, 2, 3}},
    {{4, "2+2", {0, 0, 1, 1}}, 4, {0, 2, 1, 3}},
    {{4, "2+2 cyclic", {0, 1, 0, 1}}, 4, {0, 1, 2, 3}},
    {{4, "1+1+1+1", {0, 1, 2, 3}}, 4, {0, 1, 2, 3}},
    {{7, "one node", {0}}, 7, {0, 1, 2, 3, 4, 5, 6}},
    {{7, "3+2+2", {0, 0, 0, 1, 1, 2, 2}}, 6, {0, 3, 5, 1, 4, 6}},
    {{7, "cyclic over 3", {0, 1, 2, 0, 1, 2, 0}}, 6, {0, 1, 2, 3, 4, 5}},
    {{7, "1 rank a node", {0, 1, 2, 3, 4, 5, 6}}, 7, {0, 1, 2, 3, 4, 5, 6}},
};

static int open_comm(kolo_comm **comm, world *w, bool canonical)
{
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = (size_t)ARENA * 4,
                                     .canonical = canonical,
                                     .timeout = 10,
                                     .spin = 20};
    return kolo_comm_create(comm, &w->launch, &config);
}

static int64_t differing(const float *a, const float *b, int64_t count)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++) bad += memcmp(&a[i], &b[i], 4) != 0;
    return bad;
}

static int turn(kolo_comm *comm, int bucket)
{
    KOLO_TRY(kolo_comm_start(comm, bucket));
    return kolo_comm_wait(comm, bucket);
}

/* ---- the bytes of an allreduce ---- */

/* A vector in a window of its own: all of them overlap. */
typedef struct vector {
    bool mine;
    int64_t count, window; /* window: the element where it begins */
    int whole, scatter, gather;
} vector;

static void draw_members(dice *d, int *members, int *count)
{
    for (*count = 0; *count == 0;)
        for (int r = 0; r < size; r++)
            if (roll(d, 3)) members[(*count)++] = r;
}

static int declare_vector(kolo_comm *comm, vector *v, dice *d, bool all)
{
    int members[8], ranks = size;
    const dice cut = {.seed = 1 + (uint64_t)roll(d, 1000000)};
    for (int r = 0; r < size; r++) members[r] = r;
    if (!all) draw_members(d, members, &ranks);
    const int group = kolo_comm_group(comm, members, ranks);
    KOLO_TRY(group);
    *v = (vector){.count = 1 + roll(d, roll(d, 3) ? MOST : 9), .window = MOST + 1 + roll(d, 200)};
    for (int r = 0; r < ranks; r++) v->mine |= members[r] == rank;
    KOLO_TRY(v->whole = kolo_comm_bucket_of(comm, group, KOLO_ALLREDUCE, 0, v->count));
    KOLO_TRY(v->scatter = declare_cut(comm, group, members, ranks, KOLO_REDUCE_SCATTER, (size_t)v->window * 4,
                                      v->count, cut));
    return v->gather =
               declare_cut(comm, group, members, ranks, KOLO_ALLGATHER, (size_t)v->window * 4, v->count, cut);
}

/* What a rank has of the sum goes to all; what it has not, and what is beside the window, does not matter, or
 * stays. */
static int64_t play(kolo_comm *comm, const vector *v, int round)
{
    float *whole = kolo_comm_arena(comm), *at = whole + v->window;
    int64_t first, count, bad;
    for (int64_t i = 0; i < v->count; i++) whole[i] = at[i] = world_value(rank, i, round, false);
    at[-1] = at[v->count] = 7;
    KOLO_TRY(turn(comm, v->whole));
    KOLO_TRY(turn(comm, v->scatter));
    KOLO_TRY(kolo_comm_part(comm, v->scatter, rank, &first, &count));
    bad = differing(at + first, whole + first, count);
    for (int64_t i = 0; i < v->count; i++)
        if (i < first || i >= first + count) at[i] = -3;
    KOLO_TRY(turn(comm, v->gather));
    return bad + differing(at, whole, v->count) + (at[-1] != 7) + (at[v->count] != 7);
}

static int64_t run(const map *m, uint64_t seed, bool canonical)
{
    dice d = {.seed = seed};
    vector v[CUTS];
    kolo_comm *comm = NULL;
    int64_t bad = 0, some;
    int rc = open_comm(&comm, place(m), canonical);
    for (int c = 0; c < CUTS && rc >= 0; c++) rc = declare_vector(comm, &v[c], &d, c % 2 == 0);
    if (rc >= 0) rc = kolo_comm_commit(comm);
    for (int i = 0; i < CUTS * ROUNDS && rc >= 0; i++) {
        if (!v[i % CUTS].mine) continue;
        some = play(comm, &v[i % CUTS], i / CUTS);
        if (some < 0) rc = (int)some;
        else bad += some;
    }
    if (rc < 0) fprintf(stderr, "# rank %d: %s\n", rank, kolo_error_text());
    kolo_comm_destroy(&comm);
    return rc < 0 ? 1000000 : bad;
}

/* ---- choices of several groups ---- */

/* Rank 0 has seen a bucket as long as that of the second group, but cut so that another algorithm is cheaper;
 * its peers there have not, and all must choose the same. */
static int64_t run_unlike(const map *m, int64_t quarter)
{
    const int one[] = {0, 1, 2, 3}, other[] = {0, 4, 5, 6};
    const int64_t count = 4 * quarter, zero[] = {0, 0, 0, 0}, all[] = {0, 0, 0, count},
                  begin[] = {0, quarter, 2 * quarter, 3 * quarter},
                  even[] = {quarter, quarter, quarter, quarter};
    const bool mine = rank == 0 || rank > 3;
    kolo_comm *comm = NULL;
    int64_t bad = 0, from = 0, own = 0;
    int group = 0, bucket = 0, rc = open_comm(&comm, place(m), false);
    if (rc == 0) rc = group = kolo_comm_group(comm, one, 4);
    if (rc >= 0) rc = kolo_comm_bucket_cut(comm, group, KOLO_REDUCE_SCATTER, 0, count, zero, all);
    if (rc >= 0) rc = group = kolo_comm_group(comm, other, 4);
    if (rc >= 0) rc = bucket = kolo_comm_bucket_cut(comm, group, KOLO_REDUCE_SCATTER, 0, count, begin, even);
    if (rc >= 0) rc = kolo_comm_commit(comm);
    float *at = rc < 0 ? NULL : kolo_comm_arena(comm);
    for (int64_t i = 0; at && i < count; i++) at[i] = (float)(rank + i % 97);
    if (rc >= 0 && mine) rc = turn(comm, bucket);
    if (rc >= 0 && mine) rc = kolo_comm_part(comm, bucket, rank, &from, &own);
    for (int64_t i = from; rc >= 0 && i < from + own; i++) bad += at[i] != (float)(15 + 4 * (i % 97));
    if (rc < 0) fprintf(stderr, "# rank %d, %ld elements: %s\n", rank, (long)count, kolo_error_text());
    kolo_comm_destroy(&comm);
    return rc < 0 ? 1000000 : bad;
}

/* ---- compressed ---- */

enum { VECTOR = 30011, WAYS = 4 };

/* The allreduce; a reduce_scatter; one that the caller cuts within the same slices, with which a codec's
 * blocks begin; and for codecs without blocks, of matrices that can be cut anywhere, one that he cuts anyhow.
 * All on the same bytes: what codecs carry from round to round is each bucket's own. */
static int declare_ways(kolo_comm *comm, int kind, int owners, int nodes, int *way)
{
    const int64_t lanes = comm_compress_is_elementwise(kind) ? 1 : 100;
    const comm_matrix matrix = {.groups = 1, .columns = 30000 / lanes, .lanes = lanes};
    const comm_compress config = {
        .kind = kind, .density = 0.05, .rank = 2, .start = kind == COMM_TOPK, .seed = 11};
    dice d = {.seed = 5};
    int64_t first[8], length[8];
    int all[8], ways = 0;
    for (int r = 0; r < size; r++) all[r] = r;
    for (int s = 0; s < owners / nodes; s++) {
        const int64_t from = comm_part(VECTOR, owners / nodes, s);
        cut_parts(&d, comm_part(VECTOR, owners / nodes, s + 1) - from, 1, nodes, first + s * nodes,
                  length + s * nodes);
        for (int i = s * nodes; i < (s + 1) * nodes; i++) first[i] += from;
    }
    KOLO_TRY(kolo_comm_compress(comm, 0, &config, &matrix, 1));
    KOLO_TRY(way[ways++] = kolo_comm_bucket_of(comm, 0, KOLO_ALLREDUCE, 0, VECTOR));
    KOLO_TRY(way[ways++] = kolo_comm_bucket_of(comm, 0, KOLO_REDUCE_SCATTER, 0, VECTOR));
    KOLO_TRY(way[ways++] = kolo_comm_bucket_cut(comm, 0, KOLO_REDUCE_SCATTER, 0, VECTOR, first, length));
    if (comm_compress_is_elementwise(kind))
        KOLO_TRY(way[ways++] = declare_cut(comm, 0, all, size, KOLO_REDUCE_SCATTER, 0, VECTOR, d));
    KOLO_TRY(kolo_comm_commit(comm));
    return ways;
}

/* *lossy: elements that an exact sum would have otherwise. */
static int64_t compare_ways(kolo_comm *comm, const world *w, const int *way, int ways, int round, float *sum,
                            int64_t *lossy)
{
    float *at = kolo_comm_arena(comm);
    int64_t bad = 0, first, count;
    for (int n = 0; n < ways; n++) {
        for (int64_t i = 0; i < VECTOR; i++) at[i] = world_value(rank, i, round, false);
        KOLO_TRY(turn(comm, way[n]));
        if (n == 0) memcpy(sum, at, VECTOR * sizeof *sum);
        KOLO_TRY(kolo_comm_part(comm, way[n], rank, &first, &count));
        bad += differing(at + first, sum + first, count);
    }
    for (int64_t i = 0; i < 500; i++) *lossy += sum[i] != world_sum(w, i, round, false, false);
    return bad;
}

static int64_t run_compressed(const map *m, int kind, int owners)
{
    world *w = place(m);
    kolo_comm *comm = NULL;
    int64_t bad = 0, lossy = 0;
    int way[WAYS], nodes = 1, rc = open_comm(&comm, w, false), ways = rc;
    float *sum = malloc(VECTOR * sizeof *sum);
    for (int r = 0; r < size; r++)
        if (m->node_of[r] >= nodes) nodes = m->node_of[r] + 1;
    if (rc == 0) rc = ways = declare_ways(comm, kind, owners, nodes, way);
    for (int round = 0; round < 3 && rc >= 0; round++) {
        const int64_t some = compare_ways(comm, w, way, ways, round, sum, &lossy);
        if (some < 0) rc = (int)some;
        else bad += some;
    }
    if (rc < 0) fprintf(stderr, "# rank %d: %s\n", rank, kolo_error_text());
    kolo_comm_destroy(&comm);
    free(sum);
    return rc < 0 ? 1000000 : bad + (lossy == 0);
}

/* ---- refused ------------------------------------------------------------------------------------------- */

static int64_t accepted(kolo_comm *comm, enum kolo_collective what, int64_t count, const int64_t *first,
                        const int64_t *length)
{
    const int rc = kolo_comm_bucket_cut(comm, 0, what, 0, count, first, length);
    if (rc != KOLO_EINTERNAL) fprintf(stderr, "# rank %d: a wrong cut is number %d\n", rank, rc);
    return rc != KOLO_EINTERNAL;
}

/* What is wrong is said, and no bucket; what is right works after it. */
static int64_t run_refused(const map *m, int owners, int nodes)
{
    enum { COUNT = 1000 };
    int64_t first[8], length[8], bad = 0;
    int down[] = {1, 0}, owner[8];
    kolo_comm *comm = NULL;
    for (int i = 0; i < owners; i++) {
        first[i] = comm_part(COUNT, owners, i);
        length[i] = comm_part(COUNT, owners, i + 1) - first[i];
    }
    if (open_comm(&comm, place(m), false) < 0) return -1;
    bad += accepted(comm, KOLO_ALLREDUCE, COUNT, first, length);
    bad += accepted(comm, KOLO_BROADCAST, COUNT, first, length);
    bad += accepted(comm, KOLO_ALLGATHER, COUNT + 1, first, length);
    bad += accepted(comm, KOLO_ALLGATHER, COUNT - 1, first, length);
    bad += accepted(comm, KOLO_ALLGATHER, -1, first, length);
    length[owners - 1] = -1;
    bad += accepted(comm, KOLO_REDUCE_SCATTER, COUNT, first, length);
    length[owners - 1] = COUNT - first[owners - 1] - 1;
    bad += accepted(comm, KOLO_REDUCE_SCATTER, COUNT, first, length);
    first[owners - 1] += 2; /* beyond the end */
    bad += accepted(comm, KOLO_REDUCE_SCATTER, COUNT, first, length);
    first[owners - 1] -= 2;
    length[owners - 1]++;
    if (owners > nodes) { /* two slices of the same elements */
        first[owners - nodes] -= 1;
        bad += accepted(comm, KOLO_REDUCE_SCATTER, COUNT, first, length);
        first[owners - nodes] += 1;
    }
    if (nodes > 1) { /* a slice whose parts are in another order */
        const int64_t kept = length[0];
        first[0] = length[1], first[1] = 0;
        length[0] = COUNT > 2 * kept ? length[0] : 0;
        bad += accepted(comm, KOLO_REDUCE_SCATTER, COUNT, first, length);
        first[0] = 0, first[1] = length[0] = kept;
    }
    bad += size > 1 && kolo_comm_owners(kolo_comm_launch(comm), down, 2, owner) != KOLO_EINTERNAL;
    bad += kolo_comm_bucket_cut(comm, 0, KOLO_REDUCE_SCATTER, 0, COUNT, first, length) != 0;
    bad += kolo_comm_commit(comm) != 0 || turn(comm, 0) != 0;
    bad += accepted(comm, KOLO_REDUCE_SCATTER, COUNT, first, length);
    kolo_comm_destroy(&comm);
    return bad;
}

/* Rank 0 has another cut: all ranks are told. */
static int64_t run_unequal(const map *m, int owners)
{
    int64_t first[8] = {0}, length[8] = {0};
    kolo_comm *comm = NULL;
    const int all = rank == 0 ? 0 : owners - 1;
    for (int i = all + 1; i < owners; i++) first[i] = 1000;
    length[all] = 1000;
    int rc = open_comm(&comm, place(m), false);
    if (rc == 0) rc = kolo_comm_bucket_cut(comm, 0, KOLO_REDUCE_SCATTER, 0, 1000, first, length);
    if (rc == 0) rc = kolo_comm_commit(comm);
    kolo_comm_destroy(&comm);
    if (rc < 0 && strstr(kolo_error_text(), "declared another")) return 0;
    fprintf(stderr, "# rank %d: %d, %s\n", rank, rc, kolo_error_text());
    return 1;
}

static int64_t wrong_owners(const map *m, int owners, const int *expected)
{
    int all[8], owner[8];
    for (int r = 0; r < size; r++) all[r] = r;
    const int n = kolo_comm_owners(&place(m)->launch, all, size, owner);
    return n != owners || memcmp(owner, expected, (size_t)n * sizeof *owner) != 0;
}

static void check_map(const map *m, int owners, const int *owner, uint64_t seed)
{
    int nodes = 1;
    for (int r = 0; r < size; r++)
        if (m->node_of[r] >= nodes) nodes = m->node_of[r] + 1;
    report(wrong_owners(m, owners, owner), "owners, slice by slice, then node by node", m->name);
    report(run(m, seed, false), "random cuts, the bytes of an allreduce", m->name);
    report(run(m, seed + 1, true), "random cuts, canonical", m->name);
    report(run_refused(m, owners, nodes), "wrong cuts are refused, right ones work then", m->name);
    if (size > 1) report(run_unequal(m, owners), "another cut on one rank is an error on all", m->name);
    if (nodes == 7)
        for (int64_t quarter = 1250; quarter <= 10000; quarter *= 2)
            report(run_unlike(m, quarter), "two groups, each with its own choice", m->name);
    for (int kind = COMM_BF16; nodes > 1 && kind < COMM_COMPRESSIONS; kind++)
        report(run_compressed(m, kind, owners), comm_compress_name(kind), m->name);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 2 : 2;
    for (size_t i = 0; i < sizeof place_of / sizeof *place_of; i++)
        if (place_of[i].map.size == size)
            check_map(&place_of[i].map, place_of[i].owners, place_of[i].owner, seed);
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
