/* Ranks that are killed, stopped, late, or gone: all others learn in time who it was, where, and how far it
 * came; strangers at the port. */
#include <arpa/inet.h>
#include <sys/socket.h>

#include "comm/core/transport/lines.h"
#include "comm_router_rig.h"

enum { VICTIM = 1, STEP = 12, STEPS = 400, FEW = STEP + 40 };
/* after those from PAUSED on all go on, for a FEW steps, as each takes long where others use the cores */
enum drill { KILLED, STOPPED, LATE, LEFT, GIVES_UP, PAUSED, SUSPENDED, DRILLS };

static const char *const operation = "the drill";

/* Only the one where the drill begins; the others go on until they are told. */
static void misbehave(rig_rank *r, enum drill drill)
{
    for (int i = 0; i < 12; i++) { /* as if it computed: the others hear where it stands */
        usleep(25000);
        comm_router_status(r->router);
    }
    if (drill == KILLED) kill(getpid(), SIGKILL);
    if (drill == STOPPED) kill(getpid(), SIGSTOP);
    if (drill >= PAUSED) atomic_store(&rig->mark[2], 1); /* the others wait by now */
    if (drill >= PAUSED) rig_await(&rig->mark[3], 1);
    for (double end = kolo_time() + 30;
         drill == LATE && kolo_time() < end && comm_router_status(r->router) == 0;)
        usleep(20000);
    if (drill == GIVES_UP) comm_router_break(r->router, "rank 1 has no data any more");
}

/* Rank 0 stops the victim, and lets it go on. */
static void *pause_victim(void *of)
{
    (void)of;
    while (atomic_load(&rig->mark[2]) == 0) usleep(1000);
    kill(rig->outcome[VICTIM].pid, SIGSTOP);
    atomic_store(&rig->mark[3], 1);
    usleep(600000);
    kill(rig->outcome[VICTIM].pid, SIGCONT);
    return NULL;
}

/* A step: a message around the ring of all ranks. */
static int ring_step(rig_rank *r, void *lane, int64_t *value)
{
    int64_t got = 0;
    comm_router_lane_reset(lane);
    KOLO_TRY(comm_routed.post(lane, false, (r->rank + rig_size - 1) % rig_size, 3, &got, sizeof got));
    KOLO_TRY(comm_routed.post(lane, true, (r->rank + 1) % rig_size, 3, value, sizeof *value));
    KOLO_TRY(rig_done(r, lane, 1));
    *value = got + 1;
    return 0;
}

static int push_step(comm_push *push, int64_t *value)
{
    comm_folding how = {.type = KOLO_I64, .op = KOLO_MAX};
    KOLO_TRY(comm_push_start(push, value, value, 1, &how, 1));
    return comm_push_wait(push) == 1 ? 0 : KOLO_ELAUNCH;
}

static int64_t drill(rig_rank *r, int argument)
{
    enum drill what = argument % 100;
    bool pushes = argument >= 100, busy = false;
    comm_push *push = NULL;
    void *lane = NULL;
    int64_t value = 0;
    int rank[WORLD_MAX], rc = comm_router_lane_make(r->router, 4, &lane);
    pthread_t thread;
    bool pauses = what == PAUSED && r->rank == 0 && pthread_create(&thread, NULL, pause_victim, NULL) == 0;
    for (int i = 0; i < rig_size; i++) rank[i] = i;
    if (rc == 0 && pushes) rc = comm_push_open(&push, r->router, 1, rank, rig_size);
    for (int step = 0; step < (what < PAUSED ? STEPS : FEW) && rc == 0; step++) {
        comm_router_report(r->router, operation, (uint64_t)step);
        if (step == STEP && r->rank == VICTIM) {
            misbehave(r, what);
            if (what == LEFT) break;
        }
        rc = pushes ? push_step(push, &value) : ring_step(r, lane, &value);
    }
    char text[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    if (pauses) pthread_join(thread, NULL);
    if (lane) comm_router_lane_free(&lane, &busy);
    if (rc < 0) kolo_fail(rc, "%s", text);
    return rc;
}

typedef struct trial {
    const char *where;
    int size;
    const int *node_of;
    int drill; /* + 100: in pushes */
    comm_router_config config;
    double least, most; /* seconds */
} trial;

static rig_party begin(const trial *t)
{
    rig_config = t->config;
    rig_config.between = "tcp";
    rig_config.shared_bytes = 1 << 20;
    rig_what = drill;
    return rig_begin("drill", t->size, t->node_of, rig_routed, t->drill, 60);
}

static void all_ranks(const rig_party *p, int signal)
{
    for (int r = 0; r < p->size; r++) kill(p->pid[r], signal);
}

/* All ranks are stopped as soon as they wait for the victim, and go on later: as those of a suspended job do,
 * or of a machine that stands still. */
static void suspend(const trial *t, const rig_party *p, int parties)
{
    bool stopped[WORLD_MAX] = {false};
    int left = 0;
    for (int i = 0; i < parties; i++) left += t[i].drill % 100 == SUSPENDED;
    if (left == 0) return;
    for (double end = kolo_time() + 20; left > 0 && kolo_time() < end; usleep(1000))
        for (int i = 0; i < parties; i++) {
            if (t[i].drill % 100 != SUSPENDED || stopped[i] || atomic_load(&p[i].shared->mark[2]) == 0)
                continue;
            all_ranks(&p[i], SIGSTOP);
            stopped[i] = true;
            left--;
        }
    usleep(1800000);
    for (int i = 0; i < parties; i++) {
        if (!stopped[i]) continue;
        atomic_store(&p[i].shared->mark[3], 1);
        all_ranks(&p[i], SIGCONT);
    }
}

/* The text tells how far each rank came: "; last begun: rank 0, 2-3: the drill number 13; rank 1: the drill
 * number 12; see ...". */
static bool tells_all(const char *text, int size)
{
    static const char head[] = "; last begun: ", did[] = ": the drill number ";
    const char *at = strstr(text, head);
    bool seen[WORLD_MAX] = {false};
    int all = 0;
    char *end;
    for (at = at ? at + strlen(head) : ""; strncmp(at, "rank ", 5) == 0;) {
        for (at += 5;; at += 2) {
            long from = strtol(at, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
            for (; from <= to && from < size; from++) seen[from] = true;
            at = end;
            if (*at != ',') break;
        }
        if (strncmp(at, did, strlen(did)) != 0 || !(at = strstr(at, "; "))) return false;
        at += 2;
    }
    for (int i = 0; i < size; i++) all += seen[i];
    return all == size && strncmp(at, "see ", 4) == 0;
}

static void end(const trial *t, rig_party *p)
{
    static const struct {
        const char *name, *verb;
    } drills[DRILLS] = {{"killed", "died"},
                        {"stopped", "gave no sign of life for"},
                        {"late", "is alive but did not come"},
                        {"leaves", "left before the end"},
                        {"gives up", "has no data"},
                        {"paused", NULL},
                        {"suspended", NULL}};
    const int what = t->drill % 100;
    const bool harmless = drills[what].verb == NULL;
    int named = 0;
    double last = 0;
    rig_end(p, harmless ? -1 : VICTIM);
    for (int i = 0; i < t->size; i++) {
        const rig_outcome *o = &rig_outcomes[i];
        if (i == VICTIM) continue;
        bool who =
            what == GIVES_UP || (strstr(o->text, "rank 1 on host n") == o->text &&
                                 strstr(o->text, "the drill number 12") && tells_all(o->text, t->size));
        named +=
            !o->exit && (harmless ? o->value == 0
                                  : o->value == KOLO_ELAUNCH && who && strstr(o->text, drills[what].verb));
        if (o->seconds > last) last = o->seconds;
    }
    if (what == PAUSED)
        is_int(named, t->size - 1, "rank 1 stopped for less than the heartbeat timeout, %s: nobody minds",
               t->where);
    else if (what == SUSPENDED)
        is_int(named, t->size - 1, "all ranks stopped for longer, %s: nobody minds", t->where);
    else
        is_int(named, t->size - 1, "rank 1 %s, %s: all others say so, and how far every rank came",
               drills[what].name, t->where);
    ok(last < t->most && last > t->least, "after %.1f s (within %.0f)", last, t->most);
}

/* ---- strangers ----------------------------------------------------------------------------------------- */

static int knock(const line_address *address, const void *bytes, size_t length)
{
    int fd = socket(address->address.ss_family, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address->address, address->length) < 0) return -1;
    if (length && send(fd, bytes, length, MSG_NOSIGNAL) < 0) return -1;
    return fd;
}

static int64_t strangers(rig_rank *r, int argument)
{
    const line_address *address = &r->router->lines->address[1 - r->rank];
    int fd[200];
    void *lane = NULL;
    int64_t value = 0, bad = comm_router_lane_make(r->router, 4, &lane) < 0;
    bool busy = false;
    (void)argument;
    for (int i = 0; i < 200; i++) {
        line_hello hello = {.rank = r->rank, .purpose = i % 2 ? LINE_FRAMES : LINE_BREAK};
        unsigned char noise[300];
        for (size_t j = 0; j < sizeof noise; j++)
            noise[j] = (unsigned char)kolo_philox(4, (uint64_t)i, j).v[0];
        memcpy(hello.magic, "kolo-l1", 8); /* all but the cookie */
        fd[i] = i % 4 == 0   ? knock(address, noise, sizeof noise)
                : i % 4 == 1 ? knock(address, noise, 5)
                : i % 4 == 2 ? knock(address, NULL, 0)
                             : knock(address, &hello, sizeof hello);
        if (i % 10 == 0) bad += ring_step(r, lane, &value) < 0;
    }
    for (int i = 0; i < 200; i++) close(fd[i]);
    for (int i = 0; i < 20; i++) bad += ring_step(r, lane, &value) < 0;
    comm_router_lane_free(&lane, &busy);
    return bad;
}

static const int each[] = {0, 1, 2, 3, 4, 5, 6}, two[] = {0, 0, 1, 1}, three[] = {0, 0, 1, 1, 1, 2, 2};
#define USUAL        \
    {                \
        .timeout = 0 \
    }
#define IMPATIENT                \
    {                            \
        .heartbeat_timeout = 1.5 \
    }
/* both less than the ranks of a suspended job are away */
#define SHORT                                    \
    {                                            \
        .timeout = 1.7, .heartbeat_timeout = 1.5 \
    }
static const trial trials[] = {
    {"2 ranks of a node", 2, NULL, KILLED, USUAL, 0, 10},
    {"4 ranks of a node, in a push", 4, NULL, 100 + KILLED, USUAL, 0, 10},
    {"3 nodes", 3, each, KILLED, USUAL, 0, 10},
    {"7 ranks on 3 nodes", 7, three, KILLED, USUAL, 0, 10},
    {"2 ranks of a node", 2, NULL, LEFT, USUAL, 0, 10},
    {"2 nodes", 2, each, LEFT, USUAL, 0, 10},
    {"3 ranks of a node", 3, NULL, STOPPED, IMPATIENT, 1.2, 9},
    {"3 ranks of a node, in a push", 3, NULL, 100 + STOPPED, IMPATIENT, 1.2, 9},
    {"3 nodes", 3, each, STOPPED, IMPATIENT, 1.2, 9},
    {"7 ranks on 3 nodes", 7, three, STOPPED, IMPATIENT, 1.2, 9},
    {"3 ranks of a node", 3, NULL, PAUSED, IMPATIENT, 0.5, 9},
    {"7 ranks on 3 nodes", 7, three, PAUSED, IMPATIENT, 0.5, 9},
    {"2 nodes of 2", 4, two, LATE, {.timeout = 2}, 1.5, 9},
    {"7 ranks on 3 nodes", 7, three, GIVES_UP, USUAL, 0, 10},
    {"3 ranks of a node", 3, NULL, SUSPENDED, SHORT, 1.8, 9},
    {"4 ranks of a node, in a push", 4, NULL, 100 + SUSPENDED, SHORT, 1.8, 9},
    {"3 nodes", 3, each, SUSPENDED, SHORT, 1.8, 9},
    {"7 ranks on 3 nodes", 7, three, SUSPENDED, SHORT, 1.8, 9},
};

/* Side by side, as they mostly wait. */
int main(void)
{
    enum { TRIALS = sizeof trials / sizeof *trials, SIDE_BY_SIDE = 9 };
    for (int first = 0; first < TRIALS; first += SIDE_BY_SIDE) {
        const int parties = TRIALS - first < SIDE_BY_SIDE ? TRIALS - first : SIDE_BY_SIDE;
        rig_party p[SIDE_BY_SIDE];
        for (int i = 0; i < parties; i++) p[i] = begin(&trials[first + i]);
        suspend(trials + first, p, parties);
        for (int i = 0; i < parties; i++) end(&trials[first + i], &p[i]);
    }
    rig_config = (comm_router_config){.between = "tcp", .timeout = 20, .shared_bytes = 1 << 20};
    is_int(rig_run(2, each, false, strangers, 0), 0, "strangers and noise at the port do not disturb");
    ok(!rig_leftovers("drill") && !rig_leftovers("router"), "nothing is left in /dev/shm");
    return done_testing();
}
