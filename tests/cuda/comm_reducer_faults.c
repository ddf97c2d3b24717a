/* Sums in a GPU's memory where a rank dies, stops, stands still or fails, while it opens and within a step:
 * the others learn of it in time, named, and nothing is left. */
#include "cuda_ranks.h"

static int64_t never_comes(rank *r, int argument)
{
    (void)argument;
    if (r->w.launch.rank == 1) return 0;
    return rank_create(r);
}

/* Stops this process; a child of it ends it in the end. */
static void stop(void)
{
    if (fork() == 0) {
        usleep(6000000);
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    raise(SIGSTOP);
}

enum { KILLED, STOPPED, LATE };
/* Rank 1 does its part of the first step, and none of the second. */
static int64_t missing(rank *r, int how)
{
    KOLO_TRY(rank_open(r));
    KOLO_TRY(fill(r, 0, true));
    KOLO_TRY(enqueue(r));
    KOLO_TRY(rank_wait(r));
    kolo_comm_publish(r->comm, 17, 88);
    KOLO_TRY(kolo_comm_barrier(r->comm));
    if (r->w.launch.rank == 1) {
        if (how == KILLED) kill(getpid(), SIGKILL);
        if (how == STOPPED) stop();
        for (int i = 0; i < 90 && outcomes[0].value == -1000; i++) usleep(100000);
        return 0;
    }
    kolo_comm_publish(r->comm, 18, 5);
    int rc = enqueue(r);
    if (rc == 0) rc = rank_wait(r);
    if (rc == 0) return 0;
    char text[1024];
    snprintf(text, sizeof text, "%s", kolo_error_text());
    bool again = kolo_comm_status(r->comm) < 0 && kolo_comm_start(r->comm, 0) < 0; /* stays broken */
    kolo_fail(rc, "%s", text);
    return again ? rc : 0;
}

static void check_late(const char *reducer)
{
    const setting set = {.reducer = reducer, .timeout = 3};
    run_ranks(2, &set, missing, LATE);
    ok(outcomes[0].value == KOLO_ELAUNCH && strstr(outcomes[0].text, "rank 1") &&
           strstr(outcomes[0].text, "action 88 of step number 17") && outcomes[0].seconds < 8.5,
       "%s: a rank stands still; after the timeout it is named (%.1f s): %s", reducer, outcomes[0].seconds,
       outcomes[0].text);
}

static void check_gone(const char *reducer, int how)
{
    const setting set = {.reducer = reducer, .timeout = 30, .heartbeat_timeout = how == STOPPED ? 2 : 0};
    run_ranks(3, &set, missing, how);
    int named = 0;
    for (int i = 0; i < 3; i += 2)
        named += outcomes[i].value == KOLO_ELAUNCH && strstr(outcomes[i].text, "rank 1 on host n0") &&
                 strstr(outcomes[i].text, how == STOPPED ? "gave no sign of life for " : "died") &&
                 strstr(outcomes[i].text, "action 88 of step number 17") && outcomes[i].seconds < 15;
    is_int(named, 2, "%s: a rank is %s; the others end soon and name it, its step and action", reducer,
           how == STOPPED ? "stopped" : "killed");
    if (named < 2) say_outcomes(3);
}

/* A call that fails on rank 1 only, while the communicator is made: nobody is left waiting. */
static void check_open_failure(const char *reducer, int odd, const char *call)
{
    setting set = {.reducer = reducer, .timeout = 20, .variable = "STANDIN_FAIL", .value = call, .odd = odd};
    char name[64], who[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(call, ":"), call);
    snprintf(who, sizeof who, "rank %d on host n0", odd);
    run_ranks(2, &set, one_by_one, true);
    const outcome *one = &outcomes[odd], *other = &outcomes[1 - odd];
    int told = ok(one->value < 0 && other->value < 0 && strstr(other->text, who) && strstr(one->text, name) &&
                      other->seconds < 10,
                  "%s: %s fails on one rank: both end at once, both say so", reducer, name);
    if (!told) say_outcomes(2);
}

/* Rank 1 dies while NCCL joins the ranks. */
static int64_t dies_joining(rank *r, int argument)
{
    (void)argument;
    if (r->w.launch.rank == 1) alarm(1);
    return rank_create(r);
}

/* Three steps, which something interrupts. */
static int64_t steps(rank *r, int argument)
{
    int rc = rank_open(r);
    (void)argument;
    for (int round = 0; rc == 0 && round < ROUNDS; round++) {
        kolo_comm_publish(r->comm, round, 4);
        rc = fill(r, round, true);
        if (rc == 0) rc = enqueue(r);
        if (rc == 0) rc = rank_wait(r);
    }
    return rc;
}

/* Faults that NCCL knows more or less of: what rank `who` says of them, and within how many seconds. */
static void check_nccl_fault(const char *fault, work what, int who, double timeout, double within,
                             const char *says, const char *and)
{
    setting set = {.reducer = "nccl", .timeout = timeout};
    setenv("STANDIN_NCCL", fault, 1);
    run_ranks(2, &set, what, 0);
    unsetenv("STANDIN_NCCL");
    const outcome *o = &outcomes[who];
    ok(o->value == KOLO_ELAUNCH && strstr(o->text, says) && strstr(o->text, and) && o->seconds < within,
       "nccl, %s: rank %d says (%.1f s): %s", fault, who, o->seconds, o->text);
}

static void never_coming(void)
{
    setting set = {.timeout = 3};
    run_ranks(2, &set, never_comes, 0);
    ok(outcomes[0].value == KOLO_ELAUNCH && strstr(outcomes[0].text, "rank 1 on host n0") &&
           outcomes[0].seconds < 10,
       "a rank that does not come is named by the deadline (%.1f s): %s", outcomes[0].seconds,
       outcomes[0].text);
}

static void killed_staged(void) { check_gone("staged", KILLED); }
static void killed_nccl(void) { check_gone("nccl", KILLED); }
static void stopped_staged(void) { check_gone("staged", STOPPED); }
static void stopped_nccl(void) { check_gone("nccl", STOPPED); }
static void late_staged(void) { check_late("staged"); }
static void late_nccl(void) { check_late("nccl"); }
static void opening_staged(void)
{
    check_open_failure("staged", 1, "cudaMalloc:1");
    check_open_failure("staged", 1, "cudaHostRegister:1");
}
static void opening_nccl(void)
{
    check_open_failure("nccl", 0, "ncclGetUniqueId:1");
    check_open_failure("nccl", 1, "ncclCommInitRankConfig:1");
    check_open_failure("nccl", 1, "ncclAllReduce:1");
}
static void dies_in_nccl(void)
{
    check_nccl_fault("absent:1", dies_joining, 0, 30, 15, "rank 1 on host n0", "died");
    check_nccl_fault("die:1:9", steps, 0, 30, 15, "rank 1 on host n0", "action 4 of step number 0");
}
static void absent_in_nccl(void)
{
    check_nccl_fault("absent:1", only_create, 0, 3, 12, "ncclCommInitRankConfig did not end within 3 s",
                     "NCCL_SOCKET_IFNAME");
}
static void fails_in_nccl(void)
{
    check_nccl_fault("error:1:9", steps, 0, 30, 15, "rank 1 on host n0", "unhandled system error");
    /* rank 1 itself is told by the call that fails or by the watch, whichever comes first: only
     * the latter names a rank */
    check_nccl_fault("error:1:9", steps, 1, 30, 15, "ncclAllReduce", "unhandled system error");
}
static void hangs_in_nccl(void)
{
    check_nccl_fault("hang:1:9", steps, 1, 3, 12, "no progress", "action 4 of step number 0");
}

static void (*const drills[])(void) = {
    never_coming, killed_staged,  late_staged,   opening_staged, killed_nccl,    late_nccl,   opening_nccl,
    dies_in_nccl, absent_in_nccl, fails_in_nccl, hangs_in_nccl,  stopped_staged, stopped_nccl};
enum { DRILLS = sizeof drills / sizeof *drills };

/* The drills mostly wait, so they go side by side: each in a process of its own that begins ranks of its own;
 * its lines are told again in order. */
static void check_failures(void)
{
    FILE *lines[DRILLS];
    pid_t child[DRILLS];
    int64_t *left =
        mmap(NULL, DRILLS * sizeof *left, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    for (int d = 0; d < DRILLS; d++) {
        lines[d] = tmpfile();
        if ((child[d] = fork()) != 0) continue;
        dup2(fileno(lines[d]), STDOUT_FILENO);
        tap_count = tap_failed = 0;
        ranks_that_left = 0;
        outcomes = mmap(NULL, WORLD_MAX * sizeof *outcomes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        snprintf(job + strlen(job), sizeof job - strlen(job), ".%d", d);
        drills[d]();
        left[d] = ranks_that_left;
        fflush(stdout);
        _exit(tap_failed != 0);
    }
    for (int d = 0; d < DRILLS; d++) {
        char line[4096];
        int status = 0, number, text;
        waitpid(child[d], &status, 0);
        rewind(lines[d]);
        while (fgets(line, sizeof line, lines[d])) {
            line[strcspn(line, "\n")] = 0;
            bool good = sscanf(line, "ok %d - %n", &number, &text) == 1;
            if (good || sscanf(line, "not ok %d - %n", &number, &text) == 1) ok(good, "%s", line + text);
            else puts(line);
        }
        if (!WIFEXITED(status)) ok(false, "drill %d came to its end", d);
        ranks_that_left += left[d];
        fclose(lines[d]);
    }
    munmap(left, DRILLS * sizeof *left);
}

int main(void)
{
    if (!ranks_begin("reducer-faults")) skip_all("no shared memory");
    if (!standin) skip_all("a real GPU does not fail when it is asked to");
#ifdef __SANITIZE_THREAD__
    check_late("nccl");
    return done_testing();
#endif
    check_failures();
    return ranks_end();
}
