/* Sums in a GPU's memory against the documented ones, enqueued one by one and as a replayed graph; which
 * reducer is chosen and why. On a real GPU only what one GPU can show.
 * mpiexec -n 2, 3 or 4 comm_reducer apart: ranks on several nodes, simulated by a node map, so
 * that the sums cross MPI. */
#ifdef KOLO_MPI
#include <mpi.h>
#endif

#include "cuda_ranks.h"

static int64_t as_graph(rank *r, int exact)
{
    cudaGraph_t graph;
    cudaGraphExec_t step;
    int64_t bad = 0, some;
    KOLO_TRY(rank_open(r));
    KOLO_TRY(check(cuda.capture(r->compute, cudaStreamCaptureModeThreadLocal)));
    int rc = enqueue(r);
    KOLO_TRY(check(cuda.capture_end(r->compute, &graph)));
    KOLO_TRY(rc);
    KOLO_TRY(check(cuda.instantiate(&step, graph, 0)));
    for (int round = 0; round < ROUNDS; round++) {
        KOLO_TRY(fill(r, round, exact));
        KOLO_TRY(check(cuda.launch(step, r->compute)));
        KOLO_TRY(rank_wait(r));
        KOLO_TRY(some = compare(r, round, exact));
        bad += some;
    }
    KOLO_TRY(check(cuda.exec_destroy(step)));
    KOLO_TRY(check(cuda.graph_destroy(graph)));
    return bad;
}

static void check_sums(const char *reducer, int size, bool one_gpu)
{
    const setting set = {.reducer = reducer, .one_gpu = one_gpu};
    bool exact = reducer && !strncmp(reducer, "nccl", 4); /* it has an order of its own */
    is_int(run_ranks(size, &set, one_by_one, exact), 0, "%s, %d ranks: the right sums, one by one", reducer,
           size);
    say_outcomes(size);
    if (strcmp(reducer, "staged")) /* by which the host waits */
        is_int(run_ranks(size, &set, as_graph, exact), 0, "%s, %d ranks: the right sums, as a replayed graph",
               reducer, size);
    say_outcomes(size);
    ok(!strncmp(outcomes[0].name, reducer, strlen(reducer)), "it is %s (%s)", reducer, outcomes[0].name);
}

/* ---- which reducer ------------------------------------------------------------------------------------- */

static bool has_nccl(void)
{
    const setting set = {.reducer = "nccl", .one_gpu = true};
    return run_ranks(1, &set, only_create, 0) == 0 || !strstr(outcomes[0].text, "no NCCL");
}

static void check_choice(void)
{
    setting set = {.one_gpu = true};
    const char *reason = has_nccl() ? "ranks 0 and 1 share GPU-0" : "no NCCL";
    is_int(run_ranks(2, &set, only_create, 0), 0, "two ranks with one GPU");
    is_text(outcomes[1].name, "staged", "go through host memory");
    set.reducer = "nccl";
    run_ranks(2, &set, only_create, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && outcomes[1].value == KOLO_ECONFIG &&
           strstr(outcomes[1].text, reason),
       "reducer=nccl is refused there on all ranks: %s", outcomes[1].text);
    set.reducer = "ncll";
    run_ranks(2, &set, only_create, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && strstr(outcomes[0].text, "nccl, staged"),
       "a reducer that is none: %s", outcomes[0].text);
    set = (setting){.one_gpu = true};
    is_int(run_ranks(1, &set, only_create, 0), 0, "one rank");
    is_text(outcomes[0].name, "none", "has nothing to sum");
    if (!standin) return;
    set = (setting){.canonical = true};
    is_int(run_ranks(3, &set, one_by_one, false), 0,
           "three ranks, three GPUs, reduce=canonical: the bits of the tree");
    say_outcomes(3);
    is_text(outcomes[2].name, "staged", "through host memory, where the order is ours");
    set = (setting){.variable = "KOLO_NCCL_LIBRARY", .value = "/nowhere/libnccl.so.2", .odd = 1};
    is_int(run_ranks(2, &set, one_by_one, false), 0, "one of two ranks has no NCCL");
    is_text(outcomes[0].name, "staged", "so both go through host memory");
    set.reducer = "nccl";
    run_ranks(2, &set, only_create, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && strstr(outcomes[0].text, "rank 1: no NCCL") &&
           strstr(outcomes[0].text, "/nowhere/"),
       "reducer=nccl says who lacks what: %s", outcomes[0].text);
}

/* ---- several nodes ------------------------------------------------------------------------------------- */

#ifdef KOLO_MPI
/* Sums of every round on the GPU, then of a communicator in host memory: MPI serves one of them at a time. */
static int sum_compressed(rank *r, int rounds, float *sums)
{
    KOLO_TRY(rank_open(r));
    for (int round = 0; round < rounds; round++) {
        KOLO_TRY(fill(r, round, false));
        KOLO_TRY(enqueue(r));
        KOLO_TRY(check(cuda.copy(r->host, r->arena, (size_t)COUNT * 4, cudaMemcpyDeviceToHost, r->compute)));
        KOLO_TRY(rank_wait(r));
        memcpy(sums + (size_t)round * COUNT, r->host, (size_t)COUNT * 4);
    }
    return 0;
}

static int64_t differ_from_host(kolo_comm *host, const rank *r, int rounds, const float *sums)
{
    int64_t bad = 0;
    size_t at = 0;
    KOLO_TRY(ranks_compress(host, r->set.compression));
    for (int b = 0; b < BUCKETS; at += (size_t)counts[b++] * 4)
        KOLO_TRY(kolo_comm_bucket(host, at, counts[b]));
    KOLO_TRY(kolo_comm_commit(host));
    float *arena = kolo_comm_arena(host);
    for (int round = 0; round < rounds; round++) {
        for (int64_t i = 0; i < COUNT; i++) arena[i] = world_value(r->w.launch.rank, i, round, false);
        for (int b = 0; b < BUCKETS; b++) KOLO_TRY(kolo_comm_start(host, b));
        for (int b = 0; b < BUCKETS; b++) KOLO_TRY(kolo_comm_wait(host, b));
        for (int64_t i = 0; i < COUNT; i++)
            bad += memcmp(&sums[(size_t)round * COUNT + (size_t)i], &arena[i], 4) != 0;
    }
    return bad;
}

/* Compressed sums have the bits of a communicator in host memory, from the first step on: what the codecs
 * carry begins the same. */
static int64_t compressed(rank *r, int rounds)
{
    const kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = (size_t)COUNT * 4, .timeout = 60, .spin = -1};
    kolo_comm *host = NULL;
    float *sums = malloc((size_t)rounds * COUNT * 4);
    int64_t rc = sum_compressed(r, rounds, sums);
    kolo_comm_destroy(&r->comm);
    if (rc == 0) rc = kolo_comm_create(&host, &r->w.launch, &config);
    if (rc == 0) rc = differ_from_host(host, r, rounds, sums);
    kolo_comm_destroy(&host);
    free(sums);
    return rc;
}

static int64_t refused(rank *r, int argument)
{
    (void)argument;
    int rc = rank_create(r);
    return !(
        rc == KOLO_ECONFIG &&
        strstr(kolo_error_text(), "int8 is done in host memory, through which reducer nccl does not go"));
}

static void together(int me, int size, const int *node_of, const char *where, const setting *set, work what,
                     int exact, const char *how)
{
    static int serial;
    rank r = {.set = *set};
    snprintf(job, sizeof job, "test-reducer.%d.%d", (int)getpid(), serial++);
    MPI_Bcast(job, sizeof job, MPI_CHAR, 0, MPI_COMM_WORLD);
    world_fill(&r.w, me, size, node_of, job);
    r.w.launch.mpi = true;
    long long value = what(&r, exact), bad = value < 0 ? 1000000 : value, all = 0;
    if (value < 0) diag("rank %d: %s", me, kolo_error_text());
    rank_close(&r);
    MPI_Allreduce(&bad, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (me == 0)
        is_int(all, 0, "%s, %d ranks as %s: the right sums, %s", set->reducer ? set->reducer : "auto", size,
               where, how);
}

static int main_apart(int argc, char **argv)
{
    static const struct {
        int size;
        const char *name;
        int node_of[4];
    } maps[] = {
        {2, "1+1", {0, 1}}, {3, "2+1", {0, 0, 1}}, {3, "1+1+1", {0, 1, 2}}, {4, "2+2 cyclic", {0, 1, 0, 1}}};
    int provided, me, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++) {
        if (maps[m].size != size) continue;
        setting set = {.reducer = "staged"};
        together(me, size, maps[m].node_of, maps[m].name, &set, one_by_one, false, "one by one");
        set.canonical = true;
        together(me, size, maps[m].node_of, maps[m].name, &set, one_by_one, false, "in the canonical order");
        /* fp16 is as bf16 */
        for (int kind = COMM_BF16; kind < COMM_COMPRESSIONS; kind += kind == COMM_BF16 ? 2 : 1) {
            /* asked for, compression takes it */
            set = (setting){.compression = kind, .reducer = kind == COMM_BF16 ? NULL : "staged"};
            together(me, size, maps[m].node_of, maps[m].name, &set, compressed, 3, comm_compress_name(kind));
        }
        set = (setting){.reducer = "nccl", .compression = COMM_INT8};
        together(me, size, maps[m].node_of, maps[m].name, &set, refused, 0, "compressed: refused");
        set = (setting){.reducer = "nccl"};
        together(me, size, maps[m].node_of, maps[m].name, &set, one_by_one, true, "one by one");
    }
    MPI_Finalize();
    return me == 0 ? done_testing() : tap_failed;
}
#endif

int main(int argc, char **argv)
{
    if (!ranks_begin("reducer")) skip_all("no shared memory");
    if (argc > 1 && strcmp(argv[1], "apart") == 0) {
        setenv("STANDIN_DEVICES", "4", 1);
#ifdef KOLO_MPI
        return main_apart(argc, argv);
#else
        skip_all("built without MPI");
#endif
    }
#ifdef __SANITIZE_THREAD__
    check_sums("staged", 1, true);
    for (int n = 2; n <= 3; n++) check_sums("nccl", n, false);
    return done_testing();
#endif
    for (int n = 1; n <= 3; n++) check_sums("staged", n, true);
    check_choice();
    if (standin)
        for (int n = 1; n <= 3; n++) check_sums("nccl", n, false);
    else if (has_nccl()) check_sums("nccl", 1, true);
    else skip("no NCCL on this system");
    return ranks_end();
}
