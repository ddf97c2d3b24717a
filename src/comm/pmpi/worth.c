/* Sizes that are served on one node; at others, and with MPI_Bcast at all, MPI's own are sooner or as soon.
 * Measured with OSU's benchmarks against MPICH 4.0 (ch4:ucx), 2 ranks. */
#include "comm/pmpi/pmpi.h"

bool pmpi_worth(enum pmpi_call call, MPI_Datatype type, int64_t count)
{
    static const struct {
        enum pmpi_call call;
        int64_t from, to; /* bytes in all */
    } rows[] = {
        {PMPI_ALLREDUCE, 0, INT64_MAX},
        {PMPI_IALLREDUCE, 128, INT64_MAX},
        {PMPI_REDUCE_SCATTER_BLOCK, 0, 8 << 20},
        {PMPI_ALLGATHER, 24 << 10, 1 << 20},
    };
    int size;
    if (pmpi_shim.all) return true;
    if (type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &size) != MPI_SUCCESS) return true;
    const int64_t bytes = count * size;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].call == call && bytes >= rows[i].from && bytes < rows[i].to) return true;
    return false;
}
