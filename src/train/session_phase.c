/* Phases of a session: how their batches are cut, and the way from one to the next. */
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "train/async.h"
#include "train/parts.h"

int session_cut(const kolo_session *s, int phase, int64_t *rows, int *slots)
{
    const kolo_options *o = s->options;
    const kolo_phase *p = &s->phase[phase];
    const int ranks = kolo_session_workers(s);
    int64_t below = p->batch - p->batch % ranks, local = p->batch / ranks;
    if (p->batch != below)
        return kolo_fail(
            KOLO_ECONFIG, "batch=%ld cannot be divided over %d ranks%s; the nearest that can: %ld",
            (long)p->batch, ranks, ranks < s->replicas ? " that train" : "", (long)(below ? below : ranks));
    if (!o->micro_batch && (o->bn == KOLO_bn_ghost || o->reduce == KOLO_reduce_canonical))
        return kolo_fail(
            KOLO_ECONFIG,
            "%s needs micro_batch=N, the sample block whose statistics and gradients are formed together "
            "(for example 32)",
            o->bn == KOLO_bn_ghost ? "bn=ghost" : "reduce=canonical");
    *rows = o->micro_batch ? o->micro_batch : local;
    if (local % *rows)
        return kolo_fail(KOLO_ECONFIG,
                         "micro_batch=%ld does not divide the %ld images of a rank (batch=%ld on %d ranks)",
                         (long)*rows, (long)local, (long)p->batch, ranks);
    if (local / *rows > KOLO_MAX_SLOTS)
        return kolo_fail(KOLO_ECONFIG, "%ld micro-batches a step; at most %d: raise micro_batch",
                         (long)(local / *rows), KOLO_MAX_SLOTS);
    *slots = (int)(local / *rows);
    return 0;
}

int session_resolve_batch(kolo_session *s) { return session_cut(s, s->now, &s->rows, &s->slots); }

int session_largest(const kolo_session *s)
{
    int largest = 0;
    bool stated = false;
    for (int i = 0; i < s->phases; i++) {
        const int high = s->phase[i].sides.high, side = high ? high : (int)s->height;
        stated |= high > 0;
        if (side > largest) largest = side;
    }
    return stated ? largest : 0;
}

/* Rank 0's word: another node may have a folder of its own under this name, reported later. */
int session_position(const kolo_session *s, kolo_position *position)
{
    typedef struct word {
        int64_t found;
        kolo_position position;
    } word;
    if (!*s->options->run || !(s->parts & KOLO_SESSION_TRAIN) ||
        (s->parts & (KOLO_SESSION_PLAN_ONLY | KOLO_SESSION_DATA_ONLY)))
        return 0;
    word mine = {0}, *all = kolo_alloc((size_t)s->launch->size * sizeof *all);
    int rc = all ? 0 : KOLO_ENOMEM, found = 0;
    if (s->launch->rank == 0) mine.found = found = kolo_checkpoint_position(s->options->run, &mine.position);
    if (found < 0) rc = found; /* whose text stands; the job ends with it */
    if (rc == 0) rc = kolo_launch_exchange(s->launch, &mine, sizeof mine, all);
    if (rc == 0) {
        *position = all[0].position;
        rc = (int)all[0].found;
    }
    free(all);
    return rc;
}

/* The first phase, or the one in which the run is taken up again. */
static int find_phase(kolo_session *s)
{
    kolo_position position;
    int64_t epoch, within;
    s->now = 0;
    if (s->phases == 1) return 0;
    const int found = session_position(s, &position);
    KOLO_TRY(found);
    if (found) s->now = kolo_session_at(s, position.step, &epoch, &within);
    return 0;
}

int session_lay_phases(kolo_session *s)
{
    kolo_options *o = s->options;
    free(s->phase);
    s->phase = NULL;
    KOLO_TRY(kolo_phases_parse(o, &s->phase, &s->phases));
    if (!(s->parts & KOLO_SESSION_TRAIN)) { /* nothing is trained: how that was cut does not matter */
        const int64_t rows = o->micro_batch ? o->micro_batch : o->batch / s->replicas;
        s->phase[0] = (kolo_phase){.batch = o->batch = (rows ? rows : 1) * s->replicas};
        s->phases = 1;
    }
    s->samples = s->train_set                                     ? kolo_dataset_get_info(s->train_set)->count
                 : (s->parts & KOLO_SESSION_NO_DATA) && o->images ? o->images
                                                                  : s->phase[0].batch * 64;
    s->val_samples = s->val_set ? kolo_dataset_get_info(s->val_set)->count : 0;
    if (s->height != s->width && session_largest(s))
        return kolo_fail(KOLO_ECONFIG,
                         "size_ramp and multi_scale are of square images, these are %ld x %ld: state size=",
                         (long)s->width, (long)s->height);
    if (s->phase[0].batch == 0) return 0; /* still to be chosen */
    KOLO_TRY(kolo_phases_lay(s->phase, s->phases, s->samples, o->tail == KOLO_tail_pad));
    const kolo_phase *last = &s->phase[s->phases - 1];
    if (!o->steps && o->epochs && last->epoch >= o->epochs)
        return kolo_fail(KOLO_ECONFIG, "a ramp names epoch %ld, and the run has %ld (counted from 0)",
                         (long)last->epoch, (long)o->epochs);
    s->steps = o->steps    ? o->steps
               : o->epochs ? last->step + (o->epochs - last->epoch) * last->steps_per_epoch
                           : 0;
    int64_t end, within;
    kolo_session_at(s, s->steps > 0 ? s->steps - 1 : 0, &end, &within);
    s->plain_epoch = end + 1 - o->close_mosaic;
    s->eval_rows = 0;
    for (int i = 0; i < s->phases; i++) { /* what cannot be is said before the run */
        int64_t rows;
        int slots;
        KOLO_TRY(session_cut(s, i, &rows, &slots));
        if (!s->eval_rows || rows < s->eval_rows) s->eval_rows = rows;
    }
    return find_phase(s);
}

int kolo_session_enter(kolo_session *s, int phase)
{
    if (phase == s->now) return 0;
    s->now = phase;
    KOLO_TRY(session_resolve_batch(s));
    return session_renew_loader(s);
}
