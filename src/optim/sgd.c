/* SGD in torch's form: L2 decay, momentum with dampening, Nesterov. */
#include "optim/optim.h"

#include "optim/rules.h"
#include "base/wide.h"

enum { CHUNK = 1 << 14 }; /* elements one thread takes at a time: 4 arrays of 64 KiB */

typedef struct loop {
    kolo_rule_sgd rule;
    float clip, limit, ema_decay;
} loop;

/* One pass over gradient, parameter, buffer and average. `momentum` and `average` are constants where this is inlined. */
static inline __attribute__((always_inline)) void run(const loop *l, int64_t n, float *restrict w,
                                                      const float *restrict g, float *restrict b, float *restrict e,
                                                      bool momentum, bool average)
{
    const loop k = *l;
    for (int64_t i = 0; i < n; i++) {
        float d = kolo_rule_clip(g[i], k.clip, k.limit);
        w[i] = momentum ? kolo_rule_sgd_momentum(&k.rule, w[i], d, &b[i]) : kolo_rule_sgd_plain(&k.rule, w[i], d);
        if (average) e[i] = kolo_rule_ema(e[i], w[i], k.ema_decay);
    }
}

KOLO_WIDE static void run_chunk(const loop *l, int64_t n, float *w, const float *g, float *b, float *e)
{
    if (b && e) run(l, n, w, g, b, e, true, true);
    else if (b) run(l, n, w, g, b, e, true, false);
    else if (e) run(l, n, w, g, b, e, false, true);
    else run(l, n, w, g, b, e, false, false);
}

void kolo_sgd_update(const kolo_slice *slice, const kolo_options *options, const kolo_step *step)
{
    bool momentum = step->momentum != 0;
    const loop l = {
        .rule = kolo_rule_sgd_at(step->lr, slice->decay ? step->weight_decay : 0, step->momentum,
                                 (float)(1 - options->dampening), options->nesterov, step->first),
        .clip = step->clip,
        .limit = (float)options->clip_value,
        .ema_decay = step->ema_decay,
    };
#pragma omp parallel for schedule(static) if (slice->count > CHUNK)
    for (int64_t begin = 0; begin < slice->count; begin += CHUNK) {
        int64_t n = slice->count - begin < CHUNK ? slice->count - begin : CHUNK;
        run_chunk(&l, n, slice->param + begin, slice->grad + begin, momentum ? slice->state[0] + begin : NULL,
                  slice->ema ? slice->ema + begin : NULL);
    }
}
