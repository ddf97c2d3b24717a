/* Threads that stand for ranks: first on plain memory that all see at one address, so that a thread sanitizer
 * judges the protocol between ranks; then whole communicators, several in one process. */
#include <pthread.h>

#include "comm/buckets/progress.h"
#include "comm/core/schedule.h"
#include "comm_world.h"
#include "tap.h"

enum { RANKS = 4, BUCKETS = 3, ROUNDS = 40, COUNT = 60000 };

static comm_control *control[RANKS];
static char *arena[RANKS];
static int64_t wrong[WORLD_MAX];
static int ranks_now;
static char job[64];

static int parallel(int n, void *(*body)(void *))
{
    pthread_t thread[WORLD_MAX];
    int64_t bad = 0;
    ranks_now = n;
    for (intptr_t r = 0; r < n; r++) pthread_create(&thread[r], NULL, body, (void *)r);
    for (int r = 0; r < n; r++) pthread_join(thread[r], NULL);
    for (int r = 0; r < n; r++) bad += wrong[r] < 0 ? 1000000 : wrong[r];
    return (int)bad;
}

/* ---- one node on plain memory -------------------------------------------------------------------------- */

static const int64_t bucket_count[BUCKETS] = {40000, 17, 19983};

static int64_t round_of_buckets(comm_engine *e, comm_bucket *bucket, const world *w, uint64_t round)
{
    comm_node *node = e->node;
    float *own = (float *)(void *)arena[node->me];
    int64_t bad = 0, at = 0;
    for (int i = 0; i < COUNT; i++) own[i] = (float)((i + node->me * 3 + (int)round) % 17);
    for (int b = 0; b < BUCKETS; b++) {
        comm_engine_push(e, b, round);
        if (comm_node_arrive(node, &bucket[b], round))
            for (int l = 0; l < node->ranks; l++) comm_node_ring(node, l);
    }
    for (int b = BUCKETS - 1; b >= 0; b--) bad += comm_node_wait(node, &bucket[b], round) < 0;
    for (int i = 0; i < COUNT; i++) {
        float want = 0;
        for (int r = 0; r < w->launch.size; r++) want += (float)((i + r * 3 + (int)round) % 17);
        bad += own[i] != want;
        at++;
    }
    return bad + (at != COUNT);
}

static void *rank_on_plain_memory(void *of)
{
    int me = (int)(intptr_t)of, local[RANKS] = {0, 1, 2, 3};
    world w;
    world_fill(&w, me, ranks_now, NULL, "threads");
    comm_members all = {0, ranks_now};
    comm_group group = {0};
    group.node = (comm_node){.launch = &w.launch,
                             .world = &group.node,
                             .me = me,
                             .ranks = ranks_now,
                             .nodes = 1,
                             .rails = ranks_now,
                             .rank_of = local,
                             .control = control,
                             .arena = arena,
                             .tree = ranks_now == 3,
                             .fragments = 1,
                             .fragment = &all,
                             .spin = me % 2 ? 50 : 0,
                             .timeout = 30};
    comm_bucket bucket[BUCKETS];
    comm_node *node = &group.node;
    comm_engine engine = {.node = node, .bucket = bucket};
    size_t offset = 0;
    memset(bucket, 0, sizeof bucket);
    for (int b = 0; b < BUCKETS; offset += (size_t)bucket_count[b++] * 4) {
        bucket[b].index = bucket[b].number = b;
        bucket[b].group = &group;
        bucket[b].offset = offset;
        bucket[b].count = bucket_count[b];
        bucket[b].type = KOLO_F32;
        bucket[b].slices = comm_bucket_slices(bucket_count[b], ranks_now);
    }
    wrong[me] = comm_engine_start(&engine, 2 * COMM_BUCKETS) < 0;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        wrong[me] += round_of_buckets(&engine, bucket, &w, round);
        if (round % 8 == 0) wrong[me] += comm_node_meet(node, (uint32_t)round / 8, COMM_BARRIER) < 0;
    }
    bool busy = false;
    comm_engine_stop(&engine);
    comm_engine_free(&engine, &busy);
    return NULL;
}

static void check_plain_memory(int n)
{
    for (int r = 0; r < n; r++) {
        control[r] = aligned_alloc(64, sizeof *control[r]);
        memset(control[r], 0, sizeof *control[r]);
        atomic_store(&control[r]->lagging, -1);
        arena[r] = aligned_alloc(64, (size_t)COUNT * 4);
    }
    is_int(parallel(n, rank_on_plain_memory), 0,
           "%d threads, callers and progress threads, %d rounds of %d buckets", n, ROUNDS, BUCKETS);
    for (int r = 0; r < n; r++) {
        free(control[r]);
        free(arena[r]);
    }
}

/* ---- whole communicators ------------------------------------------------------------------------------- */

static void *rank_with_communicator(void *of)
{
    int me = (int)(intptr_t)of;
    world w;
    world_fill(&w, me, ranks_now, NULL, job);
    int64_t bad = world_buckets(&w, 2, false, false, NULL, 2), more = bad < 0 ? 0 : world_small(&w, true);
    if (bad < 0 || more < 0) fprintf(stderr, "# rank %d: %s\n", me, kolo_error_text());
    wrong[me] = bad < 0 ? bad : more < 0 ? more : bad + more;
    return NULL;
}

int main(void)
{
    snprintf(job, sizeof job, "test-threads.%d", (int)getpid());
    for (int n = 2; n <= RANKS; n++) check_plain_memory(n);
    is_int(parallel(2, rank_with_communicator), 0, "two communicators in one process");
    is_int(parallel(3, rank_with_communicator), 0, "three communicators in one process");
    return done_testing();
}
