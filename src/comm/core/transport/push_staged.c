/* Vectors in ordinary memory travel piece by piece through two staging blocks each way. Piece g (counted over
 * all rounds) of member m:
 *
 *   copy    m's input, the others' slices of it, to m's staging;
 *           when all have folded piece g - 2, which lay there
 *   fold    slice m of all inputs, into m's vector and m's staging, and into vectors of others that are
 *           shared; when all have copied piece g, and taken piece g - 2 from m's staging
 *   take    the others' slices from their staging to m's vector;
 *           when all have folded piece g
 *
 * Every cache line of the staging is written by one member, its owner, and read by the others.
 *
 * Each is done as soon as it can be, so while one piece is folded the next is copied. */
#include <string.h>

#include "comm/core/transport/push.h"

static bool all_reached(const comm_push *p, size_t word, uint64_t value)
{
    for (int i = 0; i < p->members; i++) {
        const char *member = (const char *)&p->set->member[i];
        if (atomic_load_explicit((const _Atomic uint64_t *)(const void *)(member + word),
                                 memory_order_acquire) < value)
            return false;
    }
    return true;
}
#define ALL_REACHED(p, counter, value) all_reached(p, offsetof(push_member, counter), value)

static size_t block_of(const comm_push *p) { return p->poor ? p->copied / 4 : PUSH_PIECE; }

static char *staging(const comm_push *p, int member, bool out, uint64_t piece)
{
    uint64_t at = atomic_load_explicit(&p->set->member[member].stage, memory_order_acquire);
    return (p->poor ? push_copy(p, member) : push_at(p, member, at)) +
           (size_t)((out ? 2 : 0) + (piece & 1)) * block_of(p);
}

bool push_staged_ready(comm_push *p)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t at;
    if (atomic_load(&mine->stage)) return true;
    if (heap_take(p->router, &p->router->inner, 4 * (size_t)PUSH_PIECE, &at) == 0)
        return atomic_store(&mine->stage, at), true;
    router_note_no_memory(p->router);
    return false;
}

void push_staged_begin(comm_push *p)
{
    /* for the next round, as who brought shared memory alone did not think of it */
    if (p->poor) push_staged_ready(p);
    p->base += (uint64_t)p->pieces; /* of the round before */
    p->piece = (int64_t)(block_of(p) / p->width);
    p->pieces = (p->count + p->piece - 1) / p->piece;
}

static int64_t from_of(const comm_push *p, uint64_t g) { return (int64_t)(g - p->base) * p->piece; }
static int64_t count_of(const comm_push *p, uint64_t g)
{
    int64_t left = p->count - from_of(p, g);
    return left < p->piece ? left : p->piece;
}

/* Bytes from .. from + count - 1 of piece g that slice `member` has. */
static void slice_of(const comm_push *p, uint64_t g, int member, size_t *from, size_t *bytes)
{
    int64_t count = count_of(p, g);
    *from = (size_t)comm_part(count, p->members, member) * p->width;
    *bytes = (size_t)comm_part(count, p->members, member + 1) * p->width - *from;
}

/* All but the own slice. */
static void copy_piece(const comm_push *p, uint64_t g)
{
    const char *in = p->in + (size_t)from_of(p, g) * p->width;
    char *to = staging(p, p->me, false, g);
    size_t own, bytes, all = (size_t)count_of(p, g) * p->width;
    slice_of(p, g, p->me, &own, &bytes);
    push_stream(p, to, in, own);
    push_stream(p, to + own + bytes, in + own + bytes, all - own - bytes);
}

static bool push_staged_copy(comm_push *p, uint64_t end)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t g = atomic_load_explicit(&mine->copied, memory_order_relaxed);
    if (g == end) return false;
    if (push_line_of(p, p->me)->in_shared) g = end - 1;
    else if (g > 0 && !ALL_REACHED(p, folded, g - 1)) return false;
    else copy_piece(p, g);
    atomic_store_explicit(&mine->copied, g + 1, memory_order_release);
    return true;
}

static bool fold(comm_push *p, uint64_t end)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t g = atomic_load_explicit(&mine->folded, memory_order_relaxed);
    if (g == end || !ALL_REACHED(p, copied, g + 1) || (g > 0 && !ALL_REACHED(p, taken, g - 1))) return false;
    size_t in_piece, bytes, vector = (size_t)from_of(p, g) * p->width;
    int targets = 1;
    bool through_staging = false;
    slice_of(p, g, p->me, &in_piece, &bytes);
    vector += in_piece;
    char *const staged = staging(p, p->me, true, g) + in_piece, *const out = p->out + vector;
    p->target[0] = out;
    for (int i = 0; i < p->members; i++) {
        const push_line *line = push_line_of(p, i);
        p->source[i] = i == p->me        ? p->in + vector
                       : line->in_shared ? push_at(p, i, line->in) + vector
                                         : staging(p, i, false, g) + in_piece;
        if (i == p->me) continue;
        if (line->out_shared) p->target[targets++] = push_at(p, i, line->out) + vector;
        else through_staging = true;
    }
    /* in the same pass, unless it is to go past the caches */
    if (through_staging && !p->apart) p->target[targets++] = staged;
    if (bytes) comm_fold(&p->how, p->target, targets, p->source, p->members, (int64_t)(bytes / p->width));
    if (through_staging && p->apart) push_stream(p, staged, out, bytes);
    atomic_store_explicit(&mine->folded, g + 1, memory_order_release);
    return true;
}

static bool push_staged_take(comm_push *p, uint64_t end)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t g = atomic_load_explicit(&mine->taken, memory_order_relaxed);
    if (g == end || !ALL_REACHED(p, folded, g + 1)) return false;
    for (int i = 0; i < p->members && !push_line_of(p, p->me)->out_shared; i++) {
        size_t from, bytes;
        slice_of(p, g, i, &from, &bytes);
        if (i != p->me)
            memcpy(p->out + (size_t)from_of(p, g) * p->width + from, staging(p, i, true, g) + from, bytes);
    }
    atomic_store_explicit(&mine->taken, g + 1, memory_order_release);
    return true;
}

int push_staged_step(comm_push *p)
{
    uint64_t end = p->base + (uint64_t)p->pieces;
    if (push_staged_take(p, end) || fold(p, end) || push_staged_copy(p, end)) {
        push_publish(p);
        return PUSH_WORKED;
    }
    return atomic_load_explicit(&p->set->member[p->me].taken, memory_order_relaxed) == end ? PUSH_COMPLETE
                                                                                           : PUSH_IDLE;
}
