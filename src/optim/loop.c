#include "optim/loop.h"

loop kolo_loop_of(const kolo_slice *slice, const kolo_options *o, const kolo_step *step)
{
    int64_t done = kolo_step_updates(step);
    loop l = {.clip = step->clip,
              .limit = (float)o->clip_value,
              .ema_decay = step->ema_decay,
              .delta = slice->delta};
    if (o->lookahead <= 0) return l;
    bool late = o->lookahead_start == KOLO_lookahead_start_first_sync;
    l.slow_now = (done + 1) % o->lookahead == 0;
    l.slow_rate = late && done + 1 == o->lookahead ? 1 : (float)o->lookahead_rate;
    l.slow_begin = done == 0;
    return l;
}

static loop_rows rows_of(const kolo_slice *s, int64_t at, int states)
{
    loop_rows r = {.w = s->param + at,
                   .g = s->grad + at,
                   .ema = s->ema ? s->ema + at : NULL,
                   .slow = s->slow ? s->slow + at : NULL};
    for (int i = 0; i < states; i++) r.state[i] = s->state[i] + at;
    return r;
}

void kolo_loop_update(const kolo_slice *slice, const loop *l, const void *rule, int used, loop_run run)
{
#pragma omp parallel for schedule(static) if (slice->count > LOOP_CHUNK)
    for (int64_t begin = 0; begin < slice->count; begin += LOOP_CHUNK) {
        loop_rows rows = rows_of(slice, begin, used);
        run(l, rule, used, &rows, slice->count - begin < LOOP_CHUNK ? slice->count - begin : LOOP_CHUNK);
    }
}

void kolo_loop_measure(const kolo_slice *slice, const loop *l, const void *rule, loop_measure measure,
                       double *sum)
{
    const int64_t leaves = kolo_leaves(slice->count);
    int states = 0;
    while (states < LOOP_STATES && slice->state[states]) states++;
#pragma omp parallel for schedule(static) if (leaves > 1)
    for (int64_t leaf = 0; leaf < leaves; leaf++) {
        const loop_rows rows = rows_of(slice, leaf * KOLO_LEAF, states);
        const int64_t n = slice->count - leaf * KOLO_LEAF;
        double two[2] = {0, 0};
        measure(l, rule, &rows, n < KOLO_LEAF ? n : KOLO_LEAF, two);
        sum[2 * leaf] = two[0];
        sum[2 * leaf + 1] = two[1];
    }
}
