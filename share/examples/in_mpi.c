/* Within a program that uses MPI: mpiexec -n 4 ./in_mpi */
#include <kolo/world.h>
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int level, rank;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm half, comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    kolo_world *world;
    kolo_group *group;
    kolo_world_config config = {.size = sizeof(kolo_world_config), .mpi_comm = &comm};
    if (kolo_world_open(&world, &config) < 0) {
        fprintf(stderr, "kolo_world_open: %s\n", kolo_error_text());
        MPI_Abort(comm, 1);
    }
    MPI_Comm_split(comm, rank % 2, rank, &half); /* a communicator of the program becomes a group */
    double sum[2] = {rank, 1};
    if (kolo_group_create_mpi(&group, world, &half) < 0 ||
        kolo_allreduce(group, NULL, sum, 2, KOLO_F64, KOLO_SUM) < 0) {
        fprintf(stderr, "rank %d: %s\n", rank, kolo_error_text());
        MPI_Abort(comm, 1);
    }
    if (rank < 2)
        printf("%s ranks: %g of them, their numbers sum up to %g\n", rank ? "odd" : "even", sum[1], sum[0]);
    kolo_group_free(&group);
    kolo_world_close(&world);
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
