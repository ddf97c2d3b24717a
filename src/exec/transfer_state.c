/* What a rank has of its own, given to another: weights, buffers and the optimizer's state as they lie, one
 * behind the other, in pieces that travel in the place of gradients, which the step has used. */
#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

enum { TO, FROM };
enum { WHOLE, REST };

/* Of the pieces that travel all but the last are as long as the gradients. */
static size_t piece_bytes(const kolo_plan *p) { return p->arena_bytes[KOLO_ARENA_GRADIENT]; }

static const enum kolo_arena moved[] = {KOLO_ARENA_PARAM, KOLO_ARENA_BUFFER, KOLO_ARENA_STATE};
enum { MOVED = sizeof moved / sizeof *moved };

size_t kolo_exec_transfer_state_bytes(const kolo_plan *p, int *messages)
{
    size_t all = 0;
    for (int i = 0; i < MOVED; i++) all += p->arena_bytes[moved[i]];
    *messages = (int)((all + piece_bytes(p) - 1) / piece_bytes(p));
    return all;
}

static int *number_of(const kolo_exec *e, int peer, int way, int length)
{
    return &e->pair_number[(peer * 2 + way) * 2 + length];
}

static int declare_piece(kolo_exec *e, int from, int to, int length, size_t bytes)
{
    const int own = kolo_comm_launch(e->comm)->rank;
    if (!bytes) return 0;
    const int number = kolo_comm_transfer(e->comm, from, to, 0, 0, bytes);
    if (from == own) *number_of(e, to, TO, length) = number;
    if (to == own) *number_of(e, from, FROM, length) = number;
    return number < 0 ? number : 0;
}

int exec_declare_pairs(kolo_exec *e)
{
    const int ranks = e->plan->config.ranks;
    int messages;
    const size_t piece = piece_bytes(e->plan), all = kolo_exec_transfer_state_bytes(e->plan, &messages);
    e->pair_number = kolo_alloc((size_t)ranks * 4 * sizeof *e->pair_number);
    if (!e->pair_number) return KOLO_ENOMEM;
    for (int a = 0; a < ranks; a++)
        for (int b = 0; b < ranks; b++) {
            if (a == b) continue;
            KOLO_TRY(declare_piece(e, a, b, WHOLE, all >= piece ? piece : 0));
            KOLO_TRY(declare_piece(e, a, b, REST, all % piece));
        }
    return 0;
}

/* Bytes [at, at + bytes) of all that is moved, to the place of gradients or from there. */
static int copy_piece(kolo_exec *e, size_t at, size_t bytes, int way)
{
    size_t begin = 0;
    for (int i = 0; i < MOVED; i++) {
        const size_t size = e->plan->arena_bytes[moved[i]], end = begin + size;
        const size_t first = at > begin ? at : begin, last = at + bytes < end ? at + bytes : end;
        if (first < last) {
            char *own = e->arena[moved[i]] + (first - begin),
                 *piece = e->arena[KOLO_ARENA_GRADIENT] + (first - at);
            KOLO_TRY(kolo_backend_copy(e->backend, KOLO_LANE_COMPUTE, way == TO ? piece : own,
                                       way == TO ? own : piece, last - first));
        }
        begin = end;
    }
    return 0;
}

int kolo_exec_transfer_state(kolo_exec *e, int from, int to)
{
    const kolo_plan *p = e->plan;
    int messages;
    const size_t all = kolo_exec_transfer_state_bytes(p, &messages), piece = piece_bytes(p);
    if (!e->pair_number || e->reported < e->issued)
        return kolo_fail(KOLO_EINTERNAL, "executor: no pairs of ranks, or a step is under way");
    const int way = kolo_comm_launch(e->comm)->rank == from ? TO : FROM, peer = way == TO ? to : from;
    for (size_t at = 0; at < all; at += piece) {
        const size_t bytes = all - at < piece ? all - at : piece;
        const int number = *number_of(e, peer, way, bytes == piece ? WHOLE : REST);
        if (way == TO) KOLO_TRY(copy_piece(e, at, bytes, TO));
        KOLO_TRY(kolo_comm_start(e->comm, number));
        KOLO_TRY(exec_await_ranks(e, number));
        if (way == FROM) KOLO_TRY(copy_piece(e, at, bytes, FROM));
    }
    e->changes++;
    /* padding of gradients, which no operation writes, counts in their norms */
    KOLO_TRY(kolo_backend_fill(e->backend, KOLO_LANE_COMPUTE, e->arena[KOLO_ARENA_GRADIENT], 0, piece));
    return kolo_backend_finish(e->backend);
}
