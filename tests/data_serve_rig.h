/* Servers and jobs of served batches, each a process of its own. */
#ifndef TESTS_DATA_SERVE_RIG_H
#define TESTS_DATA_SERVE_RIG_H

#include "data_fixture.h"
#include "tap.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/log.h"
#include "base/option.h"
#include "data/loader.h"
#include "data/serve/serve.h"
#include "data/shard/dataset.h"

enum { BATCH = 24, SIDE = 24, STEPS = 10 };

static fixture jpeg = {
    .count = 100, .shards = 2, .height = 40, .width = 50, .channels = 3, .encoding = KOLO_ENCODING_JPEG};
static char socket_path[300];

static inline kolo_loader_config config_of(const kolo_dataset *d)
{
    return (kolo_loader_config){
        .dataset = d,
        .channels = 3,
        .height = SIDE,
        .width = SIDE,
        .classes = 10,
        .train = true,
        .seed = 7,
        .batch = BATCH,
        .ranks = 1,
        .tail = KOLO_tail_pad,
        .crop = KOLO_crop_resized,
        .area_min = .2,
        .area_max = 1,
        .flip = true,
        .augment = "trivialaugment",
        .mean = {.5f, .5f, .5f},
        .std = {.25f, .25f, .25f},
        .mix = {.mixup = .4, .cutmix = 1, .probability = .8, .cutmix_share = .5, .by_pair = true},
        .readers = 2,
        .prefetch = 2,
        .serve_wait = 30};
}

/* What a job has seen: a checksum a batch, of everything in it. */
typedef struct seen {
    uint32_t crc[64];
    int64_t served;
} seen;

static inline uint32_t crc_of(const kolo_batch *b)
{
    const size_t n = (size_t)b->rows;
    uint32_t crc = kolo_crc32c(0, b->pixels, n * SIDE * SIDE * 3);
    crc = kolo_crc32c(crc, b->labels, n * (size_t)b->words * sizeof *b->labels);
    return kolo_crc32c(crc, b->samples, n * sizeof *b->samples);
}

/* steps batches from `start` on; pause: after so many of them by a read from `gate`, so that a test can
 * do something meanwhile */
static inline int look(kolo_loader_config c, int64_t start, int64_t steps, int64_t pause, int told, int gate,
                       seen *s)
{
    kolo_loader *l;
    kolo_batch b;
    kolo_loader_stats stats;
    char byte = 0;
    memset(s, 0, sizeof *s);
    KOLO_TRY(kolo_loader_create(&l, &c));
    const int64_t per_epoch = kolo_loader_steps(l);
    kolo_loader_seek(l, start / per_epoch, start % per_epoch);
    for (int64_t t = 0; t < steps; t++) {
        if (t == pause && (write(told, &byte, 1) != 1 || read(gate, &byte, 1) < 0)) return -1;
        if (kolo_loader_next(l, &b) != 0) return -1;
        s->crc[t] = crc_of(&b);
        kolo_loader_release(l, &b);
    }
    kolo_loader_get_stats(l, &stats);
    s->served = stats.served;
    kolo_loader_destroy(&l);
    return 0;
}

/* A process of its own: a server, or a rank of a job. */
typedef struct process {
    pid_t pid;
    int told, gate; /* it says that it pauses; a byte lets it go on */
    int result;     /* its seen */
} process;

static volatile sig_atomic_t stop;
static inline void on_term(int signal)
{
    (void)signal;
    stop = 1;
}

static inline process start(kolo_loader_config c, bool server, int jobs, int64_t from, int64_t steps,
                            int64_t pause)
{
    int told[2], gate[2], result[2];
    if (pipe(told) || pipe(gate) || pipe(result)) return (process){.pid = -1};
    fflush(stdout);
    process p = {.pid = fork(), .told = told[0], .gate = gate[1], .result = result[0]};
    if (p.pid) {
        close(told[1]), close(gate[0]), close(result[1]);
        return p;
    }
    kolo_dataset *d;
    seen s;
    int rc = kolo_dataset_open(&d, jpeg.folder);
    close(gate[1]);
    c.dataset = d;
    c.serve = socket_path;
    if (server) {
        kolo_server *k;
        signal(SIGTERM, on_term);
        if (rc == 0) rc = kolo_server_open(&k, &c, jobs);
        if (rc == 0 && write(told[1], &rc, 1) == 1) rc = kolo_server_run(k, &stop);
        kolo_server_close(&k);
    } else {
        rc = look(c, from, steps, pause, told[1], gate[0], &s);
        if (rc == 0 && write(result[1], &s, sizeof s) != sizeof s) rc = -1;
    }
    kolo_dataset_close(&d);
    if (rc < 0) fprintf(stderr, "# %s\n", kolo_error_text());
    _exit(rc < 0 ? -rc : 0);
}

static inline void wait_told(const process *p)
{
    char byte;
    if (read(p->told, &byte, 1) != 1) diag("a process ended before its time");
}

static inline void let_on(const process *p)
{
    if (write(p->gate, "", 1) != 1) diag("a process ended before its time");
}

static inline int finish(process *p)
{
    int status = 0;
    close(p->told), close(p->gate), close(p->result);
    waitpid(p->pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static inline seen result_of(process *p)
{
    seen s = {.served = -1};
    if (read(p->result, &s, sizeof s) != sizeof s) s.served = -1;
    return s;
}

static inline process serve(kolo_loader_config c, int jobs)
{
    process p = start(c, true, jobs, 0, 0, -1);
    wait_told(&p);
    return p;
}

static inline int end(process *server)
{
    kill(server->pid, SIGTERM);
    return finish(server);
}

/* A fresh split, a fresh place for the socket. */
static inline int rig_open(void)
{
    kolo_log_set_level(KOLO_LOG_ERROR);
    signal(SIGPIPE, SIG_IGN);
    if (fixture_make(&jpeg) < 0) return -1;
    snprintf(socket_path, sizeof socket_path, "%s/socket", jpeg.folder);
    return 0;
}

#endif
