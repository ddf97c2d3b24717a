/* Phases of a session: how its batch is cut, and the way from one to the next. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/compressed.h"
#include "kolo/error.h"
#include "train/parts.h"

int session_resolve_batch(kolo_session *s)
{
    const kolo_options *o = s->options;
    const kolo_phase *p = &s->phase[s->now];
    int64_t below = p->batch - p->batch % s->ranks, local = p->batch / s->ranks;
    if (p->batch != below)
        return kolo_fail(KOLO_ECONFIG, "batch=%ld cannot be divided over %d ranks; the nearest that can: %ld",
                         (long)p->batch, s->ranks, (long)(below ? below : s->ranks));
    if (!o->micro_batch && (o->bn == KOLO_bn_ghost || o->reduce == KOLO_reduce_canonical))
        return kolo_fail(KOLO_ECONFIG,
                         "%s needs micro_batch=N, the sample block whose statistics and gradients are formed together "
                         "(for example 32)",
                         o->bn == KOLO_bn_ghost ? "bn=ghost" : "reduce=canonical");
    s->rows = o->micro_batch ? o->micro_batch : local;
    if (local % s->rows)
        return kolo_fail(KOLO_ECONFIG,
                         "micro_batch=%ld does not divide the %ld pictures of a rank (batch=%ld on %d ranks)",
                         (long)s->rows, (long)local, (long)p->batch, s->ranks);
    if (local / s->rows > KOLO_MAX_SLOTS)
        return kolo_fail(KOLO_ECONFIG, "%ld micro-batches a step; at most %d: raise micro_batch",
                         (long)(local / s->rows), KOLO_MAX_SLOTS);
    s->slots = (int)(local / s->rows);
    if (p->size) s->height = s->width = p->size;
    return 0;
}

int session_lay_phases(kolo_session *s)
{
    kolo_options *o = s->options;
    free(s->phase);
    s->phase = NULL;
    KOLO_TRY(kolo_phases_parse(o, &s->phase, &s->phases));
    if (!(s->parts & KOLO_SESSION_TRAIN)) { /* nothing is trained: how that was cut does not matter */
        if (!o->batch) o->batch = s->ranks;
        s->phase[0].batch = o->batch;
        s->phases = 1;
    }
    s->samples = s->train_set ? kolo_dataset_get_info(s->train_set)->count : s->phase[0].batch * 64;
    s->val_samples = s->val_set ? kolo_dataset_get_info(s->val_set)->count : 0;
    if (*o->size_ramp && !o->val_size) { /* validation does not change within a run */
        if (s->height != s->width) return kolo_fail(KOLO_ECONFIG, "size_ramp is of square pictures, these are %ld x %ld: state size=", (long)s->width, (long)s->height);
        o->val_size = s->height;
    }
    for (int i = 0; i < s->phases && *o->size_ramp; i++)
        if (!s->phase[i].size) s->phase[i].size = s->height;
    if (s->phase[0].batch == 0) return 0; /* still to be chosen */
    KOLO_TRY(kolo_phases_lay(s->phase, s->phases, s->samples, o->tail == KOLO_tail_pad));
    const kolo_phase *last = &s->phase[s->phases - 1];
    if (!o->steps && o->epochs && last->epoch >= o->epochs)
        return kolo_fail(KOLO_ECONFIG, "a ramp names epoch %ld, and the run has %ld (counted from 0)", (long)last->epoch, (long)o->epochs);
    s->steps = o->steps ? o->steps : o->epochs ? last->step + (o->epochs - last->epoch) * last->steps_per_epoch : 0;
    for (s->now = s->phases - 1; s->now > 0; s->now--) KOLO_TRY(session_resolve_batch(s)); /* what cannot be is said before the run */
    return 0;
}

/* What goes over from one executor to the next, in host memory. */
typedef struct luggage {
    float *tensors;
    int64_t count;
    kolo_scaler scaler;
    void *carried;
    size_t carried_bytes;
} luggage;

static int pack(kolo_session *s, luggage *l)
{
    l->count = kolo_exec_snapshot_count(s->exec, true);
    l->tensors = kolo_alloc((size_t)(l->count + 1) * sizeof *l->tensors);
    l->carried_bytes = kolo_comm_carried_bytes(s->comm);
    l->carried = kolo_alloc(l->carried_bytes + 1);
    if (!l->tensors || !l->carried) return KOLO_ECONFIG;
    if (l->carried_bytes) kolo_comm_carried_save(s->comm, l->carried);
    KOLO_TRY(kolo_exec_get_scaler(s->exec, &l->scaler));
    return kolo_exec_snapshot_read(s->exec, true, l->tensors);
}

static int unpack(kolo_session *s, const luggage *l)
{
    if (kolo_exec_snapshot_count(s->exec, true) != l->count)
        return kolo_fail(KOLO_EINTERNAL, "the network of the next phase has other tensors");
    KOLO_TRY(kolo_exec_snapshot_write(s->exec, true, l->tensors));
    KOLO_TRY(kolo_exec_set_scaler(s->exec, &l->scaler));
    if (!l->carried_bytes) return 0;
    bool fits = kolo_comm_carried_bytes(s->comm) == l->carried_bytes && kolo_comm_carried_load(s->comm, l->carried) == 0;
    if (!fits) kolo_log0(KOLO_LOG_WARN, "gradients are cut another way from here on: what compression still held back is lost");
    return 0;
}

int kolo_session_enter(kolo_session *s, int phase)
{
    luggage l = {0};
    int rc;
    if (phase == s->now) return 0;
    KOLO_TRY_GOTO(rc, pack(s, &l));
    session_close_phase(s);
    s->now = phase;
    KOLO_TRY_GOTO(rc, session_open_phase(s));
    rc = unpack(s, &l);
fail:
    free(l.tensors);
    free(l.carried);
    return rc;
}
