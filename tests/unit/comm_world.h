/* Ranks for comm's tests: a launch filled by hand for any node map, data whose sums are known, one
 * work-out for all sizes. Ranks are forked processes (comm_shm.c), threads (comm_threads.c) or MPI
 * processes (tests/mpi). */
#ifndef TESTS_COMM_WORLD_H
#define TESTS_COMM_WORLD_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "comm/buckets/trainer.h"
#include "comm/core/kernel.h"
#include "kolo/error.h"

enum { WORLD_MAX = 32 };

typedef struct world {
    kolo_launch launch;
    int node_of[WORLD_MAX], local_of[WORLD_MAX];
    char *host_of[WORLD_MAX];
} world;

/* node_of: [size], numbered by first appearance; NULL: one node. */
static inline void world_fill(world *w, int rank, int size, const int *node_of, const char *job)
{
    int ranks[WORLD_MAX] = {0};
    memset(w, 0, sizeof *w);
    kolo_launch *l = &w->launch;
    l->method = "test";
    l->rank = rank;
    l->size = size;
    l->nodes = 1;
    for (int r = 0; r < size; r++) {
        w->node_of[r] = node_of ? node_of[r] : 0;
        w->local_of[r] = ranks[w->node_of[r]]++;
        if (w->node_of[r] + 1 > l->nodes) l->nodes = w->node_of[r] + 1;
    }
    static char *const names[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"};
    for (int n = 0; n < l->nodes; n++) w->host_of[n] = names[n % 8];
    l->node = w->node_of[rank];
    l->local_rank = w->local_of[rank];
    l->local_size = ranks[l->node];
    l->node_of = w->node_of;
    l->local_of = w->local_of;
    l->host_of = w->host_of;
    snprintf(l->host, sizeof l->host, "%s", w->host_of[l->node]);
    snprintf(l->job, sizeof l->job, "%s", job);
}

/* Whole numbers whose sums are exact, or numbers whose sum depends on the order. */
static inline float world_value(int rank, int64_t i, int round, bool exact)
{
    kolo_philox4 r = kolo_philox(3 + (uint64_t)round, (uint64_t)rank, (uint64_t)i);
    if (exact) return (float)(int)(r.v[0] % 2001) - 1000;
    return (kolo_uniform(r.v[0]) - 0.5f) * (float)(1 << (r.v[1] % 16));
}

static inline float world_tree(const float *v, int n)
{
    int half = 1;
    if (n == 1) return v[0];
    while (half * 2 < n) half *= 2;
    return world_tree(v, half) + world_tree(v + half, n - half);
}

/* The sum as documented: canonical, the tree over ranks; else rank order within a node, then
 * the tree over nodes. */
static inline float world_sum(const world *w, int64_t i, int round, bool exact, bool canonical)
{
    float v[WORLD_MAX] = {0}, node[WORLD_MAX] = {0};
    int seen[WORLD_MAX] = {0};
    for (int r = 0; r < w->launch.size; r++) {
        int n = w->node_of[r];
        v[r] = world_value(r, i, round, exact);
        node[n] = seen[n]++ ? node[n] + v[r] : v[r];
    }
    return canonical ? world_tree(v, w->launch.size) : world_tree(node, w->launch.nodes);
}

/* An arena of counts that are multiples of nothing, cut into buckets in one of three ways;
 * all start, all wait. */
static const int64_t world_counts[] = {1, 3, 1023, 65537, 300001};
enum { WORLD_COUNT = 1 + 3 + 1023 + 65537 + 300001 + 61 };

static inline int world_declare(kolo_comm *comm, int cut)
{
    int64_t at = 0;
    if (cut == 0) KOLO_TRY(kolo_comm_bucket(comm, 0, WORLD_COUNT));
    for (int i = 0; cut == 1 && i < 5; at += world_counts[i++])
        KOLO_TRY(kolo_comm_bucket(comm, (size_t)at * 4, world_counts[i]));
    if (cut == 1) KOLO_TRY(kolo_comm_bucket(comm, (size_t)at * 4, WORLD_COUNT - at));
    for (; cut == 2 && at < WORLD_COUNT; at += 20011)
        KOLO_TRY(kolo_comm_bucket(comm, (size_t)at * 4, WORLD_COUNT - at < 20011 ? WORLD_COUNT - at : 20011));
    return cut == 0 ? 1 : cut == 1 ? 6 : (WORLD_COUNT + 20010) / 20011;
}

/* Returns elements that differ from the documented sum, or a negative status. */
static inline int64_t world_buckets(world *w, int cut, bool canonical, bool exact, const char *algorithm,
                                    int rounds)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                               .arena_bytes = (size_t)WORLD_COUNT * 4 + 64,
                               .canonical = canonical,
                               .timeout = 30,
                               .spin = -1,
                               .algorithm = algorithm};
    int64_t bad = 0;
    int rc, buckets = 0;
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &config));
    float *arena = kolo_comm_arena(comm);
    KOLO_TRY_GOTO(rc, buckets = world_declare(comm, cut));
    KOLO_TRY_GOTO(rc, kolo_comm_commit(comm));
    for (int round = 0; round < rounds; round++) {
        for (int64_t i = 0; i < WORLD_COUNT; i++) arena[i] = world_value(w->launch.rank, i, round, exact);
        arena[WORLD_COUNT] = 7;
        for (int b = buckets - 1; b >= 0; b--) KOLO_TRY_GOTO(rc, kolo_comm_start(comm, b));
        for (int b = 0; b < buckets; b++) KOLO_TRY_GOTO(rc, kolo_comm_wait(comm, b));
        for (int64_t i = 0; i < WORLD_COUNT; i += i < 2000 || i > WORLD_COUNT - 2000 ? 1 : 13) {
            float want = world_sum(w, i, round, exact, canonical);
            bad += memcmp(&arena[i], &want, 4) != 0;
        }
        bad += arena[WORLD_COUNT] != 7;
    }
    KOLO_TRY_GOTO(rc, kolo_comm_barrier(comm));
    kolo_comm_destroy(&comm);
    return bad;
fail:
    kolo_comm_destroy(&comm);
    return rc;
}

static inline int64_t world_small_sums(world *w, kolo_comm *comm, bool canonical)
{
    const int64_t counts[] = {1, 3, 257, 70001};
    int64_t bad = 0;
    float *f = malloc(70001 * sizeof *f);
    for (int c = 0; c < 4; c++) {
        for (int64_t i = 0; i < counts[c]; i++) f[i] = world_value(w->launch.rank, i, c, false);
        if (kolo_comm_allreduce(comm, f, counts[c], KOLO_F32, KOLO_SUM) < 0) bad++;
        for (int64_t i = 0; i < counts[c]; i++) {
            float want = world_sum(w, i, c, false, canonical);
            bad += memcmp(&f[i], &want, 4) != 0;
        }
    }
    free(f);
    return bad;
}

/* Whole numbers that every type holds. */
static inline int world_whole(int rank, int64_t i, enum kolo_dtype type)
{
    return type == KOLO_BOOL ? (rank + i) % 3 == 0 : (int)((rank * 3 + i) % 7);
}

static inline void world_write(void *at, enum kolo_dtype type, const float *value, int64_t count)
{
    for (int64_t i = 0; i < count; i++) switch (type) {
        case KOLO_U8:
        case KOLO_I8:
        case KOLO_BOOL: ((uint8_t *)at)[i] = (uint8_t)value[i]; break;
        case KOLO_U16:
        case KOLO_I16: ((uint16_t *)at)[i] = (uint16_t)value[i]; break;
        case KOLO_I32: ((int32_t *)at)[i] = (int32_t)value[i]; break;
        case KOLO_I64: ((int64_t *)at)[i] = (int64_t)value[i]; break;
        case KOLO_F64: ((double *)at)[i] = value[i]; break;
        case KOLO_F32: ((float *)at)[i] = value[i]; break;
        default: comm_narrow((uint16_t *)at + i, value + i, 1, type);
        }
}

/* Every type, in one piece of the staging memory and in several. */
static inline int64_t world_small_types(world *w, kolo_comm *comm)
{
    static const enum kolo_reduce ops[] = {KOLO_SUM, KOLO_MIN, KOLO_MAX};
    enum { MOST = 40001 };
    int64_t bad = 0;
    char *data = malloc(MOST * 8), *want = malloc(MOST * 8);
    float *value = malloc(MOST * sizeof *value);
    for (int run = 0; run < KOLO_DTYPES * 3; run++) {
        enum kolo_dtype type = (enum kolo_dtype)(run / 3);
        enum kolo_reduce op = ops[run % 3];
        int64_t count = op == KOLO_SUM ? MOST : 37;
        for (int64_t i = 0; i < count; i++) value[i] = (float)world_whole(w->launch.rank, i, type);
        world_write(data, type, value, count);
        for (int64_t i = 0; i < count; i++) {
            float *v = &value[i];
            *v = (float)world_whole(0, i, type);
            for (int r = 1; r < w->launch.size; r++) {
                float x = (float)world_whole(r, i, type);
                *v = op == KOLO_SUM ? *v + x : op == KOLO_MIN ? (x < *v ? x : *v) : x > *v ? x : *v;
            }
            if (type == KOLO_BOOL && *v > 1) *v = 1;
        }
        world_write(want, type, value, count);
        if (kolo_comm_allreduce(comm, data, count, type, op) < 0) bad++;
        bad += memcmp(data, want, (size_t)count * kolo_dtype_size(type)) != 0;
    }
    free(data);
    free(want);
    free(value);
    return bad;
}

static inline int64_t world_small_moves(world *w, kolo_comm *comm)
{
    enum { BYTES = 600001 }; /* some rounds of COMM_STAGE */
    int64_t bad = 0;
    int size = w->launch.size, rank = w->launch.rank;
    unsigned char *mine = malloc(BYTES), *all = malloc((size_t)BYTES * (size_t)size);
    for (int root = 0; root < size; root++) {
        for (int i = 0; i < BYTES; i++) mine[i] = (unsigned char)(rank * 31 + i % 251);
        memset(all, 0, (size_t)BYTES * (size_t)size);
        if (kolo_comm_gather(comm, mine, BYTES, rank == root ? all : NULL, root) < 0) bad++;
        for (int r = 0; rank == root && r < size; r++)
            for (int i = 0; i < BYTES; i++) bad += all[r * BYTES + i] != (unsigned char)(r * 31 + i % 251);
        const bool wants = rank == root || (rank + root) % 3 != 1;
        const int there = wants ? root : rank;
        if (kolo_comm_broadcast(comm, wants ? mine : NULL, BYTES, root) < 0) bad++;
        for (int i = 0; i < BYTES; i++) bad += mine[i] != (unsigned char)(there * 31 + i % 251);
        bad += kolo_comm_barrier(comm) < 0;
    }
    free(mine);
    free(all);
    return bad;
}

static inline int64_t world_small(world *w, bool canonical)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                               .arena_bytes = 4096,
                               .canonical = canonical,
                               .timeout = 30,
                               .spin = -1};
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &config));
    int64_t bad =
        world_small_sums(w, comm, canonical) + world_small_types(w, comm) + world_small_moves(w, comm);
    kolo_comm_destroy(&comm);
    return bad;
}

/* Entries of /dev/shm that belong to this job name. */
static inline int world_leftovers(const char *job)
{
    char name[128];
    bool any = false;
    size_t n = (size_t)snprintf(name, sizeof name, "kolo-%s", job);
    DIR *folder = opendir("/dev/shm");
    for (struct dirent *e; folder && !any && (e = readdir(folder));) any = strncmp(e->d_name, name, n) == 0;
    if (folder) closedir(folder);
    return any;
}

#endif
