/* Collectives that only move bytes: lengths in bytes, width 1. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "comm/library/parts.h"

/* Rows that came from every member stand in the entry. */
static int note_splits(lib_execution *x, int i, const int64_t *rows)
{
    lib_entry *e = x->batch.entry[i];
    if (!e->received) e->received = kolo_alloc((size_t)x->group->world->launch->size * sizeof *e->received);
    if (!e->received) return KOLO_ENOMEM;
    e->output.splits = memcpy(e->received, rows, (size_t)x->group->size * sizeof *rows);
    return 0;
}

int lib_result(lib_execution *x, int i, char **out)
{
    const kolo_request *r = lib_request(x, i);
    const int members = x->group->size, me = x->group->rank;
    const int64_t *rows = NULL;
    int64_t mine = -1;
    *out = NULL;
    if (r->what == KOLO_GATHER && me != r->root) return 0;
    if (r->what == KOLO_SCATTER) mine = x->batch.rows[me];
    if (r->what == KOLO_REDUCE_SCATTER) mine = lib_cut_rows(r->dim[0], members, me);
    if (lib_is(r->what, LIB_GATHERS)) rows = lib_rows_of(x, i);
    if (r->what == KOLO_ALLTOALL) {
        int64_t *column = x->number + 2 * (int64_t)members;
        for (int m = 0; m < members; m++) column[m] = x->batch.rows[(int64_t)m * members + me];
        rows = column;
    }
    KOLO_TRY(lib_result_memory(x, i, rows ? lib_total(rows, members) : mine, out));
    return rows ? note_splits(x, i, rows) : 0;
}

/* ---- broadcast, scatter, gather, allgather ------------------------------------------------------------- */

/* Every rank sees the same. */
bool lib_scatter_unequal(lib_execution *x)
{
    const kolo_group *g = x->group;
    const int64_t *dealt = x->batch.rows, *awaited = dealt + g->size;
    int first = -1, ranks = 0;
    char text[256];
    for (int m = g->size - 1; m >= 0; m--)
        if (awaited[m] && awaited[m] - 1 != dealt[m]) first = m, ranks++;
    if (!ranks) return false;
    snprintf(
        text, sizeof text,
        "scatter: rank %d deals %lld rows to rank %d, which awaits %lld (%d such rank%s); nothing was sent",
        g->rank_of[lib_request(x, 0)->root], (long long)dealt[first], g->rank_of[first],
        (long long)awaited[first] - 1, ranks, ranks == 1 ? "" : "s");
    lib_fail_all(x, KOLO_EINPUT, text);
    x->step = NULL;
    return true;
}

const int64_t *lib_rows_of(const lib_execution *x, int i)
{
    const kolo_request *r = lib_request(x, i);
    return r->splits && r->what != KOLO_SCATTER ? r->splits : x->batch.rows + (int64_t)i * x->group->size;
}

size_t lib_brought(const lib_execution *x, int i, int m)
{
    const kolo_request *r = lib_request(x, i);
    if (r->what == KOLO_BROADCAST) return m == r->root ? lib_request_bytes(r) : 0;
    return (size_t)lib_rows_of(x, i)[m] * lib_row_bytes(r);
}

/* From blocks by member to results by request. */
static int unpack(lib_execution *x)
{
    const int members = x->group->size, me = x->group->rank;
    int64_t *at = x->number + members; /* of every member's next piece */
    for (int m = 0; m < members; m++) at[m] = m ? at[m - 1] + x->number[m - 1] : 0;
    for (int i = 0; i < x->batch.entries; i++) {
        const void *in = lib_input(lib_request(x, i));
        char *out = NULL;
        if (x->batch.entry[i]) KOLO_TRY(lib_result(x, i, &out));
        for (int m = 0; m < members; m++) {
            const size_t bytes = x->number[m] ? lib_brought(x, i, m) : 0;
            if (out && bytes && (m != me || in != out)) memcpy(out, x->work + at[m], bytes);
            if (out) out += bytes;
            at[m] += (int64_t)bytes;
        }
    }
    return x->step = lib_finish, 1;
}

/* One behind the other: many small vectors, as a model's at its start, are one message. */
static int carry_packed(lib_execution *x, comm_problem *problem)
{
    const int me = x->group->rank;
    char *mine;
    KOLO_TRY(lib_stage(x, (size_t)lib_total(x->number, x->group->size)));
    mine = x->work + (problem->counts ? lib_total(x->number, me) : 0);
    char *at = mine;
    for (int i = 0; i < x->batch.entries; i++) {
        const size_t bytes = lib_brought(x, i, me);
        if (x->batch.entry[i] && bytes) memcpy(at, lib_input(lib_request(x, i)), bytes);
        at += bytes;
    }
    problem->in_place = true;
    return lib_run(x, problem, x->work, mine, KOLO_U8, KOLO_SUM, unpack);
}

int lib_move(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    const int members = x->group->size, me = x->group->rank;
    const bool from_root = !lib_is(r->what, LIB_GATHERS), broadcast = r->what == KOLO_BROADCAST;
    comm_problem problem = lib_problem(x->group, r->what);
    char *out;
    if (r->what == KOLO_SCATTER && lib_scatter_unequal(x)) return 1;
    problem.root = r->root;
    for (int m = 0; m < members; m++) {
        x->number[m] = 0;
        for (int i = 0; i < x->batch.entries && (!broadcast || m == r->root); i++)
            x->number[m] += (int64_t)lib_brought(x, i, m);
    }
    if (broadcast) problem.count = x->number[r->root];
    else problem.counts = x->number;
    if (x->batch.entries > 1) return carry_packed(x, &problem);
    KOLO_TRY(lib_result(x, 0, &out));
    const void *in = !from_root ? r->in : me == r->root ? lib_input(r) : out;
    if (!in && !from_root) in = out ? out + lib_total(x->number, me) : r->out;
    problem.in_place = from_root ? in == out : !r->in && out;
    return lib_run(x, &problem, out, in, KOLO_U8, KOLO_SUM, lib_finish);
}

/* ---- alltoall ------------------------------------------------------------------------------------------ */

int lib_alltoall(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    int members = x->group->size, me = x->group->rank;
    int64_t *send = x->number, *receive = send + members, each = (int64_t)lib_row_bytes(r);
    comm_problem problem = lib_problem(x->group, KOLO_ALLTOALL);
    char *out;
    for (int m = 0; m < members; m++) {
        send[m] = x->batch.rows[(int64_t)me * members + m] * each;
        receive[m] = x->batch.rows[(int64_t)m * members + me] * each;
    }
    problem.send = send;
    problem.receive = receive;
    KOLO_TRY(lib_result(x, 0, &out));
    problem.in_place = !r->in;
    return lib_run(x, &problem, out, lib_input(r), KOLO_U8, KOLO_SUM, lib_finish);
}
