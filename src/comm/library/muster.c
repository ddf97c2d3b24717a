/* Gathering, from the side of the rank that calls; muster.h says how. */
#include "comm/library/muster.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/transport/inside.h"
#include "kolo/error.h"

/* ---- asking: some ranks at a time, a connection each ---------------------------------------------------------------------------- */

enum { AT_ONCE = 128 };
enum outcome { WAITING, ANSWERED, GONE /* nobody is behind that door */, SILENT, UNABLE /* to ask */ };

typedef struct question {
    int rank, fd; /* fd -1: to be dialled */
    enum outcome outcome;
    bool asked;
    size_t got;
    muster_word word; /* the answer */
    char *data;       /* [word.bytes] and a zero */
} question;

static void knock(const lib_muster *m, question *q)
{
    const line_card *card = &m->cards[q->rank];
    q->fd = socket(card->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (q->fd < 0) {
        q->outcome = UNABLE;
        return;
    }
    if (connect(q->fd, (const struct sockaddr *)&card->address, card->length) == 0 || errno == EINPROGRESS) return;
    if (errno != EAGAIN) q->outcome = GONE; /* else its queue is full */
    close(q->fd);
    q->fd = -1;
}

/* The answer's head, then what follows it; false: there is none. */
static bool hear(const lib_muster *m, question *q)
{
    for (;;) {
        size_t head = sizeof q->word, left = q->got < head ? head - q->got : head + q->word.bytes - q->got;
        if (left == 0) return true;
        ssize_t n = recv(q->fd, q->got < head ? (char *)&q->word + q->got : q->data + (q->got - head), left, 0);
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
        q->got += (size_t)n;
        if (q->got == head && (!muster_known(m, &q->word) || q->word.from != q->rank)) return false;
        if (q->got == head && !(q->data = kolo_alloc((size_t)q->word.bytes + 1))) return false;
        if (q->got == head + q->word.bytes) q->outcome = ANSWERED;
    }
}

static void go_on(const lib_muster *m, question *q, const muster_word *word, const void *data)
{
    struct iovec v[2] = {{(void *)(uintptr_t)word, sizeof *word}, {(void *)(uintptr_t)data, word->bytes}};
    struct msghdr message = {.msg_iov = v, .msg_iovlen = 2};
    if (q->asked ? !hear(m, q) : sendmsg(q->fd, &message, MSG_NOSIGNAL) != (ssize_t)(sizeof *word + word->bytes)) q->outcome = GONE;
    q->asked = true;
}

/* Until all have answered, are gone, or have been silent for the patience. */
static void ask(const lib_muster *m, question *q, int n, const muster_word *word, const void *data)
{
    struct pollfd ready[AT_ONCE];
    double begin = kolo_time();
    for (int waiting = n; waiting > 0;) {
        bool late = kolo_time() - begin > m->patience; /* before the look: this process itself may have been away */
        for (int i = 0; i < n; i++) {
            if (q[i].outcome == WAITING && q[i].fd < 0) knock(m, &q[i]);
            ready[i] = (struct pollfd){.fd = q[i].outcome == WAITING ? q[i].fd : -1, .events = q[i].asked ? POLLIN : POLLOUT};
        }
        int any = poll(ready, (nfds_t)n, late ? 0 : 20);
        waiting = 0;
        for (int i = 0; i < n; i++) {
            if (any > 0 && ready[i].revents) go_on(m, &q[i], word, data);
            if (late && q[i].outcome == WAITING) q[i].outcome = SILENT;
            waiting += q[i].outcome == WAITING;
        }
    }
    for (int i = 0; i < n; i++)
        if (q[i].fd >= 0) close(q[i].fd);
}

static question ask_one(lib_muster *m, int rank, muster_word *word, const void *data)
{
    question q = {.rank = rank, .fd = -1};
    ask(m, &q, 1, word, data);
    return q;
}

/* Others need not be asked more often: in a large world each would else be asked by too many. */
static void pause_between(const lib_muster *m)
{
    double seconds = 0.01 + 0.001 * m->members;
    struct timespec nap = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&nap, NULL);
}

static void greet(lib_muster *m, muster_word *word, enum muster_kind kind)
{
    pthread_mutex_lock(&m->lock);
    muster_greet(m, word, kind);
    pthread_mutex_unlock(&m->lock);
    word->away = muster_away(m);
}

/* ---- gathering -------------------------------------------------------------------------------------------------------------------- */

static int out(const lib_muster *m)
{
    return kolo_fail(
        KOLO_ELAUNCH,
        "comm: the other ranks went on without this process (rank %d on host %s of the first world), since it was held to be dead or stopped; it cannot "
        "come back: end it",
        m->launch.rank, m->launch.host);
}

/* The decision of another: 1, if this rank is a member. */
static int adopt(lib_muster *m, const question *q)
{
    muster_decision *d = kolo_alloc(sizeof *d + q->word.bytes);
    if (!d) return KOLO_ECONFIG;
    d->bytes = q->word.bytes;
    if (d->bytes >= sizeof d->told) memcpy(&d->told, q->data, d->bytes);
    if (d->bytes < sizeof d->told || d->told.count < 1 || d->told.count > m->launch.size ||
        d->bytes != sizeof d->told + (size_t)d->told.count * sizeof *d->told.member) {
        free(d);
        return kolo_fail(KOLO_EINTERNAL, "comm: rank %d told a decision that is none", q->rank);
    }
    bool member = false;
    for (int i = 0; i < d->told.count; i++) member |= d->told.member[i] == m->launch.rank;
    d->epoch = m->epoch;
    d->token = m->token;
    pthread_mutex_lock(&m->lock);
    if (member) muster_adopt(m, d);
    pthread_mutex_unlock(&m->lock);
    if (member) return 1;
    free(d);
    return out(m);
}

/* A rank's answer. 1: it knows the decision, which is ours now; 0: *dead says whether it is held to be dead. late: it keeps the others waiting for too long. */
static int weigh(lib_muster *m, question *q, bool late, bool *dead)
{
    int rc = 0;
    *dead = q->outcome != ANSWERED || late;
    if (q->outcome == UNABLE) return kolo_fail(KOLO_ELAUNCH, "comm: no socket to ask the other ranks: too many files are open (ulimit -n)");
    if (q->outcome == ANSWERED && q->word.kind == MUSTER_DECIDED) rc = adopt(m, q);
    if (q->outcome == ANSWERED && q->word.kind == MUSTER_OUT) rc = out(m);
    free(q->data);
    q->data = NULL;
    return rc;
}

static int decide(lib_muster *m, const bool *dead)
{
    size_t most = (size_t)m->members * sizeof(int32_t);
    muster_decision *d = kolo_alloc(sizeof *d + most);
    if (!d) return KOLO_ECONFIG;
    if (getrandom(&d->told.token, sizeof d->told.token, 0) != (ssize_t)sizeof d->told.token) {
        free(d);
        return kolo_fail(KOLO_ELAUNCH, "comm: getrandom failed: %s", strerror(errno));
    }
    pthread_mutex_lock(&m->lock);
    d->epoch = m->epoch;
    d->token = m->token;
    d->told.away = muster_away(m);
    for (int i = 0; i < m->members; i++) {
        int r = m->member[i];
        if (dead[i]) continue;
        d->told.member[d->told.count++] = r;
        if (r != m->launch.rank) d->told.away &= m->joined_away[r];
    }
    d->bytes = sizeof d->told + (size_t)d->told.count * sizeof *d->told.member;
    muster_adopt(m, d);
    pthread_mutex_unlock(&m->lock);
    return 1;
}

/* Asks those that have not asked for a while. 1: decided; 0: somebody is still to come. */
static int coordinate(lib_muster *m, bool *dead, bool late)
{
    question q[AT_ONCE];
    int index[AT_ONCE], rc = 0, awaited = 0;
    double fresh = kolo_time() - 0.5 - 0.004 * m->members;
    for (int i = 0; i < m->members && rc == 0;) {
        int n = 0;
        for (; i < m->members && n < AT_ONCE; i++) {
            pthread_mutex_lock(&m->lock);
            bool came = m->joined[m->member[i]] > fresh;
            pthread_mutex_unlock(&m->lock);
            if (dead[i] || came || m->member[i] == m->launch.rank) continue;
            index[n] = i;
            q[n++] = (question){.rank = m->member[i], .fd = -1};
        }
        muster_word word;
        greet(m, &word, MUSTER_LOOK);
        ask(m, q, n, &word, NULL);
        for (int k = 0; k < n; k++) {
            int told = rc == 0 ? weigh(m, &q[k], late, &dead[index[k]]) : 0;
            if (rc == 0) awaited += !dead[index[k]];
            else free(q[k].data);
            if (rc == 0) rc = told;
        }
    }
    return rc != 0 || awaited ? rc : decide(m, dead);
}

/* Asks the coordinator, which gathers as long as it must wait for others. */
static int follow(lib_muster *m, int rank, bool *dead, double waited)
{
    muster_word word;
    greet(m, &word, MUSTER_JOIN);
    question q = ask_one(m, rank, &word, NULL);
    bool here = q.outcome == ANSWERED && q.word.kind == MUSTER_HERE;
    return weigh(m, &q, waited > (here ? 3 : 1) * m->timeout, dead);
}

int lib_muster_gather(lib_muster *m, int least)
{
    bool *dead = kolo_alloc((size_t)m->members);
    double begin = kolo_time();
    int rc = dead ? 0 : KOLO_ECONFIG;
    pthread_mutex_lock(&m->lock);
    m->gathering = true;
    pthread_mutex_unlock(&m->lock);
    while (rc == 0) {
        int i = 0;
        while (dead[i]) i++; /* not beyond this rank itself */
        double waited = kolo_time() - begin;
        rc = m->member[i] == m->launch.rank ? coordinate(m, dead, waited > m->timeout) : follow(m, m->member[i], &dead[i], waited);
        if (rc == 0) pause_between(m);
    }
    free(dead);
    if (rc < 0) return rc;
    if (m->members < least) return kolo_fail(KOLO_ELAUNCH, "comm: %d of the ranks are left, which is less than the %d that were asked for", m->members, least);
    if (m->decisions->told.away)
        return kolo_fail(
            KOLO_ELAUNCH,
            "comm: all that are left (%d) were themselves stopped for longer than the patience of %g s, so others may have gone on without them; end "
            "the job and start it from a checkpoint",
            m->members, m->patience);
    return 0;
}

/* ---- the members' exchange, while they open their world ------------------------------------------------------------------------------ */

static int fail_open(const lib_muster *m, int rank)
{
    return kolo_fail(KOLO_ELAUNCH, "comm: rank %d on host %s of the first world died, stopped or gave up while the survivors opened theirs", rank,
                     m->launch.host_of[m->launch.node_of[rank]]);
}

/* This rank holds the board. */
static int await_all(lib_muster *m, const void *mine, size_t bytes, void *all, uint32_t round)
{
    double begin = kolo_time(), looked = begin;
    muster_word word;
    greet(m, &word, MUSTER_LOOK);
    for (;;) {
        pthread_mutex_lock(&m->lock);
        const muster_board *b = muster_give(m, m->launch.rank, round, mine, bytes);
        int missing = -1;
        for (int i = 0; !b && i < m->members && missing < 0; i++)
            if (m->board[round & 1].by && !m->board[round & 1].by[m->member[i]]) missing = m->member[i];
        if (b) memcpy(all, b->all, (size_t)m->members * bytes);
        pthread_mutex_unlock(&m->lock);
        if (b) return 0;
        if (missing < 0) return kolo_fail(KOLO_EINTERNAL, "comm: the members of a world exchange unlike things");
        if (kolo_time() - looked > 0.25) {
            question q = ask_one(m, missing, &word, NULL);
            free(q.data);
            if (q.outcome != ANSWERED || q.word.kind != MUSTER_BUSY || kolo_time() - begin > m->timeout) return fail_open(m, missing);
            looked = kolo_time();
        }
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

int lib_muster_exchange(void *of, const void *mine, size_t bytes, void *all)
{
    lib_muster *m = of;
    muster_word word;
    uint32_t round = m->round++;
    if (bytes > MUSTER_GIVEN) return kolo_fail(KOLO_EINTERNAL, "comm: exchange of %zu bytes a rank", bytes);
    if (m->member[0] == m->launch.rank) return await_all(m, mine, bytes, all, round);
    greet(m, &word, MUSTER_GIVE);
    word.bytes = (uint32_t)bytes;
    word.round = round;
    for (double begin = kolo_time();; pause_between(m)) {
        question q = ask_one(m, m->member[0], &word, mine);
        bool there = q.outcome == ANSWERED && q.word.kind == MUSTER_ALL && q.word.bytes == (size_t)m->members * bytes;
        if (there) memcpy(all, q.data, q.word.bytes);
        free(q.data);
        if (there) return 0;
        if (q.outcome != ANSWERED || q.word.kind != MUSTER_BUSY || kolo_time() - begin > 2 * m->timeout) return fail_open(m, m->member[0]);
    }
}

int lib_muster_launch(lib_muster *m, kolo_launch *launch)
{
    char job[sizeof launch->job];
    snprintf(job, sizeof job, "%.100s.%016llx", m->launch.job, (unsigned long long)m->token);
    return kolo_launch_part(launch, &m->launch, m->member, m->members, job);
}

/* ---- opening and closing --------------------------------------------------------------------------------------------------------------- */

static int listen_at(lib_muster *m, bool one_node)
{
    line_card *card = &m->card;
    socklen_t length = sizeof card->address;
    card->address.ss_family = AF_UNIX; /* an abstract name of the kernel's choice: no file, gone with its process */
    card->length = sizeof(sa_family_t);
    if (!one_node) KOLO_TRY(line_address(card));
    m->bell = eventfd(0, EFD_CLOEXEC);
    m->listener = socket(card->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (m->bell < 0 || m->listener < 0) return line_fail_system("socket");
    if (bind(m->listener, (const struct sockaddr *)&card->address, card->length) < 0) return line_fail_system("bind");
    if (listen(m->listener, SOMAXCONN) < 0) return line_fail_system("listen");
    if (getsockname(m->listener, (struct sockaddr *)&card->address, &length) < 0) return line_fail_system("getsockname");
    card->length = length;
    if (getrandom(card->cookie, sizeof card->cookie, 0) != (ssize_t)sizeof card->cookie) return line_fail_system("getrandom");
    return 0;
}

int lib_muster_open(lib_muster **out_muster, bool one_node)
{
    lib_muster *m = *out_muster = kolo_alloc(sizeof *m);
    if (!m) return KOLO_ECONFIG;
    m->listener = m->bell = -1;
    pthread_mutex_init(&m->lock, NULL);
    return listen_at(m, one_node);
}

int lib_muster_begin(lib_muster *m, const kolo_launch *launch, const line_card *cards, size_t stride, double timeout, double patience)
{
    size_t size = (size_t)launch->size;
    m->timeout = timeout;
    m->patience = patience < timeout ? patience : timeout;
    m->cards = kolo_alloc(size * sizeof *m->cards);
    m->member = kolo_alloc(size * sizeof *m->member);
    m->joined = kolo_alloc(size * sizeof *m->joined);
    m->joined_away = kolo_alloc(size * sizeof *m->joined_away);
    if (!m->cards || !m->member || !m->joined || !m->joined_away) return KOLO_ECONFIG;
    for (int r = 0; r < launch->size; r++) {
        memcpy(&m->cards[r], (const char *)cards + (size_t)r * stride, sizeof *cards);
        m->member[r] = r;
    }
    m->members = launch->size;
    KOLO_TRY(kolo_launch_part(&m->launch, launch, m->member, m->members, launch->job));
    return muster_door_open(m);
}

void lib_muster_close(lib_muster **out_muster)
{
    lib_muster *m = *out_muster;
    if (!m) return;
    muster_door_close(m);
    if (m->listener >= 0) close(m->listener);
    if (m->bell >= 0) close(m->bell);
    for (muster_decision *d = m->decisions, *next; d; d = next) {
        next = d->next;
        free(d);
    }
    kolo_launch_finish(&m->launch);
    free(m->cards);
    free(m->member);
    free(m->joined);
    free(m->joined_away);
    pthread_mutex_destroy(&m->lock);
    free(m);
    *out_muster = NULL;
}
