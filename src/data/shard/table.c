#include "data/shard/table.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

static size_t element_bytes(enum kolo_table_type type)
{
    static const uint8_t bytes[] = {1, 4, 8, 8, 4, 8};
    return bytes[type];
}

hid_t kolo_shard_table_type(enum kolo_table_type type)
{
    switch (type) {
    case KOLO_TABLE_U8: return H5T_STD_U8LE;
    case KOLO_TABLE_I32: return H5T_STD_I32LE;
    case KOLO_TABLE_I64: return H5T_STD_I64LE;
    case KOLO_TABLE_U64: return H5T_STD_U64LE;
    case KOLO_TABLE_F32: return H5T_IEEE_F32LE;
    case KOLO_TABLE_F64: return H5T_IEEE_F64LE;
    }
    return -1;
}

size_t kolo_shard_table_bytes(const kolo_shard_table *t)
{
    return element_bytes(t->type) * (size_t)t->dim[0] * (size_t)t->dim[1];
}

static int bad_table(const char *path, const char *name, const char *what)
{
    return kolo_fail(KOLO_EINPUT, "%s: table /%s %s; pack this split again", path, name, what);
}

/* Type and shape as they are in the file; then contiguous and unfiltered, or an error. */
static int table_describe(hid_t file, const char *path, kolo_shard_table *t, uint64_t *place)
{
    static const enum kolo_table_type types[] = {KOLO_TABLE_U8,  KOLO_TABLE_I32, KOLO_TABLE_I64,
                                                 KOLO_TABLE_U64, KOLO_TABLE_F32, KOLO_TABLE_F64};
    hsize_t shape[2] = {0, 1};
    bool fits = false;
    if (!kolo_h5_has(file, t->name)) return bad_table(path, t->name, "is missing");
    t->rank = kolo_h5_shape(file, t->name, 1, shape) == 0 ? 1 : 2;
    if (t->rank == 2 && kolo_h5_shape(file, t->name, 2, shape) < 0)
        return bad_table(path, t->name, "has neither one nor two dimensions");
    if (t->rank == 1) shape[1] = 1;
    if (shape[0] > 1ull << 40 || shape[1] > 1u << 16) return bad_table(path, t->name, "is too large");
    for (int i = 0; i < 6 && !fits; i++) {
        t->type = types[i];
        fits = kolo_h5_place(file, t->name, kolo_shard_table_type(t->type), t->rank, shape, place) == 0;
    }
    t->dim[0] = (int64_t)shape[0], t->dim[1] = (int64_t)shape[1];
    return fits ? 0 : bad_table(path, t->name, "is not a contiguous, unfiltered array of a known type");
}

/* The file may be shorter than its own tables say; a table is read only if all of it is there. */
static int table_load(hid_t file, const char *path, kolo_shard_table *t)
{
    uint64_t place = 0;
    hsize_t length = 0;
    KOLO_TRY(table_describe(file, path, t, &place));
    const size_t bytes = kolo_shard_table_bytes(t);
    if (H5Fget_filesize(file, &length) < 0 || place > length || length - place < bytes)
        return bad_table(path, t->name, "ends behind the end of the file");
    void *data = kolo_alloc(bytes + 8);
    if (!data) return KOLO_ENOMEM;
    t->data = data;
    if (bytes && kolo_h5_get_array(file, t->name, kolo_shard_table_type(t->type), data) < 0)
        return kolo_fail(KOLO_EIO, "%s: cannot read /%s", path, t->name);
    return 0;
}

int kolo_shard_load_tables(hid_t file, const char *path, const kolo_shard_header *h, kolo_shard_arrays *a)
{
    if (!h->tables[0]) return 0;
    a->tables = kolo_alloc(sizeof *a->tables * KOLO_SHARD_MOST_TABLES);
    if (!a->tables) return KOLO_ENOMEM;
    for (const char *at = h->tables; *at;) {
        const size_t n = strcspn(at, ",");
        if (a->table_count == KOLO_SHARD_MOST_TABLES || n == 0 || n > 63)
            return kolo_fail(KOLO_EINPUT, "%s: attribute tables is damaged; pack this split again", path);
        kolo_shard_table *t = &a->tables[a->table_count++];
        t->name = kolo_format("%.*s", (int)n, at);
        if (!t->name) return KOLO_ENOMEM;
        KOLO_TRY(table_load(file, path, t));
        at += n + (at[n] == ',');
    }
    return 0;
}

void kolo_shard_free_tables(kolo_shard_arrays *a)
{
    for (int i = 0; i < a->table_count; i++) {
        free((void *)a->tables[i].name);
        free((void *)a->tables[i].data);
    }
    free(a->tables);
    a->tables = NULL;
    a->table_count = 0;
}

const kolo_shard_table *kolo_shard_find_table(const kolo_shard_arrays *a, const char *name,
                                              enum kolo_table_type type, int64_t rows, int64_t columns)
{
    for (int i = 0; i < a->table_count; i++) {
        const kolo_shard_table *t = &a->tables[i];
        if (strcmp(t->name, name) != 0) continue;
        return t->type == type && (rows < 0 || t->dim[0] == rows) && t->dim[1] == columns ? t : NULL;
    }
    return NULL;
}

static bool fits(const kolo_shard_table *have, const kolo_shard_table *want)
{
    return have->type == want->type && have->rank == want->rank &&
           (want->dim[0] < 0 || want->dim[0] == have->dim[0]) &&
           (want->rank == 1 || want->dim[1] < 0 || want->dim[1] == have->dim[1]);
}

int kolo_shard_read_table(const char *path, kolo_shard_table *table, void **data)
{
    kolo_shard_table have = {.name = table->name};
    hid_t file = -1;
    *data = NULL;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    const bool there = rc == 0 && kolo_h5_has(file, table->name);
    if (there) rc = table_load(file, path, &have);
    if (rc == 0 && there && !fits(&have, table))
        rc = bad_table(path, table->name, "has another type or shape than expected");
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    if (rc < 0) free((void *)have.data);
    if (rc < 0 || !there) return rc;
    have.note = table->note;
    *table = have;
    *data = (void *)have.data;
    return 1;
}

int kolo_shard_table_place(const char *path, const kolo_shard_table *table, uint64_t *place)
{
    kolo_shard_table have = {.name = table->name};
    hid_t file = -1;
    kolo_h5_lock();
    int rc = kolo_shard_open(path, &file);
    if (rc == 0) rc = table_describe(file, path, &have, place);
    if (rc == 0 && !fits(&have, table))
        rc = bad_table(path, table->name, "has another type or shape than expected");
    if (file >= 0) H5Fclose(file);
    kolo_h5_unlock();
    return rc;
}
