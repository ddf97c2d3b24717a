/* A Chrome trace of this rank. Whoever has an event puts it into a ring and goes on; a thread takes events out, formats them and writes whole ones, so a
 * file is readable whenever its process ends: the format allows that the end of the array is missing. */
#include "comm/library/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"

enum {
    RING = 1 << 14,
    FLUSH = 256, /* events a write */
    NAME = 72,
    PHASES = 24,
    ROWS = 16, /* of a phase: events that overlap stand in different ones */
};

typedef struct event {
    _Atomic uint64_t turn; /* position + 1 when it is written, position + RING when it is free again */
    const char *phase, *algorithm;
    double begin, end;
    int64_t bytes;
    char name[NAME];
} event;

/* An event that is none: begin is an offset of clocks, end its error. */
static const char clock_phase[] = "clock";

struct lib_timeline {
    event *ring;
    _Alignas(64) _Atomic uint64_t tail;
    _Atomic uint64_t lost;
    _Alignas(64) uint64_t head;
    int fd, rank;
    char *path;
    FILE *out; /* into memory */
    char *text;
    size_t bytes;
    pthread_t writer;
    bool running, full;
    _Atomic uint32_t stop;
    const char *phase[PHASES];
    int phases;
    double row_end[PHASES][ROWS];
};

void lib_timeline_carried(struct lib_timeline *t, const char *phase, const char *name, const char *algorithm,
                          double begin, double end, int64_t bytes)
{
    if (!t) return;
    uint64_t at = atomic_load_explicit(&t->tail, memory_order_relaxed);
    event *e;
    do {
        e = &t->ring[at % RING];
        if (atomic_load_explicit(&e->turn, memory_order_acquire) != at) { /* full, or somebody else was first */
            uint64_t now = atomic_load_explicit(&t->tail, memory_order_relaxed);
            if (now == at) {
                atomic_fetch_add_explicit(&t->lost, 1, memory_order_relaxed);
                return;
            }
            at = now;
            continue;
        }
        if (atomic_compare_exchange_weak_explicit(&t->tail, &at, at + 1, memory_order_relaxed, memory_order_relaxed))
            break;
    } while (true);
    e->phase = phase;
    e->algorithm = algorithm;
    e->begin = begin;
    e->end = end;
    e->bytes = bytes;
    e->name[0] = 0;
    if (name) strncpy(e->name, name, NAME - 1);
    atomic_store_explicit(&e->turn, at + 1, memory_order_release);
}

/* ---- the writer ----------------------------------------------------------------------------------------------------------- */

static void note(struct lib_timeline *t, int thread, const char *kind, const char *text)
{
    fprintf(t->out, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":", t->rank, thread,
            kind);
    kolo_json_string(t->out, text);
    fputs("}}", t->out);
}

static int row_of(struct lib_timeline *t, const event *e)
{
    int p = 0, r = 0;
    while (p < t->phases && strcmp(t->phase[p], e->phase) != 0) p++;
    if (p == PHASES) p--;
    if (p == t->phases) t->phase[t->phases++] = e->phase;
    while (r < ROWS - 1 && t->row_end[p][r] > e->begin) r++;
    if (t->row_end[p][r] == 0) note(t, p * ROWS + r + 1, "thread_name", t->phase[p]);
    if (e->end > t->row_end[p][r]) t->row_end[p][r] = e->end;
    return p * ROWS + r + 1;
}

static void print(struct lib_timeline *t, const event *e)
{
    if (e->phase == clock_phase) {
        fprintf(
            t->out,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"kolo_clock\",\"args\":{\"offset\":%.9f,\"error\":%.9f}}",
            t->rank, e->begin, e->end);
        return;
    }
    int row = row_of(t, e);
    double length = e->end > e->begin ? e->end - e->begin : 0;
    fprintf(t->out, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":", t->rank,
            row, e->begin * 1e6, length * 1e6, e->phase);
    kolo_json_string(t->out, e->name[0] ? e->name : e->phase);
    if (e->bytes > 0) fprintf(t->out, ",\"args\":{\"bytes\":%ld", (long)e->bytes);
    if (e->bytes > 0 && e->algorithm) fprintf(t->out, ",\"algorithm\":\"%s\"", e->algorithm);
    fputs(e->bytes > 0 ? "}}" : "}", t->out);
}

/* What was printed goes to the file by one write, so no event is torn by the end of the process. */
static void flush(struct lib_timeline *t)
{
    if (fflush(t->out) != 0) return;
    size_t bytes = (size_t)ftello(t->out), done = 0;
    while (done < bytes && !t->full) {
        ssize_t n = write(t->fd, t->text + done, bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            kolo_warn("comm: %s: %s; the timeline ends here", t->path, strerror(errno));
            t->full = true;
            break;
        }
        done += (size_t)n;
    }
    rewind(t->out);
}

static int drain(struct lib_timeline *t)
{
    int count = 0;
    for (; count < RING; count++) {
        event *e = &t->ring[t->head % RING];
        if (atomic_load_explicit(&e->turn, memory_order_acquire) != t->head + 1) break;
        print(t, e);
        atomic_store_explicit(&e->turn, t->head + RING, memory_order_release);
        t->head++;
        if (count % FLUSH == FLUSH - 1) flush(t);
    }
    if (count % FLUSH) flush(t);
    return count;
}

static void *writer_main(void *of)
{
    struct lib_timeline *t = of;
    const double least = 0.01, most = 0.2;
    prctl(PR_SET_NAME, "kolo-timeline");
    for (double pause = least; !atomic_load(&t->stop);) {
        pause = drain(t) ? least : pause < most ? pause * 2 : most;
        kolo_futex_wait(&t->stop, 0, pause, 0);
    }
    drain(t);
    return NULL;
}

/* ---- opening and closing ---------------------------------------------------------------------------------------------------- */

void lib_timeline_clock(struct lib_timeline *t, double offset, double error)
{
    lib_timeline_add(t, clock_phase, NULL, offset, error, 0);
}

static int begin_file(struct lib_timeline *t, const char *host)
{
    char *text = kolo_format("rank %d %s", t->rank, host);
    if (!text) return KOLO_ECONFIG;
    fprintf(t->out,
            "[\n{\"ph\":\"M\",\"pid\":%d,\"tid\":0,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
            t->rank, t->rank);
    note(t, 0, "process_name", text);
    free(text);
    flush(t);
    return t->full ? kolo_fail(KOLO_EIO, "%s: cannot be written", t->path) : 0;
}

int lib_timeline_open(struct lib_timeline **out, const char *folder, int rank, const char *host)
{
    struct lib_timeline *t = *out = kolo_alloc(sizeof *t);
    int rc = KOLO_ECONFIG;
    if (!t) return rc;
    t->fd = -1;
    t->rank = rank;
    t->ring = kolo_alloc(RING * sizeof *t->ring);
    t->path = kolo_format("%s/rank-%d.json", folder, rank);
    if (!t->ring || !t->path) goto fail;
    for (uint64_t i = 0; i < RING; i++) atomic_store(&t->ring[i].turn, i);
    KOLO_TRY_GOTO(rc, kolo_folder_make(folder));
    t->fd = open(t->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (t->fd < 0) {
        rc = kolo_fail(KOLO_EIO,
                       "%s: %s; KOLO_COMM_TIMELINE names a folder on a file system that all ranks may write to",
                       t->path, strerror(errno));
        goto fail;
    }
    t->out = open_memstream(&t->text, &t->bytes);
    if (!t->out) {
        rc = kolo_fail(KOLO_ECONFIG, "comm: out of memory for a timeline");
        goto fail;
    }
    KOLO_TRY_GOTO(rc, begin_file(t, host));
    rc = pthread_create(&t->writer, NULL, writer_main, t);
    t->running = rc == 0;
    if (t->running) return 0;
    rc = kolo_fail(KOLO_EINTERNAL, "comm: no thread for the timeline: %s; raise the limit of processes (ulimit -u)",
                   strerror(rc));
fail:
    lib_timeline_close(out);
    return rc;
}

void lib_timeline_close(struct lib_timeline **out)
{
    struct lib_timeline *t = *out;
    if (!t) return;
    if (t->running) {
        atomic_store(&t->stop, 1);
        kolo_futex_wake(&t->stop);
        pthread_join(t->writer, NULL);
    }
    uint64_t lost = atomic_load(&t->lost);
    if (t->out && t->fd >= 0) {
        if (lost)
            kolo_warn("comm: %s lacks %lu events that came faster than they could be written", t->path,
                      (unsigned long)lost);
        fputs("\n]\n", t->out);
        flush(t);
    }
    if (t->out) fclose(t->out);
    if (t->fd >= 0) close(t->fd);
    free(t->text);
    free(t->path);
    free(t->ring);
    free(t);
    *out = NULL;
}
