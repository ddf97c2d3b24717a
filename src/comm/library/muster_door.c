/* The door of a rank: a thread that answers whoever knocks, whatever the rank itself does. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/muster.h"
#include "kolo/error.h"

enum { SEATS = 64 };
static const char magic[8] = "kolo-m1";
static const double SILENT_GUEST = 60; /* seconds */

typedef struct guest {
    int fd;
    double since;
    struct {
        muster_word word;
        char data[MUSTER_GIVEN];
    } asks;
    size_t got, sent, bytes;
    char *answer; /* [bytes] NULL: not heard out yet */
} guest;

void muster_greet(const lib_muster *m, muster_word *word, enum muster_kind kind)
{
    *word = (muster_word){.kind = kind, .from = m->launch.rank, .epoch = m->epoch, .token = m->token};
    memcpy(word->magic, magic, sizeof magic);
    memcpy(word->cookie, m->cards[0].cookie, sizeof word->cookie);
}

bool muster_known(const lib_muster *m, const muster_word *w)
{
    unsigned char differs = 0; /* looked at as a whole, so that the time tells nothing */
    for (size_t i = 0; i < sizeof w->cookie; i++) differs |= w->cookie[i] ^ m->cards[0].cookie[i];
    return memcmp(w->magic, magic, sizeof magic) == 0 && !differs && w->from >= 0 && w->from < m->launch.size &&
           w->bytes <= (size_t)m->launch.size * MUSTER_GIVEN + sizeof(muster_decision);
}

static bool is_question(const lib_muster *m, const muster_word *w)
{
    return muster_known(m, w) && w->kind >= MUSTER_JOIN && w->kind <= MUSTER_GIVE && w->bytes <= MUSTER_GIVEN;
}

/* ---- what is known, under the lock ----------------------------------------------------------------------------------------- */

static void clear_board(muster_board *b)
{
    free(b->all);
    free(b->by);
    *b = (muster_board){0};
}

void muster_adopt(lib_muster *m, muster_decision *d)
{
    d->next = m->decisions;
    m->decisions = d;
    m->epoch++;
    m->token = d->told.token;
    m->members = d->told.count;
    for (int i = 0; i < m->members; i++) m->member[i] = d->told.member[i];
    for (int r = 0; r < m->launch.size; r++) m->joined[r] = 0;
    for (int i = 0; i < 2; i++) clear_board(&m->board[i]);
    m->round = 0;
    m->gathering = false;
}

static int place_of(const lib_muster *m, int rank)
{
    int i = 0;
    while (i < m->members && m->member[i] != rank) i++;
    return i < m->members ? i : -1;
}

/* Two rounds at most are under way: who gives for one has got the one before. */
const muster_board *muster_give(lib_muster *m, int from, uint32_t round, const void *data, size_t bytes)
{
    muster_board *b = &m->board[round & 1];
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

static const muster_decision *decision_about(const lib_muster *m, const muster_word *w)
{
    const muster_decision *d = m->decisions;
    while (d && (d->epoch != w->epoch || d->token != w->token)) d = d->next;
    return d;
}

/* What is answered; *data, *bytes: what follows it. */
static enum muster_kind judge(lib_muster *m, const guest *g, const void **data, size_t *bytes)
{
    const muster_word *w = &g->asks.word;
    const muster_decision *d = decision_about(m, w);
    *bytes = 0;
    if (d) {
        *data = &d->told;
        *bytes = d->bytes;
        return MUSTER_DECIDED;
    }
    if (w->epoch > m->epoch) return MUSTER_BUSY; /* it knows a decision that has not come here yet */
    if (w->epoch < m->epoch || w->token != m->token) return MUSTER_OUT;
    if (w->kind == MUSTER_JOIN) {
        m->joined[w->from] = kolo_time();
        m->joined_away[w->from] = w->away;
    }
    if (m->gathering) return MUSTER_HERE;
    const muster_board *b = w->kind == MUSTER_GIVE ? muster_give(m, w->from, w->round, g->asks.data, w->bytes) : NULL;
    if (!b) return MUSTER_BUSY;
    *data = b->all;
    *bytes = (size_t)m->members * b->bytes;
    return MUSTER_ALL;
}

/* ---- guests ------------------------------------------------------------------------------------------------------------------ */

static void show_out(guest *g)
{
    if (g->fd >= 0) close(g->fd);
    free(g->answer);
    g->answer = NULL;
    g->fd = -1;
}

static void answer(lib_muster *m, guest *g)
{
    muster_word word;
    const void *data = NULL;
    size_t bytes;
    pthread_mutex_lock(&m->lock);
    enum muster_kind kind = judge(m, g, &data, &bytes);
    muster_greet(m, &word, kind);
    word.bytes = (uint32_t)bytes;
    g->answer = kolo_alloc(sizeof word + bytes);
    if (g->answer) {
        memcpy(g->answer, &word, sizeof word);
        if (bytes) memcpy(g->answer + sizeof word, data, bytes);
    }
    pthread_mutex_unlock(&m->lock);
    g->bytes = sizeof word + bytes;
    if (!g->answer) show_out(g);
}

static void hear(lib_muster *m, guest *g)
{
    size_t whole = g->got < sizeof g->asks.word ? sizeof g->asks.word : sizeof g->asks.word + g->asks.word.bytes;
    ssize_t n = recv(g->fd, (char *)&g->asks + g->got, whole - g->got, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) g->got += (size_t)n;
    if (n <= 0 || (g->got == sizeof g->asks.word && !is_question(m, &g->asks.word))) show_out(g);
    else if (g->got >= sizeof g->asks.word && g->got == sizeof g->asks.word + g->asks.word.bytes) answer(m, g);
}

static void say(guest *g)
{
    ssize_t n = send(g->fd, g->answer + g->sent, g->bytes - g->sent, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n > 0) g->sent += (size_t)n;
    if (n <= 0 || g->sent == g->bytes) show_out(g);
}

static void let_in(const lib_muster *m, guest *g, double now)
{
    int fd = accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) *g = (guest){.fd = fd, .since = now};
}

/* ---- the thread ---------------------------------------------------------------------------------------------------------------- */

bool muster_away(lib_muster *m)
{
    double now = kolo_time();
    if (now - 1e-9 * (double)atomic_load(&m->beat) > m->patience) atomic_store(&m->away, true);
    atomic_store(&m->beat, (int64_t)(1e9 * now));
    return atomic_load(&m->away);
}

static void serve(lib_muster *m, guest *guests, const struct pollfd *ready, double now)
{
    for (int i = 0; i < SEATS; i++) {
        guest *g = &guests[i];
        if (g->fd < 0) continue;
        if (ready[i].revents && !g->answer) hear(m, g);
        if (g->fd >= 0 && g->answer) say(g);
        if (g->fd >= 0 && now - g->since > SILENT_GUEST) show_out(g);
    }
}

static void *door_main(void *of)
{
    lib_muster *m = of;
    guest *guests = kolo_alloc(SEATS * sizeof *guests);
    struct pollfd ready[SEATS + 2];
    int often = m->patience < 4 ? (int)(250 * m->patience) + 1 : 1000;
    prctl(PR_SET_NAME, "kolo-muster");
    for (int i = 0; guests && i < SEATS; i++) guests[i].fd = -1;
    while (guests) {
        guest *seat = NULL;
        for (int i = 0; i < SEATS; i++) {
            ready[i] = (struct pollfd){.fd = guests[i].fd, .events = guests[i].answer ? POLLOUT : POLLIN};
            if (guests[i].fd < 0) seat = &guests[i];
        }
        ready[SEATS] = (struct pollfd){.fd = m->bell, .events = POLLIN};
        ready[SEATS + 1] = (struct pollfd){.fd = seat ? m->listener : -1, .events = POLLIN}; /* who comes now waits in the queue */
        if (poll(ready, SEATS + 2, often) < 0) continue;
        muster_away(m);
        if (ready[SEATS].revents) break;
        serve(m, guests, ready, kolo_time());
        if (ready[SEATS + 1].revents) let_in(m, seat, kolo_time());
    }
    for (int i = 0; guests && i < SEATS; i++) show_out(&guests[i]);
    free(guests);
    return NULL;
}

int muster_door_open(lib_muster *m)
{
    atomic_store(&m->beat, (int64_t)(1e9 * kolo_time()));
    int rc = pthread_create(&m->thread, NULL, door_main, m);
    if (rc) return kolo_fail(KOLO_EINTERNAL, "comm: no thread for the door: %s; raise the limit of processes (ulimit -u)", strerror(rc));
    m->runs = true;
    return 0;
}

void muster_door_close(lib_muster *m)
{
    uint64_t one = 1;
    if (m->runs && write(m->bell, &one, sizeof one) == (ssize_t)sizeof one) pthread_join(m->thread, NULL);
    m->runs = false;
    for (int i = 0; i < 2; i++) clear_board(&m->board[i]);
}
