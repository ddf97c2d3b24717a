/* A /dev/shm that runs full: a group that cannot be made there is an error on all ranks, which says where,
 * how much and what helps, and the world goes on; messages and sums that find no memory for their rings and
 * staging blocks are slow, and right. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 3 };

/* Of this process; in the C library's place. room: calls that still find some. */
static bool full;
static int room;
int posix_fallocate(int fd, off_t offset, off_t bytes)
{
    if (full && room-- <= 0) return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, offset, bytes) < 0 ? errno : 0;
}

static int start(rig_rank *r, kolo_world **whole)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20};
    return lib_world_start(whole, &r->w.launch, &config, rig_exchange, r);
}

/* 0: the sum over the group is right. */
static int64_t sum(kolo_group *g, int rank, int64_t count)
{
    static int32_t x[1 << 20];
    int64_t wrong = 0;
    int want = 0;
    for (int m = 0; m < g->size; m++) want += g->rank_of[m] + 1;
    for (int64_t i = 0; i < count; i++) x[i] = (rank + 1) * (int32_t)(i % 1000 + 1);
    if (kolo_allreduce(g, NULL, x, count, KOLO_I32, KOLO_SUM) < 0) return -1;
    for (int64_t i = 0; i < count; i++) wrong += x[i] != want * (int32_t)(i % 1000 + 1);
    return wrong;
}

/* 0: every member brings what every other finds. */
static int64_t exchange(kolo_group *g, int rank)
{
    enum { EACH = 5000 };
    static int32_t in[RANKS * EACH], out[RANKS * EACH];
    int64_t each[RANKS] = {EACH, EACH, EACH}, wrong = 0;
    for (int i = 0; i < RANKS * EACH; i++) in[i] = rank * 1000000 + i;
    if (kolo_alltoall(g, in, each, out, each, KOLO_I32) < 0) return -1;
    for (int i = 0; i < RANKS * EACH; i++) wrong += out[i] != i / EACH * 1000000 + rank * EACH + i % EACH;
    return wrong;
}

/* `argument`: the rank that finds no memory; RANKS: none of them does. */
static int64_t group_refused(rig_rank *r, int argument)
{
    const int pair[2] = {0, 1};
    kolo_world *whole = NULL;
    kolo_group *g = NULL;
    if (start(r, &whole) < 0) return -1;
    kolo_group *all = kolo_world_group(whole);
    full = r->rank == argument || argument == RANKS;
    int rc = kolo_group_create(&g, whole, pair, 2);
    const char *text = kolo_error_text();
    int64_t bad = (rc != KOLO_EINPUT) + 10 * (g != NULL) +
                  100 * !(strstr(text, "host n0") && strstr(text, " bytes ") && strstr(text, "for rank 0") &&
                          strstr(text, "enlarge it"));
    bad += 1000 * (sum(all, r->rank, 10) != 0);
    full = false;
    for (int i = 0; i < 2 && bad == 0; i++) { /* its number is free, and so is what the members made of it */
        if (kolo_group_create(&g, whole, pair, 2) < 0) return -2;
        bad += 10000 * (r->rank < 2 && sum(g, r->rank, 100) != 0) + 100000 * (kolo_group_free(&g) < 0);
    }
    kolo_world_close(&whole);
    return bad;
}

/* No ring and no staging block is to be had from the beginning. */
static int64_t slow(rig_rank *r, int argument)
{
    const char *const name[2] = {"a", "b"};
    kolo_world *whole = NULL;
    void *shared = NULL;
    if (start(r, &whole) < 0) return -1;
    kolo_group *all = kolo_world_group(whole);
    if (r->rank == 1 && kolo_world_alloc(whole, 800000, &shared) < 0) return -2;
    full = r->rank == argument || argument == RANKS;
    int64_t bad = exchange(all, r->rank) != 0;
    for (int i = 0; i < 3; i++) {
        bad += 10 * (sum(all, r->rank, 200000) != 0);
        if (shared) memset(shared, 0, 800000);
        int32_t *x = shared ? shared : calloc(200000, sizeof *x); /* one brings shared memory */
        x[199999] = r->rank;
        if (kolo_allreduce(all, NULL, x, 200000, KOLO_I32, KOLO_SUM) < 0) return -3;
        bad += 100 * (x[199999] != RANKS * (RANKS - 1) / 2 || x[0]);
        if (!shared) free(x);
    }
    for (int i = 0; i < 2; i++) { /* in another order on every rank */
        float x = 1;
        kolo_request request = {
            .what = KOLO_ALLREDUCE, .name = name[(i + r->rank) & 1], .out = &x, .type = KOLO_F32};
        kolo_handle h[2];
        if (kolo_submit(all, &request, &h[0]) < 0) return -4;
        float y = 1;
        request.name = name[(i + r->rank + 1) & 1];
        request.out = &y;
        if (kolo_submit(all, &request, &h[1]) < 0 || kolo_wait(whole, h[0]) < 0 || kolo_wait(whole, h[1]) < 0)
            return -5;
        bad += 1000 * (x != RANKS || y != RANKS);
    }
    full = false;
    bad += 10000 * (sum(all, r->rank, 200000) != 0);
    kolo_world_close(&whole);
    return bad;
}

/* The segments have room, the sets of the first group have not: no world begins, and all know why. */
static int64_t world_refused(rig_rank *r, int argument)
{
    kolo_world *whole = NULL;
    full = r->rank == argument;
    room = 2; /* those of the segment */
    int rc = start(r, &whole);
    const char *text = kolo_error_text();
    return (rc != KOLO_ELAUNCH) + 10 * (whole != NULL) +
           100 * !(strstr(text, "host n0") && strstr(text, " bytes ") && strstr(text, "enlarge it"));
}

static void try(const char *what, const int *node_of, rig_body body, int argument)
{
    rig_party p = rig_begin("full", RANKS, node_of, body, argument, 60);
    rig_end(&p, -1);
    bool good = true;
    for (int k = 0; k < RANKS; k++) good &= rig_outcomes[k].value == 0 && !rig_outcomes[k].exit;
    ok(good, "%s", what);
    for (int k = 0; k < RANKS && !good; k++)
        printf("# rank %d: %lld, exit %d, %s\n", k, (long long)rig_outcomes[k].value, rig_outcomes[k].exit,
               rig_outcomes[k].text);
}

int main(void)
{
    static const int two[] = {0, 0, 1};
    try("a group that its first member has no memory for: an error on all, and the world goes on", NULL,
        group_refused, 0);
    try("and where nobody has memory", NULL, group_refused, RANKS);
    try("and on one of two nodes", two, group_refused, 0);
    try("a world: no rank has one, and all know why", NULL, world_refused, 0);
    try("messages and large sums of one rank without memory", NULL, slow, 2);
    try("and of ranks of which one brought shared memory", NULL, slow, 1);
    try("and of all", NULL, slow, RANKS);
    try("and on two nodes", two, slow, RANKS);
    ok(!rig_leftovers("full"), "nothing is left in /dev/shm");
    return done_testing();
}
