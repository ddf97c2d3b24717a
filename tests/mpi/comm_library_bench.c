/* What the communication library costs, beside MPI_Allreduce and memcpy of the same bytes in the same run.
 * tests/peers/comm.sh makes a table of it.
 *   mpiexec -n 2 build/tests/mpi/comm_library_bench [sizes|named|start|traced|overlap|allocations ...]
 *   [seconds=0.2 of each figure] [folder=build/timeline]
 *
 * A figure a line: "SECTION KIND BYTES MEDIAN LEAST", over the repeats: microseconds of the slowest rank,
 * percent hidden, allocations a call, times as long with a timeline. The kinds of one section take turns, so
 * that whatever else the machine does slows all of them. f32, sums, in place; vectors are written anew
 * before every repeat. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "allocations.h"
#include "kolo/comm.h"

/* ---- the rig ------------------------------------------------------------------------------------------- */

enum {
    LARGEST = 64 << 20,
    MOST = 4000,
    KINDS = 5,
    SIZES = 10,
    TENSORS = 1000,
    TENSOR_BYTES = 1024,
    PASSES = 8
};
static const size_t sizes[SIZES] = {8,      1024,    4096,    16384,    65536,
                                    262144, 1 << 20, 4 << 20, 16 << 20, 64 << 20};

static int rank;
static double seconds = 0.2;                  /* of repeats, for a figure */
static const char *folder = "build/timeline"; /* of what is traced */
static kolo_world *world;
static kolo_group *all;
static kolo_comm *comm;
static float *shared, *ordinary, *source, *arena;

static void check(int rc)
{
    if (rc >= 0) return;
    fprintf(stderr, "comm_library_bench: rank %d: %s\n", rank, kolo_error_text());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);
    if (!p) MPI_Abort(MPI_COMM_WORLD, 1);
    return memset(p, 0, bytes);
}

static void open_world(size_t shared_bytes, size_t fusion_bytes)
{
    MPI_Comm of = MPI_COMM_WORLD;
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .mpi_comm = &of,
                                      .timeout = 120,
                                      .shared_bytes = shared_bytes,
                                      .fusion_bytes = fusion_bytes};
    check(kolo_world_open(&world, &config));
    all = kolo_world_group(world);
}

static void say(const char *section, const char *which, size_t bytes, double middle, double least)
{
    if (rank == 0) printf("%s %s %zu %.3f %.3f\n", section, which, bytes, middle, least);
    fflush(stdout);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In order: v[0] is the least, the middle is returned. */
static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, ascending);
    return v[n / 2];
}

typedef struct kind {
    const char *name;
    void (*call)(size_t bytes);
    float **data; /* is set to 0 before each repeat; NULL: nothing is */
    int n;        /* repeats so far */
    double us[MOST];
} kind;

/* One repeat: ranks leave a barrier together, and the slowest one's time for `calls` calls counts. */
static double repeat(const kind *k, size_t bytes, int calls)
{
    if (k->data) memset(*k->data, 0, bytes);
    check(kolo_barrier(all));
    double took = now();
    for (int i = 0; i < calls; i++) k->call(bytes);
    took = now() - took;
    check(kolo_allreduce(all, NULL, &took, 1, KOLO_F64, KOLO_MAX));
    return took / calls;
}

/* All ranks make equally many repeats, as many as fit the time of the first rank. */
static void measure(const char *section, kind *k, int kinds, size_t bytes, int calls)
{
    for (int i = 0; i < kinds; i++) {
        k[i].n = 0;
        repeat(&k[i], bytes, 1);
    }
    for (int pass = 0; pass < PASSES; pass++)
        for (int i = 0; i < kinds; i++) {
            double begin = now();
            for (int32_t n = 0, more = 1; more && k[i].n < MOST; n++) {
                k[i].us[k[i].n++] = 1e6 * repeat(&k[i], bytes, calls);
                more = n < 1 || now() - begin < seconds / PASSES;
                check(kolo_broadcast(all, &more, 1, KOLO_I32, 0));
            }
        }
    for (int i = 0; i < kinds; i++) {
        double middle = median(k[i].us, k[i].n);
        say(section, k[i].name, bytes, middle, k[i].us[0]);
    }
}

/* ---- sizes: 8 B to 64 MiB ------------------------------------------------------------------------------ */

static int bucket_of(size_t bytes)
{
    int s = 0;
    while (s < SIZES - 1 && sizes[s] != bytes) s++;
    return s;
}
static void by_bucket(size_t bytes)
{
    check(kolo_comm_start(comm, bucket_of(bytes)));
    check(kolo_comm_wait(comm, bucket_of(bytes)));
}
static void by_order(float *data, size_t bytes)
{
    check(kolo_allreduce(all, NULL, data, (int64_t)(bytes / 4), KOLO_F32, KOLO_SUM));
}
static void in_shared(size_t bytes) { by_order(shared, bytes); }
static void in_ordinary(size_t bytes) { by_order(ordinary, bytes); }
static void by_mpi(size_t bytes)
{
    MPI_Allreduce(MPI_IN_PLACE, ordinary, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}
static void by_memcpy(size_t bytes) { memcpy(ordinary, source, bytes); }

static void open_all(void)
{
    void *p;
    open_world(LARGEST, 0);
    check(kolo_world_alloc(world, LARGEST, &p));
    shared = p;
    const kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = LARGEST, .timeout = 120, .spin = -1};
    check(kolo_comm_create(&comm, kolo_world_launch(world), &config));
    for (int s = 0; s < SIZES; s++) check(kolo_comm_bucket(comm, 0, (int64_t)(sizes[s] / 4)));
    check(kolo_comm_commit(comm));
    arena = kolo_comm_arena(comm);
}

static void close_all(void)
{
    kolo_comm_destroy(&comm);
    kolo_world_close(&world);
}

static void run_sizes(void)
{
    static kind k[KINDS] = {{.name = "bucket", .call = by_bucket, .data = &arena},
                            {.name = "shared", .call = in_shared, .data = &shared},
                            {.name = "ordinary", .call = in_ordinary, .data = &ordinary},
                            {.name = "mpi", .call = by_mpi, .data = &ordinary},
                            {.name = "memcpy", .call = by_memcpy, .data = &ordinary}};
    open_all();
    in_shared(LARGEST); /* pages, staging */
    in_ordinary(LARGEST);
    for (int s = 0; s < SIZES; s++) measure("sizes", k, KINDS, sizes[s], sizes[s] <= 4096 ? 50 : 1);
    close_all();
}

/* ---- named --------------------------------------------------------------------------------------------- */

static kolo_request tensor[TENSORS];
static kolo_handle handle[TENSORS];
static char name[TENSORS][24];

static void one_named(size_t bytes)
{
    kolo_request r = tensor[0];
    r.name = "alone";
    r.dim[0] = (int64_t)(bytes / 4);
    check(kolo_submit(all, &r, &handle[0]));
    check(kolo_wait(world, handle[0]));
}
static void grouped(size_t bytes)
{
    (void)bytes;
    check(kolo_submit_grouped(all, tensor, TENSORS, handle));
    for (int i = 0; i < TENSORS; i++) check(kolo_wait(world, handle[i]));
}
static void one_by_one(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < TENSORS; i++) check(kolo_submit(all, &tensor[i], &handle[i]));
    for (int i = 0; i < TENSORS; i++) check(kolo_wait(world, handle[i]));
}
/* an agreement and a reduction for each, as without fusion where names go through a coordinator in cycles */
static void in_turn(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < TENSORS; i++) {
        check(kolo_submit(all, &tensor[i], &handle[i]));
        check(kolo_wait(world, handle[i]));
    }
}

static void fill_tensors(void)
{
    for (int i = 0; i < TENSORS; i++) {
        snprintf(name[i], sizeof name[i], "layer%d.weight", i);
        tensor[i] = (kolo_request){.what = KOLO_ALLREDUCE,
                                   .name = name[i],
                                   .out = (char *)ordinary + i * TENSOR_BYTES,
                                   .type = KOLO_F32,
                                   .dims = 1,
                                   .dim = {TENSOR_BYTES / 4}};
    }
}

static void run_named(void)
{
    static kind alone[] = {{.name = "alone", .call = one_named, .data = &ordinary},
                           {.name = "mpi", .call = by_mpi, .data = &ordinary}};
    static kind fused[] = {{.name = "grouped", .call = grouped, .data = &ordinary},
                           {.name = "loose", .call = one_by_one, .data = &ordinary},
                           {.name = "in-turn", .call = in_turn, .data = &ordinary}};
    static kind apart[] = {{.name = "unfused", .call = one_by_one, .data = &ordinary}};
    open_world(0, 0);
    measure("named", alone, 2, TENSOR_BYTES, 50);
    measure("named", fused, 3, TENSORS * TENSOR_BYTES, 1);
    kolo_world_close(&world);
    open_world(0, 1);
    measure("named", apart, 1, TENSORS * TENSOR_BYTES, 1);
    kolo_world_close(&world);
}

/* ---- start: a model's tensors come from one rank ------------------------------------------------------- */

enum { LAYERS = 160 };

/* a kernel of 16 KiB to 848 KiB, then two vectors of 1 KiB, and so on: 24 MB */
static kolo_request part[LAYERS];
static char part_name[LAYERS][24];

static size_t fill_parts(void)
{
    size_t at = 0;
    for (int i = 0; i < LAYERS; i++) {
        const int64_t elements = i % 3 ? 256 : 4096 * (i / 3 + 1);
        snprintf(part_name[i], sizeof part_name[i], "start%d", i);
        part[i] = (kolo_request){.what = KOLO_BROADCAST,
                                 .name = part_name[i],
                                 .out = (char *)ordinary + at,
                                 .type = KOLO_F32,
                                 .dims = 1,
                                 .dim = {elements}};
        at += (size_t)elements * 4;
    }
    return at;
}

static void start_grouped(size_t bytes)
{
    (void)bytes;
    check(kolo_submit_grouped(all, part, LAYERS, handle));
    for (int i = 0; i < LAYERS; i++) check(kolo_wait(world, handle[i]));
}
static void start_in_turn(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < LAYERS; i++) {
        check(kolo_submit(all, &part[i], &handle[i]));
        check(kolo_wait(world, handle[i]));
    }
}
static void start_by_order(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < LAYERS; i++) check(kolo_broadcast(all, part[i].out, part[i].dim[0], KOLO_F32, 0));
}
static void start_by_mpi(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < LAYERS; i++)
        MPI_Bcast(part[i].out, (int)part[i].dim[0], MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void run_start(void)
{
    static kind k[] = {{.name = "grouped", .call = start_grouped, .data = &ordinary},
                       {.name = "in-turn", .call = start_in_turn, .data = &ordinary},
                       {.name = "by-order", .call = start_by_order, .data = &ordinary},
                       {.name = "mpi", .call = start_by_mpi, .data = &ordinary}};
    open_world(0, 0);
    size_t bytes = fill_parts();
    measure("start", k, 4, bytes, 1);
    kolo_world_close(&world);
}

/* ---- overlap: a reduction behind work that takes as long ----------------------------------------------- */

enum { OVERLAPPED = 16 << 20, ROUNDS = 25 };
static double lasts; /* the work's seconds */
static int64_t turns;
static volatile double result;

static void sleeping(void) /* as the host does while a device computes */
{
    struct timespec t = {.tv_sec = (time_t)lasts, .tv_nsec = (long)(1e9 * (lasts - (double)(time_t)lasts))};
    nanosleep(&t, NULL);
}
static void computing(void) /* in registers: it needs a core, and no memory */
{
    double x = result;
    for (int64_t i = 0; i < turns; i++) x = x * 0.999 + 1e-3;
    result = x;
}
static void no_work(void) {}

static void behind_bucket(void (*work)(void))
{
    check(kolo_comm_start(comm, bucket_of(OVERLAPPED)));
    work();
    check(kolo_comm_wait(comm, bucket_of(OVERLAPPED)));
}
static void behind_request(void (*work)(void))
{
    const kolo_request r = {
        .what = KOLO_ALLREDUCE, .out = shared, .type = KOLO_F32, .dims = 1, .dim = {OVERLAPPED / 4}};
    kolo_handle h;
    check(kolo_submit(all, &r, &h));
    work();
    check(kolo_wait(world, h));
}
static void behind_nothing(void (*work)(void)) { work(); }

static double time_of(void (*what)(void (*)(void)), void (*work)(void))
{
    memset(arena, 0, OVERLAPPED);
    memset(shared, 0, OVERLAPPED);
    check(kolo_barrier(all));
    double took = now();
    what(work);
    took = now() - took;
    check(kolo_allreduce(all, NULL, &took, 1, KOLO_F64, KOLO_MAX));
    return took;
}

/* The share of the reduction's time, in percent, that is not added to the work's: of the medians, and of the
 * least, of each alone and of both. */
static void share(const char *which, void (*what)(void (*)(void)), void (*work)(void))
{
    double alone[ROUNDS], busy[ROUNDS], both[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) alone[i] = time_of(what, no_work);
    turns = 1 << 20;
    for (int i = 0; i < ROUNDS; i++) busy[i] = time_of(behind_nothing, computing);
    lasts = median(alone, ROUNDS);
    turns = (int64_t)((double)turns * lasts / median(busy, ROUNDS));
    for (int i = 0; i < ROUNDS; i++) {
        alone[i] = time_of(what, no_work);
        busy[i] = time_of(behind_nothing, work);
        both[i] = time_of(what, work);
    }
    double hidden = 1 - (median(both, ROUNDS) - median(busy, ROUNDS)) / median(alone, ROUNDS);
    say("overlap", which, OVERLAPPED, 100 * hidden, 100 * (1 - (both[0] - busy[0]) / alone[0]));
}

static void run_overlap(void)
{
    open_all();
    share("bucket-sleeping", behind_bucket, sleeping);
    share("bucket-computing", behind_bucket, computing);
    share("request-sleeping", behind_request, sleeping);
    share("request-computing", behind_request, computing);
    close_all();
}

/* ---- traced: with a timeline and without --------------------------------------------------------------- */

/* What an optimizer step is to the library: a name a layer while the core computes, and a
 * wait for all of them. */
static void one_step(size_t bytes)
{
    (void)bytes;
    for (int i = 0; i < LAYERS; i++) {
        computing();
        check(kolo_submit(all, &tensor[i], &handle[i]));
    }
    for (int i = 0; i < LAYERS; i++) check(kolo_wait(world, handle[i]));
}

/* Seconds a call. What the timeline's writer does meanwhile and at its end is part of it. */
static double pass_of(void (*call)(size_t), int at_once, bool traces)
{
    int64_t calls = 0;
    if (traces) check(kolo_timeline_start(world, folder));
    check(kolo_barrier(all));
    double begin = now(), took;
    for (int32_t more = 1; more; calls += at_once) {
        for (int i = 0; i < at_once; i++) call(TENSOR_BYTES);
        more = now() - begin < seconds / 4;
        check(kolo_broadcast(all, &more, 1, KOLO_I32, 0));
    }
    if (traces) check(kolo_timeline_stop(world));
    took = now() - begin;
    check(kolo_allreduce(all, NULL, &took, 1, KOLO_F64, KOLO_MAX));
    return took / (double)calls;
}

/* Passes with and without in turn, each compared with its neighbour, so that whatever else the machine
 * does counts for both. */
static void traced(const char *which, const char *ratio, void (*call)(size_t), int at_once)
{
    enum { TIMES = 24 };
    double with[TIMES], without[TIMES], over[TIMES];
    pass_of(call, at_once, false);
    for (int i = 0; i < TIMES; i++) {
        without[i] = pass_of(call, at_once, false);
        with[i] = pass_of(call, at_once, true);
        over[i] = with[i] / without[i];
    }
    double middle = median(with, TIMES);
    say("traced", which, TENSOR_BYTES, 1e6 * middle, 1e6 * with[0]);
    middle = median(over, TIMES);
    say("traced", ratio, TENSOR_BYTES, middle, middle);
}

static void run_traced(void)
{
    open_world(0, 0);
    memset(ordinary, 0, TENSORS * TENSOR_BYTES);
    turns = 25000; /* some 100 us */
    traced("alone", "alone-times", one_named, 20);
    traced("step", "step-times", one_step, 1);
    kolo_world_close(&world);
}

/* ---- allocations after the first calls ----------------------------------------------------------------- */

static void count_calls(const char *which, void (*call)(size_t), size_t bytes, int calls)
{
    for (int i = 0; i < 20; i++) call(bytes);
    check(kolo_barrier(all));
    double made = (double)atomic_load(&allocations);
    for (int i = 0; i < calls; i++) call(bytes);
    check(kolo_barrier(all));
    made = ((double)atomic_load(&allocations) - made) / calls;
    check(kolo_allreduce(all, NULL, &made, 1, KOLO_F64, KOLO_MAX));
    say("allocations", which, bytes, made, made);
}

static void run_allocations(void)
{
    if (!COUNTING) return;
    open_all();
    memset(ordinary, 0, LARGEST);
    count_calls("bucket", by_bucket, 1 << 20, 200);
    count_calls("shared", in_shared, 8, 200);
    count_calls("shared", in_shared, 1 << 20, 200);
    count_calls("ordinary", in_ordinary, 8, 200);
    count_calls("ordinary", in_ordinary, 1 << 20, 200);
    count_calls("alone", one_named, TENSOR_BYTES, 200);
    count_calls("loose", one_by_one, TENSORS * TENSOR_BYTES, 20);
    count_calls("grouped", grouped, TENSORS * TENSOR_BYTES, 20);
    close_all();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } section[] = {{"sizes", run_sizes},   {"named", run_named},     {"start", run_start},
                   {"traced", run_traced}, {"overlap", run_overlap}, {"allocations", run_allocations}};
    int provided, named = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "seconds=", 8) == 0) seconds = atof(argv[i] + 8);
        else if (strncmp(argv[i], "folder=", 7) == 0) folder = argv[i] + 7;
        else named++;
    }
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ordinary = memory(LARGEST);
    source = memory(LARGEST);
    fill_tensors();
    for (size_t s = 0; s < sizeof section / sizeof *section; s++) {
        int wanted = named == 0;
        for (int i = 1; i < argc; i++) wanted |= strcmp(argv[i], section[s].name) == 0;
        if (wanted) section[s].run();
    }
    free(ordinary);
    free(source);
    MPI_Finalize();
    return 0;
}
