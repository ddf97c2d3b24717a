#include "data/shard/dataset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/shard/file.h"
#include "data/shard/manifest.h"
#include "data/shard/targets.h"
#include "kolo/error.h"

typedef struct open_shard {
    char *path;
    int fd;
    int64_t first, count;
    kolo_shard_places places;
    uint64_t *offsets;     /* [count + 1], jpeg and mixed */
    uint16_t (*sizes)[2];  /* [count], likewise */
    const uint8_t *memory; /* samples [from, to), or NULL */
    int64_t from, to;
} open_shard;

struct kolo_dataset {
    kolo_dataset_info info;
    open_shard *shards;
    int32_t *labels; /* [info.count] */
    uint32_t *crcs;  /* [info.count] */
    /* [info.count] 0: this process has never compared its bytes; else reads since then, and one. Readers
     * share it without order: what one of them loses makes a comparison come a read later. */
    _Atomic uint8_t *reads;
    char **classes;      /* [info.classes] */
    uint8_t *codecs;     /* [info.count], mixed */
    size_t sample_bytes; /* raw */
    kolo_targets *targets;
    int unsealed; /* shards without a checksum of their tables */
};

/* Hundreds of shards stay open at once; the soft limit of 1024 files may be lower than the hard one. */
static void allow_files(int shards)
{
    struct rlimit limit;
    if (shards < 400 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

static int check_states(const char *path, const kolo_shard_header *h, const kolo_shard_arrays *a)
{
    for (int64_t i = 0; i < h->count; i++) {
        if (a->states[i] == KOLO_SAMPLE_EMPTY)
            return kolo_fail(KOLO_EINPUT, "%s: sample %lld was never written; run kolo-pack --resume", path,
                             (long long)i);
        if (a->labels[i] < -1 || a->labels[i] >= h->classes)
            return kolo_fail(KOLO_EINPUT,
                             "%s: sample %lld has label %d, but there are %d classes; pack this split again",
                             path, (long long)i, a->labels[i], h->classes);
    }
    return 0;
}

static int check_shard(const char *path, const kolo_dataset_info *info, const kolo_manifest_shard *entry,
                       int index, const kolo_shard_header *h, const kolo_shard_arrays *a)
{
    if (!h->complete)
        return kolo_fail(KOLO_EINPUT, "%s is incomplete: packing did not finish; run kolo-pack --resume",
                         path);
    if (strcmp(h->uuid, info->uuid) != 0)
        return kolo_fail(
            KOLO_EINPUT,
            "%s belongs to another packing (uuid %s, the manifest says %s); do not mix splits in one folder",
            path, h->uuid, info->uuid);
    if (h->count != entry->count || h->first != entry->first || h->bytes != entry->bytes ||
        h->shard != index || h->shards != info->shards || h->encoding != info->encoding ||
        h->channels != info->channels || h->classes != info->classes || h->total != info->count ||
        strcmp(h->task, info->task) != 0 ||
        (h->encoding == KOLO_ENCODING_RAW && (h->height != info->height || h->width != info->width)))
        return kolo_fail(KOLO_EINPUT,
                         "%s contradicts the manifest (counts, shape or position); pack this split again",
                         path);
    if (a->metadata_crc != entry->metadata_crc)
        return kolo_fail(KOLO_EINPUT,
                         "%s: its tables do not have the manifest's checksum: damaged; run kolo-shards "
                         "verify, then pack again",
                         path);
    return check_states(path, h, a);
}

/* Pixels in a mixed shard have the length that their size says; the loader trusts it. */
static int read_codecs(kolo_dataset *d, const char *path, const kolo_shard_header *h,
                       const kolo_shard_arrays *a)
{
    const kolo_shard_table *codec = kolo_shard_find_table(a, "codec", KOLO_TABLE_U8, h->count, 1);
    if (!codec)
        return kolo_fail(KOLO_EINPUT, "%s: mixed, but /codec is missing; pack this split again", path);
    uint8_t *codecs = d->codecs + h->first;
    memcpy(codecs, codec->data, (size_t)h->count);
    for (int64_t i = 0; i < h->count; i++) {
        const uint64_t bytes = a->offsets[i + 1] - a->offsets[i];
        if (codecs[i] == KOLO_CODEC_JPEG) continue;
        if (codecs[i] != KOLO_CODEC_RAW ||
            bytes != (uint64_t)a->sizes[i][0] * a->sizes[i][1] * (uint64_t)h->channels)
            return kolo_fail(KOLO_EINPUT,
                             "%s: sample %lld contradicts its /size or /codec; pack this split again", path,
                             (long long)i);
    }
    return 0;
}

static int open_one(kolo_dataset *d, const char *folder, const kolo_manifest *m, int s)
{
    open_shard *shard = &d->shards[s];
    kolo_shard_header h;
    kolo_shard_arrays a;
    shard->path = kolo_format("%s/%s", folder, m->shards[s].file);
    if (!shard->path) return KOLO_ENOMEM;
    KOLO_TRY(kolo_shard_inspect(shard->path, &h, &shard->places, &a));
    int rc = check_shard(shard->path, &d->info, &m->shards[s], s, &h, &a);
    if (rc == 0 && h.encoding == KOLO_ENCODING_MIXED) rc = read_codecs(d, shard->path, &h, &a);
    if (rc == 0) rc = kolo_targets_add(&d->targets, shard->path, &h, &a);
    if (rc == 0) {
        shard->first = h.first;
        shard->count = h.count;
        shard->offsets = a.offsets;
        shard->sizes = a.sizes;
        a.offsets = NULL;
        a.sizes = NULL;
        d->unsealed += !h.checksummed;
        memcpy(d->labels + h.first, a.labels, sizeof *a.labels * (size_t)h.count);
        memcpy(d->crcs + h.first, a.crcs, sizeof *a.crcs * (size_t)h.count);
    }
    kolo_shard_arrays_free(&a);
    if (rc < 0) return rc;
    shard->fd = open(shard->path, O_RDONLY | O_CLOEXEC);
    if (shard->fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", shard->path, strerror(errno));
    posix_fadvise(shard->fd, 0, 0, POSIX_FADV_RANDOM);
    return 0;
}

static int open_all(kolo_dataset *d, const char *folder, const kolo_manifest *m)
{
    const size_t n = (size_t)m->info.count;
    d->info = m->info;
    d->sample_bytes = (size_t)d->info.height * (size_t)d->info.width * (size_t)d->info.channels;
    d->shards = kolo_alloc(sizeof *d->shards * (size_t)m->info.shards);
    d->labels = kolo_alloc(sizeof *d->labels * n + 8);
    d->crcs = kolo_alloc(sizeof *d->crcs * n + 8);
    d->reads = kolo_alloc(n + 8);
    d->codecs = m->info.encoding == KOLO_ENCODING_MIXED ? kolo_alloc(n + 8) : NULL;
    if (!d->shards || !d->labels || !d->crcs || !d->reads ||
        (!d->codecs && m->info.encoding == KOLO_ENCODING_MIXED))
        return KOLO_ENOMEM;
    for (int s = 0; s < m->info.shards; s++) d->shards[s].fd = -1;
    allow_files(m->info.shards);
    for (int s = 0; s < m->info.shards; s++) KOLO_TRY(open_one(d, folder, m, s));
    KOLO_TRY(kolo_targets_finish(d->targets, d->info.count));
    return kolo_shard_read_classes(d->shards[0].path, d->info.classes, &d->classes, NULL);
}

int kolo_dataset_open(kolo_dataset **dataset, const char *folder)
{
    kolo_manifest m;
    *dataset = NULL;
    KOLO_TRY(kolo_manifest_read(folder, &m));
    kolo_dataset *d = kolo_alloc(sizeof *d);
    int rc = d ? open_all(d, folder, &m) : KOLO_ENOMEM;
    kolo_manifest_free(&m);
    if (rc < 0) kolo_dataset_close(&d);
    *dataset = d;
    return rc;
}

void kolo_dataset_close(kolo_dataset **dataset)
{
    kolo_dataset *d = *dataset;
    if (!d) return;
    for (int s = 0; d->shards && s < d->info.shards; s++) {
        if (d->shards[s].path && d->shards[s].fd >= 0) close(d->shards[s].fd);
        free(d->shards[s].path);
        free(d->shards[s].offsets);
        free(d->shards[s].sizes);
    }
    free(d->shards);
    free(d->labels);
    free(d->crcs);
    free(d->reads);
    free(d->codecs);
    free(d->classes);
    kolo_targets_free(&d->targets);
    free(d);
    *dataset = NULL;
}

const kolo_dataset_info *kolo_dataset_get_info(const kolo_dataset *dataset) { return &dataset->info; }

const char *kolo_dataset_class_name(const kolo_dataset *dataset, int label)
{
    return label >= 0 && label < dataset->info.classes ? dataset->classes[label] : "";
}

static const open_shard *shard_of(const kolo_dataset *d, int64_t sample)
{
    int low = 0, high = d->info.shards - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (d->shards[middle].first <= sample) low = middle;
        else high = middle - 1;
    }
    return &d->shards[low];
}

const char *kolo_dataset_shard_of(const kolo_dataset *dataset, int64_t sample, int64_t *index)
{
    const open_shard *shard = shard_of(dataset, sample);
    if (index) *index = sample - shard->first;
    return shard->path;
}

const char *kolo_dataset_shard_path(const kolo_dataset *dataset, int shard)
{
    return dataset->shards[shard].path;
}

int kolo_dataset_unsealed(const kolo_dataset *dataset) { return dataset->unsealed; }

int32_t kolo_dataset_label(const kolo_dataset *dataset, int64_t sample) { return dataset->labels[sample]; }

uint32_t kolo_dataset_crc(const kolo_dataset *dataset, int64_t sample) { return dataset->crcs[sample]; }

uint32_t kolo_dataset_checksum(const kolo_dataset *dataset, int64_t first, int64_t last)
{
    uint32_t crc = 0;
    for (int64_t i = first; i < last; i++) crc = kolo_crc32c(crc, &dataset->crcs[i], sizeof *dataset->crcs);
    return crc;
}

void kolo_dataset_count_classes(const kolo_dataset *d, uint64_t *counts)
{
    const kolo_targets *t = d->targets;
    bool labelled = false;
    memset(counts, 0, sizeof *counts * (size_t)d->info.classes);
    for (int64_t i = 0; i < d->info.count; i++) {
        if (d->labels[i] < 0) continue;
        counts[d->labels[i]]++;
        labelled = true;
    }
    if (labelled || !t) return;
    const bool boxes = t->box_offset != NULL;
    for (int64_t i = 0; i < (boxes ? t->boxes : t->tags); i++) counts[boxes ? t->box_class[i] : t->tag[i]]++;
}

const kolo_targets *kolo_dataset_targets(const kolo_dataset *dataset) { return dataset->targets; }

enum kolo_codec kolo_dataset_codec(const kolo_dataset *dataset, int64_t sample)
{
    if (dataset->codecs) return (enum kolo_codec)dataset->codecs[sample];
    return dataset->info.encoding == KOLO_ENCODING_RAW ? KOLO_CODEC_RAW : KOLO_CODEC_JPEG;
}

void kolo_dataset_size(const kolo_dataset *dataset, int64_t sample, int *height, int *width)
{
    const open_shard *shard = shard_of(dataset, sample);
    *height = shard->sizes ? shard->sizes[sample - shard->first][0] : dataset->info.height;
    *width = shard->sizes ? shard->sizes[sample - shard->first][1] : dataset->info.width;
}

size_t kolo_dataset_bytes(const kolo_dataset *dataset, int64_t sample)
{
    if (dataset->info.encoding == KOLO_ENCODING_RAW) return dataset->sample_bytes;
    const open_shard *shard = shard_of(dataset, sample);
    const int64_t i = sample - shard->first;
    return shard->offsets[i + 1] - shard->offsets[i];
}

/* Of the sample number i of a shard, behind places.data. */
static uint64_t offset_in(const kolo_dataset *d, const open_shard *shard, int64_t i)
{
    return shard->offsets ? shard->offsets[i] : (uint64_t)i * d->sample_bytes;
}

const uint8_t *kolo_dataset_memory(const kolo_dataset *dataset, int64_t sample)
{
    const open_shard *s = shard_of(dataset, sample);
    if (!s->memory || sample < s->from || sample >= s->to) return NULL;
    return s->memory + (offset_in(dataset, s, sample - s->first) - offset_in(dataset, s, s->from - s->first));
}

int kolo_dataset_read(const kolo_dataset *dataset, int64_t sample, void *data)
{
    if (sample < 0 || sample >= dataset->info.count)
        return kolo_fail(KOLO_EINTERNAL, "sample %lld of a split of %lld", (long long)sample,
                         (long long)dataset->info.count);
    return kolo_dataset_read_run(dataset, sample, 1, data);
}

void kolo_dataset_advise(const kolo_dataset *dataset, int64_t first, int64_t count)
{
    for (int64_t n; count > 0; first += n, count -= n) {
        const open_shard *shard = shard_of(dataset, first);
        const int64_t i = first - shard->first;
        n = kolo_dataset_run(dataset, first, count);
        const uint64_t at = offset_in(dataset, shard, i), end = offset_in(dataset, shard, i + n);
        if (!kolo_dataset_memory(dataset, first))
            posix_fadvise(shard->fd, (off_t)(shard->places.data + at), (off_t)(end - at),
                          POSIX_FADV_WILLNEED);
    }
}

void kolo_dataset_set_memory(kolo_dataset *dataset, int shard, int64_t first, int64_t count,
                             const void *samples)
{
    dataset->shards[shard].memory = samples;
    dataset->shards[shard].from = first;
    dataset->shards[shard].to = first + count;
}

void kolo_dataset_get_extent(const kolo_dataset *dataset, int shard, kolo_dataset_extent *extent)
{
    const open_shard *s = &dataset->shards[shard];
    *extent =
        (kolo_dataset_extent){s->fd, s->places.data, offset_in(dataset, s, s->count), s->first, s->count};
}

uint64_t kolo_dataset_offset(const kolo_dataset *dataset, int64_t sample)
{
    const open_shard *shard = shard_of(dataset, sample);
    return offset_in(dataset, shard, sample - shard->first);
}

int64_t kolo_dataset_run(const kolo_dataset *dataset, int64_t first, int64_t count)
{
    const open_shard *shard = shard_of(dataset, first);
    const int64_t left = shard->first + shard->count - first;
    return count < left ? count : left;
}

int kolo_dataset_read_run(const kolo_dataset *dataset, int64_t first, int64_t count, void *data)
{
    const open_shard *shard = shard_of(dataset, first);
    const uint64_t at = offset_in(dataset, shard, first - shard->first);
    const size_t bytes = (size_t)(offset_in(dataset, shard, first - shard->first + count) - at);
    const uint8_t *there = kolo_dataset_memory(dataset, first);
    if (!there || first + count > shard->to)
        return kolo_file_pread(shard->fd, shard->path, data, bytes, shard->places.data + at);
    memcpy(data, there, bytes);
    return 0;
}

int kolo_dataset_check_bytes(const kolo_dataset *dataset, int64_t sample, const void *data)
{
    const uint32_t crc = kolo_crc32c(0, data, kolo_dataset_bytes(dataset, sample)),
                   stored = dataset->crcs[sample];
    if (crc == stored) return 0;
    return kolo_fail(KOLO_EINPUT,
                     "its bytes have crc32c %08x, stored is %08x: they were changed since they were packed",
                     crc, stored);
}

/* After the first time the next ones are spread, so that no epoch compares all. One that differs stays
 * due. */
static int check_sample(const kolo_dataset *d, int64_t sample, const void *data)
{
    const uint8_t reads = atomic_load_explicit(&d->reads[sample], memory_order_relaxed);
    uint8_t next = (uint8_t)(reads + 1);
    if (reads == 0 || reads == KOLO_DATASET_CHECK_EVERY) {
        KOLO_TRY(kolo_dataset_check_bytes(d, sample, data));
        next = (uint8_t)(1 + (reads == 0 ? sample % KOLO_DATASET_CHECK_EVERY : 0));
    }
    atomic_store_explicit(&d->reads[sample], next, memory_order_relaxed);
    return 0;
}

int kolo_dataset_check_run(const kolo_dataset *dataset, int64_t first, int64_t count, const void *data,
                           int64_t *failed)
{
    const uint8_t *at = data;
    if (kolo_dataset_memory(dataset, first)) return 0;
    for (*failed = first; *failed < first + count; at += kolo_dataset_bytes(dataset, *failed), ++*failed)
        KOLO_TRY(check_sample(dataset, *failed, at));
    return 0;
}

int kolo_dataset_source(const kolo_dataset *dataset, int64_t sample, char *text, size_t size)
{
    if (size == 0) return 0;
    text[0] = 0;
    if (sample < 0 || sample >= dataset->info.count)
        return kolo_fail(KOLO_EINTERNAL, "sample %lld of a split of %lld", (long long)sample,
                         (long long)dataset->info.count);
    const open_shard *shard = shard_of(dataset, sample);
    uint64_t span[2];
    KOLO_TRY(kolo_file_pread(shard->fd, shard->path, span, sizeof span,
                             shard->places.source_offset + 8 * (uint64_t)(sample - shard->first)));
    if (span[1] < span[0] || span[1] - span[0] > 65536)
        return kolo_fail(KOLO_EINPUT, "%s: /source_offset is damaged", shard->path);
    size_t length = span[1] - span[0];
    if (length > size - 1) length = size - 1;
    KOLO_TRY(kolo_file_pread(shard->fd, shard->path, text, length, shard->places.source + span[0]));
    text[length] = 0;
    return 0;
}
