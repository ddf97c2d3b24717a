#include "data/serve/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"

typedef struct news {
    int rc; /* of kolo_loader_next */
    kolo_batch batch;
} news;
/* A write is whole, and never waits: no more than a ring of them are on their way. */
_Static_assert(sizeof(news) * SERVE_SLOTS <= 4 * PIPE_BUF, "fits into any pipe");

static int check_space(size_t bytes)
{
    const char *source;
    const double unit = 0x1p20, need = (double)bytes / unit;
    const double have = ((double)kolo_memory_limit(&source) - (double)kolo_memory_resident()) / unit;
    if (need <= have) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "a ring of batches takes %.1f MiB, %s leaves %.1f MiB: %.1f MiB are missing; lower prefetch, or ask "
        "for more memory",
        need, source, have, need - have);
}

/* It has no name, so nothing is left of it; what is taken for it is taken here; and no job can
 * cut it or write to it. */
static int make_segment(serve_ring *r)
{
    KOLO_TRY(check_space(r->bytes));
    r->fd = memfd_create("kolo-serve", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (r->fd < 0) return kolo_fail(KOLO_EIO, "serve-data: cannot create a segment: %s", strerror(errno));
    fchmod(r->fd, 0600);
    errno = posix_fallocate(r->fd, 0, (off_t)r->bytes);
    if (errno)
        return kolo_fail(KOLO_EIO, "serve-data: cannot allocate %.1f MiB for the ring: %s; lower prefetch",
                         (double)r->bytes / 0x1p20, strerror(errno));
    void *base = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
    if (base == MAP_FAILED)
        return kolo_fail(KOLO_EIO, "serve-data: cannot map the ring: %s", strerror(errno));
    r->segment = base;
    if (fcntl(r->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return kolo_fail(KOLO_EIO, "serve-data: cannot seal the ring: %s", strerror(errno));
#ifdef F_SEAL_FUTURE_WRITE
    (void)fcntl(r->fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE); /* Linux 5.1; before, jobs only promise it */
#endif
    madvise(base, r->bytes, MADV_HUGEPAGE);
    kolo_pages_touch(base, r->bytes);
    r->segment->magic = SERVE_MAGIC;
    return 0;
}

int serve_ring_open(serve_ring *r, const kolo_loader_config *config)
{
    kolo_loader_config c = *config;
    int rc;
    *r = (serve_ring){.fd = -1, .news = {-1, -1}, .slots = loader_choose_slots(config)};
    sem_init(&r->free, 0, 0);
    const size_t memory = kolo_loader_memory_bytes(config);
    r->slot_bytes = memory / (size_t)r->slots;
    r->bytes = SERVE_PAGE + memory;
    KOLO_TRY_GOTO(rc, make_segment(r));
    for (int i = 0; i < SERVE_SLOTS; i++) r->segment->position[i] = -1;
    if (pipe2(r->news, O_CLOEXEC) < 0)
        KOLO_TRY_GOTO(rc, kolo_fail(KOLO_EIO, "serve-data: cannot create a pipe: %s", strerror(errno)));
    c.memory = (uint8_t *)r->segment + SERVE_PAGE;
    c.serve = NULL;
    KOLO_TRY_GOTO(rc, kolo_loader_create(&r->loader, &c));
    r->steps = kolo_loader_steps(r->loader);
    return 0;
fail:
    serve_ring_close(r);
    return rc;
}

void serve_ring_close(serve_ring *r)
{
    if (r->running) serve_ring_stop(r);
    kolo_loader_destroy(&r->loader);
    if (r->segment) munmap(r->segment, r->bytes);
    if (r->fd >= 0) close(r->fd);
    for (int i = 0; i < 2; i++)
        if (r->news[i] >= 0) close(r->news[i]);
    sem_destroy(&r->free);
    *r = (serve_ring){.fd = -1, .news = {-1, -1}};
}

static void *wait_for_batches(void *argument)
{
    serve_ring *r = argument;
    for (news n = {0}; n.rc == 0;) {
        while (sem_wait(&r->free) < 0) continue; /* a signal */
        if (atomic_load(&r->stop)) break;
        n.rc = kolo_loader_next(r->loader, &n.batch);
        if (n.rc < 0) kolo_error_keep(&r->failure);
        while (write(r->news[1], &n, sizeof n) < 0 && errno == EINTR) continue;
    }
    return NULL;
}

int serve_ring_start(serve_ring *r, int64_t position)
{
    KOLO_TRY(kolo_loader_seek(r->loader, position / r->steps, position % r->steps));
    r->base = r->next = position;
    atomic_store(&r->stop, false);
    while (sem_trywait(&r->free) == 0) continue;
    for (int i = 0; i < r->slots; i++) sem_post(&r->free);
    KOLO_TRY(kolo_thread_start(&r->thread, wait_for_batches, r, "serve-data"));
    r->running = true;
    return 0;
}

/* The next seek frees the loader's slots. */
void serve_ring_stop(serve_ring *r)
{
    news n;
    atomic_store(&r->stop, true);
    sem_post(&r->free);
    pthread_join(r->thread, NULL);
    r->running = false;
    for (int i = 0; i < r->slots; i++) atomic_store(&r->segment->position[i], -1);
    fcntl(r->news[0], F_SETFL, O_NONBLOCK);
    while (read(r->news[0], &n, sizeof n) > 0) continue;
    fcntl(r->news[0], F_SETFL, 0);
}

int serve_ring_take(serve_ring *r)
{
    news n;
    if (read(r->news[0], &n, sizeof n) != sizeof n)
        return kolo_fail(KOLO_EINTERNAL, "serve-data: the pipe is broken");
    if (n.rc < 0) return kolo_error_restore(&r->failure, n.rc);
    r->held[r->next % r->slots] = n.batch;
    atomic_store_explicit(&r->segment->position[n.batch.slot], r->next, memory_order_release);
    r->next++;
    r->decoded += n.batch.valid;
    return 0;
}

void serve_ring_release(serve_ring *r)
{
    const kolo_batch *b = serve_ring_batch(r, r->base);
    /* before the loader writes there again: who still copies sees it behind its copy */
    atomic_store(&r->segment->position[b->slot], -1);
    __sync_synchronize();
    kolo_loader_release(r->loader, b);
    r->base++;
    sem_post(&r->free);
}
