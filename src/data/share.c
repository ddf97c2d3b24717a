#include "data/share.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/thread.h"

#define MOST_THREADS 16

static struct flock lock_of(int64_t item, short type)
{
    /* behind everything that such a file holds */
    return (struct flock){
        .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)((INT64_C(1) << 50) + item), .l_len = 1};
}

int kolo_share_claim(int fd, int64_t item, bool wait)
{
    struct flock lock = lock_of(item, F_WRLCK);
    while (fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock) < 0) {
        if (errno == EINTR) continue;
        if (!wait && (errno == EAGAIN || errno == EACCES)) return 0;
        return kolo_fail(KOLO_EIO, "cannot lock a file that the processes of this node share: %s",
                         strerror(errno));
    }
    return 1;
}

void kolo_share_release(int fd, int64_t item)
{
    struct flock lock = lock_of(item, F_UNLCK);
    fcntl(fd, F_OFD_SETLK, &lock);
}

typedef struct crew {
    const kolo_share *share;
    _Atomic int64_t next;
    _Atomic int status; /* of the first that failed */
    pthread_mutex_t lock;
    kolo_failure failure;
} crew;

static int try_item(const kolo_share *s, int64_t item, bool wait)
{
    if (s->done(s->context, item)) return 0;
    const int mine = kolo_share_claim(s->fd, item, wait);
    if (mine <= 0) return mine;
    const int rc = s->done(s->context, item) ? 0 : s->work(s->context, item);
    kolo_share_release(s->fd, item);
    return rc;
}

static int await_item(const kolo_share *s, int64_t item)
{
    const double begin = kolo_time();
    while (!s->done(s->context, item)) {
        KOLO_TRY(try_item(s, item, false));
        if (s->done(s->context, item)) break;
        if (kolo_time() - begin > s->timeout) {
            kolo_fail(KOLO_EIO,
                      "another process of this user holds part %lld of it, without progress for %.0f s",
                      (long long)item, s->timeout);
            return KOLO_SHARE_STUCK;
        }
        usleep(20000);
    }
    return 0;
}

/* Processes begin at different places, so that they seldom meet. */
static void *worker(void *argument)
{
    crew *c = argument;
    const kolo_share *s = c->share;
    const int64_t start = (int64_t)((uint64_t)getpid() * 2654435761u % (uint64_t)s->items);
    for (int64_t i; c->status == 0 && (i = c->next++) < s->items;) {
        const int rc = try_item(s, (i + start) % s->items, false);
        if (rc >= 0) continue;
        pthread_mutex_lock(&c->lock);
        if (c->status == 0) kolo_error_keep(&c->failure);
        if (c->status == 0) c->status = rc;
        pthread_mutex_unlock(&c->lock);
    }
    return NULL;
}

int kolo_share_run(const kolo_share *share)
{
    crew c = {.share = share, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MOST_THREADS];
    int started = 0;
    if (share->items < 1) return 0;
    const int64_t most = share->items < MOST_THREADS ? share->items : MOST_THREADS;
    while (started + 1 < share->threads && started + 1 < most &&
           pthread_create(&threads[started], NULL, worker, &c) == 0)
        started++;
    worker(&c);
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    if (c.status < 0) return kolo_error_restore(&c.failure, c.status);
    for (int64_t i = 0; i < share->items; i++) { /* waits for what others have begun */
        const int rc = share->timeout > 0 ? await_item(share, i) : try_item(share, i, true);
        if (rc != 0) return rc;
    }
    return 0;
}
