/* A checkpoint of a pipeline. The file is one for the whole network, the same bytes on any grid; each stage's
 * first rank writes its tensors into their places, all at the same time, and syncs them; rank 0 joins the
 * checksums and writes the manifest when all have. Where a rank cannot reach rank 0's folder (a disk of its
 * node), its tensors go through rank 0 piece by piece. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/saver.h"
#include "ckpt/store.h"
#include "ckpt/stream.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"
#include "plan/program.h"

static const char FILE_NAME[] = "tensors.safetensors";

typedef struct stage_writer {
    struct saver *s;
    kolo_exec *exec;
    kolo_comm *comm;
    const kolo_grid *grid;
    int me, fd;          /* fd: of the file; -1: this rank writes nothing, or cannot reach it */
    kolo_aside aside;    /* rank 0's folder, */
    char *path;          /* and that of the checkpoint that it is to be; NULL elsewhere */
    char text[PATH_MAX]; /* path of the file while it is written */
    int64_t *reaches;    /* [stages] 1: the stage's first rank writes by itself */
    int64_t *crc;        /* [items] */
    uint64_t bytes;      /* of the file */
} stage_writer;

static int first_rank(const stage_writer *w, int stage) { return kolo_grid_rank(w->grid, stage, 0); }
static bool is_first(const stage_writer *w) { return w->grid->replica == 0; }

static int write_at(const stage_writer *w, const void *data, size_t bytes, uint64_t at)
{
    for (const char *from = data; bytes > 0;) {
        const ssize_t n = pwrite(w->fd, from, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return kolo_fail_io("write", w->text);
        from += n, at += (uint64_t)n, bytes -= (size_t)n;
    }
    return 0;
}

/* Rank 0: the folder, and in it the file with its header. */
static int create_file(stage_writer *w)
{
    struct saver *s = w->s;
    KOLO_TRY(kolo_store_begin(s->run->checkpoints, s->position.step, &w->aside, &w->path));
    const int n =
        snprintf(w->text, sizeof w->text, "%s/%s/%s", s->run->checkpoints, w->aside.name, FILE_NAME);
    if (n >= (int)sizeof w->text) return kolo_fail(KOLO_EIO, "%s: the name is too long", w->path);
    w->fd = openat(w->aside.fd, FILE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (w->fd < 0) return kolo_fail_io("create", w->text);
    if (ftruncate(w->fd, (off_t)w->bytes) < 0) return kolo_fail_io("size", w->text);
    return write_at(w, s->header, s->header_bytes, 0);
}

/* Each stage's first rank opens it, where it can: who can is known to all afterwards. */
static int open_file(stage_writer *w)
{
    const int stage = w->grid->stage;
    KOLO_TRY(kolo_comm_broadcast(w->comm, w->text, sizeof w->text, 0));
    if (is_first(w) && w->me != 0) w->fd = open(w->text, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (is_first(w)) w->reaches[stage] = w->fd >= 0;
    return kolo_comm_allreduce(w->comm, w->reaches, w->grid->stages, KOLO_I64, KOLO_MAX);
}

/* The tensor in `canonical` of its stage's first rank goes to rank 0, which writes it. rc: what this rank
 * has met so far; it takes part all the same. */
static int send_through(stage_writer *w, int stage, size_t bytes, uint64_t at, int *rc)
{
    const int first = first_rank(w, stage);
    for (size_t done = 0; done < bytes; done += SAVER_PIECE) {
        const size_t n = bytes - done < SAVER_PIECE ? bytes - done : SAVER_PIECE;
        char *piece = (char *)w->s->canonical + (w->me == first ? done : 0);
        KOLO_TRY(kolo_comm_broadcast(w->comm, piece, n, first));
        if (w->me == 0 && *rc == 0) *rc = write_at(w, piece, n, at + done);
    }
    return 0;
}

/* *rc: a failure of this rank alone. */
static int write_items(stage_writer *w, int *rc)
{
    struct saver *s = w->s;
    uint64_t at = s->header_bytes;
    for (int i = 0; i < s->items; at += s->weight[i++].bytes) {
        const item *it = &s->item[i];
        const size_t bytes = s->weight[i].bytes;
        if (w->me == first_rank(w, it->stage) && *rc == 0) {
            *rc = kolo_exec_get_own(w->exec, it->which, it->tensor, s->canonical);
            w->crc[i] = kolo_crc32c(0, s->canonical, bytes);
            if (*rc == 0 && w->fd >= 0) *rc = write_at(w, s->canonical, bytes, at);
        }
        if (!w->reaches[it->stage]) KOLO_TRY(send_through(w, it->stage, bytes, at, rc));
    }
    if (w->fd >= 0 && *rc == 0 && fsync(w->fd) < 0) *rc = kolo_fail_io("sync", w->text);
    if (w->fd >= 0 && close(w->fd) < 0 && *rc == 0) *rc = kolo_fail_io("close", w->text);
    w->fd = -1;
    return 0;
}

static int finish_file(stage_writer *w)
{
    struct saver *s = w->s;
    manifest m = {.bytes = w->bytes, .crc = kolo_crc32c(0, s->header, s->header_bytes)};
    for (int i = 0; i < s->items; i++)
        m.crc = kolo_crc32c_join(m.crc, (uint32_t)w->crc[i], s->weight[i].bytes);
    return saver_finish(s, w->aside.fd, w->path, &m);
}

/* 0: all ranks have written theirs; else the first rank that has not is named. */
static int write_together(stage_writer *w)
{
    int mine = 0;
    KOLO_TRY(kolo_comm_agree(w->comm, w->me == 0 ? create_file(w) : 0));
    KOLO_TRY(open_file(w));
    KOLO_TRY(write_items(w, &mine));
    KOLO_TRY(kolo_comm_agree(w->comm, mine));
    return kolo_comm_allreduce(w->comm, w->crc, w->s->items, KOLO_I64, KOLO_SUM);
}

int saver_write_stages(struct saver *s, kolo_exec *exec)
{
    const double begin = kolo_time();
    const kolo_grid *grid = s->plan->program->grid;
    stage_writer w = {.s = s,
                      .exec = exec,
                      .comm = kolo_exec_comm(exec),
                      .grid = grid,
                      .me = kolo_grid_rank(grid, grid->stage, grid->replica),
                      .fd = -1,
                      .aside = {.folder = -1, .fd = -1},
                      .reaches = kolo_alloc((size_t)grid->stages * sizeof *w.reaches),
                      .crc = kolo_alloc((size_t)(s->items + 1) * sizeof *w.crc),
                      .bytes = s->header_bytes};
    for (int i = 0; i < s->items; i++) w.bytes += s->weight[i].bytes;
    int rc = kolo_comm_agree(w.comm, w.reaches && w.crc ? 0 : KOLO_ENOMEM);
    if (rc == 0) rc = write_together(&w);
    if (w.fd >= 0) close(w.fd);
    if (rc == 0 && w.path) rc = finish_file(&w);
    if (w.path) rc = saver_commit(s, &w.aside, &w.path, rc);
    free(w.reaches);
    free(w.crc);
    if (rc == 0 && w.me == 0)
        kolo_debug("checkpoint of step %lld: written by %d stages in %.3f s", (long long)s->position.step,
                   grid->stages, kolo_time() - begin);
    return rc;
}
