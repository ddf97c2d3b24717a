/* A checkpoint of ranks that have different things. The file is one for the whole network, the same bytes on
 * any grid; each stage's first rank writes its tensors into their places, all at the same time, and syncs
 * them; rank 0 joins the checksums and writes the manifest when all have. What ranks have parts of is brought
 * together, a tensor for each of them, which they then write at the same time. Where a rank cannot reach
 * rank 0's folder (a disk of its node), its tensors go through rank 0 piece by piece. */
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

typedef struct together {
    struct saver *s;
    kolo_exec *exec;
    kolo_comm *comm;
    int me, ranks, fd;   /* fd: of the file; -1: this rank writes nothing, or cannot reach it */
    kolo_temp_file temp; /* rank 0's folder, */
    char *path;          /* and that of the checkpoint that it is to be; NULL elsewhere */
    char text[PATH_MAX]; /* path of the file while it is written */
    int64_t *reaches;    /* [ranks] 1: it writes what it writes by itself */
    int64_t *crc;        /* [items] */
    uint64_t bytes;      /* of the file */
} together;

/* The rank that writes an item. */
static int writer_of(const together *w, int number)
{
    const kolo_plan *p = w->s->plan;
    const int replica = p->config.shards > 1 ? number % p->config.ranks : 0;
    return p->program ? kolo_grid_rank(p->program->grid, w->s->item[number].stage, replica) : replica;
}

static bool writes(const together *w)
{
    int i = 0;
    while (i < w->s->items && writer_of(w, i) != w->me) i++;
    return i < w->s->items;
}

static int write_at(const together *w, const void *data, size_t bytes, uint64_t at)
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
static int create_file(together *w)
{
    struct saver *s = w->s;
    KOLO_TRY(kolo_store_begin(s->run->checkpoints, s->position.step, &w->temp, &w->path));
    const int n = snprintf(w->text, sizeof w->text, "%s/%s/%s", s->run->checkpoints, w->temp.name, FILE_NAME);
    if (n >= (int)sizeof w->text) return kolo_fail(KOLO_EIO, "%s: the name is too long", w->path);
    w->fd = openat(w->temp.fd, FILE_NAME, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (w->fd < 0) return kolo_fail_io("create", w->text);
    if (ftruncate(w->fd, (off_t)w->bytes) < 0) return kolo_fail_io("size", w->text);
    return write_at(w, s->header, s->header_bytes, 0);
}

/* Those that write open it, where they can: who can is known to all afterwards. */
static int open_file(together *w)
{
    KOLO_TRY(kolo_comm_broadcast(w->comm, w->text, sizeof w->text, 0));
    if (writes(w) && w->me != 0) w->fd = open(w->text, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    w->reaches[w->me] = w->fd >= 0 || !writes(w);
    return kolo_comm_allreduce(w->comm, w->reaches, w->ranks, KOLO_I64, KOLO_MAX);
}

/* The tensor in `canonical` of its writer goes to rank 0, which writes it. rc: what this rank has met so far;
 * it takes part all the same. */
static int send_through(together *w, int writer, size_t bytes, uint64_t at, int *rc)
{
    for (size_t done = 0; done < bytes; done += SAVER_PIECE) {
        const size_t n = bytes - done < SAVER_PIECE ? bytes - done : SAVER_PIECE;
        char *piece = (char *)w->s->canonical + (w->me == writer ? done : 0);
        KOLO_TRY(kolo_comm_broadcast(w->comm, w->me == writer || w->me == 0 ? piece : NULL, n, writer));
        if (w->me == 0 && *rc == 0) *rc = write_at(w, piece, n, at + done);
    }
    return 0;
}

/* What several ranks have slabs of comes together in `canonical` of its writer; collective. rc: as above. */
static int bring_slabs(together *w, const item *it, bool own, int *rc)
{
    const kolo_graph *g = w->s->plan->graph;
    float *values = kolo_alloc((size_t)kolo_graph_largest_slab(g, it->tensor) * sizeof *values);
    KOLO_TRY(kolo_comm_agree(w->comm, values ? 0 : KOLO_ENOMEM));
    int bad = 0;
    for (int t = it->tensor; bad == 0 && t >= 0; t = kolo_graph_next_slab(g, t)) {
        bad = kolo_exec_get(w->exec, it->which, t, values);
        if (own && bad == 0 && *rc == 0) kolo_slab_put(&g->tensor[t], values, w->s->canonical);
    }
    free(values);
    return bad;
}

/* Items from `first` on that different ranks write. What goes through rank 0 is a round by itself: it comes
 * into that one's `canonical`. */
static int end_of_round(const together *w, int first)
{
    int end = first + 1;
    for (int r = 0; r < w->ranks; r++)
        if (!w->reaches[r]) return end;
    for (bool other = true; end < w->s->items && other; end += other)
        for (int i = first; i < end && other; i++) other = writer_of(w, i) != writer_of(w, end);
    return end;
}

/* Brings an item to its writer. *rc: a failure of this rank alone. */
static int bring_item(together *w, int number, int *rc)
{
    const item *it = &w->s->item[number];
    float *own = writer_of(w, number) == w->me ? w->s->canonical : NULL;
    if (it->slabs) return bring_slabs(w, it, own != NULL, rc);
    const int parts = kolo_exec_get_parts(w->exec, it->which, it->tensor, own);
    KOLO_TRY(parts);
    if (own && !parts && *rc == 0) *rc = kolo_exec_get_own(w->exec, it->which, it->tensor, own);
    return 0;
}

static int write_item(together *w, int number, uint64_t at, int *rc)
{
    const int writer = writer_of(w, number);
    const size_t bytes = w->s->weight[number].bytes;
    if (writer == w->me && *rc == 0) {
        w->crc[number] = kolo_crc32c(0, w->s->canonical, bytes);
        if (w->fd >= 0) *rc = write_at(w, w->s->canonical, bytes, at);
    }
    return w->reaches[writer] ? 0 : send_through(w, writer, bytes, at, rc);
}

/* Round by round: all writers of one have theirs before the first writes, so that they do so at the same
 * time. *rc: a failure of this rank alone. */
static int write_items(together *w, int *rc)
{
    struct saver *s = w->s;
    uint64_t at = s->header_bytes;
    for (int first = 0, end; first < s->items; first = end) {
        end = end_of_round(w, first);
        for (int i = first; i < end; i++) KOLO_TRY(bring_item(w, i, rc));
        for (int i = first; i < end; at += s->weight[i++].bytes) KOLO_TRY(write_item(w, i, at, rc));
    }
    if (w->fd >= 0 && *rc == 0 && fsync(w->fd) < 0) *rc = kolo_fail_io("sync", w->text);
    if (w->fd >= 0 && close(w->fd) < 0 && *rc == 0) *rc = kolo_fail_io("close", w->text);
    w->fd = -1;
    return 0;
}

static int finish_file(together *w, manifest *m)
{
    struct saver *s = w->s;
    m->bytes = w->bytes;
    m->crc = kolo_crc32c(0, s->header, s->header_bytes);
    for (int i = 0; i < s->items; i++)
        m->crc = kolo_crc32c_join(m->crc, (uint32_t)w->crc[i], s->weight[i].bytes);
    return saver_finish(s, w->temp.fd, w->path, m);
}

/* 0: all ranks have written theirs; else the first rank that has not is named. m: with what they carry. */
static int write_together(together *w, manifest *m)
{
    const kolo_rank_parts *parts = &w->s->rank_parts;
    int mine = 0;
    KOLO_TRY(kolo_comm_agree(w->comm, w->me == 0 ? create_file(w) : 0));
    KOLO_TRY(open_file(w));
    KOLO_TRY(write_items(w, &mine));
    if (parts->bytes)
        KOLO_TRY(
            kolo_rank_parts_write(w->temp.fd, w->path, parts, &m->carried_bytes, &m->carried_crc, &mine));
    KOLO_TRY(kolo_comm_agree(w->comm, mine));
    return kolo_comm_allreduce(w->comm, w->crc, w->s->items, KOLO_I64, KOLO_SUM);
}

int saver_write_together(struct saver *s, kolo_exec *exec)
{
    const double begin = kolo_time();
    const kolo_launch *launch = kolo_comm_launch(kolo_exec_comm(exec));
    together w = {.s = s,
                  .exec = exec,
                  .comm = kolo_exec_comm(exec),
                  .me = launch->rank,
                  .ranks = launch->size,
                  .fd = -1,
                  .temp = {.folder = -1, .fd = -1},
                  .reaches = kolo_alloc((size_t)launch->size * sizeof *w.reaches),
                  .crc = kolo_alloc((size_t)(s->items + 1) * sizeof *w.crc),
                  .bytes = s->header_bytes};
    manifest m = {0};
    for (int i = 0; i < s->items; i++) w.bytes += s->weight[i].bytes;
    int rc = kolo_comm_agree(w.comm, w.reaches && w.crc ? 0 : KOLO_ENOMEM);
    if (rc == 0) rc = write_together(&w, &m);
    if (w.fd >= 0) close(w.fd);
    if (rc == 0 && w.path) rc = finish_file(&w, &m);
    if (w.path) rc = saver_commit(s, &w.temp, &w.path, rc);
    free(w.reaches);
    free(w.crc);
    if (rc == 0 && w.me == 0)
        kolo_debug("checkpoint of step %lld: written by %d ranks in %.3f s", (long long)s->position.step,
                   launch->size, kolo_time() - begin);
    return rc;
}
