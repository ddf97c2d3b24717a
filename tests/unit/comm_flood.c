/* Strangers at every listener of a world: another user of the machine opens 200 connections to each and
 * says nothing, while a rank dies; and floods them with connections while the ranks work. */
#include <grp.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "comm/library/parts.h"
#include "comm_router_rig.h"

enum { COUNT = 20000, SILENT = 200, LISTENERS = 8, NOBODY = 65534, LEAST = 1 };

/* What the ranks tell the stranger: where they listen. */
typedef struct address {
    socklen_t length;
    struct sockaddr_storage name;
} address;
static struct {
    _Atomic uint32_t told, begun, stop;
    _Atomic int listeners;
    address at[WORLD_MAX * LISTENERS];
    _Atomic uint64_t connections;
} * shared;

static void tell_listeners(void)
{
    for (int fd = 3; fd < 256; fd++) {
        int listens = 0;
        socklen_t bytes = sizeof listens;
        address a = {.length = sizeof a.name};
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) < 0 || !listens) continue;
        if (getsockname(fd, (struct sockaddr *)&a.name, &a.length) < 0) continue;
        shared->at[atomic_fetch_add(&shared->listeners, 1)] = a;
    }
    atomic_fetch_add(&shared->told, 1);
}

static int dial(const address *a, int flags)
{
    const int fd = socket(a->name.ss_family, SOCK_STREAM | flags, 0);
    if (fd < 0) return -1;
    if (connect(fd, (const struct sockaddr *)&a->name, a->length) < 0 && !flags) {
        close(fd);
        return -1;
    }
    return fd;
}

static void be_somebody_else(void)
{
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (geteuid() != 0) return;
    if (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0) _exit(1);
}

static void hold_silent(void)
{
    for (int i = 0; i < SILENT; i++)
        for (int k = 0; k < atomic_load(&shared->listeners); k++)
            atomic_fetch_add(&shared->connections, dial(&shared->at[k], 0) >= 0);
    atomic_store(&shared->begun, 1);
    while (!atomic_load(&shared->stop)) usleep(1000);
}

/* As many as it can open, each closed when 400 more have come. */
static void flood(void)
{
    int fd[400];
    for (int i = 0; i < 400; i++) fd[i] = -1;
    atomic_store(&shared->begun, 1);
    for (unsigned i = 0; !atomic_load(&shared->stop); i++) {
        if (fd[i % 400] >= 0) close(fd[i % 400]);
        fd[i % 400] = dial(&shared->at[i % (unsigned)atomic_load(&shared->listeners)], SOCK_NONBLOCK);
        atomic_fetch_add(&shared->connections, fd[i % 400] >= 0);
    }
}

/* Begins when `ranks` ranks have told where they listen. */
static pid_t stranger(uint32_t ranks, void (*act)(void))
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid) return pid;
    alarm(60);
    be_somebody_else();
    rig_await(&shared->told, ranks);
    act();
    _exit(0);
}

static int open_world(rig_rank *r, kolo_world **whole)
{
    const kolo_world_config config = {.size = sizeof(kolo_world_config),
                                      .timeout = 40,
                                      .heartbeat_timeout = 8,
                                      .shared_bytes = 1 << 20,
                                      .transport = "tcp"};
    KOLO_TRY(lib_world_start(whole, &r->w.launch, &config, rig_exchange, r));
    tell_listeners();
    return 0;
}

static int step(kolo_world *whole)
{
    static _Alignas(64) double vector[COUNT];
    for (int i = 0; i < COUNT; i++) vector[i] = 1;
    KOLO_TRY(kolo_allreduce(kolo_world_group(whole), NULL, vector, COUNT, KOLO_F64, KOLO_SUM));
    return vector[0] == kolo_world_size(whole) ? 0 : kolo_fail(KOLO_EINTERNAL, "a wrong sum");
}

/* ---- a rank dies among silent pending peers ------------------------------------------------------------ */

enum { VICTIM = 2 };

static int64_t shrink(rig_rank *r, int argument)
{
    kolo_world *whole = NULL;
    int rc = 0;
    (void)argument;
    KOLO_TRY(open_world(r, &whole));
    for (int i = 0; i < 3 && rc == 0; i++) rc = step(whole);
    rig_await(&shared->begun, 1);
    if (r->rank == VICTIM) kill(getpid(), SIGKILL);
    while (rc == 0 && (rc = step(whole)) == 0) usleep(1000);
    if (rc != KOLO_ELAUNCH) return rc;
    rc = kolo_world_shrink(&whole, 1); /* whoever asks for one gets more, where more live */
    snprintf(rig->outcome[r->rank].text, sizeof rig->outcome->text, "shrink %d, size %d", rc,
             whole ? kolo_world_size(whole) : 0);
    if (rc < 0) return rc;
    const int size = kolo_world_size(whole);
    for (int i = 0; i < 3; i++) KOLO_TRY(step(whole));
    kolo_world_close(&whole);
    return size == 2 ? 0 : 10 + size;
}

static void test_silent(const char *where, const int *node_of)
{
    const pid_t other = stranger(3, hold_silent);
    rig_party p = rig_begin("flood", 3, node_of, shrink, 0, 60);
    waitpid(p.pid[VICTIM], NULL, 0);
    p.shared->outcome[VICTIM].value = 0;
    is_int(rig_end(&p, VICTIM), 0,
           "%s: %d silent connections to each of %d listeners, one of three ranks dies: the others are one "
           "world of 2",
           where, SILENT, atomic_load(&shared->listeners));
    for (int r = 0; r < 2; r++) diag("rank %d: %s, %.1f s", r, rig_outcomes[r].text, rig_outcomes[r].seconds);
    ok(atomic_load(&shared->connections) >= (uint64_t)(SILENT * atomic_load(&shared->listeners)),
       "%s: all of them were opened", where);
    atomic_store(&shared->stop, 1);
    waitpid(other, NULL, 0);
}

/* The last of `argument` ranks dies; the others do not say how many they want to be at least. */
static int64_t more_than_half(rig_rank *r, int argument)
{
    kolo_world *whole = NULL;
    int rc = 0;
    KOLO_TRY(open_world(r, &whole));
    /* whoever is slower may learn of the death within the last of these */
    for (int i = 0; i < 3 && rc == 0; i++) rc = step(whole);
    if (r->rank == argument - 1) kill(getpid(), SIGKILL);
    while (rc == 0) rc = step(whole);
    if (rc != KOLO_ELAUNCH) return rc;
    rc = kolo_world_shrink(&whole, 0);
    if (argument == 2) return rc != KOLO_ELAUNCH || whole;
    const bool right = rc == 0 && kolo_world_size(whole) == 2;
    kolo_world_close(&whole);
    return !right;
}

static void test_half(int size)
{
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    rig_party p = rig_begin("flood", size, NULL, more_than_half, size, 60);
    waitpid(p.pid[size - 1], NULL, 0);
    p.shared->outcome[size - 1].value = 0;
    is_int(rig_end(&p, size - 1), 0, "without a wish, %d of %d ranks %s", size - 1, size,
           size > 2 ? "go on" : "do not go on, as they are not more than half");
}

/* ---- the speed of steps in a flood ------------------------------------------------------------------ */

static double rate(kolo_world *whole, int rank, double seconds)
{
    int64_t steps = 0, on = 1;
    for (double begin = kolo_time(); on; steps++) {
        on = rank != 0 || kolo_time() - begin < seconds;
        if (step(whole) < 0 || kolo_allreduce(kolo_world_group(whole), NULL, &on, 1, KOLO_I64, KOLO_MIN) < 0)
            return -1;
    }
    return (double)steps / seconds;
}

static int64_t work(rig_rank *r, int argument)
{
    kolo_world *whole = NULL;
    (void)argument;
    KOLO_TRY(lib_world_start(
        &whole, &r->w.launch,
        &(kolo_world_config){.size = sizeof(kolo_world_config), .timeout = 40, .transport = "tcp"},
        rig_exchange, r));
    const double quiet = rate(whole, r->rank, 1);
    tell_listeners();
    rig_await(&shared->begun, 1);
    usleep(200000);
    const double flooded = rate(whole, r->rank, 2);
    if (quiet < 0 || flooded < 0) return KOLO_ELAUNCH;
    snprintf(rig->outcome[r->rank].text, sizeof rig->outcome->text, "%.0f steps a second, %.0f in the flood",
             quiet, flooded);
    kolo_world_close(&whole);
    return flooded < LEAST; /* the speeds are printed: on a busy machine they depend on what else runs */
}

static void test_flood(void)
{
    static const int each[] = {0, 1};
    const pid_t other = stranger(2, flood);
    /* what it costs is what the listeners do, not the core that it has itself */
    setpriority(PRIO_PROCESS, (id_t)other, 10);
    rig_party p = rig_begin("flood", 2, each, work, 0, 60);
    is_int(rig_end(&p, -1), 0,
           "in a flood of connections the ranks go on, with exact sums, at least %d step a second", LEAST);
    diag("%s", rig_outcomes[0].text);
    atomic_store(&shared->stop, 1);
    waitpid(other, NULL, 0);
    diag("%llu connections", (unsigned long long)atomic_load(&shared->connections));
    ok(atomic_load(&shared->connections) > 1000, "the flood was one");
}

int main(void)
{
    static const int nodes[] = {0, 1, 2}, pair[] = {0, 0, 1};
    if (geteuid() != 0)
        diag("not root: the stranger is the same user, whose connections are let in by the same rules");
    test_silent("3 nodes", nodes);
    test_silent("2 nodes", pair);
    test_silent("one node", NULL);
    test_half(3);
    test_half(2);
    test_flood();
    is_int(rig_leftovers("flood"), 0, "no segment is left behind");
    return done_testing();
}
