/* A rank's listener: a thread that answers every connection, whatever the rank itself does. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/membership.h"
#include "kolo/error.h"

enum { PLACES = 256, AT_ONCE = 64 /* connections accepted between two looks at the others */ };
static const char magic[8] = "kolo-m1";
static const double UNVERIFIED = 2, SLOW_PENDING_PEER = 60, CALLED = 10; /* seconds */

typedef struct pending_peer {
    int fd;
    bool known; /* a rank */
    double since;
    struct {
        membership_message word;
        char data[MEMBERSHIP_GIVEN];
    } asks;
    size_t got, sent, bytes;
    char *answer; /* [bytes] NULL: not heard out yet */
} pending_peer;

void membership_greet(const lib_membership *m, membership_message *word, enum membership_kind kind)
{
    *word = (membership_message){.kind = kind, .from = m->launch.rank, .epoch = m->epoch, .token = m->token};
    memcpy(word->magic, magic, sizeof magic);
    memcpy(word->cookie, m->addresses[0].cookie, sizeof word->cookie);
}

bool membership_known(const lib_membership *m, const membership_message *w)
{
    return memcmp(w->magic, magic, sizeof magic) == 0 &&
           line_same_cookie(w->cookie, m->addresses[0].cookie) && w->from >= 0 && w->from < m->launch.size &&
           w->bytes <= (size_t)m->launch.size * MEMBERSHIP_GIVEN + sizeof(membership_decision);
}

static bool is_question(const lib_membership *m, const membership_message *w)
{
    return membership_known(m, w) && w->kind >= MEMBERSHIP_JOIN && w->kind <= MEMBERSHIP_RUNS &&
           w->bytes <= MEMBERSHIP_GIVEN;
}

/* ---- what is known, under the lock --------------------------------------------------------------------- */

static void clear_board(exchange_buffer *b)
{
    free(b->all);
    free(b->by);
    *b = (exchange_buffer){0};
}

void membership_adopt(lib_membership *m, membership_decision *d)
{
    d->epoch = m->epoch;
    d->token = m->token;
    d->next = m->decisions;
    m->decisions = d;
    m->epoch++;
    m->token = d->content.token;
    m->members = d->content.count;
    for (int i = 0; i < m->members; i++) m->member[i] = d->content.member[i];
    for (int r = 0; r < m->launch.size; r++) m->joined[r] = 0;
    for (int i = 0; i < 2; i++) clear_board(&m->board[i]);
    m->round = 0;
    m->gathering = false;
}

static int place_of(const lib_membership *m, int rank)
{
    int i = 0;
    while (i < m->members && m->member[i] != rank) i++;
    return i < m->members ? i : -1;
}

/* Two rounds at most are under way: who gives for one has got the one before. */
const exchange_buffer *membership_give(lib_membership *m, int from, uint32_t round, const void *data,
                                       size_t bytes)
{
    exchange_buffer *b = &m->board[round & 1];
    int at = place_of(m, from);
    if (at < 0 || (b->all && b->round > round)) return NULL;
    if (!b->all || b->round != round) {
        clear_board(b);
        b->all = kolo_alloc((size_t)m->members * bytes);
        b->by = kolo_alloc((size_t)m->launch.size);
        b->round = round;
        b->bytes = bytes;
    }
    if (!b->all || !b->by || b->bytes != bytes) return NULL;
    if (!b->by[from]) {
        memcpy(b->all + (size_t)at * bytes, data, bytes);
        b->by[from] = true;
        b->given++;
    }
    return b->given == m->members ? b : NULL;
}

static const membership_decision *decision_about(const lib_membership *m, const membership_message *w)
{
    const membership_decision *d = m->decisions;
    while (d && (d->epoch != w->epoch || d->token != w->token)) d = d->next;
    return d;
}

/* What is answered; *data, *bytes: what follows it. */
static enum membership_kind listener_reply(lib_membership *m, const pending_peer *g, const void **data,
                                           size_t *bytes)
{
    const membership_message *w = &g->asks.word;
    const membership_decision *d = decision_about(m, w);
    *bytes = 0;
    if (w->kind == MEMBERSHIP_RUNS)
        return w->round < (uint32_t)m->launch.size && membership_runs(m, (int)w->round) ? MEMBERSHIP_BUSY
                                                                                        : MEMBERSHIP_OUT;
    if (d) {
        *data = &d->content;
        *bytes = d->bytes;
        return MEMBERSHIP_DECIDED;
    }
    if (w->epoch > m->epoch) return MEMBERSHIP_BUSY; /* it knows a decision that has not come here yet */
    if (w->epoch < m->epoch || w->token != m->token) return MEMBERSHIP_OUT;
    if (w->kind == MEMBERSHIP_JOIN) {
        m->joined[w->from] = kolo_time();
        m->joined_away[w->from] = w->away;
    }
    if (m->gathering) return MEMBERSHIP_HERE;
    const exchange_buffer *b =
        w->kind == MEMBERSHIP_GIVE ? membership_give(m, w->from, w->round, g->asks.data, w->bytes) : NULL;
    if (!b) return MEMBERSHIP_BUSY;
    *data = b->all;
    *bytes = (size_t)m->members * b->bytes;
    return MEMBERSHIP_ALL;
}

/* ---- pending peers ------------------------------------------------------------------------------------- */

static void listener_hang_up(pending_peer *g)
{
    if (g->fd >= 0) close(g->fd);
    free(g->answer);
    g->answer = NULL;
    g->fd = -1;
}

static void answer(lib_membership *m, pending_peer *g)
{
    membership_message word;
    const void *data = NULL;
    size_t bytes;
    pthread_mutex_lock(&m->lock);
    enum membership_kind kind = listener_reply(m, g, &data, &bytes);
    membership_greet(m, &word, kind);
    word.bytes = (uint32_t)bytes;
    g->answer = kolo_alloc(sizeof word + bytes);
    if (g->answer) {
        memcpy(g->answer, &word, sizeof word);
        if (bytes) memcpy(g->answer + sizeof word, data, bytes);
    }
    pthread_mutex_unlock(&m->lock);
    g->bytes = sizeof word + bytes;
    if (!g->answer) listener_hang_up(g);
}

/* A peer that knows the cookie is a rank and keeps its place; an unverified one has it until another needs
 * it. */
static void listener_hear(lib_membership *m, pending_peer *g)
{
    size_t whole = g->known ? sizeof g->asks.word + g->asks.word.bytes : sizeof g->asks.word;
    ssize_t n = recv(g->fd, (char *)&g->asks + g->got, whole - g->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) g->got += (size_t)n;
    if (n > 0 && !g->known && g->got == sizeof g->asks.word && (g->known = is_question(m, &g->asks.word)))
        kolo_admission_give_back(&m->unverified);
    if (n <= 0 || (g->got == sizeof g->asks.word && !g->known)) listener_hang_up(g);
    else if (g->known && g->got == sizeof g->asks.word + g->asks.word.bytes) answer(m, g);
}

static void say(pending_peer *g)
{
    ssize_t n = send(g->fd, g->answer + g->sent, g->bytes - g->sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) g->sent += (size_t)n;
    if (n <= 0 || g->sent == g->bytes) listener_hang_up(g);
}

/* A free one, else that of the unverified peer that has been silent for longest; NULL: all are ranks. */
static pending_peer *listener_find_place(pending_peer *peers)
{
    pending_peer *oldest = NULL;
    for (int i = 0; i < PLACES; i++) {
        if (peers[i].fd < 0) return &peers[i];
        if (!peers[i].known && (!oldest || peers[i].since < oldest->since)) oldest = &peers[i];
    }
    return oldest;
}

/* While this rank gathers, or was called lately, the others' questions are urgent: then unverified peers are
 * let in, and shown out, as fast as they come, and the queue does not fill. */
static bool urgent(const lib_membership *m, double now)
{
    return now - 1e-9 * (double)atomic_load(&m->called) < CALLED;
}

static void listener_accept(lib_membership *m, pending_peer *peers, double now)
{
    for (int i = 0; i < AT_ONCE; i++) {
        const bool hurry = urgent(m, now);
        if (!hurry && !kolo_admission_take(&m->unverified, now)) {
            m->deaf = true;
            return;
        }
        pending_peer *place = listener_find_place(peers);
        int fd = place ? accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1;
        if (fd < 0) {
            if (!hurry) kolo_admission_give_back(&m->unverified);
            return;
        }
        listener_hang_up(place);
        *place = (pending_peer){.fd = fd, .since = now};
        listener_hear(m, place); /* the greeting of most ranks is there already */
    }
}

/* ---- the thread ---------------------------------------------------------------------------------------- */

bool membership_away(lib_membership *m)
{
    double now = kolo_time();
    if (now - 1e-9 * (double)atomic_load(&m->beat) > m->heartbeat_timeout) atomic_store(&m->away, true);
    atomic_store(&m->beat, (int64_t)(1e9 * now));
    return atomic_load(&m->away);
}

static void serve(lib_membership *m, pending_peer *peers, const struct pollfd *ready, double now)
{
    for (int i = 0; i < PLACES; i++) {
        pending_peer *g = &peers[i];
        if (g->fd < 0) continue;
        if (ready[i].revents && !g->answer) listener_hear(m, g);
        if (g->fd >= 0 && g->answer) say(g);
        if (g->fd >= 0 && now - g->since > (g->known ? SLOW_PENDING_PEER : UNVERIFIED)) listener_hang_up(g);
    }
}

/* Is the listener polled? Otherwise who comes now waits in the kernel's queue; *wait: how long, ms. */
static bool listens(lib_membership *m, pending_peer *peers, int *wait)
{
    const double now = kolo_time(),
                 rest = m->deaf && !urgent(m, now) ? kolo_admission_wait(&m->unverified, now) : 0;
    m->deaf = rest > 0;
    if (m->deaf && 1000 * rest < *wait) *wait = (int)(1000 * rest) + 1;
    return !m->deaf && listener_find_place(peers);
}

static void *door_main(void *of)
{
    lib_membership *m = of;
    pending_peer *peers = kolo_alloc(PLACES * sizeof *peers);
    struct pollfd ready[PLACES + 2];
    const int often = m->heartbeat_timeout < 4 ? (int)(250 * m->heartbeat_timeout) + 1 : 1000;
    for (int i = 0; peers && i < PLACES; i++) peers[i].fd = -1;
    while (peers) {
        int wait = often;
        for (int i = 0; i < PLACES; i++)
            ready[i] = (struct pollfd){.fd = peers[i].fd, .events = peers[i].answer ? POLLOUT : POLLIN};
        ready[PLACES] = (struct pollfd){.fd = m->bell, .events = POLLIN};
        ready[PLACES + 1] =
            (struct pollfd){.fd = listens(m, peers, &wait) ? m->listener : -1, .events = POLLIN};
        if (poll(ready, PLACES + 2, wait) < 0) continue;
        membership_away(m);
        if (ready[PLACES].revents) break;
        serve(m, peers, ready, kolo_time());
        if (ready[PLACES + 1].revents) listener_accept(m, peers, kolo_time());
    }
    for (int i = 0; peers && i < PLACES; i++) listener_hang_up(&peers[i]);
    free(peers);
    return NULL;
}

int listener_open(lib_membership *m)
{
    atomic_store(&m->beat, (int64_t)(1e9 * kolo_time()));
    KOLO_TRY(kolo_thread_start(&m->thread, door_main, m, "kolo-membership"));
    m->runs = true;
    return 0;
}

void listener_close(lib_membership *m)
{
    uint64_t one = 1;
    if (m->runs && write(m->bell, &one, sizeof one) == (ssize_t)sizeof one) pthread_join(m->thread, NULL);
    m->runs = false;
    for (int i = 0; i < 2; i++) clear_board(&m->board[i]);
}
