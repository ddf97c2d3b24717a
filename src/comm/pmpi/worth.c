/* Which calls the library makes sooner than MPI on this machine, with these ranks: timed at MPI_Init, a few
 * calls of every function and size by both in turns. The slowest rank's shortest time counts, and all ranks
 * see the same times, so all decide alike. */
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "comm/pmpi/pmpi.h"

enum { SIZES = 5, REPEATS = 4 };
static const int64_t sizes[SIZES] = {64, 2 << 10, 32 << 10, 512 << 10, 4 << 20}; /* bytes in all */
static const double enough = 0.02; /* seconds, after which a larger size is taken as the one before it */

static bool sooner[PMPI_CALLS][SIZES]; /* the library is */

/* One call of `bytes` in all, by MPI or by the library, in seconds. */
static double worth_time(enum pmpi_call call, bool mpi, int64_t bytes, char *in, char *out)
{
    MPI_Comm all = MPI_COMM_WORLD;
    MPI_Request request;
    const int floats = (int)(bytes / 4), ranks = pmpi_shim.size, part = floats < ranks ? 1 : floats / ranks;
    PMPI_Barrier(all);
    const double begin = kolo_time();
    switch (call) {
    case PMPI_ALLREDUCE:
        (mpi ? PMPI_Allreduce : MPI_Allreduce)(in, out, floats, MPI_FLOAT, MPI_SUM, all);
        break;
    case PMPI_IALLREDUCE:
        (mpi ? PMPI_Iallreduce : MPI_Iallreduce)(in, out, floats, MPI_FLOAT, MPI_SUM, all, &request);
        PMPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
    case PMPI_REDUCE_SCATTER_BLOCK:
        (mpi ? PMPI_Reduce_scatter_block : MPI_Reduce_scatter_block)(in, out, part, MPI_FLOAT, MPI_SUM, all);
        break;
    case PMPI_ALLGATHER:
        (mpi ? PMPI_Allgather : MPI_Allgather)(in, part, MPI_FLOAT, out, part, MPI_FLOAT, all);
        break;
    case PMPI_BCAST: (mpi ? PMPI_Bcast : MPI_Bcast)(out, floats, MPI_FLOAT, 0, all); break;
    case PMPI_CALLS: break;
    }
    return kolo_time() - begin;
}

/* False: it took so long that larger ones are not tried. */
static bool worth_measure(int s, char *in, char *out)
{
    double took[2 * PMPI_CALLS + 1], worst[2 * PMPI_CALLS + 1];
    const double begin = kolo_time();
    for (int i = 0; i < 2 * PMPI_CALLS; i++) took[i] = 1e9;
    for (int repeat = 0; repeat < REPEATS; repeat++)
        for (int i = 0; i < 2 * PMPI_CALLS; i++) {
            const double t = worth_time((enum pmpi_call)(i / 2), i % 2, sizes[s], in, out);
            if (t < took[i]) took[i] = t;
        }
    took[2 * PMPI_CALLS] = kolo_time() - begin;
    PMPI_Allreduce(took, worst, 2 * PMPI_CALLS + 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int call = 0; call < PMPI_CALLS; call++) sooner[call][s] = worst[2 * call] <= worst[2 * call + 1];
    return worst[2 * PMPI_CALLS] < enough / 4;
}

void pmpi_worth_open(void)
{
    const size_t room = (size_t)sizes[SIZES - 1] + 4 * (size_t)pmpi_shim.size;
    char *memory = calloc(2, room);
    int any = memory != NULL, all = 0, s = 0;
    PMPI_Allreduce(&any, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    pmpi_shim.all = true;
    if (all) {
        memset(memory, 1, 2 * room); /* its pages are there before the first call */
        while (worth_measure(s, memory, memory + room) && s < SIZES - 1) s++;
        for (int larger = s + 1; larger < SIZES; larger++)
            for (int call = 0; call < PMPI_CALLS; call++) sooner[call][larger] = sooner[call][s];
        pmpi_shim.all = false;
    }
    free(memory);
    pmpi_forget_counts();
}

bool pmpi_worth(enum pmpi_call call, MPI_Datatype type, int64_t count, bool rounds)
{
    int size, s = 0;
    if (pmpi_shim.all || (rounds && pmpi_shim.size > 2)) return true;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS) return true;
    /* the size timed that is nearest by its logarithm */
    while (s < SIZES - 1 &&
           (double)count * size * (double)count * size > (double)sizes[s] * (double)sizes[s + 1])
        s++;
    return sooner[call][s];
}
