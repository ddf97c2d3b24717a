/* Requests by order that do not match, or are wrong in themselves: an error on every rank, and
 * the world stays usable. */
#ifndef TESTS_COMM_CHECKLIST_WRONG_H
#define TESTS_COMM_CHECKLIST_WRONG_H

#include "comm_checklist.h"

static int64_t mismatch(kolo_request odd, kolo_request even, const char *one, const char *other)
{
    int rc = run(all, rank % 2 ? &odd : &even, NULL);
    return refused(rc, one, other) + still_works(all);
}

static void check_mismatches(void)
{
    static float v[17 * 1311];
    kolo_request a = request(KOLO_ALLREDUCE, NULL, v, KOLO_F32, 17, 3), b = a;
    if (size == 1) return;
    b.dim[1] = 4;
    report(
        mismatch(a, b, "17 x 3", "17 x 4"),
        "another dimension: an error on every rank that names ranks and shapes, and the world stays usable");
    a.dim[1] = 1311;
    b.dims = 3;
    b.dim[1] = 23;
    b.dim[2] = 57;
    report(mismatch(a, b, "17 x 1311", "17 x 23 x 57"), "as many elements in another shape");
    b = a;
    b.type = KOLO_F64;
    b.dim[1] = a.dim[1] = 2;
    report(mismatch(a, b, " f32", " f64"), "another type");
    b = a;
    b.reduce = KOLO_MAX;
    report(mismatch(a, b, "sum", "max"), "another reduction");
    b = a;
    b.prescale = 2;
    report(mismatch(a, b, "rank 0", "scaled by 2"), "another factor");
    b = request(KOLO_BROADCAST, NULL, v, KOLO_F32, 17, 2);
    report(mismatch(a, b, "allreduce", "broadcast"), "another collective");
    a = b;
    a.root = 1;
    report(mismatch(a, b, "root 0", "root 1"), "another root");
    b.dim[1] = 1;
    a = b;
    a.type = KOLO_I32;
    report(mismatch(a, b, "17 x 1 f32", "17 x 1 i32"), "broadcast of another type");
    a.type = b.type;
    a.dim[0] = 16;
    report(mismatch(a, b, "broadcast of 16 x 1", "broadcast of 17 x 1"), "broadcast of another shape");
}

static void check_other_parts(void)
{
    static float v[17 * 1311];
    kolo_request a, b;
    if (size == 1) return;
    a = request(KOLO_ALLGATHER, v, NULL, KOLO_F32, 17, 2);
    b = request(KOLO_ALLGATHER, v, NULL, KOLO_F32, 17, 3);
    report(mismatch(a, b, "17 x 2", "17 x 3"), "allgather with another dimension behind the first");
    b = a;
    b.type = KOLO_I32;
    report(mismatch(a, b, "17 x 2 f32", "17 x 2 i32"), "allgather of another type");
    a = request(KOLO_ALLTOALL, v, NULL, KOLO_F32, 2 * size, 2);
    b = request(KOLO_ALLTOALL, v, NULL, KOLO_F32, 2 * size, 3);
    report(mismatch(a, b, " x 2 f32", " x 3 f32"), "alltoall with another dimension behind the first");
    b = request(KOLO_ALLTOALL, v, NULL, KOLO_I32, 2 * size, 2);
    report(mismatch(a, b, "f32", "i32"), "alltoall of another type");
    a = request(KOLO_REDUCE_SCATTER, v, NULL, KOLO_F32, 2 * size, 2);
    b = request(KOLO_REDUCE_SCATTER, v, NULL, KOLO_F32, 3 * size, 2);
    report(mismatch(a, b, "rank", " x 2 f32"), "reduce_scatter of another shape");
    b = a;
    b.type = KOLO_F64;
    report(mismatch(a, b, " x 2 f32", " x 2 f64"), "reduce_scatter of another type");
    a = request(KOLO_GATHER, v, NULL, KOLO_F32, 2, 2);
    b = request(KOLO_GATHER, v, NULL, KOLO_F32, 2, 3);
    report(mismatch(a, b, "2 x 2 f32", "2 x 3 f32"), "gather with another dimension behind the first");
    b = a;
    b.type = KOLO_I32;
    report(mismatch(a, b, "2 x 2 f32", "2 x 2 i32"), "gather of another type");
    int64_t first = 0;
    a = request(KOLO_SPARSE_ALLREDUCE, v, NULL, KOLO_F32, 1, 4);
    a.index = &first;
    a.rows = 9;
    b = a;
    b.rows = 8;
    report(mismatch(a, b, "of 9 rows", "of 8 rows"), "sparse sums of matrices of other heights");
    int rc = rank == 0 ? kolo_barrier(all) : kolo_allreduce(all, NULL, v, 3, KOLO_F32, KOLO_SUM);
    report(refused(rc, "rank 0: barrier", "allreduce of 3 f32") + still_works(all),
           "a barrier against an allreduce");
}

/* Root deals other parts than a rank awaits: nobody's memory is touched. */
static int64_t unequal_scatter(const int64_t *dealt, const int64_t *awaited, int64_t each, const char *one,
                               const char *other)
{
    int64_t bad = 0;
    memset(list_out, 0x5a, 4096);
    int rc = kolo_scatter(all, list_in, list_out, rank == 0 ? each : each - 2, rank == 0 ? dealt : awaited,
                          KOLO_F32, 0);
    bad += refused(rc, one, other);
    for (int i = 0; i < 4096; i++) bad += list_out[i] != 0x5a;
    return bad + still_works(all);
}

static void check_unequal_parts(void)
{
    int64_t dealt[32], awaited[32], bad = 0;
    char text[80];
    if (size == 1) return;
    report(unequal_scatter(NULL, NULL, 6, "rank 0 deals 6 rows to rank 1, which awaits 4", ""),
           "scatter of another count: an error on every rank, and no memory is touched");
    for (int m = 0; m < size; m++) dealt[m] = awaited[m] = m + 1;
    dealt[size - 1] += 3;
    snprintf(text, sizeof text, "rank 0 deals %d rows to rank %d, which awaits %d", size + 3, size - 1, size);
    report(unequal_scatter(dealt, awaited, 0, text, "1 such rank"), "scatter of other counts for one rank");
    float part[64], whole[1024];
    int rc = kolo_scatter(all, whole, part, 3, NULL, rank == 1 ? KOLO_I32 : KOLO_F32, 0);
    report(refused(rc, "f32", "i32") + still_works(all), "scatter of another type");
    kolo_request r = request(KOLO_SCATTER, whole, part, KOLO_F32, 2 * size, rank == 1 ? 2 : 3);
    report(refused(run(all, &r, NULL), "x 2", "x 3") + still_works(all),
           "scatter with another dimension behind the first");
    r = request(KOLO_SCATTER, whole, part, KOLO_F32, rank == 1 ? size : 3 * size, 2);
    r.name = "dealt";
    for (int again = 0; again < 2; again++)
        bad += refused(run(all, &r, NULL), "rank 0 deals 3 rows to rank 1, which awaits 1", "");
    report(bad + still_works(all), "scatter by name, of another count");
    rc = kolo_gather(all, part, whole, rank == 1 ? 5 : 4, NULL, KOLO_F32, 0);
    report(refused(rc, "rank 1: gather of 5 f32", "gather of 4 f32") + still_works(all),
           "gather of another count");
    rc = kolo_gather(all, part, whole, 0, rank == 0 ? dealt : awaited, KOLO_F32, 0);
    bad = refused(rc, rank ? "rank 0: gather" : "counts 1, ", "gather of 1 f32, root 0, counts 1") +
          still_works(all);
    rc = kolo_allgather(all, part, whole, 0, rank == 0 ? dealt : awaited, KOLO_F32);
    report(bad + refused(rc, "allgather of 1 f32, counts 1", "counts 1") + still_works(all),
           "gather and allgather of other counts for one rank");
    r = request(KOLO_ALLGATHER, part, whole, KOLO_F32, 2, 0);
    r.splits = awaited; /* which says 1 .. size */
    rc = run(all, &r, NULL);
    report(refused(rc, "splits say", "") + still_works(all),
           "rows that are not as many as the own splits say");
}

/* Wrong on all ranks, or on one of them alone. */
static int64_t faulty(kolo_request wrong, kolo_request right, const char *words)
{
    int rc = run(all, &wrong, NULL);
    int64_t bad = refused(rc, words, "");
    if (size > 1) {
        rc = run(all, rank == size - 1 ? &wrong : &right, NULL);
        bad += refused(rc, words, "rank 0");
    }
    return bad + still_works(all);
}

static void check_faults(void)
{
    static float v[1000];
    int64_t splits[32], bad = 0;
    kolo_request scalar = {.what = KOLO_ALLGATHER, .in = v},
                 right = request(KOLO_ALLGATHER, v, NULL, KOLO_F32, 2, 0);
    bad += faulty(scalar, right, "scalar");
    scalar.what = right.what = KOLO_REDUCE_SCATTER;
    report(bad + faulty(scalar, right, "scalar"),
           "allgather and reduce_scatter of a scalar: an error on every rank, also where only one brings it");
    right = request(KOLO_REDUCE_SCATTER, v, NULL, KOLO_F32, size, 0);
    kolo_request wrong = right;
    wrong.reduce = KOLO_ADASUM;
    report(faulty(wrong, right, "adasum"), "reduce_scatter by Adasum");
    right = request(KOLO_ALLTOALL, v, NULL, KOLO_F32, 2 * size, 0);
    wrong = right;
    wrong.dim[0] = 2 * size + 1;
    bad = size > 1 ? faulty(wrong, right, "evenly") : 0;
    for (int m = 0; m < size; m++) splits[m] = 4;
    wrong.splits = splits;
    bad += faulty(wrong, right, "splits sum up to");
    splits[0] = -1;
    report(bad + faulty(wrong, right, "negative"),
           "alltoall: rows that cannot be cut evenly, splits that are too many or negative");
    right = request(KOLO_BROADCAST, NULL, v, KOLO_F32, 2, 0);
    wrong = right;
    wrong.root = size;
    bad = faulty(wrong, right, "root");
    wrong.root = -1;
    report(bad + faulty(wrong, right, "root"), "a root that is no member");
    wrong = right;
    wrong.type = (enum kolo_dtype)99;
    bad = faulty(wrong, right, "type 99");
    wrong = right;
    wrong.dim[0] = -5;
    bad += faulty(wrong, right, "dimension 0 is -5");
    wrong.dims = 3;
    wrong.dim[0] = wrong.dim[1] = wrong.dim[2] = 1ll << 40;
    bad += faulty(wrong, right, "64 bits");
    wrong = request(KOLO_ALLREDUCE, NULL, NULL, KOLO_F32, 2, 0);
    report(bad + faulty(wrong, right, "neither in nor out"),
           "no such type, a negative dimension, more than 64 bits count, no vector");
    report(refused(kolo_test(world, 0), "handle", "") + refused(kolo_wait(world, 12345678901), "handle", "") +
               refused(kolo_test(world, -7), "handle", ""),
           "handles of nothing");
}

static void check_wrong(void)
{
    check_mismatches();
    check_other_parts();
    check_unequal_parts();
    check_faults();
}

#endif
