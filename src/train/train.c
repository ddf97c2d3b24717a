/* The loop: load, step, tell, evaluate, save. Reads from top to bottom as a run goes. */
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "ckpt/carried.h"
#include "ckpt/ckpt.h"
#include "kolo/error.h"
#include "report/report.h"
#include "train/carry.h"
#include "train/epoch.h"
#include "optim/noise.h"

/* What is known of a step before its metrics are. */
typedef struct issue {
    int64_t step, epoch;
    double lr, wait; /* wait: for its batch, seconds */
    bool whole;      /* no row of its batch is without weight */
} issue;

typedef struct trainer {
    kolo_session session;
    kolo_options *options;
    kolo_launch *launch;
    const volatile sig_atomic_t *stop;
    kolo_position position;
    kolo_evaluation evaluation; /* the last; rows 0: none yet */
    double raw_top1;            /* of the weights themselves when the averaged ones are evaluated too */
    /* rank 0 only */
    kolo_run *run;
    kolo_events *events;
    kolo_progress *progress;
    kolo_summary summary;
    /* agreement to stop */
    int64_t next_poll, last_poll;
    double last_poll_time;
    double started;     /* this start, seconds */
    double waited;      /* loader wait of this start until the last step, seconds */
    double waited_before; /* of it, in the loaders of earlier phases */
    int64_t pictures;     /* of this start's steps */
    kolo_noise noise;
    issue issued[KOLO_EXEC_AHEAD + 1]; /* step number i in [i % (KOLO_EXEC_AHEAD + 1)] */
    int untold;         /* steps issued, not told */
    double told_at;     /* time: when the last step was told, or the first of a row was begun */
    double loss;        /* of the last step that was told, mean */
    double loss_scale;  /* after it */
    int64_t first_step; /* of this start */
    kolo_epoch epoch;   /* what its loaders did */
    bool complete;      /* the run was complete already: its summary stands */
} trainer;

static bool speaks(const trainer *t) { return t->launch->rank == 0; }

/* What is every rank's own. It is of one grid: on another the run goes on without it. */
static int load_carried(trainer *t, const char *path)
{
    kolo_session *s = &t->session;
    size_t bytes = kolo_carry_bytes(s);
    if (!bytes) return 0;
    void *mine = kolo_alloc(bytes);
    if (!mine) return KOLO_ECONFIG;
    int found = kolo_checkpoint_read_carried(path, t->launch->rank, t->launch->size, mine, bytes);
    int rc = found < 0 ? found : found ? kolo_carry_load(s, mine) : 1;
    free(mine);
    if (found < 0) return rc;
    int64_t lost = rc != 0;
    KOLO_TRY(kolo_comm_allreduce(s->comm, &lost, 1, KOLO_WIRE_I64, KOLO_MAX));
    if (lost && rc == 0) return kolo_fail(KOLO_EINPUT, "%s: another rank found nothing that fits in what the checkpoint carries", path);
    if (lost && speaks(t))
        kolo_warn("%s was written by another grid: %s", path,
                  kolo_is_adasum(t->options) ? "every rank goes on with the optimizer state of rank 0"
                                             : "what compression still held back is lost");
    return 0;
}

static int open_run(trainer *t)
{
    const char *folder = t->options->run;
    char path[4096];
    if (speaks(t)) {
        KOLO_TRY(kolo_run_open(&t->run, folder));
        KOLO_TRY(kolo_run_record(t->run, t->options));
        KOLO_TRY(kolo_checkpoint_prepare(t->run, t->session.plan, t->session.backend));
    }
    KOLO_TRY(kolo_comm_barrier(t->session.comm)); /* nobody reads before rank 0 holds the folder */
    int found = kolo_checkpoint_find(folder, &t->position, path, sizeof path);
    KOLO_TRY(found);
    if (found) {
        if (strcmp(t->position.data_uuid, t->session.data_uuid))
            return kolo_fail(KOLO_ECONFIG,
                             "%s was trained on data set %s, data=%s is %s: give the same data, or another run folder",
                             folder, t->position.data_uuid, t->options->data, t->session.data_uuid);
        int64_t epoch, within;
        KOLO_TRY(kolo_session_enter(&t->session, kolo_session_at(&t->session, t->position.step, &epoch, &within)));
        KOLO_TRY(kolo_checkpoint_load(path, t->session.exec, t->session.plan));
        KOLO_TRY(load_carried(t, path));
        t->position.restarts++;
    } else {
        KOLO_TRY(kolo_exec_initialise(t->session.exec, (uint64_t)t->options->seed));
        if (*t->options->init) KOLO_TRY(kolo_weights_import(t->options->init, t->session.exec, t->session.plan, t->options->init_head));
        t->position = (kolo_position){.batch = t->options->batch,
                                      .samples = t->session.samples,
                                      .seed = (uint64_t)t->options->seed,
                                      .best_top1 = -1};
        snprintf(t->position.data_uuid, sizeof t->position.data_uuid, "%s", t->session.data_uuid);
        snprintf(t->position.model, sizeof t->position.model, "%s", t->options->model);
    }
    t->position.plan_hash = t->session.plan->hash;
    t->first_step = t->position.step;
    return 0;
}

static void fill_summary(trainer *t, const char *state, const char *next)
{
    kolo_summary *s = &t->summary;
    const kolo_session *session = &t->session;
    double seconds = kolo_time() - t->started, wall = t->position.wall_seconds + seconds;
    int64_t steps = t->position.step - t->first_step;
    snprintf(s->state, sizeof s->state, "%s", state);
    snprintf(s->model, sizeof s->model, "%s", t->options->model);
    snprintf(s->next, sizeof s->next, "%.255s", next);
    s->steps = t->position.step;
    s->restarts = t->position.restarts;
    int64_t within;
    kolo_session_at(session, t->position.step, &s->epochs, &within);
    bool evaluated = t->evaluation.rows > 0;
    s->loss = evaluated ? t->evaluation.loss : t->loss;
    s->top1 = evaluated ? t->evaluation.top1 : -1;
    s->top5 = evaluated ? t->evaluation.top5 : -1;
    s->best_top1 = t->position.best_top1;
    if (steps > 0)
        s->img_per_s = (double)t->pictures / seconds, s->wait_share = t->waited / seconds;
    s->wall_seconds = wall;
    s->ranks = t->launch->size;
    s->nodes = t->launch->nodes;
    s->threads = (int)t->options->threads;
    s->peak_bytes = kolo_memory_peak();
    s->planned_bytes = kolo_plan_bytes(session->plan);
    if (t->epoch.seconds > 0) s->mb_per_s = (double)t->epoch.bytes / t->epoch.seconds / 1e6;
    s->cache_hits = t->epoch.hits;
    s->bad_samples = t->epoch.bad;
    s->useful_batch = kolo_noise_batch(&t->noise);
    s->node_hours = wall / 3600 * t->launch->nodes;
}

/* How steps count from here on. */
static void tell_phase(trainer *t)
{
    const kolo_session *s = &t->session;
    const kolo_phase *p = &s->phase[s->now], *last = &s->phase[s->phases - 1];
    const int64_t epochs = last->epoch + (s->steps - last->step + last->steps_per_epoch - 1) / last->steps_per_epoch;
    kolo_progress_phase(t->progress, p->step, p->epoch, epochs, p->steps_per_epoch, p->batch);
}

static int open_report(trainer *t)
{
    if (!speaks(t)) return 0;
    int64_t repeated = 0;
    kolo_summary before;
    int had = kolo_summary_read(t->options->run, &before);
    KOLO_TRY(had);
    if (had) t->summary.repeated_steps = before.repeated_steps, t->position.restarts = before.restarts + 1;
    KOLO_TRY(kolo_events_open(&t->events, t->options->run, t->position.step, &repeated));
    t->summary.repeated_steps += repeated;
    kolo_summary_environment(&t->summary);
    KOLO_TRY(kolo_progress_create(&t->progress, t->options, t->session.steps));
    tell_phase(t);
    fill_summary(t, "running", "wait, or stop it: it goes on from its last checkpoint");
    KOLO_TRY(kolo_summary_write(t->options->run, &t->summary)); /* what is counted here survives a kill */
    return kolo_events_write(t->events, "start",
                             "\"step\":%ld,\"restarts\":%ld,\"ranks\":%d,\"nodes\":%d,\"threads\":%ld,\"version\":\"%"
                             "s\",\"launch\":\"%s\",\"plan_hash\":\"%016lx\"",
                             (long)t->position.step, (long)t->position.restarts, t->launch->size, t->launch->nodes,
                             (long)t->options->threads, KOLO_VERSION, t->launch->method,
                             (unsigned long)t->session.plan->hash);
}

static int save(trainer *t)
{
    size_t each = kolo_carry_bytes(&t->session);
    void *all = speaks(t) && each ? kolo_checkpoint_carried(t->run, each, t->launch->size) : NULL;
    if (speaks(t) && each && !all) return KOLO_EIO;
    KOLO_TRY(kolo_carry_gather(&t->session, all));
    if (!speaks(t)) return 0;
    kolo_position p = t->position;
    p.wall_seconds += kolo_time() - t->started;
    kolo_session_at(&t->session, p.step, &p.epoch, &p.epoch_step);
    KOLO_TRY(kolo_events_flush(t->events));
    int rc = kolo_checkpoint_save(t->run, t->session.exec, t->session.plan, t->session.backend, t->options, &p);
    if (rc < 0) return kolo_fail_in(rc, "writing a checkpoint (those in place are whole): ");
    return kolo_events_write(t->events, "checkpoint", "\"step\":%ld", (long)p.step);
}

static int evaluate(trainer *t)
{
    if (!t->session.val_loader) return 0;
    kolo_evaluation *e = &t->evaluation;
    if (speaks(t)) kolo_progress_pause(t->progress);
    KOLO_TRY(kolo_evaluate(&t->session, false, e));
    t->raw_top1 = e->top1;
    if (kolo_averages(t->options)) KOLO_TRY(kolo_evaluate(&t->session, true, e));
    bool best = e->top1 > t->position.best_top1;
    if (best) t->position.best_top1 = e->top1, t->position.best_step = t->position.step;
    if (!speaks(t)) return 0;
    if (t->session.task != KOLO_TASK_CLASSIFY) {
        kolo_progress_note(t->progress, "step %ld: AP %.4f, AP50 %.4f, AP75 %.4f, AR100 %.4f (%ld pictures, %.1f s)%s",
                           (long)t->position.step, e->line[0], e->line[1], e->line[2], e->line[8], (long)e->rows, e->seconds,
                           best ? ", the best so far" : "");
        return kolo_events_write(t->events, "eval",
                                 "\"step\":%ld,\"ap\":%.9g,\"ap50\":%.9g,\"ap75\":%.9g,\"ar100\":%.9g,\"ap_raw\":%.9g,\"rows\":%ld",
                                 (long)t->position.step, e->line[0], e->line[1], e->line[2], e->line[8], t->raw_top1,
                                 (long)e->rows);
    }
    kolo_progress_note(t->progress, "step %ld: validation loss %.4f, top-1 %.4f, top-5 %.4f (%ld pictures, %.1f s)%s",
                       (long)t->position.step, e->loss, e->top1, e->top5, (long)e->rows, e->seconds,
                       best ? ", the best so far" : "");
    return kolo_events_write(t->events, "eval",
                             "\"step\":%ld,\"loss\":%.9g,\"top1\":%.9g,\"top5\":%.9g,\"top1_raw\":%.9g,\"rows\":%ld",
                             (long)t->position.step, e->loss, e->top1, e->top5, t->raw_top1, (long)e->rows);
}

static issue *issue_of(trainer *t, int64_t step) { return &t->issued[step % (KOLO_EXEC_AHEAD + 1)]; }

/* Metrics of a step, which may lie some steps back. */
static int tell(trainer *t, const kolo_metrics *m)
{
    if (m->step < 0) return 0;
    const issue *i = issue_of(t, m->step);
    double now = kolo_time(), seconds = now - t->told_at; /* where steps overlap: its share */
    t->told_at = now;
    t->untold--;
    double rows = m->rows > 0 ? m->rows : 1;
    t->loss = m->loss / rows;
    if (!speaks(t)) return 0;
    if (t->options->noise_scale && t->session.ranks * t->session.slots > 1 && i->whole && m->square > 0)
        kolo_noise_add(&t->noise, t->session.ranks * t->session.slots, t->session.rows, m->square, m->grad_norm);
    kolo_step_event event = {.step = i->step + 1,
                             .epoch = i->epoch,
                             .loss = t->loss,
                             .lr = i->lr,
                             .top1 = m->top1 / rows,
                             .grad_norm = m->grad_norm,
                             .useful_batch = kolo_noise_batch(&t->noise),
                             .seconds = seconds,
                             .wait = i->wait};
    kolo_progress_step(t->progress, i->step + 1, t->loss, i->lr, t->waited / (now - t->started), event.useful_batch);
    KOLO_TRY(kolo_events_step(t->events, &event));
    if (m->loss_scale == t->loss_scale) return 0;
    t->loss_scale = m->loss_scale;
    return kolo_events_write(t->events, "loss_scale", "\"step\":%ld,\"scale\":%.9g,\"skipped\":%ld",
                             (long)i->step + 1, m->loss_scale, (long)m->skipped);
}

/* All steps so far are done, sound, and told. */
static int settle(trainer *t)
{
    kolo_metrics m;
    do {
        KOLO_TRY(kolo_exec_drain(t->session.exec, &m));
        KOLO_TRY(tell(t, &m));
    } while (m.step >= 0);
    return 0;
}

/* Every rank stops after the same step: the flags are reduced about five times a second, at steps all ranks agree on. */
static int agree_to_stop(trainer *t, bool *stop)
{
    int64_t step = t->position.step;
    *stop = t->options->stop_step && step >= t->options->stop_step;
    if (step < t->next_poll) return 0;
    double now = kolo_time(),
           per_step = (now - t->last_poll_time) / (double)(step - t->last_poll > 0 ? step - t->last_poll : 1);
    double interval = per_step > 0 ? 0.2 / per_step : 1;
    if (t->session.staged) KOLO_TRY(settle(t)); /* no bucket is then on its way through the host's half of comm */
    int64_t word[2] = {*t->stop != 0, -(int64_t)(interval < 1 ? 1 : interval > 1000 ? 1000 : interval)};
    KOLO_TRY(kolo_comm_allreduce(t->session.comm, word, 2, KOLO_WIRE_I64, KOLO_MAX));
    if (word[0]) *stop = true;
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
    if (t->untold == 0) t->told_at = kolo_time();
    KOLO_TRY(kolo_loader_next(s->loader, &batch));
    int64_t step = t->position.step;
    const double time = kolo_phase_time(s->phase, s->phases, step), end = kolo_phase_time(s->phase, s->phases, step + 1),
                 all = kolo_phase_time(s->phase, s->phases, s->steps),
                 unit = t->options->steps ? 1 : (double)s->phase[0].steps_per_epoch;
    kolo_step parameters = {.step = step,
                            .seed = (uint64_t)t->options->seed,
                            .epoch = batch.epoch,
                            .l1 = s->task == KOLO_TASK_YOLOX && batch.epoch >= s->plain_epoch,
                            .first = step == 0,
                            .lr = (float)(kolo_learning_rate(t->options, time, all, unit) *
                                          kolo_rate_scale(t->options, kolo_session_batch(s))),
                            .momentum = (float)kolo_momentum(t->options, time, all),
                            .weight_decay = (float)t->options->weight_decay,
                            .ema_decay = (float)kolo_ema_decay(t->options, step + 1, end, unit)};
    int rc = kolo_exec_step(s->exec, &batch, &parameters, &m);
    kolo_loader_release(s->loader, &batch);
    KOLO_TRY(rc);
    t->untold++;
    t->position.step = step + 1;
    kolo_loader_get_stats(s->loader, &stats);
    *issue_of(t, step) = (issue){.step = step,
                                 .epoch = batch.epoch,
                                 .lr = (double)parameters.lr,
                                 .wait = t->waited_before + stats.wait_seconds - t->waited,
                                 .whole = batch.valid_global == kolo_session_batch(s)};
    t->waited = t->waited_before + stats.wait_seconds;
    t->pictures += kolo_session_batch(s);
    return tell(t, &m);
}

/* Behind settle(): every step of it is done. */
static int tell_epoch(trainer *t)
{
    kolo_data_event event;
    KOLO_TRY(kolo_epoch_end(&t->epoch, &t->session, t->position.step, &event));
    return speaks(t) ? kolo_events_data(t->events, &event) : 0;
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

/* At a border of epochs, all steps done and told. */
static int change_phase(trainer *t, int phase)
{
    kolo_session *s = &t->session;
    t->waited_before = t->waited;
    KOLO_TRY(kolo_session_enter(s, phase));
    KOLO_TRY(begin_phase(t));
    if (!speaks(t)) return 0;
    const kolo_phase *p = &s->phase[phase];
    const long side = p->sides.high, width = side ? side : s->width, height = side ? side : s->height;
    kolo_progress_pause(t->progress);
    kolo_progress_note(t->progress, "epoch %ld: batches of %ld, pictures of %s%ld x %ld", (long)p->epoch + 1, (long)p->batch,
                       p->sides.low < side ? "at most " : "", width, height);
    tell_phase(t);
    return kolo_events_write(t->events, "phase", "\"step\":%ld,\"epoch\":%ld,\"batch\":%ld,\"width\":%ld,\"height\":%ld", (long)t->position.step,
                             (long)p->epoch, (long)p->batch, width, height);
}

static int loop(trainer *t)
{
    kolo_session *s = &t->session;
    const kolo_options *o = t->options;
    bool stop = false;
    KOLO_TRY(begin_phase(t));
    while (t->position.step < s->steps) {
        KOLO_TRY(agree_to_stop(t, &stop));
        if (stop) {
            KOLO_TRY(settle(t));
            if (t->position.step > t->epoch.first) KOLO_TRY(tell_epoch(t));
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
        double best = t->position.best_top1;
        if (evaluated || saved || epoch_end) KOLO_TRY(settle(t));
        if (end || epoch_end) KOLO_TRY(tell_epoch(t));
        if (evaluated) KOLO_TRY(evaluate(t));
        if (saved || t->position.best_top1 > best) {
            KOLO_TRY(save(t));
            if (speaks(t) && t->position.best_top1 > best) KOLO_TRY(kolo_checkpoint_mark_best(t->run, step));
        }
        if (!end && phase != s->now) KOLO_TRY(change_phase(t, phase));
        else if (epoch_end) kolo_epoch_begin(&t->epoch, s, step);
    }
    return 0;
}

/* Rank 0's last words: the checkpoint in flight is waited for, the summary says how it ended. */
static int finish(trainer *t, int rc)
{
    if (!speaks(t) || !t->run || t->complete) return rc;
    t->position.step -= t->untold; /* what nobody has seen to be sound was not done */
    char reason[512];
    snprintf(reason, sizeof reason, "%s", rc < 0 ? kolo_error_text() : "");
    if (rc == 0 || rc == KOLO_EREQUEUE) {
        int wait = kolo_checkpoint_wait(t->run);
        if (wait < 0) {
            rc = wait;
            snprintf(reason, sizeof reason, "%s", kolo_error_text());
        }
    }
    const char *state = rc == 0 ? "done" : rc == KOLO_EREQUEUE ? "requeue" : "failed";
    if (t->session.plan) {
        fill_summary(t, state,
                     rc == 0               ? "nothing: the run is complete"
                     : rc == KOLO_EREQUEUE ? "run the same command (or let Slurm requeue the job)"
                                           : reason);
        kolo_summary_write(t->options->run, &t->summary);
    }
    if (t->events) kolo_events_write(t->events, state, "\"step\":%ld", (long)t->position.step);
    return rc < 0 ? kolo_fail(rc, "%s", reason) : rc;
}

static int run(trainer *t)
{
    bool validates = *t->options->val && strcmp(t->options->val, "none");
    KOLO_TRY(kolo_session_open(&t->session, t->options, t->launch,
                               KOLO_SESSION_TRAIN | (validates ? KOLO_SESSION_EVAL : 0)));
    if (t->options->noise_scale && !t->session.plan->config.noise)
        return kolo_fail(KOLO_ECONFIG, "noise_scale=true compares gradients of two batch sizes, and one rank with one micro-batch has one: "
                                       "set micro_batch=%ld or smaller, or use more ranks", (long)(t->session.rows / 2 > 0 ? t->session.rows / 2 : 1));
    if (speaks(t) && !validates) kolo_info("no validation data (val=): top-1 is not measured");
    if (!t->session.steps) return kolo_fail(KOLO_ECONFIG, "no end given: set epochs= or steps=");
    KOLO_TRY(open_run(t));
    if (t->position.step >= t->session.steps) {
        kolo_info("%s is complete: %ld steps; nothing to do", t->options->run, (long)t->position.step);
        t->complete = true;
        return 0;
    }
    KOLO_TRY(open_report(t));
    if (t->position.step)
        kolo_info("resuming %s after step %ld of %ld", t->options->run, (long)t->position.step, (long)t->session.steps);
    return loop(t);
}

int kolo_train(kolo_launch *launch, kolo_options *options, const volatile sig_atomic_t *stop)
{
    if (!*options->run)
        return kolo_fail(
            KOLO_ECONFIG,
            "no run folder: give run=DIR (checkpoints and reports go there; the same folder again resumes)");
    trainer t = {.options = options, .launch = launch, .stop = stop, .started = kolo_time(), .raw_top1 = -1, .loss_scale = 1};
    int rc = finish(&t, run(&t));
    char text[1024];
    snprintf(text, sizeof text, "%s", rc < 0 ? kolo_error_text() : "");
    /* A launcher may kill the job when the first rank exits: nobody leaves before rank 0 has written. */
    if ((rc == 0 || rc == KOLO_EREQUEUE) && kolo_comm_barrier(t.session.comm) < 0) kolo_warn("%s", kolo_error_text());
    kolo_progress_destroy(&t.progress);
    kolo_events_close(&t.events);
    kolo_run_close(&t.run);
    kolo_session_close(&t.session);
    return rc < 0 ? kolo_fail(rc, "%s", text) : rc;
}
