/* Microseconds an allreduce, beside MPI_Allreduce in place in the same run. mpiexec -n 2 comm_bench [fresh]
 * [apart] fresh: every rank rewrites its vector before each call (not timed), as gradients are.
 * apart: every rank counts as a node of its own, so that the bytes go over MPI. */
#include <mpi.h>

#include "base/thread.h"
#include "../unit/comm_world.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { REPEATS = 2000 };
static double sample[3][REPEATS];

static int reduce(int which, kolo_comm *comm, int bucket, float *data, int64_t count)
{
    if (which == 0) return MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    if (which == 2) return kolo_comm_allreduce(comm, data, count, KOLO_F32, KOLO_SUM);
    KOLO_TRY(kolo_comm_start(comm, bucket));
    return kolo_comm_wait(comm, bucket);
}

/* Median over calls of the slowest rank's time; ranks leave a barrier together. */
static double measure(int which, kolo_comm *comm, int bucket, float *data, int64_t count, bool fresh,
                      int repeats)
{
    double all[REPEATS];
    for (int i = 0; i < repeats; i++) {
        for (int64_t k = 0; fresh && k < count; k++) data[k] = (float)(k & 7);
        if (which == 0) MPI_Barrier(MPI_COMM_WORLD);
        else if (kolo_comm_barrier(comm) < 0) MPI_Abort(MPI_COMM_WORLD, 1);
        double begin = kolo_time();
        if (reduce(which, comm, bucket, data, count) < 0) MPI_Abort(MPI_COMM_WORLD, 1);
        sample[which][i] = kolo_time() - begin;
        if (!fresh && i % 16 == 0) memset(data, 0, (size_t)count * 4); /* sums must not run off to infinity */
    }
    MPI_Reduce(sample[which], all, repeats, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    qsort(all, (size_t)repeats, sizeof *all, by_value);
    return 1e6 * all[repeats / 2];
}

int main(int argc, char **argv)
{
    enum { SIZES = 8, LARGEST = 64 << 20 };
    int provided, rank, size, rc;
    int apart[WORLD_MAX];
    bool fresh = false, alone = false;
    for (int i = 0; i < WORLD_MAX; i++) apart[i] = i;
    for (int i = 1; i < argc; i++) {
        fresh |= strcmp(argv[i], "fresh") == 0;
        alone |= strcmp(argv[i], "apart") == 0;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    world w;
    char job[64];
    int pid = (int)getpid();
    MPI_Bcast(&pid, 1, MPI_INT, 0, MPI_COMM_WORLD);
    snprintf(job, sizeof job, "bench.%d", pid);
    world_fill(&w, rank, size, alone ? apart : NULL, job);
    w.launch.mpi = true;
    kolo_comm *comm = NULL;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = LARGEST, .timeout = 60, .spin = -1};
    if ((rc = kolo_comm_create(&comm, &w.launch, &config)) < 0) goto fail;
    for (int s = 0; s < SIZES; s++)
        if ((rc = kolo_comm_bucket(comm, 0, (4 << 10) << 2 * s >> 2)) < 0) goto fail;
    if ((rc = kolo_comm_commit(comm)) < 0) goto fail;
    float *arena = kolo_comm_arena(comm), *own = calloc(LARGEST, 1);
    if (!own) MPI_Abort(MPI_COMM_WORLD, 1);
    if (rank == 0)
        printf("%10s %12s %12s %8s %12s  (us, %d ranks%s, median%s)\n", "bytes", "MPI", "bucket", "ratio",
               "small", size, alone ? " apart" : "", fresh ? ", fresh data" : "");
    for (int s = 0; s < SIZES; s++) {
        int64_t bytes = (int64_t)(4 << 10) << 2 * s;
        int repeats = bytes <= 1 << 20 ? 1000 : bytes <= 4 << 20 ? 200 : 25;
        if (size > 2) repeats = repeats / 20 + 3; /* MPI spins where ranks outnumber cores */
        if (s == SIZES - 1) bytes = LARGEST;
        double mpi = 0, ours = 0, small = 0;
        for (int pass = 0; pass < 2; pass++) { /* the first warms up */
            mpi = measure(0, comm, s, own, bytes / 4, fresh, repeats);
            ours = measure(1, comm, s, arena, bytes / 4, fresh, repeats);
            small = measure(2, comm, s, own, bytes / 4, fresh, repeats);
        }
        if (rank == 0)
            printf("%10lld %12.1f %12.1f %7.1fx %12.1f\n", (long long)bytes, mpi, ours, mpi / ours, small);
        fflush(stdout);
    }
    free(own);
    kolo_comm_destroy(&comm);
    MPI_Finalize();
    return 0;
fail:
    fprintf(stderr, "comm_bench: %s\n", kolo_error_text());
    MPI_Abort(MPI_COMM_WORLD, -rc);
    return 1;
}
