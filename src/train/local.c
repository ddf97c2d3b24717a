#include "train/local.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "optim/outer.h"
#include "kolo/error.h"

/* ---- what goes together ---- */

static int check_alone(const kolo_options *o)
{
    const char *idle = o->local_start > 0                               ? "local_start"
                       : o->local_nodes                                 ? "local_nodes"
                       : o->local_momentum != KOLO_local_momentum_local ? "local_momentum"
                       : o->local_outer != KOLO_local_outer_none        ? "local_outer"
                                                                        : NULL;
    if (!idle || o->local_steps) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "%s= says how local steps are averaged, and there are none: give "
                     "local_steps=, or leave %s= out",
                     idle, idle);
}

/* The first option set that local steps exclude, or NULL; *why: the reason, for the message. */
static const char *conflicting_option(const kolo_session *s, const char **why)
{
    const kolo_options *o = s->options;
    *why = "gradients of all ranks are summed in every step";
    if (o->compression != KOLO_compression_none) return "compression=";
    if (o->noise_scale) return "noise_scale=true";
    if (kolo_is_adasum(o)) return "reduce=adasum";
    *why = "every step is of all ranks together";
    if (o->bn == KOLO_bn_sync) return "bn=sync";
    if (o->loss_scale > 0 || o->precision == KOLO_precision_fp16) return "loss scaling";
    *why = "the ranks' weights differ, so that their number decides what comes out";
    if (o->reduce == KOLO_reduce_canonical) return "reduce=canonical";
    *why = "every rank has weights and an optimizer of its own";
    if (o->shard != KOLO_shard_none) return "shard=";
    if (o->offload != KOLO_offload_none && o->offload != KOLO_offload_activations)
        return "offload= of the optimizer or parameters";
    *why = "replicas are single ranks";
    if (s->grid.stages > 1 || o->chunks > 1)
        return o->tensor > 1 ? "tensor=" : s->across > 1 ? "spatial=" : "stages=";
    *why = "the average that is kept is that of the ranks";
    if (o->ema > 0) return "ema=";
    return o->swa > 0 ? "swa=" : NULL;
}

/* What an outer optimizer is given, and whether it can be one. */
static int check_outer(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const int kind = kolo_outer_kind(o);
    const char *name = kolo_option_find("local_outer")->choices[kind];
    const char *idle =
        o->local_outer_rate >= 0 && kind == KOLO_local_outer_none ? "local_outer_rate"
        : o->local_outer_momentum >= 0 && (kind == KOLO_local_outer_none || kind == KOLO_local_outer_easgd)
            ? "local_outer_momentum"
            : NULL;
    if (idle)
        return kolo_fail(KOLO_ECONFIG, "%s= is not read with local_outer=%s: leave it out, or give %s", idle,
                         name, "local_outer=slowmo or nesterov");
    if (kind == KOLO_local_outer_none) return 0;
    if (kind != o->local_outer && o->local_outer != KOLO_local_outer_none)
        return kolo_fail(
            KOLO_ECONFIG,
            "local_momentum=global is local_outer=slowmo, and local_outer=%s is given: leave one "
            "of them out",
            kolo_option_find("local_outer")->choices[o->local_outer]);
    const double centre = (double)kolo_outer_of(o, s->replicas).centre;
    if (kind == KOLO_local_outer_easgd && centre > 1 + 1e-6)
        return kolo_fail(
            KOLO_ECONFIG,
            "local_outer=easgd with local_outer_rate=%g on %d ranks: the centre would go %g times "
            "as far as the ranks' mean; give at most %g",
            o->local_outer_rate, s->replicas, centre, 1.0 / s->replicas);
    return 0;
}

int session_check_local(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const char *why;
    KOLO_TRY(check_alone(o));
    if (!kolo_is_local(o) || !(s->parts & KOLO_SESSION_TRAIN)) return 0;
    const char *key = o->tournament ? "tournament" : o->swap > 0 ? "swap" : "local_steps";
    if (o->tournament && (o->swap > 0 || o->local_steps))
        return kolo_fail(
            KOLO_ECONFIG,
            "tournament=%ld lets the better network of two go on, %s= forms the mean of all: take "
            "one of them",
            (long)o->tournament, o->swap > 0 ? "swap" : "local_steps");
    if (o->local_steps && o->swap > 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "local_steps=%ld averages every so many steps, swap=%g at the end alone: take one of them",
            (long)o->local_steps, o->swap);
    if (o->local_nodes && (o->local_nodes % o->local_steps || o->local_nodes == o->local_steps))
        return kolo_fail(KOLO_ECONFIG,
                         "local_nodes=%ld: all ranks average after so many steps, those of a node after "
                         "local_steps=%ld: give a multiple of it, or leave local_nodes= out",
                         (long)o->local_nodes, (long)o->local_steps);
    KOLO_TRY(check_outer(s));
    const char *with = conflicting_option(s, &why);
    if (!with) return 0;
    return kolo_fail(KOLO_ECONFIG, "%s= does not go with %s: %s; leave one of them out", key, with, why);
}

/* ---- plans ---- */

static int share_plans(kolo_session *s)
{
    kolo_plan **all = kolo_alloc((size_t)(s->shapes * KOLO_EXCHANGES) * sizeof *all);
    int n = 0, rc = all ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < s->shapes; i++) all[n++] = s->shape[i].plan;
    for (int i = 0; rc == 0 && i < s->shapes; i++)
        for (int x = 0; x < KOLO_EXCHANGES; x++)
            if (s->shape[i].exchange[x]) all[n++] = s->shape[i].exchange[x];
    if (rc == 0) rc = kolo_plan_share(all, n);
    free(all);
    return rc;
}

int session_make_exchanges(kolo_session *s)
{
    const kolo_options *o = s->options;
    if (s->plan->config.outer && (s->cuda || s->gpu))
        return kolo_fail(
            KOLO_ECONFIG,
            "local_outer=%s and device=cuda: its step is done by the host, and a GPU replays what "
            "it has recorded; leave local_outer= out, or give device=cpu",
            kolo_option_find("local_outer")->choices[s->plan->config.outer]);
    if (!s->plan->config.local || s->replicas == 1 || s->plan->config.group > 1) return 0;
    for (int i = 0; i < s->shapes; i++)
        for (int x = KOLO_EXCHANGE_NOTHING; x < KOLO_EXCHANGES; x++) {
            if (x == KOLO_EXCHANGE_NODE && !o->local_nodes) continue;
            if (x == KOLO_EXCHANGE_WEIGHTS && o->tournament) continue;
            KOLO_TRY(
                kolo_plan_create_exchange(&s->shape[i].exchange[x], s->shape[i].plan, (enum kolo_exchange)x));
        }
    return share_plans(s);
}

/* ---- when ---- */

int64_t kolo_local_start(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!kolo_is_local(o)) return INT64_MAX;
    const double unit = o->steps ? 1 : (double)s->phase[0].steps_per_epoch,
                 begin = (o->swap > 0 ? o->swap : o->local_start) * unit;
    int64_t low = 0, high = s->steps;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (kolo_phase_time(s->phase, s->phases, middle) >= begin) high = middle;
        else low = middle + 1;
    }
    return low;
}

enum kolo_exchange kolo_local_exchange(const kolo_options *o, int64_t start, int64_t step, int64_t steps)
{
    const int64_t alone = step - start + 1;
    if (!kolo_is_local(o) || alone < 1) return KOLO_EXCHANGE_GRADIENTS;
    if (o->tournament) return o->tournament_group > 1 ? KOLO_EXCHANGE_GRADIENTS : KOLO_EXCHANGE_NOTHING;
    if (step == steps - 1) return KOLO_EXCHANGE_WEIGHTS;
    if (o->swap > 0 || alone % o->local_steps) return KOLO_EXCHANGE_NOTHING;
    return o->local_nodes && alone % o->local_nodes ? KOLO_EXCHANGE_NODE : KOLO_EXCHANGE_WEIGHTS;
}
