/* Ranks of one node as processes: sums, small collectives, overlap, dead and late peers, what
 * is left in /dev/shm. */
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/shm.h"
#include "base/thread.h"
#include "comm/core/segment.h"
#include "comm_world_adasum.h"
#include "tap.h"

typedef int64_t (*work)(world *w, int argument);
typedef struct outcome {
    _Atomic int64_t value;
    double seconds;
    char text[1024];
} outcome;
static outcome *outcomes;
static char job[64];

/* Every rank is a child; its result and error text come back through shared memory.
 * Children are killed at 60 s. */
static int64_t run_ranks(int size, work what, int argument)
{
    pid_t child[WORLD_MAX];
    int64_t sum = 0;
    fflush(stdout);
    for (int r = 0; r < size; r++) {
        outcomes[r].value = -1000;
        outcomes[r].text[0] = 0;
        child[r] = fork();
        if (child[r]) continue;
        world w;
        alarm(60);
        world_fill(&w, r, size, NULL, job);
        double begin = kolo_time();
        int64_t value = what(&w, argument);
        outcomes[r].seconds = kolo_time() - begin;
        if (value < 0) snprintf(outcomes[r].text, sizeof outcomes[r].text, "%s", kolo_error_text());
        outcomes[r].value = value;
        _exit(0);
    }
    for (int r = 0; r < size; r++) waitpid(child[r], NULL, 0);
    for (int r = 0; r < size; r++) {
        if (outcomes[r].value < 0) diag("rank %d: %d %s", r, (int)outcomes[r].value, outcomes[r].text);
        sum += outcomes[r].value < 0 ? 1000000 : outcomes[r].value;
    }
    return sum;
}

static int64_t fixed_order(world *w, int cut) { return world_buckets(w, cut, false, false, NULL, 2); }
static int64_t canonical(world *w, int cut) { return world_buckets(w, cut, true, false, NULL, 2); }
static int64_t exact(world *w, int cut) { return world_buckets(w, cut, false, true, NULL, 2); }
static int64_t combined(world *w, int average) { return world_adasum(w, average); }
static int64_t small(world *w, int as_tree) { return world_small(w, as_tree); }

static void check_sums(void)
{
    const int sizes[] = {1, 2, 3, 4, 7};
    for (int i = 0; i < 5; i++) {
        int64_t bad = 0;
        for (int cut = 0; cut < 3; cut++) bad += run_ranks(sizes[i], fixed_order, cut);
        is_int(bad, 0, "%d ranks: the documented order, the same bits for any bucketing", sizes[i]);
        is_int(run_ranks(sizes[i], canonical, 2), 0, "%d ranks: canonical has the bits of the tree",
               sizes[i]);
        is_int(run_ranks(sizes[i], exact, 1), 0, "%d ranks: exact sums", sizes[i]);
        is_int(run_ranks(sizes[i], combined, 0) + run_ranks(sizes[i], combined, 1), 0,
               "%d ranks: tensors combined by Adasum, or averaged, as defined, the same bits on all",
               sizes[i]);
        is_int(run_ranks(sizes[i], small, 0) + run_ranks(sizes[i], small, 1), 0,
               "%d ranks: small collectives", sizes[i]);
    }
}

/* ---- overlap: a rank that computes between start and wait does not delay the reduction of what is
 * complete */

static int64_t overlap(world *w, int argument)
{
    kolo_comm *comm = NULL;
    enum { COUNT = 4 << 20 };
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = (size_t)COUNT * 4, .timeout = 30, .spin = -1};
    kolo_comm_stats stats;
    (void)argument;
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &config));
    KOLO_TRY(kolo_comm_bucket(comm, 0, COUNT));
    KOLO_TRY(kolo_comm_commit(comm));
    float *arena = kolo_comm_arena(comm);
    for (int i = 0; i < COUNT; i++) arena[i] = 1;
    KOLO_TRY(kolo_comm_barrier(comm));
    const double begin = tap_cpu();
    KOLO_TRY(kolo_comm_start(comm, 0));
    usleep(300000); /* the caller does not help */
    KOLO_TRY(kolo_comm_wait(comm, 0));
    const double helped = tap_cpu() - begin;
    kolo_comm_get_stats(comm, &stats);
    int64_t bad = arena[0] != (float)w->launch.size || arena[COUNT - 1] != (float)w->launch.size;
    bad += helped > 0.05;
    bad += stats.bytes != (int64_t)COUNT * 4 || stats.calls != 1;
    kolo_comm_destroy(&comm);
    return bad;
}

/* ---- failure ------------------------------------------------------------------------------------------- */

static kolo_comm *ready(world *w, double timeout)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                               .arena_bytes = 1 << 20,
                               .timeout = timeout,
                               .heartbeat_timeout = 1.2,
                               .spin = -1};
    if (kolo_comm_create(&comm, &w->launch, &config) < 0 || kolo_comm_bucket(comm, 0, 1 << 17) < 0 ||
        kolo_comm_commit(comm) < 0)
        return NULL;
    kolo_comm_publish(comm, 17, 88);
    if (kolo_comm_barrier(comm) < 0) return NULL;
    return comm;
}

/* Stops this process; a child of it lets it go on, or ends it. */
static void stop_for(double seconds, int then)
{
    if (fork() == 0) {
        usleep((useconds_t)(1e6 * seconds));
        kill(getppid(), then);
        _exit(0);
    }
    raise(SIGSTOP);
}

/* Rank 1 goes missing in one of several ways; the others report what they were told. */
enum { KILLED_BUCKET, KILLED_SMALL, LATE, STOPPED, PAUSED };
static int64_t missing(world *w, int how)
{
    kolo_comm *comm = ready(w, how == LATE ? 1 : 300);
    if (!comm) return -1;
    if (w->launch.rank == 1) {
        if (how == LATE) {
            usleep(2500000);
            return 0;
        }
        if (how == STOPPED) stop_for(4, SIGKILL);
        else if (how == PAUSED) stop_for(0.5, SIGCONT);
        else kill(getpid(), SIGKILL);
    }
    double value = 1;
    int rc = how == KILLED_SMALL ? kolo_comm_allreduce(comm, &value, 1, KOLO_F64, KOLO_SUM)
                                 : kolo_comm_start(comm, 0);
    if (rc == 0 && how != KILLED_SMALL) rc = kolo_comm_wait(comm, 0);
    if (rc == 0 && how == PAUSED) {
        kolo_comm_barrier(comm);
        kolo_comm_destroy(&comm);
    }
    if (rc == 0) return 0;
    char text[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    bool again = kolo_comm_barrier(comm) == rc; /* stays broken, at once */
    kolo_comm_destroy(&comm);
    kolo_fail(rc, "%s", text);
    return again ? rc : 0;
}

static void check_missing(void)
{
    const struct {
        int how;
        const char *what, *verb, *others;
        double within;
    } cases[] = {
        {KILLED_BUCKET, "killed before its bucket", "died",
         "rank 0, 2: bucket 0, action 88 of step number 17; ", 10},
        {KILLED_SMALL, "killed before an allreduce", "died", "rank 0-2: action 88 of step number 17; ", 10},
        {LATE, "alive but late", "is alive but did not come for 1 s",
         "rank 0, 2: bucket 0, action 88 of step number 17; ", 3},
        {STOPPED, "stopped", "gave no sign of life for ",
         "rank 0, 2: bucket 0, action 88 of step number 17; ", 4},
    };
    for (int c = 0; c < 4; c++) {
        int named = 0;
        run_ranks(3, missing, cases[c].how);
        for (int r = 0; r < 3; r += 2) {
            const char *t = outcomes[r].text;
            named += outcomes[r].value == KOLO_ELAUNCH && strstr(t, "rank 1 on host n0 (pid ") == t &&
                     strstr(t, cases[c].verb) && strstr(t, "), which began action 88 of step number 17 ") &&
                     strstr(t, cases[c].others) && outcomes[r].seconds < cases[c].within;
        }
        is_int(named, 2, "rank 1 %s: both others name it, the operation and how far it came", cases[c].what);
        ok(outcomes[0].seconds < cases[c].within, "within %.0f s (%.2f)", cases[c].within,
           outcomes[0].seconds);
    }
    is_int(run_ranks(3, missing, PAUSED), 0,
           "rank 1 stopped for less than the heartbeat timeout: nobody minds");
    ok(!world_leftovers(job), "nothing is left in /dev/shm after a kill");
}

/* ---- setting up ---------------------------------------------------------------------------------------- */

static int64_t too_large(world *w, int argument)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = (size_t)1 << 40, .timeout = 10, .spin = -1};
    (void)argument;
    int rc = kolo_comm_create(&comm, &w->launch, &config);
    kolo_comm_destroy(&comm);
    return rc;
}

static int64_t unequal(world *w, int argument)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = 4096, .timeout = 10, .spin = -1};
    (void)argument;
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &config));
    KOLO_TRY(kolo_comm_bucket(comm, 0, w->launch.rank == 2 ? 9 : 10));
    int rc = kolo_comm_commit(comm);
    kolo_comm_destroy(&comm);
    return rc;
}

static int64_t sizes(world *w, int argument)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {.arena_bytes = 4096, .algorithm = "no such one"};
    int64_t bad = 0;
    (void)argument;
    bad += kolo_comm_create(&comm, &w->launch, &config) != KOLO_ECONFIG ||
           !strstr(kolo_error_text(), "kolo_comm_config config = {.size = sizeof config");
    config.size = sizeof config + 8;
    bad += kolo_comm_create(&comm, &w->launch, &config) != KOLO_ECONFIG ||
           !strstr(kolo_error_text(), "later version");
    config.size = offsetof(kolo_comm_config, algorithm);
    bad += kolo_comm_create(&comm, &w->launch, &config) != 0;
    kolo_comm_destroy(&comm);
    return bad;
}

/* As many buckets as are announced, beyond those of who announces none; one more is refused. */
static int64_t many(world *w, int argument)
{
    enum { BUCKETS = 5000 };
    kolo_comm *comm = NULL;
    const kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = 4096, .timeout = 60, .spin = -1, .buckets = BUCKETS};
    int64_t bad = 0;
    KOLO_TRY(kolo_comm_create(&comm, &w->launch, &config));
    float *value = kolo_comm_arena(comm);
    for (int i = 0; i < BUCKETS; i++) bad += kolo_comm_bucket(comm, 0, 1) < 0;
    if (argument) bad += kolo_comm_bucket(comm, 0, 1) != KOLO_ECONFIG || !strstr(kolo_error_text(), "5000");
    else {
        bad += kolo_comm_commit(comm) < 0;
        value[0] = 1 + (float)w->launch.rank;
        bad +=
            kolo_comm_start(comm, BUCKETS - 1) < 0 || kolo_comm_wait(comm, BUCKETS - 1) < 0 || value[0] != 3;
    }
    kolo_comm_destroy(&comm);
    return bad;
}

/* A second communicator right after the first, and one on top of segments that a dead job left. */
static int64_t again(world *w, int argument)
{
    (void)argument;
    for (int i = 0; i < 5; i++) KOLO_TRY(world_small(w, false));
    return 0;
}

static void leave_behind(int local)
{
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/kolo-%s-0-%d", job, local);
    FILE *file = fopen(path, "w");
    if (!file) return;
    for (int i = 0; i < 100000; i++) fputc(i, file);
    fclose(file);
}

static int64_t misuse(world *w, int argument)
{
    kolo_comm *comm = ready(w, 10);
    int64_t bad = 0;
    (void)argument;
    if (!comm) return -1;
    bad += kolo_comm_start(comm, 1) != KOLO_EINTERNAL;
    bad += kolo_comm_wait(comm, 0) != KOLO_EINTERNAL;
    bad += kolo_comm_bucket(comm, 0, 1) != KOLO_EINTERNAL;
    KOLO_TRY(kolo_comm_start(comm, 0));
    bad += kolo_comm_start(comm, 0) != KOLO_EINTERNAL;
    KOLO_TRY(kolo_comm_wait(comm, 0));
    int64_t step, action;
    double age;
    kolo_comm_peer(comm, 1 - w->launch.rank, &step, &action, &age);
    bad += step != 17 || action != 88 || age < 0 || age > 10;
    KOLO_TRY(kolo_comm_barrier(comm));
    kolo_comm_destroy(&comm);
    bad += comm != NULL;
    return bad;
}

/* Rank 0 of two nodes where MPI does not run. */
static int64_t no_network(world *w, int argument)
{
    const int apart[2] = {0, 1};
    (void)argument;
    world_fill(w, 0, 2, apart, job);
    return world_small(w, false);
}

/* A rank of three whose third never comes, as a child that waits for it. */
static pid_t waits_for_third(int rank, const char *name)
{
    char path[128];
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        world w;
        alarm(60);
        world_fill(&w, rank, 3, NULL, name);
        world_small(&w, false);
        _exit(0);
    }
    snprintf(path, sizeof path, "/dev/shm/kolo-%s-0-%d", name, rank);
    for (int i = 0; i < 2000 && access(path, F_OK) != 0; i++) usleep(5000);
    return child;
}

static void end_of(pid_t child)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void check_left(void)
{
    char dead[64], alive[64];
    snprintf(dead, sizeof dead, "kolo.test.%d.dead", (int)getpid());
    snprintf(alive, sizeof alive, "kolo.test.%d.alive", (int)getpid());
    pid_t one = waits_for_third(0, dead), two = waits_for_third(1, dead);
    end_of(one);
    end_of(two);
    ok(world_leftovers(dead), "all ranks of a node are killed while a world opens: their names stay");
    one = waits_for_third(0, alive);
    run_ranks(2, again, 0);
    ok(!world_leftovers(dead), "the next world that opens here removes them");
    ok(world_leftovers(alive), "but not those of one that is opening");
    end_of(one);
    ok(kolo_shm_sweep(KOLO_SHM_RANKS, NULL, NULL) >= 1 && !world_leftovers(alive),
       "until it is killed; without a world, as by kolo doctor");
}

/* Another user has seen the job's name, and makes the segment of rank 1 before it does. */
static void check_taken(void)
{
    char path[128];
    if (geteuid() != 0) {
        skip("another user's segment: only root can be two users");
        return;
    }
    snprintf(path, sizeof path, "/dev/shm/kolo-%s-0-1", job);
    const int fd = open(path, O_RDWR | O_CREAT, 0666);
    ok(fd >= 0 && fchown(fd, 65534, 65534) == 0 && flock(fd, LOCK_EX) == 0,
       "another user has taken a rank's name and locks it");
    const double begin = kolo_time();
    run_ranks(2, again, 0);
    ok(outcomes[1].value == KOLO_ELAUNCH && strstr(outcomes[1].text, "belongs to user 65534"),
       "it is refused: %s", outcomes[1].text);
    ok(outcomes[0].value == KOLO_ELAUNCH && kolo_time() - begin < 5, "by the others too, at once: %s",
       outcomes[0].text);
    ok(access(path, F_OK) == 0, "and left alone");
    close(fd);
    unlink(path);
}

static void check_setup(void)
{
    run_ranks(1, no_network, 0);
    ok(outcomes[0].value == KOLO_ELAUNCH && strstr(outcomes[0].text, "2 nodes") &&
           strstr(outcomes[0].text, "MPI"),
       "several nodes without MPI are refused");
    run_ranks(2, too_large, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && strstr(outcomes[0].text, "/dev/shm") &&
           strstr(outcomes[0].text, "are missing"),
       "an arena beyond /dev/shm is refused with the shortfall");
    ok(outcomes[1].value == KOLO_ECONFIG && strstr(outcomes[1].text, "are missing"), "on every rank");
    run_ranks(3, unequal, 0);
    ok(outcomes[0].value == KOLO_ECONFIG && strstr(outcomes[0].text, "rank 2") &&
           outcomes[1].value == KOLO_ECONFIG,
       "a rank with other buckets is named");
    is_int(run_ranks(3, again, 0), 0, "five communicators in a row under one job name");
    leave_behind(0);
    leave_behind(1);
    is_int(run_ranks(3, again, 0), 0, "segments left by a dead job of the same name are replaced");
    ok(!world_leftovers(job), "nothing is left in /dev/shm");
    is_int(run_ranks(2, misuse, 0), 0, "misuse is refused; peers read what was published");
    is_int(run_ranks(2, many, 0), 0, "5000 buckets where as many were asked for; the last one sums");
    is_int(run_ranks(2, many, 1), 0, "  one more is refused, with their number");
    is_int(run_ranks(2, sizes, 0), 0,
           "a configuration of size 0, or of a later version, is refused; an earlier one is read as far as "
           "it goes");
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

int main(void)
{
#ifdef __SANITIZE_THREAD__
    skip_all("a thread sanitizer sees one process at a time and takes the others' work for races; "
             "comm_threads is for it");
#endif
    snprintf(job, sizeof job, "kolo.test-shm.%d", (int)getpid());
    outcomes =
        mmap(NULL, WORLD_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcomes == MAP_FAILED) skip_all("no shared memory");
    check_sums();
    is_int(run_ranks(2, overlap, 0), 0,
           "start returns at once, the reduction runs beside the caller, wait finds it done");
    check_missing();
    check_setup();
    check_taken();
    check_left();
    return done_testing();
}
