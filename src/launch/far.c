#include "launch/far.h"

#include "base/memory.h"
#include "base/thread.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

struct launch_far {
    int rank, size;
    double every, heartbeat_timeout;
    pthread_mutex_t lock; /* of path */
    char *path;           /* NULL: there is none */
    double beaten, looked;
    int64_t count;         /* this rank's number; LEFT: it has left in good order */
    int64_t *last, *fresh; /* [size] the others', as seen last; room to read into */
    double *changed;       /* [size] when they were seen to change; 0: never */
};

enum { LEFT = -1 };

launch_far *launch_far_open(int rank, int size, double heartbeat_timeout)
{
    launch_far *f = kolo_alloc(sizeof *f);
    if (!f) return NULL;
    *f = (launch_far){.rank = rank,
                      .size = size,
                      .every = heartbeat_timeout / 4,
                      .heartbeat_timeout = 4 * heartbeat_timeout};
    pthread_mutex_init(&f->lock, NULL);
    f->last = kolo_alloc((size_t)size * sizeof *f->last);
    f->fresh = kolo_alloc((size_t)size * sizeof *f->fresh);
    f->changed = kolo_alloc((size_t)size * sizeof *f->changed);
    if (!f->last || !f->fresh || !f->changed) launch_far_close(&f);
    return f;
}

void launch_far_close(launch_far **far)
{
    launch_far *f = *far;
    if (!f) return;
    if (f->path && f->rank == 0) unlink(f->path);
    pthread_mutex_destroy(&f->lock);
    free(f->path);
    free(f->last);
    free(f->fresh);
    free(f->changed);
    free(f);
    *far = NULL;
}

void launch_far_move(launch_far *f, const char *path)
{
    char *copy = path ? kolo_strdup(path) : NULL;
    pthread_mutex_lock(&f->lock);
    free(f->path);
    f->path = copy;
    f->beaten = f->looked = 0;
    for (int r = 0; r < f->size; r++) f->changed[r] = 0;
    pthread_mutex_unlock(&f->lock);
}

static int open_it(const launch_far *f)
{
    return f->path ? open(f->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
}

/* A rank that has never counted is not missed: it may not know the file yet. */
static void far_check(launch_far *f, int fd, double now)
{
    const ssize_t got = pread(fd, f->fresh, (size_t)f->size * sizeof *f->fresh, 0);
    for (int r = 0; r < f->size && (ssize_t)((size_t)(r + 1) * sizeof *f->fresh) <= got; r++) {
        if (f->fresh[r] == 0 || f->fresh[r] == f->last[r]) continue;
        f->last[r] = f->fresh[r];
        f->changed[r] = f->fresh[r] == LEFT ? 0 : now;
    }
}

static void count(launch_far *f, int fd, int64_t number, double now)
{
    const off_t at = (off_t)sizeof number * f->rank;
    if (pwrite(fd, &number, sizeof number, at) != (ssize_t)sizeof number) return;
    f->count = number;
    f->beaten = now;
}

/* What cannot be read or written is nobody's death. */
void launch_far_beat(launch_far *f, bool looks)
{
    const double now = kolo_time();
    pthread_mutex_lock(&f->lock);
    const bool beats = now - f->beaten >= f->every && f->count != LEFT;
    looks = looks && now - f->looked >= f->every;
    const int fd = beats || looks ? open_it(f) : -1;
    if (fd >= 0 && beats) count(f, fd, f->count + 1, now);
    if (fd >= 0 && looks) {
        /* a rank that was not looked at meanwhile is given its time anew */
        for (int r = 0; r < f->size && now - f->looked > 2 * f->every; r++)
            if (f->changed[r] > 0) f->changed[r] = now;
        far_check(f, fd, now);
        f->looked = now;
    }
    if (fd >= 0) close(fd);
    pthread_mutex_unlock(&f->lock);
}

void launch_far_leave(launch_far *f)
{
    pthread_mutex_lock(&f->lock);
    const int fd = open_it(f);
    if (fd >= 0) count(f, fd, LEFT, kolo_time());
    if (fd >= 0) close(fd);
    pthread_mutex_unlock(&f->lock);
}

double launch_far_silent(const launch_far *f, int rank, double since)
{
    const double from = f->changed[rank] > since ? f->changed[rank] : since;
    if (f->changed[rank] == 0 || f->looked - from < f->heartbeat_timeout) return 0;
    return f->looked - from;
}
