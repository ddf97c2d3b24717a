/* Several nodes, simulated on one machine by node maps; the ranks are those of mpiexec. */
#ifndef KOLO_TESTS_COMM_MAPS_H
#define KOLO_TESTS_COMM_MAPS_H

#include <mpi.h>

#include "../unit/comm_world.h"
#include "tap.h"

typedef struct map {
    int size;
    const char *name;
    int node_of[8];
} map;
static int rank, size, serial, job_id;

/* Rank 0 says whether all ranks were right; a failing rank says why. */
static inline void report(int64_t bad, const char *what, const char *where)
{
    long long mine = bad < 0 ? 1000000 : bad, all = 0;
    if (bad < 0) fprintf(stderr, "# rank %d: %s\n", rank, kolo_error_text());
    MPI_Allreduce(&mine, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) is_int(all, 0, "%d ranks as %s: %s", size, where, what);
}

static inline world *place(const map *m)
{
    static world w;
    char job[64];
    snprintf(job, sizeof job, "nodes.%d.%d", job_id, serial++);
    world_fill(&w, rank, size, m ? m->node_of : NULL, job);
    w.launch.mpi = true;
    return &w;
}

static inline void begin_mpi(int *argc, char ***argv)
{
    int provided;
    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    job_id = (int)getpid();
    MPI_Bcast(&job_id, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

#endif
