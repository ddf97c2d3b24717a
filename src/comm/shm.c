#include "comm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"

#define MAGIC 0x4b4f4c4f434f4d31ull

/* Each rank publishes how far it is; nobody goes on before all local ranks are there. */
enum stage { READY = 1, ATTACHED, ALLOCATED, MAPPED, UNLINKED, FAILED = 1000 };

static void pause_ms(int ms)
{
    struct timespec t = {0, ms * 1000000L};
    nanosleep(&t, NULL);
}

static int segment_name(const comm_node *node, int local, char *name, size_t bytes)
{
    int n = snprintf(name, bytes, "/kolo-%s-%d-%d", node->launch->job, node->launch->node, local);
    return n < (int)bytes ? 0 : kolo_fail(KOLO_ELAUNCH, "comm: job name \"%s\" is too long", node->launch->job);
}

static int fail_system(const char *what, const char *name)
{
    return kolo_fail(KOLO_ELAUNCH, "comm: %s /dev/shm%s failed: %s; free or enlarge /dev/shm, or run one rank a node",
                     what, name, strerror(errno));
}

/* What a killed job of the same name may have left in the moment before its segments were unlinked. */
static int remove_stale(const char *name)
{
    for (int i = 0; i < 50; i++, pause_ms(10)) {
        int fd = shm_open(name, O_RDWR, 0);
        if (fd < 0) return errno == ENOENT ? 0 : fail_system("opening", name);
        bool dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (dead) shm_unlink(name);
        close(fd);
        if (dead) return 0;
    }
    return kolo_fail(KOLO_ELAUNCH, "comm: /dev/shm%s belongs to a living process: two jobs of one name on this node",
                     name);
}

static int create_own(const char *name, size_t bytes, size_t head, int *out)
{
    int fd = -1;
    for (int i = 0; i < 3 && fd < 0; i++) {
        fd = shm_open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        if (fd < 0 && errno != EEXIST) return fail_system("creating", name);
        if (fd < 0) KOLO_TRY(remove_stale(name));
    }
    if (fd < 0) return fail_system("creating", name);
    *out = fd;
    /* the lock stands before the size, so a segment of some size without a lock is a dead one's */
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) return fail_system("locking", name);
    if (ftruncate(fd, (off_t)bytes) < 0) return fail_system("sizing", name);
    int rc = posix_fallocate(fd, 0, (off_t)head);
    if (rc) {
        errno = rc;
        return fail_system("allocating", name);
    }
    return 0;
}

static int map(int fd, const char *name, size_t bytes, void **base)
{
    *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (*base != MAP_FAILED) return 0;
    *base = NULL;
    return fail_system("mapping", name);
}

static void introduce(comm_node *node, comm_control *own, size_t arena_bytes)
{
    own->arena_bytes = arena_bytes;
    own->pid = (int32_t)getpid();
    own->rank = node->launch->rank;
    own->cpus = kolo_cpu_count();
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) memcpy(own->cpu_mask, &set, sizeof own->cpu_mask);
    atomic_store(&own->lagging, -1);
    own->magic = MAGIC;
}
_Static_assert(sizeof(cpu_set_t) == sizeof((comm_control *)0)->cpu_mask, "one bit a CPU");

static int fail_late(const comm_node *node, int local, const char *how)
{
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: rank %d on host %s %s while the node's shared memory was set up; see its own message",
                     node->rank_of[local], node->launch->host, how);
}

/* Opens a peer's segment once it is there, has its size and a living owner. */
static int attach(comm_node *node, int local, double deadline)
{
    char name[NAME_MAX];
    KOLO_TRY(segment_name(node, local, name, sizeof name));
    for (int wait = 1;; wait = wait < 10 ? wait + 1 : wait, pause_ms(wait)) {
        if (kolo_time() > deadline) return fail_late(node, local, "did not appear");
        int fd = shm_open(name, O_RDWR, 0);
        struct stat info;
        if (fd < 0 && errno != ENOENT) return fail_system("opening", name);
        if (fd < 0) continue;
        bool usable = fstat(fd, &info) == 0 && info.st_size > 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
        if (!usable) { /* too early, or left by a dead job: its new owner will replace it */
            close(fd);
            continue;
        }
        node->fd[local] = fd;
        if (info.st_uid != geteuid())
            return kolo_fail(KOLO_ELAUNCH, "comm: /dev/shm%s belongs to user %d", name, (int)info.st_uid);
        if ((size_t)info.st_size != node->segment_bytes)
            return kolo_fail(KOLO_ECONFIG,
                             "comm: rank %d asks for a shared segment of %lld bytes, rank %d for %zu: the "
                             "ranks must agree on arena_bytes",
                             node->rank_of[local], (long long)info.st_size, node->launch->rank, node->segment_bytes);
        return map(fd, name, node->segment_bytes, (void **)&node->control[local]);
    }
}

static void set_stage(comm_node *node, uint32_t stage)
{
    atomic_store(&node->control[node->me]->stage, stage);
    kolo_futex_wake(&node->control[node->me]->stage);
}

/* FAILED counts as reached by every stage; the caller looks. */
static int await_peer(comm_node *node, int local, uint32_t stage, double deadline)
{
    _Atomic uint32_t *word = &node->control[local]->stage;
    for (uint32_t now; (now = atomic_load(word)) < stage;) {
        if (kolo_futex_wait(word, now, 0.25, 0)) continue;
        if (!comm_node_alive(node, local) && atomic_load(word) < stage) return fail_late(node, local, "died");
        if (kolo_time() > deadline) return fail_late(node, local, "is late");
    }
    return 0;
}

static int await_stage(comm_node *node, uint32_t stage, double deadline)
{
    for (int l = 0; l < node->ranks; l++) {
        KOLO_TRY(await_peer(node, l, stage, deadline));
        if (atomic_load(&node->control[l]->stage) == FAILED)
            return kolo_fail(KOLO_ECONFIG, "rank %d: %.*s", node->rank_of[l], COMM_TEXT - 1, node->control[l]->text);
    }
    return 0;
}

/* One rank looks before anyone allocates: a tmpfs that runs full kills by SIGBUS. */
static int check_space(const comm_node *node)
{
    struct statvfs info;
    if (statvfs("/dev/shm", &info) < 0) return 0;
    double unit = 1 << 20, need = (double)node->segment_bytes * node->ranks / unit;
    double have = (double)info.f_bavail * (double)info.f_frsize / unit;
    if (need <= have) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "/dev/shm on host %s has %.1f MiB free, but %d ranks need %.1f MiB: %.1f MiB are missing; enlarge it "
        "(mount -o remount,size=...), remove leftovers there, or run fewer ranks a node",
        node->launch->host, have, node->ranks, need, need - have);
}

static int allocate(const comm_node *node, int fd)
{
    int rc;
    do rc = posix_fallocate(fd, 0, (off_t)node->segment_bytes);
    while (rc == EINTR);
    if (rc == 0) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "/dev/shm on host %s cannot hold %zu bytes for rank %d: %s; enlarge it "
                     "(mount -o remount,size=...) or run fewer ranks a node",
                     node->launch->host, node->segment_bytes, node->launch->rank, strerror(rc));
}

/* Polls before a sleep: many where every rank has a CPU of its own, hardly any where they compete. */
static int choose_spin(const comm_node *node)
{
    cpu_set_t all, one;
    CPU_ZERO(&all);
    for (int l = 0; l < node->ranks; l++) {
        memcpy(&one, node->control[l]->cpu_mask, sizeof one);
        CPU_OR(&all, &all, &one);
    }
    int cpus = CPU_COUNT(&all), own = 0;
    memcpy(&one, node->control[node->me]->cpu_mask, sizeof one);
    own = CPU_COUNT(&one);
    if (node->control[node->me]->cpus < own && node->control[node->me]->cpus < cpus)
        cpus = node->control[node->me]->cpus;
    if (own == 0 || cpus < node->ranks) return 50;
    return node->nodes == 1 ? 20000 : 300; /* between nodes the progress thread needs the CPU that a poll would burn */
}

static int share(comm_node *node, double deadline)
{
    set_stage(node, READY);
    for (int l = 0; l < node->ranks; l++)
        if (l != node->me) KOLO_TRY(attach(node, l, deadline));
    KOLO_TRY(await_stage(node, READY, deadline));
    set_stage(node, ATTACHED);
    if (node->me == 0) {
        KOLO_TRY(await_stage(node, ATTACHED, deadline));
        KOLO_TRY(check_space(node));
        KOLO_TRY(allocate(node, node->fd[0]));
        set_stage(node, ALLOCATED);
    } else { /* the leader's allocation is the sign that there is room for all */
        KOLO_TRY(await_peer(node, 0, ALLOCATED, deadline));
        if (atomic_load(&node->control[0]->stage) != FAILED) KOLO_TRY(allocate(node, node->fd[node->me]));
        set_stage(node, ALLOCATED);
    }
    KOLO_TRY(await_stage(node, ALLOCATED, deadline));
    for (int l = 0; l < node->ranks; l++) {
        node->arena[l] = (char *)node->control[l] + node->arena_offset;
        kolo_pages_touch(node->control[l], node->segment_bytes);
    }
    set_stage(node, MAPPED);
    return await_stage(node, MAPPED, deadline);
}

static int open_shared(comm_node *node, size_t arena_bytes, double deadline)
{
    char name[NAME_MAX];
    KOLO_TRY(segment_name(node, node->me, name, sizeof name));
    int rc = create_own(name, node->segment_bytes, node->arena_offset, &node->fd[node->me]);
    if (rc < 0) {
        if (node->fd[node->me] >= 0) shm_unlink(name);
        return rc;
    }
    KOLO_TRY_GOTO(rc, map(node->fd[node->me], name, node->segment_bytes, (void **)&node->control[node->me]));
    introduce(node, node->control[node->me], arena_bytes);
    KOLO_TRY_GOTO(rc, share(node, deadline));
    shm_unlink(name);
    set_stage(node, UNLINKED); /* only now may the names be used again */
    return await_stage(node, UNLINKED, deadline);
fail:
    shm_unlink(name);
    if (node->control[node->me]) {
        snprintf(node->control[node->me]->text, COMM_TEXT, "%s", kolo_error_text());
        set_stage(node, FAILED);
    }
    return rc;
}

static int open_alone(comm_node *node, size_t arena_bytes)
{
    void *base = mmap(NULL, node->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return kolo_fail(KOLO_ECONFIG, "comm: cannot map %zu bytes: %s", node->segment_bytes, strerror(errno));
    kolo_pages_touch(base, node->segment_bytes);
    node->control[0] = base;
    node->arena[0] = (char *)base + node->arena_offset;
    introduce(node, node->control[0], arena_bytes);
    return 0;
}

int comm_shm_open(comm_node *node, size_t arena_bytes, size_t collect_bytes)
{
    node->control = kolo_alloc((size_t)node->ranks * sizeof *node->control);
    node->arena = kolo_alloc((size_t)node->ranks * sizeof *node->arena);
    node->fd = kolo_alloc((size_t)node->ranks * sizeof *node->fd);
    if (!node->control || !node->arena || !node->fd) return KOLO_ECONFIG;
    for (int l = 0; l < node->ranks; l++) node->fd[l] = -1;
    node->collect_offset = kolo_round_up(sizeof(comm_control), 4096);
    node->arena_offset = kolo_round_up(node->collect_offset + collect_bytes, 4096);
    node->segment_bytes = kolo_round_up(node->arena_offset + arena_bytes, 4096);
    KOLO_TRY(node->ranks == 1 ? open_alone(node, arena_bytes)
                              : open_shared(node, arena_bytes, kolo_time() + node->timeout));
    if (node->spin < 0) node->spin = choose_spin(node);
    return 0;
}

void comm_shm_close(comm_node *node, bool busy)
{
    if (node->control && node->control[node->me]) atomic_store(&node->control[node->me]->departed, 1);
    for (int l = 0; l < node->ranks; l++) {
        if (node->fd && node->fd[l] >= 0) close(node->fd[l]);
        if (node->control && node->control[l] && !busy) munmap(node->control[l], node->segment_bytes);
    }
    free(node->control);
    free(node->arena);
    free(node->fd);
    node->control = NULL;
    node->arena = NULL;
    node->fd = NULL;
}
