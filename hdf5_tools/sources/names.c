#include "sources/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "readers/text_rows.h"

#define MOST_NUMBER 1000000 /* classes that are numbers */

const char *names_text(const name_table *n, int64_t number) { return n->text + n->place[number]; }

/* Where `name` is in the hash table, or the free place where it belongs. */
static int64_t place_of(const name_table *n, const char *name)
{
    uint64_t hash[2] = {0, 0};
    source_mix(hash, name, strlen(name));
    int64_t at = (int64_t)(hash[0] & (uint64_t)(n->room - 1));
    while (n->table[at] && strcmp(names_text(n, n->table[at] - 1), name) != 0) at = (at + 1) & (n->room - 1);
    return at;
}

int64_t names_find(const name_table *n, const char *name)
{
    return n->room ? n->table[place_of(n, name)] - 1 : -1;
}

static int grow_table(name_table *n)
{
    if (2 * (n->count + 1) <= n->room) return 0;
    const int64_t room = n->room ? 4 * n->room : 64;
    free(n->table);
    n->table = kolo_alloc(sizeof *n->table * (size_t)room);
    n->room = n->table ? room : 0;
    if (!n->table) return KOLO_ENOMEM;
    for (int64_t i = 0; i < n->count; i++) n->table[place_of(n, names_text(n, i))] = i + 1;
    return 0;
}

int names_add(name_table *n, const char *name, int64_t *number)
{
    KOLO_TRY(grow_table(n));
    const int64_t at = place_of(n, name), bytes = (int64_t)strlen(name) + 1;
    *number = n->table[at] - 1;
    if (*number >= 0) return 0;
    KOLO_TRY(kolo_grow(&n->place, &n->capacity[0], n->count, sizeof *n->place));
    KOLO_TRY(kolo_grow(&n->text, &n->capacity[1], n->bytes + bytes, 1));
    memcpy(n->text + n->bytes, name, (size_t)bytes);
    n->place[n->count] = n->bytes;
    n->bytes += bytes;
    *number = n->count++;
    n->table[at] = n->count;
    return 0;
}

void names_free(name_table *n)
{
    free(n->text);
    free(n->place);
    free(n->table);
    *n = (name_table){0};
}

int names_all_differ(const char *path, char *const *list, int64_t count)
{
    name_table n = {0};
    int rc = 0;
    for (int64_t i = 0, number; i < count && rc == 0; i++) {
        rc = names_add(&n, list[i], &number);
        if (rc == 0 && number != i)
            rc = kolo_fail(KOLO_EINPUT, "%s: two classes have the name `%s`", path, list[i]);
    }
    names_free(&n);
    return rc;
}

/* ---- classes ------------------------------------------------------------------------------------------- */

static int names_compare(const void *a, const void *b, void *n)
{
    return strcmp(names_text(n, *(const int64_t *)a), names_text(n, *(const int64_t *)b));
}

/* The largest number; -1: not all names are numbers; or an error. */
static int64_t largest_number(const name_table *n)
{
    int64_t most = -1, value;
    for (int64_t i = 0; i < n->count; i++) {
        if (!text_integer(names_text(n, i), &value)) return -1;
        if (value < 0 || value >= MOST_NUMBER)
            return kolo_fail(KOLO_EINPUT, "label %lld: labels that are numbers go from 0 to %d",
                             (long long)value, MOST_NUMBER - 1);
        most = value > most ? value : most;
    }
    return most;
}

static int add_line(void *of, const text_rows *rows, char *line)
{
    kolo_folder_names *list = of;
    return list->count < MOST_NUMBER ? kolo_folder_add(list, line) : text_fail(rows, "too many classes");
}

/* All lines of `path` become classes; labels go to 0 .. most. */
static int add_named(source *s, const char *path, int64_t most, int32_t *label)
{
    kolo_folder_names list = {0};
    int32_t other;
    int rc = text_each(path, add_line, &list);
    if (rc == 0) rc = names_all_differ(path, list.list, list.count);
    for (int64_t c = 0; c < list.count && rc == 0; c++)
        rc = source_find_class(s, list.list[c], c, c <= most ? &label[c] : &other);
    if (rc == 0 && list.count <= most)
        rc = kolo_fail(KOLO_EINPUT, "%s names %lld classes, but there is a label %lld", path,
                       (long long)list.count, (long long)most);
    kolo_folder_free(&list);
    return rc;
}

static int add_numbers(source *s, int64_t most, int32_t *label)
{
    char name[32];
    for (int64_t c = 0; c <= most; c++) {
        snprintf(name, sizeof name, "%lld", (long long)c);
        KOLO_TRY(source_find_class(s, name, c, &label[c]));
    }
    return 0;
}

static int number_classes(const name_table *n, source *s, const char *list, int64_t most, int32_t *label)
{
    int32_t *of_number = kolo_alloc(sizeof *of_number * (size_t)(most + 1));
    int rc = !of_number ? KOLO_ENOMEM
             : list     ? add_named(s, list, most, of_number)
                        : add_numbers(s, most, of_number);
    for (int64_t i = 0; i < n->count && rc == 0; i++) {
        int64_t value = 0;
        text_integer(names_text(n, i), &value);
        label[i] = of_number[value];
    }
    free(of_number);
    return rc;
}

static int add_sorted(const name_table *n, source *s, int32_t *label)
{
    int64_t *order = kolo_alloc(sizeof *order * (size_t)n->count);
    int rc = order ? 0 : KOLO_ENOMEM;
    for (int64_t i = 0; i < n->count && rc == 0; i++) order[i] = i;
    if (rc == 0 && n->count)
        qsort_r(order, (size_t)n->count, sizeof *order, names_compare, (void *)(uintptr_t)n);
    for (int64_t k = 0; k < n->count && rc == 0; k++)
        rc = source_find_class(s, names_text(n, order[k]), -1, &label[order[k]]);
    free(order);
    return rc;
}

int names_to_sorted_classes(const name_table *n, source *s, int32_t **label)
{
    *label = kolo_alloc(sizeof **label * (size_t)n->count);
    return *label ? add_sorted(n, s, *label) : KOLO_ENOMEM;
}

int names_to_classes(const name_table *n, source *s, const char *list, int32_t **label)
{
    const int64_t most = largest_number(n);
    if (most < -1) return (int)most;
    *label = kolo_alloc(sizeof **label * (size_t)n->count);
    if (!*label) return KOLO_ENOMEM;
    return most >= 0 ? number_classes(n, s, list, most, *label) : add_sorted(n, s, *label);
}

void names_relabel(source *s, const int32_t *label)
{
    for (int64_t i = 0; i < s->count; i++)
        if (s->labels[i] >= 0) s->labels[i] = label[s->labels[i]];
}
