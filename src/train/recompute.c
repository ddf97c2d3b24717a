#include "train/recompute.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/recompute.h"
#include "train/parts.h"
#include "train/times.h"

enum { TRIES = 16, TIMES = 3 };

/* ---- memory= ---- */

static double unit_of(const char *text)
{
    static const struct {
        const char *name;
        double bytes;
    } unit[] = {{"", 1},         {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30},
                {"TiB", 0x1p40}, {"kB", 1e3}, {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12}};
    while (*text == ' ') text++;
    for (size_t i = 0; i < sizeof unit / sizeof *unit; i++)
        if (!strcmp(text, unit[i].name)) return unit[i].bytes;
    return 0;
}

int session_memory(const kolo_session *s, size_t *bytes)
{
    const char *text = s->options->memory;
    char *end;
    *bytes = 0;
    if (!*text) return 0;
    const double value = strtod(text, &end), unit = unit_of(end);
    const bool share = !strcmp(end, "%");
    if (end == text || !(value > 0) || (!share && unit == 0) || (share && value > 100) ||
        value * unit > 0x1p60)
        return kolo_fail(
            KOLO_ECONFIG,
            "memory=%s: give a number of bytes, one with KiB, MiB, GiB, TiB, kB, MB, GB or TB behind "
            "it, or a share of the memory that there is: memory=80%%",
            text);
    *bytes = (size_t)(share ? value / 100 * (double)session_rank_limit(s) : value * unit);
    return 0;
}

/* ---- one plan ---- */

typedef struct task {
    const kolo_session *session;
    const kolo_plan *plain;
    const double *seconds;
    size_t budget; /* of its activations */
    kolo_form *form;
    kolo_recompute *problem;
    kolo_plan *plan; /* with what is dropped */
    kolo_recompute_choice choice;
    bool fits;
} task;

static size_t activation_bytes(const kolo_plan *p) { return p->arena_bytes[KOLO_ARENA_ACTIVATION]; }

static int make(task *t)
{
    kolo_plan_destroy(&t->plan);
    return kolo_plan_create_forms(&t->plan, t->plain, t->form, NULL);
}

/* The choice counts bytes that are alive in one micro-batch; placement loses a little, and stages have
 * several under way: the budget goes down by what the plan is beyond it. */
static int fit(task *t)
{
    double budget = (double)t->budget;
    for (int i = 0; i < TRIES; i++) {
        const int rc = kolo_recompute_choose(t->problem, (int64_t)budget, t->form, &t->choice);
        if (rc) return rc;
        KOLO_TRY(make(t));
        if (activation_bytes(t->plan) <= t->budget) {
            t->choice.exact = t->choice.exact && i == 0;
            t->fits = true;
            return 0;
        }
        budget *= (double)t->budget / (double)activation_bytes(t->plan) * 0.9995;
    }
    return 1;
}

/* Keeps the least. */
static int drop_most(task *t)
{
    int64_t least;
    KOLO_TRY(kolo_recompute_least(t->problem, &least));
    KOLO_TRY(kolo_recompute_choose(t->problem, least, t->form, &t->choice));
    return make(t);
}

static int solve(task *t)
{
    const int how = t->session->options->recompute;
    KOLO_TRY(kolo_recompute_create(&t->problem, t->plain, t->seconds));
    if (how == KOLO_recompute_blocks) {
        KOLO_TRY(kolo_recompute_blocks(t->problem, t->form, &t->choice));
        return make(t);
    }
    if (how == KOLO_recompute_all) return drop_most(t);
    t->choice.exact = true;
    if (activation_bytes(t->plain) <= t->budget) return make(t);
    const int rc = fit(t);
    return rc == 1 ? drop_most(t) : rc; /* memory.c says what is lacking */
}

static int report(const task *t, const char *what)
{
    static const char *const name[] = {"none", "blocks", "all", "auto"};
    kolo_recomputed did;
    double bound = 0;
    KOLO_TRY(kolo_plan_recomputed(t->plan, t->seconds, &did));
    KOLO_TRY(kolo_recompute_bound(t->problem, (int64_t)t->budget, &bound));
    const double plain = did.all - did.seconds;
    char text[512];
    snprintf(
        text, sizeof text,
        "recompute=%s%s: %d of %d activations kept, %.1f of %.1f MiB; %d operations run again, %.3f ms of "
        "%.3f (%.1f %%) a micro-batch; arena of activations %zu bytes of %zu",
        name[t->session->options->recompute], what, did.kept, did.activations, did.kept_bytes / 0x1p20,
        did.bytes / 0x1p20, did.operations, did.seconds * 1e3, plain * 1e3,
        plain > 0 ? 100 * did.seconds / plain : 0, activation_bytes(t->plan), activation_bytes(t->plain));
    if (t->fits)
        kolo_append(text, sizeof text, "; %s, none could take less than %.3f ms",
                    t->choice.exact ? "the fastest of all cuts of the chain" : "near the fastest cut",
                    bound * 1e3);
    if (t->session->parts & KOLO_SESSION_QUIET) return 0;
    if (t->session->parts & KOLO_SESSION_PLAN_ONLY) printf("%s\n", text);
    else if (t->session->launch->rank == 0) kolo_info("%s", text);
    return 0;
}

static void close_task(task *t)
{
    kolo_recompute_destroy(&t->problem);
    kolo_plan_destroy(&t->plan);
}

/* ---- a session ---- */

/* The activations may take what the rest of a rank leaves. */
int session_activation_budget(const kolo_session *s, size_t rest, size_t *budget)
{
    KOLO_TRY(session_memory(s, budget));
    if (!*budget) *budget = session_rank_limit(s);
    *budget = *budget > rest ? *budget - rest : 0;
    return 0;
}

int session_recompute(kolo_session *s, kolo_shape *shape)
{
    const int times = shape == s->shape && !(s->parts & KOLO_SESSION_QUIET) ? TIMES : 1;
    double *seconds = kolo_alloc((size_t)(shape->graph->nodes + 1) * sizeof *seconds);
    task t = {.session = s, .plain = shape->plan, .seconds = seconds, .form = shape->form};
    int rc = seconds ? kolo_session_clock(s, shape->plan, times, seconds, NULL) : KOLO_ENOMEM;
    if (rc == 0)
        rc =
            session_activation_budget(s, session_rank_bytes(s, 0) - activation_bytes(shape->plan), &t.budget);
    if (rc == 0) rc = solve(&t);
    if (rc == 0 && !s->trial && shape == s->shape) rc = report(&t, "");
    close_task(&t);
    free(seconds);
    return rc;
}

/* ---- stages ---- */

/* Bytes that an evaluation takes beside the training's, of one stage. */
static int evaluation_bytes(const kolo_session *s, const kolo_shape *shape, const kolo_plan *plain,
                            size_t *bytes)
{
    kolo_placement *placement = NULL;
    kolo_plan *plan = NULL;
    *bytes = 0;
    if (!s->eval_plan) return 0;
    int rc = kolo_placement_like(&placement, s->eval_graph, shape->graph, shape->placement);
    if (rc == 0) rc = kolo_plan_create_stage(&plan, s->eval_plan, placement, plain->config.stage, plain);
    if (rc == 0) *bytes = kolo_exec_bytes(plan, plain);
    kolo_plan_destroy(&plan);
    kolo_placement_destroy(&placement);
    return rc;
}

static int choose_stage(kolo_session *s, kolo_shape *shape, const double *seconds, int stage)
{
    kolo_plan *plain = NULL;
    task t = {.session = s, .seconds = seconds, .form = shape->form};
    size_t evaluation = 0;
    char what[32];
    int rc = kolo_plan_create_stage(&plain, shape->plan, shape->placement, stage, NULL);
    if (rc == 0) rc = evaluation_bytes(s, shape, plain, &evaluation);
    if (rc == 0)
        rc = session_activation_budget(s,
                                       kolo_exec_bytes(plain, NULL) - activation_bytes(plain) + evaluation +
                                           session_beside_bytes(s, plain),
                                       &t.budget);
    t.plain = plain;
    if (rc == 0) rc = solve(&t);
    snprintf(what, sizeof what, ", stage %d", stage);
    if (rc == 0 && !s->trial && shape == s->shape) rc = report(&t, what);
    close_task(&t);
    kolo_plan_destroy(&plain);
    return rc;
}

int session_recompute_stages(kolo_session *s, kolo_shape *shape)
{
    /* those by which the network was cut, where this rank did so */
    const bool timed = s->node_seconds && shape->graph == s->graph;
    double *seconds =
        timed ? s->node_seconds : kolo_alloc((size_t)(shape->graph->nodes + 1) * sizeof *seconds);
    int rc = seconds ? 0 : KOLO_ENOMEM;
    if (rc == 0 && !timed) rc = kolo_session_clock(s, shape->plan, TIMES, seconds, NULL);
    for (int k = 0; rc == 0 && k < s->grid.stages; k++) rc = choose_stage(s, shape, seconds, k);
    if (!timed) free(seconds);
    return rc;
}

int session_recompute_least(const kolo_session *s, size_t *bytes)
{
    const kolo_plan *p = s->plan;
    const bool given = p->config.form && !s->shape[0].encodable; /* not by stash=auto alone */
    *bytes = 0;
    if (!(s->parts & KOLO_SESSION_TRAIN) || s->program || given) return 0;
    kolo_plan *plain = NULL;
    kolo_form *form = kolo_alloc((size_t)p->graph->tensors + 1);
    double *seconds = kolo_alloc((size_t)(p->graph->nodes + 1) * sizeof *seconds);
    task t = {.session = s, .seconds = seconds, .form = form};
    int rc = form && seconds ? kolo_plan_create_forms(&plain, p, NULL, NULL) : KOLO_ENOMEM;
    t.plain = plain;
    if (rc == 0) rc = kolo_recompute_create(&t.problem, plain, seconds);
    if (rc == 0) rc = drop_most(&t);
    if (rc == 0) *bytes = session_rank_bytes(s, 0) - activation_bytes(p) + activation_bytes(t.plan);
    close_task(&t);
    kolo_plan_destroy(&plain);
    free(form);
    free(seconds);
    return rc;
}
