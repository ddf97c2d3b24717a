/* The loop: load, step, report, evaluate, save. Reads from top to bottom as a run goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/carried.h"
#include "data/shard/manifest.h"
#include "ops/detector.h"
#include "train/carry.h"
#include "train/trainer.h"

/* What every rank planned for itself, and the most that it has taken so far. Collective. */
static int collect_memory(trainer *t)
{
    const kolo_session *s = &t->session;
    const size_t bytes = (size_t)s->ranks * sizeof(uint64_t);
    const uint64_t planned = kolo_session_planned_bytes(s), peak = kolo_session_peak_bytes(s);
    if (is_root(t) && !t->planned_by_rank) {
        t->planned_by_rank = kolo_alloc(bytes);
        t->peak_by_rank = kolo_alloc(bytes);
        if (!t->planned_by_rank || !t->peak_by_rank) return KOLO_ENOMEM;
    }
    KOLO_TRY(kolo_comm_gather(s->comm, &planned, sizeof planned, t->planned_by_rank, 0));
    return kolo_comm_gather(s->comm, &peak, sizeof peak, t->peak_by_rank, 0);
}

/* A stop may come where a checkpoint was just written, or where the run was taken up. */
static int save(trainer *t)
{
    if (t->saved == t->position.step) return 0;
    size_t each = kolo_rank_state_bytes(&t->session);
    int part;
    const int parts = kolo_rank_state_parts(&t->session, &part);
    void *all = is_root(t) && each ? kolo_checkpoint_rank_state(t->run, each, parts) : NULL;
    if (is_root(t) && each && !all) return KOLO_EIO;
    KOLO_TRY(kolo_rank_state_gather(&t->session, all));
    t->saved = t->position.step;
    KOLO_TRY(collect_memory(t));
    if (!is_root(t)) return kolo_checkpoint_take_part(t->session.exec, t->session.plan, t->session.backend);
    kolo_position p = t->position;
    p.wall_seconds += kolo_time() - t->started;
    kolo_session_at(&t->session, p.step, &p.epoch, &p.epoch_step);
    KOLO_TRY(kolo_events_flush(t->events));
    int rc =
        kolo_checkpoint_save(t->run, t->session.exec, t->session.plan, t->session.backend, t->options, &p);
    if (rc < 0) return kolo_fail_in(rc, "writing a checkpoint (those in place are whole): ");
    return kolo_events_write(t->events, "checkpoint", "\"step\":%ld", (long)p.step);
}

static int evaluate(trainer *t)
{
    if (!t->session.val_loader) return 0;
    kolo_evaluation *e = &t->evaluation;
    if (is_root(t)) kolo_progress_pause(t->progress);
    const bool averages = kolo_averages(t->options);
    kolo_by_class_free(&t->by_class);
    KOLO_TRY(kolo_evaluate(&t->session, false, NULL, averages ? NULL : &t->by_class, e));
    t->raw_metric = kolo_evaluation_metric(&t->session, e);
    if (averages) KOLO_TRY(kolo_evaluate(&t->session, true, NULL, &t->by_class, e));
    const double metric = kolo_evaluation_metric(&t->session, e);
    const bool best = metric > t->position.best;
    if (best) t->position.best = metric, t->position.best_step = t->position.step;
    return trainer_report_evaluation(t, best);
}

/* Running means of other weights are no statistics of swa's average: they are formed anew, by a pass over the
 * last epoch's batches. Where that is long, the first so many: a mean of so many batches moves no more. */
static int form_statistics(trainer *t)
{
    enum { MOST = 1000 };
    kolo_session *s = &t->session;
    int64_t epoch, within, batches = s->phase[s->now].steps_per_epoch;
    if (t->options->swa <= 0 || !kolo_exec_has_statistics(s->exec)) return 0;
    kolo_session_at(s, s->steps - 1, &epoch, &within);
    KOLO_TRY(kolo_loader_seek(s->loader, epoch, 0));
    for (int64_t n = 0; n < batches && n < MOST; n++) {
        kolo_batch batch;
        KOLO_TRY(kolo_loader_next(s->loader, &batch));
        const kolo_step step = {.step = s->steps, .seed = (uint64_t)t->options->seed, .epoch = batch.epoch};
        const int rc = kolo_exec_statistics(s->exec, &batch, &step, n);
        kolo_loader_release(s->loader, &batch);
        KOLO_TRY(rc);
    }
    return 0;
}

/* All steps so far are done, sound, and reported. */
static int train_settle(trainer *t)
{
    kolo_metrics m;
    do {
        KOLO_TRY(kolo_exec_drain(t->session.exec, &m));
        KOLO_TRY(trainer_report(t, &m));
    } while (m.step >= 0);
    return 0;
}

/* Every rank stops after the same step: the flags are reduced about five times a second, at
 * steps all ranks agree on. */
static int agree_to_stop(trainer *t)
{
    int64_t step = t->position.step;
    if (t->options->stop_step && step >= t->options->stop_step) t->stop = KOLO_STOP_END;
    if (step < t->next_poll) return 0;
    double now = kolo_time(),
           per_step = (now - t->last_poll_time) / (double)(step - t->last_poll > 0 ? step - t->last_poll : 1);
    double interval = per_step > 0 ? 0.2 / per_step : 1;
    /* no bucket is then on its way through the host's half of comm */
    if (t->session.staged) KOLO_TRY(train_settle(t));
    int64_t word[2] = {t->asked(), -(int64_t)(interval < 1 ? 1 : interval > 1000 ? 1000 : interval)};
    KOLO_TRY(kolo_comm_allreduce(t->session.comm, word, 2, KOLO_I64, KOLO_MAX));
    if (word[0]) t->stop = (enum kolo_stop)word[0];
    t->last_poll = step;
    t->last_poll_time = kolo_time();
    t->next_poll = step - word[1];
    return 0;
}

static int one_step(trainer *t)
{
    kolo_session *s = &t->session;
    kolo_batch batch;
    kolo_metrics m;
    kolo_loader_stats stats;
    if (t->unreported == 0) t->reported_at = kolo_time();
    KOLO_TRY(kolo_loader_next(s->loader, &batch));
    int64_t step = t->position.step;
    const double time = kolo_phase_time(s->phase, s->phases, step),
                 end = kolo_phase_time(s->phase, s->phases, step + 1),
                 all = kolo_phase_time(s->phase, s->phases, s->steps),
                 unit = t->options->steps ? 1 : (double)s->phase[0].steps_per_epoch;
    const kolo_detector *detector = kolo_detector_find(s->detector);
    kolo_step parameters = {.step = step,
                            .seed = (uint64_t)t->options->seed,
                            .epoch = batch.epoch,
                            .l1 = detector && detector->l1 && batch.epoch >= s->plain_epoch,
                            .lr = (float)(kolo_learning_rate(t->options, time, all, unit) *
                                          kolo_rate_scale(t->options, kolo_session_batch(s))),
                            .momentum = (float)kolo_momentum(t->options, time, all),
                            .weight_decay = (float)t->options->weight_decay,
                            .ema_decay = (float)kolo_ema_decay(t->options, step + 1, end, unit)};
    const double before = kolo_exec_comm_seconds(s->exec);
    int rc = kolo_exec_step(s->exec, &batch, &parameters, &m);
    kolo_loader_release(s->loader, &batch);
    KOLO_TRY(rc);
    t->unreported++;
    t->position.step = step + 1;
    kolo_loader_get_stats(s->loader, &stats);
    *record_of(t, step) =
        (step_record){.step = step,
                      .epoch = batch.epoch,
                      .lr = (double)parameters.lr,
                      .wait = t->waited_before + stats.wait_seconds - t->waited,
                      .comm = s->ranks > 1 && !s->cuda ? kolo_exec_comm_seconds(s->exec) - before : -1,
                      .whole = batch.valid_global == kolo_session_batch(s)};
    t->waited = t->waited_before + stats.wait_seconds;
    t->images += kolo_session_batch(s);
    return trainer_report(t, &m);
}

/* The loader stands before the next batch. */
static int begin_phase(trainer *t)
{
    kolo_session *s = &t->session;
    int64_t epoch, within;
    kolo_session_at(s, t->position.step, &epoch, &within);
    KOLO_TRY(kolo_loader_seek(s->loader, epoch, within));
    kolo_epoch_begin(&t->epoch, s, t->position.step);
    return 0;
}

/* At a border of epochs, all steps done and reported. */
static int change_phase(trainer *t, int phase)
{
    t->waited_before = t->waited;
    KOLO_TRY(kolo_session_enter(&t->session, phase));
    KOLO_TRY(begin_phase(t));
    return trainer_report_phase(t);
}

static int loop(trainer *t)
{
    kolo_session *s = &t->session;
    const kolo_options *o = t->options;
    KOLO_TRY(begin_phase(t));
    while (t->position.step < s->steps) {
        KOLO_TRY(agree_to_stop(t));
        if (t->stop) {
            KOLO_TRY(train_settle(t));
            if (t->position.step > t->epoch.first) KOLO_TRY(trainer_report_epoch(t));
            KOLO_TRY(save(t));
            return kolo_fail(KOLO_EREQUEUE,
                             "stopped on request after step %ld of %ld; the same command goes on from there",
                             (long)t->position.step, (long)s->steps);
        }
        KOLO_TRY(one_step(t));
        int64_t step = t->position.step, epoch, within;
        int phase = kolo_session_at(s, step, &epoch, &within);
        bool end = step == s->steps, epoch_end = within == 0;
        bool evaluated = end || (epoch_end && o->eval_epochs && epoch % o->eval_epochs == 0);
        bool saved = end || (o->checkpoint_steps ? step % o->checkpoint_steps == 0 : epoch_end);
        double best = t->position.best;
        if (evaluated || saved || epoch_end) KOLO_TRY(train_settle(t));
        if (end || epoch_end) KOLO_TRY(trainer_report_epoch(t));
        if (end) KOLO_TRY(form_statistics(t));
        if (evaluated) KOLO_TRY(evaluate(t));
        if (saved || t->position.best > best) KOLO_TRY(save(t));
        if (!end && phase != s->now) KOLO_TRY(change_phase(t, phase));
        else if (epoch_end) kolo_epoch_begin(&t->epoch, s, step);
    }
    return 0;
}

/* In the end the ranks hear nothing of one another by the reducer any more: they show on other nodes that
 * they live by a file, which rank 0 makes while they still do. */
static char *alive_path(const trainer *t) { return kolo_format("%s/.alive", t->options->run); }

static int make_alive(const trainer *t)
{
    if (!is_root(t) || t->launch->nodes == 1) return 0;
    char *path = alive_path(t);
    const int rc = path ? kolo_file_write_atomic(path, "", 0) : KOLO_ENOMEM;
    free(path);
    return rc;
}

static void show_alive(const trainer *t)
{
    char *path = alive_path(t);
    kolo_launch_beat_at(t->launch, path);
    free(path);
}

/* Rank 0's last words: the checkpoint in flight is waited for, the summary says how it ended. */
static int train_finish(trainer *t, int rc)
{
    /* refused before it began: what the folder tells of the run stands */
    if (!t->events || t->complete) return rc;
    t->position.step -= t->unreported; /* what nobody has seen to be sound was not done */
    if (rc == 0 || rc == KOLO_EREQUEUE) {
        kolo_failure stopped;
        kolo_error_keep(&stopped);
        const int wait = kolo_checkpoint_wait(t->run);
        if (wait < 0) rc = wait;
        else kolo_error_restore(&stopped, rc);
    }
    return trainer_report_end(t, rc);
}

static int train_run(trainer *t)
{
    bool validates = *t->options->val && strcmp(t->options->val, "none");
    KOLO_TRY(kolo_session_open(&t->session, t->options, t->launch,
                               KOLO_SESSION_TRAIN | (validates ? KOLO_SESSION_EVAL : 0)));
    if (is_root(t) && !validates) kolo_info("no validation data (val=): top-1 is not measured");
    KOLO_TRY(trainer_begin(t));
    if (t->position.step >= t->session.steps) {
        kolo_info("%s is complete: %ld steps; nothing to do", t->options->run, (long)t->position.step);
        t->complete = true;
        return trainer_report_complete(t);
    }
    KOLO_TRY(trainer_report_start(t));
    KOLO_TRY(make_alive(t));
    if (t->position.step)
        kolo_info("resuming %s after step %ld of %ld", t->options->run, (long)t->position.step,
                  (long)t->session.steps);
    return loop(t);
}

int kolo_train(kolo_launch *launch, kolo_options *options, enum kolo_stop (*asked)(void))
{
    if (!*options->run)
        return kolo_fail(
            KOLO_ECONFIG,
            "no run folder: give run=DIR (checkpoints and reports go there; the same folder again resumes)");
    if (!options->steps && !options->epochs)
        return kolo_fail(KOLO_ECONFIG, "no end given: set epochs= or steps=");
    if (launch->rank == 0) KOLO_TRY(kolo_manifest_outside("run", options->run));
    trainer t = {.options = options,
                 .launch = launch,
                 .asked = asked,
                 .started = kolo_time(),
                 .raw_metric = -1,
                 .loss_scale = 1};
    int rc = train_finish(&t, train_run(&t));
    kolo_failure first;
    kolo_error_keep(&first);
    /* A launcher may kill the job when the first rank exits: nobody leaves before rank 0 has written. */
    if (rc == 0 || rc == KOLO_EREQUEUE) {
        show_alive(&t);
        const int met = kolo_comm_barrier(t.session.comm);
        if (met < 0) {
            rc = met;
            kolo_error_keep(&first);
        }
    }
    kolo_progress_destroy(&t.progress);
    kolo_events_close(&t.events);
    kolo_run_close(&t.run);
    kolo_session_close(&t.session);
    kolo_by_class_free(&t.by_class);
    free(t.planned_by_rank);
    free(t.peak_by_rank);
    return kolo_error_restore(&first, rc);
}
