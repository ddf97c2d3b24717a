/* Plain MPI programs that begin and end as few do, for libkolo_pmpi.so: how they end is
 * compared with MPI alone.
 *
 *   sums FILE   sums until somebody ends it; the pid of rank 1 to FILE
 *   twice       MPI_Finalize twice
 *   single      no threads are asked for; what is provided is what MPI_Query_thread says
 *   session     a communicator of a session, without MPI_Init; then MPI_Init all the same
 *   full        communicators, one of which finds /dev/shm full on rank 0
 *   query       neither begun nor ended, but asked */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pmpi_program.h"

static int sum_of(MPI_Comm comm)
{
    int one = 1, sum = 0;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    return sum;
}

static int sums(const char *path)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; sum_of(MPI_COMM_WORLD) > 0; i++) {
        FILE *file = i == 10 && rank == 1 ? fopen(path, "w") : NULL;
        if (file) {
            fprintf(file, "%d\n", (int)getpid());
            fclose(file);
        }
    }
    return 1;
}

static int single(void)
{
    int provided, level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_SINGLE, &provided);
    MPI_Query_thread(&level);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int good = level == provided && sum_of(MPI_COMM_WORLD) == size;
    MPI_Finalize();
    return !good;
}

static int session(void)
{
#if MPI_VERSION >= 4
    MPI_Session own;
    MPI_Group all;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &own);
    MPI_Group_from_session_pset(own, "mpi://WORLD", &all);
    MPI_Comm_create_from_group(all, "pmpi", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Comm_size(comm, &size);
    int good = sum_of(comm) == size;
    MPI_Init(NULL, NULL);
    good &= sum_of(comm) == size && sum_of(MPI_COMM_WORLD) == size;
    MPI_Group_free(&all);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    MPI_Session_finalize(&own);
    return !good;
#else
    return 0;
#endif
}

/* In the C library's place. */
static bool no_room;
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    return no_room ? ENOSPC : syscall(SYS_fallocate, fd, 0, offset, bytes) < 0 ? errno : 0;
}

static int full(void)
{
    MPI_Comm twin;
    bool good = true;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 3; i++) {
        MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &twin);
        no_room = i == 1 && rank == 0;
        for (int k = 0; k < 5; k++) good &= sum_of(twin) == size && sum_of(MPI_COMM_WORLD) == size;
        if (i == 1) MPI_Comm_free(&twin); /* the others stay, so that each needs memory of its own */
    }
    MPI_Finalize();
    return !good;
}

int main(int argc, char **argv)
{
    int begun, ended;
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "sums") && argc > 2) return sums(argv[2]);
    if (!strcmp(what, "single")) return single();
    if (!strcmp(what, "session")) return session();
    if (!strcmp(what, "full")) return full();
    if (!strcmp(what, "twice")) {
        MPI_Init(&argc, &argv);
        MPI_Finalize();
        return MPI_Finalize() == MPI_SUCCESS;
    }
    if (strcmp(what, "query") != 0) return 2;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun || ended;
}
