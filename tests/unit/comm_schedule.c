/* Network schedules for 1 to 33 members, run in this process over a transport that
 * delivers as late as it may. */
#include "comm/algorithm/build.h"
#include "comm/buckets/group.h"
#include "comm/algorithm/algorithm.h"

#include "base/philox.h"
#include "comm/core/kernel.h"
#include "comm/core/transport.h"
#include "tap.h"

enum { MAX_MEMBERS = 33, MAX_POSTS = 4096 };

typedef struct message {
    int peer, tag;
    bool send, complete;
    void *data;
    int64_t bytes;
} message;
typedef struct box {
    int me;
    int64_t posted;
    message m[MAX_POSTS];
} box;
static box boxes[MAX_MEMBERS];
static int mismatches;

static int loop_post(void *of, bool sending, int rank, int tag, void *data, size_t bytes)
{
    box *b = of;
    if (b->posted == MAX_POSTS) return -1;
    b->m[b->posted++] = (message){rank, tag, sending, false, data, (int64_t)bytes};
    return 0;
}
/* A message moves only when its receiver asks for it, so a sender that touches the data too early is
 * caught. */
static void deliver(box *to, message *in)
{
    box *from = &boxes[in->peer];
    for (int64_t i = 0; i < from->posted; i++) {
        message *out = &from->m[i];
        if (!out->send || out->complete || out->peer != to->me || out->tag != in->tag) continue;
        mismatches += out->bytes != in->bytes;
        memcpy(in->data, out->data, (size_t)(out->bytes < in->bytes ? out->bytes : in->bytes));
        in->complete = out->complete = true;
        return;
    }
}
static int loop_done(void *of, int64_t serial)
{
    box *b = of;
    for (int64_t i = 0; i <= serial; i++) {
        if (!b->m[i].send && !b->m[i].complete) deliver(b, &b->m[i]);
        if (!b->m[i].complete) return 0;
    }
    return 1;
}
static const comm_transport loop = {.post = loop_post, .done = loop_done};

static int identity[MAX_MEMBERS];

/* Runs all members in turn until all are done; false if none can move: a deadlock. */
static bool run_all(comm_schedule *schedule, char *(*buffer)[COMM_PART + 8], int members)
{
    comm_run run[MAX_MEMBERS];
    bool done[MAX_MEMBERS] = {false};
    int left = members;
    for (int v = 0; v < members; v++) {
        boxes[v].me = v;
        boxes[v].posted = 0;
        run[v] = (comm_run){.schedule = &schedule[v],
                            .transport = &loop,
                            .lane = &boxes[v],
                            .rank_of = identity,
                            .buffer = buffer[v],
                            .width = 4,
                            .combine = comm_combine_of(KOLO_F32, KOLO_SUM),
                            .tag = 5};
    }
    for (int rounds = 0; left && rounds < 100000; rounds++)
        for (int v = members - 1; v >= 0; v--) {
            if (done[v]) continue;
            int rc = comm_run_poll(&run[v]);
            if (rc < 0) return false;
            if (rc == 1) {
                done[v] = true;
                left--;
            }
        }
    for (int v = 0; v < members; v++)
        for (int64_t i = 0; i < boxes[v].posted; i++) mismatches += !boxes[v].m[i].complete;
    return left == 0;
}

static float value(int rank, int64_t i, bool exact)
{
    kolo_philox4 r = kolo_philox(11, (uint64_t)rank, (uint64_t)i);
    if (exact) return (float)(int)(r.v[0] % 201) - 100;
    return (kolo_uniform(r.v[0]) - 0.5f) * (float)(1 << (r.v[1] % 16));
}

static float sum(int first, int n, int64_t i, bool exact)
{
    if (n == 1) return value(first, i, exact);
    int half = 1;
    while (half * 2 < n) half *= 2;
    return sum(first, half, i, exact) + sum(first + half, n - half, i, exact);
}

/* By name; over fragments, each member being one: "fragments". */
static int make(comm_schedule *s, const char *algorithm, int me, int members, int64_t count,
                const comm_tree *tree)
{
    const comm_problem p = {
        .what = KOLO_ALLREDUCE, .me = me, .members = members, .in_place = true, .count = count, .width = 4};
    return tree ? comm_schedule_direct(s, me, members, count, tree)
                : comm_algorithm_named(KOLO_ALLREDUCE, algorithm)->make(s, &p);
}

/* Elements that differ from the tree's bits, or -1 for a deadlock or an overrun. */
static int64_t allreduce(const char *algorithm, int members, int64_t count, bool exact)
{
    comm_schedule schedule[MAX_MEMBERS] = {{0}};
    char *buffer[MAX_MEMBERS][COMM_PART + 8];
    comm_tree tree;
    int64_t bad = 0;
    int apart[MAX_MEMBERS] = {0};
    for (int v = 0; v < members; v++) apart[v] = v;
    comm_tree_ranks(&tree, members, apart, members);
    for (int v = 0; v < members; v++) {
        if (make(&schedule[v], algorithm, v, members, count, strcmp(algorithm, "fragments") ? NULL : &tree) <
            0)
            return -1;
        float *own = malloc((size_t)(count + 1) * 4);
        buffer[v][COMM_OWN] = buffer[v][COMM_PART] = (char *)own;
        buffer[v][COMM_SCRATCH] = malloc((size_t)schedule[v].scratch * 4 + 4);
        for (int64_t i = 0; i < count; i++) own[i] = value(v, i, exact);
        own[count] = 12345;
    }
    if (!run_all(schedule, buffer, members)) bad = -1;
    for (int64_t i = 0; bad >= 0 && i < count; i++) {
        float want = sum(0, members, i, exact);
        for (int v = 0; v < members; v++) bad += memcmp(buffer[v][COMM_OWN] + 4 * i, &want, 4) != 0;
    }
    for (int v = 0; v < members; v++) {
        if (bad >= 0) bad += ((float *)(void *)buffer[v][COMM_OWN])[count] != 12345;
        free(buffer[v][COMM_OWN]);
        free(buffer[v][COMM_SCRATCH]);
        comm_schedule_free(&schedule[v]);
    }
    comm_tree_free(&tree);
    return bad;
}

static void check_allreduce(void)
{
    const int64_t counts[] = {1, 2, 3, 16, 31, 1023, 2049};
    static const char *const algorithms[] = {"recursive_doubling", "rabenseifner", "segmented_ring", "direct",
                                             "fragments"};
    for (int a = 0; a < 5; a++) {
        const char *algorithm = algorithms[a];
        bool ring = strcmp(algorithm, "segmented_ring") == 0;
        int64_t bad = 0;
        for (int members = 1; members <= 17; members++)
            for (int c = 0; c < 7; c++) {
                int64_t wrong = allreduce(algorithm, members, counts[c], ring);
                if (wrong)
                    diag("%s, %d members, %d elements: %d wrong", algorithm, members, (int)counts[c],
                         (int)wrong);
                bad |= wrong;
            }
        for (int members = 23; members <= MAX_MEMBERS; members += 5)
            bad |= allreduce(algorithm, members, 777, ring);
        is_int(bad, 0, "%s: 1 to 17, 23, 28, 33 members, %s", algorithm,
               ring ? "exact sums" : "the bits of the tree over members");
    }
    is_int(allreduce("segmented_ring", 3, 500009, true), 0, "ring: chunks of several segments");
    is_int(mismatches, 0, "every send meets a receive of its size, none is left over");
}

static void check_steps(void)
{
    comm_schedule s = {0};
    int waits = 0;
    make(&s, "recursive_doubling", 0, 7, 10, NULL);
    for (int64_t i = 0; i < s.actions; i++) waits += s.action[i].kind == COMM_WAIT;
    is_int(waits, 3, "recursive doubling of 7 takes 3 steps");
    int64_t sent = 0;
    make(&s, "rabenseifner", 3, 8, 8000, NULL);
    for (int64_t i = 0; i < s.actions; i++) sent += s.action[i].kind == COMM_SEND ? s.action[i].count : 0;
    is_int(sent, 2 * 7000, "Rabenseifner of 8 sends 2 x 7/8 of the vector");
    comm_schedule_free(&s);
}

static void check_moves(void)
{
    int64_t bad = 0;
    for (int members = 1; members <= 9; members++)
        for (int root = 0; root < members; root++) {
            comm_schedule schedule[MAX_MEMBERS] = {{0}};
            char *buffer[MAX_MEMBERS][COMM_PART + 8];
            float data[MAX_MEMBERS][5];
            for (int v = 0; v < members; v++) {
                for (int i = 0; i < 5; i++) data[v][i] = (float)(v * 10 + i);
                buffer[v][COMM_OWN] = (char *)data[v];
                comm_make_broadcast_binomial(&schedule[v], &(comm_problem){.what = KOLO_BROADCAST,
                                                                           .me = v,
                                                                           .members = members,
                                                                           .root = root,
                                                                           .in_place = true,
                                                                           .count = 5,
                                                                           .width = 1});
            }
            bad += !run_all(schedule, buffer, members);
            for (int v = 0; v < members; v++) bad += data[v][4] != (float)(root * 10 + 4);
            for (int v = 0; v < members; v++) comm_schedule_free(&schedule[v]);
        }
    is_int(bad, 0, "broadcast from every root of 1 to 9");
    is_int(mismatches, 0, "nothing left over");
}

/* Ranks placed cyclically on 3 nodes: fragments of single ranks still give the tree over ranks. */
static void check_fragments(void)
{
    const int node_of[7] = {0, 1, 2, 0, 1, 2, 0};
    enum { COUNT = 100 };
    comm_tree tree;
    comm_schedule schedule[3] = {{0}};
    char *buffer[3][COMM_PART + 8];
    static float part[7][COUNT], own[3][COUNT];
    comm_tree_ranks(&tree, 7, node_of, 3);
    ok(!tree.plain && tree.fragments == 7 && tree.merges == 6, "cyclic placement: every rank is a fragment");
    int64_t bad = 0;
    for (int v = 0; v < 3; v++) {
        comm_schedule_direct(&schedule[v], v, 3, COUNT, &tree);
        buffer[v][COMM_SCRATCH] = malloc((size_t)schedule[v].scratch * 4 + 4);
        buffer[v][COMM_OWN] = (char *)own[v];
        for (int f = 0; f < 7; f++)
            if (tree.fragment[f].node == v) buffer[v][COMM_PART + tree.fragment[f].index] = (char *)part[f];
    }
    for (int f = 0; f < 7; f++)
        for (int i = 0; i < COUNT; i++) part[f][i] = value(f, i, false);
    bad += !run_all(schedule, buffer, 3);
    for (int v = 0; v < 3; v++) {
        for (int i = 0; i < COUNT; i++) {
            float want = sum(0, 7, i, false);
            bad += memcmp(&own[v][i], &want, 4) != 0;
        }
        free(buffer[v][COMM_SCRATCH]);
        comm_schedule_free(&schedule[v]);
    }
    is_int(bad, 0, "direct over fragments gives the bits of the tree over ranks");
    comm_tree_free(&tree);
    const int block[8] = {0, 0, 0, 0, 1, 1, 1, 1}, uneven[4] = {0, 0, 1, 2}, three[5] = {0, 0, 0, 1, 1};
    comm_tree_ranks(&tree, 8, block, 2);
    ok(tree.plain && tree.fragments == 2,
       "4 + 4 ranks in blocks: one fragment a node, any algorithm will do");
    comm_tree_free(&tree);
    comm_tree_ranks(&tree, 4, uneven, 3);
    ok(!tree.plain && tree.fragments == 3, "2 + 1 + 1: the tree over ranks is not the tree over nodes");
    comm_tree_free(&tree);
    comm_tree_ranks(&tree, 5, three, 2);
    ok(!tree.plain && tree.fragments == 4, "3 + 2 ranks: a node of three gives two fragments");
    comm_tree_free(&tree);
}

int main(void)
{
    for (int i = 0; i < MAX_MEMBERS; i++) identity[i] = i;
    check_allreduce();
    check_steps();
    check_moves();
    check_fragments();
    return done_testing();
}
