/* The table of requests: entries in chunks that never move, taken and freed under the world's lock, named by
 * handles that outlive them. */
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/parts.h"

enum { CHUNK = 64, CHUNKS = 1 << 14, LARGE = 32, LARGE_BYTES = 1 << 20, LARGE_KEPT = 256 << 20 };

struct lib_entries {
    lib_entry *chunk[CHUNKS];
    int count; /* entries made so far */
    lib_entry *spare;
    struct large {
        void *memory;
        size_t bytes;
    } large[LARGE]; /* of results, not in use */
    size_t large_bytes;
};

int lib_entries_open(kolo_world *world)
{
    world->entries = kolo_alloc(sizeof *world->entries);
    return world->entries ? 0 : KOLO_ENOMEM;
}

static lib_entry *entry_at(const struct lib_entries *table, int i)
{
    return &table->chunk[i / CHUNK][i % CHUNK];
}

void lib_entries_close(kolo_world *world)
{
    struct lib_entries *table = world->entries;
    for (int i = 0; table && i < table->count; i++) {
        lib_entry *e = entry_at(table, i);
        free(e->keep);
        free(e->fault);
        free(e->note);
        free(e->text);
        free(e->memory);
        free(e->received);
    }
    for (int c = 0; table && c < CHUNKS; c++) free(table->chunk[c]);
    for (int i = 0; table && i < LARGE; i++) free(table->large[i].memory);
    free(table);
    world->entries = NULL;
}

int lib_entry_take(kolo_world *world, lib_entry **out)
{
    struct lib_entries *table = world->entries;
    lib_entry *e = table->spare;
    if (lib_broken(world)) return kolo_error_status();
    if (!e) {
        int c = table->count / CHUNK;
        if (c == CHUNKS)
            return kolo_fail(
                KOLO_ECONFIG,
                "comm: %d requests under way or not released; wait for some of them, and kolo_release "
                "those whose results the library made",
                table->count);
        if (!table->chunk[c] && !(table->chunk[c] = kolo_alloc(CHUNK * sizeof *e))) return KOLO_ENOMEM;
        e = entry_at(table, table->count);
        e->index = table->count++;
    } else {
        table->spare = e->next;
    }
    e->generation++;
    e->next = NULL;
    e->status = 0;
    e->sequence = 0;
    e->bundle_size = 0;
    e->detached = false;
    e->waiters = 0;
    e->output = (kolo_output){.last = -1};
    e->submitted = kolo_time();
    free(e->fault);
    free(e->note);
    e->fault = e->note = NULL;
    atomic_store(&e->state, LIB_SUBMITTED);
    *out = e;
    return 0;
}

/* A small result's memory stays with its entry; large ones are kept for the next request that needs one,
 * unless they are too many or too large. */
static void keep_large(struct lib_entries *table, lib_entry *entry)
{
    int at = 0;
    if (entry->memory_bytes <= LARGE_BYTES) return;
    while (at < LARGE && table->large[at].memory) at++;
    bool keep = at < LARGE && table->large_bytes + entry->memory_bytes <= LARGE_KEPT;
    if (!keep) free(entry->memory);
    else table->large[at] = (struct large){entry->memory, entry->memory_bytes};
    if (keep) table->large_bytes += entry->memory_bytes;
    entry->memory = NULL;
    entry->memory_bytes = 0;
}

/* The smallest that fits, if there is one. */
static void take_large(struct lib_entries *table, lib_entry *entry, size_t bytes)
{
    struct large *best = NULL;
    for (int i = 0; i < LARGE && bytes > LARGE_BYTES; i++)
        if (table->large[i].bytes >= bytes && (!best || table->large[i].bytes < best->bytes))
            best = &table->large[i];
    if (!best) return;
    entry->memory = best->memory;
    entry->memory_bytes = best->bytes;
    table->large_bytes -= best->bytes;
    *best = (struct large){0};
}

void lib_entry_free(kolo_world *world, lib_entry *entry)
{
    keep_large(world->entries, entry);
    atomic_store(&entry->state, LIB_FREE);
    entry->next = world->entries->spare;
    world->entries->spare = entry;
}

int lib_entry_keep(lib_entry *entry, const kolo_request *request, int members)
{
    size_t splits = request->splits ? (size_t)members * sizeof(int64_t) : 0;
    size_t name = request->name ? strlen(request->name) + 1 : 0,
           compression = request->compression ? strlen(request->compression) + 1 : 0;
    entry->r = *request;
    if (entry->keep_bytes < splits + name + compression) {
        /* names come to another entry each time */
        const size_t room = kolo_round_up(splits + name + compression, 64);
        void *more = realloc(entry->keep, room);
        if (!more) return kolo_fail(KOLO_ENOMEM, "comm: out of memory for a request");
        entry->keep = more;
        entry->keep_bytes = room;
    }
    char *at = entry->keep;
    if (splits) entry->r.splits = memcpy(at, request->splits, splits);
    if (name) entry->r.name = memcpy(at + splits, request->name, name);
    if (compression) entry->r.compression = memcpy(at + splits + name, request->compression, compression);
    return 0;
}

int lib_entry_memory(lib_entry *entry, size_t bytes, void **memory)
{
    kolo_world *world = entry->group->world;
    if (entry->memory_bytes < bytes || !entry->memory) {
        free(entry->memory);
        entry->memory_bytes = 0;
        entry->memory = NULL;
        pthread_mutex_lock(&world->lock);
        take_large(world->entries, entry, bytes);
        pthread_mutex_unlock(&world->lock);
    }
    if (!entry->memory) {
        if (posix_memalign(&entry->memory, KOLO_ALIGN, kolo_round_up(bytes + 1, KOLO_ALIGN)) != 0) {
            entry->memory = NULL;
            return kolo_fail(KOLO_ENOMEM, "comm: out of memory for a result of %zu bytes", bytes);
        }
        entry->memory_bytes = bytes;
    }
    *memory = entry->memory;
    return 0;
}

/* ---- the end of a request ------------------------------------------------------------------------------ */

void lib_complete(lib_entry *entry, int status, const char *text)
{
    kolo_world *world = entry->group->world;
    free(entry->text);
    entry->text = text ? kolo_strdup(text) : NULL;
    entry->status = status;
    pthread_mutex_lock(&world->lock);
    if (lib_is_negotiated(&entry->r)) lib_negotiator_over(entry->group->negotiator, entry);
    bool over = entry->detached && !entry->waiters;
    atomic_store(&entry->state, LIB_DONE);
    if (over) lib_entry_free(world, entry);
    pthread_mutex_unlock(&world->lock);
    if (!over) lib_entry_wake(world, entry);
}

/* From number *i on, which becomes the next one's. NULL: there are no more. */
static lib_entry *next_under_way(kolo_world *world, int *i)
{
    for (;;) {
        pthread_mutex_lock(&world->lock);
        lib_entry *e = *i < world->entries->count ? entry_at(world->entries, (*i)++) : NULL;
        pthread_mutex_unlock(&world->lock);
        if (!e || !lib_is_over(atomic_load(&e->state))) return e;
    }
}

void lib_group_drain(kolo_group *group)
{
    int i = 0;
    for (lib_entry *e; (e = next_under_way(group->world, &i));)
        if (e->group == group) lib_wait(group->world, e);
}

void lib_entries_fail(kolo_world *world, int status, const char *text)
{
    int i = 0;
    for (lib_entry *e; (e = next_under_way(world, &i));) lib_complete(e, status, text);
}

/* ---- handles ------------------------------------------------------------------------------------------- */

kolo_handle lib_entry_handle(const lib_entry *entry)
{
    return (kolo_handle)((uint64_t)(entry->generation & INT32_MAX) << 32 | (uint64_t)(entry->index + 1));
}

/* NULL: no such request, error text set. waits: it is not freed until its waiters are gone. */
static lib_entry *entries_find(kolo_world *world, kolo_handle handle, bool waits)
{
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open"), NULL;
    struct lib_entries *table = world->entries;
    int64_t i = (handle & UINT32_MAX) - 1;
    lib_entry *e = NULL;
    pthread_mutex_lock(&world->lock);
    if (handle > 0 && i >= 0 && i < table->count) e = entry_at(table, (int)i);
    if (e && (lib_entry_handle(e) != handle || atomic_load(&e->state) == LIB_FREE)) e = NULL;
    if (e && waits) e->waiters++;
    pthread_mutex_unlock(&world->lock);
    if (!e)
        kolo_fail(KOLO_EINPUT, "comm: handle %lld is of no request: it was released, or is of another world",
                  (long long)handle);
    return e;
}

int kolo_test(kolo_world *world, kolo_handle handle)
{
    const lib_entry *e = entries_find(world, handle, false);
    return e ? atomic_load(&e->state) == LIB_DONE : KOLO_EINPUT;
}

static int status_of(const lib_entry *entry)
{
    return entry->status < 0
               ? kolo_fail(entry->status, "%s", entry->text ? entry->text : "comm: out of memory")
               : 0;
}

int lib_wait_and_free(kolo_world *world, lib_entry *entry, kolo_output *output)
{
    lib_wait(world, entry);
    int status = status_of(entry);
    if (output) *output = entry->output;
    pthread_mutex_lock(&world->lock);
    lib_entry_free(world, entry);
    pthread_mutex_unlock(&world->lock);
    return status;
}

int kolo_wait(kolo_world *world, kolo_handle handle)
{
    lib_entry *e = entries_find(world, handle, true);
    if (!e) return KOLO_EINPUT;
    if (atomic_load(&e->state) != LIB_DONE) lib_wait(world, e);
    int status = status_of(e);
    pthread_mutex_lock(&world->lock);
    if (--e->waiters == 0 && (e->r.out || e->detached)) lib_entry_free(world, e);
    pthread_mutex_unlock(&world->lock);
    return status;
}

int kolo_result(kolo_world *world, kolo_handle handle, kolo_output *output)
{
    const lib_entry *e = entries_find(world, handle, false);
    if (!e) return KOLO_EINPUT;
    if (!output) return kolo_fail(KOLO_EINPUT, "comm: no place is given for the result");
    if (atomic_load(&e->state) != LIB_DONE)
        return kolo_fail(KOLO_EINPUT, "comm: the request is not complete; kolo_wait first");
    KOLO_TRY(status_of(e));
    *output = e->output;
    return 0;
}

void kolo_release(kolo_world *world, kolo_handle handle)
{
    lib_entry *e = entries_find(world, handle, false);
    if (!e) return;
    pthread_mutex_lock(&world->lock);
    if (lib_entry_handle(e) == handle && atomic_load(&e->state) != LIB_FREE) {
        if (atomic_load(&e->state) == LIB_DONE && !e->waiters) lib_entry_free(world, e);
        else e->detached = true;
    }
    pthread_mutex_unlock(&world->lock);
}
