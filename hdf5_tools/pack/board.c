#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "pack/pack.h"

#define BAR 24

/* What a rank reports to the others; rank r writes entry r. */
typedef struct entry {
    int64_t samples, bytes, rejects, kept, stop, unused[3];
} entry;

struct board {
    packing *p;
    const char *phase;
    int64_t total;
    int fd;
    _Atomic int64_t samples, bytes, rejects, kept;
    _Atomic bool stop, asked; /* asked: by this rank */
    entry *all;
    double begin, reported_at, printed;
    bool terminal;
};

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

void pack_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    const int numbers[] = {SIGTERM, SIGUSR1, SIGINT};
    for (int i = 0; i < 3; i++) sigaction(numbers[i], &action, NULL);
    /* a file that may not grow (ulimit -f) is reported as other errors of writing are */
    signal(SIGXFSZ, SIG_IGN);
}

int board_open(board **board_out, packing *p, const char *phase, int64_t total)
{
    board *b = *board_out = kolo_alloc(sizeof *b);
    if (!b) return KOLO_ENOMEM;
    b->p = p;
    b->phase = phase;
    b->total = total;
    b->begin = b->printed = kolo_time();
    b->terminal = isatty(STDERR_FILENO);
    b->all = kolo_alloc(sizeof *b->all * (size_t)p->launch.size);
    char *path = kolo_format("%s/board-%s", p->work, phase);
    b->fd = path ? kolo_file_open_plain(path, O_RDWR | O_CREAT, 0666) : -1;
    int rc = !b->all || !path ? KOLO_ENOMEM : b->fd < 0 ? b->fd : 0;
    /* numbers of an earlier, interrupted run */
    const entry zero = {0};
    if (rc == 0 &&
        pwrite(b->fd, &zero, sizeof zero, (off_t)sizeof zero * p->launch.rank) != (ssize_t)sizeof zero)
        rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    free(path);
    rc = pack_agree(p, rc);
    if (rc < 0) {
        if (b->fd >= 0) close(b->fd);
        free(b->all);
        free(b);
        *board_out = NULL;
    }
    return rc;
}

void board_add(board *b, int64_t samples, int64_t bytes, int64_t rejects, int64_t kept)
{
    atomic_fetch_add(&b->samples, samples);
    atomic_fetch_add(&b->bytes, bytes);
    atomic_fetch_add(&b->rejects, rejects);
    atomic_fetch_add(&b->kept, kept);
}

bool board_stopping(const board *b) { return signalled || atomic_load(&b->stop); }

void board_stop(board *b)
{
    atomic_store(&b->asked, true);
    atomic_store(&b->stop, true);
}

/* Progress is no reason to fail: errors of this file are ignored. */
static void exchange(board *b)
{
    const kolo_launch *l = &b->p->launch;
    const entry mine = {atomic_load(&b->samples),
                        atomic_load(&b->bytes),
                        atomic_load(&b->rejects),
                        atomic_load(&b->kept),
                        signalled || atomic_load(&b->asked),
                        {0}};
    const off_t size = sizeof mine;
    if (pwrite(b->fd, &mine, sizeof mine, size * l->rank) < 0) return;
    ssize_t got = pread(b->fd, b->all, sizeof mine * (size_t)l->size, 0);
    b->all[l->rank] = mine;
    for (int r = 0; r < l->size && (r + 1) * (ssize_t)sizeof mine <= got; r++)
        if (b->all[r].stop) atomic_store(&b->stop, true);
}

static void clock_text(double seconds, char *text, size_t size)
{
    const int64_t s = (int64_t)(seconds + .5);
    if (seconds < 0) snprintf(text, size, "-:--");
    else if (s >= 3600)
        snprintf(text, size, "%" PRId64 ":%02d:%02d", s / 3600, (int)(s / 60 % 60), (int)(s % 60));
    else snprintf(text, size, "%d:%02d", (int)(s / 60), (int)(s % 60));
}

static void print_line(const board *b, const entry *sum, double seconds, bool last)
{
    const double rate = seconds > 0 ? (double)(sum->samples - sum->kept) / seconds : 0;
    const double eta = last ? seconds : rate > 0 ? (double)(b->total - sum->samples) / rate : -1;
    const int percent = b->total ? (int)(100 * sum->samples / b->total) : 100, filled = percent * BAR / 100;
    char bar[BAR + 1] = {0}, time[32], rejects[48] = "", kept[48] = "";
    memset(bar, '.', BAR);
    memset(bar, '#', (size_t)(filled < BAR ? filled : BAR));
    clock_text(eta, time, sizeof time);
    if (sum->rejects) snprintf(rejects, sizeof rejects, ", %" PRId64 " rejected", sum->rejects);
    if (sum->kept) snprintf(kept, sizeof kept, ", %" PRId64 " kept", sum->kept);
    char line[256];
    const int n = snprintf(line, sizeof line,
                           "%s%s [%s] %3d%% %" PRId64 "/%" PRId64 " %.0f img/s %.1f MB/s %s %s%s%s%s",
                           b->terminal ? "\r\033[K" : "", b->phase, bar, percent, sum->samples, b->total,
                           rate, seconds > 0 ? (double)sum->bytes / seconds / 1e6 : 0, last ? "took" : "ETA",
                           time, kept, rejects, b->terminal && !last ? "" : "\n");
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) return;
}

static void print_json(const board *b, const entry *sum, double seconds)
{
    printf("{\"event\":\"progress\",\"phase\":\"%s\",\"samples\":%" PRId64 ",\"total\":%" PRId64
           ",\"bytes\":%" PRId64 ",\"kept\":%" PRId64 ",\"rejects\":%" PRId64 ",\"seconds\":%.3f}\n",
           b->phase, sum->samples, b->total, sum->bytes, sum->kept, sum->rejects, seconds);
    fflush(stdout);
}

static void show(board *b, bool last)
{
    entry sum = {0};
    for (int r = 0; r < b->p->launch.size; r++) {
        sum.samples += b->all[r].samples, sum.bytes += b->all[r].bytes;
        sum.rejects += b->all[r].rejects, sum.kept += b->all[r].kept;
    }
    const double seconds = kolo_time() - b->begin;
    if (b->p->options.json) print_json(b, &sum, seconds);
    else print_line(b, &sum, seconds, last);
}

void board_tick(board *b)
{
    const double now = kolo_time();
    if (now - b->reported_at < .3) return;
    b->reported_at = now;
    exchange(b);
    /* the first line after half a second, then ten a minute in a log, three a second at a terminal */
    const double every = b->printed == b->begin ? .5 : b->terminal ? .3 : 10;
    if (b->p->launch.rank != 0 || now - b->printed < every) return;
    show(b, false);
    b->printed = now;
}

void board_close(board **board_in)
{
    board *b = *board_in;
    if (!b) return;
    kolo_failure before;
    kolo_error_keep(&before);
    exchange(b);
    pack_agree(b->p, 0); /* so that rank 0 sees everybody's last numbers */
    exchange(b);
    if (b->p->launch.rank == 0) show(b, true);
    close(b->fd);
    free(b->all);
    free(b);
    *board_in = NULL;
    kolo_error_restore(&before, before.status);
}
