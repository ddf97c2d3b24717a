/* Ranks of a real launch that pass messages around until one of them dies or stops: comm_router_drill
 * TRANSPORT killed|stopped|well [MIB]. With the default timeouts.
 * Every survivor prints one line, "rank R on NODE after SECONDS s: TEXT", and ends with 69; "well": "rank R
 * ok". MIB: one message of so many MiB as well, the least that more than an int counts being 2049. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/core/transport/router.h"

enum { VICTIM = 1, STEP = 20, STEPS = 200 };

static kolo_launch launch;
static comm_router *router;

static int await(void *lane, int64_t serial)
{
    for (;;) {
        int rc = comm_routed.done(lane, serial);
        if (rc != 0) return rc;
        comm_router_rest(router, 1);
    }
}

static int step(void *lane, int64_t number)
{
    enum { COUNT = 20000 };
    static int64_t mine[COUNT], got[COUNT];
    int next = (launch.rank + 1) % launch.size, last = (launch.rank + launch.size - 1) % launch.size;
    for (int i = 0; i < COUNT; i++) mine[i] = number * 1000 + launch.rank + i;
    comm_router_lane_reset(lane);
    KOLO_TRY(comm_routed.post(lane, false, last, 4, got, COUNT * sizeof *got));
    KOLO_TRY(comm_routed.post(lane, true, next, 4, mine, COUNT * sizeof *mine));
    KOLO_TRY(await(lane, 1));
    for (int i = 0; i < COUNT; i++)
        if (got[i] != number * 1000 + last + i)
            return kolo_fail(KOLO_EINTERNAL, "message %lld came wrong", (long long)number);
    return 0;
}

/* From the last rank to the first, which lie on different nodes. */
static int large(void *lane, int64_t mib)
{
    int64_t bytes = mib << 20, bad = 0;
    bool sends = launch.rank == launch.size - 1;
    if (!sends && launch.rank != 0) return 0;
    unsigned char *data = calloc(1, (size_t)bytes + 3);
    if (!data) return kolo_fail(KOLO_ECONFIG, "no %lld MiB", (long long)mib);
    for (int64_t i = 0; sends && i < bytes + 3; i += 4093) data[i] = (unsigned char)(i >> 12 | 1);
    comm_router_lane_reset(lane);
    KOLO_TRY(comm_routed.post(lane, sends, sends ? 0 : launch.size - 1, 5, data, (size_t)bytes + 3));
    KOLO_TRY(await(lane, 0));
    for (int64_t i = 0; i < bytes + 3; i += 4093) bad += data[i] != (unsigned char)(i >> 12 | 1);
    free(data);
    return bad ? kolo_fail(KOLO_EINTERNAL, "%lld bytes of the large message came wrong", (long long)bad) : 0;
}

int main(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "well";
    comm_router_config config = {.between = argc > 1 ? argv[1] : "auto", .timeout = 0};
    void *lane = NULL;
    int rc = kolo_launch_start(&launch, "auto", NULL);
    if (rc == 0) rc = comm_router_open(&router, &launch, &config);
    if (rc == 0) rc = comm_router_lane_make(router, 2, &lane);
    if (rc == 0 && argc > 3) rc = large(lane, atoll(argv[3]));
    double begin = kolo_time();
    for (int64_t i = 0; i < STEPS && rc == 0; i++) {
        comm_router_report(router, "step", (uint64_t)i);
        if (i == STEP && launch.rank == VICTIM && strcmp(how, "well") != 0) {
            for (double end = kolo_time() + 0.5; kolo_time() < end; usleep(20000)) comm_router_status(router);
            if (strcmp(how, "killed") != 0 && fork() == 0) { /* the launcher waits for it */
                usleep(10500000);
                kill(getppid(), SIGKILL);
                _exit(0);
            }
            raise(strcmp(how, "killed") == 0 ? SIGKILL : SIGSTOP);
        }
        rc = step(lane, i);
    }
    if (rc < 0) {
        printf("rank %d on %s after %.2f s: %s\n", launch.rank, launch.host, kolo_time() - begin,
               kolo_error_text());
        fflush(stdout);
        comm_router_close(&router, false);
        usleep(500000); /* whoever ends first is the one that the launcher ends the others for */
        _exit(69);
    }
    bool busy = false;
    comm_router_lane_free(&lane, &busy);
    comm_router_close(&router, true);
    printf("rank %d ok\n", launch.rank);
    kolo_launch_finish(&launch);
    return 0;
}
