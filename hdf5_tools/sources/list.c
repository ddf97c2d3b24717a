/* The list of a source as a file, OUT/.pack/list: made by rank 0, mapped by all others, so that ranks of
 * one node share one copy of it. Host byte order; a list does not outlive its packing. Text (root, names)
 * first, then the arrays. */
#include <fcntl.h>
#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/temp_file.h"
#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "sources/source.h"

#define MAGIC 0x31305453494C4Bull /* "KLIST01" */
#define ARRAYS 10

typedef struct header {
    uint64_t magic, text_bytes, file_bytes;
    int64_t count, boxes, tags, pairs, path_bytes, other_boxes;
    int32_t classes, pair_sets, archives, box_form, channels, height, width, unused;
} header;

typedef struct part {
    void *array; /* address of the source's pointer */
    uint64_t bytes;
} part;

static void parts_of(source *s, uint64_t path_bytes, part parts[ARRAYS])
{
    const uint64_t n = (uint64_t)s->count;
    const part list[ARRAYS] = {{&s->labels, sizeof *s->labels * n},
                               {&s->path_offsets, sizeof *s->path_offsets * (n + 1)},
                               {&s->paths, path_bytes},
                               {&s->places, sizeof *s->places * n},
                               {&s->ids, sizeof *s->ids * n},
                               {&s->box, sizeof *s->box * (uint64_t)s->boxes},
                               {&s->box_offsets, sizeof *s->box_offsets * (n + 1)},
                               {&s->tag, sizeof *s->tag * (uint64_t)s->tags},
                               {&s->tag_offsets, sizeof *s->tag_offsets * (n + 1)},
                               {&s->pair, sizeof *s->pair * (uint64_t)s->pairs}};
    memcpy(parts, list, sizeof list);
}

static const void *pointer_at(const part *p)
{
    void *pointer;
    memcpy(&pointer, p->array, sizeof pointer);
    return pointer;
}

static uint64_t padded(uint64_t bytes) { return (bytes + 63) & ~63ull; }

/* root, then every name, each ended by a zero. */
static char *make_text(const source *s, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    if (!out) return NULL;
    fprintf(out, "%s%c", s->root ? s->root : "", 0);
    for (int c = 0; c < s->classes; c++)
        fprintf(out, "%s%c%" PRId64 "%c", s->class_names[c], 0, s->class_ids[c], 0);
    for (int i = 0; i < s->pair_sets; i++) fprintf(out, "%s%c", s->pair_set_names[i], 0);
    for (int i = 0; i < s->archives; i++) fprintf(out, "%s%c", s->archive_paths[i], 0);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static uint64_t path_bytes_of(const source *s) { return s->count ? s->path_offsets[s->count] : 0; }

static header make_header(const source *s, size_t text_bytes)
{
    return (header){.magic = MAGIC,
                    .text_bytes = text_bytes,
                    .count = s->count,
                    .boxes = s->boxes,
                    .tags = s->tags,
                    .pairs = s->pairs,
                    .path_bytes = (int64_t)path_bytes_of(s),
                    .other_boxes = s->other_boxes,
                    .classes = s->classes,
                    .pair_sets = s->pair_sets,
                    .archives = s->archives,
                    .box_form = (int32_t)s->box_form,
                    .channels = s->channels,
                    .height = s->height,
                    .width = s->width};
}

int source_list_write(const source *s, const char *path)
{
    source copy = *s;
    part parts[ARRAYS];
    size_t text_bytes = 0;
    char *text = make_text(s, &text_bytes);
    if (!text) return kolo_fail(KOLO_ENOMEM, "out of memory for the list of images");
    header h = make_header(s, text_bytes);
    parts_of(&copy, path_bytes_of(s), parts);
    uint64_t at = padded(sizeof h + text_bytes);
    const int fd = kolo_file_open_plain(path, O_WRONLY | O_CREAT, 0666);
    int rc = fd < 0 ? fd : ftruncate(fd, 0) < 0 ? kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno)) : 0;
    if (rc == 0) rc = kolo_file_pwrite(fd, path, text, text_bytes, sizeof h);
    for (int i = 0; i < ARRAYS && rc == 0; i++) {
        if (parts[i].bytes) rc = kolo_file_pwrite(fd, path, pointer_at(&parts[i]), parts[i].bytes, at);
        at += padded(parts[i].bytes);
    }
    h.file_bytes = at;
    if (rc == 0 && ftruncate(fd, (off_t)at) != 0) rc = kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    if (rc == 0) rc = kolo_file_pwrite(fd, path, &h, sizeof h, 0); /* last: a list without it is none */
    if (fd >= 0) close(fd);
    free(text);
    return rc;
}

static const char *next_word(const char **at, const char *end)
{
    const char *word = *at, *zero = word < end ? memchr(word, 0, (size_t)(end - word)) : NULL;
    if (!zero) return "";
    *at = zero + 1;
    return word;
}

static int read_text(source *s, const header *h, const char *text)
{
    const char *at = text, *end = text + h->text_bytes;
    int archive;
    s->root = kolo_strdup(next_word(&at, end));
    if (!s->root) return KOLO_ENOMEM;
    if (!s->root[0]) {
        free(s->root);
        s->root = NULL;
    }
    for (int c = 0; c < h->classes; c++) {
        const char *name = next_word(&at, end);
        KOLO_TRY(source_add_class(s, name, strtoll(next_word(&at, end), NULL, 10)));
    }
    for (s->pair_sets = 0; s->pair_sets < h->pair_sets; s->pair_sets++)
        if (!(s->pair_set_names[s->pair_sets] = kolo_strdup(next_word(&at, end)))) return KOLO_ENOMEM;
    for (int i = 0; i < h->archives; i++) KOLO_TRY(source_add_archive(s, next_word(&at, end), &archive));
    return 0;
}

static int map_file(source *s, const char *path)
{
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        if (fd >= 0) close(fd);
        return kolo_fail(KOLO_EIO, "%s: %s", path, strerror(errno));
    }
    s->list_bytes = (size_t)info.st_size;
    void *list = s->list_bytes ? mmap(NULL, s->list_bytes, PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    close(fd);
    if (list == MAP_FAILED) return kolo_fail(KOLO_EIO, "%s: cannot map it: %s", path, strerror(errno));
    s->list = list;
    return 0;
}

int source_list_map(source *s, const char *path)
{
    part parts[ARRAYS];
    KOLO_TRY(map_file(s, path));
    const header *h = s->list;
    if (s->list_bytes < sizeof *h || h->magic != MAGIC || h->file_bytes != s->list_bytes)
        return kolo_fail(KOLO_EINTERNAL, "%s is damaged; start again with --force", path);
    s->count = h->count, s->boxes = h->boxes, s->tags = h->tags, s->pairs = h->pairs,
    s->other_boxes = h->other_boxes;
    s->box_form = (enum source_box_form)h->box_form;
    s->channels = h->channels, s->height = h->height, s->width = h->width;
    KOLO_TRY(read_text(s, h, (const char *)s->list + sizeof *h));
    parts_of(s, (uint64_t)h->path_bytes, parts);
    uint64_t at = padded(sizeof *h + h->text_bytes);
    for (int i = 0; i < ARRAYS; i++) {
        void *array = (char *)s->list + at;
        memcpy(parts[i].array, &array, sizeof array);
        at += padded(parts[i].bytes);
    }
    return at == s->list_bytes ? 0
                               : kolo_fail(KOLO_EINTERNAL, "%s is damaged; start again with --force", path);
}

/* 128 bits that mix every word; not for adversaries. */
void source_mix(uint64_t hash[2], const void *data, size_t bytes)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
        hash[0] = (hash[0] ^ word) * 0x9E3779B97F4A7C15ull;
        hash[0] ^= hash[0] >> 32;
        hash[1] = (hash[1] + word + 1) * 0xBF58476D1CE4E5B9ull;
        hash[1] ^= hash[1] >> 29;
    }
    hash[0] = (hash[0] ^ bytes) * 0x94D049BB133111EBull;
    hash[0] ^= hash[0] >> 31;
}

void source_list_mix(const source *s, uint64_t hash[2])
{
    source copy = *s;
    part parts[ARRAYS];
    const int64_t numbers[] = {s->count, s->boxes, s->tags, s->pairs, (int64_t)s->box_form};
    parts_of(&copy, path_bytes_of(s), parts);
    source_mix(hash, numbers, sizeof numbers);
    for (int i = 0; i < ARRAYS; i++) source_mix(hash, pointer_at(&parts[i]), parts[i].bytes);
    for (int c = 0; c < s->classes; c++) {
        source_mix(hash, s->class_names[c], strlen(s->class_names[c]) + 1);
        source_mix(hash, &s->class_ids[c], sizeof *s->class_ids);
    }
    for (int i = 0; i < s->pair_sets; i++)
        source_mix(hash, s->pair_set_names[i], strlen(s->pair_set_names[i]) + 1);
}
