/* Requests that are matched by order: every collective, type and operation. */
#ifndef TESTS_COMM_CHECKLIST_BY_ORDER_H
#define TESTS_COMM_CHECKLIST_BY_ORDER_H

#include "comm_checklist.h"

static const enum kolo_reduce plain_reductions[] = {KOLO_SUM, KOLO_AVERAGE, KOLO_MIN, KOLO_MAX, KOLO_PRODUCT};

/* ---- allreduce ----------------------------------------------------------------------------------------- */

static int64_t try_allreduce(enum kolo_dtype type, enum kolo_reduce op, int64_t count, bool in_place,
                             int seed)
{
    int64_t bad = 0;
    fill(list_in, rank, count, seed, op, type);
    memset(list_out, 0x5a, (size_t)count * kolo_dtype_size(type) + 8);
    if (in_place) memcpy(list_out, list_in, (size_t)count * kolo_dtype_size(type));
    bad += kolo_allreduce(all, in_place ? NULL : list_in, list_out, count, type, op) < 0;
    bad += differ(list_out, count, everybody(), seed, op, type);
    bad += list_out[(size_t)count * kolo_dtype_size(type)] != 0x5a;
    fill(list_want, rank, count, seed, op, type);
    bad += memcmp(list_want, list_in, (size_t)count * kolo_dtype_size(type)) != 0;
    return bad;
}

static void check_allreduce(void)
{
    static const int64_t counts[] = {1, 0, 37, 3001};
    int64_t out_of_place = 0, in_place = 0;
    for (int type = 0; type < KOLO_DTYPES; type++)
        for (int op = 0; op < 5; op++) {
            out_of_place += try_allreduce((enum kolo_dtype)type, plain_reductions[op],
                                          counts[(type + op) % 4], false, type * 5 + op);
            in_place += try_allreduce((enum kolo_dtype)type, plain_reductions[op],
                                      counts[(type + op + 1) % 4], true, type * 5 + op);
        }
    report(out_of_place,
           "allreduce of 11 types by sum, average, min, max, product; the input stays as it was");
    report(in_place, "the same in place");
    report(try_allreduce(KOLO_F32, KOLO_SUM, LIST_MAX, false, 90) +
               try_allreduce(KOLO_BF16, KOLO_SUM, LIST_MAX, true, 91) +
               try_allreduce(KOLO_I64, KOLO_MAX, LIST_MAX, false, 92),
           "allreduce of larger vectors");
}

/* Factors and sums that are exact, so the result is one number. */
static void check_scales(void)
{
    static const enum kolo_dtype types[] = {KOLO_F32, KOLO_F64, KOLO_F16, KOLO_BF16, KOLO_I32, KOLO_I64};
    int64_t bad = 0, sum = (int64_t)size * (size + 1) / 2;
    for (int t = 0; t < 6; t++) {
        bool whole = t >= 4;
        kolo_request r = request(KOLO_ALLREDUCE, list_in, list_out, types[t], 33, 0);
        r.prescale = whole ? 3 : 0.5;
        r.postscale = 0.25;
        for (int i = 0; i < 33; i++) put(types[t], list_in, i, 2 * (rank + 1));
        bad += run(all, &r, NULL) < 0;
        double want = whole ? (double)(6 * sum / 4) : 0.25 * (double)sum;
        put(types[t], list_want, 0, want);
        for (int i = 0; i < 33; i++) bad += get(types[t], list_out, i) != get(types[t], list_want, 0);
    }
    report(bad, "prescale and postscale; integers in f64, truncated");
    float one = 1, divided;
    kolo_request r = request(KOLO_ALLREDUCE, &one, &divided, KOLO_F32, 1, 0);
    r.reduce = KOLO_AVERAGE;
    r.postscale = 3;
    report(run(all, &r, NULL) < 0 || divided != 3, "an average times a postscale");
}

static void check_integers(void)
{
    int64_t bad = 0, big = (1ll << 53) + 1 + rank, v[3] = {big, -1 - rank, 49}, sum = 0;
    for (int i = 0; i < size; i++) sum += (1ll << 53) + 1 + i;
    bad += kolo_allreduce(all, NULL, v, 1, KOLO_I64, KOLO_SUM) < 0 || v[0] != sum;
    v[0] = big;
    bad += kolo_allreduce(all, NULL, v, 3, KOLO_I64, KOLO_AVERAGE) < 0 || v[0] != sum / size || v[2] != 49;
    bad += v[1] != -((int64_t)size * (size + 1) / 2) / size;
    report(bad, "integers beyond 2^53 keep every bit; averages are exact quotients, rounded toward zero");
    /* the average of 49 ones, as a group of 49 would form it */
    int64_t ones[64], got[64];
    for (int n = 2; n < 64; n++) ones[n] = n;
    for (int n = 2; n < 64; n++) comm_scale(&got[n], &ones[n], 1, KOLO_I64, n, 1);
    for (int n = 2, wrong = 0; n < 64; n++) bad += wrong = got[n] != 1;
    report(bad, "n ones average to 1 for any n, 49 included");
}

static void check_halves(void)
{
    /* 1 + n * 2^-9: a sum that rounds at every step loses the small ones; one rounding keeps their sum */
    uint16_t v[2] = {half_bits(KOLO_BF16, rank ? 0x1p-9 : 1), half_bits(KOLO_F16, rank ? 0x1p-12 : 1)};
    int64_t bad = 0;
    for (int t = 0; t < 2; t++) {
        enum kolo_dtype type = t ? KOLO_F16 : KOLO_BF16;
        double exact = 1 + (size - 1) * (t ? 0x1p-12 : 0x1p-9);
        bad += kolo_allreduce(all, NULL, &v[t], 1, type, KOLO_SUM) < 0 || v[t] != half_bits(type, exact);
    }
    report(bad, "16-bit sums are formed in f32 and rounded once");
    for (int i = 0; i < 5000; i++)
        ((uint16_t *)(void *)list_out)[i] = half_bits(KOLO_BF16, rank ? 0x1p-9 : 1);
    bad = kolo_allreduce(all, NULL, list_out, 5000, KOLO_BF16, KOLO_SUM) < 0;
    for (int i = 0; i < 5000; i++)
        bad += ((uint16_t *)(void *)list_out)[i] != half_bits(KOLO_BF16, 1 + (size - 1) * 0x1p-9);
    report(bad, "the same of a larger vector");
    float nan[2] = {rank == size - 1 ? NAN : 1, 2};
    bad = kolo_allreduce(all, NULL, nan, 2, KOLO_F32, KOLO_MAX) < 0 || nan[0] == nan[0] || nan[1] != 2;
    report(bad, "NaN wins max");
}

static void check_async(void)
{
    enum { MANY = 24 };
    static char vector[MANY][4096];
    static const enum kolo_dtype types[] = {KOLO_F32, KOLO_I32, KOLO_BF16, KOLO_F64};
    kolo_handle handle[MANY];
    int64_t bad = 0;
    for (int i = 0; i < MANY; i++) {
        kolo_request r = request(KOLO_ALLREDUCE, NULL, vector[i], types[i % 4], 1 + 20 * i, 0);
        fill(vector[i], rank, 1 + 20 * i, i, KOLO_SUM, types[i % 4]);
        /* the others have found it not complete */
        if (i == 0 && rank == size - 1) MPI_Barrier(MPI_COMM_WORLD);
        bad += kolo_submit(all, &r, &handle[i]) < 0;
        if (i == 0 && rank < size - 1) {
            bad += kolo_test(world, handle[0]) != 0;
            MPI_Barrier(MPI_COMM_WORLD);
        }
    }
    for (int k = 0; k < MANY; k++) {
        int i = (k * 7 + rank) % MANY; /* waited for in any order */
        bad += kolo_wait(world, handle[i]) < 0 ||
               differ(vector[i], 1 + 20 * i, everybody(), i, KOLO_SUM, types[i % 4]);
        bad += kolo_test(world, handle[i]) != KOLO_EINPUT || kolo_wait(world, handle[i]) != KOLO_EINPUT;
    }
    report(bad, "many at once, of mixed types; a test before the others came says no; a released handle is "
                "recognised");
}

/* ---- moving -------------------------------------------------------------------------------------------- */

static int64_t rows_of(int r, int seed)
{
    return (const int64_t[]){17, 32, 81, 12, 15, 23, 22}[(r + seed) % 7];
}

static int64_t try_gather(enum kolo_dtype type, bool variable, bool at_root, int seed)
{
    int root = seed % size;
    int64_t mine = variable ? rows_of(rank, seed) : 17, bad = 0, at = 0;
    kolo_request r = request(at_root ? KOLO_GATHER : KOLO_ALLGATHER, list_in, NULL, type, mine, 5);
    kolo_output o = {0};
    kolo_handle h;
    r.root = root;
    fill(list_in, rank, mine * 5, seed, KOLO_SUM, type);
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0) return 1000;
    for (int m = 0; m < size && (!at_root || rank == root); m++) {
        int64_t rows = variable ? rows_of(m, seed) : 17;
        fill(list_want, m, rows * 5, seed, KOLO_SUM, type);
        bad += memcmp((const char *)o.data + (size_t)at * 5 * kolo_dtype_size(type), list_want,
                      (size_t)rows * 5 * kolo_dtype_size(type)) != 0;
        bad += o.splits[m] != rows;
        at += rows;
    }
    if (!at_root || rank == root) bad += o.dims != 2 || o.dim[0] != at || o.dim[1] != 5;
    kolo_release(world, h);
    return bad;
}

static void check_gather(void)
{
    int64_t equal = 0, variable = 0, rooted = 0, blocking = 0, counts[32];
    for (int type = 0; type < KOLO_DTYPES; type++) {
        equal += try_gather((enum kolo_dtype)type, false, false, type);
        variable += try_gather((enum kolo_dtype)type, true, false, type);
        rooted += type % 3 ? 0 : try_gather((enum kolo_dtype)type, type % 2, true, type);
    }
    report(equal, "allgather of equal parts, 11 types");
    report(variable, "allgather of parts of different length");
    report(rooted, "gather at every root");
    for (int m = 0; m < size; m++) counts[m] = m % 3;
    float part[3] = {(float)rank, (float)rank + 0.5f, 0}, joined[64];
    blocking += kolo_allgather(all, part, joined, 0, counts, KOLO_F32) < 0;
    for (int m = 0, at = 0; m < size; m++)
        for (int i = 0; i < counts[m]; i++) blocking += joined[at++] != (float)m + 0.5f * (float)i;
    double tree[32];
    tree[rank] = rank * 3;
    blocking += kolo_allgather(all, NULL, tree, 1, NULL, KOLO_F64) < 0;
    for (int m = 0; m < size; m++) blocking += tree[m] != m * 3;
    report(blocking, "blocking allgather with known counts, some 0; in place");
}

static void check_broadcast(void)
{
    int64_t bad = 0, placed = 0;
    for (int root = 0; root < size; root++)
        for (int k = 0; k < 3; k++) {
            enum kolo_dtype type = (enum kolo_dtype)((root * 3 + k) % KOLO_DTYPES);
            int64_t count = (const int64_t[]){1, 40, 9001}[k];
            fill(list_in, rank, count, k, KOLO_SUM, type);
            kolo_request r = request(KOLO_BROADCAST, list_in, list_out, type, count, 0);
            r.root = root;
            bad += run(all, &r, NULL) < 0;
            fill(list_want, root, count, k, KOLO_SUM, type);
            bad += memcmp(list_out, list_want, (size_t)count * kolo_dtype_size(type)) != 0;
            placed += kolo_broadcast(all, list_in, count, type, root) < 0 ||
                      memcmp(list_in, list_want, (size_t)count * kolo_dtype_size(type)) != 0;
        }
    report(bad, "broadcast from every root");
    report(placed, "in place");
    char text[100];
    void *object;
    size_t bytes;
    snprintf(text, sizeof text, "what rank %d of %d knows", size - 1, size);
    bad = kolo_broadcast_object(all, rank == size - 1 ? text : NULL, rank == size - 1 ? strlen(text) + 1 : 0,
                                size - 1, &object, &bytes) < 0;
    report(bad || strcmp(object, text) != 0 || bytes != strlen(text) + 1,
           "broadcast of an object whose size the others do not know");
    if (!bad) kolo_release_object(&object);
    bad = kolo_broadcast_object(all, NULL, 0, 0, &object, &bytes) < 0 || bytes || !object;
    kolo_release_object(&object);
    report(bad, "an object of no bytes");
    if (size > 1)
        report(
            refused(kolo_broadcast_object(all, text, 5, rank ? 1 : 0, &object, &bytes), "root 0", "root 1") +
                (object != NULL) + still_works(all),
            "an object of two roots: an error on every rank");
}

static void check_scatter(void)
{
    int64_t bad = 0, counts[32], total = 0;
    for (int root = 0; root < size; root++) {
        fill(list_in, root, 100, root, KOLO_SUM, KOLO_I32);
        kolo_request r =
            request(KOLO_SCATTER, rank == root ? list_in : NULL, NULL, KOLO_I32, rank == root ? 50 : 0, 2);
        kolo_output o = {0};
        kolo_handle h = 0;
        r.root = root;
        bad += kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0;
        int64_t from = lib_cut(50, size, rank), rows = lib_cut(50, size, rank + 1) - from;
        bad += o.dim[0] != rows || memcmp(o.data, list_in + from * 8, (size_t)rows * 8) != 0;
        kolo_release(world, h);
    }
    for (int m = 0; m < size; m++) total += counts[m] = m;
    for (int i = 0; i < total; i++) ((float *)(void *)list_in)[i] = (float)i;
    bad += kolo_scatter(all, rank == 0 ? list_in : NULL, list_out, 0, counts, KOLO_F32, 0) < 0;
    for (int i = 0; i < rank; i++)
        bad += ((float *)(void *)list_out)[i] != (float)(rank * (rank - 1) / 2 + i);
    report(bad, "scatter from every root, evenly and by counts");
}

/* rows[from][to] */
static int64_t try_alltoall(int kind, enum kolo_dtype type)
{
    int64_t splits[32], total = 0, bad = 0, at = 0;
#define ROWS(from, to)                                       \
    ((kind == 0)   ? (from) + 1                              \
     : (kind == 1) ? 3                                       \
     : (kind == 2) ? ((from) == 0 ? 0 : 2)                   \
     : (kind == 3) ? ((to) == size - 1 ? 0 : 1 + (from) % 2) \
                   : 0)
    for (int m = 0; m < size; m++) total += splits[m] = ROWS(rank, m);
    fill(list_in, rank, total * 3, kind, KOLO_SUM, type);
    kolo_request r = request(KOLO_ALLTOALL, list_in, NULL, type, total, 3);
    kolo_output o = {0};
    kolo_handle h;
    if (kind != 1) r.splits = splits;
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0) return 1000;
    for (int m = 0; m < size; m++) {
        int64_t first = 0, rows = ROWS(m, rank), whole = 0;
        for (int k = 0; k < size; k++) whole += ROWS(m, k);
        for (int k = 0; k < rank; k++) first += ROWS(m, k);
        fill(list_want, m, whole * 3, kind, KOLO_SUM, type);
        bad += o.splits[m] != rows || memcmp((const char *)o.data + (size_t)at * 3 * kolo_dtype_size(type),
                                             list_want + (size_t)first * 3 * kolo_dtype_size(type),
                                             (size_t)rows * 3 * kolo_dtype_size(type)) != 0;
        at += rows;
    }
#undef ROWS
    bad += o.dim[0] != at || o.dims != 2;
    kolo_release(world, h);
    return bad;
}

static void check_alltoall(void)
{
    int64_t bad = 0, send[32], receive[32];
    for (int type = 0; type < KOLO_DTYPES; type++) bad += try_alltoall(0, (enum kolo_dtype)type);
    report(bad, "alltoall with uneven splits, and how much came from whom");
    report(try_alltoall(1, KOLO_F32), "alltoall cut evenly");
    report(try_alltoall(2, KOLO_U8) + try_alltoall(3, KOLO_F64) + try_alltoall(4, KOLO_I16),
           "one sends nothing; one receives nothing; nobody sends anything");
    for (int m = 0; m < size; m++) {
        send[m] = rank + m;
        receive[m] = rank + m;
        for (int64_t i = 0, at = (int64_t)rank * m + m * (m - 1) / 2; i < send[m]; i++)
            ((int32_t *)(void *)list_in)[at + i] = rank * 100 + m;
    }
    bad = kolo_alltoall(all, list_in, send, list_out, receive, KOLO_I32) < 0;
    for (int m = 0; m < size; m++)
        for (int64_t i = 0, at = (int64_t)rank * m + m * (m - 1) / 2; i < receive[m]; i++)
            bad += ((int32_t *)(void *)list_out)[at + i] != m * 100 + rank;
    report(bad, "blocking alltoall");
    if (size == 1) return;
    if (rank == 1) receive[0]++;
    int rc = kolo_alltoall(all, list_in, send, list_out, receive, KOLO_I32);
    report(refused(rc, "rank 0 sends 1 elements to rank 1", "awaits 2") + still_works(all),
           "a receiver that awaits something else: an error on every rank");
}

static int64_t try_reduce_scatter(enum kolo_dtype type, enum kolo_reduce op, int64_t rows, double scale)
{
    kolo_request r = request(KOLO_REDUCE_SCATTER, list_in, NULL, type, rows, 7);
    kolo_output o = {0};
    kolo_handle h;
    int64_t from = lib_cut(rows, size, rank), mine = lib_cut(rows, size, rank + 1) - from, bad = 0;
    r.reduce = op;
    r.prescale = scale;
    fill(list_in, rank, rows * 7, (int)rows, op, type);
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(world, h) < 0 || kolo_result(world, h, &o) < 0) return 1000;
    bad += o.dim[0] != mine || o.dim[1] != 7;
    for (int64_t i = 0; i < mine * 7; i++) {
        put(type, list_want, 0, wanted(everybody(), from * 7 + i, (int)rows, op, type) * (scale ? scale : 1));
        bad += get(type, o.data, i) != get(type, list_want, 0);
    }
    kolo_release(world, h);
    return bad;
}

static void check_reduce_scatter(void)
{
    int64_t bad = 0;
    for (int type = 0; type < KOLO_DTYPES; type++)
        for (int op = type % 2; op < 5; op += 2)
            bad += try_reduce_scatter((enum kolo_dtype)type, plain_reductions[op], 4 * size, 0);
    report(bad, "reduce_scatter of 11 types by sum, average, min, max, product");
    report(try_reduce_scatter(KOLO_F32, KOLO_SUM, 4 * size + size / 2, 0) +
               try_reduce_scatter(KOLO_I32, KOLO_AVERAGE, size - 1, 0) +
               try_reduce_scatter(KOLO_F64, KOLO_MAX, 1, 0),
           "uneven: the first ranks get one row more; fewer rows than ranks");
    report(try_reduce_scatter(KOLO_F32, KOLO_SUM, 11, 0.5) + try_reduce_scatter(KOLO_BF16, KOLO_SUM, 5, 2),
           "scaled");
    float v[40], *part = &v[0];
    for (int i = 0; i < 40; i++) v[i] = (float)(i + rank);
    bad = kolo_reduce_scatter(all, NULL, v, 40, KOLO_F32, KOLO_SUM) < 0;
    for (int64_t i = lib_cut(40, size, rank); i < lib_cut(40, size, rank + 1); i++)
        bad += *part++ != (float)(i * size + size * (size - 1) / 2);
    report(bad, "blocking and in place: the part stands in front");
}

/* ---- barrier ------------------------------------------------------------------------------------------- */

static void check_barrier(void)
{
    int64_t bad = 0;
    double entered = 0;
    if (rank == size - 1) {
        usleep(20000);
        entered = kolo_time();
    }
    bad += kolo_barrier(all) < 0;
    double left = kolo_time();
    MPI_Bcast(&entered, 1, MPI_DOUBLE, size - 1, MPI_COMM_WORLD);
    bad += left < entered;
    report(bad, "a barrier waits for the last");
    static float v[5000];
    kolo_handle h[4];
    for (int i = 0; i < 4; i++) {
        kolo_request r = request(KOLO_ALLREDUCE, NULL, v + 1000 * i, KOLO_F32, 1000, 0);
        for (int k = 0; k < 1000; k++) v[1000 * i + k] = 1;
        bad += kolo_submit(all, &r, &h[i]) < 0;
        kolo_request barrier = {.what = KOLO_BARRIER};
        bad += kolo_submit(all, &barrier, NULL) < 0;
    }
    bad += kolo_barrier(all) < 0;
    for (int i = 0; i < 4; i++) bad += kolo_wait(world, h[i]) < 0 || v[1000 * i + 7] != (float)size;
    report(bad, "barriers among requests that are under way, some without a handle");
}

static void check_by_order(void)
{
    check_allreduce();
    check_scales();
    check_integers();
    check_halves();
    check_async();
    check_gather();
    check_broadcast();
    check_scatter();
    check_alltoall();
    check_reduce_scatter();
    check_barrier();
}

#endif
