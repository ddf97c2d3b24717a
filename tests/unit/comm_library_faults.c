/* A rank that is killed, stopped, late, or gives up, while the others wait in a call of the library: all learn in time who it was and what for, every later
 * call says the same, and the world can be closed. Blocking and named requests, on one node and between two. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { VICTIM = 1, RANKS = 3 };
enum drill { KILLED, STOPPED, LATE, GIVES_UP, LEAVES };
enum call { BY_CALLER, LARGE, NAMED, CALLS };
static const char *const drill_name[] = {"killed", "stopped", "late", "giving up", "leaving"}, *const call_name[] = {
                                                                                                   "a barrier",
                                                                                                   "a large allreduce",
                                                                                                   "a named allreduce"};
static _Alignas(64) float vector[300000];

static int one_call(kolo_world *whole, enum call call)
{
    kolo_group *g = kolo_world_group(whole);
    if (call == BY_CALLER) return kolo_barrier(g);
    if (call == LARGE) return kolo_allreduce(g, NULL, vector, 300000, KOLO_WIRE_F32, KOLO_MAX);
    kolo_request r = {
        .what = KOLO_ALLREDUCE, .name = "gradient", .out = vector, .type = KOLO_WIRE_F32, .dims = 1, .dim = {1000}};
    kolo_handle h;
    KOLO_TRY(kolo_submit(g, &r, &h));
    return kolo_wait(whole, h);
}

static int misbehave(kolo_world *whole, enum drill drill)
{
    usleep(200000);
    if (drill == KILLED) kill(getpid(), SIGKILL);
    if (drill == STOPPED) kill(getpid(), SIGSTOP);
    if (drill == GIVES_UP) kolo_world_abort(whole, "no data any more");
    if (drill == LATE)
        while (atomic_load(&rig->mark[0]) < RANKS - 1) usleep(10000);
    return 0;
}

/* 0: as it should be. */
static int64_t judge(rig_rank *r, kolo_world *whole, enum drill drill, enum call call, int rc, double seconds)
{
    char text[1024], again[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    snprintf(rig->outcome[r->rank].text, sizeof rig->outcome[r->rank].text, "%s", text);
    if (drill == LEAVES)
        return !(rc == KOLO_EINPUT && strstr(text, "rank 1: the end of the world") && strstr(text, "rank 0, 2: "));
    bool named = strstr(text, "rank 1") && (drill == GIVES_UP ? strstr(text, "no data any more") != NULL : true);
    int later = one_call(whole, call == NAMED ? BY_CALLER : NAMED);
    snprintf(again, sizeof again, "%s", kolo_error_text());
    return (rc != KOLO_ELAUNCH) + 10 * !named + 100 * (seconds > 12) + 1000 * (later != KOLO_ELAUNCH) +
           10000 * (strcmp(text, again) != 0);
}

static void *drill_rank(void *of)
{
    rig_rank r = {.rank = (int)(intptr_t)of};
    enum drill drill = rig_argument % 10;
    enum call call = rig_argument / 10;
    const kolo_world_config config = {.timeout = 2, .shared_bytes = 1 << 20, .transport = "tcp"};
    kolo_world *whole = NULL;
    world_fill(&r.w, r.rank, rig_size, rig_nodes, rig_job);
    rig_outcome *out = &rig->outcome[r.rank];
    out->pid = getpid();
    int rc = lib_world_start(&whole, &r.w.launch, &config, rig_exchange, &r);
    for (int i = 0; rc == 0 && i < 20; i++) rc = one_call(whole, call);
    if (rc < 0) {
        snprintf(out->text, sizeof out->text, "%s", kolo_error_text());
        out->value = rc;
    } else if (r.rank == VICTIM && drill != LEAVES) {
        misbehave(whole, drill);
    } else if (r.rank != VICTIM) {
        double begin = kolo_time();
        while (rc == 0) rc = one_call(whole, call);
        out->value = judge(&r, whole, drill, call, rc, kolo_time() - begin);
        atomic_fetch_add(&rig->mark[0], 1);
    }
    kolo_world_close(&whole);
    return NULL;
}

/* Some drills side by side: they mostly wait. */
typedef struct trial {
    const int *node_of;
    enum drill drill;
    enum call call;
} trial;
typedef struct running {
    rig_shared *rig;
    pid_t pid[RANKS];
} running;

static running begin(const trial *t, int number)
{
    running now;
    now.rig = rig = mmap(NULL, sizeof *rig, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rig_size = RANKS;
    rig_nodes = t->node_of;
    rig_argument = (int)t->call * 10 + (int)t->drill;
    snprintf(rig_job, sizeof rig_job, "test-faults.%d.%d", (int)getpid(), number);
    fflush(stdout);
    for (int r = 0; r < RANKS; r++)
        if ((now.pid[r] = fork()) == 0) {
            drill_rank((void *)(intptr_t)r);
            _exit(0);
        }
    return now;
}

/* The victim may have to be killed, and its end is nobody's fault. */
static void end(const trial *t, running now)
{
    int64_t bad = 0;
    const char *where = !t->node_of                           ? "one node"
                        : t->node_of[VICTIM] == t->node_of[0] ? "two nodes, beside rank 0"
                                                              : "two nodes, beside rank 2";
    for (int r = 0; r < RANKS; r++) {
        int status = 0;
        if (r == VICTIM) continue;
        waitpid(now.pid[r], &status, 0);
        bad += now.rig->outcome[r].value + (WIFEXITED(status) ? 0 : 1000000);
        if (now.rig->outcome[r].value) diag("rank %d: %s", r, now.rig->outcome[r].text);
    }
    kill(now.pid[VICTIM], SIGKILL);
    waitpid(now.pid[VICTIM], NULL, 0);
    is_int(bad, 0, "%s: a rank %s, the others in %s: named in time, on every rank, for good", where,
           drill_name[t->drill], call_name[t->call]);
    munmap(now.rig, sizeof *now.rig);
}

static const int beside[] = {0, 0, 1}, apart[] = {0, 1, 1};
static const trial trials[] = {
    {NULL, KILLED, BY_CALLER}, {NULL, STOPPED, BY_CALLER}, {NULL, LATE, BY_CALLER}, {NULL, GIVES_UP, BY_CALLER},
    {NULL, LEAVES, BY_CALLER}, {NULL, KILLED, LARGE},      {NULL, STOPPED, LARGE},  {NULL, LATE, LARGE},
    {NULL, GIVES_UP, LARGE},   {apart, LEAVES, LARGE},     {NULL, KILLED, NAMED},   {NULL, STOPPED, NAMED},
    {NULL, GIVES_UP, NAMED}, /* late: that is the stall inspector's */
    {beside, KILLED, LARGE},   {apart, KILLED, NAMED},     {apart, STOPPED, LARGE}, {apart, GIVES_UP, BY_CALLER},
};

int main(void)
{
    enum { TRIALS = sizeof trials / sizeof *trials, SIDE_BY_SIDE = 6 };
    for (int first = 0; first < TRIALS; first += SIDE_BY_SIDE) {
        running now[SIDE_BY_SIDE];
        for (int i = first; i < TRIALS && i < first + SIDE_BY_SIDE; i++) now[i - first] = begin(&trials[i], i);
        for (int i = first; i < TRIALS && i < first + SIDE_BY_SIDE; i++) end(&trials[i], now[i - first]);
    }
    is_int(world_leftovers("test-faults"), 0, "no segment is left behind");
    return done_testing();
}
