#include "shards/columns.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

static bool is_pair(const char *name) { return strncmp(name, "pair_", 5) == 0; }

static const kolo_shard_table *columns_find(const kolo_shard_arrays *a, const char *name)
{
    for (int i = 0; i < a->table_count; i++)
        if (strcmp(a->tables[i].name, name) == 0) return &a->tables[i];
    return NULL;
}

/* X of X_offset, if that is what it is. */
static size_t stem(const shards_column *c)
{
    const size_t n = strlen(c->name);
    return c->type == KOLO_TABLE_U64 && c->columns == 1 && n > 7 && strcmp(c->name + n - 7, "_offset") == 0
               ? n - 7
               : 0;
}

static const char *note_of(const char *name)
{
    static const char *const notes[][2] = {
        {"codec", "0 pixels (height, width, channels), 1 JPEG file"},
        {"box", "x0 y0 x1 y1 in pixels of the stored image"},
        {"box_flags",
         "1 crowd, 2 difficult, 4 truncated, 8 group-of, 16 occluded, 32 depiction, 64 inside, 128 outside"},
        {"box_area", "of the object, in pixels of the source image"},
        {"box_id", "number of the annotation in the source, or -1"},
        {"box_offset", "boxes of sample i are box_offset[i] to box_offset[i + 1] - 1"},
        {"box_source", "numbers of the source, in form box_form"},
        {"transform", "sx sy dx dy: stored = source image * s + d"},
        {"tag", "class"},
        {"tag_value", "0 to 1: is it there?"},
        {"tag_offset", "tags of sample i are tag_offset[i] to tag_offset[i + 1] - 1"}};
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (strcmp(notes[i][0], name) == 0) return notes[i][1];
    return NULL;
}

static void find_roles(shards_columns *c)
{
    for (int i = 0; i < c->column_count; i++) {
        shards_column *x = &c->column[i];
        if (!stem(x)) continue;
        x->role = SHARDS_OFFSETS;
        x->offsets = i;
        c->by_class[i] = -1;
        for (int k = 0; k < c->column_count; k++) {
            shards_column *row = &c->column[k];
            const char *after = row->name + stem(x);
            if (k == i || strncmp(row->name, x->name, stem(x)) != 0 || (*after && *after != '_')) continue;
            row->role = SHARDS_ROWS;
            row->offsets = i;
            row->classes = row->type == KOLO_TABLE_I32 && row->columns == 1 &&
                           (strcmp(row->name, "tag") == 0 || strcmp(row->name, "box_class") == 0);
            if (row->classes) c->by_class[i] = k;
        }
    }
}

static const kolo_shard_table *table_of(const shards_columns *c, int part, int column)
{
    return c->table[(size_t)part * (size_t)c->column_count + (size_t)column];
}

static int differs(const char *what, const shards_part *p, const char *name)
{
    return kolo_fail(KOLO_EINPUT,
                     "%s-%s (shard %d): table /%s %s; only splits with the same tables go together",
                     p->header.dataset, p->header.split, p->header.shard, name, what);
}

/* Every table has the shape that its role wants: offsets rise within their rows. */
static int check_part(const shards_columns *c, int part)
{
    const shards_part *p = c->parts[part];
    for (int k = 0; k < c->column_count; k++) {
        const shards_column *x = &c->column[k];
        const kolo_shard_table *t = table_of(c, part, k);
        if (x->role == SHARDS_PER_SAMPLE && t->dim[0] != p->header.count)
            return differs("has neither a row a sample nor offsets", p, x->name);
        if (x->role == SHARDS_OFFSETS) {
            const uint64_t *offset = t->data;
            bool rises = t->dim[0] == p->header.count + 1 && offset[0] == 0;
            for (int64_t i = 0; rises && i < p->header.count; i++) rises = offset[i] <= offset[i + 1];
            if (!rises) return differs("does not rise from 0", p, x->name);
        }
    }
    for (int k = 0; k < c->column_count; k++) {
        const shards_column *x = &c->column[k];
        if (x->role != SHARDS_ROWS) continue;
        const uint64_t rows = ((const uint64_t *)table_of(c, part, x->offsets)->data)[p->header.count];
        if ((uint64_t)table_of(c, part, k)->dim[0] != rows)
            return differs("has another length than its offsets say", p, x->name);
    }
    return 0;
}

int shards_columns_open(shards_columns *c)
{
    const kolo_shard_arrays *model = &c->parts[0]->arrays;
    for (int i = 0; i < model->table_count; i++) {
        const kolo_shard_table *t = &model->tables[i];
        if (is_pair(t->name)) continue;
        c->column[c->column_count++] = (shards_column){.name = t->name,
                                                       .note = note_of(t->name),
                                                       .type = t->type,
                                                       .rank = t->rank,
                                                       .columns = t->dim[1]};
    }
    find_roles(c);
    c->table = kolo_alloc(sizeof *c->table * (size_t)c->part_count * (size_t)c->column_count + 8);
    if (!c->table) return KOLO_ENOMEM;
    for (int part = 0; part < c->part_count; part++) {
        const shards_part *p = c->parts[part];
        int own = 0;
        for (int i = 0; i < p->arrays.table_count; i++) own += !is_pair(p->arrays.tables[i].name);
        for (int k = 0; k < c->column_count; k++) {
            const shards_column *x = &c->column[k];
            const kolo_shard_table *t = columns_find(&p->arrays, x->name);
            if (!t) return differs("is missing here", p, x->name);
            if (t->type != x->type || t->rank != x->rank || t->dim[1] != x->columns)
                return differs("has another type or shape here", p, x->name);
            c->table[(size_t)part * (size_t)c->column_count + (size_t)k] = t;
        }
        if (own != c->column_count)
            return kolo_fail(
                KOLO_EINPUT,
                "%s-%s has tables (%s) that %s-%s has not; only splits with the same tables go together",
                p->header.dataset, p->header.split, p->header.tables, c->parts[0]->header.dataset,
                c->parts[0]->header.split);
        KOLO_TRY(check_part(c, part));
    }
    return 0;
}

void shards_columns_close(shards_columns *c)
{
    free(c->table);
    c->table = NULL;
}

/* The class that a row has in the new split; -1: the row is left out; 0 where rows have no classes. */
static int32_t class_of(const shards_columns *c, int part, int offsets, uint64_t row)
{
    const int by = c->by_class[offsets];
    if (by < 0) return 0;
    const int32_t was = ((const int32_t *)table_of(c, part, by)->data)[row];
    return c->class_map[c->parts[part]->input][was];
}

static const uint64_t *span_of(const shards_columns *c, int64_t sample, int offsets)
{
    return (const uint64_t *)table_of(c, c->part_of[sample], offsets)->data + c->index_of[sample];
}

static uint64_t kept_rows(const shards_columns *c, int64_t sample, int offsets)
{
    const uint64_t *span = span_of(c, sample, offsets);
    uint64_t n = 0;
    for (uint64_t row = span[0]; row < span[1]; row++)
        n += class_of(c, c->part_of[sample], offsets, row) >= 0;
    return n;
}

bool shards_columns_count(const shards_columns *c, const char *name, int64_t samples, uint64_t *counts)
{
    for (int k = 0; k < c->column_count; k++) {
        const shards_column *x = &c->column[k];
        if (x->role != SHARDS_OFFSETS || c->by_class[k] < 0 || stem(x) != strlen(name) ||
            strncmp(x->name, name, stem(x)) != 0)
            continue;
        for (int64_t i = 0; i < samples; i++) {
            const uint64_t *span = span_of(c, i, k);
            for (uint64_t row = span[0]; row < span[1]; row++) {
                const int32_t class = class_of(c, c->part_of[i], k, row);
                if (class >= 0) counts[class]++;
            }
        }
        return true;
    }
    return false;
}

static void fill_rows(const shards_columns *c, int k, int64_t first, int64_t count, uint8_t *to, size_t bytes)
{
    const shards_column *x = &c->column[k];
    for (int64_t i = first; i < first + count; i++) {
        const int part = c->part_of[i];
        const uint8_t *from = table_of(c, part, k)->data;
        const uint64_t *span = span_of(c, i, x->offsets);
        for (uint64_t row = span[0]; row < span[1]; row++) {
            const int32_t class = class_of(c, part, x->offsets, row);
            if (class < 0) continue;
            memcpy(to, x->classes ? (const void *)&class : from + bytes * row, bytes);
            to += bytes;
        }
    }
}

static int make_column(const shards_columns *c, int k, int64_t first, int64_t count, kolo_shard_table *t)
{
    const shards_column *x = &c->column[k];
    uint64_t rows = (uint64_t)count + (x->role == SHARDS_OFFSETS);
    if (x->role == SHARDS_ROWS) {
        rows = 0;
        for (int64_t i = first; i < first + count; i++) rows += kept_rows(c, i, x->offsets);
    }
    *t = (kolo_shard_table){
        .name = x->name, .type = x->type, .rank = x->rank, .dim = {1, x->columns}, .note = x->note};
    const size_t bytes = kolo_shard_table_bytes(t);
    t->dim[0] = (int64_t)rows;
    uint8_t *to = kolo_alloc(bytes * rows + 8);
    if (!to) return KOLO_ENOMEM;
    t->data = to;
    if (x->role == SHARDS_ROWS) fill_rows(c, k, first, count, to, bytes);
    uint64_t at = 0;
    for (int64_t i = 0; i < count && x->role == SHARDS_OFFSETS; i++) {
        at += kept_rows(c, first + i, k);
        memcpy(to + bytes * (size_t)(i + 1), &at, sizeof at);
    }
    for (int64_t i = 0; i < count && x->role == SHARDS_PER_SAMPLE; i++) {
        const uint8_t *from = table_of(c, c->part_of[first + i], k)->data;
        memcpy(to + bytes * (size_t)i, from + bytes * (size_t)c->index_of[first + i], bytes);
    }
    return 0;
}

int shards_columns_make(const shards_columns *c, int64_t first, int64_t count, kolo_shard_table *tables,
                        int *table_count)
{
    *table_count = 0;
    for (int k = 0; k < c->column_count; k++) {
        int rc = make_column(c, k, first, count, &tables[*table_count]);
        *table_count += rc == 0;
        KOLO_TRY(rc);
    }
    return 0;
}
