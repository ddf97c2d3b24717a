/* Ranks with a router each, for the tests of comm/transport: forked processes (so that they can be killed and stopped), or threads of one process (so that
 * a thread sanitizer sees them). The ranks exchange what the launcher would carry through memory that they share. */
#ifndef TESTS_COMM_ROUTER_RIG_H
#define TESTS_COMM_ROUTER_RIG_H

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "comm/transport/router.h"
#include "comm_world.h"
#include "tap.h"

enum { RIG_EXCHANGE = 1024 };

typedef struct rig_outcome {
    int64_t value;
    double seconds;
    pid_t pid;
    int exit; /* signal, or -1 */
    char text[1024];
} rig_outcome;

typedef struct rig_shared {
    rig_outcome outcome[WORLD_MAX];
    _Atomic uint32_t entered, left;
    _Atomic uint32_t mark[4]; /* for the tests' own use */
    char board[2][WORLD_MAX][RIG_EXCHANGE];
} rig_shared;

static rig_shared *rig;
static int rig_size;
static char rig_job[64];

typedef struct rig_rank {
    world w;
    int rank, exchanges;
    comm_router *router;
} rig_rank;

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
    for (int i = 0; i < rig_size; i++) memcpy((char *)all + (size_t)i * bytes, rig->board[turn & 1][i], bytes);
    return 0;
}

typedef int64_t (*rig_body)(rig_rank *r, int argument);
static rig_body rig_what;
static int rig_argument;
static const int *rig_nodes;
static comm_router_config rig_config;

static inline int rig_open(rig_rank *r)
{
    comm_router_config config = rig_config;
    config.exchange = rig_exchange;
    config.exchange_of = r;
    return comm_router_open(&r->router, &r->w.launch, &config);
}

static inline void *rig_one(void *of)
{
    rig_rank r = {.rank = (int)(intptr_t)of};
    rig_outcome *out = &rig->outcome[r.rank];
    world_fill(&r.w, r.rank, rig_size, rig_nodes, rig_job);
    out->pid = getpid();
    int rc = rig_open(&r);
    double begin = kolo_time();
    int64_t value = rc < 0 ? rc : rig_what(&r, rig_argument);
    out->seconds = kolo_time() - begin;
    if (value < 0) snprintf(out->text, sizeof out->text, "%s", kolo_error_text());
    out->value = value;
    comm_router_close(&r.router, value >= 0);
    return NULL;
}

/* Returns the sum of what the ranks return; a negative one, or a rank that ended by a signal, counts a million. node_of: NULL, one node. */
static inline int64_t rig_run(int size, const int *node_of, bool threads, rig_body what, int argument)
{
    int64_t sum = 0;
    pthread_t thread[WORLD_MAX];
    pid_t pid[WORLD_MAX];
    if (!rig) rig = mmap(NULL, sizeof *rig, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    memset(rig, 0, sizeof *rig);
    rig_size = size;
    rig_nodes = node_of;
    rig_what = what;
    rig_argument = argument;
    snprintf(rig_job, sizeof rig_job, "test-router.%d", (int)getpid());
    fflush(stdout);
    for (int r = 0; r < size; r++) {
        rig->outcome[r].exit = -1;
        if (threads) {
            pthread_create(&thread[r], NULL, rig_one, (void *)(intptr_t)r);
        } else if ((pid[r] = fork()) == 0) {
            rig_one((void *)(intptr_t)r);
            _exit(0);
        }
    }
    for (int r = 0; r < size; r++) {
        int status = 0;
        if (threads) pthread_join(thread[r], NULL);
        else waitpid(pid[r], &status, 0);
        if (WIFSIGNALED(status)) rig->outcome[r].exit = WTERMSIG(status);
        int64_t value = rig->outcome[r].value;
        if (value < 0 && rig->outcome[r].text[0]) diag("rank %d: %s", r, rig->outcome[r].text);
        sum += value < 0 || WIFSIGNALED(status) ? 1000000 : value;
    }
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

#endif
