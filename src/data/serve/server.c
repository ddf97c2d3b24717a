#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/serve/server.h"

static const double HELLO_WITHIN = 10; /* seconds */

/* Gives up what nobody needs, oldest first. */
static void server_release(kolo_server *s)
{
    serve_ring *r = &s->ring;
    while (s->started && r->base < r->next && s->need[r->base % r->slots] == 0) {
        serve_ring_release(r);
        s->moved = kolo_time();
        if (s->full_since > 0) s->full += s->moved - s->full_since;
        s->full_since = 0;
    }
}

static void need_no_more(kolo_server *s, serve_client *t, int64_t position)
{
    const int64_t i = position % s->ring.slots;
    if (!t->needs[i]) return;
    t->needs[i] = false;
    t->pending--;
    s->need[i]--;
}

/* The last one to leave stops the ring. */
static void remove_from_ring(kolo_server *s, serve_client *t)
{
    if (t->joined < 0) return;
    for (int64_t p = s->ring.base; p < s->ring.next; p++) need_no_more(s, t, p);
    t->joined = -1;
    s->rows_joined -= t->rows;
    if (s->rows_joined > 0) {
        server_release(s);
        return;
    }
    serve_ring_stop(&s->ring);
    s->started = false;
}

static void hang_up(kolo_server *s, serve_client *t, const char *why)
{
    if (t->rows) kolo_info("serve-data: process %d, rank %lld, %s", t->pid, (long long)t->rank, why);
    remove_from_ring(s, t);
    close(t->fd);
    t->fd = -1;
}

static void server_send(kolo_server *s, serve_client *t, enum serve_kind kind, int64_t position,
                        int64_t number)
{
    if (serve_send(t->fd, kind, position, &number, 1, "", -1) < 0)
        hang_up(s, t, "reads nothing and is cut off");
}

/* Batch `position`, which is held, is for t as well. */
static void mark(kolo_server *s, serve_client *t, int64_t position)
{
    const int64_t i = position % s->ring.slots;
    if (t->idle_since > 0) t->idle += kolo_time() - t->idle_since;
    t->idle_since = 0;
    t->needs[i] = true;
    t->pending++;
    s->need[i]++;
}

static void offer(kolo_server *s, serve_client *t, int64_t position)
{
    server_send(s, t, SERVE_READY, position, serve_ring_batch(&s->ring, position)->slot);
}

/* Where a job at `position` can begin: there if the ring holds or makes it, else at the next epoch if the
 * ring is near; -1: nowhere. */
static int64_t join_position(const kolo_server *s, int64_t position)
{
    const serve_ring *r = &s->ring;
    if (!r->running || (position >= r->base && position < r->base + r->slots)) return position;
    const int64_t next = (position / r->steps + 1) * r->steps;
    return position / r->steps == r->base / r->steps && next >= r->base ? next : -1;
}

static int server_join(kolo_server *s, serve_client *t, int64_t position)
{
    serve_ring *r = &s->ring;
    remove_from_ring(s, t);
    const int64_t from = join_position(s, position);
    const double now = kolo_time();
    if (from >= 0 && !r->running) {
        KOLO_TRY(serve_ring_start(r, from));
        s->began = s->moved = now;
        s->full = s->full_since = 0;
    }
    server_send(s, t, SERVE_JOINED, from, 0);
    if (t->fd < 0 || from < 0) {
        if (r->running && s->rows_joined == 0) serve_ring_stop(r);
        return 0;
    }
    t->joined = from;
    t->taken = 0;
    t->since = now;
    t->idle = 0;
    t->idle_since = from <= r->next ? now : 0;
    s->rows_joined += t->rows;
    kolo_info(
        "serve-data: process %d, rank %lld of %lld, takes rows %lld to %lld from epoch %lld, step %lld on",
        t->pid, (long long)t->rank, (long long)t->ranks, (long long)t->first,
        (long long)(t->first + t->rows - 1), (long long)(from / r->steps), (long long)(from % r->steps));
    for (int64_t p = from > r->base ? from : r->base; p < r->next && t->fd >= 0; p++) {
        mark(s, t, p);
        offer(s, t, p);
    }
    if (s->rows_joined >= s->rows_wanted) s->started = true;
    server_release(s);
    return 0;
}

static void hello(kolo_server *s, serve_client *t)
{
    const serve_packet *p = &s->packet;
    const int64_t *n = p->head.number, first = s->config.rank * s->rows;
    char why[2048];
    serve_difference(s->key, p->text, why, sizeof why);
    const bool inside = n[2] >= first && n[3] > 0 && n[3] <= s->rows && n[2] <= first + s->rows - n[3];
    if (!*why && !inside) /* its numbers are anything: nothing is computed of them */
        snprintf(
            why, sizeof why,
            "rows %lld to %lld of a batch are made here, the job's rank %lld wants %lld from row %lld on",
            (long long)first, (long long)(first + s->rows - 1), (long long)n[0], (long long)n[3],
            (long long)n[2]);
    if (*why) {
        (void)serve_send(t->fd, SERVE_REFUSED, -1, NULL, 0, why, -1); /* it is hung up on in any case */
        hang_up(s, t, "is refused");
        return;
    }
    if (t->rows) remove_from_ring(s, t);
    else kolo_admission_give_back(&s->strangers);
    t->rank = n[0], t->ranks = n[1], t->first = n[2], t->rows = n[3];
    const int64_t answer[] = {first, s->rows, s->ring.slots, (int64_t)s->ring.slot_bytes};
    if (serve_send(t->fd, SERVE_WELCOME, -1, answer, 4, "", s->ring.fd) < 0) hang_up(s, t, "reads nothing");
}

static void done(kolo_server *s, serve_client *t, int64_t position)
{
    const serve_ring *r = &s->ring;
    /* what was given up meanwhile, or was never there, is no news */
    if (t->joined < 0 || position < r->base || position >= r->next || !t->needs[position % r->slots]) return;
    need_no_more(s, t, position);
    t->taken++;
    s->delivered += t->rows;
    if (t->pending == 0) t->idle_since = kolo_time();
    server_release(s);
}

/* Negative: the server cannot go on. */
static int answer(kolo_server *s, serve_client *t)
{
    const serve_head *h = &s->packet.head;
    char text[SERVE_TEXT];
    if (h->kind == SERVE_ASK) {
        serve_status(s, text, sizeof text);
        /* who does not listen has asked for nothing */
        (void)serve_send(t->fd, SERVE_TELL, -1, NULL, 0, text, -1);
    } else if (h->kind == SERVE_HELLO) {
        hello(s, t);
    } else if (h->kind == SERVE_JOIN && t->rows && h->position >= 0 && h->position < INT64_MAX / 2) {
        return server_join(s, t, h->position);
    } else if (h->kind == SERVE_DONE && t->rows) {
        done(s, t, h->position);
    } else {
        kolo_warn("serve-data: process %d sent packet %u out of order; its connection is closed", t->pid,
                  h->kind);
        hang_up(s, t, "is cut off");
    }
    return 0;
}

static int read_packets(kolo_server *s, serve_client *t)
{
    for (int i = 0; i < SERVE_SLOTS && t->fd >= 0; i++) { /* then others have their turn */
        const int rc = serve_receive(t->fd, &s->packet, NULL);
        if (rc == 0) return 0;
        if (rc == KOLO_EINPUT) {
            kolo_warn("%s; the connection of process %d is closed", kolo_error_text(), t->pid);
            /* its version is in it */
            (void)serve_send(t->fd, SERVE_REFUSED, -1, NULL, 0, kolo_error_text(), -1);
        }
        if (rc < 0) hang_up(s, t, "has left");
        else KOLO_TRY(answer(s, t));
    }
    return 0;
}

static void welcome(kolo_server *s)
{
    s->deaf = !kolo_admission_take(&s->strangers, kolo_time());
    if (s->deaf) return;
    const int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return; /* it has gone again */
    int i = 0;
    while (i < s->clients && s->client[i].fd >= 0) i++;
    const int pid = serve_peer(fd);
    if (pid < 0 || i == SERVE_MOST) {
        kolo_warn("serve-data: a connection was refused: %s",
                  pid < 0 ? kolo_error_text() : "there are too many");
        close(fd);
        return;
    }
    s->client[i] = (serve_client){.fd = fd, .pid = pid, .came = kolo_time(), .joined = -1};
    if (i == s->clients) s->clients++;
}

static int ready(kolo_server *s)
{
    serve_ring *r = &s->ring;
    KOLO_TRY(serve_ring_take(r));
    s->moved = kolo_time();
    const int64_t p = r->next - 1;
    for (int i = 0; i < s->clients; i++)
        if (s->client[i].fd >= 0 && s->client[i].joined >= 0 && s->client[i].joined <= p)
            mark(s, &s->client[i], p);
    /* when all are counted: a client that is cut off here must not give it up for those behind it */
    for (int i = 0; i < s->clients; i++)
        if (s->client[i].fd >= 0 && s->client[i].needs[p % r->slots]) offer(s, &s->client[i], p);
    if (!r->running) return 0; /* the last one was cut off */
    if (r->next - r->base == r->slots) s->full_since = s->moved;
    server_release(s);
    return 0;
}

/* Nothing has moved for too long: jobs missing at the start are no longer waited for; later, those that keep
 * the others waiting are dropped. */
static void drop_late(kolo_server *s)
{
    serve_ring *r = &s->ring;
    const int64_t base = r->base % r->slots;
    int waiting = 0;
    if (!r->running || s->full_since == 0 || kolo_time() - s->moved < s->config.serve_wait) return;
    s->moved = kolo_time();
    if (!s->started) {
        kolo_warn("serve-data: after %g s jobs with %lld of %lld rows have come; the others will read by "
                  "themselves",
                  s->config.serve_wait, (long long)s->rows_joined, (long long)s->rows_wanted);
        s->started = true;
        server_release(s);
        return;
    }
    for (int i = 0; i < s->clients; i++)
        waiting += s->client[i].fd >= 0 && s->client[i].joined >= 0 && !s->client[i].needs[base];
    for (int i = 0; i < s->clients && waiting; i++) {
        serve_client *t = &s->client[i];
        if (t->fd < 0 || !t->needs[base]) continue;
        kolo_warn("serve-data: process %d, rank %lld, kept others waiting for %g s and is dropped", t->pid,
                  (long long)t->rank, s->config.serve_wait);
        remove_from_ring(s, t);
        server_send(s, t, SERVE_LEFT, -1, 0);
    }
}

/* Clients that send nothing after they have connected. */
static void drop_silent(kolo_server *s)
{
    const double now = kolo_time();
    for (int i = 0; i < s->clients; i++)
        if (s->client[i].fd >= 0 && !s->client[i].rows && now - s->client[i].came > HELLO_WITHIN)
            hang_up(s, &s->client[i], "sent nothing after it connected");
}

static int server_poll(kolo_server *s)
{
    const double rest = s->deaf ? kolo_admission_wait(&s->strangers, kolo_time()) : 0;
    struct pollfd fds[SERVE_MOST + 2] = {{rest > 0 ? -1 : s->fd, POLLIN, 0},
                                         {s->ring.running ? s->ring.news[0] : -1, POLLIN, 0}};
    const int n = s->clients;
    for (int i = 0; i < n; i++) fds[i + 2] = (struct pollfd){s->client[i].fd, POLLIN, 0};
    if (poll(fds, (nfds_t)n + 2, rest > 0 && rest < 0.5 ? 1 + (int)(1000 * rest) : 500) < 0)
        return errno == EINTR ? 0 : kolo_fail(KOLO_EIO, "poll: %s", strerror(errno));
    if (fds[1].revents) KOLO_TRY(ready(s));
    for (int i = 0; i < n; i++)
        if (fds[i + 2].revents && s->client[i].fd == fds[i + 2].fd) KOLO_TRY(read_packets(s, &s->client[i]));
    if (fds[0].revents) welcome(s);
    drop_late(s);
    drop_silent(s);
    return 0;
}

int kolo_server_run(kolo_server *s, const volatile sig_atomic_t *stop)
{
    int rc = 0;
    while (rc == 0 && !*stop) rc = server_poll(s);
    kolo_failure failure;
    kolo_error_keep(&failure);
    const char *why = rc < 0 ? failure.text : "it was stopped";
    for (int i = 0; i < s->clients; i++) /* who does not listen sees the hang-up */
        if (s->client[i].fd >= 0) (void)serve_send(s->client[i].fd, SERVE_END, -1, NULL, 0, why, -1);
    return kolo_error_restore(&failure, rc);
}

int kolo_server_open(kolo_server **server, const kolo_loader_config *loader, int jobs)
{
    int rc;
    kolo_server *s = *server = kolo_alloc(sizeof *s);
    if (!s) return KOLO_ENOMEM;
    s->lock_fd = s->fd = s->ring.fd = -1;
    s->config = *loader;
    s->config.augment = s->config.shuffle = s->config.serve = NULL;
    snprintf(s->name, sizeof s->name, "%s", loader->serve);
    KOLO_TRY_GOTO(rc, serve_key(loader, s->key));
    KOLO_TRY_GOTO(rc, serve_name_take(s->name, &s->address, &s->lock_fd));
    KOLO_TRY_GOTO(rc, serve_ring_open(&s->ring, loader));
    s->rows = loader->batch / loader->ranks;
    s->rows_wanted = s->rows * jobs;
    KOLO_TRY_GOTO(rc, serve_name_listen(&s->address, &s->fd));
    if (!strchr(s->name, '/') && serve_private_shm("/proc/self/mountinfo", getenv("SLURM_JOB_ID")))
        kolo_warn("data_server=%s: jobs have a /dev/shm of their own here (job_container/tmpfs), so that "
                  "only this job's processes find the server; for those of other jobs give data_server=PATH, "
                  "in a folder of the node that all see",
                  s->name);
    return 0;
fail:
    kolo_server_close(server);
    return rc;
}

void kolo_server_close(kolo_server **server)
{
    kolo_server *s = *server;
    if (!s) return;
    for (int i = 0; i < s->clients; i++)
        if (s->client[i].fd >= 0) close(s->client[i].fd);
    if (s->ring.loader) serve_ring_close(&s->ring);
    if (s->fd >= 0) close(s->fd);
    if (s->lock_fd >= 0) serve_name_leave(&s->address, s->lock_fd);
    free(s);
    *server = NULL;
}
