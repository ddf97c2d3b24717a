#include "data/shard/manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

static const char *const encodings[] = {"raw", "jpeg", "mixed"};

static void print_info(FILE *out, const kolo_dataset_info *i)
{
    fprintf(out, "name=%s split=%s task=%s encoding=%s color=%s classes=%d height=%d width=%d mean=", i->name,
            i->split, i->task[0] ? i->task : "classification", encodings[i->encoding],
            i->channels == 1 ? "gray" : "rgb", i->classes, i->height, i->width);
    for (int c = 0; c < i->channels; c++) fprintf(out, "%s%.9g", c ? "," : "", (double)i->mean[c]);
    fprintf(out, " std=");
    for (int c = 0; c < i->channels; c++) fprintf(out, "%s%.9g", c ? "," : "", (double)i->std[c]);
    fprintf(out, "\n");
}

static char *print_body(const kolo_manifest *m)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return NULL;
    print_info(out, &m->info);
    for (int s = 0; s < m->info.shards; s++) {
        const kolo_manifest_shard *e = &m->shards[s];
        fprintf(out, "%s %" PRId64 " %" PRIu64 " %" PRId64 " %08x ok\n", e->file, e->count, e->bytes,
                e->first, e->metadata_crc);
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

int kolo_manifest_write(const char *folder, const kolo_manifest *m)
{
    const kolo_dataset_info *i = &m->info;
    char *body = print_body(m), *text = NULL, *path = NULL;
    int rc = KOLO_ENOMEM;
    if (!body) return kolo_fail(KOLO_ENOMEM, "out of memory for the manifest of %s", folder);
    text = kolo_format("kolo 1 uuid=%s samples=%" PRId64 " bytes=%" PRIu64 " shards=%d crc32c=%08x\n%s",
                       i->uuid, i->count, i->bytes, i->shards, kolo_crc32c(0, body, strlen(body)), body);
    path = kolo_format("%s/%s-%s.index", folder, i->name, i->split);
    if (text && path) rc = kolo_file_write_atomic(path, text, strlen(text));
    free(path);
    free(text);
    free(body);
    return rc;
}

static int manifest_find(const char *folder, char **path)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int found = 0;
    *path = NULL;
    if (!dir)
        return kolo_fail(errno == ENOENT || errno == ENOTDIR ? KOLO_EINPUT : KOLO_EIO,
                         "%s: %s; give the folder that kolo-pack wrote (--out)", folder, strerror(errno));
    while ((entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);
        if (n < 7 || entry->d_name[0] == '.' || strcmp(entry->d_name + n - 6, ".index") != 0) continue;
        if (found++) continue;
        *path = kolo_format("%s/%s", folder, entry->d_name);
        if (!*path) break;
    }
    closedir(dir);
    if (found == 1) return *path ? 0 : KOLO_ENOMEM;
    free(*path);
    *path = NULL;
    if (found > 1)
        return kolo_fail(KOLO_EINPUT,
                         "%s holds %d manifests (*.index); one folder is one split, move the others away",
                         folder, found);
    return kolo_manifest_missing(folder);
}

static int fail_manifest(const char *path, int line, const char *what)
{
    const int folder = (int)(strrchr(path, '/') - path);
    return kolo_fail(KOLO_EINPUT,
                     "%s:%d: %s; `kolo-shards manifest %.*s --force` makes it anew from the shards", path,
                     line, what, folder, path);
}

/* "key=value" of a line of space separated pairs; copies the value. */
static int value_of(const char *line, const char *key, char *value, size_t size)
{
    const size_t n = strlen(key);
    for (const char *at = line; (at = strstr(at, key)); at += n) {
        if ((at != line && at[-1] != ' ') || at[n] != '=') continue;
        size_t length = strcspn(at + n + 1, " \n");
        if (length >= size) return -1;
        memcpy(value, at + n + 1, length);
        value[length] = 0;
        for (size_t i = 0; i < length; i++)
            if (iscntrl((unsigned char)value[i])) return -1;
        return 0;
    }
    return -1;
}

static int number_of(const char *line, const char *key, uint64_t limit, uint64_t *number)
{
    char text[32], *end;
    if (value_of(line, key, text, sizeof text) < 0 || text[0] < '0' || text[0] > '9') return -1;
    errno = 0;
    *number = strtoull(text, &end, 10);
    return *end || errno || *number > limit ? -1 : 0;
}

static int floats_of(const char *line, const char *key, float *values, int n)
{
    char text[160], *at = text, *end;
    if (value_of(line, key, text, sizeof text) < 0) return -1;
    for (int i = 0; i < n; i++, at = end + 1) {
        values[i] = strtof(at, &end);
        if (end == at || *end != (i + 1 < n ? ',' : 0) || !isfinite(values[i])) return -1;
    }
    return 0;
}

static int parse_head(const char *line, kolo_dataset_info *i, uint32_t *crc)
{
    uint64_t count, shards;
    char text[16];
    if (value_of(line, "uuid", i->uuid, sizeof i->uuid) < 0 ||
        number_of(line, "samples", 1ull << 40, &count) < 0 ||
        number_of(line, "bytes", UINT64_MAX, &i->bytes) < 0 ||
        number_of(line, "shards", 1 << 20, &shards) < 0 || shards < 1 ||
        value_of(line, "crc32c", text, sizeof text) < 0)
        return -1;
    i->count = (int64_t)count;
    i->shards = (int)shards;
    *crc = (uint32_t)strtoul(text, NULL, 16);
    return 0;
}

static int parse_info(const char *line, kolo_dataset_info *i)
{
    char encoding[8], color[8];
    uint64_t classes, height, width;
    if (value_of(line, "name", i->name, sizeof i->name) < 0 ||
        value_of(line, "split", i->split, sizeof i->split) < 0 ||
        value_of(line, "encoding", encoding, sizeof encoding) < 0 ||
        value_of(line, "color", color, sizeof color) < 0 ||
        number_of(line, "classes", 1 << 24, &classes) < 0 || number_of(line, "height", 65500, &height) < 0 ||
        number_of(line, "width", 65500, &width) < 0)
        return -1;
    int known = 0;
    while (known < 3 && strcmp(encoding, encodings[known]) != 0) known++;
    if (known == 3) return -1;
    i->encoding = (enum kolo_encoding)known;
    if (value_of(line, "task", i->task, sizeof i->task) < 0) /* 1.0 */
        snprintf(i->task, sizeof i->task, "classification");
    i->channels = strcmp(color, "gray") == 0 ? 1 : 3;
    i->classes = (int)classes;
    i->height = (int)height;
    i->width = (int)width;
    return floats_of(line, "mean", i->mean, i->channels) < 0 ||
                   floats_of(line, "std", i->std, i->channels) < 0
               ? -1
               : 0;
}

static int parse_shards(const char *path, char *line, kolo_manifest *m)
{
    int64_t next = 0;
    uint64_t bytes = 0;
    for (int s = 0; s < m->info.shards; s++) {
        kolo_manifest_shard *e = &m->shards[s];
        char state[8];
        if (sscanf(line, "%159s %" SCNd64 " %" SCNu64 " %" SCNd64 " %x %7s", e->file, &e->count, &e->bytes,
                   &e->first, &e->metadata_crc, state) != 6)
            return fail_manifest(path, s + 3, "not a shard line");
        if (strchr(e->file, '/') || e->file[0] == '.')
            return fail_manifest(path, s + 3, "shards must lie beside the manifest");
        if (strcmp(state, "ok") != 0 || e->first != next || e->count < 0 || e->count > m->info.count - next)
            return fail_manifest(path, s + 3, "shards are not in order");
        next += e->count;
        bytes += e->bytes;
        line = strchr(line, '\n');
        if (!line) return fail_manifest(path, s + 3, "the line is cut off");
        line++;
    }
    return next == m->info.count && bytes == m->info.bytes
               ? 0
               : fail_manifest(path, 1, "samples or bytes do not add up");
}

static int parse(const char *path, char *text, kolo_manifest *m)
{
    int version = 0;
    uint32_t crc;
    if (sscanf(text, "kolo %d ", &version) != 1)
        return fail_manifest(path, 1, "no manifest of kolo-pack (`kolo 1 ...`)");
    if (version != 1)
        return kolo_fail(KOLO_EINPUT, "%s: manifest version %d, this program reads 1; install a newer kolo",
                         path, version);
    char *body = strchr(text, '\n');
    if (!body) return fail_manifest(path, 1, "cut off");
    *body++ = 0;
    if (parse_head(text, &m->info, &crc) < 0) return fail_manifest(path, 1, "the header line is damaged");
    if (kolo_crc32c(0, body, strlen(body)) != crc)
        return fail_manifest(path, 1, "checksum differs: the manifest was edited or damaged");
    char *lines = strchr(body, '\n');
    if (!lines) return fail_manifest(path, 2, "cut off");
    *lines++ = 0;
    if (parse_info(body, &m->info) < 0) return fail_manifest(path, 2, "the description line is damaged");
    m->shards = kolo_alloc(sizeof *m->shards * (size_t)m->info.shards);
    if (!m->shards) return KOLO_ENOMEM;
    return parse_shards(path, lines, m);
}

int kolo_manifest_read(const char *folder, kolo_manifest *manifest)
{
    char *path = NULL, *text = NULL;
    *manifest = (kolo_manifest){0};
    int rc = manifest_find(folder, &path);
    if (rc == 0) rc = kolo_file_read(path, &text, NULL);
    if (rc == 0) rc = parse(path, text, manifest);
    if (rc < 0) kolo_manifest_free(manifest);
    free(text);
    free(path);
    return rc;
}

void kolo_manifest_free(kolo_manifest *manifest)
{
    free(manifest->shards);
    *manifest = (kolo_manifest){0};
}
