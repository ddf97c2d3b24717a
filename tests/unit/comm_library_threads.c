/* Several threads of a rank in the library at once: each with names of its own, two of them waiting for one
 * handle; sums that are right, on one node and between two. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 2, THREADS = 4, ROUNDS = 150, COUNT = 300 };

static kolo_world *whole;
static kolo_group *all;
static int me;

static kolo_request sum_of(const char *name, float *vector, void *out)
{
    return (kolo_request){.what = KOLO_ALLREDUCE,
                          .name = name,
                          .in = out ? NULL : vector,
                          .out = out,
                          .type = KOLO_F32,
                          .dims = 1,
                          .dim = {COUNT}};
}

static void *sums(void *of)
{
    int number = (int)(intptr_t)of;
    float vector[COUNT];
    char name[16];
    intptr_t bad = 0;
    for (int round = 0; round < ROUNDS; round++) {
        kolo_handle h;
        snprintf(name, sizeof name, "%d.%d", number, round % 3);
        for (int i = 0; i < COUNT; i++) vector[i] = (float)(number + round + i + me);
        kolo_request r = sum_of(name, vector, vector);
        bad += kolo_submit(all, &r, &h) < 0 || kolo_wait(whole, h) < 0;
        for (int i = 0; i < COUNT; i++) bad += vector[i] != (float)(RANKS * (number + round + i) + 1);
    }
    return (void *)bad;
}

static int64_t in_threads(void *(*body)(void *), int threads, void *argument)
{
    pthread_t thread[THREADS];
    int64_t bad = 0;
    for (int t = 0; t < threads; t++)
        pthread_create(&thread[t], NULL, body, argument ? argument : (void *)(intptr_t)t);
    for (int t = 0; t < threads; t++) {
        void *result;
        pthread_join(thread[t], &result);
        bad += (intptr_t)result;
    }
    return bad;
}

static void *wait_for(void *of)
{
    return (void *)(intptr_t)(kolo_wait(whole, *(const kolo_handle *)of) != 0);
}

static void *wait_and_look(void *of)
{
    const kolo_handle *h = of;
    kolo_output o;
    if (kolo_wait(whole, *h) < 0 || kolo_result(whole, *h, &o) < 0) return (void *)1;
    return (void *)(intptr_t)(((const float *)o.data)[COUNT - 1] != 3);
}

/* Rank 1 brings it when rank 0's threads wait already. */
static int64_t one_handle(bool library_memory)
{
    float vector[COUNT];
    kolo_handle h;
    for (int i = 0; i < COUNT; i++) vector[i] = (float)(me + 1);
    kolo_request r = sum_of("shared", vector, library_memory ? NULL : vector);
    if (me == 1) usleep(100000);
    if (kolo_submit(all, &r, &h) < 0) return 1000;
    if (me == 1 && !library_memory) return kolo_wait(whole, h) < 0;
    int64_t bad = in_threads(library_memory ? wait_and_look : wait_for, THREADS, &h);
    if (!library_memory) return bad + (vector[0] != 3) + (kolo_wait(whole, h) != KOLO_EINPUT);
    bad += kolo_test(whole, h) != 1; /* until it is released */
    kolo_release(whole, h);
    return bad + (kolo_wait(whole, h) != KOLO_EINPUT);
}

/* Released while a thread waits: it gets its answer, and the handle is gone. */
static int64_t released_early(void)
{
    float vector[COUNT] = {0};
    kolo_handle h;
    pthread_t thread;
    void *result;
    kolo_request r = sum_of("early", vector, vector);
    if (me == 1) usleep(100000);
    if (kolo_submit(all, &r, &h) < 0) return 1000;
    pthread_create(&thread, NULL, wait_for, &h);
    if (me == 0) usleep(50000);
    else kolo_wait(whole, h);
    if (me == 0) kolo_release(whole, h);
    pthread_join(thread, &result);
    return (me == 0 && result) + (kolo_wait(whole, h) != KOLO_EINPUT);
}

static int64_t one_rank(rig_rank *r, int argument)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    (void)argument;
    me = r->rank;
    if (lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r) < 0) return -1;
    all = kolo_world_group(whole);
    int64_t bad = in_threads(sums, THREADS, NULL);
    bad += 100000 * one_handle(false) + 1000000 * one_handle(true) + 10000000 * released_early();
    kolo_world_close(&whole);
    return bad;
}

static void check(const int *node_of, const char *where)
{
    rig_party p = rig_begin("several", RANKS, node_of, one_rank, 0, 60);
    is_int(rig_end(&p, -1), 0,
           "%s: %d threads reduce at once, wait for one handle, release what another waits for", where,
           THREADS);
}

int main(void)
{
    static const int two[RANKS] = {0, 1};
    check(NULL, "one node");
    check(two, "two nodes");
    is_int(rig_leftovers("several"), 0, "no segment is left behind");
    return done_testing();
}
