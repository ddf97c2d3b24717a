#include "comm/library/negotiate.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "kolo/error.h"

int lib_append(lib_bytes *to, const void *data, size_t bytes)
{
    KOLO_TRY(kolo_grow(&to->data, &to->capacity, to->size + (int64_t)bytes, 1));
    if (data) memcpy(to->data + to->size, data, bytes);
    else memset(to->data + to->size, 0, bytes);
    to->size += (int64_t)bytes;
    return 0;
}

int lib_put(lib_bytes *to, const void *data, size_t bytes)
{
    KOLO_TRY(lib_append(to, data, bytes));
    return lib_append(to, NULL, kolo_round_up(bytes, 8) - bytes);
}

int lib_put_number(lib_bytes *to, int64_t number) { return lib_put(to, &number, sizeof number); }

int lib_put_text(lib_bytes *to, const char *text)
{
    const size_t bytes = strlen(text);
    KOLO_TRY(lib_put_number(to, (int64_t)bytes));
    return lib_put(to, text, bytes + 1);
}

void lib_bytes_free(lib_bytes *bytes)
{
    free(bytes->data);
    *bytes = (lib_bytes){0};
}

const void *lib_take(lib_reader *from, size_t bytes)
{
    size_t left = (size_t)(from->end - from->at);
    if (from->bad || bytes > left || kolo_round_up(bytes, 8) > left) {
        from->bad = true;
        return NULL;
    }
    const void *data = from->at;
    from->at += kolo_round_up(bytes, 8);
    return data;
}

int64_t lib_take_number(lib_reader *from)
{
    const int64_t *number = lib_take(from, sizeof *number);
    return number ? *number : 0;
}

const char *lib_take_text(lib_reader *from)
{
    int64_t size = lib_take_number(from);
    const char *text = size >= 0 && size < from->end - from->at ? lib_take(from, (size_t)size + 1) : NULL;
    if (!text || text[size]) from->bad = true;
    return from->bad ? "" : text;
}

int lib_reader_end(const lib_reader *from)
{
    if (!from->bad && from->at == from->end) return 0;
    return kolo_fail(KOLO_EINTERNAL,
                     "comm: a message between the members of a group makes no sense; are all ranks the "
                     "same build of the program?");
}

/* Eight bytes a step, then mixed so that the low bits depend on all. */
uint64_t lib_hash(const void *data, size_t bytes)
{
    const char *at = data;
    uint64_t hash = KOLO_HASH ^ bytes;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = kolo_hash_word(hash, word);
    }
    hash = kolo_hash_bytes(hash, at, bytes);
    hash = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9u;
    return hash ^ hash >> 32;
}

static void map_place(lib_map *map, lib_link *link)
{
    lib_link **head = &map->bucket[link->hash & (uint64_t)(map->buckets - 1)];
    link->next = *head;
    *head = link;
}

static int widen(lib_map *map)
{
    int64_t old = map->buckets;
    lib_link **from = map->bucket;
    map->bucket = kolo_alloc((size_t)(old ? 2 * old : 64) * sizeof(lib_link *));
    if (!map->bucket) {
        map->bucket = from;
        return KOLO_ENOMEM;
    }
    map->buckets = old ? 2 * old : 64;
    for (int64_t b = 0; b < old; b++)
        for (lib_link *link = from[b], *next; link; link = next) {
            next = link->next;
            map_place(map, link);
        }
    free(from);
    return 0;
}

int lib_map_add(lib_map *map, lib_link *link, const void *key, size_t bytes)
{
    if (map->count == map->buckets) KOLO_TRY(widen(map));
    *link = (lib_link){.hash = lib_hash(key, bytes), .key = key, .bytes = bytes};
    map_place(map, link);
    map->count++;
    return 0;
}

void lib_map_remove(lib_map *map, lib_link *link)
{
    lib_link **at = &map->bucket[link->hash & (uint64_t)(map->buckets - 1)];
    while (*at != link) at = &(*at)->next;
    *at = link->next;
    map->count--;
}

void *lib_map_find(const lib_map *map, const void *key, size_t bytes)
{
    if (!map->buckets) return NULL;
    const uint64_t hash = lib_hash(key, bytes);
    lib_link *link = map->bucket[hash & (uint64_t)(map->buckets - 1)];
    while (link && (link->hash != hash || link->bytes != bytes || memcmp(link->key, key, bytes) != 0))
        link = link->next;
    return link;
}

void *lib_map_next(const lib_map *map, const lib_link *link)
{
    int64_t b = link ? (int64_t)(link->hash & (uint64_t)(map->buckets - 1)) + 1 : 0;
    if (link && link->next) return link->next;
    while (b < map->buckets && !map->bucket[b]) b++;
    return b < map->buckets ? map->bucket[b] : NULL;
}

void lib_map_free(lib_map *map)
{
    free(map->bucket);
    *map = (lib_map){0};
}
