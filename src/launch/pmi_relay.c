#include "launch/pmi_relay.h"

#include "base/memory.h"
#include "base/thread.h"
#include "launch/method.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PIECE = 4096 };

struct kolo_pmi_relay {
    int launcher, ours, theirs; /* theirs: MPI's, which closes it */
    char before[16];            /* PMI_FD as it was */
    void (*failed)(void *of);
    void *of;
    _Atomic bool started;
    _Atomic int version; /* of the protocol, by MPI's first line */
    pthread_t thread;
};

static bool send_all(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* A message of version 1 is a line; of version 2 its length, in six characters, and as many bytes. MPI
 * sends one at a time and mostly waits for the answer, so each comes as a piece of its own. */
static bool is_abort(const char *data, size_t bytes, int version)
{
    const size_t head = version == 2 ? 6 : 0;
    return bytes >= head + 9 && memcmp(data + head, "cmd=abort", 9) == 0;
}

static int version_of(const char *data, size_t bytes)
{
    static const char second[] = "pmi_version=2";
    return memmem(data, bytes, second, sizeof second - 1) ? 2 : 1;
}

/* Passes on what has come; false: this side has hung up. */
static bool pass(kolo_pmi_relay *r, int from, int to)
{
    char piece[PIECE];
    const ssize_t n = recv(from, piece, sizeof piece, 0);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) return false;
    if (from == r->ours && !atomic_load(&r->version)) atomic_store(&r->version, version_of(piece, (size_t)n));
    else if (from == r->ours && !atomic_load(&r->started) &&
             is_abort(piece, (size_t)n, atomic_load(&r->version)))
        r->failed(r->of);
    return send_all(to, piece, (size_t)n);
}

static void *relay_main(void *of)
{
    kolo_pmi_relay *r = of;
    struct pollfd ready[2] = {{r->ours, POLLIN, 0}, {r->launcher, POLLIN, 0}};
    for (bool goes_on = true; goes_on;) {
        if (poll(ready, 2, -1) < 0) continue;
        if (ready[0].revents) goes_on = pass(r, r->ours, r->launcher);
        if (goes_on && ready[1].revents) goes_on = pass(r, r->launcher, r->ours);
    }
    shutdown(r->ours, SHUT_RDWR); /* the other side learns that this one is gone */
    shutdown(r->launcher, SHUT_RDWR);
    return NULL;
}

kolo_pmi_relay *kolo_pmi_relay_open(void (*failed)(void *of), void *of)
{
    int ends[2], kind = 0;
    socklen_t bytes = sizeof kind;
    char number[16];
    const int launcher = kolo_env_int("PMI_FD", -1);
    if (launcher < 0 || getsockopt(launcher, SOL_SOCKET, SO_TYPE, &kind, &bytes) < 0 || kind != SOCK_STREAM)
        return NULL;
    kolo_pmi_relay *r = kolo_alloc(sizeof *r);
    if (!r || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(r);
        return NULL;
    }
    *r = (kolo_pmi_relay){
        .launcher = launcher, .ours = ends[0], .theirs = ends[1], .failed = failed, .of = of};
    snprintf(r->before, sizeof r->before, "%s", getenv("PMI_FD"));
    snprintf(number, sizeof number, "%d", r->theirs);
    if (kolo_thread_start(&r->thread, relay_main, r, "kolo-pmi") != 0) {
        close(ends[0]);
        close(ends[1]);
        free(r);
        return NULL;
    }
    pthread_detach(r->thread);
    setenv("PMI_FD", number, 1);
    return r; /* until the process ends: MPI says its last word on exit */
}

void kolo_pmi_relay_started(kolo_pmi_relay *r)
{
    if (!r) return;
    setenv("PMI_FD", r->before, 1);
    atomic_store(&r->started, true);
}

void kolo_pmi_relay_abort(kolo_pmi_relay *r, int exit_status)
{
    char text[64], message[96];
    int rank, size;
    if (!r || !atomic_load(&r->version)) return;
    if (atomic_load(&r->version) == 1)
        snprintf(message, sizeof message, "cmd=abort exitcode=%d\n", exit_status);
    else {
        snprintf(text, sizeof text, "cmd=abort;isworld=TRUE;exitcode=%d;", exit_status);
        snprintf(message, sizeof message, "%6zu%s", strlen(text), text);
    }
    /* srun's status is the highest of its tasks', and those that it then ends, a stopped one above all, have
     * 137 (SIGKILL): nothing that a task says changes that, but this one's own status is to come first, which
     * srun tells ("task 0: Exited with exit code 69"). Hydra's is what it was asked for, if nobody ends by
     * himself meanwhile. */
    const bool later = kolo_slurm_step(&rank, &size) && !getenv("MPI_LOCALNRANKS");
    if (later && fork() != 0) return;
    if (later) nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    send_all(r->launcher, message, strlen(message));
    if (later) _exit(0);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
}
