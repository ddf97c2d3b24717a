/* Worlds that lose ranks and go on: on one node and on several, of 2 to 7 ranks; one, two, the coordinator
 * are killed, others while the survivors agree; one is stopped and wakes when the others have gone on, or are
 * gone. Every survivor gets the same smaller world, whose sums are exact. comm_shrink [TIMES]: how often one
 * dies while they agree, each time 2 ms later. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { COUNT = 50000, CALLED = 3 };
enum how {
    KILLED,  /* while the others wait for it */
    MIDWAY,  /* the first one is; the second one a little later, in the shrink, or behind it */
    OPENING, /* likewise, as soon as its segment of the next world has a name */
    STOPPED, /* and woken when the others have gone on */
    ORPHAN,  /* and woken when the others have ended */
    ABORTED, /* nobody dies: it gives up, and comes along */
    LEAVES,  /* it closes, and ends */
    FEW,     /* it is killed, and the others do not want to go on with less than all */
};
static const char *const how_name[] = {"killed",
                                       "killed, the second while they agree",
                                       "killed, the second with a segment in the making",
                                       "stopped, woken later",
                                       "stopped, woken too late",
                                       "giving up",
                                       "leaving",
                                       "killed, and more asked for than are left"};

typedef struct trial {
    int size;
    enum how how;
    int victim[2]; /* -1: none */
    int node_of[8];
} trial;

static const trial trials[] = {
    {2, KILLED, {1, -1}, {0}},
    {2, KILLED, {0, -1}, {0, 1}},
    {3, KILLED, {0, 1}, {0}},
    {3, KILLED, {1, -1}, {0, 1, 2}},
    {4, KILLED, {0, 3}, {0, 0, 1, 1}},
    {5, KILLED, {0, 2}, {0, 1, 2, 0, 1}}, /* dealt in turn, and a node of which nobody is left */
    {7, KILLED, {0, 1}, {0, 0, 0, 1, 1, 2, 2}},
    {7, KILLED, {3, 4}, {0, 0, 0, 1, 1, 2, 2}},
    {3, STOPPED, {1, -1}, {0}},
    {4, STOPPED, {0, -1}, {0, 0, 1, 1}},
    {2, ORPHAN, {1, -1}, {0}},
    {3, ORPHAN, {0, -1}, {0, 1, 1}},
    {3, ABORTED, {1, -1}, {0, 0, 1}},
    {3, LEAVES, {2, -1}, {0, 1, 1}},
    {3, FEW, {0, -1}, {0, 1, 1}},
    {4, MIDWAY, {0, 1}, {0}},
    {4, MIDWAY, {3, 0}, {0}},
    {5, MIDWAY, {2, 0}, {0, 0, 1, 1, 2}},
    {6, MIDWAY, {0, 2}, {0, 0, 1, 1, 2, 2}},
    {7, MIDWAY, {6, 1}, {0, 1, 2, 0, 1, 2, 0}},
    {5, OPENING, {2, 0}, {0, 0, 1, 1, 2}},
    {7, OPENING, {6, 0}, {0, 0, 1, 1, 2, 2, 3}},
};
enum { TRIALS = sizeof trials / sizeof *trials, MIDWAYS = 2 };

static _Alignas(64) double vector[COUNT];

/* Every rank brings powers of two of its own, so the sum says who was there. */
static int sum_up(kolo_world *whole, int rank, int64_t *bad, uint64_t *there)
{
    for (int i = 0; i < COUNT; i++) vector[i] = (double)((uint64_t)1 << rank) * (1 + i % 5);
    KOLO_TRY(kolo_allreduce(kolo_world_group(whole), NULL, vector, COUNT, KOLO_F64, KOLO_SUM));
    *there = (uint64_t)vector[0];
    for (int i = 0; i < COUNT; i++) *bad += vector[i] != (double)*there * (1 + i % 5);
    return 0;
}

static int by_name(kolo_world *whole)
{
    float x[3] = {1, 2, 3};
    kolo_request r = {
        .what = KOLO_ALLREDUCE, .name = "named", .out = x, .type = KOLO_F32, .dims = 1, .dim = {3}};
    kolo_handle h;
    KOLO_TRY(kolo_submit(kolo_world_group(whole), &r, &h));
    KOLO_TRY(kolo_wait(whole, h));
    return x[2] == 3 * (float)kolo_world_size(whole) ? 0 : kolo_fail(KOLO_EINTERNAL, "a wrong named sum");
}

static bool is_victim(const trial *t, int rank) { return rank == t->victim[0] || rank == t->victim[1]; }

/* Negative: when the segments of a world of this job have names; at the latest after a second. */
static void *kill_soon(void *of)
{
    const intptr_t microseconds = (intptr_t)of;
    double end = kolo_time() + 1;
    char survivors[80];
    snprintf(survivors, sizeof survivors, "%s.", rig_job);
    if (microseconds >= 0) usleep((useconds_t)microseconds);
    while (microseconds < 0 && !world_leftovers(survivors) && kolo_time() < end) continue;
    kill(getpid(), SIGKILL);
    return NULL;
}

static bool dies_late(const trial *t, int rank)
{
    return (t->how == MIDWAY || t->how == OPENING) && rank == t->victim[1];
}

/* Returns what is wrong, once the world has the ranks `left` (bits of their old numbers),
 * or less than nothing. */
static int64_t check_world(kolo_world *whole, int rank, uint64_t left)
{
    int64_t bad = 0;
    uint64_t there = 0;
    int old[WORLD_MAX] = {0}, size = __builtin_popcountll(left);
    kolo_group *all = kolo_world_group(whole), *last = NULL;
    bad += kolo_world_size(whole) != size ||
           kolo_world_rank(whole) != __builtin_popcountll(left & (((uint64_t)1 << rank) - 1));
    KOLO_TRY(kolo_allgather(all, &rank, old, 1, NULL, KOLO_I32));
    for (int i = 0; i < size; i++) bad += !(left >> old[i] & 1) || (i && old[i] <= old[i - 1]);
    for (int i = 0; i < 5; i++) {
        KOLO_TRY(sum_up(whole, rank, &bad, &there));
        KOLO_TRY(by_name(whole));
        bad += there != left;
    }
    if (size > 1) {
        void *shared;
        const int one = size - 1;
        KOLO_TRY(kolo_group_create(&last, whole, &one, 1));
        KOLO_TRY(kolo_world_alloc(whole, 1 << 16, &shared));
        KOLO_TRY(kolo_group_free(&last));
    }
    return bad;
}

/* Until somebody is held to be stopped. Where many processes wait for a core, one that lives may be silent
 * for a second, too: 4 s at 24 of them a core. */
static double short_heartbeat(void)
{
    double load = 0;
    if (getloadavg(&load, 1) < 1) load = 0;
    const double seconds = 1 + load / (double)sysconf(_SC_NPROCESSORS_ONLN) / 8;
    return seconds < 5 ? seconds : 5;
}

static int open_world(rig_rank *r, kolo_world **whole, const trial *t)
{
    const bool stops = t->how == STOPPED || t->how == ORPHAN;
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .timeout = 20,
                                      .heartbeat_timeout = stops ? short_heartbeat() : 8,
                                      .shared_bytes = 1 << 20,
                                      .transport = "tcp"};
    return lib_world_start(whole, &r->w.launch, &config, rig_exchange, r);
}

/* The one that is stopped: when it wakes it learns of the break, and that it is out. mark 0: survivors in
 * their new world; mark 1: it has been told. */
static int64_t wake(kolo_world **whole, const trial *t)
{
    uint64_t there;
    int64_t bad = 0;
    kill(getpid(), SIGSTOP);
    int rc = sum_up(*whole, 0, &bad, &there);
    if (rc == 0) rc = sum_up(*whole, 0, &bad, &there);
    if (rc != KOLO_ELAUNCH) return 1;
    rc = kolo_world_shrink(whole, 1);
    atomic_fetch_add(&rig->mark[1], 1);
    return 10 * (rc != KOLO_ELAUNCH || *whole) +
           100 * !strstr(kolo_error_text(),
                         t->how == STOPPED ? "went on without this process" : "were themselves stopped");
}

static int64_t misbehave(kolo_world **whole, const trial *t)
{
    if (t->how == STOPPED || t->how == ORPHAN) return wake(whole, t);
    usleep(50000); /* the others are in their next call */
    if (t->how == KILLED || t->how == MIDWAY || t->how == OPENING || t->how == FEW) kill(getpid(), SIGKILL);
    if (t->how == ABORTED) kolo_world_abort(*whole, "enough");
    if (t->how == ABORTED) return KOLO_ELAUNCH;
    kolo_world_abort(*whole, "leaving");
    kolo_world_close(whole);
    return 0;
}

static uint64_t left_of(const trial *t)
{
    uint64_t left = 0;
    for (int r = 0; r < t->size; r++)
        if (!is_victim(t, r) || t->how == ABORTED) left |= (uint64_t)1 << r;
    return left;
}

/* Calls until the world breaks, and shrinks it, until those are left that shall be. */
static int64_t survive(rig_rank *r, kolo_world **whole, const trial *t, int argument)
{
    int64_t bad = 0;
    uint64_t there = 0, left = left_of(t);
    pthread_t killer;
    double end = kolo_time() + 25;
    while (there != left && kolo_time() < end) {
        int rc = t->how == ABORTED ? kolo_barrier(kolo_world_group(*whole))
                                   : sum_up(*whole, r->rank, &bad, &there);
        if (rc == KOLO_ELAUNCH && t->how == FEW) {
            rc = kolo_world_shrink(whole, t->size);
            return rc != KOLO_ELAUNCH || *whole ||
                   !strstr(kolo_error_text(), "of the ranks are left, which is less than the 3");
        }
        if (rc == KOLO_ELAUNCH) {
            if (dies_late(t, r->rank))
                pthread_create(&killer, NULL, kill_soon,
                               (void *)(intptr_t)(t->how == OPENING ? -1 : argument / TRIALS * 2000));
            KOLO_TRY(kolo_world_shrink(whole, 1));
            if (t->how == ABORTED) break;
        } else if (rc < 0) {
            return rc;
        }
    }
    if (dies_late(t, r->rank)) pause();
    int64_t wrong = check_world(*whole, r->rank, left);
    return wrong < 0 ? wrong : bad + wrong;
}

static int64_t body(rig_rank *r, int argument)
{
    const trial *t = &trials[argument % TRIALS];
    kolo_world *whole = NULL;
    int64_t bad = 0, value;
    uint64_t there;
    KOLO_TRY(open_world(r, &whole, t));
    bad += kolo_world_shrink(&whole, 1) != KOLO_EINPUT || !whole; /* it is whole */
    for (int i = 0; i < CALLED; i++) KOLO_TRY(sum_up(whole, r->rank, &bad, &there));
    atomic_fetch_add(&rig->mark[2], 1);
    rig_await(&rig->mark[2], (uint32_t)t->size); /* what follows is not about the calls before */
    bool first = r->rank == t->victim[0] || (t->how == KILLED && r->rank == t->victim[1]);
    value = first ? misbehave(&whole, t) : KOLO_ELAUNCH;
    if (value == KOLO_ELAUNCH) value = survive(r, &whole, t, argument);
    if (value < 0) return value;
    if (!first) atomic_fetch_add(&rig->mark[0], 1);
    if (!first && t->how == STOPPED) {
        rig_await(&rig->mark[1], 1);
        value += check_world(whole, r->rank, left_of(t)); /* nobody was disturbed */
    }
    kolo_world_close(&whole);
    return bad + value;
}

/* Wakes who was stopped when it is time, and buries the killed, whose end is nobody's fault. */
static int64_t end(const trial *t, rig_party *p)
{
    for (int v = 0; v < 2 && t->victim[v] >= 0 &&
                    (t->how == KILLED || t->how == MIDWAY || t->how == OPENING || t->how == FEW);
         v++) {
        waitpid(p->pid[t->victim[v]], NULL, 0);
        p->shared->outcome[t->victim[v]].value = 0;
    }
    if (t->how == STOPPED) rig_await(&p->shared->mark[0], (uint32_t)t->size - 1);
    for (int r = 0; r < t->size && t->how == ORPHAN; r++) {
        siginfo_t info;
        if (r != t->victim[0]) waitid(P_PID, (id_t)p->pid[r], &info, WEXITED | WNOWAIT);
    }
    if (t->how == STOPPED || t->how == ORPHAN) kill(p->pid[t->victim[0]], SIGCONT);
    return rig_end(p, -1);
}

static void describe(const trial *t, char *text, size_t bytes)
{
    size_t at = (size_t)snprintf(text, bytes, "%d ranks on nodes", t->size);
    for (int r = 0; r < t->size; r++) at += (size_t)snprintf(text + at, bytes - at, " %d", t->node_of[r]);
    at += (size_t)snprintf(text + at, bytes - at, ", rank %d", t->victim[0]);
    if (t->victim[1] >= 0) at += (size_t)snprintf(text + at, bytes - at, " and %d", t->victim[1]);
    snprintf(text + at, bytes - at, " %s", how_name[t->how]);
}

int main(int argc, char **argv)
{
    enum { SIDE_BY_SIDE = 12 }; /* they mostly wait */
    const int midways = argc > 1 ? atoi(argv[1]) : MIDWAYS;
    int64_t bad[TRIALS] = {0};
    int list[TRIALS * 100], runs = 0;
    for (int n = 0; n < TRIALS; n++)
        for (int k = 0; k < (trials[n].how == MIDWAY || trials[n].how == OPENING ? midways : 1) && k < 100;
             k++)
            list[runs++] = k * TRIALS + n;
    for (int first = 0; first < runs; first += SIDE_BY_SIDE) {
        rig_party p[SIDE_BY_SIDE];
        for (int i = first; i < runs && i < first + SIDE_BY_SIDE; i++) {
            const trial *t = &trials[list[i] % TRIALS];
            p[i - first] = rig_begin("shrink", t->size, t->node_of, body, list[i], 60);
        }
        for (int i = first; i < runs && i < first + SIDE_BY_SIDE; i++)
            bad[list[i] % TRIALS] += end(&trials[list[i] % TRIALS], &p[i - first]);
    }
    for (int n = 0; n < TRIALS; n++) {
        char text[256];
        describe(&trials[n], text, sizeof text);
        is_int(bad[n], 0, "%s: the others %s", text, trials[n].how == FEW ? "end" : "go on");
    }
    is_int(rig_leftovers("shrink"), 0, "no segment is left behind");
    return done_testing();
}
