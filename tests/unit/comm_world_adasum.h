/* Buckets of Adasum against their definition, written apart in f64: the ranks of every node in their tree (or
 * averaged), then the nodes. */
#ifndef TESTS_COMM_WORLD_ADASUM_H
#define TESTS_COMM_WORLD_ADASUM_H

#include <math.h>

#include "comm_world.h"

enum { ADASUM_TENSORS = 7, ADASUM_COUNT = 3 + 1 + 40000 + 12 + 1 + 5001 + 70 };
static const int64_t adasum_count[ADASUM_TENSORS] = {3, 1, 40000, 12, 1, 5001, 70};

static inline void adasum_two(double *a, const double *b, int64_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (int64_t i = 0; i < n; i++) ab += a[i] * b[i], aa += a[i] * a[i], bb += b[i] * b[i];
    for (int64_t i = 0; i < n; i++)
        a[i] = (aa > 0 ? 1 - ab / (2 * aa) : 1) * a[i] + (bb > 0 ? 1 - ab / (2 * bb) : 1) * b[i];
}

/* v[n]: destroyed; the result in v[0]. */
static inline void adasum_tree(double **v, int n, int64_t count)
{
    double *left[WORLD_MAX] = {0};
    int q = 1;
    while (2 * q <= n) q *= 2;
    for (int i = 0, at = 0; i < q; i++, at++) {
        left[i] = v[at];
        if (i < n - q) adasum_two(left[i], v[++at], count);
    }
    for (; q > 1; q /= 2)
        for (int i = 0; i < q / 2; i++) {
            adasum_two(left[2 * i], left[2 * i + 1], count);
            left[i] = left[2 * i];
        }
}

/* As the gradients of ranks are: much in common. One tensor is 0 on all ranks. */
static inline double adasum_value(int rank, int64_t i, int round)
{
    if (i >= 3 && i < 4) return 0;
    return (double)(world_value(99, i, round, true) + world_value(rank, i, round, true)) / 1024;
}

static inline bool adasum_apart(const world *w, bool average, const float *got, int64_t from, int64_t count,
                                int round)
{
    double *v[WORLD_MAX], *node[WORLD_MAX] = {0}, far = 0, size = 0;
    int nodes = w->launch.nodes, ranks = w->launch.size;
    for (int r = 0; r < ranks; r++) {
        v[r] = malloc((size_t)count * sizeof(double));
        for (int64_t i = 0; i < count; i++) v[r][i] = adasum_value(r, from + i, round);
    }
    for (int n = 0; n < nodes; n++) {
        double *own[WORLD_MAX] = {0};
        int members = 0;
        for (int r = 0; r < ranks; r++)
            if (w->node_of[r] == n) own[members++] = v[r];
        if (!average) adasum_tree(own, members, count);
        for (int64_t i = 0; i < count && average; i++) {
            for (int m = 1; m < members; m++) own[0][i] += own[m][i];
            own[0][i] /= members;
        }
        node[n] = own[0];
    }
    adasum_tree(node, nodes, count);
    for (int64_t i = 0; i < count; i++) {
        far += (node[0][i] - (double)got[i]) * (node[0][i] - (double)got[i]);
        size += node[0][i] * node[0][i];
    }
    for (int r = 0; r < ranks; r++) free(v[r]);
    return sqrt(far) > 1e-6 * sqrt(size);
}

/* Tensors that are not what they should be, and ranks that have other bits than rank 0; or a negative
 * status. */
static inline int64_t world_adasum(world *w, bool average)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = (ADASUM_COUNT + 17) * 4, .timeout = 30, .spin = -1};
    static float first[ADASUM_COUNT + 17];
    int64_t bad = 0;
    int rc;
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &config));
    float *arena = kolo_comm_arena(comm);
    KOLO_TRY_GOTO(rc, kolo_comm_bucket(comm, 0, 16));
    KOLO_TRY_GOTO(rc, kolo_comm_bucket_adasum(comm, 0, 64, adasum_count, 5, average));
    KOLO_TRY_GOTO(
        rc, kolo_comm_bucket_adasum(comm, 0, (16 + ADASUM_COUNT - 5071) * 4, adasum_count + 5, 2, average));
    KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
    for (int round = 0; round < 3; round++) {
        for (int64_t i = 0; i < 16; i++) arena[i] = (float)i;
        for (int64_t i = 0; i < ADASUM_COUNT; i++)
            arena[16 + i] = (float)adasum_value(w->launch.rank, i, round);
        for (int b = 0; b < 3; b++) KOLO_TRY_GOTO(rc, kolo_comm_start(comm, b));
        for (int b = 0; b < 3; b++) KOLO_TRY_GOTO(rc, kolo_comm_wait(comm, b));
        for (int64_t i = 0; i < 16; i++) bad += arena[i] != (float)(i * w->launch.size);
        for (int64_t t = 0, at = 0; t < ADASUM_TENSORS; at += adasum_count[t++])
            bad += adasum_apart(w, average, arena + 16 + at, at, adasum_count[t], round);
        memcpy(first, arena, sizeof first);
        KOLO_TRY_GOTO(rc, kolo_comm_broadcast(comm, first, sizeof first, 0));
        bad += memcmp(first, arena, sizeof first) != 0;
    }
    rc = kolo_comm_barrier(comm);
fail:
    kolo_comm_destroy(&comm);
    return rc < 0 ? rc : bad;
}

#endif
