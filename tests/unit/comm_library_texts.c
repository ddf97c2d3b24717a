/* What does not match is told so that the ranks can be told apart, whatever it is that differs: by order and
 * by name, on one node and on two. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 14, ODD = 3 };

static kolo_world *whole;
static float in[64], out[64 * RANKS];

typedef struct brought {
    kolo_request r;
    int64_t splits[RANKS];
    char compression[220];
} brought;

static void given_or_not(brought *b, int rank)
{
    b->r = (kolo_request){.what = KOLO_ALLGATHER, .in = in, .type = KOLO_F32, .dims = 1, .dim = {2}};
    for (int m = 0; m < RANKS; m++) b->splits[m] = 2;
    if (rank == ODD) b->r.splits = b->splits;
}

static void nearly_a_third(brought *b, int rank)
{
    b->r =
        (kolo_request){.what = KOLO_ALLREDUCE, .in = in, .out = out, .type = KOLO_F32, .dims = 1, .dim = {2}};
    b->r.prescale = rank == ODD ? 1. / 3 : 0.333333;
}

/* As many in all, and the first twelve are the same. */
static void counts_of(brought *b, int rank, enum kolo_collective what)
{
    b->r = (kolo_request){.what = what, .in = in, .type = KOLO_F32, .dims = 1, .dim = {rank % 3}};
    for (int m = 0; m < RANKS; m++) b->splits[m] = m % 3;
    if (rank == ODD) b->splits[12]++, b->splits[13]--;
    b->r.splits = b->splits;
}
static void counts_of_all(brought *b, int rank) { counts_of(b, rank, KOLO_ALLGATHER); }
static void counts_at_root(brought *b, int rank) { counts_of(b, rank, KOLO_GATHER); }

static void everybody_another(brought *b, int rank)
{
    b->r =
        (kolo_request){.what = KOLO_ALLREDUCE, .in = in, .out = out, .type = KOLO_F32, .dims = 1, .dim = {2}};
    snprintf(b->compression, sizeof b->compression, "%0200d", rank);
    b->r.compression = b->compression;
}

static void of_no_kind(brought *b, int rank)
{
    (void)rank;
    b->r = (kolo_request){
        .what = (enum kolo_collective)99, .in = in, .out = out, .type = KOLO_F32, .dims = 1, .dim = {2}};
}

static const struct {
    const char *what;
    void (*bring)(brought *b, int rank);
    const char *says[2];
} cases[] = {
    {"counts given by one rank alone",
     given_or_not,
     {"rank 0-2, 4-13: allgather of 2 f32;", "rank 3: allgather of 2 f32, counts given"}},
    {"factors that differ behind six digits",
     nearly_a_third,
     {"scaled by 0.333333 and 1", "rank 3: allreduce of 2 f32, sum, scaled by 0.33333333333333331 and 1"}},
    {"counts that differ behind the twelfth",
     counts_of_all,
     {"counts differ first for rank 12: 0 by rank 0, 1 by rank 3", "(13 in all)"}},
    {"so of a gather",
     counts_at_root,
     {"counts differ first for rank 12: 0 by rank 0, 1 by rank 3", "(13 in all)"}},
    {"a collective that there is not", of_no_kind, {"there is no collective 99", ""}},
    {"more than a text holds", everybody_another, {"rank 4: ", "; and 3 more"}},
};
enum { CASES = sizeof cases / sizeof *cases };

/* Bits of what is wrong. */
static int64_t one_rank(rig_rank *r, int argument)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    static brought b;
    int64_t bad = 0;
    (void)argument;
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    kolo_group *all = kolo_world_group(whole);
    for (int k = 0; k < 2 * CASES; k++) {
        const char *const *says = cases[k / 2].says;
        kolo_handle h = 0;
        memset(&b, 0, sizeof b);
        cases[k / 2].bring(&b, r->rank);
        if (k % 2) b.r.name = "x";
        int rc = kolo_submit(all, &b.r, &h);
        if (rc == 0) rc = kolo_wait(whole, h);
        if (rc == KOLO_EINPUT && strstr(kolo_error_text(), says[0]) && strstr(kolo_error_text(), says[1]))
            continue;
        fprintf(stderr, "# rank %d: %s, by %s: status %d: %s\n", r->rank, cases[k / 2].what,
                k % 2 ? "name" : "order", rc, kolo_error_text());
        bad |= 1ll << k;
    }
    kolo_world_close(&whole);
    return bad;
}

static void check(const int *node_of, const char *where)
{
    rig_party p = rig_begin("texts", RANKS, node_of, one_rank, 0, 60);
    rig_end(&p, -1);
    for (int k = 0; k < 2 * CASES; k++) {
        int wrong = 0;
        for (int r = 0; r < RANKS; r++)
            wrong += rig_outcomes[r].value < 0 || (rig_outcomes[r].value >> k & 1);
        is_int(wrong, 0, "%s, by %s: %s: every rank is told who brought what", where,
               k % 2 ? "name" : "order", cases[k / 2].what);
    }
}

int main(void)
{
    static const int two[RANKS] = {0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1};
    check(NULL, "one node");
    check(two, "two nodes");
    is_int(rig_leftovers("texts"), 0, "no segment is left behind");
    return done_testing();
}
