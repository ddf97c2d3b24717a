#include "train/late.h"

#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"
#include "ops/detector.h"

/* What else decides how the gradients of a step come together, and why not beside late ones; *why. */
static const char *in_the_way(const kolo_session *s, const char **why)
{
    const kolo_options *o = s->options;
    *why = "ranks form steps of their own";
    if (kolo_is_adasum(o)) return "reduce=adasum";
    if (kolo_is_local(o)) return o->swap > 0 ? "swap=" : "local_steps=";
    *why = "what it holds back belongs to the next step's sum, and several are under way";
    if (o->compression != KOLO_compression_none) return "compression=";
    *why = "ranks wait for each other in every norm, so that nothing is gained";
    if (o->bn == KOLO_bn_sync) return "bn=sync";
    *why = "the scale follows the newest gradients, and those are applied later";
    if (o->loss_scale > 0 || o->precision == KOLO_precision_fp16) return "loss scaling";
    *why = "it measures gradients of one version of the weights";
    if (o->noise_scale) return "noise_scale=true";
    *why = "parts of gradients have one place, and late ones need several";
    if (o->shard != KOLO_shard_none) return "shard=";
    if (o->offload != KOLO_offload_none && o->offload != KOLO_offload_activations)
        return "offload= of the optimizer or parameters";
    *why = "pipeline= has late weights of its own kind";
    if (s->grid.stages > 1 || o->chunks > 1)
        return o->tensor > 1 ? "tensor=" : s->across > 1 ? "spatial=" : "stages=";
    *why = "statistics are formed anew when nothing is under way";
    return o->swa > 0 ? "swa=" : NULL;
}

int session_check_late(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const char *why;
    if (!(s->parts & KOLO_SESSION_TRAIN)) return 0;
    if (o->sync == KOLO_sync_synchronous && o->staleness)
        return kolo_fail(
            KOLO_ECONFIG,
            "staleness=%ld: with sync=synchronous no gradient is late; give sync=stale, or leave "
            "staleness= out",
            (long)o->staleness);
    if (o->sync == KOLO_sync_synchronous) return 0;
    if (!o->staleness)
        return kolo_fail(KOLO_ECONFIG, "sync=stale: by how many updates? give staleness=1 to %d",
                         KOLO_MOST_LATE);
    const char *with = in_the_way(s, &why);
    if (!with) return 0;
    return kolo_fail(KOLO_ECONFIG, "sync=stale does not go with %s: %s; leave one of them out", with, why);
}

kolo_step trainer_step(const trainer *t, int64_t step, int64_t epoch)
{
    const kolo_session *s = &t->session;
    const kolo_options *o = t->options;
    const double time = kolo_phase_time(s->phase, s->phases, step),
                 end = kolo_phase_time(s->phase, s->phases, step + 1),
                 all = kolo_phase_time(s->phase, s->phases, s->steps),
                 unit = o->steps ? 1 : (double)s->phase[0].steps_per_epoch;
    const kolo_detector *detector = kolo_detector_find(s->detector);
    int64_t of, within;
    const int64_t batch = s->phase[kolo_session_at(s, step, &of, &within)].batch;
    return (kolo_step){.step = step,
                       .seed = (uint64_t)o->seed,
                       .epoch = epoch,
                       .l1 = detector && detector->l1 && epoch >= s->plain_epoch,
                       .lr = (float)(kolo_learning_rate(o, time, all, unit) * kolo_rate_scale(o, batch)),
                       .momentum = (float)kolo_momentum(o, time, all),
                       .weight_decay = (float)o->weight_decay,
                       .ema_decay = (float)kolo_ema_decay(o, step + 1, end, unit)};
}

int trainer_resume_late(trainer *t, const void *from)
{
    const kolo_session *s = &t->session;
    const int64_t most = kolo_late(t->options), now = t->position.step, steps = now < most ? now : most;
    kolo_step *under_way = kolo_alloc((size_t)(most + 1) * sizeof *under_way);
    if (!under_way) return KOLO_ENOMEM;
    for (int64_t i = 0; i < steps; i++) {
        int64_t step = now - steps + i, epoch, within;
        kolo_session_at(s, step, &epoch, &within);
        under_way[i] = trainer_step(t, step, epoch);
        *record_of(t, step) =
            (step_record){.step = step, .epoch = epoch, .lr = (double)under_way[i].lr, .comm = -1};
        t->unreported++;
    }
    const int rc = kolo_exec_late_write(s->exec, under_way, (int)steps, from);
    free(under_way);
    return rc;
}

int trainer_flush(trainer *t)
{
    int rc;
    do rc = kolo_exec_flush(t->session.exec);
    while (rc > 0);
    return rc;
}
