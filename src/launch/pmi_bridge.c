#include "launch/pmi_bridge.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct kolo_pmi_bridge {
    kolo_pmi_store store;
    int ours, theirs; /* ends of the socket pair; MPI closes its own in MPI_Finalize */
    pthread_t thread;
    bool chose_version;
};

static bool send_all(int fd, const char *text)
{
    size_t left = strlen(text);
    while (left > 0) {
        ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        text += n;
        left -= (size_t)n;
    }
    return true;
}

/* One line into `line` (without newline), from what is buffered or the socket; false at the end. */
static bool next_line(int fd, char *buffer, size_t *filled, char *line)
{
    for (;;) {
        char *end = memchr(buffer, '\n', *filled);
        if (end) {
            size_t bytes = (size_t)(end - buffer);
            memcpy(line, buffer, bytes);
            line[bytes] = 0;
            *filled -= bytes + 1;
            memmove(buffer, end + 1, *filled);
            return true;
        }
        if (*filled == KOLO_PMI_LINE) return false; /* no client sends that */
        ssize_t n = recv(fd, buffer + *filled, KOLO_PMI_LINE - *filled, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        *filled += (size_t)n;
    }
}

static void *serve(void *argument)
{
    kolo_pmi_bridge *bridge = argument;
    char buffer[KOLO_PMI_LINE], line[KOLO_PMI_LINE], reply[KOLO_PMI_LINE];
    size_t filled = 0;
    while (!bridge->store.ended && next_line(bridge->ours, buffer, &filled, line)) {
        if (kolo_pmi_answer(&bridge->store, line, reply) < 0) kolo_error("%s", kolo_error_text());
        if (*reply && !send_all(bridge->ours, reply)) break;
    }
    shutdown(bridge->ours, SHUT_RDWR); /* a client that still asks gets an end, not silence */
    return NULL;
}

static void set_number(const char *name, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

int kolo_pmi_bridge_open(kolo_pmi_bridge **out, int rank, int size, const char *mapping, kolo_pmi_below below)
{
    int ends[2], rc;
    kolo_pmi_bridge *bridge = kolo_alloc(sizeof *bridge);
    *out = NULL;
    if (!bridge) return KOLO_ENOMEM;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        free(bridge);
        return kolo_fail(KOLO_ELAUNCH, "PMI bridge: no socket pair: %s", strerror(errno));
    }
    bridge->ours = ends[0];
    bridge->theirs = ends[1];
    KOLO_TRY_GOTO(rc, kolo_pmi_store_make(&bridge->store, rank, size, mapping, below));
    KOLO_TRY_GOTO(rc, kolo_thread_start(&bridge->thread, serve, bridge, "PMI bridge"));
    set_number("PMI_FD", bridge->theirs);
    set_number("PMI_RANK", rank);
    set_number("PMI_SIZE", size);
    /* a younger MPICH has several versions: this one implements the first */
    bridge->chose_version = !getenv("MPIR_CVAR_PMI_VERSION");
    if (bridge->chose_version) setenv("MPIR_CVAR_PMI_VERSION", "1", 1);
    *out = bridge;
    return 0;
fail:
    kolo_pmi_store_free(&bridge->store);
    close(ends[0]);
    close(ends[1]);
    free(bridge);
    return rc;
}

void kolo_pmi_bridge_hide(kolo_pmi_bridge *bridge)
{
    unsetenv("PMI_FD");
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
    if (bridge->chose_version) unsetenv("MPIR_CVAR_PMI_VERSION");
}

void kolo_pmi_bridge_close(kolo_pmi_bridge **address)
{
    kolo_pmi_bridge *bridge = *address;
    if (!bridge) return;
    shutdown(bridge->ours, SHUT_RDWR); /* wakes the thread where MPI never came or never said goodbye */
    pthread_join(bridge->thread, NULL);
    if (!bridge->store.ended) close(bridge->theirs);
    close(bridge->ours);
    kolo_pmi_store_free(&bridge->store);
    free(bridge);
    *address = NULL;
}
