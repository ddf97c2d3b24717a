#include "exec/offloaded.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "base/failure.h"
#include "exec/parts.h"
#include "kolo/error.h"

typedef struct job {
    char *memory;
    size_t offset, bytes;
    bool writes;
} job;

struct exec_offloaded {
    kolo_backend *backend;
    /* devices: host memory, and events: the lane may begin, and copy number n is done, [jobs] */
    void *host;
    size_t bytes;
    kolo_event *ready, **copied;
    /* CPUs */
    int fd;
    job *job; /* [jobs] number n in job[n % jobs] */
    int64_t jobs;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock;
    pthread_cond_t asked, finished;
    int64_t given, done; /* jobs so far */
    bool ends;
    kolo_failure failure; /* the first; status 0: none */
};

/* Written pages leave for the disk at once, and what was read is not needed there again. */
static int copy(const exec_offloaded *o, const job *j)
{
    if (j->writes) {
        KOLO_TRY(kolo_file_pwrite(o->fd, "offload_path", j->memory, j->bytes, j->offset));
        sync_file_range(o->fd, (off_t)j->offset, (off_t)j->bytes, SYNC_FILE_RANGE_WRITE);
        return 0;
    }
    KOLO_TRY(kolo_file_pread(o->fd, "offload_path", j->memory, j->bytes, j->offset));
    posix_fadvise(o->fd, (off_t)j->offset, (off_t)j->bytes, POSIX_FADV_DONTNEED);
    return 0;
}

static void *work(void *of)
{
    exec_offloaded *o = of;
    pthread_mutex_lock(&o->lock);
    for (;;) {
        while (o->done == o->given && !o->ends) pthread_cond_wait(&o->asked, &o->lock);
        if (o->done == o->given) break;
        const job j = o->job[o->done % o->jobs];
        const bool well = o->failure.status == 0;
        pthread_mutex_unlock(&o->lock);
        const int rc = well ? copy(o, &j) : 0;
        pthread_mutex_lock(&o->lock);
        if (rc < 0) kolo_error_keep(&o->failure);
        o->done++;
        pthread_cond_broadcast(&o->finished);
    }
    pthread_mutex_unlock(&o->lock);
    return NULL;
}

/* ---- the file ---- */

static int open_file(exec_offloaded *o, const char *folder, size_t bytes)
{
    struct statfs of;
    KOLO_TRY(exec_offload_file(folder, bytes, "activations", &o->fd));
    if (fstatfs(o->fd, &of) == 0 && (of.f_type == TMPFS_MAGIC || of.f_type == RAMFS_MAGIC))
        kolo_warn("offload_path=%s is memory itself (tmpfs): give a folder on a disk", folder);
    return 0;
}

/* ---- devices ---- */

static int open_host(exec_offloaded *o, size_t bytes)
{
    o->bytes = bytes;
    o->host = kolo_pages_alloc(bytes);
    o->copied = kolo_alloc((size_t)o->jobs * sizeof(kolo_event *));
    if (!o->host || !o->copied) return KOLO_ENOMEM;
    KOLO_TRY(kolo_backend_pin(o->backend, o->host, bytes));
    KOLO_TRY(kolo_event_create(o->backend, &o->ready, false));
    for (int64_t i = 0; i < o->jobs; i++) KOLO_TRY(kolo_event_create(o->backend, &o->copied[i], false));
    return 0;
}

static void close_host(exec_offloaded *o)
{
    for (int64_t i = 0; o->copied && i < o->jobs; i++) kolo_event_destroy(&o->copied[i]);
    kolo_event_destroy(&o->ready);
    if (o->host) kolo_backend_unpin(o->backend, o->host);
    kolo_pages_free(&o->host, o->bytes);
    free(o->copied);
}

/* Behind all that was enqueued so far. */
static int enqueue(exec_offloaded *o, const job *j, int64_t *number)
{
    char *host = (char *)o->host + j->offset;
    *number = o->given++;
    KOLO_TRY(kolo_event_record(o->ready, KOLO_LANE_COMPUTE));
    KOLO_TRY(kolo_event_after(o->ready, KOLO_LANE_ASIDE));
    KOLO_TRY(kolo_backend_copy(o->backend, KOLO_LANE_ASIDE, j->writes ? host : j->memory,
                               j->writes ? j->memory : host, j->bytes));
    return kolo_event_record(o->copied[*number % o->jobs], KOLO_LANE_ASIDE);
}

/* ---- both ---- */

int exec_offloaded_open(exec_offloaded **offloaded, kolo_backend *backend, const char *folder, size_t bytes,
                        int64_t jobs)
{
    exec_offloaded *o = *offloaded = kolo_alloc(sizeof *o);
    int rc;
    if (!o) return KOLO_ENOMEM;
    o->backend = backend;
    o->fd = -1;
    o->jobs = jobs + 1;
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->asked, NULL);
    pthread_cond_init(&o->finished, NULL);
    if (kolo_backend_is_host(backend)) {
        o->job = kolo_alloc((size_t)o->jobs * sizeof *o->job);
        rc = o->job ? open_file(o, folder, bytes) : KOLO_ENOMEM;
        if (rc == 0) rc = kolo_thread_start(&o->thread, work, o, "exec: offloaded activations");
        o->runs = rc == 0;
    } else rc = open_host(o, bytes);
    if (rc < 0) exec_offloaded_close(offloaded);
    return rc;
}

void exec_offloaded_close(exec_offloaded **offloaded)
{
    exec_offloaded *o = *offloaded;
    if (!o) return;
    if (o->runs) {
        pthread_mutex_lock(&o->lock);
        o->ends = true;
        pthread_cond_broadcast(&o->asked);
        pthread_mutex_unlock(&o->lock);
        pthread_join(o->thread, NULL);
    }
    close_host(o);
    if (o->fd >= 0) close(o->fd);
    pthread_mutex_destroy(&o->lock);
    pthread_cond_destroy(&o->asked);
    pthread_cond_destroy(&o->finished);
    free(o->job);
    free(o);
    *offloaded = NULL;
}

/* ---- copies ---- */

static int ask(exec_offloaded *o, job j, int64_t *number)
{
    if (o->host) return enqueue(o, &j, number);
    pthread_mutex_lock(&o->lock);
    const bool room = o->given - o->done < o->jobs;
    if (room) o->job[o->given % o->jobs] = j;
    if (room) *number = o->given++;
    pthread_cond_broadcast(&o->asked);
    pthread_mutex_unlock(&o->lock);
    return room ? 0
                : kolo_fail(KOLO_EINTERNAL, "exec: more copies of offloaded activations than the plan has");
}

int exec_offloaded_write(exec_offloaded *o, void *memory, size_t offset, size_t bytes, int64_t *number)
{
    return ask(o, (job){memory, offset, bytes, true}, number);
}

int exec_offloaded_read(exec_offloaded *o, void *memory, size_t offset, size_t bytes, int64_t *number)
{
    return ask(o, (job){memory, offset, bytes, false}, number);
}

int exec_offloaded_wait(exec_offloaded *o, int64_t number)
{
    if (o->host) return kolo_event_after(o->copied[number % o->jobs], KOLO_LANE_COMPUTE);
    pthread_mutex_lock(&o->lock);
    while (o->done <= number) pthread_cond_wait(&o->finished, &o->lock);
    const int status = o->failure.status;
    if (status < 0) kolo_error_restore(&o->failure, status);
    pthread_mutex_unlock(&o->lock);
    return status < 0 ? kolo_fail_in(status, "offload=activations: ") : 0;
}
