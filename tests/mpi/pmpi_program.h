/* For plain MPI programs that know nothing of Kolo and are run with libkolo_pmpi.so: they recount what MPI
 * gives them, and rank 0 tells. */
#ifndef TEST_PMPI_PROGRAM_H
#define TEST_PMPI_PROGRAM_H

#include <mpi.h>
#include <stdbool.h>

#include "tap.h"

static int rank, size;

/* All must be right on all ranks. PMPI's, which nothing stands before. */
static inline void agree(bool mine, const char *text)
{
    int all, one = mine;
    PMPI_Allreduce(&one, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0) ok(all, "%s", text);
}

#endif
