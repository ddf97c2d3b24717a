#include "train/forms.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/stash.h"
#include "train/parts.h"
#include "train/recompute.h"

static bool offloads_activations(const kolo_options *o)
{
    return o->offload == KOLO_offload_activations || o->offload == KOLO_offload_all;
}

/* By an option other than stash=auto. */
static bool are_given(const kolo_options *o)
{
    return o->recompute != KOLO_recompute_none || o->stash > KOLO_stash_none || offloads_activations(o);
}

/* stash=auto, and nothing else says how activations wait. Pipelines whose weights are late have none but
 * activations as they are; a GPU encodes nothing. */
static bool may_choose(const kolo_session *s)
{
    const kolo_options *o = s->options;
    return (s->parts & KOLO_SESSION_TRAIN) && o->stash == KOLO_stash_auto && !are_given(o) && !s->cuda &&
           !kolo_pipeline_is_late((enum kolo_pipeline)o->pipeline);
}

bool session_has_forms(const kolo_session *s)
{
    return (s->parts & KOLO_SESSION_TRAIN) && (are_given(s->options) || s->shape[0].encodable > 0);
}

/* ---- what goes together ---- */

/* The form that stash= has numbers rounded to; KOLO_FORM_KEPT: none. */
static enum kolo_form_kind rounded(const kolo_options *o)
{
    static const enum kolo_form_kind form[] = {[KOLO_stash_fp16] = KOLO_FORM_FP16,
                                               [KOLO_stash_bf16] = KOLO_FORM_BF16,
                                               [KOLO_stash_fp8] = KOLO_FORM_FP8};
    return o->stash > KOLO_stash_lossless ? form[o->stash] : KOLO_FORM_KEPT;
}

static const char *choice_of(const char *key, int value) { return kolo_option_find(key)->choices[value]; }

static int check_stash(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const char *stash = choice_of("stash", (int)o->stash);
    if (o->stash <= KOLO_stash_none) return 0;
    if (o->recompute != KOLO_recompute_none)
        return kolo_fail(
            KOLO_ECONFIG,
            "stash=%s and recompute=%s both say how activations wait for the gradients: take one of "
            "them (stash=lossless computes again what costs little)",
            stash, choice_of("recompute", (int)o->recompute));
    if (!rounded(o)) return 0;
    if (s->cuda)
        return kolo_fail(
            KOLO_ECONFIG,
            "stash=%s is for CPUs: on GPUs give precision=bf16 or fp16, whose activations have 16 "
            "bits, and stash=lossless",
            stash);
    if (!kolo_form_takes(rounded(o), session_dtype(s)))
        return kolo_fail(
            KOLO_ECONFIG,
            "stash=%s and precision=%s: activations have 16 bits already; give stash=lossless or fp8", stash,
            choice_of("precision", (int)o->precision));
    return 0;
}

static int check_offload(const kolo_session *s)
{
    const kolo_options *o = s->options;
    if (!offloads_activations(o) || (o->recompute == KOLO_recompute_none && !rounded(o))) return 0;
    return kolo_fail(KOLO_ECONFIG,
                     "offload=%s and %s=%s both say how activations wait for the gradients: take one of them "
                     "(stash=lossless goes with it)",
                     choice_of("offload", (int)o->offload), rounded(o) ? "stash" : "recompute",
                     rounded(o) ? choice_of("stash", (int)o->stash)
                                : choice_of("recompute", (int)o->recompute));
}

int session_open_forms(kolo_session *s)
{
    if (s->parts & KOLO_SESSION_TRAIN) {
        KOLO_TRY(check_stash(s));
        KOLO_TRY(check_offload(s));
    }
    for (int i = 0; may_choose(s) && i < s->shapes; i++)
        KOLO_TRY(kolo_stash_encodable(s->shape[i].graph, &s->shape[i].encodable));
    for (int i = 0; session_has_forms(s) && i < s->shapes; i++) {
        s->shape[i].form = kolo_alloc((size_t)s->shape[i].graph->tensors + 1);
        if (!s->shape[i].form) return KOLO_ENOMEM;
    }
    return 0;
}

/* ---- stash= and offload= ---- */

static void say(const kolo_session *s, const char *text)
{
    if (s->parts & KOLO_SESSION_QUIET) return;
    if (s->parts & KOLO_SESSION_PLAN_ONLY) printf("%s\n", text);
    else if (s->launch->rank == 0) kolo_info("%s", text);
}

static int report(const kolo_session *s, const kolo_plan *plain, const kolo_plan *plan, const char *what)
{
    static const char *const name[KOLO_FORMS] = {"kept",      "made again", "offloaded", "as signs",
                                                 "in 4 bits", "in fp16",    "in bf16",   "in fp8"};
    kolo_stashed did;
    char text[512];
    if (s->parts & KOLO_SESSION_QUIET) return 0;
    KOLO_TRY(kolo_plan_stashed(plan, &did));
    const bool offloads = offloads_activations(s->options);
    const int64_t given = s->options->stash,
                  stash = offloads && given == KOLO_stash_auto ? KOLO_stash_none : given;
    snprintf(text, sizeof text, "stash=%s%s%s: of %d activations", choice_of("stash", (int)stash),
             offloads ? " offload=activations" : "", what, did.activations);
    for (int f = 0; f < KOLO_FORMS; f++)
        if (did.of[f]) kolo_append(text, sizeof text, " %d %s,", did.of[f], name[f]);
    kolo_append(text, sizeof text, " %.1f of %.1f MiB in memory", did.waiting / 0x1p20, did.bytes / 0x1p20);
    if (did.offloaded > 0) kolo_append(text, sizeof text, ", %.1f MiB offloaded", did.offloaded / 0x1p20);
    const size_t own = plan->arena_bytes[KOLO_ARENA_ACTIVATION],
                 all = plain->arena_bytes[KOLO_ARENA_ACTIVATION];
    kolo_append(text, sizeof text, "; %d operations run again; arena of activations %zu bytes of %zu (%.3f)",
                did.operations, own, all, all ? (double)own / (double)all : 1); /* a stage may have none */
    say(s, text);
    return 0;
}

/* What stash=auto did and why, where that is asked: a training says no more than what it does. worth: NULL:
 * there is nothing to encode. */
static void report_worth(const kolo_session *s, const kolo_stash_worth *worth)
{
    static const char kept[] = "stash=auto: activations are kept as they are: ",
                      other[] = "; stash=lossless makes again what costs little";
    char text[384];
    if (!(s->parts & KOLO_SESSION_PLAN_ONLY) || s->trial) return;
    if (!worth)
        snprintf(text, sizeof text, "%sno gradient reads signs or places of maxima alone%s", kept, other);
    else if (worth->taken)
        snprintf(text, sizeof text,
                 "stash=auto: signs and 4 bits spare %.1f %% of the arena of activations, and take about "
                 "%.2f %% of a step",
                 100 * worth->spared, 100 * worth->price);
    else
        snprintf(text, sizeof text,
                 "%ssigns and 4 bits would spare %.1f %% of their arena, and take about %.2f %% of a step "
                 "(taken where they spare %.0f %% or more, and take %.0f %% or less)%s",
                 kept, 100 * worth->spared, 100 * worth->price, 100 * KOLO_STASH_SPARED,
                 100 * KOLO_STASH_PRICE, other);
    say(s, text);
}

/* Of the whole network: with stages too, so that what is rounded does not depend on them. */
static int stash(kolo_session *s, kolo_shape *shape)
{
    const kolo_options *o = s->options;
    if (o->stash == KOLO_stash_auto && !are_given(o)) {
        kolo_stash_worth worth;
        KOLO_TRY(kolo_stash_choose_free(shape->plan, shape->form, &worth));
        if (shape == s->shape) report_worth(s, &worth);
        return 0;
    }
    if (o->stash > KOLO_stash_none)
        KOLO_TRY(kolo_stash_choose(shape->plan, rounded(o), kolo_backend_encodes(s->backend), shape->form));
    if (!offloads_activations(o)) return 0;
    size_t budget = 0;
    KOLO_TRY(session_memory(s, &budget)); /* without it all that can go does */
    if (budget)
        KOLO_TRY(session_activation_budget(
            s, session_rank_bytes(s, 0) - shape->plan->arena_bytes[KOLO_ARENA_ACTIVATION], &budget));
    return kolo_stash_offload(shape->plan, budget, shape->form);
}

/* ---- a session ---- */

/* stash=auto declined: the plan stays what it is. */
static bool keeps_all(const kolo_session *s, const kolo_shape *shape)
{
    for (int64_t t = 0; t < shape->graph->tensors; t++)
        if (shape->form[t] != KOLO_FORM_KEPT) return false;
    return !are_given(s->options);
}

/* An evaluation works in the memory of the training's activations. */
static int make_room(kolo_session *s)
{
    const size_t bytes = s->eval_plan ? s->eval_plan->arena_bytes[KOLO_ARENA_ACTIVATION] : 0;
    for (int i = 0; i < s->shapes; i++)
        KOLO_TRY(kolo_plan_reserve(s->shape[i].plan, KOLO_ARENA_ACTIVATION, bytes));
    return 0;
}

/* In the place of the plans that keep everything. */
static int replace_plans(kolo_session *s)
{
    const bool recomputes = s->options->recompute != KOLO_recompute_none;
    kolo_plan **all = kolo_alloc((size_t)s->shapes * sizeof *all);
    int rc = all ? 0 : KOLO_ENOMEM;
    for (int i = 0; rc == 0 && i < s->shapes; i++)
        rc = kolo_plan_create_forms(&all[i], s->shape[i].plan, s->shape[i].form, i ? all[0] : NULL);
    if (rc == 0 && !recomputes && !s->trial && !s->forms_given) rc = report(s, s->shape[0].plan, all[0], "");
    for (int i = 0; rc == 0 && i < s->shapes; i++) {
        kolo_plan_destroy(&s->shape[i].plan);
        s->shape[i].plan = all[i];
        s->shape[i].scratch = kolo_plan_scratch(all[i]);
    }
    if (rc == 0) rc = kolo_plan_share(all, s->shapes);
    free(all);
    if (rc < 0) return rc;
    s->plan = s->shape[0].plan;
    return make_room(s);
}

int session_choose_forms(kolo_session *s)
{
    const bool recomputes = s->options->recompute != KOLO_recompute_none;
    if (!session_has_forms(s) && may_choose(s)) report_worth(s, NULL);
    if (!session_has_forms(s)) return 0;
    for (int i = 0; !s->forms_given && i < s->shapes; i++)
        KOLO_TRY(recomputes ? session_recompute(s, &s->shape[i]) : stash(s, &s->shape[i]));
    bool kept = true;
    for (int i = 0; i < s->shapes; i++) kept = kept && keeps_all(s, &s->shape[i]);
    return kept ? 0 : replace_plans(s);
}

/* ---- stages ---- */

static int report_stage(const kolo_session *s, const kolo_shape *shape, const kolo_plan *formed, int stage)
{
    kolo_plan *plain = NULL, *plan = NULL;
    char what[32];
    snprintf(what, sizeof what, ", stage %d", stage);
    int rc = kolo_plan_create_stage(&plain, shape->plan, shape->placement, stage, NULL);
    if (rc == 0) rc = kolo_plan_create_stage(&plan, formed, shape->placement, stage, NULL);
    if (rc == 0) rc = report(s, plain, plan, what);
    kolo_plan_destroy(&plain);
    kolo_plan_destroy(&plan);
    return rc;
}

int session_choose_stage_forms(kolo_session *s, kolo_shape *shape)
{
    const bool recomputes = s->options->recompute != KOLO_recompute_none;
    kolo_plan *formed = NULL;
    if (!session_has_forms(s) && may_choose(s) && shape == s->shape) report_worth(s, NULL);
    if (!session_has_forms(s)) return 0;
    if (!s->forms_given) KOLO_TRY(recomputes ? session_recompute_stages(s, shape) : stash(s, shape));
    if (keeps_all(s, shape)) return 0;
    int rc = kolo_plan_create_forms(&formed, shape->plan, shape->form, NULL);
    for (int k = 0;
         rc == 0 && !recomputes && !s->forms_given && !s->trial && shape == s->shape && k < s->grid.stages;
         k++)
        rc = report_stage(s, shape, formed, k);
    kolo_plan_destroy(&shape->plan);
    shape->plan = formed;
    return rc;
}
