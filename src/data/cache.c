#include "data/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/shm.h"
#include "base/thread.h"
#include "data/shard/dataset.h"
#include "data/share.h"
#include "kolo/error.h"

#define MAGIC 0x6b6f6c6f64617431ull
#define PIECE_BYTES (UINT64_C(8) << 20)
#define PAGE 4096
/* Names that are tried; seconds that another process may take to lay out the segment, and to fill a piece. */
enum { NAMES = 8, LOCK_TIMEOUT = 5, PIECE_TIMEOUT = 120 };
enum { NOT_SHARED = KOLO_SHARE_STUCK }; /* no error: there is no cache, and its text says why */
#define CLAIM_HEAD (INT64_C(1) << 48)   /* who holds it may lay out the segment */

/* The segment begins with this and one byte a piece, 1 when it is filled and checked; then the shards,
 * each from a page on. */
typedef struct head {
    uint64_t magic, bytes;
    int64_t pieces;
    _Atomic uint8_t filled[];
} head;

typedef struct piece {
    int shard;
    int64_t first, count; /* samples */
    uint64_t at, bytes;   /* in the segment */
} piece;

struct kolo_cache {
    kolo_dataset *dataset;
    int64_t first, last; /* samples */
    char name[128];
    int fd;
    head *head; /* the mapping */
    uint64_t bytes;
    piece *pieces;
    int64_t count, capacity;
    _Atomic int64_t mine;
};

static int fail_system(const kolo_cache *c, const char *what)
{
    return kolo_fail(KOLO_EIO, "data_cache=ram: %s /dev/shm%s: %s; set data_cache=none, or free /dev/shm",
                     what, c->name, strerror(errno));
}

/* Pieces of whole samples. Places are still counted from the first shard on. */
static int cut_pieces(kolo_cache *c, uint64_t *total)
{
    const int shards = kolo_dataset_get_info(c->dataset)->shards;
    *total = 0;
    for (int s = 0; s < shards; s++) {
        kolo_dataset_extent e;
        kolo_dataset_get_extent(c->dataset, s, &e);
        const int64_t low = e.first > c->first ? e.first : c->first;
        const int64_t high = e.first + e.count < c->last ? e.first + e.count : c->last;
        const uint64_t base = low < high ? kolo_dataset_offset(c->dataset, low) : 0;
        uint64_t to = base;
        for (int64_t i = low, n; i < high; i += n) {
            const uint64_t from = to;
            for (n = 0; i + n < high && (n == 0 || to - from < PIECE_BYTES); n++)
                to += kolo_dataset_bytes(c->dataset, i + n);
            KOLO_TRY(kolo_grow(&c->pieces, &c->capacity, c->count, sizeof *c->pieces));
            c->pieces[c->count++] = (piece){s, i, n, *total + from - base, to - from};
        }
        *total = kolo_round_up(*total + to - base, PAGE);
    }
    return 0;
}

static int lay_out(kolo_cache *c)
{
    uint64_t samples;
    KOLO_TRY(cut_pieces(c, &samples));
    const uint64_t before = kolo_round_up(sizeof(head) + (size_t)c->count, PAGE);
    for (int64_t i = 0; i < c->count; i++) c->pieces[i].at += before;
    c->bytes = before + samples;
    return 0;
}

/* All processes of a user try the names in this order, so they meet at the first that nobody else has
 * occupied. */
static int choose_name(kolo_cache *c, int number)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(c->dataset);
    const int n = snprintf(c->name, sizeof c->name, "/kolo-data-%u-%s-%08x", (unsigned)geteuid(), info->uuid,
                           kolo_dataset_checksum(c->dataset, c->first, c->last));
    if (number && n > 0 && (size_t)n < sizeof c->name)
        snprintf(c->name + n, sizeof c->name - (size_t)n, "-%d", number);
    return strchr(c->name + 1, '/')
               ? kolo_fail(KOLO_EINPUT, "data_cache=ram: the uuid %s of the split is no name", info->uuid)
               : 0;
}

static int refuse(const kolo_cache *c, double have, const char *where)
{
    const double need = (double)c->bytes;
    return kolo_fail(KOLO_ECONFIG,
                     "data_cache=ram: the samples of %s take %.1f MiB, %s has %.1f MiB: %.1f MiB are "
                     "missing; ask for more memory, or "
                     "set data_cache=none (staging=DIR copies them to a disk of the node)",
                     kolo_dataset_get_info(c->dataset)->name, need / 0x1p20, where, have / 0x1p20,
                     (need - have) / 0x1p20);
}

/* Before anything is taken: a node that runs out of memory kills somebody. */
static int check_space(const kolo_cache *c)
{
    struct statvfs fs;
    const char *source;
    if (fstatvfs(c->fd, &fs) == 0) {
        const double have = (double)fs.f_bavail * (double)fs.f_frsize;
        if (have < (double)c->bytes) return refuse(c, have, "/dev/shm");
    }
    const double limit = (double)kolo_memory_limit(&source) - (double)kolo_memory_resident();
    return limit < (double)c->bytes ? refuse(c, limit > 0 ? limit : 0, source) : 0;
}

/* Claim held. */
static int begin_segment(kolo_cache *c)
{
    struct stat info;
    if (fstat(c->fd, &info) < 0) return fail_system(c, "cannot read the size of");
    if ((uint64_t)info.st_size == c->bytes) return 0;
    if ((uint64_t)info.st_size > c->bytes) /* a smaller one was left while it was laid out */
        return kolo_fail(KOLO_EIO,
                         "data_cache=ram: /dev/shm%s has %lld bytes, not %llu: another version's; remove it",
                         c->name, (long long)info.st_size, (unsigned long long)c->bytes);
    KOLO_TRY(check_space(c));
    head h = {.magic = MAGIC, .bytes = c->bytes, .pieces = c->count};
    errno = posix_fallocate(c->fd, 0, (off_t)kolo_round_up(sizeof h + (size_t)c->count, PAGE));
    if (errno) return fail_system(c, "cannot allocate memory for");
    KOLO_TRY(kolo_file_pwrite(c->fd, c->name, &h, sizeof h, 0));
    /* last: its size says that it is laid out */
    return ftruncate(c->fd, (off_t)c->bytes) < 0 ? fail_system(c, "cannot size") : 0;
}

/* Owner and mode before anything is waited for. */
static int open_own(kolo_cache *c)
{
    for (int number = 0; number < NAMES; number++) {
        KOLO_TRY(choose_name(c, number));
        c->fd = kolo_shm_open_own(c->name);
        if (c->fd >= 0) return 0;
        if (c->fd != -1) return fail_system(c, "cannot open");
    }
    kolo_fail(KOLO_EIO,
              "others have files of other users, or files that others may read, at all %d names that it may "
              "have, up to /dev/shm%s",
              NAMES, c->name);
    return NOT_SHARED;
}

/* Opens the segment and says, by a shared lock, that it is used. One that was unlinked in between is no
 * good. */
static int cache_enter(kolo_cache *c)
{
    for (;;) {
        struct stat info;
        const int opened = open_own(c);
        if (opened != 0) return opened;
        const int mine = kolo_shm_lock(c->fd, LOCK_SH, LOCK_TIMEOUT);
        if (mine < 0 || fstat(c->fd, &info) < 0) return fail_system(c, "cannot lock");
        if (mine == 0) {
            kolo_fail(KOLO_EIO, "/dev/shm%s has been locked by another process for %d s", c->name,
                      LOCK_TIMEOUT);
            return NOT_SHARED;
        }
        if (info.st_nlink > 0) return 0;
        close(c->fd);
    }
}

static int claim_head(const kolo_cache *c)
{
    const double begin = kolo_time();
    for (int mine; (mine = kolo_share_claim(c->fd, CLAIM_HEAD, false)) != 1;) {
        KOLO_TRY(mine);
        if (kolo_time() - begin > LOCK_TIMEOUT) {
            kolo_fail(KOLO_EIO, "/dev/shm%s is being prepared by another process, without progress for %d s",
                      c->name, LOCK_TIMEOUT);
            return NOT_SHARED;
        }
        usleep(20000);
    }
    return 0;
}

static int attach(kolo_cache *c)
{
    int rc = cache_enter(c);
    if (rc == 0) rc = claim_head(c);
    if (rc != 0) return rc;
    rc = begin_segment(c);
    kolo_share_release(c->fd, CLAIM_HEAD);
    KOLO_TRY(rc);
    void *base = mmap(NULL, c->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    if (base == MAP_FAILED) return fail_system(c, "cannot map");
    madvise(base, c->bytes, MADV_HUGEPAGE);
    c->head = base;
    if (c->head->magic != MAGIC || c->head->bytes != c->bytes || c->head->pieces != c->count)
        return kolo_fail(KOLO_EIO, "data_cache=ram: /dev/shm%s is of another version; remove it", c->name);
    return 0;
}

static bool piece_done(void *context, int64_t item)
{
    const kolo_cache *c = context;
    return atomic_load_explicit(&c->head->filled[item], memory_order_acquire);
}

static int check_piece(const kolo_cache *c, const piece *p)
{
    const uint8_t *at = (const uint8_t *)c->head + p->at;
    for (int64_t i = p->first; i < p->first + p->count; i++) {
        const size_t bytes = kolo_dataset_bytes(c->dataset, i);
        int64_t index;
        const char *shard = kolo_dataset_shard_of(c->dataset, i, &index);
        if (kolo_crc32c(0, at, bytes) != kolo_dataset_crc(c->dataset, i))
            return kolo_fail(KOLO_EINPUT,
                             "data_cache=ram: sample %lld (number %lld of %s) does not have its checksum: "
                             "damaged; run kolo-shards verify, then copy or pack this shard again",
                             (long long)i, (long long)index, shard);
        at += bytes;
    }
    return 0;
}

static int fill_piece(void *context, int64_t item)
{
    kolo_cache *c = context;
    const piece *p = &c->pieces[item];
    kolo_dataset_extent e;
    kolo_dataset_get_extent(c->dataset, p->shard, &e);
    /* else a full /dev/shm would be a SIGBUS */
    if (p->bytes) errno = posix_fallocate(c->fd, (off_t)p->at, (off_t)p->bytes);
    if (p->bytes && errno) return fail_system(c, "cannot allocate memory for");
    KOLO_TRY(kolo_file_pread(e.fd, kolo_dataset_shard_path(c->dataset, p->shard), (uint8_t *)c->head + p->at,
                             p->bytes, e.place + kolo_dataset_offset(c->dataset, p->first)));
    KOLO_TRY(check_piece(c, p));
    atomic_store_explicit(&c->head->filled[item], 1, memory_order_release);
    c->mine++;
    return 0;
}

static int cache_fill(kolo_cache *c, int threads)
{
    const kolo_share share = {.fd = c->fd,
                              .items = c->count,
                              .threads = threads,
                              .context = c,
                              .done = piece_done,
                              .work = fill_piece,
                              .timeout = PIECE_TIMEOUT};
    const int rc = kolo_share_run(&share);
    if (rc != 0) return rc;
    for (int64_t i = 0, n; i < c->count; i += n) {
        const piece *p = &c->pieces[i];
        int64_t samples = 0;
        for (n = 0; i + n < c->count && p[n].shard == p->shard; n++) samples += p[n].count;
        kolo_dataset_set_memory(c->dataset, p->shard, p->first, samples, (const uint8_t *)c->head + p->at);
    }
    return 0;
}

int kolo_cache_open(kolo_cache **cache, kolo_dataset *dataset, int64_t first, int64_t last, int threads)
{
    int rc;
    kolo_cache *c = *cache = kolo_alloc(sizeof *c);
    if (!c) return KOLO_ENOMEM;
    c->dataset = dataset;
    c->first = first;
    c->last = last;
    c->fd = -1;
    KOLO_TRY_GOTO(rc, lay_out(c));
    rc = attach(c);
    if (rc == 0) rc = cache_fill(c, threads);
    if (rc == 0) {
        kolo_shm_sweep(KOLO_SHM_CACHES, NULL, NULL); /* of other splits: this one is in use from here on */
        return 0;
    }
    if (rc == NOT_SHARED)
        kolo_warn("data_cache=ram: %s: samples are read from their files", kolo_error_text());
fail:
    kolo_cache_close(cache);
    return rc == NOT_SHARED ? 0 : rc;
}

void kolo_cache_close(kolo_cache **cache)
{
    kolo_cache *c = *cache;
    struct stat info;
    if (!c) return;
    for (int s = 0; s < kolo_dataset_get_info(c->dataset)->shards; s++)
        kolo_dataset_set_memory(c->dataset, s, 0, 0, NULL);
    if (c->head) munmap(c->head, c->bytes);
    /* of two that leave at once, each gives up its shared lock first, so one of them gets the whole lock */
    if (c->fd >= 0 && flock(c->fd, LOCK_EX | LOCK_NB) == 0 && fstat(c->fd, &info) == 0 && info.st_nlink > 0)
        shm_unlink(c->name);
    if (c->fd >= 0) close(c->fd);
    free(c->pieces);
    free(c);
    *cache = NULL;
}

void kolo_cache_get_info(const kolo_cache *cache, kolo_cache_info *info)
{
    *info = (kolo_cache_info){.bytes = cache->bytes, .pieces = cache->count, .filled = cache->mine};
    snprintf(info->name, sizeof info->name, "%s", cache->name);
}
