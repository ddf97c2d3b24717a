/* Settings that are none: every KOLO_COMM_ variable that has a form is refused where it has not, by its name
 * and on every rank; and the network interface, which two nodes can be told. */
#include "comm/library/parts.h"
#include "comm_router_rig.h"

static const struct {
    const char *variable, *value, *says;
} garbage[] = {
    {"KOLO_COMM_METHOD", "pigeon", "pigeon"},
    {"KOLO_COMM_TRANSPORT", "pigeon", "pigeon"},
    {"KOLO_COMM_INTERFACE", "nosuch0", "no network interface nosuch0"},
    {"KOLO_COMM_ALGORITHM", "fastest", "no algorithm \"fastest\""},
    {"KOLO_COMM_TABLE", "/nonexistent/table", "/nonexistent/table"},
    {"KOLO_COMM_TIMEOT", "1", "there is no variable KOLO_COMM_TIMEOT; did you mean KOLO_COMM_TIMEOUT?"},
    {"KOLO_COMM_TIMEOUT", "soon", "KOLO_COMM_TIMEOUT=soon is no number"},
    {"KOLO_COMM_TIMEOUT", "0.01", "KOLO_COMM_TIMEOUT=0.01 is no number from 0.05"},
    {"KOLO_COMM_PATIENCE", "8s", "KOLO_COMM_PATIENCE=8s is no number"},
    {"KOLO_COMM_PATIENCE", "-1", "KOLO_COMM_PATIENCE=-1 is no number from"},
    {"KOLO_COMM_HEARTBEAT_TIMEOUT", "soon", "KOLO_COMM_HEARTBEAT_TIMEOUT=soon is no number"},
    {"KOLO_COMM_CYCLE", "61", "KOLO_COMM_CYCLE=61 is no number from 0 to 60"},
    {"KOLO_COMM_STALL_WARNING", "nan", "KOLO_COMM_STALL_WARNING=nan is no number"},
    {"KOLO_COMM_STALL_END", "-1", "KOLO_COMM_STALL_END=-1 is no number"},
    {"KOLO_COMM_STALL_END", "30", "lower KOLO_COMM_STALL_WARNING"},
    {"KOLO_COMM_CACHE", "2e6", "KOLO_COMM_CACHE=2e6 is no number"},
    {"KOLO_COMM_SHARED", "64Q", "KOLO_COMM_SHARED=64Q is no number of bytes"},
    {"KOLO_COMM_SHARED", "-1", "KOLO_COMM_SHARED=-1 is no number of bytes"},
    {"KOLO_COMM_FUSION", "1.5M", "KOLO_COMM_FUSION=1.5M is no number of bytes"},
    {"KOLO_COMM_FUSION", "99999999999999999999", "is no number of bytes"},
    {"KOLO_COMM_FUSION", "9999999999G", "is no number of bytes"},
    {"KOLO_COMM_TIMELINE_BYTES", "much", "KOLO_COMM_TIMELINE_BYTES=much is no number of bytes"},
    {"KOLO_COMM_AUTOTUNE", "perhaps", "KOLO_COMM_AUTOTUNE=perhaps is neither true nor false"},
    {"KOLO_COMM_FIXED_ORDER", "2", "KOLO_COMM_FIXED_ORDER=2 is neither true nor false"},
};
enum { GARBAGE = sizeof garbage / sizeof *garbage, RANKS = 3, SIDE_BY_SIDE = 6 };

static int64_t open_garbage(rig_rank *r, int which)
{
    const bool interface = strcmp(garbage[which].variable, "KOLO_COMM_INTERFACE") == 0;
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .transport = interface ? "tcp" : NULL};
    kolo_world *whole = NULL;
    setenv(garbage[which].variable, garbage[which].value, 1);
    int rc = strcmp(garbage[which].variable, "KOLO_COMM_METHOD") == 0
                 ? kolo_world_open(&whole, NULL)
                 : lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r);
    bool right = rc < 0 && !whole && strstr(kolo_error_text(), garbage[which].says);
    if (!right) fprintf(stderr, "# rank %d: status %d: %s\n", r->rank, rc, kolo_error_text());
    if (rc == 0) kolo_world_close(&whole);
    return !right;
}

static int64_t open_interface(rig_rank *r, int by_address)
{
    const kolo_world_config config = {
        .size = sizeof(kolo_world_config), .timeout = 20, .shared_bytes = 1 << 20, .transport = "tcp"};
    kolo_world *whole = NULL;
    int64_t one = 1;
    setenv("KOLO_COMM_INTERFACE", by_address ? "127.0.0.1" : "lo", 1);
    int rc = lib_world_start(&whole, &r->w.launch, &config, rig_exchange, r);
    if (rc == 0) rc = kolo_allreduce(kolo_world_group(whole), NULL, &one, 1, KOLO_I64, KOLO_SUM);
    kolo_world_close(&whole);
    return rc < 0 ? rc : one != RANKS;
}

/* What a program says of the size of its configuration. */
static void check_sizes(void)
{
    kolo_world *alone = NULL;
    kolo_world_config config = {.method = "single", .transport = "pigeon"};
    is_int(kolo_world_open(&alone, &config), KOLO_ECONFIG, "a configuration of size 0");
    ok(strstr(kolo_error_text(), "kolo_world_config config = {.size = sizeof config"), "the cure is said: %s",
       kolo_error_text());
    config.size = sizeof config + 8;
    is_int(kolo_world_open(&alone, &config), KOLO_ECONFIG, "one of a later version");
    ok(strstr(kolo_error_text(), "later version"), "it is said: %s", kolo_error_text());
    config.size = offsetof(kolo_world_config, transport);
    is_int(kolo_world_open(&alone, &config), 0, "of one of an earlier version the later fields are not read");
    kolo_world_close(&alone);
}

int main(void)
{
    static const int apart[RANKS] = {0, 1, 1};
    rig_party p[SIDE_BY_SIDE];
    for (int first = 0; first < GARBAGE; first += SIDE_BY_SIDE) {
        for (int i = first; i < GARBAGE && i < first + SIDE_BY_SIDE; i++)
            p[i - first] = rig_begin("values", RANKS, apart, open_garbage, i, 30);
        for (int i = first; i < GARBAGE && i < first + SIDE_BY_SIDE; i++)
            is_int(rig_end(&p[i - first], -1), 0, "%s=%s is refused on every rank, by its name",
                   garbage[i].variable, garbage[i].value);
    }
    for (int by_address = 0; by_address < 2; by_address++) {
        p[0] = rig_begin("values", RANKS, apart, open_interface, by_address, 30);
        is_int(rig_end(&p[0], -1), 0, "KOLO_COMM_INTERFACE by %s: two nodes meet",
               by_address ? "address" : "name");
    }
    check_sizes();
    is_int(rig_leftovers("values"), 0, "no segment is left behind");
    return done_testing();
}
