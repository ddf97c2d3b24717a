/* How a server is doing, and asking one. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/thread.h"
#include "data/serve/server.h"
#include "data/shard/dataset.h"
#include "kolo/error.h"

static void append_client(const kolo_server *s, const serve_client *t, double now, char *text, size_t size)
{
    const double all = now - t->since, idle = t->idle + (t->idle_since > 0 ? now - t->idle_since : 0);
    kolo_append(text, size, "  process %d, rank %lld of %lld, rows %lld to %lld: ", t->pid,
                (long long)t->rank, (long long)t->ranks, (long long)t->first,
                (long long)(t->first + t->rows - 1));
    if (t->joined < 0) {
        kolo_append(text, size, "reads by itself\n");
        return;
    }
    const int64_t at = t->joined + t->taken;
    kolo_append(text, size, "epoch %lld, step %lld, %.0f img/s, waits %.0f %%%s\n",
                (long long)(at / s->ring.steps), (long long)(at % s->ring.steps),
                all > 0 ? (double)(t->taken * t->rows) / all : 0, all > 0 ? 100 * idle / all : 0,
                s->ring.next > s->ring.base && t->needs[s->ring.base % s->ring.slots]
                    ? ", has the oldest batch to take"
                    : "");
}

void serve_status(const kolo_server *s, char *text, size_t size)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(s->config.dataset);
    const serve_ring *r = &s->ring;
    const double now = kolo_time(), all = now - s->began;
    const double full = s->full + (s->full_since > 0 ? now - s->full_since : 0);
    const int64_t first = s->config.rank * s->rows;
    snprintf(text, size,
             "data_server=%s: process %d, %s, %lld samples, rows %lld to %lld of batches of %lld, ring of %d "
             "batches, %.1f MiB\n",
             s->name, (int)getpid(), info->name, (long long)info->count, (long long)first,
             (long long)(first + s->rows - 1), (long long)s->config.batch, r->slots,
             (double)r->bytes / 0x1p20);
    kolo_append(text, size, "%lld images made, %lld given\n", (long long)r->decoded, (long long)s->delivered);
    if (!r->running) {
        kolo_append(text, size, "nobody has joined\n");
    } else {
        kolo_append(
            text, size,
            "epoch %lld, step %lld: %lld of %d batches wait to be taken, ring full %.0f %% of %.0f s\n",
            (long long)(r->next / r->steps), (long long)(r->next % r->steps), (long long)(r->next - r->base),
            r->slots, all > 0 ? 100 * full / all : 0, all);
        if (!s->started)
            kolo_append(
                text, size,
                "jobs with %lld of %lld rows have joined; the first batches are kept for the others\n",
                (long long)s->rows_joined, (long long)s->rows_wanted);
    }
    for (int i = 0; i < s->clients; i++)
        if (s->client[i].fd >= 0 && s->client[i].rows) append_client(s, &s->client[i], now, text, size);
}

int kolo_server_ask(const char *name, char *text, size_t size)
{
    struct sockaddr_un address;
    int fd;
    KOLO_TRY(serve_path(name, &address));
    KOLO_TRY(serve_connect(&address, &fd));
    serve_packet *packet = kolo_alloc(sizeof *packet);
    int rc = packet ? serve_send(fd, SERVE_ASK, -1, NULL, 0, "", -1) : KOLO_ENOMEM;
    struct pollfd wait = {fd, POLLIN, 0};
    if (rc == 0 && poll(&wait, 1, 10000) <= 0)
        rc = kolo_fail(KOLO_EIO, "data_server=%s: the server does not answer", name);
    if (rc == 0) rc = serve_receive(fd, packet, NULL);
    if (rc > 0) snprintf(text, size, "%s", packet->text);
    close(fd);
    free(packet);
    return rc < 0 ? rc : 0;
}
