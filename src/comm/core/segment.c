#include "comm/core/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/shm.h"
#include "base/thread.h"
#include "kolo/error.h"

#define MAGIC 0x4b4f4c4f434f4d32ull

/* Each rank publishes how far it is; nobody goes on before all local ranks are there. */
enum stage { READY = 1, ATTACHED, ALLOCATED, MAPPED, UNLINKED, FAILED = 1000 };

static int segment_name(const kolo_launch *l, const char *kind, int local, char name[NAME_MAX])
{
    int n = snprintf(name, NAME_MAX, "/kolo-%s%s-%d-%d", l->job, kind, l->node, local);
    return n < NAME_MAX ? 0 : kolo_fail(KOLO_ELAUNCH, "comm: job name \"%s\" is too long", l->job);
}

static int fail_system(const char *what, const char *name)
{
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: %s /dev/shm%s failed: %s; free or enlarge /dev/shm, or run one rank a node", what,
                     name, strerror(errno));
}

/* Names of jobs cannot be guessed, but seen once the first rank has made its segment. 0: it is no other
 * user's (or nobody's). */
static int check_owner(const char *name)
{
    char path[NAME_MAX + 16];
    struct stat info;
    snprintf(path, sizeof path, "/dev/shm%s", name);
    if (lstat(path, &info) < 0 || info.st_uid == geteuid()) return 0;
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: /dev/shm%s belongs to user %u, who has taken a name of this job; start it again, "
                     "which gives it other names, and tell your support",
                     name, (unsigned)info.st_uid);
}

/* What a killed job of the same name may have left in the moment before its segments were unlinked. */
static int remove_stale(const char *name)
{
    for (int i = 0; i < 50; i++, usleep(10000)) {
        KOLO_TRY(check_owner(name));
        int fd = shm_open(name, O_RDWR, 0);
        if (fd < 0) return errno == ENOENT ? 0 : fail_system("opening", name);
        bool dead = flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (dead) shm_unlink(name);
        close(fd);
        if (dead) return 0;
    }
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: /dev/shm%s belongs to a living process: two jobs of one name on this node", name);
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

static int map(int fd, const char *name, size_t bytes, comm_segment_head **base)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED) return fail_system("mapping", name);
    *base = at;
    return 0;
}

static void introduce(const comm_segments *s)
{
    comm_segment_head *own = s->base[s->me];
    own->pid = (int32_t)getpid();
    own->rank = s->launch->rank;
    own->cpus = kolo_cpu_count();
    own->used = s->used;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) memcpy(own->cpu_mask, &set, sizeof own->cpu_mask);
    own->magic = MAGIC;
}
_Static_assert(sizeof(cpu_set_t) == sizeof((comm_segment_head *)0)->cpu_mask, "one bit a CPU");

static int fail_late(const comm_segments *s, int local, const char *how)
{
    return kolo_fail(
        KOLO_ELAUNCH,
        "comm: rank %d on host %s %s while the node's shared memory was set up; see its own message",
        s->rank_of[local], s->launch->host, how);
}

/* Opens a peer's segment once it is there, has its size and a living owner. */
static int attach(comm_segments *s, int local, double deadline)
{
    char name[NAME_MAX];
    KOLO_TRY(segment_name(s->launch, s->kind, local, name));
    for (int wait = 1;; wait = wait < 10 ? wait + 1 : wait, usleep(1000u * (useconds_t)wait)) {
        if (kolo_time() > deadline) return fail_late(s, local, "did not appear");
        KOLO_TRY(check_owner(name));
        int fd = shm_open(name, O_RDWR, 0);
        struct stat info;
        if (fd < 0 && errno != ENOENT) return fail_system("opening", name);
        if (fd < 0) continue;
        bool usable = fstat(fd, &info) == 0 && info.st_size > 0 && flock(fd, LOCK_SH | LOCK_NB) < 0;
        if (!usable) { /* too early, or left by a dead job: its new owner will replace it */
            close(fd);
            continue;
        }
        s->fd[local] = fd;
        if (info.st_uid != geteuid())
            return kolo_fail(KOLO_ELAUNCH, "comm: /dev/shm%s belongs to user %d", name, (int)info.st_uid);
        if ((size_t)info.st_size != s->bytes)
            return kolo_fail(KOLO_ECONFIG,
                             "comm: rank %d asks for a shared segment of %lld bytes, rank %d for %zu: the "
                             "ranks must agree on arena_bytes",
                             s->rank_of[local], (long long)info.st_size, s->launch->rank, s->bytes);
        return map(fd, name, s->bytes, &s->base[local]);
    }
}

static void set_stage(comm_segments *s, uint32_t stage)
{
    atomic_store(&s->base[s->me]->stage, stage);
    kolo_futex_wake(&s->base[s->me]->stage);
}

/* FAILED counts as reached by every stage; the caller looks. */
static int await_peer(comm_segments *s, int local, uint32_t stage, double deadline)
{
    _Atomic uint32_t *word = &s->base[local]->stage;
    for (uint32_t now; (now = atomic_load(word)) < stage;) {
        if (kolo_futex_wait(word, now, 0.25, 0)) continue;
        if (!comm_segment_alive(s, local) && atomic_load(word) < stage) return fail_late(s, local, "died");
        if (kolo_time() > deadline) return fail_late(s, local, "is late");
    }
    return 0;
}

static int await_stage(comm_segments *s, uint32_t stage, double deadline)
{
    for (int l = 0; l < s->ranks; l++) {
        KOLO_TRY(await_peer(s, l, stage, deadline));
        if (atomic_load(&s->base[l]->stage) == FAILED)
            return kolo_fail(KOLO_ECONFIG, "rank %d: %.*s", s->rank_of[l], COMM_TEXT - 1, s->base[l]->text);
    }
    return 0;
}

/* One rank looks before anyone allocates: a tmpfs that runs full kills by SIGBUS. */
static int check_space(const comm_segments *s)
{
    struct statvfs info;
    if (statvfs("/dev/shm", &info) < 0) return 0;
    double unit = 1 << 20, need = 0;
    for (int l = 0; l < s->ranks; l++) need += (double)s->base[l]->used / unit;
    double have = (double)info.f_bavail * (double)info.f_frsize / unit;
    if (need <= have) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "/dev/shm on host %s has %.1f MiB free, but %d ranks need %.1f MiB: %.1f MiB are missing; enlarge it "
        "(mount -o remount,size=...), remove leftovers there, or run fewer ranks a node",
        s->launch->host, have, s->ranks, need, need - have);
}

int comm_segment_allocate(const comm_segments *s, size_t offset, size_t bytes)
{
    int rc;
    if (!s->watched || s->fd[s->me] < 0) return 0; /* alone: not of a tmpfs */
    do rc = posix_fallocate(s->fd[s->me], (off_t)offset, (off_t)bytes);
    while (rc == EINTR);
    if (rc == 0) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "/dev/shm on host %s cannot hold %zu bytes for rank %d: %s; enlarge it "
                     "(mount -o remount,size=...) or run fewer ranks a node",
                     s->launch->host, bytes, s->launch->rank, strerror(rc));
}

int comm_segments_spin(const comm_segments *s)
{
    cpu_set_t all, one;
    CPU_ZERO(&all);
    for (int l = 0; l < s->ranks; l++) {
        memcpy(&one, s->base[l]->cpu_mask, sizeof one);
        CPU_OR(&all, &all, &one);
    }
    int cpus = CPU_COUNT(&all), own = 0;
    const comm_segment_head *mine = s->base[s->me];
    memcpy(&one, mine->cpu_mask, sizeof one);
    own = CPU_COUNT(&one);
    if (mine->cpus < own && mine->cpus < cpus) cpus = mine->cpus;
    if (own == 0 || cpus < s->ranks) return COMM_LOOKS_SHARED;
    /* between nodes the progress thread needs the CPU that a poll would burn */
    return s->launch->nodes == 1 ? COMM_LOOKS : COMM_LOOKS_NODES;
}

static int share(comm_segments *s, double deadline)
{
    set_stage(s, READY);
    for (int l = 0; l < s->ranks; l++)
        if (l != s->me) KOLO_TRY(attach(s, l, deadline));
    KOLO_TRY(await_stage(s, READY, deadline));
    set_stage(s, ATTACHED);
    if (s->me == 0) {
        KOLO_TRY(await_stage(s, ATTACHED, deadline));
        KOLO_TRY(check_space(s));
        KOLO_TRY(comm_segment_allocate(s, 0, s->used));
        set_stage(s, ALLOCATED);
    } else { /* the leader's allocation is the sign that there is room for all */
        KOLO_TRY(await_peer(s, 0, ALLOCATED, deadline));
        if (atomic_load(&s->base[0]->stage) != FAILED) KOLO_TRY(comm_segment_allocate(s, 0, s->used));
        set_stage(s, ALLOCATED);
    }
    KOLO_TRY(await_stage(s, ALLOCATED, deadline));
    kolo_pages_touch(s->base[s->me], s->used); /* of the others', what is read or written there later */
    set_stage(s, MAPPED);
    return await_stage(s, MAPPED, deadline);
}

static void sweep(void) { kolo_shm_sweep(KOLO_SHM_RANKS, NULL, NULL); }

static int open_shared(comm_segments *s, double deadline)
{
    char name[NAME_MAX];
    KOLO_TRY(segment_name(s->launch, s->kind, s->me, name));
    /* names of worlds, all of whose ranks on this node were killed while they opened */
    if (s->me == 0) sweep();
    int rc = create_own(name, s->bytes, s->head, &s->fd[s->me]);
    if (rc < 0) {
        if (s->fd[s->me] >= 0) shm_unlink(name);
        return rc;
    }
    KOLO_TRY_GOTO(rc, map(s->fd[s->me], name, s->bytes, &s->base[s->me]));
    introduce(s);
    KOLO_TRY_GOTO(rc, share(s, deadline));
    shm_unlink(name);
    set_stage(s, UNLINKED); /* only now may the names be used again */
    rc = await_stage(s, UNLINKED, deadline);
    if (rc < 0) sweep(); /* names of ranks that died meanwhile */
    return rc;
fail:
    shm_unlink(name);
    if (s->base[s->me]) {
        snprintf(s->base[s->me]->text, COMM_TEXT, "%s", kolo_error_text());
        set_stage(s, FAILED);
    }
    sweep();
    return rc;
}

static int open_alone(comm_segments *s)
{
    void *base = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return kolo_fail(KOLO_ENOMEM, "comm: cannot map %zu bytes: %s", s->bytes, strerror(errno));
    kolo_pages_touch(base, s->used);
    s->base[0] = base;
    introduce(s);
    return 0;
}

int comm_segments_open(comm_segments *s)
{
    for (int l = 0; l < s->ranks; l++) s->fd[l] = -1;
    s->watched = s->ranks > 1;
    return s->ranks == 1 ? open_alone(s) : open_shared(s, kolo_time() + s->timeout);
}

void comm_segments_forget(const kolo_launch *launch, const char *kind)
{
    char name[NAME_MAX];
    for (int l = 0; l < launch->local_size; l++)
        if (segment_name(launch, kind, l, name) == 0) shm_unlink(name);
}

void comm_segments_close(comm_segments *s, bool busy)
{
    if (s->base[s->me]) atomic_store(&s->base[s->me]->departed, 1);
    for (int l = 0; l < s->ranks; l++) {
        if (s->watched && s->fd[l] >= 0) close(s->fd[l]);
        if (s->base[l] && !busy) munmap(s->base[l], s->bytes);
        s->base[l] = NULL;
    }
    s->watched = false;
}

bool comm_segment_alive(const comm_segments *s, int local)
{
    if (!s->watched || local == s->me || s->fd[local] < 0) return true;
    if (flock(s->fd[local], LOCK_SH | LOCK_NB) < 0) return true;
    flock(s->fd[local], LOCK_UN);
    return false;
}
