/* Gathering, from the side of the rank that calls; membership.h says how. */
#include "comm/library/membership.h"

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
#include "comm/core/transport/inside.h"
#include "kolo/error.h"

/* ---- asking: some ranks at a time, a connection each --------------------------------------------------- */

enum { AT_ONCE = 128 };
enum outcome { WAITING, ANSWERED, GONE /* nothing listens there */, SILENT, UNABLE /* to ask */ };
static const double
    AGAIN = 0.02,
    CONNECTS = 1; /* seconds until it is dialled again: after a failure; where no connection comes about */

typedef struct question {
    int rank, fd; /* fd -1: to be dialled */
    enum outcome outcome;
    double dialled;
    bool asked;
    size_t got;
    membership_message word; /* the answer */
    char *data;              /* [word.bytes] and a zero */
} question;

/* Only a refusal says that nobody is there: a full queue, a lost packet, a hang-up in the middle may all be
 * a crowd's doing. */
static void try_again(question *q)
{
    if (errno == ECONNREFUSED) q->outcome = GONE;
    close(q->fd);
    free(q->data);
    q->fd = -1;
    q->data = NULL;
    q->asked = false;
    q->got = 0;
}

static void knock(const lib_membership *m, question *q)
{
    const line_address *address = &m->addresses[q->rank];
    q->dialled = kolo_time();
    q->fd = socket(address->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (q->fd < 0) {
        q->outcome = UNABLE;
        return;
    }
    if (connect(q->fd, (const struct sockaddr *)&address->address, address->length) < 0 &&
        errno != EINPROGRESS)
        try_again(q);
}

/* The answer's head, then what follows it; false: there is none. */
static bool membership_hear(const lib_membership *m, question *q)
{
    for (;;) {
        size_t head = sizeof q->word, left = q->got < head ? head - q->got : head + q->word.bytes - q->got;
        if (left == 0) return true;
        errno = 0;
        ssize_t n =
            recv(q->fd, q->got < head ? (char *)&q->word + q->got : q->data + (q->got - head), left, 0);
        if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
        q->got += (size_t)n;
        if (q->got == head && (!membership_known(m, &q->word) || q->word.from != q->rank))
            return errno = 0, false;
        if (q->got == head && !(q->data = kolo_alloc((size_t)q->word.bytes + 1))) return false;
        if (q->got == head + q->word.bytes) q->outcome = ANSWERED;
    }
}

static void go_on(const lib_membership *m, question *q, const membership_message *word, const void *data)
{
    struct iovec v[2] = {{(void *)(uintptr_t)word, sizeof *word}, {(void *)(uintptr_t)data, word->bytes}};
    struct msghdr message = {.msg_iov = v, .msg_iovlen = 2};
    const bool goes_on =
        q->asked ? membership_hear(m, q)
                 : sendmsg(q->fd, &message, MSG_NOSIGNAL) == (ssize_t)(sizeof *word + word->bytes);
    q->asked = true;
    if (!goes_on) try_again(q);
}

static void dial(const lib_membership *m, question *q, double now)
{
    if (q->outcome != WAITING) return;
    if (q->fd >= 0 && !q->asked && now - q->dialled > CONNECTS) {
        errno = EAGAIN;
        try_again(q);
    }
    if (q->fd < 0 && now - q->dialled > AGAIN) knock(m, q);
}

/* Until all have answered, are gone, or have been silent for the heartbeat_timeout. */
static void membership_ask(lib_membership *m, question *q, int n, const membership_message *word,
                           const void *data)
{
    struct pollfd ready[AT_ONCE];
    double begin = kolo_time();
    atomic_store(&m->called, (int64_t)(1e9 * begin));
    for (int waiting = n; waiting > 0;) {
        double now = kolo_time();
        bool late =
            now - begin > m->heartbeat_timeout; /* before the look: this process itself may have been away */
        for (int i = 0; i < n; i++) {
            dial(m, &q[i], now);
            ready[i] = (struct pollfd){.fd = q[i].outcome == WAITING ? q[i].fd : -1,
                                       .events = q[i].asked ? POLLIN : POLLOUT};
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

static question ask_one(lib_membership *m, int rank, membership_message *word, const void *data)
{
    question q = {.rank = rank, .fd = -1};
    membership_ask(m, &q, 1, word, data);
    return q;
}

/* Others need not be asked more often: in a large world each would else be asked by too many. */
static void pause_between(const lib_membership *m) { usleep(10000u + 1000u * (useconds_t)m->members); }

static void greet(lib_membership *m, membership_message *word, enum membership_kind kind)
{
    pthread_mutex_lock(&m->lock);
    membership_greet(m, word, kind);
    pthread_mutex_unlock(&m->lock);
    word->away = membership_away(m);
}

/* ---- other ways than a rank's own listener --------------------------------------------------------- */

/* A number that another process has by now is no harm: that one's listener is closed, and refuses. */
bool membership_runs(const lib_membership *m, int rank)
{
    char path[64], text[512];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)m->addresses[rank].pid);
    FILE *file = fopen(path, "re");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    if (file) fclose(file);
    text[n] = 0;
    const char *state = strrchr(text, ')'); /* pid (command) state */
    return state && strlen(state) > 2 && !strchr("TtZXx", state[2]);
}

static bool asked_lately(lib_membership *m, int rank)
{
    pthread_mutex_lock(&m->lock);
    const double at = m->joined[rank];
    pthread_mutex_unlock(&m->lock);
    return at > kolo_time() - m->heartbeat_timeout;
}

/* A rank whose listener is silent: does it live nevertheless? */
static bool lives(lib_membership *m, int rank)
{
    const kolo_launch *l = &m->launch;
    if (asked_lately(m, rank)) return true;
    if (l->node_of[rank] == l->node) return membership_runs(m, rank);
    membership_message word;
    greet(m, &word, MEMBERSHIP_RUNS);
    word.round = (uint32_t)rank;
    for (int i = 0; i < m->members; i++) {
        if (m->member[i] == rank || l->node_of[m->member[i]] != l->node_of[rank]) continue;
        question q = ask_one(m, m->member[i], &word, NULL);
        free(q.data);
        if (q.outcome == ANSWERED) return q.word.kind == MEMBERSHIP_BUSY;
    }
    return false;
}

/* ---- gathering ----------------------------------------------------------------------------------------- */

static int out(const lib_membership *m)
{
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: the other ranks went on without this process (rank %d on host %s of the first "
                     "world), since it was held to be dead or stopped; it cannot "
                     "come back: end it",
                     m->launch.rank, m->launch.host);
}

/* The decision of another: 1, if this rank is a member. */
static int adopt(lib_membership *m, const question *q)
{
    membership_decision *d = kolo_alloc(sizeof *d + q->word.bytes);
    if (!d) return KOLO_ENOMEM;
    d->bytes = q->word.bytes;
    if (d->bytes >= sizeof d->content) memcpy(&d->content, q->data, d->bytes);
    if (d->bytes < sizeof d->content || d->content.count < 1 || d->content.count > m->launch.size ||
        d->bytes != sizeof d->content + (size_t)d->content.count * sizeof *d->content.member) {
        free(d);
        return kolo_fail(KOLO_EINTERNAL, "comm: rank %d sent a malformed decision", q->rank);
    }
    bool member = false;
    for (int i = 0; i < d->content.count; i++) member |= d->content.member[i] == m->launch.rank;
    pthread_mutex_lock(&m->lock);
    if (member) membership_adopt(m, d);
    pthread_mutex_unlock(&m->lock);
    if (member) return 1;
    free(d);
    return out(m);
}

/* A rank's answer. 1: it knows the decision, which is ours now; 0: *dead says whether it is held to be dead.
 * late: it keeps the others waiting for too long. */
static int weigh(lib_membership *m, question *q, bool late, bool *dead)
{
    int rc = 0;
    *dead = late || q->outcome == GONE || (q->outcome == SILENT && !lives(m, q->rank));
    if (q->outcome == UNABLE)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: no socket to ask the other ranks: too many files are open (ulimit -n)");
    if (q->outcome == ANSWERED && q->word.kind == MEMBERSHIP_DECIDED) rc = adopt(m, q);
    if (q->outcome == ANSWERED && q->word.kind == MEMBERSHIP_OUT) rc = out(m);
    free(q->data);
    q->data = NULL;
    return rc;
}

static int decide(lib_membership *m, const bool *dead)
{
    size_t most = (size_t)m->members * sizeof(int32_t);
    membership_decision *d = kolo_alloc(sizeof *d + most);
    if (!d) return KOLO_ENOMEM;
    if (getrandom(&d->content.token, sizeof d->content.token, 0) != (ssize_t)sizeof d->content.token) {
        free(d);
        return kolo_fail(KOLO_ELAUNCH, "comm: getrandom failed: %s", strerror(errno));
    }
    pthread_mutex_lock(&m->lock);
    d->content.away = membership_away(m);
    for (int i = 0; i < m->members; i++) {
        int r = m->member[i];
        if (dead[i]) continue;
        d->content.member[d->content.count++] = r;
        if (r != m->launch.rank) d->content.away &= m->joined_away[r];
    }
    d->bytes = sizeof d->content + (size_t)d->content.count * sizeof *d->content.member;
    membership_adopt(m, d);
    pthread_mutex_unlock(&m->lock);
    return 1;
}

/* Asks those that have not asked for a while. 1: decided; 0: somebody is still to come. */
static int coordinate(lib_membership *m, bool *dead, bool late)
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
        membership_message word;
        greet(m, &word, MEMBERSHIP_LOOK);
        membership_ask(m, q, n, &word, NULL);
        for (int k = 0; k < n; k++) {
            int known = rc == 0 ? weigh(m, &q[k], late, &dead[index[k]]) : 0;
            if (rc == 0) awaited += !dead[index[k]];
            else free(q[k].data);
            if (rc == 0) rc = known;
        }
    }
    return rc != 0 || awaited ? rc : decide(m, dead);
}

/* Asks the coordinator, which gathers as long as it must wait for others. */
static int follow(lib_membership *m, int rank, bool *dead, double waited)
{
    membership_message word;
    greet(m, &word, MEMBERSHIP_JOIN);
    question q = ask_one(m, rank, &word, NULL);
    bool here = q.outcome == ANSWERED && q.word.kind == MEMBERSHIP_HERE;
    return weigh(m, &q, waited > (here ? 3 : 1) * m->timeout, dead);
}

int lib_membership_gather(lib_membership *m, int least)
{
    bool *dead = kolo_alloc((size_t)m->members);
    double begin = kolo_time();
    int rc = dead ? 0 : KOLO_ENOMEM;
    pthread_mutex_lock(&m->lock);
    m->gathering = true;
    pthread_mutex_unlock(&m->lock);
    while (rc == 0) {
        int i = 0;
        while (dead[i]) i++; /* not beyond this rank itself */
        double waited = kolo_time() - begin;
        rc = m->member[i] == m->launch.rank ? coordinate(m, dead, waited > m->timeout)
                                            : follow(m, m->member[i], &dead[i], waited);
        if (rc == 0) pause_between(m);
    }
    free(dead);
    if (rc < 0) return rc;
    if (m->members < least)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: %d of the ranks are left, which is less than the %d that were asked for",
                         m->members, least);
    if (m->decisions->content.away)
        return kolo_fail(
            KOLO_ELAUNCH,
            "comm: all that are left (%d) were themselves stopped for longer than the heartbeat_timeout "
            "of %g s, so others may have gone on without them; end "
            "the job and start it from a checkpoint",
            m->members, m->heartbeat_timeout);
    return 0;
}

/* ---- the members' exchange, while they open their world ------------------------------------------------ */

static int fail_open(const lib_membership *m, int rank)
{
    return kolo_fail(KOLO_ELAUNCH,
                     "comm: rank %d on host %s of the first world died, stopped or gave up while the "
                     "survivors opened theirs",
                     rank, m->launch.host_of[m->launch.node_of[rank]]);
}

/* Is the rank that was asked still on its way? */
static bool may_come(lib_membership *m, const question *q)
{
    return q->outcome == ANSWERED ? q->word.kind == MEMBERSHIP_BUSY
                                  : q->outcome == SILENT && lives(m, q->rank);
}

/* This rank holds the board. */
static int await_all(lib_membership *m, const void *mine, size_t bytes, void *all, uint32_t round)
{
    double begin = kolo_time(), looked = begin;
    membership_message word;
    greet(m, &word, MEMBERSHIP_LOOK);
    for (;;) {
        pthread_mutex_lock(&m->lock);
        const exchange_buffer *b = membership_give(m, m->launch.rank, round, mine, bytes);
        int missing = -1;
        for (int i = 0; !b && i < m->members && missing < 0; i++)
            if (m->board[round & 1].by && !m->board[round & 1].by[m->member[i]]) missing = m->member[i];
        if (b) memcpy(all, b->all, (size_t)m->members * bytes);
        pthread_mutex_unlock(&m->lock);
        if (b) return 0;
        if (missing < 0)
            return kolo_fail(KOLO_EINTERNAL, "comm: the members of a world exchange unlike things");
        if (kolo_time() - looked > 0.25) {
            question q = ask_one(m, missing, &word, NULL);
            free(q.data);
            if (!may_come(m, &q) || kolo_time() - begin > m->timeout) return fail_open(m, missing);
            looked = kolo_time();
        }
        usleep(1000);
    }
}

int lib_membership_exchange(void *of, const void *mine, size_t bytes, void *all)
{
    lib_membership *m = of;
    membership_message word;
    uint32_t round = m->round++;
    if (bytes > MEMBERSHIP_GIVEN)
        return kolo_fail(KOLO_EINTERNAL, "comm: exchange of %zu bytes a rank", bytes);
    if (m->member[0] == m->launch.rank) return await_all(m, mine, bytes, all, round);
    greet(m, &word, MEMBERSHIP_GIVE);
    word.bytes = (uint32_t)bytes;
    word.round = round;
    for (double begin = kolo_time();; pause_between(m)) {
        question q = ask_one(m, m->member[0], &word, mine);
        bool there = q.outcome == ANSWERED && q.word.kind == MEMBERSHIP_ALL &&
                     q.word.bytes == (size_t)m->members * bytes;
        if (there) memcpy(all, q.data, q.word.bytes);
        free(q.data);
        if (there) return 0;
        if (!may_come(m, &q) || kolo_time() - begin > 2 * m->timeout) return fail_open(m, m->member[0]);
    }
}

int lib_membership_launch(lib_membership *m, kolo_launch *launch)
{
    char job[sizeof launch->job];
    snprintf(job, sizeof job, "%.100s.%016llx", m->launch.job, (unsigned long long)m->token);
    return kolo_launch_part(launch, &m->launch, m->member, m->members, job);
}

/* ---- opening and closing ------------------------------------------------------------------------------- */

static int listen_at(lib_membership *m, bool one_node)
{
    line_address *address = &m->address;
    /* an abstract name of the kernel's choice: no file, gone with its process */
    address->address.ss_family = AF_UNIX;
    address->length = sizeof(sa_family_t);
    if (!one_node) KOLO_TRY(line_find_address(address));
    m->bell = eventfd(0, EFD_CLOEXEC);
    return m->bell < 0 ? line_fail_system("eventfd") : line_listen(address, &m->listener);
}

int lib_membership_open(lib_membership **out_membership, const kolo_launch *launch)
{
    const size_t size = (size_t)launch->size;
    lib_membership *m = *out_membership = kolo_alloc(sizeof *m);
    if (!m) return KOLO_ENOMEM;
    m->listener = m->bell = -1;
    pthread_mutex_init(&m->lock, NULL);
    m->addresses = kolo_alloc(size * sizeof *m->addresses);
    m->member = kolo_alloc(size * sizeof *m->member);
    m->joined = kolo_alloc(size * sizeof *m->joined);
    m->joined_away = kolo_alloc(size * sizeof *m->joined_away);
    if (!m->addresses || !m->member || !m->joined || !m->joined_away) return KOLO_ENOMEM;
    for (int r = 0; r < launch->size; r++) m->member[r] = r;
    m->members = launch->size;
    KOLO_TRY(kolo_launch_part(&m->launch, launch, m->member, m->members, launch->job));
    return listen_at(m, launch->nodes == 1);
}

int lib_membership_begin(lib_membership *m, const line_address *addresses, size_t stride, double timeout,
                         double heartbeat_timeout)
{
    m->timeout = timeout;
    m->heartbeat_timeout = heartbeat_timeout < timeout ? heartbeat_timeout : timeout;
    for (int r = 0; r < m->members; r++)
        memcpy(&m->addresses[r], (const char *)addresses + (size_t)r * stride, sizeof *addresses);
    return listener_open(m);
}

void lib_membership_close(lib_membership **out_membership)
{
    lib_membership *m = *out_membership;
    if (!m) return;
    listener_close(m);
    if (m->listener >= 0) close(m->listener);
    if (m->bell >= 0) close(m->bell);
    for (membership_decision *d = m->decisions, *next; d; d = next) {
        next = d->next;
        free(d);
    }
    kolo_launch_finish(&m->launch);
    free(m->addresses);
    free(m->member);
    free(m->joined);
    free(m->joined_away);
    pthread_mutex_destroy(&m->lock);
    free(m);
    *out_membership = NULL;
}
