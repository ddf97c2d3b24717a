/* Ranks for the tests of comm/transport and comm/library: forked processes (so that they can be killed and
 * stopped), or threads of one process (so that a thread sanitizer sees them). The ranks exchange what the
 * launcher would carry through memory that they share. */
#ifndef TESTS_COMM_ROUTER_RIG_H
#define TESTS_COMM_ROUTER_RIG_H

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "comm/core/transport/router.h"
#include "comm_world.h"
#include "tap.h"

enum { RIG_EXCHANGE = 1024 };

/* What a rank leaves behind; a body returns the value. */
typedef struct rig_outcome {
    int64_t value; /* RIG_NONE until the body is through */
    double seconds;
    pid_t pid;
    int exit; /* signal or status of its end; 0: as it should */
    char text[1024];
} rig_outcome;

enum { RIG_NONE = INT32_MIN };

typedef struct rig_shared {
    rig_outcome outcome[WORLD_MAX];
    _Atomic uint32_t entered, left;
    _Atomic uint32_t mark[4]; /* for the tests' own use */
    char board[2][WORLD_MAX][RIG_EXCHANGE];
} rig_shared;

typedef struct rig_rank {
    world w;
    int rank, exchanges;
    comm_router *router;
} rig_rank;

typedef int64_t (*rig_body)(rig_rank *r, int argument);

/* Ranks under way; some of them go side by side. */
typedef struct rig_party {
    rig_shared *shared;
    int size;
    pid_t pid[WORLD_MAX];
} rig_party;

/* Of the party that was begun, and in its ranks; of the one that was ended last. */
static rig_shared *rig;
static int rig_size;
static const int *rig_nodes;
static char rig_job[64];
static rig_outcome rig_outcomes[WORLD_MAX];

static inline void rig_await(_Atomic uint32_t *word, uint32_t value)
{
    for (int i = 0; atomic_load(word) < value && i < 200000; i++) usleep(100);
}

static inline int rig_exchange(void *of, const void *mine, size_t bytes, void *all)
{
    rig_rank *r = of;
    if (bytes > RIG_EXCHANGE) return kolo_fail(KOLO_EINTERNAL, "test: exchange of %zu bytes", bytes);
    int turn = r->exchanges++;
    memcpy(rig->board[turn & 1][r->rank], mine, bytes);
    atomic_fetch_add(&rig->entered, 1);
    rig_await(&rig->entered, (uint32_t)(rig_size * (turn + 1)));
    for (int i = 0; i < rig_size; i++)
        memcpy((char *)all + (size_t)i * bytes, rig->board[turn & 1][i], bytes);
    return 0;
}

/* One rank from its beginning to its end. */
static inline void rig_be(rig_body body, int rank, int argument)
{
    rig_rank r = {.rank = rank};
    rig_outcome *out = &rig->outcome[rank];
    world_fill(&r.w, rank, rig_size, rig_nodes, rig_job);
    out->pid = getpid();
    double begin = kolo_time();
    int64_t value = body(&r, argument);
    out->seconds = kolo_time() - begin;
    if (value && !out->text[0]) snprintf(out->text, sizeof out->text, "%s", kolo_error_text());
    out->value = value;
}

/* What two parties of a process share has names of its own: "kolo.test-NAME.PID.NUMBER". node_of: NULL, one
 * node. */
static inline rig_party rig_prepare(const char *name, int size, const int *node_of)
{
    static int parties;
    rig_party p = {.size = size};
    p.shared = rig = mmap(NULL, sizeof *rig, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int r = 0; r < size; r++) rig->outcome[r].value = RIG_NONE;
    rig_size = size;
    rig_nodes = node_of;
    snprintf(rig_job, sizeof rig_job, "kolo.test-%s.%d.%d", name, (int)getpid(), parties++);
    fflush(stdout);
    return p;
}

static inline void rig_forget(rig_party *p)
{
    memcpy(rig_outcomes, p->shared->outcome, sizeof rig_outcomes);
    munmap(p->shared, sizeof *p->shared);
    p->shared = rig = NULL;
}

/* Ranks as processes, which the kernel ends after `seconds`. */
static inline rig_party rig_begin(const char *name, int size, const int *node_of, rig_body body, int argument,
                                  int seconds)
{
    rig_party p = rig_prepare(name, size, node_of);
    for (int r = 0; r < size; r++)
        if ((p.pid[r] = fork()) == 0) {
            alarm((unsigned)seconds);
            rig_be(body, r, argument);
            _exit(0);
        }
    return p;
}

/* Waits for all; then kills `victim` (-1: none), whose end is nobody's fault. Returns the sum of what the
 * ranks return, a million for each that returned less than nothing or did not end by itself; how each ended
 * stands in rig_outcomes. */
static inline int64_t rig_end(rig_party *p, int victim)
{
    int64_t sum = 0;
    for (int r = 0; r < p->size; r++) {
        rig_outcome *o = &p->shared->outcome[r];
        int status = 0;
        if (r == victim) continue;
        waitpid(p->pid[r], &status, 0);
        o->exit = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
        if (o->exit) diag("rank %d ended with %s %d", r, WIFSIGNALED(status) ? "signal" : "status", o->exit);
        if (o->value) diag("rank %d: %lld: %s", r, (long long)o->value, o->text);
        sum += o->value < 0 || o->exit ? 1000000 : o->value;
    }
    if (victim >= 0) {
        kill(p->pid[victim], SIGKILL);
        waitpid(p->pid[victim], NULL, 0);
    }
    rig_forget(p);
    return sum;
}

/* ---- ranks with a router ------------------------------------------------------------------------------- */

static rig_body rig_what;
static comm_router_config rig_config;

static inline int rig_open(rig_rank *r)
{
    comm_router_config config = rig_config;
    config.exchange = rig_exchange;
    config.exchange_of = r;
    return comm_router_open(&r->router, &r->w.launch, &config);
}

static inline int64_t rig_routed(rig_rank *r, int argument)
{
    int rc = rig_open(r);
    int64_t value = rc < 0 ? rc : rig_what(r, argument);
    if (value < 0) snprintf(rig->outcome[r->rank].text, sizeof rig->outcome->text, "%s", kolo_error_text());
    comm_router_close(&r->router, value >= 0);
    return value;
}

static inline void *rig_thread(void *of)
{
    int word = (int)(intptr_t)of;
    rig_be(rig_routed, word % WORLD_MAX, word / WORLD_MAX);
    return NULL;
}

/* As rig_end; threads: in this process. */
static inline int64_t rig_run(int size, const int *node_of, bool threads, rig_body what, int argument)
{
    int64_t sum = 0;
    pthread_t thread[WORLD_MAX];
    rig_what = what;
    if (!threads) {
        rig_party p = rig_begin("router", size, node_of, rig_routed, argument, 120);
        return rig_end(&p, -1);
    }
    rig_party p = rig_prepare("router", size, node_of);
    for (int r = 0; r < size; r++)
        pthread_create(&thread[r], NULL, rig_thread, (void *)(intptr_t)(argument * WORLD_MAX + r));
    for (int r = 0; r < size; r++) {
        pthread_join(thread[r], NULL);
        int64_t value = rig->outcome[r].value;
        if (value < 0) diag("rank %d: %s", r, rig->outcome[r].text);
        sum += value < 0 ? 1000000 : value;
    }
    rig_forget(&p);
    return sum;
}

/* One turn of an engine that does nothing else. */
static inline int rig_done(rig_rank *r, void *lane, int64_t serial)
{
    for (;;) {
        int rc = comm_routed.done(lane, serial);
        if (rc != 0) return rc;
        KOLO_TRY(comm_router_status(r->router));
        comm_router_rest(r->router, 1);
    }
}

/* What any party of this process has left in /dev/shm. */
static inline int rig_leftovers(const char *name)
{
    char job[64];
    snprintf(job, sizeof job, "kolo.test-%s.%d.", name, (int)getpid());
    return world_leftovers(job);
}

#endif
