#include "shards/input.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

/* A dataset of one dimension that every shard has, and how many elements it must have; -1: any number. */
static int read_array(const char *path, const char *name, enum kolo_table_type type, int64_t rows, void *to)
{
    kolo_shard_table t = {.name = name, .type = type, .rank = 1, .dim = {rows, 1}};
    void *data = NULL;
    const int rc = kolo_shard_read_table(path, &t, &data);
    if (rc < 0) return rc;
    if (rc == 0) return kolo_fail(KOLO_EINPUT, "%s: /%s is missing; pack this split again", path, name);
    memcpy(to, &data, sizeof data);
    return 0;
}

static int check_sources(const char *path, const uint64_t *offsets, int64_t count, int64_t bytes)
{
    bool rises = offsets[0] == 0 && offsets[count] == (uint64_t)bytes;
    for (int64_t i = 0; i < count; i++) rises &= offsets[i] <= offsets[i + 1];
    return rises ? 0
                 : kolo_fail(KOLO_EINPUT, "%s: /source_offset does not rise; pack this split again", path);
}

static int load_sizes(shards_part *p, const char *path, const kolo_shard_places *places)
{
    const size_t bytes = 4 * (size_t)p->header.count;
    p->sizes = kolo_alloc(bytes + 8);
    p->orig_sizes = kolo_alloc(bytes + 8);
    if (!p->sizes || !p->orig_sizes) return KOLO_ENOMEM;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    int rc = kolo_file_pread(fd, path, p->sizes, bytes, places->size);
    if (rc == 0) rc = kolo_file_pread(fd, path, p->orig_sizes, bytes, places->orig_size);
    close(fd);
    return rc;
}

static int load_part(shards_part *p, const char *path)
{
    kolo_shard_places places;
    KOLO_TRY(kolo_shard_inspect(path, &p->header, &places, &p->arrays));
    const int64_t n = p->header.count;
    KOLO_TRY(read_array(path, "id", KOLO_TABLE_I64, n, &p->ids));
    KOLO_TRY(read_array(path, "source_offset", KOLO_TABLE_U64, n + 1, &p->source_offsets));
    kolo_shard_table text = {.name = "source", .type = KOLO_TABLE_U8, .rank = 1, .dim = {-1, 1}};
    void *data = NULL;
    KOLO_TRY(kolo_shard_read_table(path, &text, &data));
    p->sources = data;
    KOLO_TRY(check_sources(path, p->source_offsets, n, text.dim[0]));
    return load_sizes(p, path, &places);
}

static int load_rejects(shards_input *in, const char *path)
{
    kolo_shard_table t = {.name = "provenance/rejects", .type = KOLO_TABLE_U8, .rank = 1, .dim = {-1, 1}};
    void *data = NULL;
    const int rc = kolo_shard_read_table(path, &t, &data);
    if (rc < 0) return rc;
    in->rejects = kolo_format("%.*s", rc ? (int)t.dim[0] : 0, rc ? (const char *)data : "");
    free(data);
    return in->rejects ? 0 : KOLO_ENOMEM;
}

int shards_input_load(shards_input *in, const kolo_dataset *d, int number)
{
    const kolo_dataset_info *info = kolo_dataset_get_info(d);
    const char *first = kolo_dataset_shard_path(d, 0);
    *in = (shards_input){.dataset = d};
    in->parts = kolo_alloc(sizeof *in->parts * (size_t)info->shards);
    in->class_ids = kolo_alloc(sizeof *in->class_ids * (size_t)info->classes + 8);
    if (!in->parts || !in->class_ids) return KOLO_ENOMEM;
    for (int s = 0; s < info->shards; s++) {
        in->parts[s].input = number;
        KOLO_TRY(load_part(&in->parts[s], kolo_dataset_shard_path(d, s)));
    }
    KOLO_TRY(kolo_shard_read_stats(first, &in->stats));
    KOLO_TRY(kolo_shard_read_class_ids(first, info->classes, in->class_ids));
    KOLO_TRY(kolo_shard_read_note(first, "options", in->packed, sizeof in->packed));
    return load_rejects(in, first);
}

void shards_input_free(shards_input *in)
{
    for (int s = 0; in->parts && s < kolo_dataset_get_info(in->dataset)->shards; s++) {
        shards_part *p = &in->parts[s];
        kolo_shard_arrays_free(&p->arrays);
        free(p->ids);
        free(p->sizes);
        free(p->orig_sizes);
        free(p->sources);
        free(p->source_offsets);
    }
    free(in->parts);
    free(in->class_ids);
    free(in->rejects);
    *in = (shards_input){0};
}
