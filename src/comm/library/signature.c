/* The first round of an unnamed request: every member learns whether all have brought the same. On a node it
 * is the push, which compares signatures; between nodes a packet goes through recursive doubling. What is
 * small enough rides along (the whole reduction of a small vector; every member's rows), so that agreement
 * costs no message of its own. Where members differ it goes to the coordinator of names, which compares what
 * they brought, so that it fails on all of them. */
#include <string.h>

#include "comm/library/parts.h"

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
    KOLO_TRY(lib_schedule(x, &problem, &schedule));
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
    return lib_row_numbers(r->what, 1) > 0 && !(lib_is(r->what, LIB_GATHERS) && r->splits);
}

static int64_t bring_rows(lib_execution *x)
{
    const kolo_request *r = lib_request(x, 0);
    const lib_rows own = lib_rows_brought(r, x->group->rank, x->group->size);
    const int64_t n = lib_row_numbers(r->what, x->group->size);
    int64_t *rows = x->batch.rows;
    memset(rows, 0, (size_t)n * sizeof *rows);
    for (int64_t i = 0; i < own.count; i++) rows[own.first + i] = lib_rows_at(&own, i);
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
    if (needs_rows(r)) memcpy(x->batch.rows, x->packet.data, (size_t)x->packet.count * sizeof(int64_t));
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
    if (n && n * (int64_t)sizeof *rows <= (int64_t)sizeof x->packet.data) {
        x->packet.count = (int32_t)n;
        memcpy(x->packet.data, rows, (size_t)n * sizeof *rows);
    }
    const bool rides = !n && !x->batch.entry[0]->fault && bring_vector(x);
    return signature_packet(x, signature, rides ? take_vector : signature_matched);
}

int lib_report_differences(lib_execution *x)
{
    lib_entry *entry = x->batch.entry[0];
    x->batch.entry[0] = NULL;
    KOLO_TRY(lib_negotiator_differs(entry));
    return x->step = NULL, 1;
}
