/* Requests that nobody has the handle of any more, under way while the world is closed: they are carried
 * out, and the close ends. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 2, COUNT = 1000000 };

/* 0: it was right. */
static int64_t close_rank(rig_rank *r, int argument)
{
    static float vector[COUNT];
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 5, .shared_bytes = 1 << 20, .transport = "tcp"};
    const kolo_request barrier = {.what = KOLO_BARRIER}, sum = {.what = KOLO_ALLREDUCE,
                                                                .out = vector,
                                                                .type = KOLO_F32,
                                                                .dims = 1,
                                                                .dim = {COUNT}};
    kolo_world *whole = NULL;
    kolo_handle h = 0;
    (void)argument;
    for (int i = 0; i < COUNT; i++) vector[i] = (float)(r->rank + 1);
    int rc = lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r);
    if (rc == 0 && r->rank == 1) usleep(100000); /* so the other one's are under way when it closes */
    if (rc == 0) rc = kolo_submit(kolo_world_group(whole), &sum, &h);
    if (rc == 0) kolo_release(whole, h);
    if (rc == 0) rc = kolo_submit(kolo_world_group(whole), &barrier, NULL);
    kolo_world_close(&whole);
    return rc < 0 || vector[0] != 3 || vector[COUNT - 1] != 3;
}

static void check(const int *node_of, const char *where)
{
    rig_party p = rig_begin("close", RANKS, node_of, close_rank, 0, 30);
    is_int(rig_end(&p, -1), 0, "%s: the close ends, and what was under way was carried out", where);
}

int main(void)
{
    static const int two[] = {0, 1};
    check(NULL, "one node");
    check(two, "two nodes");
    is_int(rig_leftovers("close"), 0, "no segment is left behind");
    return done_testing();
}
