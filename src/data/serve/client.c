#include "data/serve/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/serve/wire.h"
#include "kolo/error.h"

#define NEVER INT64_MAX
#define ANSWER_SECONDS 20 /* a server answers between two batches */
#define BLOCK 64

struct kolo_client {
    const kolo_loader *loader;
    char name[108], key[SERVE_KEY];
    struct sockaddr_un address;
    int64_t number[4]; /* of the packet that says hello */
    int wake;          /* an eventfd: readable when nobody shall wait any more */

    pthread_mutex_t lock;   /* everything below */
    pthread_cond_t changed; /* something below did */
    int fd;                 /* -1: not connected */
    bool listening;         /* a thread reads from fd, or connects, without the lock */
    bool interrupted, refused, warned;
    int copying; /* threads that read the segment, without the lock */
    serve_segment *segment;
    loader_layout layout;
    size_t bytes;
    int slots;
    int64_t offset;         /* rows of the server's batch before this rank's */
    _Atomic int64_t joined; /* it gets the batches from here on; NEVER: none */
    int64_t ready;          /* up to here they have come */
    int64_t asked;          /* position of the last wish */
    int slot_of[SERVE_SLOTS];
    /* batch p at [p % SERVE_SLOTS] has all its rows; a loader has no more in work */
    int64_t finished[SERVE_SLOTS];
    int64_t served, batches; /* from the server, in all */
    serve_packet packet;     /* of who listens */
};

/* The next packet, by the thread that listens, without the lock. 1, 0 at the time-out or when
 * interrupted, negative. */
static int listen_for(kolo_client *c, double seconds, int *passed)
{
    struct pollfd fds[2] = {{c->fd, POLLIN, 0}, {c->wake, POLLIN, 0}};
    int rc = serve_receive(c->fd, &c->packet, passed);
    if (rc != 0) return rc;
    while ((rc = poll(fds, 2, (int)(seconds * 1e3) + 1)) < 0 && errno == EINTR) continue;
    return rc > 0 && fds[0].revents ? serve_receive(c->fd, &c->packet, passed) : 0;
}

/* A packet of kind a or b; others are of an earlier wish. */
static int await_answer(kolo_client *c, enum serve_kind a, enum serve_kind b, int *passed)
{
    const double end = kolo_time() + ANSWER_SECONDS;
    for (;;) {
        const int rc = listen_for(c, end - kolo_time(), passed);
        if (rc < 0) return rc;
        if (rc > 0 && c->packet.head.kind == SERVE_END)
            return kolo_fail(KOLO_EIO, "the server ends: %s", c->packet.text);
        if (rc > 0 && (c->packet.head.kind == a || c->packet.head.kind == b)) return 0;
        if (passed && *passed >= 0) close(*passed);
        if (rc == 0) /* nothing came, or nobody shall wait any more */
            return kolo_fail(KOLO_EIO, "the server does not answer");
    }
}

/* fd: the segment that came with the welcome. */
static int map_segment(kolo_client *c, int fd)
{
    const serve_head *h = &c->packet.head;
    const kolo_loader *l = c->loader;
    const int64_t first = h->number[0], rows = h->number[1], slots = h->number[2];
    struct stat info;
    if (rows < 1 || rows > l->recipe.config.batch || first < 0 || first > c->number[2] || slots < 1 ||
        slots > SERVE_SLOTS || first + rows < c->number[2] + l->rows)
        return kolo_fail(KOLO_EIO, "the server's answer is malformed");
    loader_lay_slot(&c->layout, rows, l->recipe.config.words, (size_t)rows * l->recipe.sample_bytes);
    const size_t bytes = SERVE_PAGE + c->layout.bytes * (size_t)slots;
    const int seals = fcntl(fd, F_GET_SEALS);
    if (fstat(fd, &info) < 0 || (size_t)info.st_size != bytes || h->number[3] != (int64_t)c->layout.bytes ||
        seals < 0 || !(seals & F_SEAL_SHRINK))
        return kolo_fail(KOLO_EIO, "the server's segment is not of the size that its answer says");
    void *base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return kolo_fail(KOLO_EIO, "cannot map the server's segment: %s", strerror(errno));
    c->segment = base;
    c->bytes = bytes;
    c->slots = (int)slots;
    c->offset = c->number[2] - first;
    return c->segment->magic == SERVE_MAGIC
               ? 0
               : kolo_fail(KOLO_EIO, "the server's segment is not a ring of batches");
}

/* Nobody copies any more. */
static void unmap(kolo_client *c)
{
    if (c->segment) munmap(c->segment, c->bytes);
    c->segment = NULL;
}

/* Connects, by the thread that listens. KOLO_ECONFIG: the server shows other batches. */
static int attach(kolo_client *c)
{
    int passed = -1;
    unmap(c);
    KOLO_TRY(serve_connect(&c->address, &c->fd));
    KOLO_TRY(serve_send(c->fd, SERVE_HELLO, -1, c->number, 4, c->key, -1));
    int rc = await_answer(c, SERVE_WELCOME, SERVE_REFUSED, &passed);
    if (rc == 0 && c->packet.head.kind == SERVE_REFUSED)
        rc = kolo_fail(KOLO_ECONFIG, "the server makes other batches: %s", c->packet.text);
    else if (rc == 0 && passed < 0) rc = kolo_fail(KOLO_EIO, "the server passed no segment");
    else if (rc == 0) rc = map_segment(c, passed);
    if (passed >= 0) close(passed);
    return rc;
}

static void disconnect(kolo_client *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    atomic_store(&c->joined, NEVER);
}

/* Once, until it is connected again. */
static void warn_alone(kolo_client *c, const char *why)
{
    if (!c->warned) {
        const char *job = getenv("SLURM_JOB_ID");
        const bool apart = !strchr(c->name, '/') && serve_private_shm("/proc/self/mountinfo", job);
        kolo_warn(
            "data_server=%s: %s; this rank reads by itself, the same bytes%s", c->name, why,
            apart ? ". Jobs have a /dev/shm of their own here (job_container/tmpfs): a server of another job "
                    "is "
                    "found by data_server=PATH, in a folder that both see; without one each job keeps its "
                    "own cache"
                  : "");
    }
    c->warned = true;
}

/* Asks for the batches from `position` on, by the thread that listens. */
static int request_batches(kolo_client *c, int64_t position)
{
    if (c->fd < 0) KOLO_TRY(attach(c));
    KOLO_TRY(serve_send(c->fd, SERVE_JOIN, position, NULL, 0, "", -1));
    return await_answer(c, SERVE_JOINED, SERVE_JOINED, NULL);
}

static void report_joined(kolo_client *c, int64_t position, int64_t from)
{
    const int64_t steps = c->loader->steps;
    if (from < 0) kolo_info("data_server=%s: the server is in another epoch; reading by itself", c->name);
    else
        kolo_info("data_server=%s: batches come from the server from epoch %lld, step %lld on%s", c->name,
                  (long long)(from / steps), (long long)(from % steps),
                  from > position ? "; until then reading by itself" : "");
}

/* Lock held on entry and return; others may take and finish batches meanwhile. */
static void client_join(kolo_client *c, int64_t position)
{
    c->listening = true;
    c->asked = position;
    while (c->copying > 0) pthread_cond_wait(&c->changed, &c->lock);
    pthread_mutex_unlock(&c->lock);
    const int rc = request_batches(c, position);
    const int64_t from = c->packet.head.position;
    pthread_mutex_lock(&c->lock);
    c->listening = false;
    if (rc < 0) {
        c->refused = rc == KOLO_ECONFIG;
        disconnect(c);
        if (!c->interrupted) warn_alone(c, kolo_error_text());
    } else {
        c->warned = false;
        report_joined(c, position, from);
        c->ready = from;
        atomic_store(&c->joined, from < position ? NEVER : from);
    }
    pthread_cond_broadcast(&c->changed);
}

/* A batch that is joined, has come and has all its rows is given up. Some rows may have been made by this
 * rank itself, before or while it joined: then the last of the three is that it comes. Lock held. */
static void release_batch(kolo_client *c, int64_t position)
{
    if (position < c->joined || position >= c->ready || c->finished[position % SERVE_SLOTS] != position)
        return;
    c->served++;
    (void)serve_send(c->fd, SERVE_DONE, position, NULL, 0, "", -1); /* who listens sees the hang-up */
}

/* What the server has said. Lock held. */
static void client_hear(kolo_client *c, int rc)
{
    const serve_head *h = &c->packet.head;
    if (rc < 0) {
        disconnect(c);
        warn_alone(c, kolo_error_text());
    } else if (rc > 0 && h->kind == SERVE_READY) {
        if (h->position != c->ready || h->number[0] < 0 || h->number[0] >= c->slots) return;
        c->slot_of[c->ready++ % SERVE_SLOTS] = (int)h->number[0];
        release_batch(c, h->position);
    } else if (rc > 0 && h->kind == SERVE_LEFT) {
        atomic_store(&c->joined, NEVER);
        kolo_warn(
            "data_server=%s: this rank kept other jobs waiting; it reads by itself until the next epoch",
            c->name);
    } else if (rc > 0 && h->kind == SERVE_END) {
        disconnect(c);
        warn_alone(c, c->packet.text);
    }
}

/* The slot of batch `position`, or -1: it will not come. One thread listens, the others wait for what
 * it hears. Lock held. */
static int await_batch(kolo_client *c, int64_t position)
{
    const double longest = 2 * c->loader->recipe.config.serve_wait, end = kolo_time() + longest;
    while (!c->interrupted && position >= c->joined && position >= c->ready) {
        if (c->listening) {
            pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        c->listening = true;
        pthread_mutex_unlock(&c->lock);
        const double left = end - kolo_time();
        const int rc = listen_for(c, left > 0 ? left : 0, NULL);
        const bool late = rc == 0 && kolo_time() >= end;
        pthread_mutex_lock(&c->lock);
        c->listening = false;
        client_hear(c, late && !c->interrupted ? kolo_fail(KOLO_EIO, "no batch came for %g s", longest) : rc);
        pthread_cond_broadcast(&c->changed);
    }
    return position >= c->joined && position < c->ready ? c->slot_of[position % SERVE_SLOTS] : -1;
}

/* At most BLOCK rows. The server may have taken the slot back meanwhile: what says which samples the rows
 * shall have is replaced only when all that was copied was of this batch. Labels follow from samples: a rank
 * that fails writes them anew. */
static bool copy_block(const kolo_client *c, int slot, int64_t position, loader_slot *to, int64_t first,
                       int64_t count, kolo_loader_stats *stats)
{
    const size_t bytes = to->recipe->sample_bytes, n = (size_t)count,
                 words = (size_t)c->loader->recipe.config.words;
    const size_t from = (size_t)(c->offset + first), at = (size_t)first;
    loader_slot s;
    int64_t samples[BLOCK];
    loader_point_slot(&s, &c->layout, (uint8_t *)c->segment + SERVE_PAGE + c->layout.bytes * (size_t)slot);
    memcpy(to->pixels + at * bytes, s.pixels + from * bytes, n * bytes);
    memcpy(to->labels + at * words, s.labels + from * words, n * words * sizeof *s.labels);
    memcpy(samples, s.samples + from, n * sizeof *samples);
    __sync_synchronize(); /* a fence that the thread sanitizer takes too */
    if (atomic_load(&c->segment->position[slot]) != position) return false;
    for (size_t i = 0; i < n; i++) stats->bad += to->samples[at + i] != samples[i];
    memcpy(to->samples + at, samples, n * sizeof *samples);
    return true;
}

bool kolo_client_take(kolo_client *c, loader_slot *s, int64_t first, int64_t count, kolo_loader_stats *stats)
{
    const int64_t position = s->epoch * c->loader->steps + s->step, valid = s->valid - first;
    bool whole = true;
    pthread_mutex_lock(&c->lock);
    if (s->step == 0 && first == 0 && c->joined == NEVER && c->asked != position && !c->listening &&
        !c->interrupted && !c->refused)
        client_join(c, position);
    const int slot = position >= c->joined ? await_batch(c, position) : -1;
    c->copying += slot >= 0;
    pthread_mutex_unlock(&c->lock);
    if (slot < 0) return false;
    kolo_loader_stats mine = {.served = valid < 0 ? 0 : valid < count ? valid : count};
    for (int64_t i = 0, n; i < count && whole; i += n) {
        n = count - i < BLOCK ? count - i : BLOCK;
        whole = copy_block(c, slot, position, s, first + i, n, &mine);
    }
    pthread_mutex_lock(&c->lock);
    if (--c->copying == 0) pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (!whole) {
        loader_label(s, first, count);
        return false;
    }
    stats->served += mine.served;
    stats->bad += mine.bad;
    return true;
}

void kolo_client_done(kolo_client *c, int64_t position)
{
    pthread_mutex_lock(&c->lock);
    c->batches++;
    c->finished[position % SERVE_SLOTS] = position;
    release_batch(c, position);
    pthread_mutex_unlock(&c->lock);
}

void kolo_client_interrupt(kolo_client *c)
{
    const uint64_t one = 1;
    pthread_mutex_lock(&c->lock);
    c->interrupted = true;
    if (write(c->wake, &one, sizeof one) < 0) c->interrupted = true; /* an eventfd has room */
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

void kolo_client_seek(kolo_client *c, int64_t position)
{
    uint64_t count;
    pthread_mutex_lock(&c->lock);
    if (read(c->wake, &count, sizeof count) < 0) count = 0; /* nobody had to be woken */
    c->interrupted = false;
    atomic_store(&c->joined, NEVER);
    for (int i = 0; i < SERVE_SLOTS; i++) c->finished[i] = -1;
    if (!c->refused) client_join(c, position);
    pthread_mutex_unlock(&c->lock);
}

bool kolo_client_serves(const kolo_client *c) { return atomic_load(&c->joined) != NEVER; }

int kolo_client_open(kolo_client **client, const kolo_loader *loader, const kolo_loader_config *config)
{
    int rc;
    kolo_client *c = *client = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    c->loader = loader;
    c->fd = c->wake = -1;
    c->joined = NEVER;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    const int64_t number[] = {config->rank, config->ranks, config->rank * loader->rows, loader->rows};
    memcpy(c->number, number, sizeof number);
    if (!config->dataset)
        KOLO_TRY_GOTO(rc,
                      kolo_fail(KOLO_ECONFIG,
                                "data_server=%s: data=synthetic needs no server; leave data_server= empty",
                                config->serve));
    KOLO_TRY_GOTO(rc, serve_path(config->serve, &c->address));
    snprintf(c->name, sizeof c->name, "%s", config->serve);
    KOLO_TRY_GOTO(rc, serve_key(config, c->key));
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->wake < 0)
        KOLO_TRY_GOTO(rc, kolo_fail(KOLO_EIO, "data_server=: cannot create an eventfd: %s", strerror(errno)));
    rc = attach(c);
    if (rc == KOLO_ECONFIG) KOLO_TRY_GOTO(rc, kolo_fail_in(rc, "data_server=%s: ", c->name));
    if (rc < 0) {
        disconnect(c);
        warn_alone(c, kolo_error_text());
    }
    return 0;
fail:
    kolo_client_close(client);
    return rc;
}

void kolo_client_close(kolo_client **client)
{
    kolo_client *c = *client;
    if (!c) return;
    if (c->batches > 0)
        kolo_info("data_server=%s: %lld of %lld batches came from the server", c->name, (long long)c->served,
                  (long long)c->batches);
    disconnect(c);
    unmap(c);
    if (c->wake >= 0) close(c->wake);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    *client = NULL;
}
