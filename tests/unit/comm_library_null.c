/* Every call of the library half without what it is about: before a world is open, and with one, an error
 * that says what is missing, and no crash; what the ranks of a group do together fails on all of them. The
 * table holds every function that kolo/world.h declares, which it is read for. */
#include "base/file.h"
#include "comm/library/parts.h"
#include "comm_router_rig.h"
#include "kolo/comm.h"

static kolo_world *whole; /* NULL: not open yet */
static kolo_group *all;
static float in[64], out[64];
static const int64_t counts[4] = {1, 1, 1, 1};

/* ---- without a world ----------------------------------------------------------------------------------- */

enum { NOTHING = 1 }; /* of a function that returns none: it came back */

static int n_open(void) { return kolo_world_open(NULL, NULL); }
static int n_close(void)
{
    kolo_world_close(NULL);
    kolo_world_close(&whole);
    return NOTHING;
}
static int n_abort(void) { return kolo_world_abort(NULL, NULL), NOTHING; }
static int n_shrink(void)
{
    return kolo_world_shrink(&whole, 1) == KOLO_EINPUT ? kolo_world_shrink(NULL, 1) : 0;
}
static int n_timeline_start(void) { return kolo_timeline_start(NULL, NULL); }
static int n_timeline_stop(void) { return kolo_timeline_stop(NULL); }
static int n_rank(void) { return kolo_world_rank(NULL); }
static int n_size(void) { return kolo_world_size(NULL); }
static int n_local_rank(void) { return kolo_world_local_rank(NULL); }
static int n_local_size(void) { return kolo_world_local_size(NULL); }
static int n_node(void) { return kolo_world_node(NULL); }
static int n_nodes(void) { return kolo_world_nodes(NULL); }
static int n_alloc(void)
{
    void *memory = in;
    return kolo_world_alloc(NULL, 64, NULL) == KOLO_EINPUT &&
                   kolo_world_alloc(NULL, 64, &memory) == KOLO_EINPUT && !memory
               ? KOLO_EINPUT
               : 0;
}
static int n_free(void) { return kolo_world_free(NULL, in), kolo_world_free(NULL, NULL), NOTHING; }
static int n_group(void) { return kolo_world_group(NULL) ? 0 : NOTHING; }
static int n_create(void) { return kolo_group_create(NULL, NULL, NULL, 0); }
/* KOLO_ECONFIG where there is no MPI */
static int n_create_mpi(void) { return kolo_group_create_mpi(NULL, NULL, NULL) == 0 ? 0 : KOLO_EINPUT; }
static int n_group_free(void)
{
    kolo_group *none = NULL;
    return kolo_group_free(&none) == 0 ? kolo_group_free(NULL) : 0;
}
static int n_group_rank(void) { return kolo_group_rank(NULL); }
static int n_group_size(void) { return kolo_group_size(NULL); }
static int n_group_id(void) { return kolo_group_id(NULL); }
static int n_submit(void) { return kolo_submit(NULL, NULL, NULL); }
static int n_submit_grouped(void) { return kolo_submit_grouped(NULL, NULL, 1, NULL); }
static int n_test(void) { return kolo_test(NULL, 1); }
static int n_wait(void) { return kolo_wait(NULL, 1); }
static int n_result(void) { return kolo_result(NULL, 1, NULL); }
static int n_release(void) { return kolo_release(NULL, 1), NOTHING; }
static int n_save(void) { return kolo_group_state_save(NULL, NULL, NULL); }
static int n_restore(void) { return kolo_group_state_restore(NULL, NULL, 0); }
static int n_allreduce(void) { return kolo_allreduce(NULL, in, out, 1, KOLO_F32, KOLO_SUM); }
static int n_reduce_scatter(void) { return kolo_reduce_scatter(NULL, in, out, 1, KOLO_F32, KOLO_SUM); }
static int n_allgather(void) { return kolo_allgather(NULL, in, out, 1, counts, KOLO_F32); }
static int n_broadcast(void) { return kolo_broadcast(NULL, out, 1, KOLO_F32, 0); }
static int n_gather(void) { return kolo_gather(NULL, in, out, 1, counts, KOLO_F32, 0); }
static int n_scatter(void) { return kolo_scatter(NULL, in, out, 1, counts, KOLO_F32, 0); }
static int n_alltoall(void) { return kolo_alltoall(NULL, in, counts, out, counts, KOLO_F32); }
static int n_barrier(void) { return kolo_barrier(NULL); }
static int n_join(void) { return kolo_join(NULL, NULL); }
static int n_object(void) { return kolo_broadcast_object(NULL, NULL, 0, 0, NULL, NULL); }
static int n_release_object(void)
{
    void *none = NULL;
    return kolo_release_object(NULL), kolo_release_object(&none), NOTHING;
}

/* ---- with one: NULL where something is needed, on the last rank alone or on all ------------------------ */

static int w_alloc(void) { return kolo_world_alloc(whole, 64, NULL); }
static int w_create(void) { return kolo_group_create(NULL, whole, (const int[]){0}, 1); }
static int w_create_list(void)
{
    kolo_group *g = NULL;
    return kolo_group_create(&g, whole, NULL, 1);
}
static int w_submit(void)
{
    kolo_handle h;
    return kolo_submit(all, NULL, &h);
}
static int w_submit_grouped(void) { return kolo_submit_grouped(all, NULL, 1, NULL); }
static int w_result(void)
{
    const kolo_request r = {.what = KOLO_ALLREDUCE, .in = in, .type = KOLO_F32, .dims = 1, .dim = {1}};
    kolo_handle h;
    if (kolo_submit(all, &r, &h) < 0 || kolo_wait(whole, h) < 0) return 0;
    int rc = kolo_result(whole, h, NULL);
    kolo_release(whole, h);
    return rc;
}
static int w_save(void) { return kolo_group_state_save(all, NULL, NULL); }
static int w_restore(void) { return kolo_group_state_restore(all, NULL, 8); }
static int w_allreduce(void) { return kolo_allreduce(all, in, NULL, 4, KOLO_F32, KOLO_SUM); }
static int w_reduce_scatter(void) { return kolo_reduce_scatter(all, in, NULL, 4, KOLO_F32, KOLO_SUM); }
static int w_allgather(void) { return kolo_allgather(all, in, NULL, 1, NULL, KOLO_F32); }
static int w_broadcast(void) { return kolo_broadcast(all, NULL, 4, KOLO_F32, 0); }
static int w_gather(void) { return kolo_gather(all, in, NULL, 1, NULL, KOLO_F32, kolo_group_size(all) - 1); }
static int w_scatter(void) { return kolo_scatter(all, in, NULL, 1, NULL, KOLO_F32, 0); }
static int w_alltoall(void) { return kolo_alltoall(all, in, NULL, out, NULL, KOLO_F32); }
static int w_alltoall_out(void) { return kolo_alltoall(all, in, counts, NULL, counts, KOLO_F32); }
static int w_object(void) { return kolo_broadcast_object(all, out, 8, 0, NULL, NULL); }
static int w_object_of_root(void)
{
    void *data;
    size_t got;
    return kolo_broadcast_object(all, NULL, 8, kolo_group_size(all) - 1, &data, &got);
}

static int r_create(void)
{
    kolo_group *g = NULL;
    return kolo_group_create(&g, whole, (const int[]){0}, 1);
}
static int r_allreduce(void) { return kolo_allreduce(all, in, out, 4, KOLO_F32, KOLO_SUM); }
static int r_reduce_scatter(void) { return kolo_reduce_scatter(all, in, out, 4, KOLO_F32, KOLO_SUM); }
static int r_allgather(void) { return kolo_allgather(all, in, out, 1, NULL, KOLO_F32); }
static int r_broadcast(void) { return kolo_broadcast(all, out, 4, KOLO_F32, 0); }
static int r_gather(void) { return kolo_gather(all, in, out, 1, NULL, KOLO_F32, kolo_group_size(all) - 1); }
static int r_scatter(void) { return kolo_scatter(all, in, out, 1, NULL, KOLO_F32, 0); }
static int r_alltoall(void) { return kolo_alltoall(all, in, counts, out, counts, KOLO_F32); }
static int r_object(void)
{
    void *data = NULL;
    size_t got;
    int rc = kolo_broadcast_object(all, out, 8, 0, &data, &got);
    kolo_release_object(&data);
    return rc;
}
static int r_object_of_root(void)
{
    void *data = NULL;
    size_t got;
    int rc = kolo_broadcast_object(all, NULL, 8, kolo_group_size(all) - 1, &data, &got);
    kolo_release_object(&data);
    return rc;
}

static const struct {
    const char *name;
    int (*nothing)(void);  /* without a world */
    int (*wrong[2])(void); /* with one */
    int (*right[2])(void); /* what the other ranks call; NULL: it is this rank's own affair */
} entries[] = {
    {"kolo_world_open", n_open, {0}, {0}},
    {"kolo_world_close", n_close, {0}, {0}},
    {"kolo_world_abort", n_abort, {0}, {0}},
    {"kolo_world_shrink", n_shrink, {0}, {0}},
    {"kolo_timeline_start", n_timeline_start, {0}, {0}},
    {"kolo_timeline_stop", n_timeline_stop, {0}, {0}},
    {"kolo_world_rank", n_rank, {0}, {0}},
    {"kolo_world_size", n_size, {0}, {0}},
    {"kolo_world_local_rank", n_local_rank, {0}, {0}},
    {"kolo_world_local_size", n_local_size, {0}, {0}},
    {"kolo_world_node", n_node, {0}, {0}},
    {"kolo_world_nodes", n_nodes, {0}, {0}},
    {"kolo_world_alloc", n_alloc, {w_alloc}, {0}},
    {"kolo_world_free", n_free, {0}, {0}},
    {"kolo_world_group", n_group, {0}, {0}},
    {"kolo_group_create", n_create, {w_create, w_create_list}, {r_create, r_create}},
    {"kolo_group_create_mpi", n_create_mpi, {0}, {0}},
    {"kolo_group_free", n_group_free, {0}, {0}},
    {"kolo_group_rank", n_group_rank, {0}, {0}},
    {"kolo_group_size", n_group_size, {0}, {0}},
    {"kolo_group_id", n_group_id, {0}, {0}},
    {"kolo_submit", n_submit, {w_submit}, {0}},
    {"kolo_submit_grouped", n_submit_grouped, {w_submit_grouped}, {0}},
    {"kolo_test", n_test, {0}, {0}},
    {"kolo_wait", n_wait, {0}, {0}},
    {"kolo_result", n_result, {w_result}, {w_result}},
    {"kolo_release", n_release, {0}, {0}},
    {"kolo_group_state_save", n_save, {w_save}, {0}},
    {"kolo_group_state_restore", n_restore, {w_restore}, {0}},
    {"kolo_allreduce", n_allreduce, {w_allreduce}, {r_allreduce}},
    {"kolo_reduce_scatter", n_reduce_scatter, {w_reduce_scatter}, {r_reduce_scatter}},
    {"kolo_allgather", n_allgather, {w_allgather}, {r_allgather}},
    {"kolo_broadcast", n_broadcast, {w_broadcast}, {r_broadcast}},
    {"kolo_gather", n_gather, {w_gather}, {r_gather}},
    {"kolo_scatter", n_scatter, {w_scatter}, {r_scatter}},
    {"kolo_alltoall", n_alltoall, {w_alltoall, w_alltoall_out}, {r_alltoall, r_alltoall}},
    {"kolo_barrier", n_barrier, {0}, {0}},
    {"kolo_join", n_join, {0}, {0}},
    {"kolo_broadcast_object", n_object, {w_object, w_object_of_root}, {r_object, r_object_of_root}},
    {"kolo_release_object", n_release_object, {0}, {0}},
};
enum { ENTRIES = sizeof entries / sizeof *entries, RANKS = 3 };

static int64_t still(void)
{
    int64_t one = 1;
    return kolo_allreduce(all, NULL, &one, 1, KOLO_I64, KOLO_SUM) < 0 || one != RANKS;
}

/* Which entry, from 1; 0: all are as they should be. everywhere: 1, all ranks leave it out; 0: the last
 * one. */
static int64_t one_rank(rig_rank *r, int everywhere)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    all = kolo_world_group(whole);
    int64_t bad = 0;
    for (int k = 0; k < 2 * ENTRIES && !bad; k++) {
        int (*const wrong)(void) = entries[k / 2].wrong[k % 2],
                    (*const right)(void) = entries[k / 2].right[k % 2];
        if (!wrong) continue;
        const bool mine = everywhere || r->rank == RANKS - 1 || !right;
        int rc = (mine ? wrong : right)();
        if (rc != KOLO_EINPUT || !*kolo_error_text()) bad = k / 2 + 1;
        if (!bad) bad = still() ? k / 2 + 1 : 0;
        if (bad)
            fprintf(stderr, "# rank %d: %s, case %d: status %d: %s\n", r->rank, entries[bad - 1].name, k % 2,
                    rc, kolo_error_text());
    }
    kolo_world_close(&whole);
    return bad;
}

/* What the header declares: " *kolo_NAME(" outside of comments, at the beginning of a line. */
static int64_t missing(void)
{
    char *text = NULL;
    size_t bytes;
    int64_t bad = 0, seen = 0;
    if (kolo_file_read("include/kolo/world.h", &text, &bytes) < 0) return -1;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        char *name = strstr(line, "kolo_"), *end = NULL;
        if (*line == ' ' || *line == '/' || strncmp(line, "typedef", 7) == 0) continue;
        for (; name; name = strstr(name + 1, "kolo_"))
            if ((end = name + strspn(name, "abcdefghijklmnopqrstuvwxyz_")) && *end == '(') break;
        if (!name) continue;
        bool known = false;
        for (int k = 0; k < ENTRIES; k++)
            known |= strlen(entries[k].name) == (size_t)(end - name) &&
                     strncmp(entries[k].name, name, (size_t)(end - name)) == 0;
        if (!known) diag("%.*s stands in world.h and not in the table", (int)(end - name), name);
        bad += !known;
        seen++;
    }
    free(text);
    return bad + (seen != ENTRIES) * 1000;
}

int main(void)
{
    static const int apart[RANKS] = {0, 0, 1};
    for (int k = 0; k < ENTRIES; k++) {
        int rc = entries[k].nothing();
        ok(rc == KOLO_EINPUT || rc == NOTHING, "%s of nothing is %s", entries[k].name,
           rc == NOTHING ? "nothing" : "an error");
    }
    ok(kolo_world_launch(NULL) == NULL, "so is kolo_world_launch");
    is_int(missing(), 0, "these are all calls of world.h");
    for (int run = 0; run < 4; run++) {
        rig_party p = rig_begin("null", RANKS, run / 2 ? apart : NULL, one_rank, run % 2, 30);
        is_int(rig_end(&p, -1), 0, "%s: what %s out is an error on all ranks, and the world goes on",
               run / 2 ? "two nodes" : "one node", run % 2 ? "all ranks leave" : "one rank leaves");
    }
    is_int(rig_leftovers("null"), 0, "no segment is left behind");
    return done_testing();
}
