/* The host's pass over a slice: reads weight, gradient, state and averages, applies one rule of rules.h to
 * every element, and writes them back. */
#ifndef KOLO_OPTIM_LOOP_H
#define KOLO_OPTIM_LOOP_H

#include "base/wide.h"
#include "optim/optim.h"
#include "optim/rules.h"

enum { LOOP_STATES = 4, LOOP_CHUNK = 1 << 14 }; /* elements one thread takes at a time */

/* What does not depend on the rule. */
typedef struct loop {
    float clip, limit, ema_decay;
    float slow_rate; /* this step: slow += slow_rate (w - slow), w = slow */
    bool slow_begin, slow_now;
    bool delta; /* the step goes to where the gradient was, and nothing else moves but state */
} loop;

loop kolo_loop_of(const kolo_slice *slice, const kolo_options *options, const kolo_step *step);

typedef struct loop_rows {
    float *w, *g;
    float *state[LOOP_STATES], *ema, *slow;
} loop_rows;

/* n elements. used: states that the rule reads and writes in this step. */
typedef void (*loop_run)(const loop *l, const void *rule, int used, const loop_rows *rows, int64_t n);
/* Cuts the slice into chunks for threads. */
void kolo_loop_update(const kolo_slice *slice, const loop *l, const void *rule, int used, loop_run run);

/* The body; `used`, `average`, `slow` and `delta` are constants where this is inlined, so that the loop has
 * no branch and is vectorised. */
#define LOOP_BODY(TYPE, STEP, USED, AVERAGE, SLOW, DELTA)                                                  \
    do {                                                                                                   \
        const loop k = *l;                                                                                 \
        const TYPE r = *(const TYPE *)rule;                                                                \
        float *restrict w = rows->w, *restrict e = rows->ema, *restrict slow = rows->slow;                 \
        float *restrict g = rows->g;                                                                       \
        float *restrict s0 = rows->state[0], *restrict s1 = rows->state[1], *restrict s2 = rows->state[2]; \
        for (int64_t i = 0; i < n; i++) {                                                                  \
            float s[3] = {(USED) > 0 ? s0[i] : 0, (USED) > 1 ? s1[i] : 0, (USED) > 2 ? s2[i] : 0};         \
            float old = w[i], v = STEP(&r, old, kolo_rule_clip(g[i], k.clip, k.limit), s);                 \
            if ((USED) > 0) s0[i] = s[0];                                                                  \
            if ((USED) > 1) s1[i] = s[1];                                                                  \
            if ((USED) > 2) s2[i] = s[2];                                                                  \
            if (SLOW) slow[i] = kolo_rule_slow(k.slow_begin ? old : slow[i], &v, k.slow_rate, k.slow_now); \
            if (DELTA) g[i] = v - old;                                                                     \
            else w[i] = v;                                                                                 \
            if (AVERAGE) e[i] = kolo_rule_ema(e[i], v, k.ema_decay);                                       \
        }                                                                                                  \
    } while (0)

/* Defines a loop_run NAME for rules of TYPE. Its number of states is a constant, 0 to 3. */
#define LOOP_RUN(NAME, TYPE, STEP, USED)                                                           \
    KOLO_CLONES static void NAME(const loop *l, const void *rule, int used, const loop_rows *rows, \
                                 int64_t n)                                                        \
    {                                                                                              \
        (void)used;                                                                                \
        if (l->delta) {                                                                            \
            LOOP_BODY(TYPE, STEP, USED, false, false, true);                                       \
        } else if (rows->slow) {                                                                   \
            if (rows->ema) LOOP_BODY(TYPE, STEP, USED, true, true, false);                         \
            else LOOP_BODY(TYPE, STEP, USED, false, true, false);                                  \
        } else if (rows->ema) {                                                                    \
            LOOP_BODY(TYPE, STEP, USED, true, false, false);                                       \
        } else {                                                                                   \
            LOOP_BODY(TYPE, STEP, USED, false, false, false);                                      \
        }                                                                                          \
    }

/* ---- first passes of rules with a factor for every tensor ---- */

/* Adds the sums of squares of n elements of a first pass to sum[2], lane by lane, and may
 * bring state up to date. */
typedef void (*loop_measure)(const loop *l, const void *rule, const loop_rows *rows, int64_t n, double *sum);
/* All of a slice, leaf by leaf: to sum[2 * leaf], sum[2 * leaf + 1]. Leaves are cut for threads. */
void kolo_loop_measure(const kolo_slice *slice, const loop *l, const void *rule, loop_measure measure,
                       double *sum);

/* Defines a loop_measure: SQUARES(rule, w, g, state, &x, &y) gives the two numbers whose squares are
 * summed. */
#define LOOP_MEASURE(NAME, TYPE, SQUARES, USED)                                                        \
    KOLO_CLONES static void NAME(const loop *l, const void *rule, const loop_rows *rows, int64_t n,    \
                                 double *sum)                                                          \
    {                                                                                                  \
        enum { LANES = 8 };                                                                            \
        const loop k = *l;                                                                             \
        const TYPE r = *(const TYPE *)rule;                                                            \
        float *restrict s0 = rows->state[0], *restrict s1 = rows->state[1];                            \
        double x2[LANES] = {0}, y2[LANES] = {0};                                                       \
        for (int64_t at = 0; at < n; at += LANES) {                                                    \
            float x[LANES] = {0}, y[LANES] = {0};                                                      \
            int here = n - at < LANES ? (int)(n - at) : LANES;                                         \
            for (int j = 0; j < here; j++) {                                                           \
                int64_t i = at + j;                                                                    \
                float s[2] = {(USED) > 0 ? s0[i] : 0, (USED) > 1 ? s1[i] : 0};                         \
                SQUARES(&r, rows->w[i], kolo_rule_clip(rows->g[i], k.clip, k.limit), s, &x[j], &y[j]); \
                if ((USED) > 0) s0[i] = s[0];                                                          \
                if ((USED) > 1) s1[i] = s[1];                                                          \
            }                                                                                          \
            for (int j = 0; j < LANES; j++) {                                                          \
                x2[j] += (double)x[j] * (double)x[j];                                                  \
                y2[j] += (double)y[j] * (double)y[j];                                                  \
            }                                                                                          \
        }                                                                                              \
        for (int j = 0; j < LANES; j++) sum[0] += x2[j], sum[1] += y2[j];                              \
    }

#endif
