/* Vectors in ordinary memory travel piece by piece through two staging blocks each way. Piece g (counted over all rounds) of member m:
 *
 *   copy    m's input, the others' slices of it, to its staging     when all have folded piece g - 2, which lay there
 *   fold    slice m of all inputs, into m's vector and the others' staging (or vectors, where those are shared)
 *           when all have copied piece g, and taken piece g - 2 out
 *   take    the others' slices from m's staging to its vector       when all have folded piece g
 *
 * Each is done as soon as it can be, so while one piece is folded the next is copied. */
#include <string.h>

#include "comm/transport/push.h"
#include "kolo/error.h"

static bool all_reached(const comm_push *p, size_t word, uint64_t value)
{
    for (int i = 0; i < p->members; i++) {
        const char *member = (const char *)&p->set->member[i];
        if (atomic_load_explicit((const _Atomic uint64_t *)(const void *)(member + word), memory_order_acquire) < value)
            return false;
    }
    return true;
}
#define ALL_REACHED(p, counter, value) all_reached(p, offsetof(push_member, counter), value)

static char *staging(const comm_push *p, int member, bool out, uint64_t piece)
{
    uint64_t at = atomic_load_explicit(&p->set->member[member].stage, memory_order_acquire);
    return push_at(p, member, at) + (size_t)((out ? 2 : 0) + (piece & 1)) * PUSH_PIECE;
}

int push_staged_begin(comm_push *p)
{
    push_member *mine = &p->set->member[p->me];
    if (atomic_load(&mine->stage) == 0) {
        uint64_t at;
        int rc = heap_take(p->router, &p->router->inner, 4 * (size_t)PUSH_PIECE, &at);
        if (rc < 0) return comm_router_break(p->router, kolo_error_text());
        atomic_store(&mine->stage, at);
    }
    p->base += (uint64_t)p->pieces; /* of the round before */
    p->piece = (int64_t)(PUSH_PIECE / p->width);
    p->pieces = (p->count + p->piece - 1) / p->piece;
    return 0;
}

static int64_t from_of(const comm_push *p, uint64_t g) { return (int64_t)(g - p->base) * p->piece; }
static int64_t count_of(const comm_push *p, uint64_t g)
{
    int64_t left = p->count - from_of(p, g);
    return left < p->piece ? left : p->piece;
}

/* Two stretches of a piece around this member's own slice. */
static void move_others(const comm_push *p, uint64_t g, char *to, const char *from)
{
    int64_t count = count_of(p, g);
    size_t own = (size_t)comm_part(count, p->members, p->me) * p->width;
    size_t end = (size_t)comm_part(count, p->members, p->me + 1) * p->width, all = (size_t)count * p->width;
    memcpy(to, from, own);
    memcpy(to + end, from + end, all - end);
}

static bool copy(comm_push *p, uint64_t end)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t g = atomic_load_explicit(&mine->copied, memory_order_relaxed);
    if (g == end) return false;
    if (push_line_of(p, p->me)->in_shared) g = end - 1;
    else if (g > 0 && !ALL_REACHED(p, folded, g - 1)) return false;
    else move_others(p, g, staging(p, p->me, false, g), p->in + (size_t)from_of(p, g) * p->width);
    atomic_store_explicit(&mine->copied, g + 1, memory_order_release);
    return true;
}

static bool fold(comm_push *p, uint64_t end)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t g = atomic_load_explicit(&mine->folded, memory_order_relaxed);
    if (g == end || !ALL_REACHED(p, copied, g + 1) || (g > 0 && !ALL_REACHED(p, taken, g - 1))) return false;
    int64_t count = count_of(p, g), own = comm_part(count, p->members, p->me);
    size_t in_piece = (size_t)own * p->width, in_vector = (size_t)(from_of(p, g) + own) * p->width;
    for (int i = 0; i < p->members; i++) {
        const push_line *line = push_line_of(p, i);
        if (i == p->me) {
            p->source[i] = p->in + in_vector;
            p->target[i] = p->out + in_vector;
            continue;
        }
        p->source[i] = line->in_shared ? push_at(p, i, line->in) + in_vector : staging(p, i, false, g) + in_piece;
        p->target[i] = line->out_shared ? push_at(p, i, line->out) + in_vector : staging(p, i, true, g) + in_piece;
    }
    int64_t mine_count = comm_part(count, p->members, p->me + 1) - own;
    if (mine_count) comm_fold(&p->how, p->target, p->members, p->source, p->members, mine_count);
    atomic_store_explicit(&mine->folded, g + 1, memory_order_release);
    return true;
}

static bool take(comm_push *p, uint64_t end)
{
    push_member *mine = &p->set->member[p->me];
    uint64_t g = atomic_load_explicit(&mine->taken, memory_order_relaxed);
    if (g == end || !ALL_REACHED(p, folded, g + 1)) return false;
    if (!push_line_of(p, p->me)->out_shared)
        move_others(p, g, p->out + (size_t)from_of(p, g) * p->width, staging(p, p->me, true, g));
    atomic_store_explicit(&mine->taken, g + 1, memory_order_release);
    return true;
}

int push_staged_step(comm_push *p)
{
    uint64_t end = p->base + (uint64_t)p->pieces;
    if (take(p, end) || fold(p, end) || copy(p, end)) {
        push_publish(p);
        return PUSH_WORKED;
    }
    return atomic_load_explicit(&p->set->member[p->me].taken, memory_order_relaxed) == end ? PUSH_COMPLETE : PUSH_IDLE;
}
