/* The first round of an unnamed request: every member learns whether all have brought the same. On a node it
 * is the push, which compares signatures; between nodes a packet goes through recursive doubling. What is
 * small enough rides along (the whole reduction of a small vector; every member's rows), so that agreement
 * costs no message of its own. Only where members differ their descriptions are gathered, and the request
 * fails on all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/library/parts.h"
#include "comm/core/rank_list.h"

static bool packet_differs(const lib_packet *p) { return p->high != ~p->low_not; }

/* Members that differ may have brought other types: their data is not looked at any more. */
static void join_packets(void *out, const void *left, const void *right, int64_t count)
{
    const lib_packet *l = left, *r = right;
    lib_packet *o = out;
    for (int64_t i = 0; i < count; i++, l++, r++, o++) {
        bool same = !packet_differs(l) && !packet_differs(r) && l->high == r->high;
        o->high = l->high > r->high ? l->high : r->high;
        o->low_not = l->low_not > r->low_not ? l->low_not : r->low_not;
        o->type = l->type;
        o->op = l->op;
        o->count = l->count;
        o->spare = 0;
        if (same && l->count)
            comm_combine_of((enum kolo_dtype)l->type, (enum kolo_reduce)l->op)(o->data, l->data, r->data,
                                                                               l->count);
    }
}

static int signature_packet(lib_execution *x, uint64_t signature, lib_step then)
{
    comm_problem problem = lib_problem(x->group, KOLO_ALLREDUCE);
    const comm_schedule *schedule;
    problem.in_place = true;
    problem.count = 1;
    problem.width = sizeof x->packet;
    x->packet.high = signature;
    x->packet.low_not = ~signature;
    KOLO_TRY(lib_schedule(&x->stream->schedules, x->group->world, &problem, &schedule, &x->algorithm));
    KOLO_TRY(
        lib_run_schedule(x, schedule, &x->packet, &x->packet, sizeof x->packet, KOLO_U8, KOLO_SUM, then));
    if (x->run) x->run->combine = join_packets;
    return 1;
}

/* ---- what rides along ---------------------------------------------------------------------------------- */

/* Every member's numbers by a sum over vectors that are 0 elsewhere: where the result's shape depends on all.
 * Splits of a gather are in the signature. */
static bool needs_rows(const kolo_request *r)
{
    return lib_row_numbers(r->what, 1) > 0 && !(lib_gathers(r->what) && r->splits);
}

static int64_t bring_rows(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    int64_t *rows = x->batch.rows;
    int me = x->group->rank, members = x->group->size;
    int64_t n = lib_row_numbers(r->what, members);
    memset(rows, 0, (size_t)n * sizeof *rows);
    if (r->what == KOLO_ALLTOALL)
        for (int i = 0; i < members; i++)
            rows[(int64_t)me * members + i] = r->splits ? r->splits[i] : r->dim[0] / members;
    else if (r->what != KOLO_SCATTER) rows[me] = r->dims ? r->dim[0] : 1;
    else rows[members + me] = lib_awaits(r, me, members);
    for (int i = 0; r->what == KOLO_SCATTER && me == r->root && i < members; i++)
        rows[i] = r->splits ? r->splits[i] : lib_cut_rows(r->dim[0], members, i);
    return n;
}

/* Fills the packet with the prescaled vector, 16 bits as f32. False: too large, not a reduction by
 * elements, or on a GPU. */
static bool bring_vector(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    enum kolo_dtype type = kolo_dtype_is_half(r->type) ? KOLO_F32 : r->type;
    if (!lib_pushes(r) || x->batch.gpu) return false;
    int64_t count = lib_elements(r, 0);
    if (count * (int64_t)kolo_dtype_size(type) > (int64_t)sizeof x->packet.data) return false;
    x->packet.type = type;
    x->packet.op = r->reduce == KOLO_AVERAGE ? KOLO_SUM : r->reduce;
    x->packet.count = (int32_t)count;
    lib_bring(x, 0, 0, count, x->packet.data, type, true);
    return true;
}

/* The packet holds the whole sum. */
static int take_vector(lib_execution *x)
{
    char *out;
    if (packet_differs(&x->packet)) return x->step = lib_report_differences, 1;
    KOLO_TRY(lib_result_memory(x, 0, -1, &out));
    lib_deliver(x, 0, out, x->packet.data, x->packet.count, (enum kolo_dtype)x->packet.type, true);
    return x->step = lib_finish, 1;
}

static int rows_received(lib_execution *x) { return x->step = lib_execute_batch, 1; }

static int column_received(lib_execution *x)
{
    int64_t *rows = x->batch.rows;
    int me = x->group->rank, members = x->group->size;
    for (int m = 0; m < members; m++) rows[(int64_t)m * members + me] = x->number[members + m];
    return x->step = lib_execute_batch, 1;
}

/* Of an alltoall a member needs to know its own row and column alone. */
static int exchange_rows(lib_execution *x)
{
    int me = x->group->rank, members = x->group->size;
    comm_problem problem = lib_problem(x->group, KOLO_ALLTOALL);
    problem.send = problem.receive = x->number;
    problem.width = sizeof(int64_t);
    bring_rows(x);
    for (int m = 0; m < members; m++) x->number[m] = 1;
    return lib_run(x, &problem, x->number + members, x->batch.rows + (int64_t)me * members, KOLO_I64,
                   KOLO_SUM, column_received);
}

/* All have brought the same; their rows did not fit into the packet. */
static int gather_rows(lib_execution *x)
{
    if (lib_request(x, 0)->what == KOLO_ALLTOALL) return exchange_rows(x);
    return lib_run_sum(x, x->batch.rows, bring_rows(x), KOLO_I64, KOLO_SUM, rows_received);
}

static int signature_matched(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    if (packet_differs(&x->packet)) return x->step = lib_report_differences, 1;
    if (needs_rows(r) && !x->packet.count) return x->step = gather_rows, 1;
    if (needs_rows(r))
        memcpy(x->batch.rows, x->packet.data, (size_t)x->packet.count * sizeof(int64_t));
    return x->step = lib_execute_batch, 1;
}

int lib_signature_check(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    const comm_folding sum = {.type = KOLO_I64, .op = KOLO_SUM};
    uint64_t signature = lib_signature(x->batch.entry[0]);
    int64_t *rows = x->batch.rows;
    int64_t n = needs_rows(r) && !x->batch.entry[0]->fault ? bring_rows(x) : 0;
    if (x->group->size == 1) return x->step = lib_execute_batch, 1;
    if (x->track->push && lib_pushes(r) && !x->batch.gpu && !x->batch.entry[0]->fault &&
        lib_takes_push(x->group, r, lib_elements(r, 0)))
        return x->step = lib_execute_batch, 1; /* the reduction compares, too */
    if (x->track->push) return lib_push(x, rows, rows, n, &sum, signature, rows_received);
    memset(&x->packet, 0, sizeof x->packet);
    x->packet.type = KOLO_I64;
    if (x->batch.entry[0]->fault) return signature_packet(x, signature, signature_matched);
    if (n) {
        x->packet.count = n * (int64_t)sizeof(int64_t) <= (int64_t)sizeof x->packet.data ? (int32_t)n : 0;
        memcpy(x->packet.data, rows, (size_t)x->packet.count * sizeof(int64_t));
        return signature_packet(x, signature, signature_matched);
    }
    return bring_vector(x) ? signature_packet(x, signature, take_vector)
                           : signature_packet(x, signature, signature_matched);
}

/* ---- where members differ ------------------------------------------------------------------------------ */

static int signature_report(lib_execution *x, const char *more)
{
    char text[2048], what[1600];
    comm_rank_list(what, sizeof what, x->group->rank_of, x->group->size, x->texts, LIB_TEXT);
    snprintf(text, sizeof text, "request %llu of group %d does not match, nothing was sent: %s%s",
             (unsigned long long)x->batch.number, x->group->id, what, more);
    lib_fail_all(x, KOLO_EINPUT, text);
    return x->step = NULL, 1;
}

/* number: the greatest count of every member, then the greatest of the negative ones. */
static int counts_exchanged(lib_execution *x)
{
    char more[160] = "";
    const int64_t *most = x->number, *least = most + x->group->size;
    int n = x->group->size, m = 0;
    while (m < n && (most[m] < 0 || most[m] == -least[m])) m++;
    if (m < n)
        snprintf(more, sizeof more, "; counts differ first for rank %d: some say %lld, some %lld",
                 x->group->rank_of[m], (long long)-least[m], (long long)most[m]);
    return signature_report(x, more);
}

/* All brought the same kind of gather, by their texts, which all see: counts may differ behind
 * those that texts show. */
static bool all_gather(const lib_execution *x)
{
    if (!lib_gathers(lib_request(x, 0)->what)) return false;
    const char *word = comm_collective_name(lib_request(x, 0)->what);
    size_t length = strlen(word);
    int m = 0;
    while (m < x->group->size && strncmp(x->texts + (size_t)m * LIB_TEXT, word, length) == 0) m++;
    return m == x->group->size;
}

static int signature_reported(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    int n = x->group->size;
    if (!all_gather(x)) return signature_report(x, "");
    for (int m = 0; m < n; m++) {
        x->number[m] = r->splits ? r->splits[m] : INT64_MIN;
        x->number[n + m] = r->splits ? -r->splits[m] : INT64_MIN;
    }
    return lib_run_sum(x, x->number, 2 * (int64_t)n, KOLO_I64, KOLO_MAX, counts_exchanged);
}

int lib_report_differences(lib_execution *x)
{
    const int64_t bytes = (int64_t)x->group->size * LIB_TEXT;
    free(x->texts);
    x->texts = kolo_alloc((size_t)bytes);
    if (!x->texts) return KOLO_ENOMEM;
    lib_describe(x->batch.entry[0], x->texts + (size_t)x->group->rank * LIB_TEXT, LIB_TEXT);
    return lib_run_sum(x, x->texts, bytes, KOLO_U8, KOLO_MAX, signature_reported);
}
