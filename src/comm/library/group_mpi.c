/* Groups that an MPI communicator cuts out of the world. One id for all of them: their members are
 * disjoint. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/library/parts.h"

#if defined(KOLO_MPI) && KOLO_MPI
#include <mpi.h>

/* World ranks of the communicator's processes, ascending; those outside of the world are -1. */
static int members_of(const kolo_launch *launch, MPI_Comm comm, int **rank, int *count)
{
    MPI_Group members = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    MPI_Comm world = launch->mpi_comm ? *(const MPI_Comm *)launch->mpi_comm : MPI_COMM_WORLD;
    *count = 0;
    *rank = NULL;
    if (comm == MPI_COMM_NULL) return 0;
    MPI_Comm_group(comm, &members);
    MPI_Comm_group(world, &all);
    MPI_Group_size(members, count);
    int *own = kolo_alloc((size_t)*count * 2 * sizeof *own);
    *rank = own;
    if (own) {
        for (int i = 0; i < *count; i++) own[*count + i] = i;
        MPI_Group_translate_ranks(members, *count, own + *count, all, own);
        for (int i = 0; i < *count; i++)
            if (own[i] == MPI_UNDEFINED) own[i] = -1;
        qsort(own, (size_t)*count, sizeof *own, lib_ascending);
    }
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    return own ? 0 : KOLO_ENOMEM;
}

/* lowest[rank of the world]: every rank's lowest fellow, -1: none. All members of a group must name the same,
 * and be as many as the group has. */
static void group_mpi_check(const int32_t *lowest, const int *rank, int count, int size, char *fault,
                            size_t bytes)
{
    int same = 0;
    fault[0] = 0;
    for (int r = 0; count && r < size; r++) same += lowest[r] == rank[0];
    if (count && rank[0] < 0) snprintf(fault, bytes, "the communicator has processes outside of the world");
    else if (count && same != count)
        snprintf(fault, bytes, "the communicator with rank %d has %d processes, but %d ranks brought it",
                 rank[0], count, same);
}

int kolo_group_create_mpi(kolo_group **out, kolo_world *world, const void *mpi_comm)
{
    char fault[LIB_TEXT] = "";
    int *rank = NULL, count = 0, rc;
    if (out) *out = NULL;
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    const kolo_launch *l = world->launch;
    if (!l->mpi && !l->mpi_comm)
        return kolo_fail(KOLO_EINPUT, "comm: groups of MPI communicators need a world whose ranks are MPI's");
    int32_t *lowest = kolo_alloc((size_t)l->size * sizeof *lowest);
    if (!lowest) return KOLO_ENOMEM;
    lib_turn_take(world); /* as all calls of MPI */
    rc = members_of(l, mpi_comm ? *(const MPI_Comm *)mpi_comm : MPI_COMM_NULL, &rank, &count);
    lib_turn_give(world);
    if (rc < 0) goto fail;
    lowest[l->rank] = count ? rank[0] : -1;
    KOLO_TRY_GOTO(rc, kolo_allgather(world->all, NULL, lowest, 1, NULL, KOLO_I32));
    group_mpi_check(lowest, rank, count, l->size, fault, sizeof fault);
    if (!mpi_comm)
        snprintf(fault, sizeof fault, "no communicator is given; a rank without one gives MPI_COMM_NULL");
    if (!out) snprintf(fault, sizeof fault, "no place for the group is given");
    rc = lib_group_create_sorted(out, world, rank, count, "groups of communicators", fault);
fail:
    free(rank);
    free(lowest);
    return rc;
}

#else

int kolo_group_create_mpi(kolo_group **out, kolo_world *world, const void *mpi_comm)
{
    (void)world;
    (void)mpi_comm;
    if (out) *out = NULL;
    return kolo_fail(KOLO_ECONFIG, "comm: this library was built without MPI; build it with MPI=1");
}
#endif
