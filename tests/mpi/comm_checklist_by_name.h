/* Named requests: any order on any rank, fused or not, grouped, joined; what does not match. */
#ifndef TESTS_COMM_CHECKLIST_BY_NAME_H
#define TESTS_COMM_CHECKLIST_BY_NAME_H

#include "comm_checklist.h"

enum { NAMES = 24, NAME_COUNT = 700 };
static _Alignas(64) char name_vector[NAMES][NAME_COUNT * 8];

static kolo_request named(const char *name, kolo_request r)
{
    r.name = name;
    return r;
}

/* The k-th of n in an order that differs from rank to rank. */
static int shuffled(int k, int n, int seed)
{
    return (int)(((int64_t)k * (rank % 2 ? n - 1 : 1) + (int64_t)seed * (rank + 1)) % n);
}

static int64_t submit_names(int seed, kolo_handle *handle, const enum kolo_reduce op)
{
    static const enum kolo_dtype types[] = {KOLO_F32, KOLO_I32, KOLO_BF16, KOLO_F64, KOLO_U8};
    int64_t bad = 0;
    char name[32];
    for (int k = 0; k < NAMES; k++) {
        int i = shuffled(k, NAMES, seed);
        kolo_request r = request(KOLO_ALLREDUCE, NULL, name_vector[i], types[i % 5], 1 + 29 * i, 0);
        snprintf(name, sizeof name, "tensor.%d", i);
        r.name = name;
        r.reduce = op;
        fill(name_vector[i], rank, 1 + 29 * i, seed + i, op, types[i % 5]);
        bad += kolo_submit(all, &r, &handle[i]) < 0;
    }
    for (int i = 0; i < NAMES; i++)
        bad += kolo_wait(world, handle[i]) < 0 ||
               differ(name_vector[i], 1 + 29 * i, everybody(), seed + i, op, types[i % 5]);
    return bad;
}

static void check_names(void)
{
    kolo_handle handle[NAMES];
    int64_t bad = 0;
    for (int round = 0; round < 4; round++)
        bad += submit_names(round, handle, round % 2 ? KOLO_AVERAGE : KOLO_SUM);
    report(bad, "named allreduces of mixed types in another order on every rank, asked for again and again");
    bad = submit_names(9, handle, KOLO_PRODUCT) + submit_names(10, handle, KOLO_MIN);
    report(bad, "by product and min");
}

/* Every collective under a name, alone and two at a time. */
static void check_named_moves(void)
{
    int64_t bad = 0;
    kolo_output o = {0};
    kolo_handle h[4];
    for (int round = 0; round < 2; round++) {
        int64_t rows = 1 + rank % 3, at = 0;
        kolo_request r = named("gathered", request(KOLO_ALLGATHER, list_in, NULL, KOLO_I32, rows, 3));
        for (int i = 0; i < 9; i++) ((int32_t *)(void *)list_in)[i] = rank;
        bad += run(all, &r, &o) < 0;
        for (int m = 0; m < size; m++)
            for (int i = 0; i < 3 * (1 + m % 3); i++) bad += ((const int32_t *)o.data)[at++] != m;
        r = named("sent", request(KOLO_BROADCAST, NULL, list_out, KOLO_F32, 5, 0));
        r.root = size - 1;
        for (int i = 0; i < 5; i++) ((float *)(void *)list_out)[i] = (float)(rank + i);
        bad += run(all, &r, NULL) < 0;
        for (int i = 0; i < 5; i++) bad += ((float *)(void *)list_out)[i] != (float)(size - 1 + i);
        r = named("exchanged", request(KOLO_ALLTOALL, list_in, NULL, KOLO_I32, size, 0));
        for (int i = 0; i < size; i++) ((int32_t *)(void *)list_in)[i] = rank * 100 + i;
        bad += run(all, &r, &o) < 0;
        for (int m = 0; m < size; m++)
            bad += ((const int32_t *)o.data)[m] != m * 100 + rank || o.splits[m] != 1;
        r = named("cut", request(KOLO_REDUCE_SCATTER, list_in, NULL, KOLO_F32, 2 * size + 1, 0));
        for (int i = 0; i < 2 * size + 1; i++) ((float *)(void *)list_in)[i] = (float)(i + rank);
        bad += run(all, &r, &o) < 0;
        int64_t from = lib_cut(2 * size + 1, size, rank);
        for (int64_t i = 0; i < o.dim[0]; i++)
            bad += ((const float *)o.data)[i] != (float)((from + i) * size + size * (size - 1) / 2);
        r = named("gathered at 0", request(KOLO_GATHER, list_in, NULL, KOLO_I32, 1, 0));
        ((int32_t *)(void *)list_in)[0] = rank;
        bad += run(all, &r, &o) < 0;
        for (int m = 0; rank == 0 && m < size; m++) bad += ((const int32_t *)o.data)[m] != m;
        r = named("dealt", request(KOLO_SCATTER, list_in, NULL, KOLO_I32, rank == 0 ? size : 0, 0));
        for (int i = 0; i < size; i++) ((int32_t *)(void *)list_in)[i] = i * 7;
        bad += run(all, &r, &o) < 0 || o.dim[0] != 1 || ((const int32_t *)o.data)[0] != rank * 7;
        r = named("met", (kolo_request){.what = KOLO_BARRIER});
        bad += run(all, &r, NULL) < 0;
    }
    report(bad, "every other collective by name");
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < 4; k++) { /* fused where they are ready together */
            int i = rank % 2 ? 3 - k : k;
            char name[16];
            snprintf(name, sizeof name, "part.%d", i);
            kolo_request r = named(name, request(KOLO_ALLGATHER, name_vector[i], NULL,
                                                 i % 2 ? KOLO_I64 : KOLO_U8, (rank + i) % 3, 1));
            fill(name_vector[i], rank, 3, i, KOLO_SUM, r.type);
            bad += kolo_submit(all, &r, &h[i]) < 0;
            if (k < 3) continue;
            for (i = 0; i < 4; i++) {
                bad += kolo_wait(world, h[i]) < 0 || kolo_result(world, h[i], &o) < 0;
                for (int m = 0, at = 0; m < size; m++)
                    for (int j = 0; j < (m + i) % 3; j++)
                        bad += get(i % 2 ? KOLO_I64 : KOLO_U8, o.data, at++) !=
                               value(m, j, i, KOLO_SUM, i % 2 ? KOLO_I64 : KOLO_U8);
                kolo_release(world, h[i]);
            }
        }
    report(bad, "allgathers of different length at once");
}

/* ---- grouped ------------------------------------------------------------------------------------------- */

static int64_t try_grouped(enum kolo_reduce op, bool in_place, double scale, int seed)
{
    enum { N = 5 };
    static const char *const names[N] = {"g.0", "g.1", "g.2", "g.3", "g.4"};
    static const enum kolo_dtype types[N] = {KOLO_F32, KOLO_F32, KOLO_I32, KOLO_F32, KOLO_BF16};
    kolo_request r[N];
    kolo_handle h[N];
    int64_t bad = 0;
    for (int i = 0; i < N; i++) {
        char *in = name_vector[i], *out = name_vector[N + i];
        fill(in_place ? out : in, rank, 10 + i, seed + i, op, types[i]);
        r[i] = named(names[i], request(KOLO_ALLREDUCE, in_place ? NULL : in, out, types[i], 10 + i, 0));
        r[i].reduce = op;
        r[i].postscale = scale;
    }
    bad += kolo_submit_grouped(all, r, N, h) < 0;
    for (int i = 0; i < N && !bad; i++) {
        bad += kolo_wait(world, h[i]) < 0;
        for (int k = 0; k < 10 + i; k++) {
            put(types[i], list_want, 0, wanted(everybody(), k, seed + i, op, types[i]) * (scale ? scale : 1));
            bad += get(types[i], name_vector[N + i], k) != get(types[i], list_want, 0);
        }
    }
    return bad;
}

/* Those who are there reduce a group of mixed types; the others do not ask. */
static int64_t try_grouped_of(uint32_t there, int seed)
{
    enum { N = 4 };
    static const char *const names[N] = {"w.0", "w.1", "w.2", "w.3"};
    static const enum kolo_dtype types[N] = {KOLO_F32, KOLO_I32, KOLO_F32, KOLO_BF16};
    kolo_request r[N];
    kolo_handle h[N];
    int64_t bad = 0;
    for (int i = 0; i < N; i++) {
        fill(name_vector[i], rank, 30 + i, seed + i, KOLO_SUM, types[i]);
        r[i] = named(names[i], request(KOLO_ALLREDUCE, NULL, name_vector[i], types[i], 30 + i, 0));
    }
    if (kolo_submit_grouped(all, r, N, h) < 0) return 1000;
    for (int i = 0; i < N; i++)
        bad +=
            kolo_wait(world, h[i]) < 0 || differ(name_vector[i], 30 + i, there, seed + i, KOLO_SUM, types[i]);
    return bad;
}

/* Rows that differ from rank to rank, of two types; reduce_scatters whose rows cannot be cut evenly. */
static int64_t try_grouped_parts(enum kolo_collective what, enum kolo_reduce op, int seed)
{
    enum { N = 4 };
    static const char *const names[N] = {"p.0", "p.1", "p.2", "p.3"};
    kolo_request r[N];
    kolo_handle h[N];
    int64_t bad = 0;
    const bool gathers = what == KOLO_ALLGATHER;
    for (int i = 0; i < N; i++) {
        enum kolo_dtype type = i % 2 ? KOLO_I32 : KOLO_F32;
        int64_t rows = gathers ? (rank + i) % 3 : 4 * size + size / 2 + i;
        fill(name_vector[i], rank, rows * 3, seed + i, op, type);
        r[i] = named(names[i], request(what, name_vector[i], NULL, type, rows, 3));
        r[i].reduce = op;
    }
    if (kolo_submit_grouped(all, r, N, h) < 0) return 1000;
    for (int i = 0; i < N; i++) {
        kolo_output o = {0};
        int64_t rows = r[i].dim[0], at = 0;
        bad += kolo_wait(world, h[i]) < 0 || kolo_result(world, h[i], &o) < 0;
        if (bad) return bad;
        for (int m = 0; gathers && m < size; m++) {
            bad += o.splits[m] != (m + i) % 3;
            for (int64_t k = 0; k < (m + i) % 3 * 3; k++)
                bad += get(r[i].type, o.data, at++) != value(m, k, seed + i, op, r[i].type);
        }
        int64_t from = lib_cut(rows, size, rank);
        bad += !gathers && o.dim[0] != lib_cut(rows, size, rank + 1) - from;
        for (int64_t k = 0; !gathers && k < o.dim[0] * 3; k++) {
            put(r[i].type, list_want, 0, wanted(everybody(), from * 3 + k, seed + i, op, r[i].type));
            bad += get(r[i].type, o.data, k) != get(r[i].type, list_want, 0);
        }
        kolo_release(world, h[i]);
    }
    return bad;
}

/* Of numbers that are not exact, so a tensor's bits would tell whatever stands beside it. One has
 * no gradient on rank 0. */
static int64_t try_grouped_alone(enum kolo_reduce op, const char *compression)
{
    enum { N = 6, MOST = 130 };
    static const char *const names[N] = {"a.0", "a.1", "a.2", "a.3", "a.4", "a.5"};
    float in[N][MOST], one[N][MOST], together[N][MOST];
    kolo_request r[N];
    kolo_handle h[N];
    int64_t bad = 0;
    for (int i = 0; i < N; i++) {
        int64_t count = 5 + 25 * i;
        for (int64_t k = 0; k < count; k++)
            in[i][k] = i == 3 && rank == 0
                           ? 0
                           : (float)value(rank, k, 90 + i, KOLO_SUM, KOLO_F32) / 7 * (float)(1 << i);
        r[i] = request(KOLO_ALLREDUCE, in[i], one[i], KOLO_F32, count, 0);
        r[i].reduce = op;
        r[i].compression = compression;
        bad += run(all, &r[i], NULL) < 0;
        r[i].name = names[i];
        r[i].out = together[i];
    }
    bad += kolo_submit_grouped(all, r, N, h) < 0;
    for (int i = 0; i < N && !bad; i++)
        bad += kolo_wait(world, h[i]) < 0 ||
               memcmp(one[i], together[i], (size_t)r[i].dim[0] * sizeof(float)) != 0;
    for (int i = 0; i < N; i++) bad += differs_between_ranks(one[i], (size_t)r[i].dim[0] * sizeof(float));
    return bad;
}

/* Many vectors of two roots and many types, in place and not, empty ones and scalars among them; the library
 * makes some of the results. */
static int64_t try_grouped_broadcasts(int roots, int seed)
{
    enum { N = 12 };
    static const char *const names[N] = {"b.0", "b.1", "b.2", "b.3", "b.4",  "b.5",
                                         "b.6", "b.7", "b.8", "b.9", "b.10", "b.11"};
    kolo_request r[N];
    kolo_handle h[N];
    int64_t bad = 0;
    for (int i = 0; i < N; i++) {
        const enum kolo_dtype type = (enum kolo_dtype)((seed + i) % KOLO_DTYPES);
        const int64_t count = i == 5 ? 0 : i == 6 ? 1 : 40 + 50 * i;
        char *data = name_vector[i], *other = name_vector[N + i];
        r[i] = named(names[i],
                     request(KOLO_BROADCAST, i % 3 ? NULL : data, i % 3 ? data : other, type, count, 0));
        r[i].root = i % roots;
        if (i == 6) r[i].dims = 0;
        if (i == 7) r[i].in = rank == r[i].root ? data : NULL, r[i].out = NULL;
        fill(data, rank, count, seed + i, KOLO_SUM, type);
    }
    if (kolo_submit_grouped(all, r, N, h) < 0) return 1000;
    for (int i = 0; i < N; i++) {
        const int64_t count = r[i].dims ? r[i].dim[0] : 1;
        const void *got = r[i].out;
        kolo_output o = {0};
        if (kolo_wait(world, h[i]) < 0) return 1001;
        if (i == 7) bad += kolo_result(world, h[i], &o) < 0 || o.dim[0] != count, got = o.data;
        fill(list_want, r[i].root, count, seed + i, KOLO_SUM, r[i].type);
        bad += memcmp(got, list_want, (size_t)count * kolo_dtype_size(r[i].type)) != 0;
        if (i == 7) kolo_release(world, h[i]);
    }
    return bad;
}

static void check_grouped(void)
{
    int64_t bad = 0;
    for (int op = 0; op < 5; op++) bad += try_grouped((enum kolo_reduce)op, op % 2, 0, 40 + op);
    report(bad, "grouped allreduces by every reduction, in place and not");
    report(try_grouped(KOLO_SUM, false, 2, 60), "scaled");
    bad = try_grouped_parts(KOLO_ALLGATHER, KOLO_SUM, 70) + try_grouped_parts(KOLO_ALLGATHER, KOLO_SUM, 71);
    report(bad, "grouped allgathers, rows that differ from rank to rank");
    bad = 0;
    for (int op = 0; op < 5; op++)
        bad += try_grouped_parts(KOLO_REDUCE_SCATTER, (enum kolo_reduce)op, 75 + op);
    report(bad, "grouped reduce_scatters by every reduction, rows that cannot be cut evenly");
    bad = 0;
    for (int again = 0; again < 4; again++)
        bad += try_grouped_broadcasts(again % 2 && size > 1 ? 2 : 1, 80 + again / 2);
    report(bad, "grouped broadcasts of all types from one root and from two");
    report(try_grouped_alone(KOLO_ADASUM, NULL),
           "Adasum of many tensors grouped has the bits of each alone, and all ranks have the same");
    report(try_grouped_alone(KOLO_SUM, NULL) + try_grouped_alone(KOLO_AVERAGE, "bf16") +
               try_grouped_alone(KOLO_SUM, "fp16") + try_grouped_alone(KOLO_SUM, "int8"),
           "and so have sums, also in 16 bits and in 8");
    float v[2][8];
    kolo_handle h[3] = {0, 0, 0}, lone = 0;
    kolo_request r[3] = {named("a", request(KOLO_ALLREDUCE, NULL, v[0], KOLO_F32, 8, 0)),
                         named("b", request(KOLO_ALLREDUCE, NULL, v[1], KOLO_F32, 8, 0)),
                         named("a", request(KOLO_ALLREDUCE, NULL, v[1], KOLO_F32, 8, 0))};
    bad = refused(kolo_submit_grouped(all, r, 3, h), "a", "");
    for (int i = 0; i < 8; i++) v[1][i] = 1;
    /* "b" was not taken */
    bad += kolo_submit(all, &r[1], &lone) < 0 || kolo_wait(world, lone) < 0 || v[1][3] != (float)size;
    report(bad, "a name twice in a group: none of the group is submitted");
    r[2].name = NULL;
    report(refused(kolo_submit_grouped(all, r, 3, h), "has no name", "") + still_works(all),
           "a grouped request without a name");
}

/* ---- what does not match ------------------------------------------------------------------------------- */

static int64_t named_mismatch(kolo_request odd, kolo_request even, const char *one, const char *other)
{
    int64_t bad = 0;
    for (int again = 0; again < 2; again++)
        bad += refused(run(all, rank % 2 ? &odd : &even, NULL), one, other);
    return bad + still_works(all);
}

static void check_named_mismatches(void)
{
    static float v[17 * 1311];
    static const enum kolo_collective kinds[] = {KOLO_ALLREDUCE,      KOLO_ALLGATHER, KOLO_BROADCAST,
                                                 KOLO_REDUCE_SCATTER, KOLO_ALLTOALL,  KOLO_BARRIER};
    kolo_request a, b;
    int64_t bad = 0;
    for (int k = 0; k < 6; k++) {
        kolo_handle h = 0, second = 0;
        a = named("x", request(kinds[k], v, NULL, KOLO_F32, 2 * size, 3));
        const bool last = rank == size - 1; /* it holds back, so the name is under way on the others */
        if (!last) bad += kolo_submit(all, &a, &h) < 0 || refused(kolo_submit(all, &a, &second), "x", "");
        MPI_Barrier(MPI_COMM_WORLD);
        if (last) bad += kolo_submit(all, &a, &h) < 0;
        bad += kolo_wait(world, h) < 0;
        kolo_release(world, h);
    }
    report(bad + still_works(all), "a name that is under way is refused where it is asked for again, by "
                                   "whatever collective; the first is not disturbed");
    a = b = named("x", request(KOLO_ALLREDUCE, NULL, v, KOLO_F32, 17, 3));
    if (size == 1) return;
    b.dim[1] = 4;
    report(named_mismatch(a, b, "17 x 3", "17 x 4"),
           "another dimension under one name: an error on every rank, again and again");
    b = a;
    b.type = KOLO_I32;
    report(named_mismatch(a, b, "f32", "i32"), "another type");
    b = a;
    b.reduce = KOLO_MIN;
    report(named_mismatch(a, b, "sum", "min"), "another reduction");
    b = named("x", request(KOLO_BROADCAST, NULL, v, KOLO_F32, 17, 3));
    report(named_mismatch(a, b, "allreduce", "broadcast"), "another collective");
    a = b;
    a.root = 1;
    report(named_mismatch(a, b, "root 0", "root 1"), "another root");
    a = named("x", request(KOLO_ALLGATHER, v, NULL, KOLO_F32, 2, 2));
    b = named("x", request(KOLO_ALLGATHER, v, NULL, KOLO_F32, 2, 3));
    report(named_mismatch(a, b, "2 x 2", "2 x 3"), "allgather of another trailing dimension");
    a = named("x", request(KOLO_BROADCAST, NULL, v, KOLO_F32, 2, 0));
    b = a;
    b.root = size + 3;
    report(named_mismatch(a, b, "no member", "root"), "a root that is no member, on some ranks");
    a = named("x", request(KOLO_ALLREDUCE, NULL, v, KOLO_F32, 17, 3));
    for (int i = 0; i < 51; i++) v[i] = 1;
    report(run(all, &a, NULL) < 0 || v[50] != (float)size, "and the name can be used afterwards");
}

/* ---- join ---------------------------------------------------------------------------------------------- */

/* Everybody but `first` reduces once more after it has joined. */
static int64_t try_join(int first, enum kolo_reduce op, bool warm)
{
    enum { N = 2 };
    static const char *const names[N] = {"j.0", "j.1"};
    kolo_handle h[N];
    int64_t bad = 0;
    int last = -1, rounds = warm ? 2 : 1;
    for (int round = warm ? 0 : 1; round < 2; round++) {
        bool away = round == 1 && rank == first;
        for (int i = 0; i < N && !away; i++) {
            kolo_request r =
                named(names[i], request(KOLO_ALLREDUCE, NULL, name_vector[i], KOLO_F32, 50 + i, 0));
            r.reduce = op;
            fill(name_vector[i], rank, 50 + i, 10 * first + i, op, KOLO_F32);
            bad += kolo_submit(all, &r, &h[i]) < 0;
        }
        uint32_t there = everybody() & ~(round == 1 ? 1u << first : 0);
        for (int i = 0; i < N && !away; i++)
            bad += kolo_wait(world, h[i]) < 0 ||
                   differ(name_vector[i], 50 + i, there, 10 * first + i, op, KOLO_F32);
    }
    (void)rounds;
    bad += kolo_join(all, &last) < 0;
    int64_t highest = last, lowest = -last;
    bad += kolo_allreduce(all, NULL, &highest, 1, KOLO_I64, KOLO_MAX) < 0 ||
           kolo_allreduce(all, NULL, &lowest, 1, KOLO_I64, KOLO_MAX) < 0;
    return bad + (highest != -lowest || last < 0 || last >= size || last == first);
}

/* The same for those who are left: of each pair of numbers the greatest and the least. */
static int64_t differs_among(bool away, const float *v, int64_t count)
{
    int64_t most = INT64_MIN, least = INT64_MIN;
    uint64_t hash = kolo_hash_bytes(KOLO_HASH, v, (size_t)count * sizeof *v);
    if (!away) most = (int64_t)(hash >> 2), least = -most;
    int64_t bad = kolo_allreduce(all, NULL, &most, 1, KOLO_I64, KOLO_MAX) < 0 ||
                  kolo_allreduce(all, NULL, &least, 1, KOLO_I64, KOLO_MAX) < 0;
    return bad + (most != -least);
}

/* Sums that are more than sums by elements, and groups, while `first` has joined; asked for before that too,
 * so that what is held back is there. */
static int64_t try_join_special(int first)
{
    enum { COUNT = 600, KINDS = 7 };
    static const char *const words[KINDS] = {NULL,     "bf16",     "fp16",      "int8",
                                             "topk:1", "topk:0.1", "powersgd:2"};
    static float v[KINDS][COUNT];
    char name[KINDS][16];
    int64_t bad = 0;
    int last = -1;
    for (int round = 0; round < 2; round++) {
        const bool away = round == 1 && rank == first;
        const uint32_t there = everybody() & ~(round == 1 ? 1u << first : 0);
        for (int k = 0; k < KINDS && !away; k++) {
            kolo_request r =
                request(KOLO_ALLREDUCE, NULL, v[k], KOLO_F32, k == 6 ? 20 : COUNT, k == 6 ? 30 : 0);
            /* orthogonal: Adasum is the sum */
            for (int i = 0; i < COUNT && k == 0; i++) v[k][i] = i % size == rank ? 3 : 0;
            if (k) fill(v[k], rank, COUNT, 40 + k, KOLO_SUM, KOLO_F32);
            snprintf(name[k], sizeof name[k], "special.%d", k);
            r.name = name[k];
            r.compression = words[k];
            r.reduce = k == 0 ? KOLO_ADASUM : KOLO_SUM;
            bad += run(all, &r, NULL) < 0;
            for (int i = 0; i < COUNT && k == 0; i++)
                bad += v[k][i] != (float)(there >> i % size & 1 ? 3 : 0);
            if (k == 1 || k == 2 || k == 4) bad += differ(v[k], COUNT, there, 40 + k, KOLO_SUM, KOLO_F32);
        }
        if (!away) bad += try_grouped_of(there, 50 + first);
    }
    bad += kolo_join(all, &last) < 0 || last == first;
    for (int k = 0; k < KINDS; k++) bad += differs_among(rank == first, v[k], COUNT);
    return bad;
}

static void check_join(void)
{
    static const enum kolo_reduce ops[] = {KOLO_AVERAGE, KOLO_SUM, KOLO_MIN, KOLO_MAX, KOLO_PRODUCT};
    int64_t bad = 0;
    int last = -1;
    if (size == 1) {
        report(kolo_join(all, &last) < 0 || last != 0, "join alone");
        return;
    }
    for (int first = 0; first < size; first++) bad += try_join(first, ops[first % 5], first % 2);
    for (int op = 0; op < 5; op++) bad += try_join(op % size, ops[op], true);
    report(
        bad,
        "after each rank's join the others' average counts those that brought data, min, max and product are "
        "right; the last one is the same on all");
    bad = 0;
    for (int first = 0; first < size; first++) bad += try_join_special(first);
    report(bad, "Adasum, compressed and grouped sums are right while somebody has joined, and the same on "
                "all others");
    static const enum kolo_collective others[] = {KOLO_ALLGATHER,        KOLO_BROADCAST, KOLO_REDUCE_SCATTER,
                                                  KOLO_ALLTOALL,         KOLO_GATHER,    KOLO_SCATTER,
                                                  KOLO_SPARSE_ALLREDUCE, KOLO_BARRIER};
    static const int64_t index[64];
    bad = 0;
    for (int k = 0; rank != 0 && k < 8; k++) {
        kolo_request late = named("late", request(others[k], list_in, NULL, KOLO_F32, 2 * size, 3));
        late.index = index;
        late.rows = 2;
        bad += refused(run(all, &late, NULL), "joined", "late");
    }
    bad += kolo_join(all, &last) < 0;
    report(bad + still_works(all),
           "other collectives fail on those who ask for them while somebody has joined");
}

static void check_by_name(void)
{
    check_names();
    check_named_moves();
    check_grouped();
    check_named_mismatches();
    check_join();
}

#endif
