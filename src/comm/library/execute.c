/* Batches, step by step: what all collectives share. */
#include <stdio.h>
#include <string.h>

#include "base/thread.h"
#include "comm/library/parts.h"

/* ---- steps that wait ----------------------------------------------------------------------------------- */

static int poll_run(lib_execution *x)
{
    int rc = comm_run_poll(x->run);
    if (rc <= 0) return rc;
    x->run = NULL;
    return x->step = x->then, 1;
}

int lib_run_schedule(lib_execution *x, const comm_schedule *schedule, void *own, const void *input,
                     size_t width, enum kolo_dtype type, enum kolo_reduce reduce, lib_step then)
{
    comm_lane *lane = &x->track->lane;
    const size_t scratch = (size_t)schedule->scratch * (schedule->half ? sizeof(float) : width);
    KOLO_TRY(comm_lane_reserve(lane, schedule->posts, scratch));
    lane->buffer[COMM_OWN] = own;
    lane->buffer[COMM_INPUT] = (char *)(uintptr_t)input;
    x->run = comm_lane_begin(lane, schedule, x->group->rank_of, type, reduce, width, x->track->tag);
    x->step = poll_run;
    x->then = then;
    return 1;
}

int lib_run(lib_execution *x, const comm_problem *problem, void *own, const void *input, enum kolo_dtype type,
            enum kolo_reduce reduce, lib_step then)
{
    const comm_schedule *schedule;
    KOLO_TRY(lib_schedule(x, problem, &schedule));
    return lib_run_schedule(x, schedule, own, input, problem->width, type, reduce, then);
}

int lib_run_sum(lib_execution *x, void *data, int64_t count, enum kolo_dtype type, enum kolo_reduce reduce,
                lib_step then)
{
    comm_problem problem = lib_problem(x->group, KOLO_ALLREDUCE);
    problem.in_place = true;
    problem.count = count;
    problem.width = kolo_dtype_size(type);
    return lib_run(x, &problem, data, data, type, reduce, then);
}

static int poll_push(lib_execution *x)
{
    int rc = comm_push_poll(x->track->push);
    if (rc <= 0) return rc;
    x->step = rc == COMM_PUSH_DIFFERS ? lib_report_differences : x->then;
    return 1;
}

int lib_push(lib_execution *x, const void *in, void *out, int64_t count, const comm_folding *how,
             uint64_t signature, lib_step then)
{
    KOLO_TRY(comm_push_start(x->track->push, in, out, count, how, signature));
    x->algorithm = "push";
    x->step = poll_push;
    x->then = then;
    return 1;
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static const char *phase_of(const lib_execution *x) { return comm_collective_name(lib_request(x, 0)->what); }

static void record_event(lib_execution *x)
{
    struct lib_timeline *timeline = x->group->world->timeline;
    if (!timeline) return;
    double now = kolo_time();
    int64_t bytes = 0;
    for (int i = 0; i < x->batch.entries; i++) bytes += (int64_t)lib_request_bytes(lib_request(x, i));
    lib_timeline_carried(timeline, phase_of(x), lib_request(x, 0)->name, x->algorithm, x->began, now, bytes);
}

void lib_fail_all(lib_execution *x, int status, const char *text)
{
    for (int i = 0; i < x->batch.entries; i++)
        if (x->batch.entry[i]) lib_complete(x->batch.entry[i], status, text);
    for (int i = 0; i < x->batch.entries; i++) x->batch.entry[i] = NULL;
}

int lib_finish(lib_execution *x)
{
    record_event(x);
    for (int i = 0; i < x->batch.entries; i++)
        if (x->batch.entry[i]) lib_complete(x->batch.entry[i], 0, NULL);
    return x->step = NULL, 1;
}

int lib_result_memory(lib_execution *x, int i, int64_t rows, char **out)
{
    lib_entry *entry = x->batch.entry[i];
    const kolo_request *r = &entry->r;
    void *memory = r->out;
    const size_t bytes = rows < 0 ? lib_request_bytes(r) : (size_t)rows * lib_row_bytes(r);
    kolo_output *o = &entry->output;
    o->dims = r->dims || rows < 0 ? r->dims : 1;
    memcpy(o->dim, r->dim, sizeof o->dim);
    if (rows >= 0) o->dim[0] = rows;
    if (!memory) KOLO_TRY(lib_entry_memory(entry, bytes, &memory));
    o->data = *out = memory;
    return 0;
}

/* ---- what is carried ----------------------------------------------------------------------------------- */

static int carry_nothing(lib_execution *x) { return x->step = lib_finish, 1; }

/* A row for every collective. */
static const lib_step carry[KOLO_COLLECTIVE_COUNT] = {
    [KOLO_ALLREDUCE] = lib_reduce_all, [KOLO_REDUCE_SCATTER] = lib_reduce_scatter,
    [KOLO_ALLGATHER] = lib_move,       [KOLO_BROADCAST] = lib_move,
    [KOLO_GATHER] = lib_move,          [KOLO_SCATTER] = lib_move,
    [KOLO_ALLTOALL] = lib_alltoall,    [KOLO_BARRIER] = carry_nothing,
    [KOLO_JOIN] = carry_nothing,       [KOLO_SPARSE_ALLREDUCE] = lib_sparse,
};

/* All members have brought the same, faults included. */
int lib_execute_batch(lib_execution *x)
{
    const lib_entry *first = x->batch.entry[0];
    char text[LIB_TEXT + 64];
    if (first && first->fault) {
        snprintf(text, sizeof text, "comm: %.200s: %s",
                 first->note ? first->note : comm_collective_name(first->r.what), first->fault);
        lib_fail_all(x, KOLO_EINPUT, text);
        return x->step = NULL, 1;
    }
    if (!first && !x->batch.stand_in) return x->step = NULL, 1;
    comm_router_report(x->group->world->router, phase_of(x), x->batch.number);
    if (x->batch.gpu) return x->step = lib_gpu_execute_batch, 1;
    return x->step = carry[lib_request(x, 0)->what], 1;
}
