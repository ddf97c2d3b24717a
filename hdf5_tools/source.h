/* Where pictures come from. A new source is a file source_NAME.c and a line in source.c. */
#ifndef HDF5_TOOLS_SOURCE_H
#define HDF5_TOOLS_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pack_options;
typedef struct source source;

typedef struct source_buffer { /* kept by the caller from sample to sample */
    uint8_t *data;
    size_t bytes, capacity;
} source_buffer;

typedef struct source_kind {
    const char *name, *help;
    bool pixels; /* load gives pixels (height, width, channels), not a picture file */
    bool listed; /* made by walking folders: rank 0 does it, the others read the plan */
    int (*open)(source *s, const struct pack_options *options);
    int (*load)(const source *s, int64_t i, source_buffer *buffer); /* thread-safe; error text without the path */
    void (*close)(source *s);
} source_kind;

struct source {
    const source_kind *kind;
    int64_t count;
    int32_t *labels;        /* [count] */
    char *paths;            /* relative, one after the other */
    uint64_t *path_offsets; /* [count + 1] */
    int64_t *file_bytes;    /* [count], listed sources */
    int classes;
    char **class_names;          /* [classes] */
    int channels, height, width; /* of pixels sources */
    char *root;                  /* folder that paths are relative to */
    void *state;
    int64_t labels_capacity, paths_capacity, offsets_capacity, bytes_capacity, classes_capacity;
};

extern const source_kind source_kinds[];
extern const int source_kind_count;
const source_kind *source_find(const char *name); /* NULL: unknown */

int source_add_class(source *s, const char *name);
int source_add(source *s, int32_t label, const char *path, int64_t file_bytes);
void source_path(const source *s, int64_t i, char *text, size_t size);
int source_grow(source_buffer *buffer, size_t bytes);
void source_free(source *s);

int source_folder_open(source *s, const struct pack_options *options);
int source_folder_load(const source *s, int64_t i, source_buffer *buffer);
int source_idx_open(source *s, const struct pack_options *options);
int source_idx_load(const source *s, int64_t i, source_buffer *buffer);
void source_idx_close(source *s);
int source_cifar_open(source *s, const struct pack_options *options);
int source_cifar_load(const source *s, int64_t i, source_buffer *buffer);
void source_cifar_close(source *s);
int source_shapes_open(source *s, const struct pack_options *options);
int source_shapes_load(const source *s, int64_t i, source_buffer *buffer);
void source_shapes_close(source *s);

#endif
