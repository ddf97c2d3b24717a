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
#include "train/async.h"
#include "train/backup.h"
#include "train/rank_state.h"
#include "train/late.h"
#include "train/local.h"
#include "train/tournament.h"
#include "train/trainer.h"

/* What every rank planned for itself, and the most that it has taken so far. Collective. */
static int collect_memory(trainer *t)
{
    const kolo_session *s = &t->session;
    const uint64_t planned = kolo_session_planned_bytes(s, true), peak = kolo_session_peak_bytes(s);
    if (is_root(t) && !t->planned_by_rank) {
        t->planned_by_rank = kolo_alloc(2 * (size_t)s->ranks * sizeof *t->planned_by_rank);
        if (!t->planned_by_rank) return KOLO_ENOMEM;
        t->peak_by_rank = t->planned_by_rank + s->ranks;
    }
    KOLO_TRY(kolo_comm_gather(s->comm, &planned, sizeof planned, t->planned_by_rank, 0));
    return kolo_comm_gather(s->comm, &peak, sizeof peak, t->peak_by_rank, 0);
}

/* What ranks have of their own: to rank 0's memory, or, in place, a part at a time when it is written. */
static int carry(trainer *t, kolo_rank_parts *each)
{
    kolo_session *s = &t->session;
    int part;
    *each = (kolo_rank_parts){.bytes = kolo_rank_state_bytes(s),
                              .parts = kolo_rank_state_parts(s, &part),
                              .bring = kolo_rank_state_bring,
                              .context = s};
    if (!each->bytes) return 0;
    if (kolo_checkpoint_in_place(s->plan)) return is_root(t) ? kolo_checkpoint_rank_parts(t->run, each) : 0;
    void *all = is_root(t) ? kolo_checkpoint_rank_state(t->run, each->bytes, each->parts) : NULL;
    if (is_root(t) && !all) return kolo_error_status();
    return kolo_rank_state_gather(s, all);
}

/* A stop may come where a checkpoint was just written, or where the run was taken up. */
static int save(trainer *t)
{
    const double begin = kolo_time();
    if (t->saved == t->position.step) return 0;
    kolo_rank_parts each;
    KOLO_TRY(carry(t, &each));
    t->saved = t->position.step;
    if (!is_root(t)) {
        KOLO_TRY(kolo_checkpoint_take_part(t->session.exec, t->session.plan, t->session.backend, &each));
        return collect_memory(t);
    }
    kolo_position p = t->position;
    p.wall_seconds += kolo_time() - t->started;
    kolo_session_at(&t->session, p.step, &p.epoch, &p.epoch_step);
    KOLO_TRY(kolo_events_flush(t->events));
    int rc =
        kolo_checkpoint_save(t->run, t->session.exec, t->session.plan, t->session.backend, t->options, &p);
    if (rc < 0) return kolo_fail_in(rc, "writing a checkpoint (those in place are whole): ");
    KOLO_TRY(collect_memory(t)); /* with what writing takes */
    return kolo_events_write(t->events, "checkpoint", "\"step\":%ld,\"seconds\":%.3f", (long)p.step,
                             kolo_time() - begin);
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

/* After so many steps, `within` of which are of epoch number `epoch`. */
static bool is_evaluated(const trainer *t, int64_t step, int64_t epoch, int64_t within)
{
    const int64_t every = t->options->eval_epochs;
    return step == t->session.steps || (within == 0 && every && epoch % every == 0);
}

static bool is_saved(const trainer *t, int64_t step, int64_t within)
{
    const int64_t every = t->options->checkpoint_steps;
    return step == t->session.steps || (every ? step % every == 0 : within == 0);
}

/* All ranks do something together after so many steps. */
static bool is_meeting(const trainer *t, int64_t step)
{
    int64_t epoch, within;
    kolo_session_at(&t->session, step, &epoch, &within);
    return step >= t->next_poll || step == t->options->stop_step || within == 0 ||
           is_evaluated(t, step, epoch, within) || is_saved(t, step, within) || trainer_board_due(t, step);
}

/* Where the last evaluation stands: has early_stop= ended the run there? A matter of the position alone, so a
 * run that is taken up again sees the same. */
static bool has_stopped_early(const trainer *t)
{
    const kolo_session *s = &t->session;
    int64_t epoch, within, best_epoch, best_within;
    if (!t->options->early_stop || t->position.best_step <= 0) return false;
    kolo_session_at(s, t->position.step, &epoch, &within);
    if (!is_evaluated(t, t->position.step, epoch, within)) return false;
    kolo_session_at(s, t->position.best_step, &best_epoch, &best_within);
    return epoch - best_epoch >= t->options->early_stop;
}

/* Running means of other weights are no statistics of swa's or swap's average: they are formed anew, by a
 * pass over the last epoch's batches, which all ranks make if the network has any: those whose part has none
 * send the others what it makes. Where that is long, the first so many: a mean of so many batches moves no
 * more. */
static int form_statistics(trainer *t)
{
    enum { MOST = 1000 };
    kolo_session *s = &t->session;
    int64_t epoch, within, batches = s->phase[s->now].steps_per_epoch;
    if ((t->options->swa <= 0 && t->options->swap <= 0) || !kolo_graph_buffers(s->graph)) return 0;
    kolo_exec_exchange(s->exec, KOLO_EXCHANGE_GRADIENTS);
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

/* Seconds from one agreement to the next, at which ranks wait for each other: seldom where nothing else has
 * them wait in every step, as the stages of a late pipeline, which are a batch apart. */
static double agreement_seconds(const kolo_options *o)
{
    const bool late = kolo_pipeline_is_late((enum kolo_pipeline)o->pipeline);
    return o->sync != KOLO_sync_synchronous || kolo_is_local(o) || late ? 5 : 0.2;
}

/* Every rank stops after the same step: the flags are reduced about so often, at steps all ranks agree on. */
static int agree_to_stop(trainer *t)
{
    int64_t step = t->position.step;
    if (t->options->stop_step && step >= t->options->stop_step) t->stop = KOLO_STOP_END;
    if (step < t->next_poll) return 0;
    double now = kolo_time(),
           per_step = (now - t->last_poll_time) / (double)(step - t->last_poll > 0 ? step - t->last_poll : 1);
    double interval = per_step > 0 ? agreement_seconds(t->options) / per_step : 1;
    /* no bucket is then on its way through the host's half of comm */
    if (t->session.staged) KOLO_TRY(train_settle(t));
    if (t->session.staged) KOLO_TRY(kolo_exec_wait_late(t->session.exec));
    int64_t word[2] = {t->asked(), -(int64_t)(interval < 1 ? 1 : interval > 1000 ? 1000 : interval)};
    KOLO_TRY(kolo_comm_allreduce(t->session.comm, word, 2, KOLO_I64, KOLO_MAX));
    if (word[0]) t->stop = (enum kolo_stop)word[0];
    t->last_poll = step;
    t->last_poll_time = kolo_time();
    t->next_poll = step - word[1];
    return 0;
}

/* What ranks exchange in this step; swap= begins with an optimizer that remembers nothing. */
static int choose_exchange(trainer *t, kolo_step *step)
{
    kolo_session *s = &t->session;
    if (!kolo_is_local(t->options)) return 0;
    if (s->replicas > 1)
        kolo_exec_exchange(s->exec, kolo_local_exchange(t->options, t->local_start, step->step, s->steps));
    if (step->step == t->local_start) KOLO_TRY(kolo_exec_anchor(s->exec));
    if (t->options->swap <= 0 || step->step < t->local_start) return 0;
    step->origin = t->local_start;
    return step->step == t->local_start ? kolo_exec_reset_optimizer(s->exec) : 0;
}

/* What is evaluated and saved with local steps is the mean of the ranks' weights, of a tournament its best
 * network. */
static int form_average(trainer *t)
{
    const kolo_session *s = &t->session;
    if (s->tournament)
        return kolo_exec_average_of(s->exec, kolo_tournament_rank(s->tournament, s->tournament->best, 0));
    if (s->plan->config.outer == KOLO_local_outer_easgd && t->position.step > t->local_start)
        return kolo_exec_average_at_anchor(s->exec);
    return s->plan->config.local ? kolo_exec_average(s->exec) : 0;
}

static int meet(trainer *t)
{
    KOLO_TRY(kolo_tournament_meet(&t->session, t->position.step));
    return trainer_report_meeting(t);
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

/* Batch number `step` goes into the executor, which carries out the step that is due; in a pipeline with late
 * weights that is an earlier one, and behind the last batch none goes in. */
static int take_batch(trainer *t, int64_t step, kolo_metrics *m)
{
    kolo_session *s = &t->session;
    kolo_batch batch;
    if (step >= s->steps) return kolo_exec_step(s->exec, NULL, NULL, m);
    KOLO_TRY(kolo_loader_next(s->loader, &batch));
    kolo_step parameters = trainer_step(t, step, batch.epoch);
    kolo_tournament_apply(s, &parameters);
    *record_of(t, step) = (step_record){.step = step,
                                        .epoch = batch.epoch,
                                        .lr = (double)parameters.lr,
                                        .whole = batch.valid_global == kolo_session_batch(s)};
    int rc = choose_exchange(t, &parameters);
    if (rc == 0) rc = trainer_board_images(t, &batch, step + 1);
    if (rc == 0) rc = kolo_exec_step(s->exec, &batch, &parameters, m);
    kolo_loader_release(s->loader, &batch);
    return rc;
}

/* With backup ranks others go on without this one, until all meet. */
static int reach(trainer *t)
{
    const int64_t step = t->position.step, most = step + kolo_lag(t->options);
    int64_t limit = step + 1;
    while (limit < most && !is_meeting(t, limit)) limit++;
    return kolo_exec_reach(t->session.exec, step, limit);
}

static int one_step(trainer *t)
{
    kolo_session *s = &t->session;
    kolo_metrics m;
    kolo_loader_stats stats;
    const int64_t step = t->position.step;
    const double before = kolo_exec_comm_seconds(s->exec);
    if (t->unreported == 0) t->reported_at = kolo_time();
    KOLO_TRY(reach(t));
    KOLO_TRY(take_batch(t, step + kolo_exec_batches_ahead(s->exec), &m));
    t->unreported++;
    t->position.step = step + 1;
    kolo_loader_get_stats(s->loader, &stats);
    step_record *record = record_of(t, step);
    record->wait = t->waited_before + stats.wait_seconds - t->waited;
    record->comm = s->ranks > 1 && !s->cuda ? kolo_exec_comm_seconds(s->exec) - before : -1;
    t->waited = t->waited_before + stats.wait_seconds;
    t->images += kolo_session_batch(s);
    return trainer_report(t, &m);
}

/* A step; or, where ranks do not wait for each other, all until they next do. */
static int advance(trainer *t)
{
    int64_t end = t->position.step + 1;
    if (!kolo_is_async(&t->session)) return one_step(t);
    while (!is_meeting(t, end)) end++;
    return trainer_async_steps(t, end);
}

/* Batches that a pipeline with late weights has under way before its first step ends: at the start of a run,
 * and as often as it is taken up again. */
static int fill_pipeline(trainer *t)
{
    kolo_metrics m;
    for (int i = 0; i < kolo_exec_batches_ahead(t->session.exec); i++)
        KOLO_TRY(take_batch(t, t->position.step + i, &m));
    return 0;
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

static int end_early(trainer *t)
{
    t->early = true;
    t->unreported = 0;
    kolo_log0(KOLO_LOG_INFO,
              "early_stop=%ld ends the run after step %ld of %ld: %s %.4f after step %ld is still the best "
              "(checkpoint=best)",
              (long)t->options->early_stop, (long)t->position.step, (long)t->session.steps,
              kolo_session_metric(&t->session), t->position.best, (long)t->position.best_step);
    return 0;
}

/* What is done is saved. */
static int stop_on_request(trainer *t)
{
    KOLO_TRY(train_settle(t));
    if (t->position.step > t->epoch.first) KOLO_TRY(trainer_report_epoch(t));
    KOLO_TRY(form_average(t));
    KOLO_TRY(save(t));
    t->unreported = 0; /* what is under way is saved */
    return kolo_fail(KOLO_EREQUEUE,
                     "stopped on request after step %ld of %ld; the same command goes on from there",
                     (long)t->position.step, (long)t->session.steps);
}

static int loop(trainer *t)
{
    kolo_session *s = &t->session;
    t->local_start = kolo_local_start(s);
    t->reported_at = kolo_time(); /* steps that were under way in a checkpoint are reported first */
    KOLO_TRY(begin_phase(t));
    KOLO_TRY(fill_pipeline(t));
    while (t->position.step < s->steps) {
        KOLO_TRY(agree_to_stop(t));
        if (t->stop) return stop_on_request(t);
        KOLO_TRY(advance(t));
        int64_t step = t->position.step, epoch, within;
        int phase = kolo_session_at(s, step, &epoch, &within);
        const bool drawn = trainer_board_due(t, step);
        bool end = step == s->steps, epoch_end = within == 0;
        bool evaluated = is_evaluated(t, step, epoch, within);
        bool saved = is_saved(t, step, within);
        double best = t->position.best;
        if (end) KOLO_TRY(trainer_flush(t));
        const bool meets = kolo_meets(t->options, step, s->steps);
        if (evaluated || saved || epoch_end || drawn || meets) KOLO_TRY(train_settle(t));
        if (meets) KOLO_TRY(meet(t));
        if (drawn) KOLO_TRY(trainer_board_histograms(t, step));
        if (end || epoch_end) KOLO_TRY(trainer_report_epoch(t));
        if (evaluated || saved) KOLO_TRY(form_average(t));
        if (end) KOLO_TRY(form_statistics(t));
        if (evaluated) KOLO_TRY(evaluate(t));
        const bool early = evaluated && has_stopped_early(t);
        if (saved || early || t->position.best > best) KOLO_TRY(save(t));
        if (early && !end) return end_early(t);
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
                               KOLO_SESSION_TRAIN |
                                   (validates || t->options->tournament ? KOLO_SESSION_EVAL : 0)));
    if (is_root(t) && t->session.detector && t->options->mosaic > 0 && t->session.plain_epoch <= 0)
        kolo_info("close_mosaic=%ld: the run has no more epochs than that, so none has mosaics",
                  (long)t->options->close_mosaic);
    if (is_root(t) && !validates) kolo_info("no validation data (val=): top-1 is not measured");
    t->records = TRAINER_RECORDS + kolo_exec_batches_ahead(t->session.exec);
    if (!(t->issued = kolo_alloc((size_t)t->records * sizeof *t->issued))) return KOLO_ENOMEM;
    KOLO_TRY(trainer_begin(t));
    KOLO_TRY(trainer_open_backup(t));
    const bool early = has_stopped_early(t);
    if (t->position.step >= t->session.steps || early) {
        kolo_info("%s is complete: %ld steps%s; nothing to do", t->options->run, (long)t->position.step,
                  early ? ", where early_stop= has ended it" : "");
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

/* A run without validations is never stopped early, and swa's average is formed at the planned end alone. */
static int check_early_stop(const kolo_options *o)
{
    const bool validates = *o->val && strcmp(o->val, "none");
    if (!o->early_stop) return 0;
    if (!validates || !o->eval_epochs)
        return kolo_fail(KOLO_ECONFIG, "early_stop=%ld needs validations: give %s", (long)o->early_stop,
                         validates ? "eval_epochs=1" : "val=DIR");
    if (o->swa > 0)
        return kolo_fail(KOLO_ECONFIG,
                         "early_stop=%ld and swa=%g: the average is complete only at the end of all "
                         "epochs; leave one of them out, or take ema=",
                         (long)o->early_stop, o->swa);
    return 0;
}

int kolo_train(kolo_launch *launch, kolo_options *options, enum kolo_stop (*asked)(void))
{
    if (!*options->run)
        return kolo_fail(
            KOLO_ECONFIG,
            "no run folder: give run=DIR (checkpoints and reports go there; the same folder again resumes)");
    if (!options->steps && !options->epochs)
        return kolo_fail(KOLO_ECONFIG, "no end given: set epochs= or steps=");
    KOLO_TRY(check_early_stop(options));
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
        int met = t.session.exec ? kolo_exec_finish(t.session.exec) : 0;
        if (met == 0) met = kolo_comm_barrier(t.session.comm);
        if (met < 0) {
            rc = met;
            kolo_error_keep(&first);
        }
    }
    kolo_progress_destroy(&t.progress);
    trainer_board_close(&t, NULL);
    kolo_events_close(&t.events);
    kolo_run_close(&t.run);
    kolo_session_close(&t.session);
    kolo_by_class_free(&t.by_class);
    free(t.planned_by_rank);
    free(t.issued);
    trainer_close_backup(&t);
    return kolo_error_restore(&first, rc);
}
