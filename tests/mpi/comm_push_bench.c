/* Pushes beside MPI_Allreduce and one memcpy of the same bytes, sum of f32, in place, data written
 * anew before every call.
 *   mpiexec -n 2 build/tests/mpi/comm_push_bench [seconds a row]
 * Times are of the slowest rank: microseconds, median and least of the repeats. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "comm/core/transport/router.h"

enum { LARGEST = 64 << 20, MOST = 2000 };

static kolo_launch launch;
static comm_push *push;
static float *ordinary, *shared, *source;

typedef void (*call)(size_t bytes);

static void check(int rc)
{
    if (rc >= 0) return;
    fprintf(stderr, "%s\n", kolo_error_text());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void push_in(float *v, size_t bytes)
{
    const comm_folding how = {.type = KOLO_F32, .op = KOLO_SUM, .tree = true};
    check(comm_push_start(push, v, v, (int64_t)(bytes / 4), &how, 1));
    check(comm_push_wait(push));
}
static void of_shared(size_t bytes) { push_in(shared, bytes); }
static void of_ordinary(size_t bytes) { push_in(ordinary, bytes); }
static void of_mpi(size_t bytes)
{
    MPI_Allreduce(MPI_IN_PLACE, ordinary, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void of_memcpy(size_t bytes) { memcpy(ordinary, source, bytes); }

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void measure(const char *name, call what, float *data, size_t bytes, double seconds)
{
    static double all[MOST];
    double begin = kolo_time();
    int n = 0, more = 1, calls = bytes <= 4096 ? 50 : 1;
    while (more) {
        memset(data, 0, bytes);
        MPI_Barrier(MPI_COMM_WORLD);
        double t = kolo_time(), worst;
        for (int i = 0; i < calls; i++) what(bytes);
        t = (kolo_time() - t) / calls;
        MPI_Allreduce(&t, &worst, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        all[n++] = 1e6 * worst;
        more = n < MOST && (n < 5 || kolo_time() - begin < seconds);
        MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    qsort(all, (size_t)n, sizeof *all, ascending);
    if (launch.rank == 0) printf("  %-10s %10.2f %10.2f", name, all[n / 2], all[0]);
}

int main(int argc, char **argv)
{
    static const size_t sizes[] = {8, 1024, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};
    double seconds = argc > 1 ? atof(argv[1]) : 0.3;
    comm_router *router = NULL;
    comm_router_config config = {.timeout = 60, .shared_bytes = LARGEST};
    int rank[64];
    void *memory;
    check(kolo_launch_start(&launch, "mpi", NULL));
    check(comm_router_open(&router, &launch, &config));
    for (int i = 0; i < launch.size && i < 64; i++) rank[i] = i;
    check(comm_push_open(&push, router, 1, rank, launch.size));
    check(comm_router_alloc(router, LARGEST, &memory));
    shared = memory;
    ordinary = malloc(LARGEST);
    source = malloc(LARGEST);
    memset(ordinary, 0, LARGEST);
    memset(source, 0, LARGEST);
    of_shared(LARGEST);
    if (launch.rank == 0) printf("%10s  (us: median, least)\n", "bytes");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        if (launch.rank == 0) printf("%10zu", sizes[s]);
        measure("shared", of_shared, shared, sizes[s], seconds);
        measure("ordinary", of_ordinary, ordinary, sizes[s], seconds);
        measure("mpi", of_mpi, ordinary, sizes[s], seconds);
        measure("memcpy", of_memcpy, ordinary, sizes[s], seconds);
        if (launch.rank == 0) printf("\n");
    }
    comm_push_close(&push);
    comm_router_close(&router, true);
    free(ordinary);
    free(source);
    kolo_launch_finish(&launch);
    return 0;
}
