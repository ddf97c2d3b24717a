/* Messages to the other ranks of the node. A rank makes the ring to a peer in its own segment when it first
 * has something to write. Where there is no memory for it the ring is a small one, for which every segment
 * has room from the start: so a full /dev/shm delays messages, but loses none. */
#include <stdlib.h>
#include <string.h>

#include "comm/core/transport/framing.h"
#include "kolo/error.h"

static framing *channel_find(comm_router *router, int local)
{
    framing *t = router->channel[local];
    if (t) return t;
    t = kolo_alloc(sizeof *t);
    if (!t) return NULL;
    *t = (framing){.router = router, .rank = router->rank_of[local], .shares_memory = true};
    if (framing_open(t, router->ring_bytes) < 0) {
        free(t);
        return NULL;
    }
    return router->channel[local] = t;
}

static void make_ring(comm_router *router, framing *t, int local)
{
    uint64_t at;
    size_t bytes = router->ring_bytes;
    if (heap_take(router, &router->inner, ring_size(bytes), &at) < 0) {
        router_note_no_memory(router);
        bytes = ROUTER_SMALL_RING;
        at = router_small_ring(local);
    }
    t->out = ring_begin(router_at(router, router->me, at), bytes);
    atomic_store(&router->control[router->me]->ring[local], at);
}

static bool turn_needed(const framing *t)
{
    return framing_wants_to_write(t) ||
           (t->in && atomic_load_explicit(&t->in->tail, memory_order_acquire) !=
                         atomic_load_explicit(&t->in->head, memory_order_relaxed));
}

static int turn_with(comm_router *router, int local)
{
    framing *t = router->channel[local];
    if (!t || !t->in) {
        uint64_t at = atomic_load_explicit(&router->control[local]->ring[router->me], memory_order_acquire);
        if (at && !(t = channel_find(router, local))) return KOLO_ENOMEM;
        if (at) t->in = (ring *)(void *)router_at(router, local, at);
    }
    if (!t || !turn_needed(t)) return 0;
    KOLO_TRY(framing_read(t));
    if (!t->out && framing_wants_to_write(t)) make_ring(router, t, local);
    KOLO_TRY(framing_write(t));
    bool ring_him = t->wrote;
    router_fence();
    if (t->took && atomic_load_explicit(&t->in->full, memory_order_relaxed)) {
        atomic_store(&t->in->full, 0);
        ring_him = true;
    }
    if (ring_him) router_ring(router, local);
    t->wrote = t->took = false;
    return 0;
}

int channel_turn(comm_router *router)
{
    for (int l = 0; l < router->ranks; l++)
        if (l != router->me) KOLO_TRY(turn_with(router, l));
    return 0;
}

int channel_post(comm_router *router, int local, router_request *r)
{
    framing *t = channel_find(router, local);
    if (!t) return KOLO_ENOMEM;
    KOLO_TRY(framing_post(t, r));
    return turn_with(router, local);
}

int channel_open(comm_router *router)
{
    router->channel = kolo_alloc((size_t)router->ranks * sizeof(framing *));
    return router->channel ? 0 : KOLO_ENOMEM;
}

void channel_close(comm_router *router)
{
    for (int l = 0; router->channel && l < router->ranks; l++) {
        if (!router->channel[l]) continue;
        framing_close(router->channel[l]);
        free(router->channel[l]);
    }
    free(router->channel);
}
