/* Blocks of a slice, claimed by any rank of a node that is free. */
#ifndef KOLO_COMM_CLAIM_H
#define KOLO_COMM_CLAIM_H

#include <stdatomic.h>
#include <stdint.h>

/* The next free block, 0 .. blocks - 1, of round `round` = 1, 2, ... (which may wrap); -1: none is left.
 * *word, in the memory of the node, holds round << 32 | blocks claimed and is 0 in the beginning; what it
 * says of an earlier round counts as 0, so no round needs a reset. */
static inline int64_t comm_claim(_Atomic uint64_t *word, uint32_t round, int64_t blocks)
{
    uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
    for (;;) {
        const uint64_t claimed = now >> 32 == round ? now & UINT32_MAX : 0;
        if ((int64_t)claimed >= blocks) return -1;
        if (atomic_compare_exchange_weak(word, &now, (uint64_t)round << 32 | (claimed + 1)))
            return (int64_t)claimed;
    }
}

#endif
