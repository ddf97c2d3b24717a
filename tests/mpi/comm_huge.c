/* Vectors of more elements than 32 bits count: comm_huge [ELEMENTS=2147483653] [apart] of u8; every part of a
 * sum, of what is scattered of it, and of what is moved is looked at. apart: every rank on a node of its
 * own. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/library/parts.h"
#include "kolo/world.h"
#include "tap.h"

enum { RANKS_MAX = 32 };
static int rank, size;
static const char *place = "one node";
static kolo_group *all;

/* Of rank `of`, at i: differs around every power of two. */
static uint8_t byte_at(int of, int64_t i)
{
    return (uint8_t)((uint64_t)(i + 1) * 0x9e3779b97f4a7c15u >> 57 ^ (uint64_t)of);
}

static void fill(uint8_t *v, int64_t count, int of)
{
    for (int64_t i = 0; i < count; i++) v[i] = byte_at(of, i);
}

static void report(int64_t bad, int64_t count, const char *what)
{
    long long mine = bad, sum = 0;
    if (bad) fprintf(stderr, "# rank %d: %s: %lld wrong: %s\n", rank, what, mine, kolo_error_text());
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) is_int(sum, 0, "%d ranks, %s, %lld elements: %s", size, place, (long long)count, what);
}

static int exchange(void *of, const void *mine, size_t bytes, void *everybodys)
{
    (void)of;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, everybodys, (int)bytes, MPI_BYTE, MPI_COMM_WORLD)
               ? KOLO_ELAUNCH
               : 0;
}

static kolo_launch *deal(void)
{
    static int node_of[RANKS_MAX], local_of[RANKS_MAX];
    static char name[] = "simulated", *hosts[RANKS_MAX];
    static kolo_launch l;
    int job = (int)getpid();
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) node_of[r] = r, hosts[r] = name;
    l = (kolo_launch){.method = "test",
                      .rank = rank,
                      .size = size,
                      .nodes = size,
                      .node = rank,
                      .local_size = 1,
                      .node_of = node_of,
                      .local_of = local_of,
                      .host_of = hosts,
                      .mpi = true};
    snprintf(l.host, sizeof l.host, "%s", name);
    snprintf(l.job, sizeof l.job, "huge.%d", job);
    place = "every rank on a node of its own";
    return &l;
}

/* Everybody sends all it has to the next one. */
static void check_alltoall(uint8_t *v, int64_t count)
{
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    int64_t send[RANKS_MAX] = {0}, receive[RANKS_MAX] = {0};
    uint8_t *out = malloc((size_t)count);
    send[next] = receive[before] = count;
    fill(v, count, rank);
    if (out) memset(out, 0, (size_t)count);
    int64_t bad = !out || kolo_alltoall(all, v, send, out, receive, KOLO_U8) < 0;
    for (int64_t i = 0; out && i < count; i++) bad += out[i] != byte_at(before, i);
    free(out);
    report(bad, count, "alltoall, one message from each");
}

static void check_reduce_scatter(uint8_t *v, int64_t count)
{
    fill(v, count, rank);
    int64_t bad = kolo_reduce_scatter(all, NULL, v, count, KOLO_U8, KOLO_SUM) < 0, part = count / size;
    const int64_t from = rank * part + (rank < count % size ? rank : count % size),
                  mine = part + (rank < count % size);
    for (int64_t i = 0; i < mine; i++) {
        uint8_t sum = 0;
        for (int r = 0; r < size; r++) sum = (uint8_t)(sum + byte_at(r, from + i));
        bad += v[i] != sum;
    }
    report(bad, count, "reduce_scatter, in place");
}

int main(int argc, char **argv)
{
    int64_t count = argc > 1 ? atoll(argv[1]) : ((int64_t)1 << 31) + 5, bad = 0;
    int level;
    MPI_Comm of = MPI_COMM_WORLD;
    kolo_world *world = NULL;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(of, &rank);
    MPI_Comm_size(of, &size);
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .mpi_comm = &of, .timeout = 300, .shared_bytes = 1 << 20};
    uint8_t *v = malloc((size_t)count);
    const kolo_world_config simulated = {
        .size = sizeof(kolo_world_config), .timeout = 300, .shared_bytes = 1 << 20};
    const bool apart = argc > 2 && strcmp(argv[2], "apart") == 0;
    if (!v || size > RANKS_MAX ||
        (apart ? lib_world_start(&world, deal(), &simulated, exchange, NULL)
               : kolo_world_open(&world, &config)) < 0) {
        fprintf(stderr, "# %s\n", v ? kolo_error_text() : "no memory");
        MPI_Abort(of, 1);
    }
    all = kolo_world_group(world);
    fill(v, count, rank);
    bad = kolo_allreduce(all, NULL, v, count, KOLO_U8, KOLO_SUM) < 0;
    for (int64_t i = 0; i < count; i++) {
        uint8_t sum = 0;
        for (int r = 0; r < size; r++) sum = (uint8_t)(sum + byte_at(r, i));
        bad += v[i] != sum;
    }
    report(bad, count, "allreduce");
    if (rank == size - 1) fill(v, count, rank);
    bad = kolo_broadcast(all, v, count, KOLO_U8, size - 1) < 0;
    for (int64_t i = 0; i < count; i++) bad += v[i] != byte_at(size - 1, i);
    report(bad, count, "broadcast");
    int64_t part = count / size, *counts = malloc((size_t)size * sizeof *counts), at = 0;
    for (int r = 0; r < size; r++) counts[r] = r == 0 ? count - part * (size - 1) : part;
    for (int r = 0; r < rank; r++) at += counts[r];
    memset(v, 0, (size_t)count);
    fill(v + at, counts[rank], rank);
    bad = kolo_allgather(all, NULL, v, counts[rank], counts, KOLO_U8) < 0;
    for (int64_t r = 0, i = 0; r < size; r++)
        for (int64_t k = 0; k < counts[r]; k++) bad += v[i++] != byte_at((int)r, k);
    report(bad, count, "allgather, in place");
    check_reduce_scatter(v, count);
    check_alltoall(v, count);
    free(counts);
    free(v);
    kolo_world_close(&world);
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
