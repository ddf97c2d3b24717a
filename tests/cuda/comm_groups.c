/* Groups and transfers in a GPU's memory: random programs, matched on all ranks, which enqueue starts and
 * waits in orders of their own, one by one and as a replayed graph; the host waits only at the end of a
 * phase. Every element of every result is checked. And windows of the same memory, used in turns. On the
 * stand-in, whose order of work is chance's.
 * comm_groups [SEED]; mpiexec -n 2, 3, 4 or 7 comm_groups apart SEED: ranks on several nodes, simulated by a
 * node map. */
#ifdef KOLO_MPI
#include <mpi.h>
#endif

#include "comm_program.h"
#include "cuda_ranks.h"

enum { PHASES = 5, IN, OUT, VIEWS = 2 * (OUT - IN + 1) };

static uint64_t seed;

/* What one rank does with a program. */
typedef struct player {
    rank *r;
    program p;
    dice all, mine;
    float *view[VIEWS + 1]; /* copies of the arena, page-locked: in and out of even and odd phases; of -2 */
    int checks, phase[2 * PROGRAM_BUCKETS];
    const operation *check[2 * PROGRAM_BUCKETS]; /* waited for in this phase; started in `phase` */
} player;

static float *view_of(player *y, int what, int phase) { return y->view[2 * (what - IN) + phase % 2]; }

static int player_open(player *y, rank *r, int number)
{
    y->r = r;
    y->all = (dice){seed + (uint64_t)number, 1000, 0};
    y->mine = (dice){seed + (uint64_t)number, (uint64_t)r->w.launch.rank, 0};
    draw(&y->p, r->w.launch.rank, r->w.launch.size, &y->all);
    r->set.arena_bytes = y->p.elements * 4;
    KOLO_TRY(rank_create(r));
    y->p.comm = r->comm;
    KOLO_TRY(declare(&y->p));
    r->arena = kolo_comm_arena(r->comm);
    for (int v = 0; v <= VIEWS; v++) {
        void *memory;
        KOLO_TRY(check(cuda.alloc_host(&memory, r->set.arena_bytes, cudaHostAllocPortable)));
        y->view[v] = memory;
    }
    for (size_t i = 0; i < y->p.elements; i++) y->view[VIEWS][i] = -2;
    return 0;
}

static void player_close(player *y)
{
    for (int v = 0; v <= VIEWS; v++)
        if (y->view[v]) cuda.release_host(y->view[v]);
}

/* ---- what is enqueued ---------------------------------------------------------------------------------- */

static int enqueue_start(player *y, operation *op, int phase)
{
    rank *r = y->r;
    op->phase = phase;
    op->started = true;
    if (op->group >= 0 || op->from == y->p.me)
        KOLO_TRY(check(cuda.copy(r->arena + op->at, view_of(y, IN, phase) + op->at, (size_t)op->count * 4,
                                 cudaMemcpyHostToDevice, r->compute)));
    return kolo_comm_start(r->comm, op->number);
}

/* The sender writes there again; others' results go to a view. */
static int enqueue_wait(player *y, operation *op)
{
    rank *r = y->r;
    const bool sender = op->group < 0 && op->from == y->p.me;
    const size_t at = op->group < 0 && !sender ? op->to_at : op->at, bytes = (size_t)op->count * 4;
    if (!op->started) return 0;
    op->started = false;
    y->check[y->checks] = op;
    y->phase[y->checks++] = op->phase;
    KOLO_TRY(kolo_comm_wait(r->comm, op->number));
    return check(
        sender ? cuda.copy(r->arena + at, y->view[VIEWS] + at, bytes, cudaMemcpyHostToDevice, r->compute)
               : cuda.copy(view_of(y, OUT, op->phase) + at, r->arena + at, bytes, cudaMemcpyDeviceToHost,
                           r->compute));
}

/* All of a phase is started before anything of it is waited for; leave: a quarter only where it is started
 * again. */
static int enqueue_phase(player *y, int phase, bool leave)
{
    int order[PROGRAM_BUCKETS], own[PROGRAM_BUCKETS];
    for (int b = 0; b < PROGRAM_BUCKETS; b++) order[b] = b;
    shuffle(&y->all, order, PROGRAM_BUCKETS);
    reorder(&y->p, order, &y->mine, own);
    for (int i = 0; i < PROGRAM_BUCKETS; i++) {
        operation *op = &y->p.op[own[i]];
        if (!takes_part(&y->p, op)) continue;
        KOLO_TRY(enqueue_wait(y, op));
        KOLO_TRY(enqueue_start(y, op, phase));
        if (roll(&y->mine, 40) == 0) usleep((useconds_t)roll(&y->mine, 2000));
    }
    shuffle(&y->mine, own, PROGRAM_BUCKETS);
    for (int i = 0; i < PROGRAM_BUCKETS; i++)
        if (!leave || roll(&y->mine, 4) > 0) KOLO_TRY(enqueue_wait(y, &y->p.op[own[i]]));
    return 0;
}

static void bring_all(player *y, int phase, int values)
{
    for (int b = 0; b < PROGRAM_BUCKETS; b++)
        if (takes_part(&y->p, &y->p.op[b])) bring(&y->p, &y->p.op[b], values, view_of(y, IN, phase));
}

/* Of what was waited for; values: those of the phase that it was started in, or of a replay. */
static int64_t wrong_results(player *y, int values)
{
    int64_t bad = 0;
    for (int i = 0; i < y->checks; i++) {
        const int phase = y->phase[i];
        bad += wrong_result(&y->p, y->check[i], values < 0 ? phase : values, view_of(y, OUT, phase));
    }
    return bad;
}

/* ---- two ways of running it ---------------------------------------------------------------------------- */

static int64_t play_phases(player *y)
{
    int64_t bad = 0;
    for (int phase = 0; phase < PHASES; phase++) {
        y->checks = 0;
        bring_all(y, phase, phase);
        KOLO_TRY(enqueue_phase(y, phase, phase < PHASES - 1));
        KOLO_TRY(rank_wait(y->r));
        bad += wrong_results(y, -1);
    }
    return bad;
}

static int64_t play_graph(player *y)
{
    rank *r = y->r;
    cudaGraph_t graph;
    cudaGraphExec_t step;
    int64_t bad = 0;
    KOLO_TRY(check(cuda.capture(r->compute, cudaStreamCaptureModeThreadLocal)));
    const int rc = enqueue_phase(y, 0, false);
    KOLO_TRY(check(cuda.capture_end(r->compute, &graph)));
    KOLO_TRY(rc);
    KOLO_TRY(check(cuda.instantiate(&step, graph, 0)));
    for (int replay = 0; replay < PHASES; replay++) {
        bring_all(y, 0, replay);
        KOLO_TRY(check(cuda.launch(step, r->compute)));
        KOLO_TRY(rank_wait(r));
        bad += wrong_results(y, replay);
    }
    KOLO_TRY(check(cuda.exec_destroy(step)));
    KOLO_TRY(check(cuda.graph_destroy(graph)));
    return bad;
}

static int64_t play(rank *r, int number, int64_t (*how)(player *))
{
    player *y = calloc(1, sizeof *y);
    int64_t bad = y ? player_open(y, r, number) : KOLO_ENOMEM;
    if (bad == 0) bad = how(y);
    kolo_comm_destroy(&r->comm);
    if (y) player_close(y);
    free(y);
    return bad;
}

static int64_t phases(rank *r, int number) { return play(r, number, play_phases); }
static int64_t as_graph(rank *r, int number) { return play(r, number, play_graph); }

/* ---- windows of the same memory ------------------------------------------------------------------------ */

enum { WINDOWS = 3, LENGTH = 20160 };

static int windows_declare(rank *r, int number, int scatter[WINDOWS], int gather[WINDOWS])
{
    int all[WORLD_MAX];
    for (int i = 0; i < r->w.launch.size; i++) all[i] = i;
    r->set.arena_bytes = (LENGTH + WINDOWS) * sizeof(float);
    KOLO_TRY(rank_create(r));
    for (int w = 0; w < WINDOWS; w++) {
        const dice d = {.seed = w ? seed + (uint64_t)(number * WINDOWS + w) : 0}; /* the first: equal parts */
        scatter[w] = declare_cut(r->comm, 0, all, r->w.launch.size, KOLO_REDUCE_SCATTER,
                                 (size_t)w * sizeof(float), LENGTH, d);
        KOLO_TRY(scatter[w]);
        gather[w] = declare_cut(r->comm, 0, all, r->w.launch.size, KOLO_ALLGATHER, (size_t)w * sizeof(float),
                                LENGTH, d);
        KOLO_TRY(gather[w]);
    }
    return kolo_comm_commit(r->comm);
}

/* Of a window, what is not this rank's part becomes `junk`; kept: [LENGTH], of the host. */
static int keep_part(rank *r, int bucket, float *at, const float *junk, float *kept)
{
    int64_t first, count;
    KOLO_TRY(kolo_comm_part(r->comm, bucket, r->w.launch.rank, &first, &count));
    const size_t bytes = (size_t)count * sizeof(float);
    KOLO_TRY(check(cuda.copy(kept, at + first, bytes, cudaMemcpyDeviceToHost, r->compute)));
    KOLO_TRY(check(cuda.copy(at, junk, LENGTH * sizeof(float), cudaMemcpyHostToDevice, r->compute)));
    return check(cuda.copy(at + first, kept, bytes, cudaMemcpyHostToDevice, r->compute));
}

/* One after the other, without the host: summed to parts, gathered. in: [WINDOWS + 1][LENGTH], of which the
 * last is junk; out: [WINDOWS][LENGTH]. */
static int windows_enqueue(rank *r, const int *scatter, const int *gather, const float *in, float *out)
{
    const size_t bytes = LENGTH * sizeof(float);
    const float *junk = in + WINDOWS * LENGTH;
    for (int w = 0; w < WINDOWS; w++, in += LENGTH, out += LENGTH) {
        float *at = (float *)kolo_comm_arena(r->comm) + w;
        KOLO_TRY(check(cuda.copy(at, in, bytes, cudaMemcpyHostToDevice, r->compute)));
        KOLO_TRY(kolo_comm_start(r->comm, scatter[w]));
        KOLO_TRY(kolo_comm_wait(r->comm, scatter[w]));
        KOLO_TRY(keep_part(r, scatter[w], at, junk, out));
        KOLO_TRY(kolo_comm_start(r->comm, gather[w]));
        KOLO_TRY(kolo_comm_wait(r->comm, gather[w]));
        KOLO_TRY(check(cuda.copy(out, at, bytes, cudaMemcpyDeviceToHost, r->compute)));
    }
    return rank_wait(r);
}

static int64_t play_windows(rank *r, int number, float *in, float *out)
{
    const int n = r->w.launch.size;
    int scatter[WINDOWS], gather[WINDOWS];
    int64_t bad = 0;
    KOLO_TRY(windows_declare(r, number, scatter, gather));
    for (int i = 0; i < (WINDOWS + 1) * LENGTH; i++)
        in[i] = i < WINDOWS * LENGTH ? (float)(r->w.launch.rank + i % 1009) : -3;
    KOLO_TRY(windows_enqueue(r, scatter, gather, in, out));
    for (int i = 0; i < WINDOWS * LENGTH; i++) bad += out[i] != (float)(n * (n - 1) / 2 + n * (i % 1009));
    return bad;
}

static int64_t windows(rank *r, int number)
{
    void *in = NULL, *out = NULL;
    const size_t bytes = sizeof(float) * (WINDOWS + 1) * LENGTH;
    int64_t bad = open_cuda();
    if (bad == 0) bad = check(cuda.alloc_host(&in, bytes, cudaHostAllocPortable));
    if (bad == 0) bad = check(cuda.alloc_host(&out, bytes, cudaHostAllocPortable));
    if (bad == 0) bad = play_windows(r, number, in, out);
    kolo_comm_destroy(&r->comm);
    if (in) cuda.release_host(in);
    if (out) cuda.release_host(out);
    return bad;
}

/* ---- one node ------------------------------------------------------------------------------------------ */

static void check_programs(const char *reducer, int size, bool canonical)
{
    const setting set = {.reducer = reducer, .one_gpu = !strcmp(reducer, "staged"), .canonical = canonical};
    const char *order = canonical ? ", canonical" : "";
    for (int number = 0; number < 3; number++) {
        is_int(run_ranks(size, &set, phases, number), 0, "%s%s, %d ranks: a random program, one by one",
               reducer, order, size);
        say_outcomes(size);
        if (!set.one_gpu) /* staged: the host waits */
            is_int(run_ranks(size, &set, as_graph, number), 0, "%s%s, %d ranks: as a replayed graph", reducer,
                   order, size);
        say_outcomes(size);
        is_int(run_ranks(size, &set, windows, number), 0, "%s%s, %d ranks: windows of the same memory",
               reducer, order, size);
        say_outcomes(size);
    }
}

/* ---- several nodes ------------------------------------------------------------------------------------- */

#ifdef KOLO_MPI
static void together(const world *place, const char *where, const char *reducer, bool canonical, work what,
                     int number)
{
    static int serial;
    rank r = {.set = {.reducer = reducer, .canonical = canonical}};
    const int me = place->launch.rank, size = place->launch.size;
    snprintf(job, sizeof job, "test-groups.%d.%d", (int)getpid(), serial++);
    MPI_Bcast(job, sizeof job, MPI_CHAR, 0, MPI_COMM_WORLD);
    world_fill(&r.w, me, size, place->node_of, job);
    r.w.launch.mpi = true;
    long long value = what(&r, number), bad = value < 0 ? 1000000 : value, all = 0;
    if (value < 0) diag("rank %d: %s", me, kolo_error_text());
    rank_close(&r);
    MPI_Allreduce(&bad, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (me == 0)
        is_int(all, 0, "%s%s, %d ranks as %s: %s", reducer, canonical ? ", canonical" : "", size, where,
               what == windows    ? "windows of the same memory"
               : what == as_graph ? "a random program, as a replayed graph"
                                  : "a random program, one by one");
}

static int main_apart(int argc, char **argv)
{
    static const struct {
        int size;
        const char *name;
        int node_of[8];
    } maps[] = {{2, "1+1", {0, 1}},           {3, "2+1", {0, 0, 1}},
                {4, "2+2", {0, 0, 1, 1}},     {4, "2+2 cyclic", {0, 1, 0, 1}},
                {4, "1+1+1+1", {0, 1, 2, 3}}, {7, "cyclic over 4", {0, 1, 2, 3, 0, 1, 2}}};
    int provided, me, size, number = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (size_t m = 0; m < sizeof maps / sizeof *maps; m++) {
        world place;
        if (maps[m].size != size) continue;
        world_fill(&place, me, size, maps[m].node_of, job);
        together(&place, maps[m].name, "staged", false, phases, number++);
        together(&place, maps[m].name, "staged", true, phases, number++);
        together(&place, maps[m].name, "staged", false, windows, number++);
        together(&place, maps[m].name, "nccl", false, windows, number++);
        together(&place, maps[m].name, "nccl", false, phases, number++);
        together(&place, maps[m].name, "nccl", false, as_graph, number++);
    }
    MPI_Finalize();
    return me == 0 ? done_testing() : tap_failed;
}
#endif

int main(int argc, char **argv)
{
    const bool apart = argc > 1 && strcmp(argv[1], "apart") == 0;
    seed = argc > 1 + apart ? strtoull(argv[1 + apart], NULL, 10) * 100 : (uint64_t)getpid() * 100;
    if (!ranks_begin("groups")) skip_all("no shared memory");
    if (!standin) skip_all("one GPU has no groups");
    if (apart) {
        setenv("STANDIN_DEVICES", "7", 1);
#ifdef KOLO_MPI
        return main_apart(argc, argv);
#else
        skip_all("built without MPI");
#endif
    }
    diag("seed %llu", (unsigned long long)seed / 100);
#ifdef __SANITIZE_THREAD__
    for (int n = 2; n <= 4; n++) check_programs("nccl", n, false);
    return done_testing();
#endif
    for (int n = 2; n <= 4; n++) {
        check_programs("staged", n, n == 3);
        check_programs("nccl", n, false);
    }
    return ranks_end();
}
