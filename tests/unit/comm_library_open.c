/* Worlds whose ranks were set up differently, or of which one cannot begin: an error on every rank at once,
 * that names ranks and settings, and the next world opens. Timelines that are begun and ended while the world
 * runs, and that outlive a break. */
#include "base/file.h"
#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { RANKS = 3, ODD = 1 };

static const struct difference {
    /* values of the environment, on rank ODD and on the others; NULL: none */
    const char *what, *variable, *odd, *other;
    /* on every rank but, where it cannot begin, ODD itself; which says the last alone */
    const char *says[2];
} differences[] = {
    {"a timeline on one rank alone",
     "KOLO_COMM_TIMELINE",
     "/tmp",
     NULL,
     {"timeline off", "rank 1: transport auto, table"}},
    {"another cache", "KOLO_COMM_CACHE", "12", "13", {"rank 0, 2: ", "cache 12, "}},
    {"another order", "KOLO_COMM_FIXED_ORDER", "1", NULL, {"rank 0, 2: ", "fixed order on"}},
    {"another way between nodes",
     "KOLO_COMM_TRANSPORT",
     "tcp",
     NULL,
     {"rank 0, 2: transport auto", "transport tcp"}},
    {"another algorithm", "KOLO_COMM_ALGORITHM", "ring", NULL, {"rank 0, 2: ", "; rank 1: "}},
    {"a value that is none",
     "KOLO_COMM_CACHE",
     "many",
     NULL,
     {"rank 1: ", "KOLO_COMM_CACHE=many is no number"}},
    {"a table that one rank cannot read",
     "KOLO_COMM_TABLE",
     "/nonexistent/table",
     NULL,
     {"rank 1: ", "/nonexistent/table"}},
};
enum { DIFFERENCES = sizeof differences / sizeof *differences };

static int start(rig_rank *r, kolo_world **whole)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20};
    return lib_world_start(whole, &r->w.launch, &config, rig_exchange, r);
}

/* 0: refused as it should be, and a world without the difference opens. */
static int64_t open_different(rig_rank *r, int which)
{
    const struct difference *d = &differences[which];
    const char *value = r->rank == ODD ? d->odd : d->other;
    kolo_world *whole = NULL;
    if (value) setenv(d->variable, value, 1);
    int rc = start(r, &whole);
    int64_t bad = (rc == 0) + 10 * (whole != NULL) + 100 * !strstr(kolo_error_text(), d->says[1]);
    if (r->rank != ODD) bad += 1000 * (rc != KOLO_ECONFIG) + 10000 * !strstr(kolo_error_text(), d->says[0]);
    if (bad) return bad;
    unsetenv(d->variable);
    int64_t one = 1;
    rc = start(r, &whole);
    if (rc == 0) rc = kolo_allreduce(kolo_world_group(whole), NULL, &one, 1, KOLO_I64, KOLO_SUM);
    kolo_world_close(&whole);
    return rc < 0 ? rc : one != RANKS;
}

/* ---- timelines ----------------------------------------------------------------------------------------- */

static char folder[64];

static int reduce(kolo_world *whole, const char *name)
{
    float x[4] = {1, 2, 3, 4};
    kolo_request r = {
        .what = KOLO_ALLREDUCE, .name = name, .out = x, .type = KOLO_F32, .dims = 1, .dim = {4}};
    kolo_handle h;
    KOLO_TRY(kolo_submit(kolo_world_group(whole), &r, &h));
    return kolo_wait(whole, h);
}

/* Whether the rank's file of timeline `number` tells of both, and is a whole array. */
static bool tells(int rank, const char *number, const char *name)
{
    char path[96], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s/rank-%d.json", folder, number, rank);
    if (kolo_file_read(path, &text, &bytes) < 0) return false;
    bool found = strstr(text, name) && strstr(text, "kolo_clock") && strstr(text, "\n]\n") &&
                 strstr(text, "\"name\":\"allreduce\",\"args\":{\"bytes\":16"); /* the one without a name */
    free(text);
    return found;
}

/* Of rank 0 to 2, of ranks that this world does not have, and of somebody else. */
static const struct {
    const char *name;
    bool stays;
} before[] = {{"rank-7.json", false},
              {"rank-12.older.json", false},
              {"rank-3.json.txt", true},
              {"rank-.json", true},
              {"rank-2.older.json", false}};

static void leave_files(void)
{
    char path[96];
    snprintf(path, sizeof path, "%s/1", folder);
    kolo_folder_make(path);
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        snprintf(path, sizeof path, "%s/1/%s", folder, before[i].name);
        kolo_file_write_atomic(path, "[\n]\n", 4);
    }
}

static bool files_right(void)
{
    char path[96];
    bool right = true;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        snprintf(path, sizeof path, "%s/1/%s", folder, before[i].name);
        right &= kolo_file_exists(path) == before[i].stays;
    }
    return right;
}

static int64_t timelines(rig_rank *r, int argument)
{
    kolo_world *whole = NULL;
    char path[96];
    (void)argument;
    KOLO_TRY(start(r, &whole));
    int64_t bad = kolo_timeline_start(NULL, "/tmp") != KOLO_EINPUT || kolo_timeline_stop(whole) < 0;
    KOLO_TRY(reduce(whole, "before"));
    for (int number = 0; number < 2; number++) {
        snprintf(path, sizeof path, "%s/%d", folder, number);
        KOLO_TRY(kolo_timeline_start(whole, path));
        bad += kolo_timeline_start(whole, path) != KOLO_EINPUT || !strstr(kolo_error_text(), "already");
        KOLO_TRY(reduce(whole, number ? "second" : "first"));
        KOLO_TRY(kolo_allreduce(kolo_world_group(whole), NULL, (float[4]){1}, 4, KOLO_F32, KOLO_SUM));
        KOLO_TRY(kolo_timeline_stop(whole));
        const char *sub = number ? "1" : "0";
        bad += !tells(r->rank, sub, number ? "second" : "first") || tells(r->rank, sub, "before") ||
               tells(r->rank, sub, "between") || tells(r->rank, sub, number ? "first" : "second");
        KOLO_TRY(reduce(whole, "between"));
    }
    bad += 10 * (kolo_timeline_start(whole, r->rank == ODD ? NULL : path) != KOLO_EINPUT ||
                 !strstr(kolo_error_text(), "rank 1"));
    /* it cannot write: the others do */
    KOLO_TRY(kolo_timeline_start(whole, r->rank == ODD ? "/proc/none" : path));
    KOLO_TRY(reduce(whole, "third"));
    KOLO_TRY(kolo_allreduce(kolo_world_group(whole), NULL, (float[4]){1}, 4, KOLO_F32, KOLO_SUM));
    KOLO_TRY(kolo_timeline_stop(whole));
    bad += 100 * (r->rank != ODD && !tells(r->rank, "1", "third"));
    kolo_world_close(&whole);
    return bad;
}

/* Of a world that breaks, and of the one that its ranks go on as. */
static int64_t broken(rig_rank *r, int argument)
{
    kolo_world *whole = NULL;
    char path[96];
    float x[4] = {1};
    int64_t bad = 0;
    (void)argument;
    snprintf(path, sizeof path, "%s/2", folder);
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .timeline = path};
    KOLO_TRY(lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r));
    for (int life = 0; life < 2; life++) {
        KOLO_TRY(reduce(whole, life ? "later" : "earlier"));
        KOLO_TRY(kolo_allreduce(kolo_world_group(whole), NULL, x, 4, KOLO_F32, KOLO_SUM));
        if (life) break;
        if (r->rank == ODD) kolo_world_abort(whole, "enough");
        while (kolo_barrier(kolo_world_group(whole)) == 0) continue;
        KOLO_TRY(kolo_world_shrink(&whole, 1));
    }
    kolo_world_close(&whole);
    bad += !tells(r->rank, "2", "earlier") + 10 * !tells(r->rank, "2/shrunk", "later");
    return bad;
}

int main(void)
{
    static const int apart[RANKS] = {0, 1, 1};
    rig_party p[DIFFERENCES];
    snprintf(folder, sizeof folder, "/tmp/kolo-test-XXXXXX");
    if (!mkdtemp(folder)) skip_all("no temporary folder");
    for (int i = 0; i < DIFFERENCES; i++)
        p[i] = rig_begin("open", RANKS, i % 2 ? NULL : apart, open_different, i, 30);
    for (int i = 0; i < DIFFERENCES; i++)
        is_int(rig_end(&p[i], -1), 0, "%s: an error on every rank, at once, and the next world opens",
               differences[i].what);
    for (int nodes = 1; nodes <= 2; nodes++) {
        leave_files();
        p[0] = rig_begin("open", RANKS, nodes == 1 ? NULL : apart, timelines, 0, 30);
        is_int(rig_end(&p[0], -1), 0, "%d nodes: timelines begin and end while the world runs", nodes);
        ok(files_right(), "where a larger job's were, nothing of it is left");
    }
    p[0] = rig_begin("open", RANKS, NULL, broken, 0, 30);
    is_int(rig_end(&p[0], -1), 0, "a break ends no timeline's file; those who go on begin another one");
    kolo_folder_remove(folder);
    is_int(rig_leftovers("open"), 0, "no segment is left behind");
    return done_testing();
}
