/* A Chrome trace of this rank. A thread that has an event puts it into a list and goes on; a thread takes the
 * list, a few times a second, and writes it as text, so a file is readable whenever its process ends: the
 * format allows that the end of the array is missing. */
#include "comm/library/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"

enum {
    EVENTS = 1 << 14,  /* of a list */
    BELL = EVENTS / 4, /* so many wake the writer */
    TEXT = 64 << 10,   /* bytes a write */
};
static const double pause_seconds = 0.25; /* what a killed rank loses at most, as long as its disk keeps up */

struct lib_timeline {
    pthread_mutex_t lock; /* of what stands up to `lost`; held for a copy, or the exchange of the two lists */
    lib_event *list;      /* [EVENTS] being filled */
    int count;
    uint64_t lost;
    _Atomic uint32_t bell;
    _Atomic bool stop;
    lib_event *other; /* [EVENTS] from here on the writer's */
    lib_event_rows rows;
    char *path;
    char name[32], older[32]; /* in folder, which is held open */
    int folder;
    char *text, *end;      /* what is not in the file yet */
    int64_t written, most; /* of the file */
    uint64_t all_lost;
    int fd, fault; /* an errno: nothing is written any more */
    bool running;
    pthread_t writer;
};

static void ring_bell(struct lib_timeline *t)
{
    atomic_fetch_add(&t->bell, 1);
    kolo_futex_wake(&t->bell);
}

void lib_timeline_carried(struct lib_timeline *t, const char *phase, const char *name, const char *algorithm,
                          double begin, double end, int64_t bytes)
{
    if (!t) return;
    pthread_mutex_lock(&t->lock);
    lib_event *e = t->count < EVENTS ? &t->list[t->count] : NULL;
    if (e) {
        e->phase = phase;
        e->algorithm = algorithm;
        e->begin = begin;
        e->end = end;
        e->bytes = bytes;
        e->name[0] = e->name[LIB_EVENT_NAME - 1] = 0;
        if (name) memccpy(e->name, name, 0, LIB_EVENT_NAME - 1);
        t->count++;
    } else t->lost++;
    const bool full = t->count == BELL;
    pthread_mutex_unlock(&t->lock);
    if (full) ring_bell(t);
}

/* ---- the writer ---------------------------------------------------------------------------------------- */

static void write_text(struct lib_timeline *t)
{
    for (char *at = t->text; at < t->end && !t->fault;) {
        ssize_t n = write(t->fd, at, (size_t)(t->end - at));
        if (n > 0) {
            at += n;
            t->written += n;
        } else if (n == 0 || errno != EINTR) {
            t->fault = n == 0 ? EIO : errno;
        }
    }
    t->end = t->text;
}

/* A new file: what lay there, which may be a link that somebody has put there, is not written to; but for a
 * pipe of this user's. */
static void open_file(struct lib_timeline *t)
{
    struct stat info;
    int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
    const bool pipe = fstatat(t->folder, t->name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                      S_ISFIFO(info.st_mode) && info.st_uid == geteuid();
    if (!pipe) flags |= O_CREAT | O_EXCL;
    if (!pipe && unlinkat(t->folder, t->name, 0) < 0 && errno != ENOENT) t->fault = errno;
    if (!t->fault && (t->fd = openat(t->folder, t->name, flags, 0644)) < 0) t->fault = errno;
}

static void begin_file(struct lib_timeline *t)
{
    open_file(t);
    t->written = 0;
    t->end = lib_event_put_head(&t->rows, t->text);
    write_text(t);
}

static void end_file(struct lib_timeline *t)
{
    memcpy(t->end, "\n]\n", 3);
    t->end += 3;
    write_text(t);
    close(t->fd);
    t->fd = -1;
}

/* A file that is long enough becomes the older half of what is kept, as soon as there is an event for the
 * newer one. */
static void begin_half(struct lib_timeline *t)
{
    end_file(t);
    if (!t->fault && renameat(t->folder, t->name, t->folder, t->older) != 0) t->fault = errno;
    if (!t->fault) begin_file(t);
}

/* Where the text of one more event goes: LIB_EVENT_TEXT bytes are free there, after a write if need be. */
static char *reserve_event(struct lib_timeline *t)
{
    if (t->end > t->text + TEXT - LIB_EVENT_TEXT) write_text(t);
    if (t->end == t->text && t->written > t->most && !t->fault) begin_half(t);
    return t->end;
}

static void drain(struct lib_timeline *t)
{
    const int before = t->fault;
    pthread_mutex_lock(&t->lock);
    lib_event *list = t->list;
    const int count = t->count;
    const uint64_t lost = t->lost;
    t->list = t->other;
    t->count = 0;
    t->lost = 0;
    pthread_mutex_unlock(&t->lock);
    t->other = list;
    for (int i = 0; i < count && !t->fault; i++) t->end = lib_event_put(&t->rows, &list[i], reserve_event(t));
    if (lost) t->end = lib_event_put_lost(&t->rows, lost, kolo_time(), reserve_event(t));
    t->all_lost += lost;
    write_text(t);
    if (t->fault && !before) kolo_warn("comm: %s: %s; the timeline ends here", t->path, strerror(t->fault));
}

static void *writer_main(void *of)
{
    struct lib_timeline *t = of;
    while (!atomic_load(&t->stop)) {
        uint32_t bell = atomic_load(&t->bell);
        drain(t);
        if (!atomic_load(&t->stop)) kolo_futex_wait(&t->bell, bell, pause_seconds, 0);
    }
    drain(t);
    return NULL;
}

/* ---- opening and closing ------------------------------------------------------------------------------- */

void lib_timeline_clock(struct lib_timeline *t, double offset, double error)
{
    lib_timeline_add(t, NULL, NULL, offset, error, 0);
}

int lib_timeline_open(struct lib_timeline **out, const char *folder, size_t most, int rank, const char *host)
{
    struct lib_timeline *t = *out = kolo_alloc(sizeof *t);
    int rc = KOLO_ENOMEM;
    if (!t) return rc;
    t->fd = t->folder = -1;
    t->rows.rank = rank;
    t->rows.host = host;
    t->most = (int64_t)(most / 2) - TEXT;
    pthread_mutex_init(&t->lock, NULL);
    t->list = kolo_alloc(EVENTS * sizeof *t->list);
    t->other = kolo_alloc(EVENTS * sizeof *t->other);
    t->text = t->end = kolo_alloc(TEXT);
    t->path = kolo_format("%s/rank-%d.json", folder, rank);
    snprintf(t->name, sizeof t->name, "rank-%d.json", rank);
    snprintf(t->older, sizeof t->older, "rank-%d.older.json", rank);
    if (!t->list || !t->other || !t->text || !t->path) goto fail;
    KOLO_TRY_GOTO(rc, kolo_folder_make(folder));
    t->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->folder < 0) t->fault = errno;
    else unlinkat(t->folder, t->older, 0); /* of another run */
    if (!t->fault) begin_file(t);
    if (t->fault) {
        rc = kolo_fail(
            KOLO_EIO,
            "%s: %s; KOLO_COMM_TIMELINE names a folder on a file system that all ranks may write to", t->path,
            strerror(t->fault));
        goto fail;
    }
    rc = kolo_thread_start(&t->writer, writer_main, t, "kolo-timeline");
    t->running = rc == 0;
    if (t->running) return 0;
fail:
    lib_timeline_close(out);
    return rc;
}

void lib_timeline_close(struct lib_timeline **out)
{
    struct lib_timeline *t = *out;
    if (!t) return;
    if (t->running) {
        atomic_store(&t->stop, true);
        ring_bell(t);
        pthread_join(t->writer, NULL);
    }
    if (t->fd >= 0) end_file(t);
    if (t->folder >= 0) close(t->folder);
    if (t->all_lost)
        kolo_warn("comm: %s lacks %lu events that came faster than they could be written", t->path,
                  (unsigned long)t->all_lost);
    free(t->path);
    free(t->text);
    free(t->list);
    free(t->other);
    pthread_mutex_destroy(&t->lock);
    free(t);
    *out = NULL;
}
