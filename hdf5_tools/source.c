#include "source.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

static void nothing(source *s) { (void)s; }

const source_kind source_kinds[] = {
    {"imagefolder", "PATH/SPLIT/CLASS/... or PATH/CLASS/...: JPEG, PNG, BMP, PPM", false, true, source_folder_open,
     source_folder_load, nothing},
    {"mnist-idx", "IDX files, also .gz: a folder, or images and labels", true, false, source_idx_open, source_idx_load,
     source_idx_close},
    {"cifar-bin", "CIFAR-10 and CIFAR-100 binary files: a folder, or the .bin files", true, false, source_cifar_open,
     source_cifar_load, source_cifar_close},
    {"shapes", "procedural photos of ten classes, made on the spot (--count)", false, false, source_shapes_open,
     source_shapes_load, source_shapes_close},
};
const int source_kind_count = sizeof source_kinds / sizeof *source_kinds;

const source_kind *source_find(const char *name)
{
    for (int i = 0; i < source_kind_count; i++)
        if (strcmp(source_kinds[i].name, name) == 0) return &source_kinds[i];
    return NULL;
}

int source_add_class(source *s, const char *name)
{
    KOLO_TRY(kolo_grow(&s->class_names, &s->classes_capacity, s->classes, sizeof *s->class_names));
    s->class_names[s->classes] = kolo_strdup(name);
    if (!s->class_names[s->classes]) return KOLO_ECONFIG;
    s->classes++;
    return 0;
}

int source_add(source *s, int32_t label, const char *path, int64_t file_bytes)
{
    const size_t length = strlen(path);
    uint64_t end = s->count ? s->path_offsets[s->count] : 0;
    KOLO_TRY(kolo_grow(&s->labels, &s->labels_capacity, s->count, sizeof *s->labels));
    KOLO_TRY(kolo_grow(&s->file_bytes, &s->bytes_capacity, s->count, sizeof *s->file_bytes));
    KOLO_TRY(kolo_grow(&s->path_offsets, &s->offsets_capacity, s->count + 1, sizeof *s->path_offsets));
    KOLO_TRY(kolo_grow(&s->paths, &s->paths_capacity, (int64_t)(end + length), 1));
    if (s->count == 0) s->path_offsets[0] = 0;
    memcpy(s->paths + end, path, length);
    s->labels[s->count] = label;
    s->file_bytes[s->count] = file_bytes;
    s->path_offsets[++s->count] = end + length;
    return 0;
}

void source_path(const source *s, int64_t i, char *text, size_t size)
{
    size_t length = s->path_offsets[i + 1] - s->path_offsets[i];
    if (length > size - 1) length = size - 1;
    memcpy(text, s->paths + s->path_offsets[i], length);
    text[length] = 0;
}

int source_grow(source_buffer *buffer, size_t bytes)
{
    if (bytes > buffer->capacity) {
        free(buffer->data);
        buffer->capacity = 0;
        buffer->data = malloc(bytes + bytes / 4 + 64);
        if (!buffer->data) return kolo_fail(KOLO_ECONFIG, "out of memory: %zu bytes for a picture", bytes);
        buffer->capacity = bytes + bytes / 4 + 64;
    }
    buffer->bytes = bytes;
    return 0;
}

void source_free(source *s)
{
    if (s->kind) s->kind->close(s);
    for (int i = 0; i < s->classes; i++) free(s->class_names[i]);
    free(s->class_names);
    free(s->labels);
    free(s->paths);
    free(s->path_offsets);
    free(s->file_bytes);
    free(s->root);
    *s = (source){0};
}
