#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "shards/shards.h"

typedef struct team {
    shards_work *work;
    _Atomic int64_t next, done, bytes;
    _Atomic int thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t ended;
    int left;
    int status;
    int64_t failed; /* first sample of the lowest block that failed */
    kolo_failure failure;
} team;

static void *run_thread(void *argument)
{
    team *t = argument;
    const shards_work *w = t->work;
    const int thread = atomic_fetch_add(&t->thread, 1);
    for (;;) {
        const int64_t first = atomic_fetch_add(&t->next, w->block);
        if (first >= w->total) break;
        const int64_t last = first + w->block < w->total ? first + w->block : w->total;
        int64_t bytes = 0;
        const int rc = w->run(w->context, thread, first, last, &bytes);
        atomic_fetch_add(&t->bytes, bytes);
        atomic_fetch_add(&t->done, last - first);
        if (rc) atomic_store(&t->next, w->total);
        if (rc >= 0) continue;
        pthread_mutex_lock(&t->lock);
        if (t->status == 0 || first < t->failed) {
            t->status = rc;
            t->failed = first;
            kolo_error_keep(&t->failure);
        }
        pthread_mutex_unlock(&t->lock);
    }
    pthread_mutex_lock(&t->lock);
    t->left--;
    pthread_cond_signal(&t->ended);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void print_line(const team *t, double seconds, bool terminal)
{
    const shards_work *w = t->work;
    const int64_t done = atomic_load(&t->done);
    const double rate = seconds > 0 ? (double)done / seconds : 0;
    char line[200];
    const int n =
        snprintf(line, sizeof line, "%s%s %3d%% %" PRId64 "/%" PRId64 " %.0f/s %.1f MB/s ETA %.0f s%s",
                 terminal ? "\r\033[K" : "", w->what, (int)(100 * done / (w->total ? w->total : 1)), done,
                 w->total, rate, seconds > 0 ? (double)atomic_load(&t->bytes) / seconds / 1e6 : 0,
                 rate > 0 ? (double)(w->total - done) / rate : 0, terminal ? "" : "\n");
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

/* Until all have ended: a line three times a second at a terminal, every ten seconds in a log. */
static void watch(team *t, double begin)
{
    const bool terminal = isatty(STDERR_FILENO);
    const double every = terminal ? .3 : 10;
    double printed = begin;
    bool any = false;
    pthread_mutex_lock(&t->lock);
    while (t->left > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 200000000;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        pthread_cond_timedwait(&t->ended, &t->lock, &until);
        const double now = kolo_time();
        if (!t->work->what || now - begin < 1 || now - printed < every) continue;
        print_line(t, now - begin, terminal);
        printed = now;
        any = true;
    }
    pthread_mutex_unlock(&t->lock);
    if (any && terminal && write(STDERR_FILENO, "\r\033[K", 4) < 0) return;
}

int shards_run(shards_work *w)
{
    team t = {.work = w};
    const double begin = kolo_time();
    pthread_t *list = kolo_alloc(sizeof *list * (size_t)w->threads);
    if (!list) return KOLO_ENOMEM;
    pthread_mutex_init(&t.lock, NULL);
    pthread_cond_init(&t.ended, NULL);
    t.left = w->threads;
    int started = 0, error = 0;
    while (started < w->threads && (error = pthread_create(&list[started], NULL, run_thread, &t)) == 0)
        started++;
    pthread_mutex_lock(&t.lock);
    t.left -= w->threads - started; /* fewer threads do the work as well */
    pthread_mutex_unlock(&t.lock);
    watch(&t, begin);
    for (int i = 0; i < started; i++) pthread_join(list[i], NULL);
    pthread_cond_destroy(&t.ended);
    pthread_mutex_destroy(&t.lock);
    free(list);
    w->bytes = t.bytes;
    w->seconds = kolo_time() - begin;
    if (!started) return kolo_fail(KOLO_ECONFIG, "no thread can be started: %s", strerror(error));
    return kolo_error_restore(&t.failure, t.status);
}
