#include <stdlib.h>

#include "base/log.h"
#include "comm/core/transport/inside.h"
#include "kolo/error.h"

/* Blocks in the order of their addresses, without gaps. Their list is private: only memory
 * handed out is shared. */
typedef struct heap_block {
    struct heap_block *next;
    uint64_t offset;
    size_t bytes;
    bool taken;
} heap_block;

enum { GRAIN = 4096 }; /* a page: what is taken is allocated in the tmpfs, page by page */

static heap_block *block_make(uint64_t offset, size_t bytes, heap_block *next)
{
    heap_block *b = kolo_alloc(sizeof *b);
    if (b) *b = (heap_block){next, offset, bytes, false};
    return b;
}

int heap_open(router_heap *heap, size_t offset, size_t bytes)
{
    pthread_mutex_init(&heap->lock, NULL);
    heap->offset = offset;
    heap->bytes = bytes;
    heap->first = block_make(offset, bytes, NULL);
    return heap->first ? 0 : KOLO_ENOMEM;
}

void heap_close(router_heap *heap)
{
    for (heap_block *b = heap->first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    if (heap->bytes) pthread_mutex_destroy(&heap->lock);
    heap->first = NULL;
}

/* NULL: none fits; *rc: or no memory to say so. */
static heap_block *first_fit(router_heap *heap, size_t bytes, int *rc)
{
    heap_block *b = heap->first;
    while (b && (b->taken || b->bytes < bytes)) b = b->next;
    if (!b || b->bytes == bytes) return b;
    heap_block *rest = block_make(b->offset + bytes, b->bytes - bytes, b->next);
    if (!rest) {
        *rc = KOLO_ENOMEM;
        return NULL;
    }
    b->next = rest;
    b->bytes = bytes;
    return b;
}

int heap_take(comm_router *router, router_heap *heap, size_t bytes, uint64_t *offset)
{
    size_t whole = kolo_round_up(bytes ? bytes : 1, GRAIN);
    pthread_mutex_lock(&heap->lock);
    int rc = 0;
    heap_block *b = whole >= bytes ? first_fit(heap, whole, &rc) : NULL;
    if (b) b->taken = true;
    pthread_mutex_unlock(&heap->lock);
    KOLO_TRY(rc);
    if (!b && heap == &router->inner)
        return kolo_fail(KOLO_ECONFIG,
                         "comm: rank %d on host %s has no shared memory left for one more ring or group of "
                         "its node, of %zu bytes; free some groups",
                         router->launch->rank, router->launch->host, whole);
    if (!b)
        return kolo_fail(
            KOLO_ECONFIG,
            "comm: %zu bytes of shared memory are not free: rank %d has %zu in all; ask for more with "
            "KOLO_COMM_SHARED, or free some",
            bytes, router->launch->rank, heap->bytes);
    *offset = b->offset;
    rc = comm_segment_allocate(&router->own, b->offset, whole);
    if (rc < 0) heap_give(heap, b->offset);
    else kolo_pages_touch(router_at(router, router->me, b->offset), whole);
    return rc;
}

static void join_next(heap_block *b)
{
    heap_block *next = b->next;
    if (!next || next->taken || b->taken) return;
    b->bytes += next->bytes;
    b->next = next->next;
    free(next);
}

void heap_give(router_heap *heap, uint64_t offset)
{
    pthread_mutex_lock(&heap->lock);
    heap_block *b = heap->first, *before = NULL;
    while (b && b->offset != offset) {
        before = b;
        b = b->next;
    }
    if (b && b->taken) {
        b->taken = false;
        join_next(b);
        if (before) join_next(before);
    }
    pthread_mutex_unlock(&heap->lock);
}

void router_note_no_memory(comm_router *router)
{
    if (!atomic_exchange(&router->starved, true))
        kolo_warn("what rank %d sends to or sums with ranks of its node is slow: %s", router->launch->rank,
                  kolo_error_text());
}

int comm_router_alloc(comm_router *router, size_t bytes, void **memory)
{
    uint64_t offset;
    KOLO_TRY(heap_take(router, &router->heap, bytes, &offset));
    *memory = router_at(router, router->me, offset);
    return 0;
}

void comm_router_free(comm_router *router, void *memory)
{
    if (memory) heap_give(&router->heap, (uint64_t)((char *)memory - (char *)router->control[router->me]));
}

bool comm_router_shared(const comm_router *router, const void *memory, size_t bytes, size_t *offset)
{
    uintptr_t base = (uintptr_t)router->control[router->me], at = (uintptr_t)memory;
    if (at < base + router->heap.offset || at - base - router->heap.offset > router->heap.bytes) return false;
    *offset = at - base;
    return bytes <= router->heap.offset + router->heap.bytes - *offset;
}
