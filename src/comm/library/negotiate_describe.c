#include "comm/library/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

/* A request in a message; then name, text, compression and splits. */
typedef struct wire_want {
    uint64_t signature;
    kolo_request r; /* its pointers say nothing */
    int64_t splits;
    int32_t compressed, faulty, gpu, spare;
} wire_want;

bool lib_has_rows(enum kolo_collective what) { return lib_row_numbers(what, 1) > 0; }

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

/* Rows for every member, as the request says or implies: by scatter's root, and by everybody in an
 * alltoall. */
static int write_splits(lib_bytes *to, const kolo_request *r, int members)
{
    int64_t rows = r->dims ? r->dim[0] : 1;
    if (r->splits) return lib_put(to, r->splits, (size_t)members * sizeof(int64_t));
    for (int m = 0; m < members; m++) KOLO_TRY(lib_put_number(to, rows / members + (m < rows % members)));
    return 0;
}

static int write_entry(lib_bytes *to, const lib_entry *entry, int me, int members)
{
    const kolo_request *r = &entry->r;
    char text[256] = "";
    bool splits = !entry->fault && (r->what == KOLO_ALLTOALL || (r->what == KOLO_SCATTER && r->root == me) ||
                                    lib_describes_part(r, members));
    bool compressed = r->compression && *r->compression;
    wire_want want = {.signature = lib_signature(entry),
                      .r = *r,
                      .splits = splits ? members : 0,
                      .compressed = compressed,
                      .faulty = entry->fault != NULL,
                      .gpu = entry->gpu};
    if (r->what == KOLO_SCATTER) want.r.rows = lib_awaits(r, me, members);
    lib_describe(entry, text, sizeof text);
    KOLO_TRY(lib_put(to, &want, sizeof want));
    KOLO_TRY(lib_put_text(to, r->name, strlen(r->name)));
    KOLO_TRY(lib_put_text(to, text, strlen(text)));
    if (compressed) KOLO_TRY(lib_put_text(to, r->compression, strlen(r->compression)));
    return splits ? write_splits(to, r, members) : 0;
}

int lib_write_entries(lib_bytes *to, lib_entry *const *entry, int64_t entries, int me, int members)
{
    int64_t at = to->size;
    KOLO_TRY(LIB_PUT(to, 0, entries));
    for (int64_t i = 0; i < entries; i++) KOLO_TRY(write_entry(to, entry[i], me, members));
    int64_t bytes = to->size - at - 8;
    memcpy(to->data + at, &bytes, sizeof bytes);
    return 0;
}

static int read_want(lib_want *want, lib_bytes *key, lib_reader *from)
{
    const wire_want *wire = lib_take(from, sizeof *wire);
    size_t length = 0;
    const char *name = lib_take_text(from, &length);
    const char *text = lib_take_text(from, NULL);
    if (from->bad || wire->splits < 0) {
        from->bad = true;
        return 0;
    }
    *want = (lib_want){wire->r, wire->signature, text, wire->gpu, wire->faulty};
    want->r.name = name;
    want->r.in = want->r.out = NULL;
    want->r.compression = NULL;
    want->r.splits = want->r.index = NULL;
    if (wire->compressed) want->r.compression = lib_take_text(from, NULL);
    if (wire->splits) want->r.splits = lib_take(from, (size_t)wire->splits * sizeof(int64_t));
    return lib_put_text(key, name, length);
}

int lib_read_wants(lib_descriptors *wants, lib_reader *from)
{
    int64_t bytes = lib_take_number(from);
    const void *data = bytes >= 8 ? lib_take(from, (size_t)bytes) : NULL;
    wants->wants = 0;
    if (!data) from->bad = true;
    return data ? lib_fill_wants(wants, data, (size_t)bytes) : lib_reader_end(from);
}

int lib_fill_wants(lib_descriptors *wants, const void *data, size_t bytes)
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
        if (left->want[i].signature != right->want[i].signature) return false;
    return true;
}

int lib_write_names(lib_bytes *key, lib_entry *const *entry, int64_t entries)
{
    key->size = 0;
    for (int64_t i = 0; i < entries; i++)
        KOLO_TRY(lib_put_text(key, entry[i]->r.name, strlen(entry[i]->r.name)));
    return 0;
}
