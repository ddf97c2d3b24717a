/* Once a request of a kind has been seen, the next one of it allocates nothing: no thread of any rank, in no
 * collective, on one node and between two. */
#include <limits.h>

#include "comm/library/parts.h"
#include "allocations.h"
#include "comm_router_rig.h"

enum { RANKS = 3, WARM = 24, COUNTED = 12, ROUNDS = 3, GROUPED = 400 };
enum { LARGE = 300000 }; /* elements: more than an entry keeps */

static kolo_world *whole;
static kolo_group *all;
static int me;
static _Alignas(64) float in[LARGE * RANKS], out[LARGE * RANKS];
static char name[GROUPED][24];
static kolo_handle handle[GROUPED];

static int do_request(kolo_request r)
{
    kolo_handle h;
    r.type = r.what == KOLO_BARRIER ? KOLO_U8 : KOLO_F32;
    KOLO_TRY(kolo_submit(all, &r, &h));
    KOLO_TRY(kolo_wait(whole, h));
    kolo_release(whole, h);
    return 0;
}

static int grouped(enum kolo_collective what)
{
    static kolo_request r[GROUPED];
    for (int i = 0; i < GROUPED; i++)
        r[i] = (kolo_request){.what = what,
                              .name = name[i],
                              .in = in + i * 16,
                              .out = what == KOLO_ALLREDUCE ? out + i * 16 : NULL,
                              .type = KOLO_F32,
                              .dims = 1,
                              .dim = {16}};
    KOLO_TRY(kolo_submit_grouped(all, r, GROUPED, handle));
    for (int i = 0; i < GROUPED; i++) {
        KOLO_TRY(kolo_wait(whole, handle[i]));
        if (!r[i].out) kolo_release(whole, handle[i]);
    }
    return 0;
}

static int by_order_small(void) { return kolo_allreduce(all, in, out, 5, KOLO_F32, KOLO_SUM); }
static int by_order_large(void) { return kolo_allreduce(all, in, out, LARGE, KOLO_F32, KOLO_SUM); }
static int by_halves(void) { return kolo_allreduce(all, in, out, 3000, KOLO_BF16, KOLO_SUM); }
static int by_adasum(void) { return kolo_allreduce(all, in, out, 3000, KOLO_F32, KOLO_ADASUM); }
static int scattered(void) { return kolo_reduce_scatter(all, in, out, 1000, KOLO_F32, KOLO_SUM); }
static int gathered(void) { return kolo_allgather(all, in, out, 50, NULL, KOLO_F32); }
static int sent(void) { return kolo_broadcast(all, out, 5000, KOLO_F32, 1); }
static int dealt(void) { return kolo_scatter(all, in, out, 50, NULL, KOLO_F32, 0); }
static int exchanged(void)
{
    static const int64_t each[RANKS] = {7, 7, 7};
    return kolo_alltoall(all, in, each, out, each, KOLO_F32);
}
static int met(void) { return kolo_barrier(all); }
static int gathered_at(void) { return kolo_gather(all, in, out, 50, NULL, KOLO_F32, 1); }
static int gathered_large(void)
{
    return do_request((kolo_request){.what = KOLO_ALLGATHER, .in = in, .dims = 1, .dim = {LARGE - me}});
}
static int sparse(void)
{
    static const int64_t index[4] = {700, 3, 3, 12};
    return do_request((kolo_request){
        .what = KOLO_SPARSE_ALLREDUCE, .in = in, .index = index, .rows = 1000, .dims = 2, .dim = {4, 9}});
}
static int named_of(enum kolo_collective what, const char *word, const char *compression)
{
    return do_request((kolo_request){.what = what,
                                     .name = word,
                                     .in = in,
                                     .out = out,
                                     .dims = 1,
                                     .dim = {3000},
                                     .compression = compression});
}
static int named(void) { return named_of(KOLO_ALLREDUCE, "weight", NULL); }
static int named_sent(void) { return named_of(KOLO_BROADCAST, "start", NULL); }
static int named_met(void) { return do_request((kolo_request){.what = KOLO_BARRIER, .name = "step"}); }
static int named_gathered(void)
{
    return do_request(
        (kolo_request){.what = KOLO_ALLGATHER, .name = "rows", .in = in, .dims = 1, .dim = {10 + me}});
}
static int named_cut(void) { return named_of(KOLO_REDUCE_SCATTER, "cut", NULL); }
static int named_gathered_at(void)
{
    return do_request(
        (kolo_request){.what = KOLO_GATHER, .name = "at", .in = in, .dims = 1, .dim = {10 + me}});
}
static int named_dealt(void)
{
    return do_request(
        (kolo_request){.what = KOLO_SCATTER, .name = "dealt", .in = in, .dims = 1, .dim = {me ? 0 : 100}});
}
static int named_exchanged(void)
{
    return do_request(
        (kolo_request){.what = KOLO_ALLTOALL, .name = "exchanged", .in = in, .dims = 1, .dim = {30}});
}
static int named_sparse(void)
{
    static const int64_t index[4] = {700, 3, 3, 12};
    return do_request((kolo_request){.what = KOLO_SPARSE_ALLREDUCE,
                                     .name = "sparse",
                                     .in = in,
                                     .index = index,
                                     .rows = 1000,
                                     .dims = 2,
                                     .dim = {4, 9}});
}
static int in_bf16(void) { return named_of(KOLO_ALLREDUCE, "16", "bf16"); }
static int in_int8(void) { return named_of(KOLO_ALLREDUCE, "8", "int8"); }
static int by_topk(void) { return named_of(KOLO_ALLREDUCE, "top", "topk:0.1"); }
static int by_powersgd(void) { return named_of(KOLO_ALLREDUCE, "rank", "powersgd:2"); }
static int grouped_sums(void) { return grouped(KOLO_ALLREDUCE); }
static int grouped_gathers(void) { return grouped(KOLO_ALLGATHER); }
static int grouped_parts(void) { return grouped(KOLO_REDUCE_SCATTER); }
static int grouped_starts(void) { return grouped(KOLO_BROADCAST); }
static int joined(void)
{
    int last;
    if (me) KOLO_TRY(named());
    return kolo_join(all, &last);
}

static const struct {
    const char *what;
    int (*call)(void);
} kinds[] = {{"allreduce of 20 bytes", by_order_small},
             {"allreduce of 1.2 MB", by_order_large},
             {"allreduce of bf16", by_halves},
             {"Adasum", by_adasum},
             {"reduce_scatter", scattered},
             {"allgather", gathered},
             {"allgather of more than 1 MiB into the library's memory", gathered_large},
             {"gather", gathered_at},
             {"broadcast", sent},
             {"scatter", dealt},
             {"alltoall", exchanged},
             {"barrier", met},
             {"sparse allreduce", sparse},
             {"named allreduce", named},
             {"named broadcast", named_sent},
             {"named barrier", named_met},
             {"named allgather", named_gathered},
             {"named reduce_scatter", named_cut},
             {"named gather", named_gathered_at},
             {"named scatter", named_dealt},
             {"named alltoall", named_exchanged},
             {"named sparse allreduce", named_sparse},
             {"compressed to bf16", in_bf16},
             {"compressed to int8", in_int8},
             {"compressed by topk", by_topk},
             {"compressed by PowerSGD", by_powersgd},
             {"400 grouped allreduces", grouped_sums},
             {"400 grouped allgathers", grouped_gathers},
             {"400 grouped reduce_scatters", grouped_parts},
             {"400 grouped broadcasts", grouped_starts},
             {"named allreduce while a rank has joined", joined}};
enum { KINDS = sizeof kinds / sizeof *kinds };

typedef struct counts {
    /* a call, in the round with the fewest: where a rank lags, what is kept for messages that
     * come early still grows */
    long made[KINDS];
    int failed[KINDS];
} counts;
static counts *of_rank;

static int count_kind(int k)
{
    for (int i = 0; i < WARM; i++) KOLO_TRY(kinds[k].call());
    long fewest = LONG_MAX;
    for (int round = 0; round < ROUNDS; round++) {
        KOLO_TRY(kolo_barrier(all));
        const long before = atomic_load(&allocations);
        for (int i = 0; i < COUNTED; i++) KOLO_TRY(kinds[k].call());
        KOLO_TRY(kolo_barrier(all));
        const long made = atomic_load(&allocations) - before;
        if (made < fewest) fewest = made;
    }
    of_rank[me].made[k] = fewest / COUNTED;
    return kolo_barrier(all); /* before anybody begins with the next kind */
}

static int64_t one_rank(rig_rank *r, int argument)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    (void)argument;
    me = r->rank;
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    all = kolo_world_group(whole);
    int rc = 0;
    for (int k = 0; k < KINDS && rc == 0; k++) of_rank[me].failed[k] = rc = count_kind(k);
    kolo_world_close(&whole);
    return rc;
}

static void check(const int *node_of, const char *where)
{
    of_rank = mmap(NULL, RANKS * sizeof *of_rank, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < RANKS; r++)
        for (int k = 0; k < KINDS; k++) of_rank[r].failed[k] = -1; /* until it has come that far */
    rig_party p = rig_begin("calls", RANKS, node_of, one_rank, 0, 60);
    is_int(rig_end(&p, -1), 0, "%s: all ranks come to their end", where);
    for (int k = 0; k < KINDS; k++) {
        long made = 0;
        for (int r = 0; r < RANKS; r++) made += of_rank[r].made[k] + (of_rank[r].failed[k] < 0 ? 1000000 : 0);
        is_int(made, 0, COUNTING ? "%s, %s: a call allocates nothing" : "%s, %s: runs", where, kinds[k].what);
    }
    munmap(of_rank, RANKS * sizeof *of_rank);
}

int main(void)
{
    static const int two[RANKS] = {0, 0, 1};
    for (int i = 0; i < GROUPED; i++) snprintf(name[i], sizeof name[i], "layer%d", i);
    long before = atomic_load(&allocations);
    void *volatile seen = malloc(1);
    free(seen);
    is_int(atomic_load(&allocations) - before, COUNTING, "allocations are counted, if there is no sanitizer");
    check(NULL, "one node");
    check(two, "two nodes");
    is_int(rig_leftovers("calls"), 0, "no segment is left behind");
    return done_testing();
}
