/* Texts to numbers: classes and images by name, met in any order. */
#ifndef HDF5_TOOLS_SOURCES_NAMES_H
#define HDF5_TOOLS_SOURCES_NAMES_H

#include <stdint.h>

#include "sources/source.h"

typedef struct name_table {
    char *text;     /* one after the other, each ended by a zero */
    int64_t *place; /* [count] where name i begins in text */
    int64_t count;
    int64_t *table; /* [room] hash table of 1 + number */
    int64_t room, capacity[2], bytes;
} name_table;

/* Number of `name`, from 0 in the order in which they came; a new one is added. */
int names_add(name_table *n, const char *name, int64_t *number);
int64_t names_find(const name_table *n, const char *name); /* -1: it is not there */
const char *names_text(const name_table *n, int64_t number);
void names_free(name_table *n);

/* Names to classes of the source: label[i] of name i, which the caller frees. Whole numbers from 0 are
 * labels as they stand; `list` (may be NULL) is then a file that names them, one a line. Other names become
 * classes in byte order. */
int names_to_classes(const name_table *n, source *s, const char *list, int32_t **label);
/* The same with names only: a number is a name like others. */
int names_to_sorted_classes(const name_table *n, source *s, int32_t **label);
/* KOLO_EINPUT where two of them are the same: classes of one name would become one class. */
int names_all_differ(const char *path, char *const *list, int64_t count);
/* Samples were added with the number of their class's name as label: puts the label in its place. */
void names_relabel(source *s, const int32_t *label);

#endif
