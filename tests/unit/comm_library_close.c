/* Requests that nobody has the handle of any more, under way while the world is closed: they are carried out, and the close ends. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 2, COUNT = 1000000 };

static void close_rank(int rank)
{
    static float vector[COUNT];
    rig_rank r = {.rank = rank};
    const kolo_world_config config = {.timeout = 5, .shared_bytes = 1 << 20, .transport = "tcp"};
    const kolo_request barrier = {.what = KOLO_BARRIER},
                       sum = {.what = KOLO_ALLREDUCE, .out = vector, .type = KOLO_WIRE_F32, .dims = 1, .dim = {COUNT}};
    kolo_world *whole = NULL;
    kolo_handle h = 0;
    for (int i = 0; i < COUNT; i++) vector[i] = (float)(rank + 1);
    world_fill(&r.w, rank, RANKS, rig_nodes, rig_job);
    int rc = lib_world_start(&whole, &r.w.launch, &config, rig_exchange, &r);
    if (rc == 0 && rank == 1) usleep(100000); /* so the other one's are under way when it closes */
    if (rc == 0) rc = kolo_submit(kolo_world_group(whole), &sum, &h);
    if (rc == 0) kolo_release(whole, h);
    if (rc == 0) rc = kolo_submit(kolo_world_group(whole), &barrier, NULL);
    kolo_world_close(&whole);
    rig->outcome[rank].value = rc == 0 && vector[0] == 3 && vector[COUNT - 1] == 3;
}

static void check(const int *node_of, const char *where)
{
    int64_t ended = 0, right = 0;
    rig = mmap(NULL, sizeof *rig, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rig_size = RANKS;
    rig_nodes = node_of;
    snprintf(rig_job, sizeof rig_job, "test-close.%d.%s", (int)getpid(), node_of ? "two" : "one");
    fflush(stdout);
    for (int r = 0; r < RANKS; r++)
        if (fork() == 0) {
            alarm(30);
            close_rank(r);
            _exit(0);
        }
    for (int r = 0, status; r < RANKS; r++) ended += wait(&status) > 0 && WIFEXITED(status);
    for (int r = 0; r < RANKS; r++) right += rig->outcome[r].value;
    is_int(ended, RANKS, "%s: the close ends", where);
    is_int(right, RANKS, "%s: what was under way was carried out", where);
    munmap(rig, sizeof *rig);
}

int main(void)
{
    static const int two[] = {0, 1};
    check(NULL, "one node");
    check(two, "two nodes");
    is_int(world_leftovers("test-close"), 0, "no segment is left behind");
    return done_testing();
}
