/* Hashes, of which some are stored (names behind initial values, plans, choices): the bits stay.
 * Not for adversaries. */
#ifndef KOLO_BASE_HASH_H
#define KOLO_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* FNV-1a: these bytes behind what `hash` is of; it begins with KOLO_HASH. */
#define KOLO_HASH 0xcbf29ce484222325ull
static inline uint64_t kolo_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ p[i]) * 0x100000001b3ull;
    return hash;
}
static inline uint64_t kolo_hash_text(const char *text)
{
    return kolo_hash_bytes(KOLO_HASH, text, strlen(text));
}
/* A number's eight bytes, the lowest first, whatever the machine's order. */
static inline uint64_t kolo_hash_number(uint64_t hash, uint64_t number)
{
    for (int i = 0; i < 8; i++, number >>= 8) hash = (hash ^ (number & 255)) * 0x100000001b3ull;
    return hash;
}

/* Eight bytes in one step. */
static inline uint64_t kolo_hash_word(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
    return hash ^ hash >> 32;
}

#endif
