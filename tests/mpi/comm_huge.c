/* Vectors of more elements than 32 bits count: comm_huge [ELEMENTS=2147483653] of u8; every part of the sum, of a broadcast and of an allgather is looked at. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/comm.h"
#include "tap.h"

static int rank, size;

/* Of rank `of`, at i: differs around every power of two. */
static uint8_t byte_at(int of, int64_t i) { return (uint8_t)((uint64_t)(i + 1) * 0x9e3779b97f4a7c15u >> 57 ^ (uint64_t)of); }

static void fill(uint8_t *v, int64_t count, int of)
{
    for (int64_t i = 0; i < count; i++) v[i] = byte_at(of, i);
}

static void report(int64_t bad, int64_t count, const char *what)
{
    long long mine = bad, sum = 0;
    if (bad) fprintf(stderr, "# rank %d: %s: %lld wrong: %s\n", rank, what, mine, kolo_error_text());
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) is_int(sum, 0, "%d ranks, %lld elements: %s", size, (long long)count, what);
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
    const kolo_world_config config = {.mpi_comm = &of, .timeout = 300, .shared_bytes = 1 << 20};
    uint8_t *v = malloc((size_t)count);
    if (!v || kolo_world_open(&world, &config) < 0) {
        fprintf(stderr, "# %s\n", v ? kolo_error_text() : "no memory");
        MPI_Abort(of, 1);
    }
    kolo_group *all = kolo_world_group(world);
    fill(v, count, rank);
    bad = kolo_allreduce(all, NULL, v, count, KOLO_WIRE_U8, KOLO_SUM) < 0;
    for (int64_t i = 0; i < count; i++) {
        uint8_t sum = 0;
        for (int r = 0; r < size; r++) sum = (uint8_t)(sum + byte_at(r, i));
        bad += v[i] != sum;
    }
    report(bad, count, "allreduce");
    if (rank == size - 1) fill(v, count, rank);
    bad = kolo_broadcast(all, v, count, KOLO_WIRE_U8, size - 1) < 0;
    for (int64_t i = 0; i < count; i++) bad += v[i] != byte_at(size - 1, i);
    report(bad, count, "broadcast");
    int64_t part = count / size, *counts = malloc((size_t)size * sizeof *counts), at = 0;
    for (int r = 0; r < size; r++) counts[r] = r == 0 ? count - part * (size - 1) : part;
    for (int r = 0; r < rank; r++) at += counts[r];
    memset(v, 0, (size_t)count);
    fill(v + at, counts[rank], rank);
    bad = kolo_allgather(all, NULL, v, counts[rank], counts, KOLO_WIRE_U8) < 0;
    for (int64_t r = 0, i = 0; r < size; r++)
        for (int64_t k = 0; k < counts[r]; k++) bad += v[i++] != byte_at((int)r, k);
    report(bad, count, "allgather, in place");
    free(counts);
    free(v);
    kolo_world_close(&world);
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
