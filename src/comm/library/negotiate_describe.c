#include "comm/library/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

int64_t lib_row_numbers(enum kolo_collective what, int members)
{
    switch (what) {
    case KOLO_ALLGATHER:
    case KOLO_GATHER:
    case KOLO_SPARSE_ALLREDUCE: return members;
    case KOLO_SCATTER: return 2 * (int64_t)members;
    case KOLO_ALLTOALL: return (int64_t)members * members;
    default: return 0;
    }
}

lib_rows lib_rows_brought(const kolo_request *r, int me, int members)
{
    const int64_t mine = r->dims ? r->dim[0] : 1;
    if (r->what == KOLO_ALLTOALL) return (lib_rows){(int64_t)me * members, members, r->splits, mine};
    if (r->what == KOLO_SCATTER && r->root == me) return (lib_rows){0, members, r->splits, mine};
    if (r->what == KOLO_SCATTER) {
        const lib_rows all = {0, members, r->splits, mine};
        return (lib_rows){members + me, 1, NULL, r->out ? 1 + lib_rows_at(&all, me) : 0};
    }
    return (lib_rows){me, lib_row_numbers(r->what, 1), NULL, mine};
}

int64_t lib_rows_at(const lib_rows *rows, int64_t i)
{
    return rows->list ? rows->list[i] : rows->all / rows->count + (i < rows->all % rows->count);
}

static int write_entry(lib_bytes *to, const lib_entry *entry, int me, int members)
{
    const kolo_request *r = &entry->r;
    const lib_rows rows = entry->fault ? (lib_rows){0} : lib_rows_brought(r, me, members);
    const bool splits = !entry->fault && lib_describes_part(r, members);
    char text[256] = "";
    bool compressed = r->compression && *r->compression;
    lib_want want = {.signature = lib_signature(entry),
                     .r = *r,
                     .first = rows.first,
                     .rows = rows.count,
                     .splits = splits ? members : 0,
                     .compressed = compressed,
                     .faulty = entry->fault != NULL,
                     .gpu = entry->gpu};
    lib_describe(entry, text, sizeof text);
    KOLO_TRY(lib_put(to, &want, sizeof want));
    KOLO_TRY(lib_put_text(to, r->name));
    KOLO_TRY(lib_put_text(to, text));
    if (compressed) KOLO_TRY(lib_put_text(to, r->compression));
    for (int64_t i = 0; i < rows.count; i++) KOLO_TRY(lib_put_number(to, lib_rows_at(&rows, i)));
    return splits ? lib_put(to, r->splits, (size_t)members * sizeof *r->splits) : 0;
}

int lib_write_entries(lib_bytes *to, lib_entry *const *entry, int64_t entries, int me, int members)
{
    KOLO_TRY(lib_put_number(to, entries));
    for (int64_t i = 0; i < entries; i++) KOLO_TRY(write_entry(to, entry[i], me, members));
    return 0;
}

static int read_want(lib_want **out, lib_bytes *key, lib_reader *from)
{
    lib_want *want = *out = (lib_want *)(uintptr_t)lib_take(from, sizeof *want);
    if (!want) return 0;
    want->r.in = want->r.out = NULL;
    want->r.splits = want->r.index = NULL;
    want->r.name = lib_take_text(from);
    want->text = lib_take_text(from);
    want->r.compression = want->compressed ? lib_take_text(from) : NULL;
    want->row = lib_take(from, (size_t)want->rows * sizeof *want->row);
    if (want->splits) want->r.splits = lib_take(from, (size_t)want->splits * sizeof(int64_t));
    return lib_write_name(key, want->r.name);
}

int lib_read_wants(lib_descriptors *wants, const void *data, size_t bytes)
{
    wants->wants = 0;
    wants->bytes.size = wants->key.size = 0;
    KOLO_TRY(lib_put(&wants->bytes, data, bytes));
    lib_reader own = {.at = wants->bytes.data, .end = wants->bytes.data + wants->bytes.size};
    int64_t count = lib_take_number(&own);
    if (count < 1) own.bad = true;
    for (; wants->wants < count && !own.bad; wants->wants++) {
        KOLO_TRY(kolo_grow(&wants->want, &wants->capacity, wants->wants, sizeof *wants->want));
        KOLO_TRY(read_want(&wants->want[wants->wants], &wants->key, &own));
    }
    return lib_reader_end(&own);
}

void lib_descriptors_free(lib_descriptors *wants)
{
    free(wants->want);
    lib_bytes_free(&wants->bytes);
    lib_bytes_free(&wants->key);
    *wants = (lib_descriptors){0};
}

bool lib_descriptors_equal(const lib_descriptors *left, const lib_descriptors *right)
{
    if (left->wants != right->wants || left->key.size != right->key.size ||
        memcmp(left->key.data, right->key.data, (size_t)left->key.size) != 0)
        return false;
    for (int64_t i = 0; i < left->wants; i++)
        if (left->want[i]->signature != right->want[i]->signature) return false;
    return true;
}

int lib_write_name(lib_bytes *key, const char *name) { return lib_append(key, name, strlen(name) + 1); }
