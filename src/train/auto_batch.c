/* batch=auto: the largest batch whose plan fits into memory. Plans are tried by a fixed rule instead
 * of a clock, so a trial takes little and all ranks find the same; where their nodes differ the
 * smallest counts. The clock may choose algorithms that want more memory than the rule's: then the
 * batch goes down step by step. */
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "train/async.h"
#include "train/parts.h"

enum { ROWS = 8, MOST = 1 << 14, HALVINGS = 3 };

/* Would it fit? Nothing of the session changes. */
static int fits(const kolo_session *s, int64_t batch)
{
    kolo_options options = *s->options; /* texts are borrowed */
    const int side = session_largest(s);
    kolo_phase phase = {
        .batch = batch, .sides = {.low = side, .high = side, .step = 1, .every = 1}, .steps_per_epoch = 1};
    kolo_session trial = *s;
    options.deterministic = true;
    trial.options = &options;
    trial.phase = &phase;
    trial.phases = 1;
    trial.trial = trial.untimed = true;
    trial.now = 0;
    int rc = session_resolve_batch(&trial);
    trial.eval_rows = trial.rows;
    if (rc == 0) rc = session_make_graphs(&trial);
    const bool can = rc == 0 && session_check_least(&trial) == 0;
    if (can) rc = session_plan_trial(&trial);
    const bool does = can && rc == 0 && session_check_memory(&trial) == 0;
    session_free_plans(&trial);
    return rc < 0 ? rc : does;
}

/* Batches are multiples of what ranks compute at a time. */
static int search(const kolo_session *s, int64_t unit, int64_t most, int64_t *batch)
{
    const bool doubled = s->options->reduce == KOLO_reduce_canonical; /* its trees want powers of two */
    int64_t good = 0, bad = unit;
    int rc = 1;
    while (bad <= most && (rc = fits(s, bad)) == 1) good = bad, bad *= 2;
    if (rc < 0) return rc;
    for (int i = 0; i < HALVINGS && good && !doubled; i++) {
        int64_t middle = (good + bad) / 2 / unit * unit;
        if (middle <= good || middle >= bad) break;
        if (middle > most) rc = 0;
        else rc = fits(s, middle);
        if (rc < 0) return rc;
        *(rc ? &good : &bad) = middle;
    }
    *batch = good;
    return 0;
}

static int least_of_all(kolo_session *s, int64_t *batch)
{
    if ((s->parts & KOLO_SESSION_PLAN_ONLY) || s->launch->size == 1) return 0;
    int64_t *all = kolo_alloc((size_t)s->launch->size * sizeof *all);
    int rc = all ? kolo_launch_exchange(s->launch, batch, sizeof *batch, all) : KOLO_ENOMEM;
    for (int r = 0; r < s->launch->size && rc == 0; r++) *batch = all[r] < *batch ? all[r] : *batch;
    free(all);
    return rc;
}

/* A rank's share of the least batch, and the largest that is looked at. */
static int64_t least_rows(const kolo_session *s, int64_t *most)
{
    const int64_t given = s->options->micro_batch;
    *most = s->train_set ? s->samples / 4 : MOST;
    const int workers = kolo_session_workers(s);
    if (given && *most > given * workers * KOLO_MAX_SLOTS) *most = given * workers * KOLO_MAX_SLOTS;
    return given ? given : ROWS * workers > *most ? 1 : ROWS;
}

static int too_little(const kolo_session *s)
{
    return kolo_fail(KOLO_ECONFIG,
                     "batch=auto: not even %ld images (%ld a rank) fit; lower micro_batch or size, or use "
                     "precision=bf16",
                     (long)s->unit, (long)(s->unit / kolo_session_workers(s)));
}

int session_choose_batch(kolo_session *s)
{
    kolo_options *o = s->options;
    kolo_position position;
    if (o->batch) return 0;
    const int found = session_position(s, &position); /* a run that is there already has its batch */
    KOLO_TRY(found);
    if (found) {
        o->batch = position.batch;
        kolo_info("batch=auto: %ld images a step, as this run began", (long)o->batch);
        return session_lay_phases(s);
    }
    int64_t most, batch = 0;
    s->unit = least_rows(s, &most) * kolo_session_workers(s);
    int rc = search(s, s->unit, most, &batch);
    if (rc < 0) batch = rc;
    KOLO_TRY(least_of_all(s, &batch));
    if (rc < 0) return rc;
    if (batch <= 0) return too_little(s);
    o->batch = batch;
    return session_lay_phases(s);
}

/* As far below a batch as the search would tell two apart. */
static int64_t smaller(const kolo_session *s, int64_t batch)
{
    int64_t power = s->unit;
    while (power * 2 <= batch) power *= 2;
    if (s->options->reduce == KOLO_reduce_canonical) return batch / 2 / s->unit * s->unit;
    if (power == batch) power /= 2;
    const int64_t step = (power >> HALVINGS) / s->unit * s->unit;
    return batch - (step ? step : s->unit);
}

/* Before anything is timed. */
static int check_noise(const kolo_session *s)
{
    if (!(s->parts & KOLO_SESSION_TRAIN) || !s->options->noise_scale || s->replicas * s->slots > 1) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "noise_scale=true compares gradients of two batch sizes, and one rank with one micro-batch has one: "
        "set micro_batch=%ld or smaller, or use more ranks",
        (long)(s->rows / 2 > 0 ? s->rows / 2 : 1));
}

/* What cannot fit is refused before anything is timed; a plan for other machines is made without a clock. */
static int check_bounds(kolo_session *s)
{
    if (s->gpu) return 0; /* nothing is timed, what does not fit is refused with its reason */
    const int rc = session_check_least(s);
    s->untimed = rc < 0 && s->elsewhere && s->options->memory_limit <= 0;
    /* the bounds are of the whole network, of which a stage is a part */
    return s->untimed || s->grid.stages > 1 ? 0 : rc;
}

int session_fit_plans(kolo_session *s)
{
    for (kolo_options *o = s->options;;) {
        KOLO_TRY(session_resolve_batch(s));
        KOLO_TRY(check_noise(s));
        KOLO_TRY(session_make_graphs(s));
        if (!s->unit) KOLO_TRY(check_bounds(s));
        KOLO_TRY(session_make_plans(s));
        if (!s->unit) return s->parts & KOLO_SESSION_PLAN_ONLY ? 0 : session_check_memory(s);
        int64_t batch = session_check_memory(s) == 0 ? o->batch : smaller(s, o->batch);
        KOLO_TRY(least_of_all(s, &batch));
        if (batch <= 0) return too_little(s);
        if (batch == o->batch) break;
        o->batch = batch;
        session_free_plans(s);
        KOLO_TRY(session_lay_phases(s));
    }
    if (!(s->parts & KOLO_SESSION_QUIET))
        kolo_info("batch=auto: %ld images a step, the largest that was planned into memory",
                  (long)s->options->batch);
    return 0;
}
