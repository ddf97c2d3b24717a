/* Several nodes, simulated on one machine by node maps: sums, orders, small collectives, a late remote peer.
 * mpiexec -n 2, 3, 4 or 7 comm_nodes; `more`: with other maps of 4 and 7 ranks; `late`: ranks 0 and 1 on two
 * nodes, the second does not come. */
#include "../unit/comm_world_adasum.h"
#include "comm_maps.h"

#include "base/thread.h"
#include "comm/core/transport/router.h"

static const map maps[] = {
    {2, "1+1", {0, 1}},
    {3, "1+1+1", {0, 1, 2}},
    {3, "2+1", {0, 0, 1}},
    {4, "2+2", {0, 0, 1, 1}},
    {4, "2+2 cyclic", {0, 1, 0, 1}},
    {7, "3+2+2", {0, 0, 0, 1, 1, 2, 2}},
    {7, "1 rank a node", {0, 1, 2, 3, 4, 5, 6}},
};
static const map more[] = {
    {4, "2+1+1", {0, 0, 1, 2}},
    {4, "1+1+1+1", {0, 1, 2, 3}},
    {7, "cyclic over 3", {0, 1, 2, 0, 1, 2, 0}},
};
static void check_map(const map *m)
{
    static const char *const algorithms[] = {"recursive_doubling", "rabenseifner", "direct"};
    int64_t bad = 0;
    for (int cut = 0; cut < 3; cut++) {
        int64_t wrong = world_buckets(place(m), cut, false, false, NULL, 2);
        bad = wrong < 0 ? wrong : bad + wrong;
    }
    report(bad, "the documented order for any bucketing", m->name);
    for (int a = 0; a < 3; a++)
        report(world_buckets(place(m), 1, false, false, algorithms[a], 1), algorithms[a], m->name);
    report(world_buckets(place(m), 1, false, true, "ring", 2), "ring, exact sums", m->name);
    report(world_buckets(place(m), 2, true, false, NULL, 2), "canonical has the bits of the tree over ranks",
           m->name);
    report(world_adasum(place(m), false), "Adasum within nodes, then between them", m->name);
    report(world_adasum(place(m), true), "averages within nodes, Adasum between them", m->name);
    report(world_small(place(m), false), "small collectives", m->name);
    report(world_small(place(m), true), "small collectives, canonical", m->name);
}

/* A reduction between nodes goes on while the caller computes. */
static void check_overlap(const map *m)
{
    enum { COUNT = 1 << 20 };
    kolo_comm *comm = NULL;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = (size_t)COUNT * 4, .timeout = 30, .spin = -1};
    kolo_comm_stats stats = {0};
    world *w = place(m);
    int64_t bad = 0;
    if (kolo_comm_create(&comm, &w->launch, &config) < 0 || kolo_comm_bucket(comm, 0, COUNT) < 0 ||
        kolo_comm_commit(comm) < 0) {
        report(-1, "overlap", m->name);
        return;
    }
    float *arena = kolo_comm_arena(comm);
    for (int i = 0; i < COUNT; i++) arena[i] = 1;
    bad += kolo_comm_barrier(comm) < 0 || kolo_comm_start(comm, 0) < 0;
    usleep(500000);
    bad += kolo_comm_wait(comm, 0) < 0;
    kolo_comm_get_stats(comm, &stats);
    bad += arena[COUNT - 1] != (float)size || stats.wait_seconds > 0.05;
    kolo_comm_destroy(&comm);
    report(bad, "the reduction runs beside the caller", m->name);
}

static int all_gather(void *of, const void *mine, size_t bytes, void *all)
{
    (void)of;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD) == MPI_SUCCESS
               ? 0
               : KOLO_ELAUNCH;
}

/* Rank 0 gives up a receive and uses its memory for something else; then the message comes. */
static void check_given_up(const map *m)
{
    enum { BYTES = 3000 };
    static char memory[BYTES];
    const comm_router_config config = {.between = "mpi", .timeout = 30, .exchange = all_gather};
    world *w = place(m);
    comm_router *router = NULL;
    void *lane = NULL;
    bool busy = false;
    int64_t bad =
        comm_router_open(&router, &w->launch, &config) < 0 || comm_router_lane_make(router, 2, &lane) < 0;
    if (bad) {
        report(-1, "a receive that is given up", m->name);
        return;
    }
    memset(memory, rank, BYTES);
    if (rank == 0) {
        bad += comm_routed.post(lane, false, 1, 7, memory, BYTES) < 0 || comm_routed.done(lane, 0) != 0;
        comm_router_give_up(router);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) bad += comm_routed.post(lane, true, 0, 7, memory, BYTES) < 0;
    for (int i = 0; i < 50; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(200);
    }
    for (int i = 0; i < BYTES; i++) bad += memory[i] != rank;
    comm_router_lane_free(&lane, &busy);
    bad += rank == 0 && busy;
    comm_router_close(&router, true);
    report(bad, "a receive that is given up takes no message any more", m->name);
}

static void check_maps(const map *m, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (m[i].size == size) check_map(&m[i]);
}

static void check_late(void)
{
    kolo_comm *comm = NULL;
    kolo_comm_config config = {
        .size = sizeof(kolo_comm_config), .arena_bytes = 1 << 20, .timeout = 1, .spin = -1};
    const map m = {2, "1+1", {0, 1}};
    world *w = place(&m);
    int rc = kolo_comm_create(&comm, &w->launch, &config);
    if (rc == 0) rc = kolo_comm_bucket(comm, 0, 1 << 17);
    if (rc == 0) rc = kolo_comm_commit(comm);
    if (rank == 1) usleep(5000000);
    double begin = kolo_time();
    if (rc == 0) rc = kolo_comm_start(comm, 0);
    if (rc == 0) rc = kolo_comm_wait(comm, 0);
    double seconds = kolo_time() - begin;
    is_int(rc, KOLO_ELAUNCH, "a remote peer that does not come ends the wait");
    ok(strstr(kolo_error_text(), "rank 1 on host n1") &&
           strstr(kolo_error_text(),
                  "last begun: rank 0: bucket 0, round number 1; rank 1: broadcast number "),
       "it is named: %s", kolo_error_text());
    ok(seconds > 0.9 && seconds < 3, "after the time-out (%.2f s)", seconds);
    kolo_comm_destroy(&comm);
    done_testing();
    fflush(stdout);
    usleep(300000); /* mpiexec drops what it has not passed on yet */
    MPI_Abort(MPI_COMM_WORLD, 0);
}

int main(int argc, char **argv)
{
    begin_mpi(&argc, &argv);
    if (argc > 1 && strcmp(argv[1], "late") == 0) check_late();
    check_maps(maps, sizeof maps / sizeof *maps);
    if (argc > 1 && strcmp(argv[1], "more") == 0) check_maps(more, sizeof more / sizeof *more);
    if (size == 2) check_overlap(&maps[0]);
    if (size == 2) check_given_up(&maps[0]);
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
