/* Groups: made, used, freed, made again; what is wrong about them; Adasum, sparse and compressed sums
 * in the group of all. */
#ifndef TESTS_COMM_CHECKLIST_GROUPS_H
#define TESTS_COMM_CHECKLIST_GROUPS_H

#include "comm_checklist.h"

static int64_t use_rooted(kolo_group *g)
{
    const int me = kolo_group_rank(g), n = kolo_group_size(g);
    int64_t bad = 0;
    for (int root = 0; root < n; root++) {
        int32_t word = rank * 10, part[2], words[64];
        bad += kolo_gather(g, &word, words, 1, NULL, KOLO_I32, root) < 0;
        for (int m = 0; me == root && m < n; m++) bad += words[m] != g->rank_of[m] * 10;
        for (int i = 0; i < 2 * n; i++) words[i] = rank * 100 + i;
        bad += kolo_scatter(g, words, part, 2, NULL, KOLO_I32, root) < 0;
        bad += part[0] != g->rank_of[root] * 100 + 2 * me || part[1] != part[0] + 1;
        void *object = NULL;
        size_t bytes = 0;
        bad += kolo_broadcast_object(g, me == root ? &rank : NULL, me == root ? sizeof rank : 0, root,
                                     &object, &bytes) < 0;
        bad += bytes != sizeof rank || !object || *(int *)object != g->rank_of[root];
        kolo_release_object(&object);
    }
    int32_t word = 0; /* a rank of the world, but no member */
    return bad + refused(kolo_broadcast(g, &word, 1, KOLO_I32, n), "no member", "");
}

/* Adasum, compressed, sparse, grouped. */
static int64_t use_special(kolo_group *g)
{
    const int me = kolo_group_rank(g), n = kolo_group_size(g);
    int64_t bad = 0, index[2] = {me, n}, sum = 0;
    float v[2][64], pair[4] = {(float)(rank + 1), 1, 2, (float)rank};
    for (int i = 0; i < 64; i++) v[0][i] = i % n == me ? 3 : 0; /* orthogonal: the sum */
    bad += kolo_allreduce(g, NULL, v[0], 64, KOLO_F32, KOLO_ADASUM) < 0;
    for (int i = 0; i < 64; i++) bad += v[0][i] != 3;
    kolo_request r = request(KOLO_ALLREDUCE, list_in, list_out, KOLO_F32, 500, 0);
    r.compression = "bf16";
    fill(list_in, rank, 500, 7, KOLO_SUM, KOLO_F32);
    bad += run(g, &r, NULL) < 0 || differ(list_out, 500, bits_of(g), 7, KOLO_SUM, KOLO_F32);
    r = request(KOLO_SPARSE_ALLREDUCE, pair, NULL, KOLO_F32, 2, 2);
    r.index = index;
    r.rows = n + 40;
    kolo_output o = {0};
    kolo_handle h[2] = {0, 0};
    bad += kolo_submit(g, &r, &h[0]) < 0 || kolo_wait(world, h[0]) < 0 || kolo_result(world, h[0], &o) < 0;
    for (int m = 0; m < n; m++) sum += g->rank_of[m];
    for (int64_t i = 0; !bad && i < o.dim[0]; i++) {
        const float *got = (const float *)o.data + 2 * i;
        const int64_t row = o.index ? o.index[i] : i;
        bad += got[0] != (float)(row < n    ? g->rank_of[row] + 1
                                 : row == n ? 2 * n
                                            : 0) ||
               (row == n && got[1] != (float)sum);
    }
    bad += o.dim[0] < n + 1;
    kolo_release(world, h[0]);
    kolo_request two[2];
    for (int k = 0; k < 2; k++) {
        fill(v[k], rank, 20 + k, k, KOLO_SUM, KOLO_F32);
        two[k] = request(KOLO_ALLREDUCE, NULL, v[k], KOLO_F32, 20 + k, 0);
        two[k].name = k ? "second" : "first";
    }
    bad += kolo_submit_grouped(g, two, 2, h) < 0;
    for (int k = 0; k < 2; k++)
        bad += kolo_wait(world, h[k]) < 0 || differ(v[k], 20 + k, bits_of(g), k, KOLO_SUM, KOLO_F32);
    return bad;
}

/* Every collective, among the members. */
static int64_t use(kolo_group *g, int seed)
{
    int64_t bad = 0, rows[3] = {2, 0, 1};
    if (kolo_group_rank(g) < 0) return refused(kolo_barrier(g), "no member", "");
    int me = kolo_group_rank(g), n = kolo_group_size(g);
    for (int op = 0; op < 5; op++) {
        enum kolo_reduce reduce = (enum kolo_reduce)op;
        fill(list_in, rank, 333, seed + op, reduce, KOLO_F32);
        bad += kolo_allreduce(g, list_in, list_out, 333, KOLO_F32, reduce) < 0 ||
               differ(list_out, 333, bits_of(g), seed + op, reduce, KOLO_F32);
    }
    for (int root = 0; root < n; root++) {
        int32_t word = rank * 10;
        bad += kolo_broadcast(g, &word, 1, KOLO_I32, root) < 0 || word != g->rank_of[root] * 10;
    }
    kolo_request r = request(KOLO_ALLGATHER, list_in, NULL, KOLO_I32, rows[rank % 3], 0);
    kolo_output o = {0};
    kolo_handle h = 0;
    for (int i = 0; i < 2; i++) ((int32_t *)(void *)list_in)[i] = rank;
    bad += kolo_submit(g, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0;
    for (int m = 0, at = 0; m < n; m++)
        for (int i = 0; i < rows[g->rank_of[m] % 3]; i++)
            bad += ((const int32_t *)o.data)[at++] != g->rank_of[m];
    kolo_release(world, h);
    int64_t ones[32], sent[32], got[32];
    for (int m = 0; m < n; m++) ones[m] = 1, sent[m] = me * 100 + m;
    bad += kolo_alltoall(g, sent, ones, got, ones, KOLO_I64) < 0;
    for (int m = 0; m < n; m++) bad += got[m] != m * 100 + me;
    double part[2], whole[32];
    for (int m = 0; m < n; m++) whole[m] = m + rank;
    bad +=
        kolo_reduce_scatter(g, whole, part, n, KOLO_F64, KOLO_MAX) < 0 || part[0] != me + g->rank_of[n - 1];
    return bad + use_rooted(g) + use_special(g) + (kolo_barrier(g) < 0);
}

static void check_two_groups(void)
{
    kolo_group *even = NULL, *odd = NULL, *again = NULL;
    int list[32], n = 0, odds[32], m = 0;
    /* the order of the list does not matter */
    for (int r = size - 1; r >= 0; r--) *(r % 2 ? &odds[m++] : &list[n++]) = r;
    /* the only set of ranks is the group of all */
    if (size == 1) return;
    int64_t bad = kolo_group_create(&even, world, list, n) < 0 || kolo_group_create(&odd, world, odds, m) < 0;
    if (bad) {
        report(bad, "two groups");
        return;
    }
    bad += kolo_group_size(even) != n || kolo_group_id(even) != 1 ||
           kolo_group_rank(even) != (rank % 2 ? -1 : rank / 2);
    report(bad, "groups of the even and of the odd ranks, with the same ids everywhere");
    report(use(even, 500) + use(odd, 600), "every collective in both; a rank that is no member is told so");
    double entered = 0;
    bad = 0;
    if (rank == 0) { /* the odd ranks are through with theirs before the even ones begin */
        MPI_Recv(NULL, 0, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        entered = kolo_time();
    }
    bad += kolo_barrier(rank % 2 ? odd : even) < 0;
    double left = kolo_time();
    if (rank == 1) MPI_Send(NULL, 0, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    MPI_Bcast(&entered, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    bad += rank % 2 == 0 && left < entered;
    report(bad, "one group waits at its barrier, the other does not");
    int rc = kolo_group_create(&again, world, list, n);
    report(again || refused(rc, "group 1 has these members", ""), "the same set again is refused");
    bad = kolo_group_free(&even) < 0 || even || kolo_group_create(&again, world, list, n) < 0 ||
          kolo_group_id(again) != 1;
    report(bad + use(again, 700) + use(odd, 800), "a group freed and made again gets the free id");
    bad = kolo_group_free(&again) < 0 || kolo_group_free(&odd) < 0;
    report(bad + still_works(all), "groups are freed");
}

static void check_wrong_groups(void)
{
    kolo_group *g = NULL;
    int twice[3] = {0, 0, 1}, outside[2] = {0, size}, whole[32], mine[1] = {rank};
    for (int r = 0; r < size; r++) whole[r] = r;
    report(refused(kolo_group_create(&g, world, twice, 2), "rank 0 is named twice", "") + (g != NULL),
           "a rank twice");
    report(refused(kolo_group_create(&g, world, outside, 2), "there is no rank", "") + (g != NULL),
           "a rank out of range");
    report(refused(kolo_group_create(&g, world, whole, size), "group 0 has these members", "") + (g != NULL),
           "the set of all ranks");
    if (size > 1)
        report(refused(kolo_group_create(&g, world, mine, 1), "rank 0: the group of ranks 0",
                       "rank 1: the group of ranks 1") +
                   (g != NULL),
               "different lists");
    if (size > 1) { /* one rank alone is wrong, the others are right */
        int rc = kolo_group_create(&g, world, rank ? mine : outside, rank ? 1 : 2);
        report(refused(rc, "there is no rank", "rank 1") + (g != NULL) + still_works(all),
               "only one rank is wrong: an error on all");
    }
    for (int wrong = 0; wrong < 2 && size > 1; wrong++) {
        int rc = kolo_group_create(&g, world, mine, rank ? 1 : -wrong);
        report(refused(rc, wrong ? "-1 ranks" : "0 ranks", "rank 1") + (g != NULL) + still_works(all),
               wrong ? "a list of less than nothing on one rank: an error on all"
                     : "an empty list on one rank: an error on all");
    }
    kolo_group *everybody = all;
    report(refused(kolo_group_free(&everybody), "ends with the world", "") + (everybody != all) +
               still_works(all),
           "the group of all ranks cannot be freed");
}

static void check_mpi_groups(void)
{
    MPI_Comm part, none = MPI_COMM_NULL;
    kolo_group *g = NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank < (size + 1) / 2 ? 0 : 1, size - rank, &part);
    int64_t bad = kolo_group_create_mpi(&g, world, &part) < 0;
    if (!bad) bad = use(g, 900) + (kolo_group_free(&g) < 0);
    report(bad, "the groups that a communicator cuts out");
    int rc = kolo_group_create_mpi(&g, world, rank == 0 ? &none : &part);
    /* rank 0's fellows bring it, rank 0 does not */
    if (size > 2) bad = refused(rc, "the communicator with rank 0 has", "ranks brought it") + (g != NULL);
    else if (size == 2)
        bad = rc < 0 || (kolo_group_rank(g) < 0) != (rank == 0) || kolo_group_size(g) != rank ||
              kolo_group_free(&g) < 0;
    else bad = rc < 0 || kolo_group_free(&g) < 0; /* a group of nobody */
    report(bad + still_works(all), "a rank without a communicator");
    rc = kolo_group_create_mpi(&g, world, rank == 0 ? NULL : &part);
    report(refused(rc, "no communicator is given", "") + (g != NULL) + still_works(all),
           "a rank that gives no pointer: an error on all");
    MPI_Comm_free(&part);
}

/* ---- Adasum, sparse, compressed ------------------------------------------------------------------------ */

static void check_adasum(void)
{
    int64_t bad = 0;
    float v[64];
    for (int i = 0; i < 64; i++) v[i] = i % size == rank ? 3 : 0; /* orthogonal: the sum */
    bad += kolo_allreduce(all, NULL, v, 64, KOLO_F32, KOLO_ADASUM) < 0;
    for (int i = 0; i < 64; i++) bad += v[i] != 3;
    report(bad, "Adasum of orthogonal vectors is their sum");
    bad = 0;
    double w[40];
    for (int i = 0; i < 40; i++) w[i] = i - 17; /* equal: the average */
    bad += kolo_allreduce(all, NULL, w, 40, KOLO_F64, KOLO_ADASUM) < 0;
    for (int i = 0; i < 40; i++) bad += w[i] != i - 17;
    report(bad, "of equal ones their average");
    int32_t whole = 1;
    report(refused(kolo_allreduce(all, NULL, &whole, 1, KOLO_I32, KOLO_ADASUM), "adasum is of floats", ""),
           "of integers refused");
}

static int64_t try_sparse(enum kolo_dtype type, int64_t rows, int64_t each, int step, enum kolo_reduce op)
{
    int64_t index[200], bad = 0, k = 0;
    for (int64_t i = 0; i < each; i++, k++) {
        index[k] = (i * step + rank) % rows; /* out of order, and rows of several ranks */
        fill(list_in + (size_t)k * 4 * kolo_dtype_size(type), rank, 4, (int)i, KOLO_SUM, type);
    }
    kolo_request r = request(KOLO_SPARSE_ALLREDUCE, list_in, NULL, type, k, 4);
    kolo_output o = {0};
    kolo_handle h;
    r.index = index;
    r.rows = rows;
    r.reduce = op;
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0) return 1000;
    double *dense = calloc((size_t)rows * 4, sizeof *dense);
    for (int m = 0; m < size; m++)
        for (int64_t i = 0; i < each; i++)
            for (int c = 0; c < 4; c++)
                dense[(i * step + m) % rows * 4 + c] += value(m, c, (int)i, KOLO_SUM, type);
    int64_t seen = 0;
    for (int64_t i = 0; i < o.dim[0]; i++) {
        int64_t row = o.index ? o.index[i] : i;
        bad += o.index && i && o.index[i] <= o.index[i - 1];
        for (int c = 0; c < 4; c++) {
            put(type, list_want, 0, op == KOLO_AVERAGE ? dense[row * 4 + c] / size : dense[row * 4 + c]);
            bad += get(type, o.data, i * 4 + c) != get(type, list_want, 0);
            dense[row * 4 + c] = 0;
        }
        seen++;
    }
    for (int64_t i = 0; i < rows * 4; i++) bad += dense[i] != 0; /* no row is missing */
    bad += o.dims != 2 || seen != o.dim[0] || (!o.index && o.dim[0] != rows);
    free(dense);
    kolo_release(world, h);
    return bad;
}

/* Row numbers as wide as hashes: nothing may be as long as the matrix. */
static int64_t try_hashed(enum kolo_dtype type, int64_t rows)
{
    int64_t index[3] = {rows - 1 - rank, 5, rows / 2}, bad = 0;
    kolo_request r = request(KOLO_SPARSE_ALLREDUCE, list_in, NULL, type, 3, 4);
    kolo_output o = {0};
    kolo_handle h;
    fill(list_in, rank, 12, 3, KOLO_SUM, type);
    r.index = index;
    r.rows = rows;
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0) return 1000;
    if (!o.index || o.dim[0] != 2 + size) return 1001;
    for (int64_t i = 0; i < o.dim[0]; i++) {
        /* whose row it is; of the first two everybody's */
        const int m = i < 2 ? -1 : size - 1 - (int)(i - 2);
        bad += o.index[i] != (i == 0 ? 5 : i == 1 ? rows / 2 : rows - 1 - m);
        for (int c = 0; c < 4; c++) {
            const int64_t at = (i == 0 ? 4 : i == 1 ? 8 : 0) + c;
            put(type, list_want, 0, wanted(m < 0 ? everybody() : 1u << m, at, 3, KOLO_SUM, type));
            bad += get(type, o.data, i * 4 + c) != get(type, list_want, 0);
        }
    }
    kolo_release(world, h);
    r.out = list_out;
    bad += refused(run(all, &r, NULL), "no memory can hold", " rows of ");
    if (size > 1) { /* one asks for all rows, the others do not */
        r.out = rank == 0 ? list_out : NULL;
        bad += refused(run(all, &r, NULL), "no memory can hold", "rank 0");
    }
    return bad + still_works(all);
}

static int64_t try_wide_rows(int64_t columns)
{
    kolo_request r = request(KOLO_SPARSE_ALLREDUCE, NULL, NULL, KOLO_F32, 0, columns);
    kolo_output o = {0};
    kolo_handle h;
    r.rows = 1ll << 40;
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0) return 1000;
    int64_t bad = !o.index || o.dim[0] != 0 || o.dim[1] != columns;
    kolo_release(world, h);
    r.dim[1] = INT64_MAX / 4;
    return bad + refused(run(all, &r, NULL), "64 bits", "") + still_works(all);
}

static void check_sparse(void)
{
    report(try_sparse(KOLO_F32, 1000, 20, 7, KOLO_SUM) + try_sparse(KOLO_F64, 1000, 20, 7, KOLO_AVERAGE) +
               try_sparse(KOLO_BF16, 500, 9, 3, KOLO_SUM),
           "a sparse sum is the dense one; row numbers ascend");
    report(try_sparse(KOLO_F32, 12, 20, 5, KOLO_SUM),
           "rows named twice add up; more pairs than rows are summed as all rows");
    report(try_sparse(KOLO_F64, 12, 20, 5, KOLO_AVERAGE) + try_sparse(KOLO_BF16, 12, 20, 5, KOLO_AVERAGE) +
               try_sparse(KOLO_F16, 5, 30, 1, KOLO_SUM) + try_sparse(KOLO_I32, 7, 25, 2, KOLO_SUM),
           "so of every width");
    report(try_sparse(KOLO_F32, 40, 20, 2, KOLO_SUM),
           "pairs that fill the matrix together are given as all rows");
    report(try_sparse(KOLO_F32, 100, 0, 1, KOLO_SUM), "nobody has a row");
    report(try_hashed(KOLO_F32, 1ll << 60) + try_hashed(KOLO_U8, INT64_MAX) +
               try_hashed(KOLO_BF16, INT64_MAX),
           "rows as many as hashes are given as pairs, and refused where all of them are asked for");
    report(try_wide_rows(1ll << 50), "nobody has a row, of as many columns as fit into no memory");
    int64_t index = 7;
    kolo_request r = request(KOLO_SPARSE_ALLREDUCE, list_in, NULL, KOLO_F32, 1, 4);
    r.index = &index;
    r.rows = 7;
    report(refused(run(all, &r, NULL), "row number 7 of a matrix of 7 rows", "") + still_works(all),
           "a row number out of range");
}

static void check_compressed(void)
{
    int64_t bad = 0;
    static const char *const kinds[] = {"none", "bf16", "fp16"};
    for (int k = 0; k < 3; k++) {
        kolo_request r = request(KOLO_ALLREDUCE, list_in, list_out, KOLO_F32, 3000, 0);
        r.compression = kinds[k];
        fill(list_in, rank, 3000, k, KOLO_SUM, KOLO_F32); /* small whole numbers: exact in 16 bits */
        bad += run(all, &r, NULL) < 0 || differ(list_out, 3000, everybody(), k, KOLO_SUM, KOLO_F32);
    }
    report(bad, "compressed sums of numbers that 16 bits hold are exact");
    kolo_request r = request(KOLO_ALLREDUCE, list_in, list_out, KOLO_F32, 3000, 0), other = r;
    r.compression = "gzip";
    bad = refused(run(all, &r, NULL), "gzip", "");
    r.compression = "topk:0.1";
    bad += refused(run(all, &r, NULL), "needs a name", "");
    other.compression = "bf16";
    r.compression = "fp16";
    if (size > 1) bad += refused(run(all, rank ? &r : &other, NULL), "compression fp16", "compression bf16");
    report(bad + still_works(all), "unknown compressions, different ones, and one that needs a name");
}

static void check_shared(void)
{
    void *memory = NULL, *more = NULL;
    int64_t bad = kolo_world_alloc(world, 70000 * 4, &memory) < 0;
    if (bad) {
        report(bad, "shared memory");
        return;
    }
    fill(memory, rank, 70000, 3, KOLO_SUM, KOLO_F32);
    bad += kolo_allreduce(all, NULL, memory, 70000, KOLO_F32, KOLO_SUM) < 0 ||
           differ(memory, 70000, everybody(), 3, KOLO_SUM, KOLO_F32);
    bad += kolo_world_alloc(world, (size_t)1 << 40, &more) != KOLO_ECONFIG;
    kolo_world_free(world, memory);
    report(bad, "vectors in the node's shared memory; more than there is of it");
}

static void check_groups(void)
{
    check_two_groups();
    check_wrong_groups();
    check_mpi_groups();
    check_adasum();
    check_sparse();
    check_compressed();
    check_shared();
}

#endif
