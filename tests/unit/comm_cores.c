/* Ranks that share fewer processors compute in turns: as many at once as there are processors, each as often
 * as the others, and none that waits or has died keeps a core. */
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "comm_world.h"
#include "tap.h"

enum { RANKS = 5, PIECES = 60, WAITS = 20 };

typedef struct notes {
    _Atomic int computes, most;                  /* ranks at this moment, and at any */
    _Atomic int pieces[RANKS], first_end[RANKS]; /* pieces of each when the first rank had done all */
    _Atomic int ended;
    _Atomic int64_t value[RANKS];
} notes;
static notes *shared;
static char job[64];

static kolo_comm *join(world *w, int rank)
{
    kolo_comm *comm = NULL;
    const kolo_comm_config config = {
        .size = sizeof config, .arena_bytes = 1 << 16, .timeout = 50, .heartbeat_timeout = 20, .spin = -1};
    world_fill(w, rank, RANKS, NULL, job);
    if (kolo_comm_create(&comm, &w->launch, &config) < 0 || kolo_comm_bucket(comm, 0, 1 << 10) < 0 ||
        kolo_comm_commit(comm) < 0 || kolo_comm_barrier(comm) < 0)
        return NULL;
    return comm;
}

static void compute_piece(int rank)
{
    const double until = tap_cpu() + 1e-3;
    const int now = atomic_fetch_add(&shared->computes, 1) + 1;
    for (int most = atomic_load(&shared->most);
         now > most && !atomic_compare_exchange_weak(&shared->most, &most, now);)
        continue;
    while (tap_cpu() < until) continue;
    atomic_fetch_sub(&shared->computes, 1);
    atomic_fetch_add(&shared->pieces[rank], 1);
}

/* Each rank's value: 0, or what went wrong. */
static int64_t take_turns(world *w, int rank)
{
    kolo_comm *comm = join(w, rank);
    if (!comm) return -1;
    for (int i = 0; i < PIECES; i++) {
        kolo_comm_acquire_core(comm);
        compute_piece(rank);
    }
    kolo_comm_release_core(comm);
    if (atomic_fetch_add(&shared->ended, 1) == 0)
        for (int r = 0; r < RANKS; r++) shared->first_end[r] = shared->pieces[r];
    cpu_set_t now;
    const bool free = sched_getaffinity(0, sizeof now, &now) == 0 && CPU_COUNT(&now) == 2;
    KOLO_TRY(kolo_comm_barrier(comm));
    kolo_comm_destroy(&comm);
    return !free;
}

/* A rank that has a core waits for another, which has yet to get one. */
static int64_t wait_for_others(world *w, int rank)
{
    kolo_comm *comm = join(w, rank);
    if (!comm) return -1;
    for (int i = 0; i < WAITS; i++) {
        kolo_comm_acquire_core(comm);
        compute_piece(rank);
        KOLO_TRY(kolo_comm_start(comm, 0));
        KOLO_TRY(kolo_comm_wait(comm, 0));
    }
    kolo_comm_release_core(comm);
    kolo_comm_destroy(&comm);
    return 0;
}

/* Ranks 0 and 1 have the cores; one dies with it, and the other waits for a sum. */
static int64_t die(world *w, int rank)
{
    kolo_comm *comm = join(w, rank);
    if (!comm) return -1;
    kolo_comm_acquire_core(comm);
    if (rank == 1) raise(SIGKILL);
    int rc = kolo_comm_start(comm, 0);
    if (rc == 0) rc = kolo_comm_wait(comm, 0);
    kolo_comm_destroy(&comm);
    return rc == KOLO_ELAUNCH ? 0 : 1;
}

static int64_t run_ranks(int64_t (*what)(world *, int))
{
    pid_t child[RANKS];
    int64_t sum = 0;
    fflush(stdout);
    memset(shared, 0, sizeof *shared);
    for (int r = 0; r < RANKS; r++) {
        shared->value[r] = -1000;
        child[r] = fork();
        if (child[r]) continue;
        world w;
        alarm(60);
        shared->value[r] = what(&w, r);
        if (shared->value[r] < 0) fprintf(stderr, "# rank %d: %s\n", r, kolo_error_text());
        _exit(0);
    }
    for (int r = 0; r < RANKS; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < RANKS; r++)
        if (what != die || r != 1) sum += shared->value[r] != 0;
    return sum;
}

/* This process, and the ranks that it starts, on two processors. */
static bool leave_two(void)
{
    cpu_set_t all, two;
    CPU_ZERO(&two);
    if (sched_getaffinity(0, sizeof all, &all) != 0) return false;
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&two) < 2; cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &two);
    return CPU_COUNT(&two) == 2 && sched_setaffinity(0, sizeof two, &two) == 0;
}

int main(void)
{
#ifdef __SANITIZE_THREAD__
    skip_all("a thread sanitizer sees one process at a time");
#endif
    snprintf(job, sizeof job, "kolo.test-cores.%d", (int)getpid());
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) skip_all("no shared memory");
    if (!leave_two()) skip_all("less than two processors");
    is_int(run_ranks(take_turns), 0,
           "five ranks take turns on two processors; behind them they may use both");
    is_int(shared->most, 2, "two compute at once, never more");
    int least = PIECES;
    for (int r = 0; r < RANKS; r++)
        if (shared->first_end[r] < least) least = shared->first_end[r];
    /* a turn is 8 ms, of which others on the machine may leave one piece */
    ok(least >= PIECES / 5, "each as often as the others: the last has %d of %d pieces when the first ends",
       least, PIECES);
    is_int(run_ranks(wait_for_others), 0,
           "a rank that waits for a sum leaves its core to those it waits for");
    const double begin = kolo_time();
    is_int(run_ranks(die), 0, "a rank dies with its core: the others learn of it");
    ok(kolo_time() - begin < 15, "within 15 s (%.2f)", kolo_time() - begin);
    return done_testing();
}
