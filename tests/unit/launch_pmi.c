/* MPICH's PMI-1 protocol, answered without sockets: two ranks whose lower side is a table in this process. */
#include "kolo/error.h"
#include "launch/pmi_bridge.h"
#include "tap.h"

#include <sys/socket.h>
#include <unistd.h>

static struct {
    char *lines[8][2];
    size_t bytes[8][2];
    int fences, fetches, aborted;
    bool broken;
} world;

static int world_fence(void *context, uint32_t epoch, const char *lines, size_t bytes)
{
    int rank = *(int *)context;
    world.fences++;
    if (world.broken) return kolo_fail(KOLO_ELAUNCH, "a rank is gone");
    free(world.lines[epoch][rank]);
    world.lines[epoch][rank] = malloc(bytes + 1);
    memcpy(world.lines[epoch][rank], lines, bytes);
    world.bytes[epoch][rank] = bytes;
    return 0;
}

static int world_fetch(void *context, uint32_t epoch, int rank, char **lines, size_t *bytes)
{
    (void)context;
    world.fetches++;
    *bytes = world.bytes[epoch][rank];
    *lines = malloc(*bytes + 1);
    memcpy(*lines, world.lines[epoch][rank], *bytes);
    return 0;
}

static void world_abort(void *context, int exit_status)
{
    (void)context;
    world.aborted = exit_status;
}

static kolo_pmi_store stores[2];
static char reply[KOLO_PMI_LINE];

static const char *ask(int rank, const char *line)
{
    if (kolo_pmi_answer(&stores[rank], line, reply) < 0 && !*reply)
        snprintf(reply, sizeof reply, "error: %s", kolo_error_text());
    return reply;
}

static void test_field(void)
{
    size_t n;
    const char *line = "cmd=put kvsname=kolo key=bc-1 value=a b=c d ";
    const char *key = kolo_pmi_field(line, "key", &n);
    ok(key && n == 4 && strncmp(key, "bc-1", n) == 0, "a field ends at the space");
    is_text(kolo_pmi_field(line, "value", &n), "a b=c d ",
            "a value runs to the end of the line, spaces included");
    ok(!kolo_pmi_field(line, "b", &n), "what stands in a value is no field");
    ok(!kolo_pmi_field(line, "name", &n), "the end of another name is no field");
    ok(!kolo_pmi_field("", "cmd", &n), "an empty line has none");
}

static void test_words(void)
{
    is_text(ask(0, "cmd=init pmi_version=1 pmi_subversion=1"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", "init");
    is_text(ask(0, "cmd=init pmi_version=2 pmi_subversion=0"),
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n", "a second version is refused");
    is_text(ask(0, "cmd=get_maxes"), "cmd=maxes kvsname_max=64 keylen_max=64 vallen_max=800\n", "get_maxes");
    is_text(ask(0, "cmd=get_appnum"), "cmd=appnum appnum=0\n", "get_appnum");
    is_text(ask(0, "cmd=get_my_kvsname"), "cmd=my_kvsname kvsname=kolo\n", "get_my_kvsname");
    is_text(ask(1, "cmd=get_universe_size"), "cmd=universe_size size=2\n", "get_universe_size");
    is_text(ask(0, "cmd=publish_name service=s port=p"),
            "cmd=publish_result info=not_supported rc=-1 msg=not_supported\n", "publish is refused");
    is_text(ask(0, "mcmd=spawn"), "", "spawn: no answer before its last line");
    is_text(ask(0, "execname=cmd=put"), "", "its lines are no commands");
    is_text(ask(0, "endcmd"), "cmd=spawn_result rc=-1 msg=spawn_is_not_supported\n", "spawn is refused");
    ok(strncmp(ask(0, "cmd=dance"), "error:", 6) == 0, "an unknown command is an error");
    ok(strncmp(ask(0, "nonsense"), "error:", 6) == 0, "so is a line without a command");
    ask(0, "cmd=abort exitcode=42");
    is_int(world.aborted, 42, "abort hands the exit code down");
}

static void test_space(void)
{
    is_text(ask(0, "cmd=get kvsname=kolo key=PMI_process_mapping"),
            "cmd=get_result rc=0 msg=success value=(vector,(0,2,1))\n",
            "the mapping is there from the start");
    is_text(ask(0, "cmd=put kvsname=kolo key=bc-0 value=tcp 127.0.0.1:99=x"),
            "cmd=put_result rc=0 msg=success\n", "put");
    is_text(ask(1, "cmd=get kvsname=kolo key=bc-0"), "cmd=get_result rc=-1 msg=key_not_found value=unknown\n",
            "another rank does not see it before a barrier");
    is_text(ask(0, "cmd=barrier_in"), "cmd=barrier_out rc=0\n", "barrier");
    ask(1, "cmd=barrier_in");
    is_int(world.fetches, 0, "a barrier alone fetches nothing");
    is_text(ask(1, "cmd=get kvsname=kolo key=bc-0"),
            "cmd=get_result rc=0 msg=success value=tcp 127.0.0.1:99=x\n",
            "after it the value is there, spaces and all");
    is_text(ask(0, "cmd=get kvsname=kolo key=bc-0"),
            "cmd=get_result rc=0 msg=success value=tcp 127.0.0.1:99=x\n", "the rank itself sees it too");
    int fetches = world.fetches;
    ask(1, "cmd=get kvsname=kolo key=bc-0");
    is_int(world.fetches, fetches, "a known value is not fetched again");
    ask(0, "cmd=put kvsname=kolo key=bc-0 value=new");
    ask(0, "cmd=barrier_in");
    ask(1, "cmd=barrier_in");
    ask(1, "cmd=get kvsname=kolo key=later");
    is_text(ask(1, "cmd=get kvsname=kolo key=bc-0"), "cmd=get_result rc=0 msg=success value=new\n",
            "a later put replaces");
}

static void test_limits(void)
{
    char line[KOLO_PMI_LINE], value[KOLO_PMI_VALUE + 2];
    memset(value, 'v', sizeof value);
    snprintf(line, sizeof line, "cmd=put kvsname=kolo key=long value=%.*s", KOLO_PMI_VALUE, value);
    is_text(ask(0, line), "cmd=put_result rc=0 msg=success\n", "the longest value");
    ask(0, "cmd=get kvsname=kolo key=long");
    is_int(strlen(reply), strlen("cmd=get_result rc=0 msg=success value=\n") + KOLO_PMI_VALUE,
           "comes back whole");
    snprintf(line, sizeof line, "cmd=put kvsname=kolo key=long value=%.*s", KOLO_PMI_VALUE + 1, value);
    is_text(ask(0, line), "cmd=put_result rc=-1 msg=malformed_put\n", "one longer is refused");
    is_text(ask(0, "cmd=put kvsname=kolo value=x"), "cmd=put_result rc=-1 msg=malformed_put\n",
            "so is one without a key");
    int missing = 0;
    for (int i = 0; i < 2000; i++) {
        snprintf(line, sizeof line, "cmd=put kvsname=kolo key=k%d value=%d", i, i * i);
        ask(0, line);
    }
    ask(0, "cmd=barrier_in");
    ask(1, "cmd=barrier_in");
    for (int i = 0; i < 2000; i++) {
        char want[100];
        snprintf(line, sizeof line, "cmd=get kvsname=kolo key=k%d", i);
        snprintf(want, sizeof want, "cmd=get_result rc=0 msg=success value=%d\n", i * i);
        missing += strcmp(ask(1, line), want) != 0;
    }
    is_int(missing, 0, "2000 keys of another rank");
    world.broken = true;
    is_text(ask(0, "cmd=barrier_in"), "cmd=barrier_failed rc=-1\n", "a failed barrier is no barrier_out");
    world.broken = false;
    is_text(ask(0, "cmd=finalize"), "cmd=finalize_ack\n", "finalize");
    ok(stores[0].ended, "and that is the end");
}

/* The thread behind the socket: lines that come in pieces, and several at once. */
static void test_bridge(void)
{
    kolo_pmi_bridge *bridge;
    int rank = 0;
    kolo_pmi_below below = {
        .context = &rank, .fence = world_fence, .fetch = world_fetch, .abort = world_abort};
    is_int(kolo_pmi_bridge_open(&bridge, 0, 2, NULL, below), 0, "the bridge opens");
    int fd = atoi(getenv("PMI_FD") ? getenv("PMI_FD") : "-1");
    is_text(getenv("PMI_SIZE"), "2", "MPI will see two ranks");
    kolo_pmi_bridge_hide(bridge);
    ok(!getenv("PMI_FD") && !getenv("PMI_RANK"), "and children will not");
    char got[200] = "";
    size_t n = 0;
    if (write(fd, "cmd=get_app", 11) != 11 || write(fd, "num\ncmd=get_my_kvsname\n", 23) != 23)
        diag("write failed");
    const char *want = "cmd=appnum appnum=0\ncmd=my_kvsname kvsname=kolo\n";
    while (n < strlen(want)) {
        ssize_t more = read(fd, got + n, sizeof got - 1 - n);
        if (more <= 0) break;
        n += (size_t)more;
    }
    is_text(got, want, "a line in two pieces, and two lines in one");
    kolo_pmi_bridge_close(&bridge);
    ok(!bridge, "it closes though MPI never said finalize");
}

int main(void)
{
    static int ranks[2] = {0, 1};
    for (int r = 0; r < 2; r++) {
        kolo_pmi_below below = {
            .context = &ranks[r], .fence = world_fence, .fetch = world_fetch, .abort = world_abort};
        is_int(kolo_pmi_store_make(&stores[r], r, 2, "(vector,(0,2,1))", below), 0, "store of rank %d", r);
    }
    test_field();
    test_words();
    test_space();
    test_limits();
    for (int r = 0; r < 2; r++) kolo_pmi_store_free(&stores[r]);
    test_bridge();
    for (int e = 0; e < 8; e++)
        for (int r = 0; r < 2; r++) free(world.lines[e][r]);
    return done_testing();
}
