#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <hdf5.h>
#include <jpeglib.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "pack.h"

#define SHARD_BYTES (2ull << 30)

static uint64_t sample_bytes(const packing *p, int64_t slot)
{
    if (p->options.encoding == KOLO_ENCODING_JPEG) return p->records[slot].bytes;
    return (uint64_t)p->height * (uint64_t)p->width * (uint64_t)p->channels;
}

/* Slots without the bad ones, in order. */
static int choose_samples(packing *p)
{
    const source *s = &p->source;
    p->slots = kolo_alloc(sizeof *p->slots * (size_t)s->count);
    p->class_counts = kolo_alloc(sizeof *p->class_counts * (size_t)s->classes + 8);
    if (!p->slots || !p->class_counts) return KOLO_ECONFIG;
    for (int64_t slot = 0; slot < s->count; slot++) {
        if (p->records[slot].status == PACK_BAD) {
            p->bad++;
            continue;
        }
        p->slots[p->count++] = slot;
        p->bytes += sample_bytes(p, slot);
        p->class_counts[s->labels[p->order[slot]]]++;
    }
    if (p->count == 0) return kolo_fail(KOLO_EINPUT, "none of the %" PRId64 " pictures can be read", s->count);
    for (int c = 0; c < s->classes && p->launch.rank == 0; c++)
        if (p->class_counts[c] == 0) kolo_warn("class %s has no pictures in this split", s->class_names[c]);
    return 0;
}

static int cut_shards(packing *p)
{
    const pack_options *o = &p->options;
    p->shards = o->shards ? o->shards : (int)((p->bytes + SHARD_BYTES - 1) / SHARD_BYTES);
    if (p->shards < 1) p->shards = 1;
    if (p->shards > p->count)
        return kolo_fail(KOLO_ECONFIG, "--shards %d for %" PRId64 " samples; use fewer", p->shards, p->count);
    p->shard = kolo_alloc(sizeof *p->shard * (size_t)p->shards);
    if (!p->shard) return KOLO_ECONFIG;
    for (int k = 0; k < p->shards; k++) {
        pack_shard *s = &p->shard[k];
        s->fd = -1;
        s->first = p->count * k / p->shards;
        s->count = p->count * (k + 1) / p->shards - s->first;
        s->file = kolo_format("%s-%s-%05d-of-%05d.h5", o->name, o->split, k, p->shards);
        s->path = s->file ? kolo_format("%s/%s", p->work, s->file) : NULL;
        s->offsets = kolo_alloc(sizeof *s->offsets * (size_t)(s->count + 1));
        if (!s->path || !s->offsets) return KOLO_ECONFIG;
        for (int64_t i = 0; i < s->count; i++)
            s->offsets[i + 1] = s->offsets[i] + sample_bytes(p, p->slots[s->first + i]);
    }
    return 0;
}

/* Bytes already allocated by the run that is resumed. */
static int64_t used_bytes(const packing *p)
{
    int64_t used = 0;
    struct stat info;
    for (int k = 0; k < p->shards; k++)
        if (stat(p->shard[k].path, &info) == 0) used += (int64_t)info.st_blocks * 512;
    return used;
}

static int ask_space(const packing *p)
{
    const int64_t free_bytes = kolo_file_free_bytes(p->options.out);
    const int64_t need = (int64_t)p->bytes + p->count * 64 + p->shards * (int64_t)(2 << 20) - used_bytes(p);
    if (free_bytes < 0) return (int)free_bytes;
    if (need <= free_bytes) return 0;
    return kolo_fail(
        KOLO_EIO, "%s: %.1f MB are needed, %.1f MB are free; choose another --out, a smaller --size or --encoding jpeg",
        p->options.out, (double)need / 1e6, (double)free_bytes / 1e6);
}

/* Tables of one shard, in memory while it is created. */
typedef struct tables {
    int32_t *labels;
    int64_t *ids;
    char *sources;
    uint64_t *source_offsets;
} tables;

static void free_tables(tables *t)
{
    free(t->labels);
    free(t->ids);
    free(t->sources);
    free(t->source_offsets);
}

static int make_tables(const packing *p, const pack_shard *s, tables *t)
{
    const source *src = &p->source;
    const size_t n = (size_t)s->count;
    t->labels = kolo_alloc(sizeof *t->labels * n);
    t->ids = kolo_alloc(sizeof *t->ids * n);
    t->source_offsets = kolo_alloc(sizeof *t->source_offsets * (n + 1));
    if (!t->labels || !t->ids || !t->source_offsets) return KOLO_ECONFIG;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t from = p->order[p->slots[s->first + i]];
        t->labels[i] = src->labels[from];
        t->ids[i] = from;
        t->source_offsets[i + 1] = t->source_offsets[i] + (src->path_offsets[from + 1] - src->path_offsets[from]);
    }
    t->sources = kolo_alloc(t->source_offsets[s->count] + 1);
    if (!t->sources) return KOLO_ECONFIG;
    for (int64_t i = 0; i < s->count; i++)
        memcpy(t->sources + t->source_offsets[i], src->paths + src->path_offsets[t->ids[i]],
               t->source_offsets[i + 1] - t->source_offsets[i]);
    return 0;
}

/* A time only where the environment fixes one: outputs are to be the same bytes. */
static void created_text(char *text, size_t size)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t t = epoch ? (time_t)strtoll(epoch, NULL, 10) : 0;
    struct tm tm;
    text[0] = 0;
    if (epoch && gmtime_r(&t, &tm)) strftime(text, size, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int create_shard(const packing *p, int k)
{
    const pack_options *o = &p->options;
    const pack_shard *s = &p->shard[k];
    char fingerprint[40], hdf5[32], jpeg[32], created[32];
    unsigned major, minor, release;
    H5get_libversion(&major, &minor, &release);
    snprintf(hdf5, sizeof hdf5, "%u.%u.%u", major, minor, release);
#ifdef LIBJPEG_TURBO_VERSION_NUMBER
    snprintf(jpeg, sizeof jpeg, "libjpeg-turbo %d", LIBJPEG_TURBO_VERSION_NUMBER);
#else
    snprintf(jpeg, sizeof jpeg, "libjpeg %d", JPEG_LIB_VERSION);
#endif
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64 "%016" PRIx64, p->fingerprint[0], p->fingerprint[1]);
    created_text(created, sizeof created);
    const kolo_shard_note notes[] = {{"tool", "kolo-pack " KOLO_VERSION},
                                     {"options", p->options_text},
                                     {"fingerprint", fingerprint},
                                     {"filter", "bilinear, antialiased"},
                                     {"hdf5", hdf5},
                                     {"jpeg", jpeg},
                                     {"created_utc", created}};
    tables t = {0};
    int rc = make_tables(p, s, &t);
    const kolo_shard_spec spec = {.dataset = o->name,
                                  .split = o->split,
                                  .generator = "kolo-pack " KOLO_VERSION,
                                  .encoding = o->encoding,
                                  .channels = p->channels,
                                  .height = p->height,
                                  .width = p->width,
                                  .count = s->count,
                                  .first = s->first,
                                  .total = p->count,
                                  .shard = k,
                                  .shards = p->shards,
                                  .classes = p->source.classes,
                                  .class_names = (const char *const *)p->source.class_names,
                                  .class_counts = p->class_counts,
                                  .pack_seed = (uint64_t)o->shuffle_seed,
                                  .labels = t.labels,
                                  .ids = t.ids,
                                  .offsets = s->offsets,
                                  .sources = t.sources,
                                  .source_offsets = t.source_offsets,
                                  .rejects = k == 0 && p->rejects ? p->rejects : "",
                                  .notes = notes,
                                  .note_count = (int)(sizeof notes / sizeof *notes) - (created[0] ? 0 : 1)};
    /* under another name first: a kill in between leaves no half-made file where a resume looks */
    char *fresh = kolo_format("%s.new", s->path);
    if (rc == 0) rc = fresh ? kolo_shard_create(fresh, &spec) : KOLO_ECONFIG;
    if (rc == 0 && rename(fresh, s->path) != 0) rc = kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    free(fresh);
    free_tables(&t);
    return rc;
}

static bool shard_is_there(const packing *p, int k)
{
    kolo_shard_header h;
    const pack_shard *s = &p->shard[k];
    if (!p->resumed || !kolo_file_exists(s->path) || kolo_shard_inspect(s->path, &h, NULL, NULL) < 0) return false;
    return h.count == s->count && h.first == s->first && h.bytes == s->offsets[s->count] && h.shards == p->shards &&
           h.channels == p->channels;
}

static int create_mine(packing *p)
{
    for (int k = p->launch.rank; k < p->shards; k += p->launch.size)
        if (!shard_is_there(p, k)) KOLO_TRY(create_shard(p, k));
    return 0;
}

static int open_all(packing *p)
{
    for (int k = 0; k < p->shards; k++) {
        pack_shard *s = &p->shard[k];
        KOLO_TRY(kolo_shard_inspect(s->path, NULL, &s->places, NULL));
        s->fd = open(s->path, O_RDWR | O_CLOEXEC);
        if (s->fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    }
    return 0;
}

/* ---- rejects: one file a rank and run, brought into source order ------------------------------------------------ */

typedef struct reject {
    int64_t number;
    char *line;
} reject;

static int compare(const void *a, const void *b)
{
    const reject *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int read_rejects(const char *path, reject **list, int64_t *count, int64_t *capacity)
{
    char *text;
    KOLO_TRY(kolo_file_read(path, &text, NULL));
    for (char *at = text, *end; (end = strchr(at, '\n')); at = end + 1) {
        *end = 0;
        char *tab = strchr(at, '\t');
        if (!tab) continue;
        KOLO_TRY(kolo_grow(list, capacity, *count, sizeof **list));
        (*list)[(*count)++] = (reject){strtoll(at, NULL, 10), kolo_strdup(tab + 1)};
    }
    free(text);
    return 0;
}

/* A sample may have been rejected twice (killed between the two files): the journal decides, once each. */
static int gather_rejects(packing *p)
{
    DIR *dir = opendir(p->work);
    struct dirent *entry;
    reject *list = NULL;
    int64_t count = 0, capacity = 0, last = -1;
    int rc = dir ? 0 : kolo_fail(KOLO_EIO, "%s: %s", p->work, strerror(errno));
    while (rc == 0 && (entry = readdir(dir))) {
        if (strncmp(entry->d_name, "rejects-", 8) != 0) continue;
        char *path = kolo_format("%s/%s", p->work, entry->d_name);
        rc = path ? read_rejects(path, &list, &count, &capacity) : KOLO_ECONFIG;
        free(path);
    }
    if (dir) closedir(dir);
    if (count) qsort(list, (size_t)count, sizeof *list, compare);
    size_t length = 0;
    FILE *out = open_memstream(&p->rejects, &length);
    if (!out) rc = kolo_fail(KOLO_ECONFIG, "out of memory for the list of rejects");
    for (int64_t i = 0; i < count; i++) {
        if (out && list[i].number != last) fprintf(out, "%s\n", list[i].line);
        last = list[i].number;
        free(list[i].line);
    }
    free(list);
    if (out) fclose(out);
    return rc;
}

int pack_layout(packing *p)
{
    int rc = choose_samples(p);
    if (rc == 0) rc = cut_shards(p);
    if (rc == 0 && p->launch.rank == 0) rc = ask_space(p);
    if (rc == 0 && p->launch.rank == 0) rc = gather_rejects(p);
    KOLO_TRY(pack_agree(p, rc));
    KOLO_TRY(pack_agree(p, create_mine(p)));
    return pack_agree(p, open_all(p));
}
