#include "launch/watch.h"
#include "launch/far.h"

#include "base/memory.h"
#include "base/shm.h"
#include "base/thread.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static const double LOOK_EVERY = 0.2, ABSENT = 1, LOCKED = 1, CALL_AFTER = 1, HEARTBEAT_TIMEOUT = 8,
                    FIRST = 0.5; /* seconds; the first two at most */
static const char folder[] = "/dev/shm", prefix[] = "kolo-launch-";
enum { LISTED = 8, TRIES = 16 };

/* Of a rank; written by its owner. */
typedef struct entry {
    _Alignas(64) _Atomic int64_t beat; /* ns of kolo_time; 0: it has not come */
    _Atomic int32_t pid;
    _Atomic uint32_t entered; /* waits for all ranks that it has begun */
    _Atomic uint32_t left;    /* it has ended in good order */
} entry;

struct launch_watch {
    kolo_launch *launch;
    kolo_launch_limits limits;
    int rank, size;
    bool *here; /* [size] by the launcher's word: of this node */
    entry *all; /* [size] */
    char path[128];
    int file; /* path, locked */
    pthread_t thread;
    bool runs;
    _Atomic uint32_t stop;
    _Atomic int64_t since;     /* ns: this rank waits since then; 0: it does not */
    _Atomic uint32_t wait;     /* which one, from 1 on */
    _Atomic double limit;      /* seconds that those who live are waited for; 0: as long as it takes */
    const char *_Atomic where; /* what it waits in */
    pthread_mutex_t
        checking; /* held by the thread while it asks and checks the others: what it needs stays */
    /* seconds between two looks; from which absence on this process knows that it was away. Both are parts of
     * the heartbeat_timeout: who misses another's heartbeats has given its own all that time, and what keeps
     * all ranks of a node from running is held against none of them */
    double look_every, absent;
    uint32_t called; /* the thread's: the last wait that it has announced to others */
    double looked, stood_up;
    launch_far *_Atomic far; /* NULL: other nodes are not looked at */
};

static double seconds_of(int64_t ns) { return 1e-9 * (double)ns; }
static int64_t ns_now(void) { return (int64_t)(1e9 * kolo_time()); }

static void beat(launch_watch *w) { atomic_store(&w->all[w->rank].beat, ns_now()); }

void launch_watch_nap(launch_watch *w, double seconds)
{
    const double until = kolo_time() + seconds;
    while (kolo_time() < until && !kolo_futex_wait(&w->stop, 0, w->look_every / 2, 0)) beat(w);
}

/* ---- where the ranks of a node meet ----------------------------------------------------------------- */

/* Of a process; false: there is none. */
typedef struct process {
    char state;
    int parent;
    unsigned long long start; /* clock ticks since boot */
} process;

static bool look_up(int pid, process *p)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    const char *after = strrchr(text, ')'); /* pid (command) state ppid ... start is the 22nd */
    return after && sscanf(after + 1,
                           " %c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
                           &p->state, &p->parent, &p->start) == 3;
}

/* The launcher's process on this node, the same for all its ranks: who made the socket of PMI, Slurm's
 * manager of the step, else the parent. */
static int launcher(void)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    const int fd = kolo_env_int("PMI_FD", -1), task = kolo_env_int("SLURM_TASK_PID", 0);
    int rank, size;
    process manager;
    if (fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.pid > 0)
        return peer.pid;
    if (kolo_slurm_step(&rank, &size) && task > 0 && look_up(task, &manager) && manager.parent > 1)
        return manager.parent;
    return getppid();
}

static bool is_there(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && info.st_nlink > 0;
}

/* Nobody else's file: another user could have made one of that name. Locked as long as this process lives, by
 * which distinguishes it from what a killed launch has left; one that was just removed as such is created
 * again. */
static int open_locked(const char *path)
{
    for (int i = 0; i < TRIES; i++) {
        const int fd = kolo_shm_open_own(strrchr(path, '/'));
        if (fd < 0) return -1;
        if (kolo_shm_lock(fd, LOCK_SH, LOCKED) == 1 && is_there(fd)) return fd;
        close(fd);
    }
    return -1;
}

static bool map_file(launch_watch *w)
{
    const size_t bytes = (size_t)w->size * sizeof *w->all;
    const int fd = w->file = open_locked(w->path);
    if (fd < 0) return false;
    void *memory = ftruncate(fd, (off_t)bytes) == 0
                       ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    /* a full /dev/shm shows here, not as a signal later */
    const bool room = memory != MAP_FAILED &&
                      posix_fallocate(fd, (off_t)(sizeof *w->all * (size_t)w->rank), sizeof *w->all) == 0;
    if (memory != MAP_FAILED && !room) munmap(memory, bytes);
    if (room) w->all = memory;
    else close(fd);
    return room;
}

/* ---- which ranks are of this node, before anybody is asked ------------------------------------------ */

static void mark_listed(launch_watch *w, const char *list)
{
    for (const char *at = list; *at;) {
        char *end;
        const long r = strtol(at, &end, 10);
        if (end == at) return;
        if (r >= 0 && r < w->size) w->here[r] = true;
        at = *end ? end + 1 : end;
    }
}

/* Slurm lists them; the others deal them out in blocks. */
static void mark_here(launch_watch *w, bool slurm)
{
    const char *list = getenv("SLURM_GTIDS");
    const bool ompi = getenv("OMPI_COMM_WORLD_RANK") != NULL;
    const int count = kolo_env_int(ompi ? "OMPI_COMM_WORLD_LOCAL_SIZE" : "MPI_LOCALNRANKS", 0),
              local = kolo_env_int(ompi ? "OMPI_COMM_WORLD_LOCAL_RANK" : "MPI_LOCALRANKID", 0);
    if (slurm && list) mark_listed(w, list);
    else
        for (int r = w->rank - local; r < w->rank - local + count; r++)
            if (r >= 0 && r < w->size) w->here[r] = true;
    w->here[w->rank] = true;
}

/* As the environment says it; false: nobody is to be waited for. */
static bool find_rank(const kolo_method *method, int *rank, int *size, bool *slurm)
{
    *slurm = kolo_slurm_step(rank, size);
    if (getenv("PMI_RANK") && method == &kolo_method_mpi) {
        *rank = kolo_env_int("PMI_RANK", 0);
        *size = kolo_env_int("PMI_SIZE", 1);
        *slurm = *slurm && !getenv("MPI_LOCALNRANKS");
    }
    const bool ompi = getenv("OMPI_COMM_WORLD_RANK") != NULL; /* Open MPI's mpiexec */
    if (ompi && method != &kolo_method_single) {
        *rank = kolo_env_int("OMPI_COMM_WORLD_RANK", 0);
        *size = kolo_env_int("OMPI_COMM_WORLD_SIZE", 1);
        *slurm = false;
    } else if (method == &kolo_method_pmix && *slurm) {
        *rank = kolo_env_int("PMIX_RANK", *rank);
    }
    return (*slurm || ompi || getenv("PMI_RANK")) && *size > 1 && *rank >= 0 && *rank < *size;
}

/* ---- what is said ----------------------------------------------------------------------------------- */

static const char *host_of(const launch_watch *w, int rank)
{
    const kolo_launch *l = w->launch;
    return l->host_of && l->node_of ? l->host_of[l->node_of[rank]] : kolo_state(w->launch)->me.name;
}

/* One rank reports: waits a moment for the lowest living rank of this node, and for the node of rank 0. */
static void await_lower_ranks(launch_watch *w)
{
    int lowest = 0;
    while (lowest < w->rank && atomic_load(&w->all[lowest].beat) == 0) lowest++;
    for (; lowest < w->rank; lowest++)
        if (kolo_time() - seconds_of(atomic_load(&w->all[lowest].beat)) < 4 * w->look_every) break;
    launch_watch_nap(w, (lowest < w->rank ? FIRST : 0) + (w->here[0] ? 0 : 2 * FIRST));
}

static void end(launch_watch *w, double waited, const char *who, const char *cure)
{
    char text[2048];
    const uint32_t wait = atomic_load(&w->wait);
    const char *where = atomic_load(&w->where);
    await_lower_ranks(w);
    if (atomic_load(&w->stop) || !atomic_load(&w->since) || atomic_load(&w->wait) != wait)
        return; /* it came */
    snprintf(text, sizeof text, "launch: no progress in %s for %.0f s: %s%s", where, waited, who, cure);
    w->limits.end(w->launch, text);
}

/* ---- looking ---------------------------------------------------------------------------------------- */

/* Ranks of this node without a heartbeat. */
static bool find_stopped(launch_watch *w, double now, double waited)
{
    char who[1024] = "";
    int found = 0;
    for (int r = 0; r < w->size; r++) {
        const entry *e = &w->all[r];
        const double beat = seconds_of(atomic_load(&e->beat));
        if (r == w->rank || beat == 0 || atomic_load(&e->left)) continue;
        const double silent = now - (beat > w->stood_up ? beat : w->stood_up);
        if (silent < w->limits.heartbeat_timeout) continue;
        process p = {0};
        const int pid = atomic_load(&e->pid);
        const bool there = look_up(pid, &p);
        if (found++ < LISTED)
            kolo_append(who, sizeof who, "%srank %d on host %s (pid %d) %s: no heartbeat for %.0f s",
                        found > 1 ? "; " : "", r, host_of(w, r), pid,
                        !there || p.state == 'Z'           ? "died"
                        : p.state == 'T' || p.state == 't' ? "was stopped"
                                                           : "hangs",
                        silent);
    }
    for (int r = 0; r < w->size && w->far; r++) {
        const double silent = w->here[r] ? 0 : launch_far_silent(w->far, r, w->stood_up);
        if (silent == 0 || found++ >= LISTED) continue;
        const char *much = "was stopped, or its node is lost: no heartbeat for";
        kolo_append(who, sizeof who, "%srank %d on host %s %s %.0f s", found > 1 ? "; " : "", r,
                    host_of(w, r), much, silent);
    }
    if (found > LISTED) kolo_append(who, sizeof who, "; and %d more", found - LISTED);
    if (found) end(w, waited, who, "; the job is ended");
    return found > 0;
}

/* Who has not come to this wait. */
static void name_missing(launch_watch *w, double waited)
{
    char who[2048] = "", host[256];
    int missing = 0;
    const uint32_t wait = atomic_load(&w->wait);
    kolo_launch_state *state = kolo_state(w->launch);
    bool *absent = kolo_alloc((size_t)w->size * sizeof *absent), asked = false;
    if (!absent) return;
    if (state->method->absent) asked = state->method->absent(w->launch, wait, w->here, absent);
    for (int r = 0; r < w->size; r++) {
        const entry *e = &w->all[r];
        const bool came = atomic_load(&e->beat) != 0;
        if (w->here[r] ? atomic_load(&e->entered) >= wait : !absent[r]) continue;
        if (missing++ >= LISTED) continue;
        snprintf(host, sizeof host, "%s", w->here[r] ? state->me.name : host_of(w, r));
        if (!w->here[r] && !w->launch->host_of && state->method->host)
            state->method->host(w->launch, r, host, sizeof host);
        kolo_append(who, sizeof who, "%srank %d on host %s", missing > 1 ? "; " : "", r, host);
        if (w->here[r] && came)
            kolo_append(who, sizeof who, " (pid %d) has not come there", (int)atomic_load(&e->pid));
        else
            kolo_append(who, sizeof who,
                        w->here[r] ? " has not begun, or was stopped before it could"
                                   : " has not come there, or was stopped");
    }
    if (missing > LISTED) kolo_append(who, sizeof who, "; and %d more", missing - LISTED);
    if (!missing)
        snprintf(who, sizeof who, "the ranks on host %s are all there, so %s", state->me.name,
                 asked ? "the network between the nodes, or the launcher, hangs"
                       : "one on another node is missing: see its log");
    free(absent);
    end(w, waited, who, "; the job is ended. A slow but healthy start needs a larger comm_timeout=");
}

/* This rank waits, and does so until `judging` is free again, or longer. */
static void watch_check_ranks(launch_watch *w, double now)
{
    const uint32_t wait = atomic_load(&w->wait);
    const double limit = atomic_load(&w->limit), began = seconds_of(atomic_load(&w->since));
    const double waited = now - (began > w->stood_up ? began : w->stood_up);
    kolo_launch_state *state = kolo_state(w->launch);
    if (limit > 0 && waited > CALL_AFTER && w->called != wait && state->method->call) {
        w->called = wait;
        state->method->call(w->launch, wait);
    }
    if (!find_stopped(w, now, waited) && limit > 0 && waited > limit + CALL_AFTER) name_missing(w, waited);
}

static void watch_poll(launch_watch *w)
{
    const double now = kolo_time();
    beat(w);
    if (w->looked > 0 && now - w->looked > w->absent) w->stood_up = now; /* this process itself was away */
    launch_far *far = atomic_load(&w->far);
    if (far) launch_far_beat(far, atomic_load(&w->since) != 0);
    pthread_mutex_lock(&w->checking);
    if (atomic_load(&w->since)) watch_check_ranks(w, now);
    pthread_mutex_unlock(&w->checking);
    w->looked = kolo_time();
}

static void *watch_main(void *of)
{
    launch_watch *w = of;
    while (!kolo_futex_wait(&w->stop, 0, w->look_every, 0)) watch_poll(w);
    return NULL;
}

/* ---- opening and closing ---------------------------------------------------------------------------- */

launch_watch *launch_watch_open(kolo_launch *launch, const kolo_launch_limits *limits)
{
    int rank, size;
    bool slurm;
    process above = {0};
    const int parent = launcher();
    if (!limits || !limits->end || !find_rank(kolo_state(launch)->method, &rank, &size, &slurm)) return NULL;
    launch_watch *w = kolo_alloc(sizeof *w);
    if (!w || !look_up(parent, &above)) {
        free(w);
        return NULL;
    }
    *w =
        (launch_watch){.launch = launch, .limits = *limits, .rank = rank, .size = size, .where = "the start"};
    pthread_mutex_init(&w->checking, NULL);
    if (!(w->limits.heartbeat_timeout > 0)) w->limits.heartbeat_timeout = HEARTBEAT_TIMEOUT;
    if (w->limits.start > 0 && w->limits.heartbeat_timeout > w->limits.start)
        w->limits.heartbeat_timeout = w->limits.start;
    w->look_every = fmin(LOOK_EVERY, w->limits.heartbeat_timeout / 6);
    w->absent = fmin(ABSENT, w->limits.heartbeat_timeout / 2);
    snprintf(w->path, sizeof w->path, "%s/%s%u-%d-%llu", folder, prefix, (unsigned)geteuid(), parent,
             above.start);
    kolo_shm_sweep(KOLO_SHM_LAUNCHES, NULL, NULL);
    w->here = kolo_alloc((size_t)size * sizeof *w->here);
    if (!w->here || !map_file(w)) {
        free(w->here);
        free(w);
        return NULL;
    }
    mark_here(w, slurm);
    atomic_store(&w->all[rank].pid, (int32_t)getpid());
    beat(w);
    w->runs = kolo_thread_start(&w->thread, watch_main, w, "kolo-launch") == 0;
    if (!w->runs) launch_watch_close(&w);
    return w;
}

void launch_watch_complete(launch_watch *w)
{
    if (!w) return;
    for (int r = 0; r < w->size; r++) w->here[r] = w->launch->node_of[r] == w->launch->node;
    unlink(w->path);
}

void launch_watch_beat_at(launch_watch *w, const char *path)
{
    if (!w->far) w->far = launch_far_open(w->rank, w->size, w->limits.heartbeat_timeout);
    if (!w->far) return;
    launch_far_move(w->far, path);
    launch_far_beat(w->far, false);
}

void launch_watch_close(launch_watch **watch)
{
    launch_watch *w = *watch;
    if (!w) return;
    atomic_store(&w->stop, 1);
    kolo_futex_wake(&w->stop);
    if (w->runs) pthread_join(w->thread, NULL);
    atomic_store(&w->all[w->rank].left, 1);
    unlink(w->path); /* of a launch that failed */
    munmap(w->all, (size_t)w->size * sizeof *w->all);
    close(w->file);
    launch_far *far = w->far;
    if (far) launch_far_leave(far);
    launch_far_close(&far);
    pthread_mutex_destroy(&w->checking);
    free(w->here);
    free(w);
    *watch = NULL;
}

void launch_watch_begin(launch_watch *w, const char *where, enum launch_limit limit)
{
    if (!w) return;
    atomic_store(&w->limit, limit == LAUNCH_START   ? w->limits.start
                            : limit == LAUNCH_LATER ? w->limits.later
                                                    : 0);
    atomic_store(&w->where, where);
    atomic_store(&w->all[w->rank].entered, atomic_fetch_add(&w->wait, 1) + 1);
    atomic_store(&w->since, ns_now());
}

void launch_watch_end(launch_watch *w)
{
    if (!w) return;
    atomic_store(&w->since, 0);
    pthread_mutex_lock(&w->checking);
    pthread_mutex_unlock(&w->checking);
}
