/* Horovod's checklist, and more, for the library half: every rank brings other numbers, all of them exact.
 * One start of mpiexec runs all of it: on one node, and with the ranks dealt over two nodes (comm_checklist
 * ROUNDS: so many rounds of the random mix, and every rank on a node of its own, too). MPI is here for the
 * tests' own sums, and between the nodes. */
#include "comm_checklist_by_order.h"
#include "comm_checklist_wrong.h"
#include "comm_checklist_groups.h"
#include "comm_checklist_by_name.h"
#include "comm_checklist_mix.h"

static int node_of[32], local_of[32];
static char host_name[] = "simulated", *hosts[32];

/* ranks dealt cyclically would be another order of the tree; here in blocks */
static kolo_launch *deal(int nodes, int serial)
{
    static kolo_launch l;
    int job = (int)getpid();
    MPI_Bcast(&job, 1, MPI_INT, 0, MPI_COMM_WORLD);
    l = (kolo_launch){.method = "test",
                      .rank = rank,
                      .size = size,
                      .nodes = nodes,
                      .node_of = node_of,
                      .local_of = local_of,
                      .host_of = hosts,
                      .mpi = true};
    for (int r = 0; r < size; r++) {
        node_of[r] = (int)((int64_t)r * nodes / size);
        local_of[r] = r && node_of[r] == node_of[r - 1] ? local_of[r - 1] + 1 : 0;
        l.local_size += node_of[r] == (int)((int64_t)rank * nodes / size);
    }
    for (int n = 0; n < nodes; n++) hosts[n] = host_name;
    l.node = node_of[rank];
    l.local_rank = local_of[rank];
    snprintf(l.host, sizeof l.host, "%s", host_name);
    snprintf(l.job, sizeof l.job, "checklist.%d.%d", job, serial);
    return &l;
}

static int exchange(void *of, const void *mine, size_t bytes, void *everybodys)
{
    (void)of;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, everybodys, (int)bytes, MPI_BYTE, MPI_COMM_WORLD)
               ? KOLO_ELAUNCH
               : 0;
}

static void check_world(void)
{
    all = kolo_world_group(world);
    int64_t bad = kolo_world_rank(world) != rank || kolo_world_size(world) != size ||
                  kolo_group_rank(all) != rank || kolo_group_size(all) != size || kolo_group_id(all) != 0;
    report(bad, "rank, size, the group of all");
    check_by_order();
    check_wrong();
    check_groups();
    check_by_name();
    check_mix();
}

static void check_open(void)
{
    static const MPI_Comm comm = MPI_COMM_WORLD;
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .mpi_comm = &comm, .timeout = 60, .shared_bytes = 8 << 20};
    kolo_world *second = NULL;
    int64_t bad = kolo_test(NULL, 1) != KOLO_EINPUT;
    for (int again = 0; again < 2; again++) {
        bad += kolo_world_open(&world, &config) < 0;
        bad += kolo_world_open(&second, &config) != KOLO_EINPUT || second;
        bad += kolo_world_rank(world) != rank || kolo_world_size(world) != size;
        bad += still_works(kolo_world_group(world));
        if (again == 0) kolo_world_close(&world);
    }
    place = "one node";
    report(bad, "a world is opened, closed and opened again; a second one at a time is refused");
    check_world();
    kolo_world_close(&world);
}

static void check_simulated(int nodes, int serial)
{
    static char name[32];
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 60, .shared_bytes = 8 << 20};
    snprintf(name, sizeof name, "%d nodes", nodes);
    place = name;
    int64_t bad = lib_world_start(&world, deal(nodes, serial), &config, exchange, NULL) < 0;
    report(bad, "a world");
    if (!bad) check_world();
    kolo_world_close(&world);
}

/* A world over MPI cannot shrink, and says what can; it is left as it is. The last check: what was
 * under way stays with MPI. */
static void check_no_shrink(void)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 60, .shared_bytes = 1 << 20, .transport = "mpi"};
    place = "2 nodes over MPI";
    int64_t bad = lib_world_start(&world, deal(2, 3), &config, exchange, NULL) < 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (!bad) kolo_world_abort(world, "a test");
    bad += kolo_world_shrink(&world, 1) != KOLO_ECONFIG || !world ||
           !strstr(kolo_error_text(), "KOLO_COMM_TRANSPORT=tcp");
    kolo_world_close(&world);
    report(bad, "a broken world is not shrunk, and told the cure");
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc > 1) mix_rounds = atoi(argv[1]);
    check_open();
    if (size >= 2) check_simulated(2, 1);
    if (size >= 3 && argc > 1) check_simulated(size, 2);
    if (size >= 2) check_no_shrink();
    MPI_Finalize();
    return rank == 0 ? done_testing() : 0;
}
