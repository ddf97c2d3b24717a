/* Batches of vectors on GPUs: what each request asks for as a list of operations (comm/core/gpu_channel.h),
 * in three passes over the batch, so that all that moves between ranks is one group: what comes before on
 * this GPU, the moves, what comes after. Batches of a stream go onto its lane by number. */
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/parts.h"

enum pass { BEFORE, MOVES, AFTER };

/* ---- the list ------------------------------------------------------------------------------------------ */

/* The reduction is the batch's. */
static int execute_gpu_put(lib_execution *x, enum comm_gpu_op_kind kind, int peer, void *to, const void *from,
                           int64_t count, enum kolo_dtype type)
{
    const enum kolo_reduce op = lib_request(x, 0)->reduce;
    if (count == 0) return 0;
    KOLO_TRY(kolo_grow(&x->gpu_op, &x->gpu_op_room, x->gpu_ops, sizeof *x->gpu_op));
    x->gpu_op[x->gpu_ops++] = (comm_gpu_op){
        kind, type, op == KOLO_AVERAGE ? KOLO_SUM : op, peer, from, to, count, .divisor = 1, .factor = 1};
    return 0;
}

static int scale(lib_execution *x, void *to, const void *from, int64_t count, enum kolo_dtype type,
                 int64_t divisor, double factor)
{
    if (count == 0 || (to == from && divisor == 1 && factor == 1)) return 0;
    KOLO_TRY(execute_gpu_put(x, COMM_GPU_SCALE, 0, to, from, count, type));
    x->gpu_op[x->gpu_ops - 1].divisor = divisor;
    x->gpu_op[x->gpu_ops - 1].factor = factor;
    return 0;
}

static int execute_gpu_copy(lib_execution *x, void *to, const void *from, size_t bytes)
{
    return scale(x, to, from, (int64_t)bytes, KOLO_U8, 1, 1);
}

static int move(lib_execution *x, enum comm_gpu_op_kind kind, int peer, void *to, const void *from,
                size_t bytes)
{
    return execute_gpu_put(x, kind, peer, to, from, (int64_t)bytes, KOLO_U8);
}

/* The quotient of an average, and the last factor. */
static int finish_reduction(lib_execution *x, const kolo_request *r, void *out, int64_t count)
{
    return scale(x, out, out, count, r->type, r->reduce == KOLO_AVERAGE ? x->batch.contributors : 1,
                 r->postscale);
}

/* ---- every collective: entry i in one of the passes; *stage: bytes of the track's stage
 * (x->work) that are taken */

static char *execute_gpu_take(const lib_execution *x, size_t *stage, size_t bytes)
{
    uintptr_t at = (uintptr_t)x->work + *stage; /* NULL while it is measured */
    *stage += kolo_round_up(bytes, KOLO_ALIGN);
    return (char *)at;
}

typedef int (*gpu_part)(lib_execution *x, int i, enum pass pass, size_t *stage);

/* Where this rank has joined, neutral elements go in and nothing comes out. */
static int put_allreduce(lib_execution *x, int i, enum pass pass, size_t *stage)
{
    const kolo_request *r = lib_request(x, i);
    const int64_t count = lib_elements(r, 0);
    const bool here = x->batch.entry[i] != NULL;
    char *out = here ? r->out : execute_gpu_take(x, stage, (size_t)count * kolo_dtype_size(r->type));
    switch (pass) {
    case BEFORE:
        if (!here) return execute_gpu_put(x, COMM_GPU_FILL, 0, out, NULL, count, r->type);
        return r->prescale == 1 ? 0 : scale(x, out, lib_input(r), count, r->type, 1, r->prescale);
    case MOVES:
        return execute_gpu_put(x, COMM_GPU_ALLREDUCE, 0, out, !here || r->prescale != 1 ? out : lib_input(r),
                               count, r->type);
    default: return here ? finish_reduction(x, r, out, count) : 0;
    }
}

/* Parts are of one length, or each goes to its member by itself. In place the part would be written over
 * what others still read. */
static int put_reduce_scatter(lib_execution *x, int i, enum pass pass, size_t *stage)
{
    const kolo_request *r = lib_request(x, i);
    const int members = x->group->size, me = x->group->rank;
    const int64_t each = lib_row_elements(r), rows = r->dim[0], count = lib_elements(r, 0),
                  mine = lib_cut_rows(rows, members, me) * each;
    const bool staged = !r->in || r->prescale != 1;
    const char *from =
        staged ? execute_gpu_take(x, stage, (size_t)count * kolo_dtype_size(r->type)) : lib_input(r);
    if (pass == BEFORE)
        return staged ? scale(x, (void *)(uintptr_t)from, lib_input(r), count, r->type, 1, r->prescale) : 0;
    if (pass == AFTER) return finish_reduction(x, r, r->out, mine);
    if (rows % members == 0)
        return execute_gpu_put(x, COMM_GPU_REDUCE_SCATTER, 0, r->out, from, mine, r->type);
    for (int m = 0; m < members; m++) {
        const int64_t first = lib_cut(rows, members, m) * each, some = lib_cut_rows(rows, members, m) * each;
        KOLO_TRY(execute_gpu_put(x, COMM_GPU_REDUCE, m, r->out,
                                 from + (size_t)first * kolo_dtype_size(r->type), some, r->type));
    }
    return 0;
}

/* Broadcast, allgather. */
static int put_to_all(lib_execution *x, int i, enum pass pass, size_t *stage)
{
    const kolo_request *r = lib_request(x, i);
    const int members = x->group->size, me = x->group->rank;
    const size_t first = lib_brought(x, i, 0);
    char *out = r->out, *mine = out;
    bool alike = r->what == KOLO_ALLGATHER;
    (void)stage;
    if (pass != MOVES) return 0;
    for (int m = 0; m < members; m++) {
        const size_t bytes = lib_brought(x, i, m);
        alike = alike && bytes == first;
        if (m < me) mine += bytes;
    }
    const void *from = r->in ? r->in : mine;
    if (alike) return move(x, COMM_GPU_ALLGATHER, 0, out, from, first);
    for (int m = 0; m < members; m++) {
        const size_t bytes = lib_brought(x, i, m);
        KOLO_TRY(move(x, COMM_GPU_BROADCAST, m, out, m == me ? from : out, bytes));
        if (r->what == KOLO_ALLGATHER) out += bytes;
    }
    return 0;
}

/* Bytes that this member sends to member m, and receives from it. */
static void part_of(const lib_execution *x, int i, int m, size_t *sends, size_t *receives)
{
    const kolo_request *r = lib_request(x, i);
    const int members = x->group->size, me = x->group->rank;
    const size_t each = lib_row_bytes(r);
    const int64_t *rows = r->what == KOLO_GATHER ? lib_rows_of(x, i) : x->batch.rows;
    const bool from_root = me == r->root, to_root = m == r->root;
    switch (r->what) {
    case KOLO_GATHER:
        *sends = to_root ? (size_t)rows[me] * each : 0;
        *receives = from_root ? (size_t)rows[m] * each : 0;
        return;
    case KOLO_SCATTER:
        *sends = from_root ? (size_t)rows[m] * each : 0;
        *receives = to_root ? (size_t)rows[me] * each : 0;
        return;
    default:
        *sends = (size_t)rows[(int64_t)me * members + m] * each;
        *receives = (size_t)rows[(int64_t)m * members + me] * each;
    }
}

/* Gather, scatter, alltoall. In place what is received, or kept, would be written over what others still
 * read; a gather's own part lies where it belongs. */
static int put_parts(lib_execution *x, int i, enum pass pass, size_t *stage)
{
    const kolo_request *r = lib_request(x, i);
    const int members = x->group->size, me = x->group->rank;
    const bool in_place = !r->in, gathers = r->what == KOLO_GATHER;
    const char *from = lib_input(r);
    char *out = r->out;
    size_t sends, receives, all = 0;
    for (int m = 0; m < members; m++) {
        part_of(x, i, m, &sends, &receives);
        all += sends;
    }
    if (in_place && !gathers) {
        char *copied = execute_gpu_take(x, stage, all);
        if (pass == BEFORE) KOLO_TRY(execute_gpu_copy(x, copied, from, all));
        from = copied;
    }
    for (int m = 0; m < members; m++, from += sends, out += receives) {
        part_of(x, i, m, &sends, &receives);
        if (m == me && pass == BEFORE && !(in_place && gathers))
            KOLO_TRY(execute_gpu_copy(x, out, from, receives));
        if (m == me || pass != MOVES) continue;
        KOLO_TRY(move(x, COMM_GPU_SEND, m, NULL, from, sends));
        KOLO_TRY(move(x, COMM_GPU_RECEIVE, m, out, NULL, receives));
    }
    return 0;
}

static const gpu_part parts[KOLO_COLLECTIVE_COUNT] = {
    [KOLO_ALLREDUCE] = put_allreduce, [KOLO_REDUCE_SCATTER] = put_reduce_scatter,
    [KOLO_ALLGATHER] = put_to_all,    [KOLO_BROADCAST] = put_to_all,
    [KOLO_GATHER] = put_parts,        [KOLO_SCATTER] = put_parts,
    [KOLO_ALLTOALL] = put_parts,
};

/* *bytes: of the stage that it takes. */
static int put_all(lib_execution *x, size_t *bytes)
{
    const gpu_part part = parts[lib_request(x, 0)->what];
    x->gpu_ops = 0;
    for (enum pass pass = BEFORE; pass <= AFTER; pass++) {
        *bytes = 0;
        for (int i = 0; i < x->batch.entries; i++) KOLO_TRY(part(x, i, pass, bytes));
    }
    return 0;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

static int track_of(const lib_execution *x) { return (int)(x->track - x->stream->track); }

static int wait_for_gpu(lib_execution *x)
{
    const kolo_world *world = x->group->world;
    const lib_gpu *g = x->stream->gpu;
    int rc = g->failed > 0 ? KOLO_ELAUNCH : g->type->poll(g->channel, track_of(x));
    if (rc == 0 && kolo_time() - x->enqueued > world->config.timeout)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: batch %llu of group %d made no progress on the GPU of rank %d within %.0f s, "
                         "though all its ranks live; if it only is slow, "
                         "raise KOLO_COMM_TIMEOUT",
                         (unsigned long long)x->batch.number, x->group->id, world->launch->rank,
                         world->config.timeout);
    if (rc <= 0) return lib_gpu_excuse(x, rc);
    char *out; /* the request's own */
    for (int i = 0; i < x->batch.entries; i++)
        if (x->batch.entry[i]) KOLO_TRY(lib_result(x, i, &out));
    return x->step = lib_finish, 1;
}

/* Batches before this one that are to go onto the lane, too. */
static bool is_next(const lib_execution *x)
{
    for (int t = 0; t < LIB_TRACKS; t++) {
        const lib_execution *other = x->stream->track[t].execution;
        if (other && other != x && other->batch.gpu && other->enqueued == 0 &&
            other->batch.number < x->batch.number)
            return false;
    }
    return true;
}

static int enqueue(lib_execution *x)
{
    const lib_gpu *g = x->stream->gpu;
    size_t bytes = 0;
    void *stage;
    x->work = NULL;
    KOLO_TRY(put_all(x, &bytes));
    if (bytes) {
        KOLO_TRY(g->type->stage(g->channel, track_of(x), bytes, &stage));
        x->work = stage;
        KOLO_TRY(put_all(x, &bytes));
    }
    x->enqueued = kolo_time();
    x->algorithm = g->type->name;
    x->step = wait_for_gpu;
    int rc = g->type->begin(g->channel, track_of(x), x->gpu_op, (int)x->gpu_ops);
    return rc < 0 ? lib_gpu_excuse(x, rc) : 1;
}

int lib_gpu_execute_batch(lib_execution *x)
{
    if (lib_request(x, 0)->what == KOLO_SCATTER && lib_scatter_unequal(x)) return 1;
    if (!is_next(x)) return 0;
    if (!x->stream->gpu || !x->stream->gpu->channel) return lib_gpu_open(x);
    return enqueue(x);
}
