#include "sources/source.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "kolo/error.h"

#define SOURCE(name) extern const source_kind source_##name;
#include "sources/sources.def"
#undef SOURCE
#define SOURCE(name) &source_##name,
const source_kind *const source_kinds[] = {
#include "sources/sources.def"
};
#undef SOURCE
const int source_kind_count = sizeof source_kinds / sizeof *source_kinds;

/* of source.capacity */
enum { LABELS, PATHS, OFFSETS, PLACES, IDS, BOXES, TAGS, PAIRS, CLASSES, CLASS_IDS, SEEN, ARCHIVES };

const source_kind *source_find(const char *name)
{
    for (int i = 0; i < source_kind_count; i++)
        if (strcmp(source_kinds[i]->name, name) == 0) return source_kinds[i];
    return NULL;
}

void source_names(char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < source_kind_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s",
                                 i == 0                       ? ""
                                 : i + 1 == source_kind_count ? " and "
                                                              : ", ",
                                 source_kinds[i]->name);
}

/* ---- classes ------------------------------------------------------------------------------------------- */

/* Where `name` is in the hash table, or the free place where it belongs. */
static int64_t class_place(const source *s, const char *name)
{
    uint64_t hash[2] = {0, 0};
    source_mix(hash, name, strlen(name));
    int64_t at = (int64_t)(hash[0] & (uint64_t)(s->class_room - 1));
    while (s->class_table[at] && strcmp(s->class_names[s->class_table[at] - 1], name) != 0)
        at = (at + 1) & (s->class_room - 1);
    return at;
}

static int grow_class_table(source *s)
{
    if (2 * (s->classes + 1) <= s->class_room) return 0;
    const int64_t room = s->class_room ? 4 * s->class_room : 64;
    free(s->class_table);
    s->class_table = kolo_alloc(sizeof *s->class_table * (size_t)room);
    s->class_room = s->class_table ? room : 0;
    if (!s->class_table) return KOLO_ENOMEM;
    for (int c = 0; c < s->classes; c++) {
        const int64_t at = class_place(s, s->class_names[c]);
        if (!s->class_table[at]) s->class_table[at] = c + 1;
    }
    return 0;
}

/* Names are stored as UTF-8 text; other readers of the shards rely on it. */
static bool is_utf8(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        const int more = *p < 0x80 ? 0 : *p < 0xC2 ? -1 : *p < 0xE0 ? 1 : *p < 0xF0 ? 2 : *p < 0xF5 ? 3 : -1;
        if (more < 0) return false;
        if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
            (p[0] == 0xF4 && p[1] > 0x8F))
            return false;
        for (int i = 1; i <= more; i++)
            if ((p[i] & 0xC0) != 0x80) return false;
        p += more + 1;
    }
    return true;
}

int source_add_class(source *s, const char *name, int64_t id)
{
    const int n = s->classes;
    KOLO_TRY(kolo_grow(&s->class_names, &s->capacity[CLASSES], n, sizeof *s->class_names));
    KOLO_TRY(kolo_grow(&s->class_ids, &s->capacity[CLASS_IDS], n, sizeof *s->class_ids));
    KOLO_TRY(kolo_grow(&s->class_seen, &s->capacity[SEEN], n, sizeof *s->class_seen));
    if (!is_utf8(name))
        return kolo_fail(KOLO_EINPUT, "class %d: its name is not UTF-8 (`%s`); rename it", n, name);
    for (const char *at = name; *at; at++)
        if (iscntrl((unsigned char)*at))
            return kolo_fail(
                KOLO_EINPUT,
                "the name of class %d (`%s`) holds a line break or another control character; rename it", n,
                name);
    s->class_names[n] = kolo_strdup(name);
    if (!s->class_names[n]) return KOLO_ENOMEM;
    s->class_ids[n] = id;
    s->class_seen[n] = false;
    KOLO_TRY(grow_class_table(s));
    const int64_t at = class_place(s, name);
    if (!s->class_table[at]) s->class_table[at] = n + 1;
    s->classes++;
    return 0;
}

int source_find_class(source *s, const char *name, int64_t id, int32_t *label)
{
    int at = s->class_room ? s->class_table[class_place(s, name)] - 1 : -1;
    *label = at;
    if (at < 0 && s->class_rule == SOURCE_CLASSES_CHOSEN) {
        *label = SOURCE_LEFT_OUT;
        return 0;
    }
    if (at < 0 && s->class_rule == SOURCE_CLASSES_FIXED)
        return kolo_fail(KOLO_EINPUT, "the training split (--stats-from) has no class `%s`", name);
    if (at < 0) {
        KOLO_TRY(source_add_class(s, name, id < 0 ? s->classes : id));
        *label = at = s->classes - 1;
    } else if (!s->class_seen[at] && id >= 0) {
        s->class_ids[at] = id;
    }
    s->class_seen[at] = true;
    return 0;
}

/* ---- samples and targets ------------------------------------------------------------------------------- */

bool source_path_leaves(const char *path)
{
    for (const char *at = path; *at; at += *at == '/') {
        const size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.') return true;
        at += n;
    }
    return path[0] == '/';
}

int source_add(source *s, int32_t label, const char *path, int64_t file_bytes)
{
    const size_t length = strlen(path);
    const uint64_t end = s->count ? s->path_offsets[s->count] : 0;
    if (strchr(path, '\n'))
        return kolo_fail(KOLO_EINPUT, "sample %lld: its path holds a line break; rename it",
                         (long long)s->count);
    KOLO_TRY(kolo_grow(&s->labels, &s->capacity[LABELS], s->count, sizeof *s->labels));
    KOLO_TRY(kolo_grow(&s->ids, &s->capacity[IDS], s->count, sizeof *s->ids));
    KOLO_TRY(kolo_grow(&s->places, &s->capacity[PLACES], s->count, sizeof *s->places));
    KOLO_TRY(kolo_grow(&s->path_offsets, &s->capacity[OFFSETS], s->count + 1, sizeof *s->path_offsets));
    KOLO_TRY(kolo_grow(&s->paths, &s->capacity[PATHS], (int64_t)(end + length), 1));
    if (s->count == 0) s->path_offsets[0] = 0;
    memcpy(s->paths + end, path, length);
    s->labels[s->count] = label;
    s->ids[s->count] = s->count;
    s->places[s->count] = (source_place){.bytes = file_bytes, .archive = -1};
    s->path_offsets[++s->count] = end + length;
    return 0;
}

int source_add_archive(source *s, const char *path, int *archive)
{
    KOLO_TRY(kolo_grow(&s->archive_paths, &s->capacity[ARCHIVES], s->archives, sizeof *s->archive_paths));
    s->archive_paths[s->archives] = kolo_strdup(path);
    if (!s->archive_paths[s->archives]) return KOLO_ENOMEM;
    *archive = s->archives++;
    return 0;
}

int source_add_range(source *s, int32_t label, const char *path, int archive, int64_t offset, int64_t bytes)
{
    KOLO_TRY(source_add(s, label, path, bytes));
    s->places[s->count - 1].archive = archive;
    s->places[s->count - 1].offset = offset;
    return 0;
}

void source_set_id(source *s, int64_t sample, int64_t id) { s->ids[sample] = id; }

void source_set_size(source *s, int64_t sample, int height, int width)
{
    s->places[sample].height = height;
    s->places[sample].width = width;
}

/* Of a box in pixels whose image's size the annotations say. */
static int check_inside(const source *s, int64_t sample, const double n[4])
{
    const source_place *p = &s->places[sample];
    const bool corners = s->box_form == SOURCE_BOX_XYXY;
    if (!p->height || !(corners || s->box_form == SOURCE_BOX_XYWH)) return 0;
    const double left = corners ? n[0] - 1 : n[0], top = corners ? n[1] - 1 : n[1];
    const double right = corners ? n[2] : left + n[2], bottom = corners ? n[3] : top + n[3];
    if (left < p->width && top < p->height && right > 0 && bottom > 0) return 0;
    return kolo_fail(KOLO_EINPUT, "a box from (%g, %g) to (%g, %g) outside of its image of %d x %d", left,
                     top, right, bottom, p->width, p->height);
}

int source_add_box(source *s, int64_t sample, const double numbers[4], int32_t label, uint8_t flags,
                   double area, int64_t id)
{
    if (label == SOURCE_LEFT_OUT) {
        s->other_boxes++;
        return 0;
    }
    for (int i = 0; i < 4; i++)
        if (!isfinite(numbers[i])) return kolo_fail(KOLO_EINPUT, "number %d of a box is not finite", i + 1);
    KOLO_TRY(check_inside(s, sample, numbers));
    KOLO_TRY(kolo_grow(&s->box, &s->capacity[BOXES], s->boxes, sizeof *s->box));
    source_box *b = &s->box[s->boxes++];
    memset(b, 0, sizeof *b);
    b->sample = sample;
    b->id = id;
    memcpy(b->numbers, numbers, sizeof b->numbers);
    b->area = (float)area;
    b->label = label;
    b->flags = flags;
    return 0;
}

int source_add_tag(source *s, int64_t sample, int32_t label, double value)
{
    if (label == SOURCE_LEFT_OUT) return 0;
    KOLO_TRY(kolo_grow(&s->tag, &s->capacity[TAGS], s->tags, sizeof *s->tag));
    s->tag[s->tags++] = (source_tag){sample, label, (float)value};
    return 0;
}

int source_add_pair(source *s, const char *set, int64_t a, int64_t b, bool same, int fold)
{
    int number = 0;
    while (number < s->pair_sets && strcmp(s->pair_set_names[number], set) != 0) number++;
    if (number == s->pair_sets) {
        if (number == SOURCE_MOST_PAIR_SETS || strlen(set) > 40)
            return kolo_fail(KOLO_ECONFIG, "pairs `%s`: at most %d sets, with names of 40 letters", set,
                             SOURCE_MOST_PAIR_SETS);
        s->pair_set_names[number] = kolo_strdup(set);
        if (!s->pair_set_names[number]) return KOLO_ENOMEM;
        s->pair_sets++;
    }
    KOLO_TRY(kolo_grow(&s->pair, &s->capacity[PAIRS], s->pairs, sizeof *s->pair));
    source_pair *p = &s->pair[s->pairs++];
    memset(p, 0, sizeof *p);
    p->a = a, p->b = b, p->set = number, p->fold = fold, p->same = same;
    return 0;
}

/* ---- from the list to the packer ----------------------------------------------------------------------- */

/* Sorts rows of `element` bytes, which begin with their sample's number, by samples; offsets [count + 1]. */
static int sort_rows(source *s, void *array, int64_t rows, size_t element, uint64_t **offsets)
{
    char *from, *sorted = kolo_alloc(element * (size_t)rows + 8);
    memcpy(&from, array, sizeof from);
    uint64_t *start = *offsets = kolo_alloc(sizeof *start * (size_t)(s->count + 2));
    if (!sorted || !start) {
        free(sorted);
        return KOLO_ENOMEM;
    }
    for (int64_t i = 0; i < rows; i++) {
        int64_t sample;
        memcpy(&sample, from + element * (size_t)i, sizeof sample);
        if (sample < 0 || sample >= s->count) {
            free(sorted);
            return kolo_fail(KOLO_EINTERNAL, "a target of sample %lld of %lld", (long long)sample,
                             (long long)s->count);
        }
        start[sample + 2]++;
    }
    for (int64_t i = 2; i <= s->count; i++) start[i] += start[i - 1];
    for (int64_t i = 0; i < rows; i++) { /* start[k + 1] runs from the first to the last row of sample k */
        int64_t sample;
        memcpy(&sample, from + element * (size_t)i, sizeof sample);
        memcpy(sorted + element * start[sample + 1]++, from + element * (size_t)i, element);
    }
    free(from);
    memcpy(array, &sorted, sizeof sorted);
    return 0;
}

static int check_label(const source *s, int32_t label, const char *what, int64_t i)
{
    if (label >= 0 && label < s->classes) return 0;
    return kolo_fail(KOLO_EINPUT, "%s %lld has label %d, but there are %d classes%s", what, (long long)i,
                     label, s->classes,
                     s->class_rule == SOURCE_CLASSES_FIXED ? " in the training split" : "");
}

/* Sorts targets by sample, checks labels. */
static int finish(source *s)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->labels[i] != SOURCE_UNLABELLED && s->labels[i] != SOURCE_LEFT_OUT)
            KOLO_TRY(check_label(s, s->labels[i], "sample", i));
    for (int64_t i = 0; i < s->boxes; i++) KOLO_TRY(check_label(s, s->box[i].label, "box", i));
    for (int64_t i = 0; i < s->tags; i++) KOLO_TRY(check_label(s, s->tag[i].tag, "tag", i));
    for (int64_t i = 0; i < s->pairs; i++)
        if (s->pair[i].a < 0 || s->pair[i].a >= s->count || s->pair[i].b < 0 || s->pair[i].b >= s->count)
            return kolo_fail(KOLO_EINTERNAL, "pair %lld names a sample that was not added", (long long)i);
    for (int c = 0; c < s->classes && s->class_rule == SOURCE_CLASSES_CHOSEN; c++)
        if (!s->class_seen[c])
            return kolo_fail(KOLO_EINPUT, "--classes names `%s`, which the source does not have",
                             s->class_names[c]);
    KOLO_TRY(sort_rows(s, &s->box, s->boxes, sizeof *s->box, &s->box_offsets));
    return sort_rows(s, &s->tag, s->tags, sizeof *s->tag, &s->tag_offsets);
}

int source_open(source *s, const source_kind *kind, const struct pack_options *options)
{
    s->kind = kind;
    s->faults.options = options;
    KOLO_TRY(kind->open(s, options));
    KOLO_TRY(source_end_faults(s));
    return finish(s);
}

void source_path(const source *s, int64_t i, char *text, size_t size)
{
    size_t length = s->path_offsets[i + 1] - s->path_offsets[i];
    if (length > size - 1) length = size - 1;
    memcpy(text, s->paths + s->path_offsets[i], length);
    text[length] = 0;
}

void source_full_path(const source *s, int64_t i, char *text, size_t size)
{
    char path[4096];
    const int archive = s->places[i].archive;
    const char *where = archive >= 0 ? s->archive_paths[archive] : s->root;
    source_path(s, i, path, sizeof path);
    snprintf(text, size, "%s%s%s", where ? where : "", where ? archive >= 0 ? ":" : "/" : "", path);
}

int source_grow(source_buffer *buffer, size_t bytes)
{
    if (bytes > buffer->capacity) {
        free(buffer->data);
        buffer->capacity = 0;
        buffer->data = malloc(bytes + bytes / 4 + 64);
        if (!buffer->data) return kolo_fail(KOLO_ENOMEM, "out of memory: %zu bytes for an image", bytes);
        buffer->capacity = bytes + bytes / 4 + 64;
    }
    buffer->bytes = bytes;
    buffer->height = 0;
    return 0;
}

/* ---- bytes --------------------------------------------------------------------------------------------- */

/* A pipe does not wait for who would write to it: what is no file is refused later. */
static int open_input(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0) return fd;
    if (errno == ENOENT || errno == ELOOP)
        return kolo_fail(KOLO_EINPUT, "no such file, or a link to a file that is not there");
    return kolo_fail(KOLO_EIO, "%s", strerror(errno));
}

static int load_file(const source *s, int64_t i, source_buffer *buffer)
{
    char path[4096];
    struct stat info;
    source_full_path(s, i, path, sizeof path);
    const int fd = open_input(path);
    if (fd < 0) return fd;
    int rc = fstat(fd, &info) != 0    ? kolo_fail(KOLO_EIO, "%s", strerror(errno))
             : !S_ISREG(info.st_mode) ? kolo_fail(KOLO_EINPUT, "is not a file")
             : info.st_size > INT32_MAX
                 ? kolo_fail(KOLO_EINPUT, "has %lld bytes, too many for an image", (long long)info.st_size)
                 : source_grow(buffer, (size_t)info.st_size);
    if (rc == 0 && info.st_size > 0) rc = kolo_file_pread(fd, path, buffer->data, (size_t)info.st_size, 0);
    close(fd);
    return rc;
}

/* Opened by the first thread that needs it; a second one that was as quick closes its own again. */
static int archive_fd(const source *s, int archive)
{
    int opened = atomic_load(&s->archive_fds[archive]); /* 1 + descriptor */
    if (opened) return opened - 1;
    const int fd = open_input(s->archive_paths[archive]);
    if (fd < 0) return kolo_fail_in(KOLO_EIO, "%s: ", s->archive_paths[archive]);
    if (atomic_compare_exchange_strong(&s->archive_fds[archive], &opened, fd + 1)) return fd;
    close(fd);
    return opened - 1;
}

static int load_range(const source *s, int64_t i, source_buffer *buffer)
{
    const source_place *place = &s->places[i];
    const int fd = archive_fd(s, place->archive);
    if (fd < 0) return fd;
    if (place->bytes > INT32_MAX)
        return kolo_fail(KOLO_EINPUT, "has %lld bytes, too many for an image", (long long)place->bytes);
    KOLO_TRY(source_grow(buffer, (size_t)place->bytes));
    return kolo_file_pread(fd, s->archive_paths[place->archive], buffer->data, buffer->bytes,
                           (uint64_t)place->offset);
}

int source_load(const source *s, int64_t i, source_buffer *buffer)
{
    if (s->kind->load) return s->kind->load(s, i, buffer);
    return s->places[i].archive >= 0 ? load_range(s, i, buffer) : load_file(s, i, buffer);
}

int64_t source_peek(const source *s, int64_t i, uint8_t *head, size_t size, uint8_t tail[2])
{
    const source_place *place = &s->places[i];
    char path[4096];
    struct stat info;
    int64_t bytes = place->bytes;
    if (s->kind->load) return 0;
    source_full_path(s, i, path, sizeof path);
    const int fd =
        place->archive >= 0 ? archive_fd(s, place->archive) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return 0;
    /* a size that the listing found is compared with what is read later */
    if (bytes <= 0) bytes = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : 0;
    if (bytes < (int64_t)size + 2 || pread(fd, head, size, place->offset) != (ssize_t)size ||
        pread(fd, tail, 2, place->offset + bytes - 2) != 2)
        bytes = 0;
    if (place->archive < 0) close(fd);
    return bytes;
}

int64_t source_known_bytes(const source *s, int64_t i) { return s->kind->load ? -1 : s->places[i].bytes; }

int source_prepare(source *s)
{
    struct rlimit limit;
    if (s->kind->load || s->archives == 0) return 0;
    s->archive_fds = kolo_alloc(sizeof *s->archive_fds * (size_t)s->archives);
    if (!s->archive_fds) return KOLO_ENOMEM;
    if (s->archives > 400 && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return 0;
}

void source_free(source *s)
{
    if (s->kind && s->kind->close) s->kind->close(s);
    for (int i = 0; i < s->classes; i++) free(s->class_names[i]);
    for (int i = 0; i < s->pair_sets; i++) free(s->pair_set_names[i]);
    for (int i = 0; s->archive_fds && i < s->archives; i++)
        if (s->archive_fds[i]) close(s->archive_fds[i] - 1);
    for (int i = 0; i < s->archives; i++) free(s->archive_paths[i]);
    void *const arrays[] = {s->labels, s->paths, s->path_offsets, s->places,      s->ids,
                            s->box,    s->tag,   s->pair,         s->box_offsets, s->tag_offsets};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays && !s->list; i++) free(arrays[i]);
    if (s->list) munmap(s->list, s->list_bytes);
    free(s->class_names);
    free(s->class_ids);
    free(s->class_seen);
    free(s->class_table);
    free(s->archive_paths);
    free(s->faults.lines);
    free((void *)s->archive_fds);
    free(s->root);
    *s = (source){0};
}
