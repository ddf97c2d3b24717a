#include "shards/write.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/failure.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/lock.h"
#include "base/memory.h"
#include "base/thread.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"
#include "sources/source.h"

#define SHARD_BYTES ((uint64_t)2 << 30)
#define BLOCK_BYTES ((uint64_t)8 << 20)

typedef struct new_shard {
    char *path;
    int64_t first, count;
    kolo_shard_places places;
} new_shard;

typedef struct writing {
    const shards_plan *plan;
    char *folder; /* OUT.partial */
    new_shard *shard;
    int shards;
    uint32_t *crcs; /* [count] */
    char uuid[40];
    kolo_shard_stats stats;
    double seconds;
} writing;

static bool is_word(const char *text, size_t most)
{
    const size_t n = strlen(text);
    bool fine = n > 0 && n <= most && text[0] != '.' && text[0] != '-';
    for (size_t i = 0; i < n; i++) fine &= isalnum((unsigned char)text[i]) || strchr("._-", text[i]);
    return fine;
}

int shards_check_target(shards_target *t, const char *command)
{
    if (!t->out)
        return kolo_fail(KOLO_ECONFIG, "%s: --out DIR is missing, the folder of the new split", command);
    size_t n = strlen(t->out);
    while (n > 1 && t->out[n - 1] == '/') n--;
    if (t->out[n])
        return kolo_fail(KOLO_ECONFIG, "%s: --out %s: give the folder without the slash at its end", command,
                         t->out);
    if (t->name && !is_word(t->name, 63))
        return kolo_fail(KOLO_ECONFIG,
                         "%s: --name %s: must be a word of letters, digits, `.`, `_`, `-`, at most 63 long",
                         command, t->name);
    if (t->split && !is_word(t->split, 15))
        return kolo_fail(KOLO_ECONFIG,
                         "%s: --split %s: must be a word of letters, digits, `.`, `_`, `-`, at most 15 long",
                         command, t->split);
    if (kolo_file_exists(t->out))
        return kolo_fail(KOLO_ECONFIG,
                         "%s: --out %s is there already; choose another name, or remove it first", command,
                         t->out);
    if (!t->threads) t->threads = kolo_cpu_count();
    return 0;
}

static int cut(writing *w)
{
    const shards_plan *p = w->plan;
    const uint64_t bytes = p->offsets[p->count];
    w->shards = p->target.shards ? (int)p->target.shards : (int)((bytes + SHARD_BYTES - 1) / SHARD_BYTES);
    if (w->shards < 1) w->shards = 1;
    if (w->shards > p->count)
        return kolo_fail(KOLO_ECONFIG, "--shards %d: there are only %" PRId64 " samples; use fewer",
                         w->shards, p->count);
    w->shard = kolo_alloc(sizeof *w->shard * (size_t)w->shards);
    w->crcs = kolo_alloc(sizeof *w->crcs * (size_t)p->count);
    if (!w->shard || !w->crcs) return KOLO_ENOMEM;
    for (int k = 0; k < w->shards; k++) {
        new_shard *s = &w->shard[k];
        s->first = p->count * k / w->shards;
        s->count = p->count * (k + 1) / w->shards - s->first;
        s->path =
            kolo_format("%s/%s-%s-%05d-of-%05d.h5", w->folder, p->target.name, p->target.split, k, w->shards);
        if (!s->path) return KOLO_ENOMEM;
    }
    return 0;
}

/* Removes what a killed run left in OUT.partial; its lock file shows that the folder is one of ours. */
static int empty(const char *folder)
{
    kolo_folder_names names = {0};
    int rc = kolo_folder_list(folder, &names);
    for (int64_t i = 0; i < names.count && rc == 0; i++) {
        char *path = kolo_format("%s/%s", folder, names.list[i]);
        if (!path) rc = KOLO_ENOMEM;
        else if (strcmp(names.list[i], "lock") != 0 && unlink(path) != 0)
            rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
        free(path);
    }
    kolo_folder_free(&names);
    return rc;
}

/* OUT.partial is ours alone, and empty but for its lock. */
static int write_claim(const writing *w, run_lock *lock)
{
    char *path = kolo_format("%s/lock", w->folder);
    if (!path) return KOLO_ENOMEM;
    const bool strange = kolo_file_exists(w->folder) && !kolo_file_exists(path) && rmdir(w->folder) != 0;
    free(path);
    if (strange)
        return kolo_fail(KOLO_ECONFIG,
                         "%s is in the way: what is to become %s is first written there; remove it",
                         w->folder, w->plan->target.out);
    KOLO_TRY(kolo_folder_make_own(w->folder));
    KOLO_TRY(kolo_lock_take(lock, w->folder, "lock", w->folder));
    return empty(w->folder);
}

static int check_free_space(const writing *w)
{
    const shards_plan *p = w->plan;
    const int64_t free_bytes = kolo_file_free_bytes(p->target.out);
    const int64_t need = (int64_t)p->offsets[p->count] + p->count * 96 + (int64_t)w->shards * (2 << 20);
    if (free_bytes < 0) return (int)free_bytes;
    if (need <= free_bytes) return 0;
    return kolo_fail(KOLO_EIO, "%s: %.1f MB are needed, %.1f MB are free; choose another --out",
                     p->target.out, (double)need / 1e6, (double)free_bytes / 1e6);
}

/* Offsets of a stretch, from 0. */
static uint64_t *rebase(const uint64_t *offsets, int64_t first, int64_t count)
{
    uint64_t *own = kolo_alloc(sizeof *own * (size_t)(count + 1));
    for (int64_t i = 0; own && i <= count; i++) own[i] = offsets[first + i] - offsets[first];
    return own;
}

static int create_file(const writing *w, int k, const uint64_t *offsets, const uint64_t *source_offsets,
                       const kolo_shard_table *tables, int table_count)
{
    const shards_plan *p = w->plan;
    const new_shard *s = &w->shard[k];
    const kolo_shard_note notes[] = {{"tool", "kolo-shards " KOLO_VERSION},
                                     {"options", p->command},
                                     {"from", p->from},
                                     {"packed", p->packed}};
    const kolo_shard_spec spec = {.dataset = p->target.name,
                                  .split = p->target.split,
                                  .generator = "kolo-shards " KOLO_VERSION,
                                  .task = p->task,
                                  .box_form = p->box_form,
                                  .encoding = p->encoding,
                                  .channels = p->channels,
                                  .height = p->height,
                                  .width = p->width,
                                  .count = s->count,
                                  .first = s->first,
                                  .total = p->count,
                                  .shard = k,
                                  .shards = w->shards,
                                  .classes = p->classes,
                                  .class_names = (const char *const *)p->class_names,
                                  .class_ids = p->class_ids,
                                  .class_counts = p->class_counts,
                                  .pack_seed = p->pack_seed,
                                  .labels = p->labels + s->first,
                                  .ids = p->ids + s->first,
                                  .offsets = offsets,
                                  .sources = p->sources + p->source_offsets[s->first],
                                  .source_offsets = source_offsets,
                                  .rejects = k == 0 && p->rejects ? p->rejects : "",
                                  .notes = notes,
                                  .note_count = (int)(sizeof notes / sizeof *notes),
                                  .tables = tables,
                                  .table_count = table_count};
    return kolo_shard_create(s->path, &spec);
}

/* All room at once: a full disk or a quota is reported before the work. Where the file system cannot promise,
 * the writers will find out. */
static int reserve(const char *path)
{
    const int64_t bytes = kolo_file_size(path);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool refused = fd >= 0 && bytes > 0 && fallocate(fd, 0, 0, bytes) != 0 &&
                         (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);
    const int cause = errno;
    if (fd >= 0) close(fd);
    if (fd < 0 || bytes < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(cause));
    return refused ? kolo_fail(KOLO_EIO,
                               "%s: the file system refuses %.1f MB: %s; free space or choose another --out",
                               path, (double)bytes / 1e6, strerror(cause))
                   : 0;
}

static int create_shard(writing *w, int k)
{
    const shards_plan *p = w->plan;
    new_shard *s = &w->shard[k];
    kolo_shard_table tables[KOLO_SHARD_MOST_TABLES] = {0};
    int table_count = 0;
    uint64_t *offsets = rebase(p->offsets, s->first, s->count),
             *source_offsets = rebase(p->source_offsets, s->first, s->count);
    int rc = offsets && source_offsets ? 0 : KOLO_ENOMEM;
    if (rc == 0 && p->tables) rc = p->tables(p->context, s->first, s->count, tables, &table_count);
    if (rc == 0) rc = create_file(w, k, offsets, source_offsets, tables, table_count);
    if (rc == 0) rc = reserve(s->path);
    if (rc == 0) rc = kolo_shard_inspect(s->path, NULL, &s->places, NULL);
    for (int i = 0; i < table_count; i++) free((void *)tables[i].data);
    free(source_offsets);
    free(offsets);
    return rc;
}

/* Samples first .. last-1, which lie in shard s, with their records. */
static int write_run(writing *w, const new_shard *s, int64_t first, int64_t last, const uint8_t *data)
{
    const shards_plan *p = w->plan;
    const uint64_t at = (uint64_t)(first - s->first), n = (uint64_t)(last - first);
    const int fd = open(s->path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    int rc = kolo_file_pwrite(fd, s->path, data, p->offsets[last] - p->offsets[first],
                              s->places.data + p->offsets[first] - p->offsets[s->first]);
    if (rc == 0) rc = kolo_file_pwrite(fd, s->path, w->crcs + first, 4 * n, s->places.crc + 4 * at);
    if (rc == 0) rc = kolo_file_pwrite(fd, s->path, p->sizes + first, 4 * n, s->places.size + 4 * at);
    if (rc == 0)
        rc = kolo_file_pwrite(fd, s->path, p->orig_sizes + first, 4 * n, s->places.orig_size + 4 * at);
    if (rc == 0) rc = kolo_file_pwrite(fd, s->path, p->states + first, n, s->places.state + at);
    if (close(fd) != 0 && rc == 0) rc = kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    return rc;
}

static const new_shard *shard_of(const writing *w, int64_t sample)
{
    int k = (int)((__int128)sample * w->shards / w->plan->count);
    while (k > 0 && w->shard[k].first > sample) k--;
    while (k + 1 < w->shards && w->shard[k + 1].first <= sample) k++;
    return &w->shard[k];
}

static int write_block(void *context, int thread, int64_t first, int64_t last, int64_t *bytes)
{
    writing *w = context;
    const shards_plan *p = w->plan;
    (void)thread;
    uint8_t *data = malloc(p->offsets[last] - p->offsets[first] + 1);
    int rc = data ? 0
                  : kolo_fail(KOLO_ENOMEM, "out of memory: %" PRIu64 " bytes",
                              p->offsets[last] - p->offsets[first]);
    for (int64_t from = first, to; rc == 0 && from < last; from = to) {
        const new_shard *s = shard_of(w, from);
        to = s->first + s->count < last ? s->first + s->count : last;
        for (int64_t i = from; i < to && rc == 0; i++) {
            uint8_t *sample = data + (p->offsets[i] - p->offsets[from]);
            rc = p->load(p->context, i, sample);
            w->crcs[i] = kolo_crc32c(0, sample, p->offsets[i + 1] - p->offsets[i]);
        }
        if (rc == 0) rc = write_run(w, s, from, to, data);
    }
    free(data);
    *bytes = (int64_t)(p->offsets[last] - p->offsets[first]);
    return rc;
}

/* From what was asked, where it came from and the content. Form of a version 8 UUID. */
static void make_uuid(writing *w)
{
    const shards_plan *p = w->plan;
    uint64_t h[2] = {0xCBF29CE484222325ull, 0x2545F4914F6CDD1Dull};
    source_mix(h, p->command, strlen(p->command));
    source_mix(h, p->from, strlen(p->from));
    source_mix(h, w->crcs, sizeof *w->crcs * (size_t)p->count);
    source_mix(h, p->labels, sizeof *p->labels * (size_t)p->count);
    source_mix(h, p->ids, sizeof *p->ids * (size_t)p->count);
    h[0] = (h[0] & ~0xF000ull) | 0x8000;
    h[1] = (h[1] & ~(3ull << 62)) | 2ull << 62;
    snprintf(w->uuid, sizeof w->uuid, "%08x-%04x-%04x-%04x-%012" PRIx64, (uint32_t)(h[0] >> 32),
             (uint32_t)(h[0] >> 16 & 0xFFFF), (uint32_t)(h[0] & 0xFFFF), (uint32_t)(h[1] >> 48),
             (uint64_t)(h[1] & 0xFFFFFFFFFFFFull));
}

static int sync_file(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    const int rc = kolo_file_sync(fd, path);
    close(fd);
    return rc;
}

static int complete_shard(const writing *w, int k, kolo_manifest_shard *entry)
{
    const new_shard *s = &w->shard[k];
    kolo_shard_header h;
    kolo_shard_arrays a;
    KOLO_TRY(kolo_shard_complete(s->path, w->uuid, &w->stats));
    KOLO_TRY(sync_file(s->path));
    KOLO_TRY(kolo_shard_inspect(s->path, &h, NULL, &a));
    *entry = (kolo_manifest_shard){
        .count = h.count, .first = h.first, .bytes = h.bytes, .metadata_crc = a.metadata_crc};
    kolo_shard_arrays_free(&a);
    const int n = snprintf(entry->file, sizeof entry->file, "%s", strrchr(s->path, '/') + 1);
    return n < (int)sizeof entry->file
               ? 0
               : kolo_fail(KOLO_ECONFIG, "--name %s is too long", w->plan->target.name);
}

static int write_complete(writing *w)
{
    const shards_plan *p = w->plan;
    kolo_manifest m = {.info = {.encoding = p->encoding,
                                .channels = p->channels,
                                .height = p->encoding == KOLO_ENCODING_RAW ? p->height : 0,
                                .width = p->encoding == KOLO_ENCODING_RAW ? p->width : 0,
                                .count = p->count,
                                .classes = p->classes,
                                .shards = w->shards,
                                .bytes = p->offsets[p->count]}};
    w->stats = p->stats;
    if (p->measure) p->measure(p->context, &w->stats);
    make_uuid(w);
    snprintf(m.info.name, sizeof m.info.name, "%s", p->target.name);
    snprintf(m.info.split, sizeof m.info.split, "%s", p->target.split);
    snprintf(m.info.task, sizeof m.info.task, "%s", p->task);
    snprintf(m.info.uuid, sizeof m.info.uuid, "%s", w->uuid);
    for (int c = 0; c < p->channels; c++)
        m.info.mean[c] = (float)w->stats.mean[c], m.info.std[c] = (float)w->stats.std[c];
    m.shards = kolo_alloc(sizeof *m.shards * (size_t)w->shards);
    int rc = m.shards ? 0 : KOLO_ENOMEM;
    for (int k = 0; k < w->shards && rc == 0; k++) rc = complete_shard(w, k, &m.shards[k]);
    if (rc == 0) rc = kolo_folder_sync(w->folder);
    if (rc == 0) rc = kolo_manifest_write(w->folder, &m);
    kolo_manifest_free(&m);
    return rc;
}

static int write_all(writing *w)
{
    const shards_plan *p = w->plan;
    const uint64_t average = p->offsets[p->count] / (uint64_t)p->count + 1;
    uint64_t block = BLOCK_BYTES / average;
    block = block < 1 ? 1 : block > 1024 ? 1024 : block;
    KOLO_TRY(check_free_space(w));
    for (int k = 0; k < w->shards; k++) KOLO_TRY(create_shard(w, k));
    shards_work work = {.what = "writing",
                        .total = p->count,
                        .block = (int64_t)block,
                        .threads = (int)p->target.threads,
                        .run = write_block,
                        .context = w};
    KOLO_TRY(shards_run(&work));
    w->seconds = work.seconds;
    return write_complete(w);
}

static void print_written(const writing *w)
{
    const shards_plan *p = w->plan;
    if (p->target.json)
        printf("{\"event\":\"done\",\"samples\":%" PRId64 ",\"bytes\":%" PRIu64
               ",\"shards\":%d,\"uuid\":\"%s\",\"seconds\":%.3f}\n",
               p->count, p->offsets[p->count], w->shards, w->uuid, w->seconds);
    else
        printf("%s: %" PRId64 " samples, %d classes, %.1f MB in %d shard%s, %.1f MB/s\n", p->target.out,
               p->count, p->classes, (double)p->offsets[p->count] / 1e6, w->shards, w->shards == 1 ? "" : "s",
               w->seconds > 0 ? (double)p->offsets[p->count] / w->seconds / 1e6 : 0);
}

static int publish(const writing *w)
{
    const char *out = w->plan->target.out;
    if (rename(w->folder, out) != 0) return kolo_fail(KOLO_EIO, "%s: %s", out, strerror(errno));
    char *parent = kolo_format("%s/..", out);
    const int rc = parent ? kolo_folder_sync(parent) : KOLO_ENOMEM;
    free(parent);
    return rc;
}

int shards_write(const shards_plan *plan)
{
    writing w = {.plan = plan};
    run_lock lock = {.fd = -1};
    if (plan->count < 1) return kolo_fail(KOLO_EINPUT, "no sample is left: nothing was written");
    w.folder = kolo_format("%s.partial", plan->target.out);
    int rc = w.folder ? cut(&w) : KOLO_ENOMEM;
    if (rc == 0) rc = write_claim(&w, &lock);
    const bool claimed = lock.fd >= 0;
    if (rc == 0) rc = write_all(&w);
    if (claimed) kolo_lock_release(&lock);
    if (rc == 0) rc = publish(&w);
    if (rc == 0) print_written(&w);
    kolo_failure first;
    kolo_error_keep(&first);
    if (rc < 0 && claimed && kolo_folder_remove(w.folder) < 0)
        fprintf(stderr, "kolo-shards: %s\n", kolo_error_text());
    kolo_error_restore(&first, rc);
    for (int k = 0; w.shard && k < w.shards; k++) free(w.shard[k].path);
    free(w.shard);
    free(w.crcs);
    free(w.folder);
    return rc;
}
