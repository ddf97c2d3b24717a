#include "train/late.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kolo/error.h"

static const char *sync_name(const kolo_options *o) { return kolo_option_find("sync")->choices[o->sync]; }

/* What else decides how the gradients of a step come together, and why not beside this; NULL: it may. */
typedef struct refusal {
    bool given;
    const char *name, *stale, *backup, *async;
} refusal;

static const char *why_not(const refusal *r, int sync)
{
    return sync == KOLO_sync_stale ? r->stale : sync == KOLO_sync_backup ? r->backup : r->async;
}

static int check_together(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const char *parts = o->tensor > 1 ? "tensor=" : s->across > 1 ? "spatial=" : "stages=";
    const char *shuffle = o->shuffle ? o->shuffle : "";
    const refusal refused[] = {
        {kolo_is_adasum(o), "reduce=adasum", "ranks form steps of their own", "ranks form steps of their own",
         "it combines the steps of all ranks, and none waits for another"},
        {kolo_is_local(o),
         o->tournament ? "tournament="
         : o->swap > 0 ? "swap="
                       : "local_steps=",
         "ranks form steps of their own", "ranks form steps of their own",
         "there ranks have weights of their own, here all have those of the servers"},
        {o->compression != KOLO_compression_none,
         "compression=", "what it holds back belongs to the next step's sum, and several are under way",
         "what it holds back of a rank would be lost with the gradients that are dropped",
         "it is of sums over ranks, and none are formed"},
        {o->bn == KOLO_bn_sync, "bn=sync",
         "ranks wait for each other in every norm, so that nothing is gained",
         "ranks wait for each other in every norm, so that nothing is gained",
         "ranks would wait for each other in every norm"},
        {o->loss_scale > 0 || o->precision == KOLO_precision_fp16, "loss scaling",
         "the scale follows the newest gradients, and those are applied later",
         "the mean over the ranks that count is formed by that scale",
         "the scale follows the gradients of all ranks in every step"},
        {o->noise_scale, "noise_scale=true", "it measures gradients of one version of the weights",
         "it measures gradients of as many ranks in every step",
         "it measures gradients of one version of the weights"},
        {o->shard != KOLO_shard_none,
         "shard=", "parts of gradients have one place, and late ones need several",
         "ranks wait for the parts of one that lags",
         "those that serve the weights have a part of the state each"},
        {o->offload != KOLO_offload_none && o->offload != KOLO_offload_activations,
         "offload= of the optimizer or parameters",
         "parts of gradients have one place, and late ones need several",
         "its files hold up the steps that a rank which lags catches up by",
         "a server updates its part at any moment, not where the list of a step asks for it"},
        {s->grid.stages > 1 || o->chunks > 1, parts, "pipeline= has late weights of its own kind",
         "the parts of a network wait for each other within a step",
         "the parts of a network wait for each other within a step"},
        {o->reduce == KOLO_reduce_canonical, "reduce=canonical", NULL,
         "it promises the same bits on any number of ranks, and here it matters which ranks were first",
         "it promises the same bits on any number of ranks, and here it matters which rank is first"},
        {o->swa > 0, "swa=", "statistics are formed anew when nothing is under way",
         "statistics are formed anew from the batches of all ranks",
         "statistics are formed anew from the batches of all ranks"},
        {!strncmp(shuffle, "local", 5), "shuffle=local", NULL, NULL,
         "any rank may get any rows of a batch, so that none owns samples"},
        {o->data_server && *o->data_server, "data_server=", NULL, NULL,
         "it serves the rows of a rank in the order of steps, and any rank may get any rows"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const char *why = why_not(&refused[i], o->sync);
        if (refused[i].given && why)
            return kolo_fail(KOLO_ECONFIG, "sync=%s does not go with %s: %s; leave one of them out",
                             sync_name(o), refused[i].name, why);
    }
    return 0;
}

static int check_staleness(const kolo_options *o)
{
    if (o->staleness_lr && o->sync != KOLO_sync_async)
        return kolo_fail(KOLO_ECONFIG,
                         "staleness_lr=true: with sync=%s all gradients are as late as another; give "
                         "sync=async, or leave it out",
                         sync_name(o));
    if (o->sync == KOLO_sync_async || o->staleness <= KOLO_MOST_LATE) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "staleness=%ld: sync=%s keeps as many copies of the gradients, %d at most; give less",
                     (long)o->staleness, sync_name(o), KOLO_MOST_LATE);
}

static int check_backup(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (o->sync != KOLO_sync_backup && (o->backup || *o->backup_replay))
        return kolo_fail(
            KOLO_ECONFIG,
            "%s: with sync=%s the gradients of all ranks count; give sync=backup, or leave it out",
            o->backup ? "backup=" : "backup_replay=", sync_name(o));
    if (o->sync == KOLO_sync_backup && o->backup >= s->ranks)
        return kolo_fail(
            KOLO_ECONFIG,
            "backup=%ld of %d rank%s: the gradients of at least one must count; give backup=%d or "
            "less, or start more ranks",
            (long)o->backup, s->ranks, s->ranks > 1 ? "s" : "", s->ranks - 1);
    return 0;
}

static int check_servers(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!o->servers) return 0;
    if (o->sync != KOLO_sync_async)
        return kolo_fail(
            KOLO_ECONFIG,
            "servers=%ld: with sync=%s no rank serves the weights to others; give sync=async, or "
            "leave servers= out",
            (long)o->servers, sync_name(o));
    if (o->servers < s->ranks) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "servers=%ld of %d rank%s: servers do not train, and at least one rank must; give "
                     "servers=%d or less, start more ranks, or leave servers= out: then every rank does both",
                     (long)o->servers, s->ranks, s->ranks > 1 ? "s" : "", s->ranks - 1);
}

int session_check_late(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!(s->parts & KOLO_SESSION_TRAIN)) return 0;
    if (o->sync == KOLO_sync_synchronous && o->staleness)
        return kolo_fail(
            KOLO_ECONFIG,
            "staleness=%ld: with sync=synchronous no gradient is late; give sync=stale, or leave "
            "staleness= out",
            (long)o->staleness);
    KOLO_TRY(check_backup(s));
    KOLO_TRY(check_servers(s));
    KOLO_TRY(check_staleness(o));
    if (o->sync == KOLO_sync_synchronous) return 0;
    if (o->sync == KOLO_sync_stale && !o->staleness)
        return kolo_fail(KOLO_ECONFIG, "sync=stale: by how many updates? give staleness=1 to %d",
                         KOLO_MOST_LATE);
    return check_together(s);
}

int session_check_late_device(const kolo_session *s)
{
    const int sync = s->options->sync;
    if (!(s->parts & KOLO_SESSION_TRAIN) || !(s->cuda || s->gpu)) return 0;
    if (sync != KOLO_sync_backup && sync != KOLO_sync_async) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "sync=%s does not go with device=cuda: %s; give device=cpu, or leave sync= out",
                     sync_name(s->options),
                     sync == KOLO_sync_backup ? "what a GPU has begun it cannot leave out any more"
                                              : "weights are served from host memory");
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
