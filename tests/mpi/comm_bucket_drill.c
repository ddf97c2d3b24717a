/* Ranks of a real launch that sum buckets, step after step, until one of them dies, stops, or computes for
 * long: comm_bucket_drill killed|stopped|slow|early VICTIM. early: it stops before its comm is set up; the
 * launch says it. With the default timeouts. Every survivor prints one line, "rank R on NODE
 * after SECONDS s: TEXT", SECONDS since the victim's last sign of life, and ends with 69; "slow" (for longer
 * than the heartbeat timeout): "rank R ok". */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"

enum { STEP = 20, STEPS = 40, BUCKETS = 3, COUNT = 50000 };
static const double LONG = 11, STOPPED = 11; /* seconds */

static kolo_launch launch;
static kolo_comm *comm;

static void misbehave(const char *how)
{
    const bool dies = strcmp(how, "killed") == 0;
    if (strcmp(how, "slow") == 0) {
        volatile double x = 1;
        for (double end = kolo_time() + LONG; kolo_time() < end;) x = x * 1.0000001 + 1e-9;
        return;
    }
    if (!dies && fork() == 0) { /* the launcher waits for it */
        usleep((useconds_t)(1e6 * STOPPED));
        kill(getppid(), SIGKILL);
        _exit(0);
    }
    raise(dies ? SIGKILL : SIGSTOP);
}

static void end_stuck(kolo_launch *stuck, const char *text)
{
    printf("rank %d on %s: %s\n", stuck->rank, stuck->host, text);
    fflush(stdout);
    kolo_launch_abort(stuck, 69);
}

static int step(int64_t number)
{
    float *arena = kolo_comm_arena(comm);
    const double want =
        (double)launch.size * (double)(launch.size - 1) / 2 + (double)launch.size * (double)number;
    for (int i = 0; i < BUCKETS * COUNT; i++) arena[i] = (float)(launch.rank + number);
    for (int b = BUCKETS - 1; b >= 0; b--) {
        kolo_comm_publish(comm, number, 10 + b);
        KOLO_TRY(kolo_comm_start(comm, b));
    }
    for (int b = BUCKETS - 1; b >= 0; b--) KOLO_TRY(kolo_comm_wait(comm, b));
    for (int i = 0; i < BUCKETS * COUNT; i++)
        if ((double)arena[i] != want)
            return kolo_fail(KOLO_EINTERNAL, "step %lld: a sum is wrong", (long long)number);
    kolo_comm_publish(comm, number, -1);
    return 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "slow";
    const int victim = argc > 2 ? atoi(argv[2]) : 1;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = (size_t)BUCKETS * COUNT * sizeof(float), .spin = -1};
    const bool early = strcmp(how, "early") == 0;
    const kolo_launch_limits limits = {.start = 30, .later = 2, .end = end_stuck};
    int rc = kolo_launch_start(&launch, "auto", early ? &limits : NULL);
    if (rc == 0 && early && launch.rank == victim) misbehave(how);
    if (rc == 0) rc = kolo_comm_create(&comm, &launch, &config);
    for (int b = 0; b < BUCKETS && rc == 0; b++)
        rc = kolo_comm_bucket(comm, (size_t)b * COUNT * sizeof(float), COUNT);
    if (rc == 0) rc = kolo_comm_commit(comm);
    double begin = kolo_time();
    for (int64_t i = 0; i < STEPS && rc == 0; i++) {
        if (i == STEP) usleep(1500000); /* as if it computed: the others hear where it stands */
        if (i == STEP) begin = kolo_time();
        if (i == STEP && launch.rank == victim && !early) misbehave(how);
        rc = step(i);
    }
    if (rc == 0) rc = kolo_comm_barrier(comm);
    if (rc < 0) {
        printf("rank %d on %s after %.2f s: %s\n", launch.rank, launch.host, kolo_time() - begin,
               kolo_error_text());
        fflush(stdout);
        kolo_comm_destroy(&comm);
        usleep(1000000); /* whoever ends first is the one that the launcher ends the others for */
        _exit(69);
    }
    kolo_comm_destroy(&comm);
    printf("rank %d ok\n", launch.rank);
    kolo_launch_finish(&launch);
    return 0;
}
