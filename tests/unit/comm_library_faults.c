/* A rank that is killed, stopped, late, or gives up, while the others wait in a call of the library: all
 * learn in time who it was and what for, every later call says the same, and the world can be closed.
 * Blocking and named requests, on one node and between two. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { VICTIM = 1, RANKS = 3, CALLED = 20 /* calls that go well */ };
enum drill { KILLED, STOPPED, LATE, GIVES_UP, LEAVES };
enum call { BY_CALLER, LARGE, NAMED };
static const char *const drill_name[] = {"killed", "stopped", "late", "giving up", "leaving"},
                         *const call_name[] = {"a barrier", "a large allreduce", "a named allreduce"};
static _Alignas(64) float vector[300000];

static int one_call(kolo_world *whole, enum call call)
{
    kolo_group *g = kolo_world_group(whole);
    if (call == BY_CALLER) return kolo_barrier(g);
    if (call == LARGE) return kolo_allreduce(g, NULL, vector, 300000, KOLO_F32, KOLO_MAX);
    kolo_request r = {.what = KOLO_ALLREDUCE,
                      .name = "gradient",
                      .out = vector,
                      .type = KOLO_F32,
                      .dims = 1,
                      .dim = {1000}};
    kolo_handle h;
    KOLO_TRY(kolo_submit(g, &r, &h));
    return kolo_wait(whole, h);
}

static void misbehave(kolo_world *whole, enum drill drill)
{
    usleep(200000);
    if (drill == KILLED) kill(getpid(), SIGKILL);
    if (drill == STOPPED) kill(getpid(), SIGSTOP);
    if (drill == GIVES_UP) kolo_world_abort(whole, "no data any more");
    while (drill == LATE && atomic_load(&rig->mark[0]) < RANKS - 1) usleep(10000);
}

/* Who, where, in what operation, how far it came, and what became of it. */
static bool names_victim(const char *text, enum drill drill, enum call call)
{
    char who[64], did[64];
    if (drill == GIVES_UP)
        return strstr(text, "rank 1 on host n") == text && strstr(text, "gave up: no data any more");
    snprintf(who, sizeof who, "rank 1 on host n%d (pid %d)", rig_nodes ? rig_nodes[VICTIM] : 0,
             (int)rig->outcome[VICTIM].pid);
    snprintf(did, sizeof did, "which began %s number %d ", call == BY_CALLER ? "barrier" : "allreduce",
             call == NAMED ? CALLED : CALLED + 1); /* the world's beginning was one without a name */
    return strstr(text, who) == text && strstr(text, did) &&
           (drill == KILLED ? strstr(text, ", died;") != NULL
                            : strstr(text, "gave no sign of life for") || strstr(text, "did not come for"));
}

/* 0: as it should be. */
static int64_t judge(kolo_world *whole, enum drill drill, enum call call, int rc, double seconds)
{
    char text[1024], again[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    if (drill == LEAVES)
        return !(rc == KOLO_EINPUT && strstr(text, "rank 1: the end of the world") &&
                 strstr(text, "rank 0, 2: "));
    int later = one_call(whole, call == NAMED ? BY_CALLER : NAMED);
    snprintf(again, sizeof again, "%s", kolo_error_text());
    return (rc != KOLO_ELAUNCH) + 10 * !names_victim(text, drill, call) + 100 * (seconds > 10) +
           1000 * (later != KOLO_ELAUNCH) + 10000 * (strcmp(text, again) != 0);
}

static int64_t drill_rank(rig_rank *r, int argument)
{
    enum drill drill = argument % 10;
    enum call call = argument / 10;
    /* who is dead is seen at once; who is stopped or late when the time is over */
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .timeout = drill == KILLED ? 300 : 2,
                                      .shared_bytes = 1 << 20,
                                      .transport = "tcp"};
    kolo_world *whole = NULL;
    int64_t bad = 0;
    int rc = lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r);
    for (int i = 0; rc == 0 && i < CALLED; i++) rc = one_call(whole, call);
    if (rc < 0) {
        bad = rc;
    } else if (r->rank == VICTIM && drill != LEAVES) {
        misbehave(whole, drill);
    } else if (r->rank != VICTIM) {
        double begin = kolo_time();
        while (rc == 0) rc = one_call(whole, call);
        bad = judge(whole, drill, call, rc, kolo_time() - begin);
        atomic_fetch_add(&rig->mark[0], 1);
    }
    kolo_world_close(&whole);
    return bad;
}

/* Some drills side by side: they mostly wait. */
typedef struct trial {
    const int *node_of;
    enum drill drill;
    enum call call;
} trial;

static const int beside[] = {0, 0, 1}, apart[] = {0, 1, 1};
static const trial trials[] = {
    {NULL, KILLED, BY_CALLER},
    {NULL, STOPPED, BY_CALLER},
    {NULL, LATE, BY_CALLER},
    {NULL, GIVES_UP, BY_CALLER},
    {NULL, LEAVES, BY_CALLER},
    {NULL, KILLED, LARGE},
    {NULL, STOPPED, LARGE},
    {NULL, LATE, LARGE},
    {NULL, GIVES_UP, LARGE},
    {apart, LEAVES, LARGE},
    /* late: that is the stall inspector's */
    {NULL, KILLED, NAMED},
    {NULL, STOPPED, NAMED},
    {NULL, GIVES_UP, NAMED},
    {beside, KILLED, LARGE},
    {apart, KILLED, NAMED},
    {apart, STOPPED, LARGE},
    {apart, STOPPED, NAMED},
    {apart, GIVES_UP, BY_CALLER},
};

/* The victim may have to be killed, and its end is nobody's fault. */
static void end(const trial *t, rig_party *p)
{
    const char *where = !t->node_of                           ? "one node"
                        : t->node_of[VICTIM] == t->node_of[0] ? "two nodes, beside rank 0"
                                                              : "two nodes, beside rank 2";
    is_int(rig_end(p, VICTIM), 0, "%s: a rank %s, the others in %s: named in time, on every rank, for good",
           where, drill_name[t->drill], call_name[t->call]);
}

int main(void)
{
    enum { TRIALS = sizeof trials / sizeof *trials, SIDE_BY_SIDE = 9 };
    for (int first = 0; first < TRIALS; first += SIDE_BY_SIDE) {
        rig_party p[SIDE_BY_SIDE];
        for (int i = first; i < TRIALS && i < first + SIDE_BY_SIDE; i++)
            p[i - first] = rig_begin("faults", RANKS, trials[i].node_of, drill_rank,
                                     (int)trials[i].call * 10 + (int)trials[i].drill, 60);
        for (int i = first; i < TRIALS && i < first + SIDE_BY_SIDE; i++) end(&trials[i], &p[i - first]);
    }
    is_int(rig_leftovers("faults"), 0, "no segment is left behind");
    return done_testing();
}
