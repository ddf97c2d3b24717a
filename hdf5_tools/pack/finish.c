#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/manifest.h"
#include "data/shard/targets.h"
#include "kolo/error.h"
#include "pack/pack.h"

/* What all records together say. Sums of integers: the same for any order of the samples. */
typedef struct totals {
    const packing *p;
    int64_t position;
    unsigned __int128 sum[3], square[3];
    uint64_t pixels, hash[2];
    uint8_t low[3], high[3];
    uint64_t *keys; /* [count] checksum and length */
} totals;

static int add_record(void *state, int64_t slot, const pack_record *r)
{
    totals *t = state;
    const packing *p = t->p;
    if (r->status == PACK_BAD) return 0;
    if (r->status != PACK_GOOD)
        return kolo_fail(KOLO_EINTERNAL,
                         "sample %" PRId64 " has no record after writing; run again with --resume",
                         t->position);
    const uint32_t words[3] = {r->crc, r->bytes, (uint32_t)p->source.labels[p->order[slot]]};
    source_mix(t->hash, words, sizeof words);
    t->keys[t->position++] = (uint64_t)r->crc << 32 | r->bytes;
    t->pixels += r->pixels;
    for (int c = 0; c < p->channels && r->pixels; c++) {
        const int k = r->channels == 1 ? 0 : c; /* a gray JPEG in a colour set */
        t->sum[c] += r->sum[k];
        t->square[c] += r->square[k];
        if (r->low[k] < t->low[c]) t->low[c] = r->low[k];
        if (r->high[k] > t->high[c]) t->high[c] = r->high[k];
    }
    return 0;
}

static void make_stats(const totals *t, kolo_shard_stats *stats)
{
    *stats = (kolo_shard_stats){0};
    for (int c = 0; c < t->p->channels && t->pixels; c++) {
        const double n = (double)t->pixels, mean = (double)t->sum[c] / n;
        const double variance = (double)t->square[c] / n - mean * mean;
        stats->mean[c] = mean / 255;
        stats->std[c] = sqrt(variance > 0 ? variance : 0) / 255;
        stats->min[c] = t->low[c] / 255.0;
        stats->max[c] = t->high[c] / 255.0;
        stats->count[c] = n;
    }
}

/* From list, options and content: the same input gives the same name. Form
 * of a version 8 UUID. */
static void make_uuid(const uint64_t hash[2], char uuid[40])
{
    const uint64_t a = (hash[0] & ~0xF000ull) | 0x8000, b = (hash[1] & ~(3ull << 62)) | 2ull << 62;
    snprintf(uuid, 40, "%08x-%04x-%04x-%04x-%012" PRIx64, (uint32_t)(a >> 32), (uint32_t)(a >> 16 & 0xFFFF),
             (uint32_t)(a & 0xFFFF), (uint32_t)(b >> 48), (uint64_t)(b & 0xFFFFFFFFFFFFull));
}

static int sum_up(const packing *p, kolo_shard_stats *stats, char uuid[40])
{
    totals t = {.p = p, .hash = {0xCBF29CE484222325ull, 0x2545F4914F6CDD1Dull}, .low = {255, 255, 255}};
    source_mix(t.hash, p->fingerprint, sizeof p->fingerprint);
    t.keys = kolo_alloc(sizeof *t.keys * (size_t)p->count + 8);
    int rc = t.keys ? pack_journal_each(p, 0, p->slot_count, add_record, &t) : KOLO_ENOMEM;
    if (rc == 0) rc = pack_report_duplicates(p, t.keys);
    free(t.keys);
    make_stats(&t, stats);
    if (p->stats_given) *stats = p->stats;
    make_uuid(t.hash, uuid);
    return rc;
}

static int complete_shard(packing *p, int k, const char *uuid, const kolo_shard_stats *stats,
                          kolo_manifest_shard *entry)
{
    pack_shard *s = &p->shard[k];
    kolo_shard_header h;
    kolo_shard_arrays a;
    KOLO_TRY(kolo_shard_complete(s->path, uuid, stats));
    KOLO_TRY(kolo_file_sync(s->fd, s->path));
    KOLO_TRY(kolo_shard_inspect(s->path, &h, NULL, &a));
    *entry = (kolo_manifest_shard){
        .count = h.count, .first = h.first, .bytes = h.bytes, .metadata_crc = a.metadata_crc};
    const kolo_shard_table *flags = kolo_shard_find_table(&a, "box_flags", KOLO_TABLE_U8, -1, 1);
    for (int64_t i = 0; flags && i < flags->dim[0]; i++)
        p->outside_boxes += (((const uint8_t *)flags->data)[i] & KOLO_BOX_OUTSIDE) != 0;
    kolo_shard_arrays_free(&a);
    const int n = snprintf(entry->file, sizeof entry->file, "%s", s->file);
    if (n < 0 || n >= (int)sizeof entry->file)
        return kolo_fail(KOLO_ECONFIG, "--name %s is too long", p->options.name);
    char *path = kolo_format("%s/%s", p->options.out, s->file);
    if (!path) return KOLO_ENOMEM;
    int rc = rename(s->path, path) == 0 ? 0 : kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    free(path);
    return rc;
}

static void finish_describe(const packing *p, const char *uuid, const kolo_shard_stats *stats,
                            kolo_dataset_info *i)
{
    const pack_options *o = &p->options;
    *i = (kolo_dataset_info){.encoding = o->encoding,
                             .channels = p->channels,
                             .height = p->height,
                             .width = p->width,
                             .count = p->count,
                             .classes = p->source.classes,
                             .shards = p->shards,
                             .bytes = p->bytes};
    snprintf(i->name, sizeof i->name, "%s", o->name);
    snprintf(i->split, sizeof i->split, "%s", o->out_split);
    pack_task_text(p, i->task, sizeof i->task);
    snprintf(i->uuid, sizeof i->uuid, "%s", uuid);
    for (int c = 0; c < p->channels; c++) {
        i->mean[c] = (float)stats->mean[c];
        i->std[c] = (float)stats->std[c];
    }
}

static int write_rejects(const packing *p)
{
    if (!p->rejects || !p->rejects[0]) return 0;
    char *path = kolo_format("%s/%s-%s.rejects", p->options.out, p->options.name, p->options.out_split);
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_file_write_atomic(path, p->rejects, strlen(p->rejects));
    free(path);
    return rc;
}

static int finish_finish(packing *p)
{
    kolo_manifest m = {0};
    kolo_shard_stats stats;
    char uuid[40];
    KOLO_TRY(sum_up(p, &stats, uuid));
    finish_describe(p, uuid, &stats, &m.info);
    m.shards = kolo_alloc(sizeof *m.shards * (size_t)p->shards);
    int rc = m.shards ? write_rejects(p) : KOLO_ENOMEM;
    for (int k = 0; k < p->shards && rc == 0; k++) rc = complete_shard(p, k, uuid, &stats, &m.shards[k]);
    if (rc == 0) rc = kolo_folder_sync(p->options.out);
    if (rc == 0) rc = kolo_manifest_write(p->options.out, &m);
    if (rc == 0) rc = kolo_folder_remove(p->work);
    kolo_manifest_free(&m);
    return rc;
}

int pack_finish(packing *p) { return pack_agree(p, p->launch.rank == 0 ? finish_finish(p) : 0); }

void pack_free(packing *p)
{
    for (int k = 0; p->shard && k < p->shards; k++) {
        if (p->shard[k].path && p->shard[k].fd >= 0) close(p->shard[k].fd);
        free(p->shard[k].file);
        free(p->shard[k].path);
        free(p->shard[k].offsets);
        free(p->shard[k].box_offsets);
    }
    for (int64_t i = 0; p->cache && i < p->cache_count; i++) free(p->cache[i].data);
    pack_journal_close(p);
    free(p->shard);
    free(p->cache);
    free(p->order);
    free(p->slots);
    free(p->pair);
    free(p->class_counts);
    free(p->rejects);
    free(p->options_text);
    free(p->agreed);
    free(p->work);
    source_free(&p->source);
}
