/* The manifest of a split made anew from its shards. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/memory.h"
#include "data/shard/file.h"
#include "data/shard/manifest.h"
#include "kolo/error.h"
#include "shards/shards.h"

typedef struct rebuilding {
    const char *folder;
    bool force, json;
    kolo_folder_names names; /* all that is in the folder */
    kolo_manifest manifest;
    kolo_shard_header first; /* of the first shard that was found */
    bool *seen;              /* [shards] */
} rebuilding;

static int manifest_describe(rebuilding *r, const char *path, const kolo_shard_header *h)
{
    kolo_dataset_info *i = &r->manifest.info;
    kolo_shard_stats stats;
    KOLO_TRY(kolo_shard_read_stats(path, &stats));
    r->first = *h;
    *i = (kolo_dataset_info){.encoding = h->encoding,
                             .channels = h->channels,
                             .height = h->height,
                             .width = h->width,
                             .count = h->total,
                             .classes = h->classes,
                             .shards = h->shards};
    snprintf(i->name, sizeof i->name, "%s", h->dataset);
    snprintf(i->split, sizeof i->split, "%s", h->split);
    snprintf(i->task, sizeof i->task, "%s", h->task);
    snprintf(i->uuid, sizeof i->uuid, "%s", h->uuid);
    for (int c = 0; c < h->channels; c++) i->mean[c] = (float)stats.mean[c], i->std[c] = (float)stats.std[c];
    r->manifest.shards = kolo_alloc(sizeof *r->manifest.shards * (size_t)h->shards);
    r->seen = kolo_alloc((size_t)h->shards);
    return r->manifest.shards && r->seen ? 0 : KOLO_ENOMEM;
}

static int manifest_check(const rebuilding *r, const char *path, const kolo_shard_header *h)
{
    const kolo_shard_header *a = &r->first;
    if (!h->complete)
        return kolo_fail(KOLO_EINPUT, "%s is incomplete: packing did not finish; run kolo-pack --resume",
                         path);
    if (strcmp(h->uuid, a->uuid) != 0)
        return kolo_fail(KOLO_EINPUT,
                         "%s belongs to another packing than the shards before it (uuid %s and %s); one "
                         "folder is one split, move the others away",
                         path, h->uuid, a->uuid);
    if (h->shards != a->shards || h->total != a->total || h->encoding != a->encoding ||
        h->channels != a->channels || h->classes != a->classes || h->height != a->height ||
        h->width != a->width || strcmp(h->task, a->task) != 0)
        return kolo_fail(KOLO_EINPUT,
                         "%s contradicts the shards before it (counts or shape); pack this split again",
                         path);
    return r->seen[h->shard]
               ? kolo_fail(KOLO_EINPUT, "%s: shard %d is here twice; move one of them away", path, h->shard)
               : 0;
}

static int manifest_add(rebuilding *r, const char *file)
{
    kolo_shard_header h;
    kolo_shard_arrays a;
    char *path = kolo_format("%s/%s", r->folder, file);
    if (!path) return KOLO_ENOMEM;
    int rc = kolo_shard_inspect(path, &h, NULL, &a);
    if (rc == 0 && !r->seen) rc = manifest_describe(r, path, &h);
    if (rc == 0) rc = manifest_check(r, path, &h);
    if (rc == 0) {
        kolo_manifest_shard *e = &r->manifest.shards[h.shard];
        *e = (kolo_manifest_shard){
            .count = h.count, .first = h.first, .bytes = h.bytes, .metadata_crc = a.metadata_crc};
        const int n = snprintf(e->file, sizeof e->file, "%s", file);
        if (n >= (int)sizeof e->file)
            rc = kolo_fail(KOLO_EINPUT, "%s: the name is too long for a manifest", path);
        r->manifest.info.bytes += h.bytes;
        r->seen[h.shard] = true;
    }
    kolo_shard_arrays_free(&a);
    free(path);
    return rc;
}

/* All there, one behind the other. */
static int check_whole(const rebuilding *r)
{
    int64_t next = 0;
    if (!r->seen) return kolo_fail(KOLO_EINPUT, "%s holds no shard (*.h5)", r->folder);
    for (int s = 0; s < r->first.shards; s++) {
        if (!r->seen[s])
            return kolo_fail(KOLO_EINPUT,
                             "%s: shard %d of %d is missing; copy it here, or pack this split again",
                             r->folder, s, r->first.shards);
        if (r->manifest.shards[s].first != next)
            return kolo_fail(KOLO_EINPUT,
                             "%s/%s begins at sample %" PRId64 ", %" PRId64
                             " is expected; pack this split again",
                             r->folder, r->manifest.shards[s].file, r->manifest.shards[s].first, next);
        next += r->manifest.shards[s].count;
    }
    return next == r->first.total
               ? 0
               : kolo_fail(KOLO_EINPUT, "%s: the shards hold %" PRId64 " samples, their headers say %" PRId64,
                           r->folder, next, r->first.total);
}

/* A manifest under another name would make two of them. */
static int check_others(const rebuilding *r)
{
    for (int64_t i = 0; i < r->names.count; i++) {
        const char *name = r->names.list[i];
        if (!shards_ends_with(name, ".index")) continue;
        char *own = kolo_format("%s-%s.index", r->first.dataset, r->first.split);
        if (!own) return KOLO_ENOMEM;
        const bool same = strcmp(own, name) == 0;
        free(own);
        if (!same)
            return kolo_fail(KOLO_EINPUT,
                             "%s/%s is the manifest of another split; one folder is one split, move it away",
                             r->folder, name);
        if (!r->force)
            return kolo_fail(KOLO_ECONFIG, "%s/%s is there already; --force replaces it", r->folder, name);
    }
    return 0;
}

static int rebuild(rebuilding *r)
{
    KOLO_TRY(kolo_folder_list(r->folder, &r->names));
    for (int64_t i = 0; i < r->names.count; i++)
        if (shards_ends_with(r->names.list[i], ".h5")) KOLO_TRY(manifest_add(r, r->names.list[i]));
    KOLO_TRY(check_whole(r));
    KOLO_TRY(check_others(r));
    KOLO_TRY(kolo_manifest_write(r->folder, &r->manifest));
    const kolo_dataset_info *i = &r->manifest.info;
    if (r->json)
        printf("{\"name\":\"%s\",\"split\":\"%s\",\"samples\":%" PRId64 ",\"shards\":%d,\"bytes\":%" PRIu64
               ",\"uuid\":\"%s\"}\n",
               i->name, i->split, i->count, i->shards, i->bytes, i->uuid);
    else
        printf("%s/%s-%s.index: %" PRId64 " samples in %d shard%s, %.1f MB\n", r->folder, i->name, i->split,
               i->count, i->shards, i->shards == 1 ? "" : "s", (double)i->bytes / 1e6);
    return 0;
}

int shards_manifest(int argc, char **argv)
{
    rebuilding r = {0};
    const shards_option options[] = {
        {"--force", NULL, "replace the manifest that is there", SHARDS_FLAG, &r.force, 0, 0},
        {"--json", NULL, "the result as a line of JSON", SHARDS_FLAG, &r.json, 0, 0}};
    const shards_line line = {
        "manifest DIR",
        "Makes NAME-SPLIT.index anew, where it is lost or damaged, from the shards in DIR: all "
        "of one packing, none missing,\n"
        "all complete.",
        options,
        (int)(sizeof options / sizeof *options),
        1,
        1,
        &r.folder,
        NULL};
    int rc = shards_read(&line, argc, argv);
    if (rc) return rc;
    rc = rebuild(&r);
    kolo_folder_free(&r.names);
    kolo_manifest_free(&r.manifest);
    free(r.seen);
    return rc;
}
