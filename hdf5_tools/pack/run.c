/* The two parallel passes, probe and write: threads take blocks, the main thread looks after
 * progress and signals. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "pack/pack.h"

typedef struct pass {
    packing *p;
    board *board;
    int64_t first, end, step; /* this rank's slots or positions, cut into blocks of `step` within a shard */
    _Atomic int64_t next;
    _Atomic bool failed;
    _Atomic int running;
    pthread_mutex_t lock;
    int status;
    int64_t failed_at;
    kolo_failure failure;
    int (*work)(struct pass *pass, converter *c, source_buffer *buffer, int64_t first, int64_t count);
    int64_t bad;   /* under lock */
    FILE *rejects; /* under lock */
} pass;

/* The error of the earliest sample is the one that is reported. */
static void note_error(pass *t, int status, int64_t at)
{
    pthread_mutex_lock(&t->lock);
    if (t->status == 0 || at < t->failed_at) {
        t->status = status;
        t->failed_at = at;
        kolo_error_keep(&t->failure);
    }
    pthread_mutex_unlock(&t->lock);
    atomic_store(&t->failed, true);
    board_stop(t->board);
}

static void *run_thread(void *argument)
{
    pass *t = argument;
    converter *c = NULL;
    source_buffer buffer = {0};
    int rc = converter_create(&c, t->p);
    if (rc < 0) note_error(t, rc, t->first);
    while (rc == 0 && !atomic_load(&t->failed) && !board_stopping(t->board)) {
        const int64_t first = atomic_fetch_add(&t->next, t->step);
        if (first >= t->end) break;
        const int64_t count = t->end - first < t->step ? t->end - first : t->step;
        rc = t->work(t, c, &buffer, first, count);
        if (rc < 0) note_error(t, rc, first);
    }
    free(buffer.data);
    converter_destroy(&c);
    atomic_fetch_sub(&t->running, 1);
    return NULL;
}

/* Returns how many run; 0: none, and an error is noted. */
static int start_threads(pass *t, pthread_t *threads)
{
    sigset_t all, old;
    int rc = 0, started = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the main thread's */
    atomic_store(&t->running, t->p->threads);
    while (started < t->p->threads && rc == 0) {
        rc = pthread_create(&threads[started], NULL, run_thread, t);
        if (rc == 0) started++;
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    atomic_fetch_sub(&t->running, t->p->threads - started);
    if (started == 0)
        note_error(t, kolo_fail(KOLO_ECONFIG, "cannot start threads: %s; lower --threads", strerror(rc)),
                   t->first);
    return started;
}

/* Runs the pass on this rank, then agrees with the others. */
static int run_pass(pass *t, const char *phase, int64_t total)
{
    packing *p = t->p;
    pthread_t *threads = kolo_alloc(sizeof *threads * (size_t)p->threads);
    if (!threads) return KOLO_ENOMEM;
    int rc = board_open(&t->board, p, phase, total);
    if (rc < 0) {
        free(threads);
        return rc;
    }
    pthread_mutex_init(&t->lock, NULL);
    atomic_store(&t->next, t->first);
    const int started = start_threads(t, threads);
    while (atomic_load(&t->running) > 0) {
        board_tick(t->board);
        usleep(5000);
    }
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    free(threads);
    pthread_mutex_destroy(&t->lock);
    rc = t->status;
    if (rc < 0) kolo_error_restore(&t->failure, rc);
    else if (board_stopping(t->board) && atomic_load(&t->next) < t->end)
        rc = kolo_fail(KOLO_EREQUEUE, "stopped by a signal; the same command with --resume goes on");
    board_close(&t->board);
    return pack_agree(p, rc);
}

int64_t pack_share(int64_t n, const kolo_launch *launch, int after)
{
    return n * (launch->rank + after) / launch->size;
}

/* ---- probe --------------------------------------------------------------------------------------------- */

static void note_reject(pass *t, int64_t slot)
{
    char path[1024];
    source_path(&t->p->source, t->p->order[slot], path, sizeof path);
    const char *cause = strstr(kolo_error_text(), ": ");
    pthread_mutex_lock(&t->lock);
    t->bad++;
    const int fd =
        t->rejects ? -1 : kolo_file_open_plain(t->p->reject_path, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd >= 0 && !(t->rejects = fdopen(fd, "a"))) close(fd);
    if (t->rejects)
        fprintf(t->rejects, "%lld\t%s\t%s\n", (long long)t->p->order[slot], path,
                cause ? cause + 2 : kolo_error_text());
    pthread_mutex_unlock(&t->lock);
}

/* In the place of what an earlier probe kept, which was gray; nothing where that is more than may be kept. */
static void keep_bytes(packing *p, int64_t slot, const uint8_t *data, uint32_t bytes)
{
    pack_kept *place = &p->cache[slot - p->cache_first];
    const int64_t before = place->bytes;
    free(place->data);
    *place = (pack_kept){0};
    const bool fits = atomic_fetch_add(&p->cache_left, before - (int64_t)bytes) + before >= (int64_t)bytes;
    uint8_t *copy = fits ? malloc(bytes ? bytes : 1) : NULL;
    if (!copy) {
        atomic_fetch_add(&p->cache_left, bytes);
        return;
    }
    memcpy(copy, data, bytes);
    *place = (pack_kept){copy, bytes};
}

/* Bytes kept from the probe, if they are so many, which become the caller's; or NULL. */
static uint8_t *detach_kept(packing *p, int64_t slot, uint64_t bytes)
{
    const int64_t i = slot - p->cache_first;
    if (i < 0 || i >= p->cache_count || p->cache[i].bytes != bytes) return NULL;
    uint8_t *kept = p->cache[i].data;
    p->cache[i] = (pack_kept){0};
    return kept;
}

/* A status that is the image's fault, not the machine's. */
static bool is_bad_image(int rc) { return rc == KOLO_EINPUT; }

static int check_bad(pass *t)
{
    const int64_t most = t->p->options.max_bad;
    pthread_mutex_lock(&t->lock);
    const bool enough = most >= 0 && t->bad > most;
    pthread_mutex_unlock(&t->lock);
    if (!enough) return 0;
    return kolo_fail_in(KOLO_EINPUT, "more than --max-bad %lld bad images, the last one ", (long long)most);
}

static int probe_sample(pass *t, converter *c, int64_t slot)
{
    packing *p = t->p;
    pack_record *r = pack_journal_at(p, slot);
    const uint8_t *data;
    int rc = converter_run(c, p->order[slot], pack_measures(p, slot), &data, r);
    if (rc < 0 && !(is_bad_image(rc) && p->options.skip)) {
        *r = (pack_record){0};
        return rc;
    }
    if (rc < 0) note_reject(t, slot);
    else keep_bytes(p, slot, data, r->bytes);
    KOLO_TRY(pack_journal_write(p, slot, 1));
    board_add(t->board, 1, r->bytes, rc < 0, 0);
    return rc < 0 ? check_bad(t) : 0;
}

/* Does the record of an earlier probe hold? One of a gray image does not once colour is decided. */
static bool stands(const packing *p, uint8_t status, uint8_t channels)
{
    if (status != PACK_GOOD) return status != PACK_UNKNOWN;
    return p->channels == 0 || channels == p->channels;
}

/* What took a decode is written down at once; what took a look, with its neighbours. */
static int probe_block(pass *t, converter *c, source_buffer *buffer, int64_t first, int64_t count)
{
    packing *p = t->p;
    int64_t slot = first, written = first;
    (void)buffer;
    for (; slot < first + count && !board_stopping(t->board); slot++) {
        pack_record *r = pack_journal_at(p, slot);
        if (stands(p, r->status, r->channels)) {
            board_add(t->board, 1, 0, r->status == PACK_BAD, 1);
        } else if (r->status == PACK_UNKNOWN && converter_peek(c, p->order[slot], r)) {
            board_add(t->board, 1, 0, 0, 0);
        } else {
            KOLO_TRY(pack_journal_write(p, written, slot - written));
            KOLO_TRY(probe_sample(t, c, slot));
            written = slot + 1;
        }
    }
    return pack_journal_write(p, written, slot - written);
}

static bool needs_probe(const packing *p)
{
    return p->options.encoding != KOLO_ENCODING_RAW || p->options.skip || p->channels == 0;
}

static int probe_once(packing *p, const char *phase)
{
    const int64_t n = p->slot_count;
    pass t = {.p = p,
              .first = pack_share(n, &p->launch, 0),
              .end = pack_share(n, &p->launch, 1),
              .step = n / p->launch.size / p->threads / 4 < 64 ? 8 : 64,
              .work = probe_block};
    KOLO_TRY(pack_agree(p, pack_journal_window(p, t.first, t.end)));
    int rc = run_pass(&t, phase, n);
    if (t.rejects) fclose(t.rejects);
    KOLO_TRY(rc);
    return pack_agree(p, pack_journal_brief(p));
}

/* The packed images that this rank keeps in memory between passes: at most a quarter of the memory limit,
 * shared by the ranks of the node. */
static int allocate_cache(packing *p)
{
    const int ranks = p->launch.local_size > 0 ? p->launch.local_size : 1;
    p->cache_left = (int64_t)(kolo_memory_limit(NULL) / 4 / (size_t)ranks);
    p->cache_first = pack_share(p->slot_count, &p->launch, 0);
    p->cache_count = pack_share(p->slot_count, &p->launch, 1) - p->cache_first;
    p->cache = kolo_alloc(sizeof *p->cache * (size_t)p->cache_count + 8);
    return p->cache ? 0 : KOLO_ENOMEM;
}

int pack_probe(packing *p)
{
    if (!needs_probe(p)) return 0;
    KOLO_TRY(pack_agree(p, allocate_cache(p)));
    KOLO_TRY(probe_once(p, "check"));
    if (p->channels) return 0;
    /* --color keep: gray only if all are gray; then what was measured as gray is measured again in colour */
    bool again = false;
    p->channels = 1;
    for (int64_t i = 0; i < p->slot_count; i++)
        if (p->brief[i].status == PACK_GOOD && p->brief[i].source_channels == 3) p->channels = 3;
    for (int64_t i = 0; i < p->slot_count; i++) again |= !stands(p, p->brief[i].status, p->brief[i].channels);
    return again ? probe_once(p, "color") : 0;
}

/* ---- write --------------------------------------------------------------------------------------------- */

typedef struct block {
    pack_shard *shard;
    int64_t index, count; /* within the shard */
    int64_t position;     /* of the first sample in the output */
    uint8_t states[1024];
    uint32_t crcs[1024];
    uint16_t sizes[2048], orig_sizes[2048];
} block;

#define MOST_IN_BLOCK 1024

/* A sample of an earlier run is kept if its bytes still have the checksum in its record. */
static bool is_kept(const pack_record *r, const uint8_t *data, uint64_t bytes)
{
    return r->status == PACK_GOOD && r->bytes == bytes && kolo_crc32c(0, data, bytes) == r->crc;
}

static int make_sample(packing *p, converter *c, int64_t slot, uint8_t *to, uint64_t bytes)
{
    pack_record *r = pack_journal_at(p, slot), fresh;
    const uint8_t *data;
    uint8_t *kept = detach_kept(p, slot, bytes);
    if (kept) {
        memcpy(to, kept, bytes);
        free(kept);
        return 0;
    }
    KOLO_TRY(converter_run(c, p->order[slot], pack_measures(p, slot), &data, &fresh));
    if ((r->status == PACK_GOOD && fresh.crc != r->crc) ||
        (r->status != PACK_UNKNOWN && fresh.bytes != r->bytes)) {
        char path[4096];
        source_full_path(&p->source, p->order[slot], path, sizeof path);
        return kolo_fail(KOLO_EINPUT, "%s changed while it was packed; start again with --force", path);
    }
    *r = fresh;
    memcpy(to, data, bytes);
    return 0;
}

/* Fills the buffer with the block's samples; *made counts those that had to be made. */
static int fill_block(pass *t, converter *c, block *b, uint8_t *data, int64_t *made)
{
    packing *p = t->p;
    pack_shard *s = b->shard;
    const uint64_t base = s->offsets[b->index];
    *made = 0;
    if (p->resumed) {
        KOLO_TRY(kolo_file_pread(s->fd, s->path, data, s->offsets[b->index + b->count] - base,
                                 s->places.data + base));
        KOLO_TRY(kolo_file_pread(s->fd, s->path, b->states, (size_t)b->count,
                                 s->places.state + (uint64_t)b->index));
    }
    for (int64_t i = 0; i < b->count; i++) {
        const int64_t slot = p->slots[b->position + i];
        uint8_t *to = data + (s->offsets[b->index + i] - base);
        const uint64_t bytes = s->offsets[b->index + i + 1] - s->offsets[b->index + i];
        if (b->states[i] == KOLO_SAMPLE_EMPTY || !is_kept(pack_journal_at(p, slot), to, bytes)) {
            KOLO_TRY(make_sample(p, c, slot, to, bytes));
            ++*made;
        }
        const pack_record *r = pack_journal_at(p, slot);
        b->states[i] = r->state;
        b->crcs[i] = r->crc;
        memcpy(&b->sizes[2 * i], r->size, 4);
        memcpy(&b->orig_sizes[2 * i], r->orig_size, 4);
    }
    return 0;
}

/* State last: what says that a sample is there must not be there before it. */
static int store_block(packing *p, const block *b, const uint8_t *data)
{
    const pack_shard *s = b->shard;
    const size_t n = (size_t)b->count;
    const uint64_t base = s->offsets[b->index], at = (uint64_t)b->index;
    const uint64_t bytes = s->offsets[b->index + b->count] - base;
    KOLO_TRY(kolo_file_pwrite(s->fd, s->path, data, bytes, s->places.data + base));
    /* The disk begins now rather than at the sync that ends the pass, which reports errors; so
     * this one's are none. */
    (void)sync_file_range(s->fd, (off_t)(s->places.data + base), (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    KOLO_TRY(kolo_file_pwrite(s->fd, s->path, b->crcs, 4 * n, s->places.crc + 4 * at));
    KOLO_TRY(kolo_file_pwrite(s->fd, s->path, b->sizes, 4 * n, s->places.size + 4 * at));
    KOLO_TRY(kolo_file_pwrite(s->fd, s->path, b->orig_sizes, 4 * n, s->places.orig_size + 4 * at));
    KOLO_TRY(pack_store_targets(p, s, b->index, b->count));
    for (int64_t i = 0, run; i < b->count; i += run) { /* bad samples leave gaps between the slots */
        const int64_t slot = p->slots[b->position + i];
        for (run = 1; i + run < b->count && p->slots[b->position + i + run] == slot + run;) run++;
        KOLO_TRY(pack_journal_write(p, slot, run));
    }
    return kolo_file_pwrite(s->fd, s->path, b->states, n, s->places.state + at);
}

static pack_shard *shard_at(const packing *p, int64_t position)
{
    int s = 0;
    while (s + 1 < p->shards && p->shard[s + 1].first <= position) s++;
    return &p->shard[s];
}

static int write_block(pass *t, converter *c, source_buffer *buffer, int64_t first, int64_t count)
{
    packing *p = t->p;
    block *b = kolo_alloc(sizeof *b);
    int rc = b ? 0 : KOLO_ENOMEM;
    for (int64_t end = first + count; first < end && rc == 0;) {
        pack_shard *s = shard_at(p, first);
        const int64_t left = s->first + s->count - first;
        int64_t made = 0;
        b->shard = s;
        b->index = first - s->first;
        b->count = end - first < left ? end - first : left;
        b->position = first;
        memset(b->states, 0, sizeof b->states);
        const uint64_t bytes = s->offsets[b->index + b->count] - s->offsets[b->index];
        rc = source_grow(buffer, bytes + 1);
        if (rc == 0) rc = fill_block(t, c, b, buffer->data, &made);
        if (rc == 0 && made) rc = store_block(p, b, buffer->data);
        if (rc == 0) board_add(t->board, b->count, made ? (int64_t)bytes : 0, 0, b->count - made);
        first += b->count;
    }
    free(b);
    return rc;
}

/* About 2 MiB a block: few system calls for small samples, and a kill loses little. */
static int64_t choose_step(const packing *p)
{
    const uint64_t mean = p->count ? p->bytes / (uint64_t)p->count : 1;
    int64_t step = (int64_t)((2u << 20) / (mean ? mean : 1));
    const int64_t share = p->count / p->launch.size / p->threads / 4;
    if (step > share) step = share;
    return step < 1 ? 1 : step > MOST_IN_BLOCK ? MOST_IN_BLOCK : step;
}

static int sync_shards(packing *p, int64_t first, int64_t end)
{
    for (int s = 0; s < p->shards; s++) {
        const pack_shard *shard = &p->shard[s];
        if (shard->first < end && shard->first + shard->count > first)
            KOLO_TRY(kolo_file_sync(shard->fd, shard->path));
    }
    return 0;
}

int pack_write(packing *p)
{
    pass t = {.p = p,
              .first = pack_share(p->count, &p->launch, 0),
              .end = pack_share(p->count, &p->launch, 1),
              .step = choose_step(p),
              .work = write_block};
    const int64_t slot = t.first < t.end ? p->slots[t.first] : 0;
    KOLO_TRY(pack_agree(p, pack_journal_window(p, slot, t.first < t.end ? p->slots[t.end - 1] + 1 : 0)));
    int rc = run_pass(&t, "write", p->count), synced = 0;
    if (rc == 0 || rc == KOLO_EREQUEUE) synced = sync_shards(p, t.first, t.end);
    return rc < 0 ? rc : pack_agree(p, synced);
}
