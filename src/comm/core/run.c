#include "comm/core/transport.h"

#include <stdlib.h>
#include <string.h>

enum { TILE = 512 }; /* elements */

static size_t width_of(const comm_run *run, comm_place place)
{
    return !run->schedule->half ? run->width : place.buffer == COMM_SCRATCH ? sizeof(float) : 2;
}

static char *address(const comm_run *run, comm_place place)
{
    return run->buffer[place.buffer == COMM_RAW ? COMM_SCRATCH : place.buffer] +
           (size_t)place.at * width_of(run, place);
}

/* ---- between 16 bits and f32 --------------------------------------------------------------------------- */

static bool narrow(const comm_run *run, comm_place place)
{
    return run->schedule->half && place.buffer != COMM_SCRATCH;
}

static void widen(const comm_run *run, float *out, const void *in, int64_t count)
{
    comm_widen(out, in, count, run->half->type);
    if (run->half->prescale != 1) comm_scale(out, out, count, KOLO_F32, 1, run->half->prescale);
}

/* Elements of a place as f32: where they are, or in the tile. */
static const float *floats(const comm_run *run, comm_place place, int64_t first, int64_t count,
                           float tile[TILE])
{
    place.at += first;
    if (!narrow(run, place)) return (const float *)(void *)address(run, place);
    widen(run, tile, address(run, place), count);
    return tile;
}

/* Tile by tile from the start, so that 16-bit elements may end where the sums do (comm_build_slot). */
static void combine_half(const comm_run *run, const comm_action *a)
{
    float left[TILE], right[TILE], *out = (float *)(void *)address(run, a->out);
    for (int64_t first = 0; first < a->count; first += TILE) {
        int64_t count = a->count - first < TILE ? a->count - first : TILE;
        run->combine(out + first, floats(run, a->left, first, count, left),
                     floats(run, a->right, first, count, right), count);
    }
}

static void copy_half(const comm_run *run, const comm_action *a)
{
    float tile[TILE];
    for (int64_t first = 0; first < a->count; first += TILE) {
        int64_t count = a->count - first < TILE ? a->count - first : TILE;
        if (narrow(run, a->left)) {
            widen(run, (float *)(void *)address(run, a->out) + first, address(run, a->left) + 2 * first,
                  count);
            continue;
        }
        comm_scale(tile, (float *)(void *)address(run, a->left) + first, count, KOLO_F32, run->half->divisor,
                   run->half->postscale);
        comm_narrow(address(run, a->out) + 2 * first, tile, count, run->half->type);
    }
}

static void run_copy(const comm_run *run, const comm_action *a)
{
    if (narrow(run, a->out) != narrow(run, a->left)) copy_half(run, a);
    else memmove(address(run, a->out), address(run, a->left), (size_t)a->count * width_of(run, a->out));
}

static void combine(const comm_run *run, const comm_action *a)
{
    if (run->schedule->half) combine_half(run, a);
    else run->combine(address(run, a->out), address(run, a->left), address(run, a->right), a->count);
}

void comm_schedule_forget(comm_schedule *schedule)
{
    for (comm_memory *before; schedule->memory; schedule->memory = before) {
        before = schedule->memory->before;
        free(schedule->memory);
    }
}

void comm_schedule_free(comm_schedule *schedule)
{
    comm_schedule_forget(schedule);
    free(schedule->action);
    *schedule = (comm_schedule){0};
}

int comm_run_poll(comm_run *run)
{
    const comm_transport *t = run->transport;
    while (run->at < run->schedule->actions) {
        const comm_action *a = &run->schedule->action[run->at];
        int rc = 1;
        switch (a->kind) {
        case COMM_SEND:
        case COMM_RECEIVE: {
            const bool sends = a->kind == COMM_SEND;
            const comm_place at = sends ? a->left : a->out;
            rc = t->post(run->lane, sends, run->rank_of[a->peer], run->tag, address(run, at),
                         (size_t)a->count * width_of(run, at));
            break;
        }
        case COMM_COMBINE: combine(run, a); break;
        case COMM_COPY: run_copy(run, a); break;
        case COMM_CALL: rc = run->schedule->call(run->schedule->context, run, a); break;
        case COMM_WAIT:
            rc = t->done(run->lane, a->count);
            if (rc == 0) return 0;
            break;
        }
        if (rc < 0) return rc;
        run->at++;
    }
    return 1;
}
