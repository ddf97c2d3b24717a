#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "pack/pack.h"

#define SHARD_BYTES (2ull << 30)

static uint64_t sample_bytes(const packing *p, int64_t slot)
{
    if (p->options.encoding != KOLO_ENCODING_RAW) return p->brief[slot].bytes;
    return (uint64_t)p->height * (uint64_t)p->width * (uint64_t)p->channels;
}

/* What /classes/count says: samples by label; where none has a label, boxes by class, or else tags. */
static void count_classes(packing *p)
{
    const source *s = &p->source;
    for (int64_t i = 0; i < p->count; i++) {
        const int32_t label = s->labels[p->order[p->slots[i]]];
        if (label < 0) continue;
        p->class_counts[label]++;
        p->labelled = true;
    }
    for (int64_t i = 0; i < p->count && !p->labelled; i++) {
        const int64_t from = p->order[p->slots[i]];
        const bool boxes = s->box_form != SOURCE_BOX_NONE;
        const uint64_t *rows = boxes ? s->box_offsets : s->tag_offsets;
        for (uint64_t k = rows[from]; k < rows[from + 1]; k++)
            p->class_counts[boxes ? s->box[k].label : s->tag[k].tag]++;
    }
}

static void warn_of_empty(const packing *p)
{
    enum { NAMED = 3 };
    char names[512] = "";
    int empty = 0;
    for (int c = 0; c < p->source.classes; c++) {
        const size_t used = strlen(names);
        if (p->class_counts[c] == 0 && empty++ < NAMED)
            snprintf(names + used, sizeof names - used, "%s%.100s", used ? ", " : "",
                     p->source.class_names[c]);
    }
    if (empty == 1) kolo_warn("class %s has no images in this split", names);
    else if (empty > 1)
        kolo_warn("%d of %d classes have no images in this split: %s%s", empty, p->source.classes, names,
                  empty > NAMED ? ", ..." : "");
}

/* Slots without the bad ones, in order. */
static int choose_samples(packing *p)
{
    const source *s = &p->source;
    p->slots = kolo_alloc(sizeof *p->slots * (size_t)p->slot_count + 8);
    p->class_counts = kolo_alloc(sizeof *p->class_counts * (size_t)s->classes + 8);
    if (!p->slots || !p->class_counts) return KOLO_ENOMEM;
    for (int64_t slot = 0; slot < p->slot_count; slot++) {
        const int64_t from = p->order[slot];
        if (p->brief[slot].status == PACK_BAD) {
            p->bad++;
            continue;
        }
        p->slots[p->count++] = slot;
        p->bytes += sample_bytes(p, slot);
        p->boxes += (int64_t)(s->box_offsets[from + 1] - s->box_offsets[from]);
        p->tags += (int64_t)(s->tag_offsets[from + 1] - s->tag_offsets[from]);
    }
    if (p->options.max_bad >= 0 && p->bad > p->options.max_bad)
        return kolo_fail(KOLO_EINPUT, "%" PRId64 " bad images, more than --max-bad %" PRId64 " allows",
                         p->bad, p->options.max_bad);
    if (p->count == 0)
        return kolo_fail(KOLO_EINPUT, "none of the %" PRId64 " images can be read", p->slot_count);
    count_classes(p);
    if (p->launch.rank == 0) warn_of_empty(p);
    return 0;
}

/* Pairs name samples of the source; in the shards they name samples of the split. A pair of which one was
 * left out or rejected is dropped. */
static int place_pairs(packing *p)
{
    const source *s = &p->source;
    if (s->pairs == 0) return 0;
    if (p->count > INT32_MAX) return kolo_fail(KOLO_ECONFIG, "pairs need a split of less than 2^31 samples");
    int64_t *position = kolo_alloc(sizeof *position * (size_t)s->count);
    p->pair = kolo_alloc(sizeof *p->pair * (size_t)s->pairs);
    if (!position || !p->pair) {
        free(position);
        return KOLO_ENOMEM;
    }
    for (int64_t i = 0; i < s->count; i++) position[i] = -1;
    for (int64_t i = 0; i < p->count; i++) position[p->order[p->slots[i]]] = i;
    for (int64_t i = 0; i < s->pairs; i++) {
        source_pair pair = s->pair[i];
        pair.a = position[pair.a], pair.b = position[pair.b];
        if (pair.a < 0 || pair.b < 0) p->dropped_pairs++;
        else p->pair[p->pairs++] = pair;
    }
    free(position);
    return 0;
}

static int lay_boxes(const packing *p, pack_shard *s)
{
    s->box_offsets = kolo_alloc(sizeof *s->box_offsets * (size_t)(s->count + 1));
    if (!s->box_offsets) return KOLO_ENOMEM;
    for (int64_t i = 0; i < s->count; i++) {
        const uint64_t *rows = &p->source.box_offsets[p->order[p->slots[s->first + i]]];
        s->box_offsets[i + 1] = s->box_offsets[i] + rows[1] - rows[0];
    }
    return 0;
}

int pack_shard_count(const pack_options *o, uint64_t bytes)
{
    const int shards = o->shards ? o->shards : (int)((bytes + SHARD_BYTES - 1) / SHARD_BYTES);
    return shards < 1 ? 1 : shards;
}

int pack_check_shards(int shards, int64_t samples)
{
    if (shards <= samples) return 0;
    return kolo_fail(KOLO_ECONFIG, "--shards %d for %" PRId64 " samples; use fewer", shards, samples);
}

static int cut_shards(packing *p)
{
    const pack_options *o = &p->options;
    p->shards = pack_shard_count(o, p->bytes);
    KOLO_TRY(pack_check_shards(p->shards, p->count)); /* images that cannot be read are left out by now */
    p->shard = kolo_alloc(sizeof *p->shard * (size_t)p->shards);
    if (!p->shard) return KOLO_ENOMEM;
    for (int k = 0; k < p->shards; k++) {
        pack_shard *s = &p->shard[k];
        s->fd = -1;
        s->first = p->count * k / p->shards;
        s->count = p->count * (k + 1) / p->shards - s->first;
        s->file = kolo_format("%s-%s-%05d-of-%05d.h5", o->name, o->out_split, k, p->shards);
        s->path = s->file ? kolo_format("%s/%s", p->work, s->file) : NULL;
        s->offsets = kolo_alloc(sizeof *s->offsets * (size_t)(s->count + 1));
        if (!s->path || !s->offsets) return KOLO_ENOMEM;
        for (int64_t i = 0; i < s->count; i++)
            s->offsets[i + 1] = s->offsets[i] + sample_bytes(p, p->slots[s->first + i]);
        if (p->source.box_form != SOURCE_BOX_NONE) KOLO_TRY(lay_boxes(p, s));
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

static int check_free_space(const packing *p)
{
    const int64_t free_bytes = kolo_file_free_bytes(p->options.out);
    const int64_t tables = p->count * (int64_t)(64 + (p->boxes ? 24 : 0)) + p->boxes * 73 + p->tags * 8;
    const int64_t need = (int64_t)p->bytes + tables + p->shards * (int64_t)(2 << 20) - used_bytes(p);
    if (free_bytes < 0) return (int)free_bytes;
    if (need <= free_bytes) return 0;
    return kolo_fail(
        KOLO_EIO,
        "%s: %.1f MB are needed, %.1f MB are free; choose another --out, a smaller --size or --encoding jpeg",
        p->options.out, (double)need / 1e6, (double)free_bytes / 1e6);
}

static bool shard_is_there(const packing *p, int k)
{
    kolo_shard_header h;
    const pack_shard *s = &p->shard[k];
    if (!p->resumed || !kolo_file_exists(s->path) || kolo_shard_inspect(s->path, &h, NULL, NULL) < 0)
        return false;
    return h.count == s->count && h.first == s->first && h.bytes == s->offsets[s->count] &&
           h.shards == p->shards && h.channels == p->channels;
}

/* Asks the file system for all of a shard's room at once: a full disk or a quota is reported now, not after
 * hours. Where it cannot promise room the writers will find out. */
static int reserve(const pack_shard *s)
{
    const int64_t bytes = kolo_file_size(s->path);
    const int fd = open(s->path, O_WRONLY | O_CLOEXEC);
    if (bytes < 0 || fd < 0) {
        if (fd >= 0) close(fd);
        return kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    }
    const bool refused =
        fallocate(fd, 0, 0, bytes) != 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG);
    const int cause = errno;
    close(fd);
    if (!refused) return 0;
    return kolo_fail(
        KOLO_EIO,
        "%s: the file system refuses %.1f MB: %s; free space or choose another --out, a smaller --size or "
        "--encoding jpeg, then go on with --resume",
        s->path, (double)bytes / 1e6, strerror(cause));
}

/* Every rank makes its share. What this run made is removed again when there is no room for all. */
static int create_mine(packing *p)
{
    int rc = 0, k = p->launch.rank;
    for (; k < p->shards && rc == 0; k += p->launch.size) {
        p->shard[k].fresh = !shard_is_there(p, k);
        if (!p->shard[k].fresh) continue;
        rc = pack_create_shard(p, k);
        if (rc == 0) rc = reserve(&p->shard[k]);
    }
    return rc;
}

static void remove_fresh(packing *p)
{
    for (int k = p->launch.rank; k < p->shards; k += p->launch.size)
        if (p->shard[k].fresh) unlink(p->shard[k].path);
}

/* The shards that this rank writes to; rank 0, which completes them, opens all. */
static int open_mine(packing *p)
{
    const int64_t first = pack_share(p->count, &p->launch, 0), end = pack_share(p->count, &p->launch, 1);
    for (int k = 0; k < p->shards; k++) {
        pack_shard *s = &p->shard[k];
        if (p->launch.rank != 0 && (s->first >= end || s->first + s->count <= first)) continue;
        KOLO_TRY(kolo_shard_inspect(s->path, NULL, &s->places, NULL));
        KOLO_TRY(pack_place_tables(s));
        s->fd = open(s->path, O_RDWR | O_CLOEXEC);
        if (s->fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", s->path, strerror(errno));
    }
    return 0;
}

/* ---- rejects: wrong annotations, then images: one file a rank and run, brought into source order ----- */

typedef struct reject {
    int64_t number;
    char *line;
} reject;

static int layout_compare(const void *a, const void *b)
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
        rc = path ? read_rejects(path, &list, &count, &capacity) : KOLO_ENOMEM;
        free(path);
    }
    if (dir) closedir(dir);
    if (count) qsort(list, (size_t)count, sizeof *list, layout_compare);
    size_t length = 0;
    FILE *out = open_memstream(&p->rejects, &length);
    if (!out) rc = kolo_fail(KOLO_ENOMEM, "out of memory for the list of rejects");
    if (out && p->source.faults.lines) fputs(p->source.faults.lines, out);
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
    if (rc == 0) rc = place_pairs(p);
    if (rc == 0) rc = cut_shards(p);
    if (rc == 0 && p->launch.rank == 0) rc = check_free_space(p);
    if (rc == 0 && p->launch.rank == 0) rc = gather_rejects(p);
    KOLO_TRY(pack_agree(p, rc));
    rc = pack_agree(p, create_mine(p));
    if (rc < 0) remove_fresh(p);
    KOLO_TRY(rc);
    return pack_agree(p, open_mine(p));
}
