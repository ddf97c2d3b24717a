/* What a run reports: events, the progress line, the summary. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/thread.h"
#include "train/async.h"
#include "train/times.h"
#include "train/tournament.h"
#include "train/trainer.h"

/* Each under its own name; those of other kinds of networks are none. */
static void fill_scores(trainer *t, bool evaluated)
{
    kolo_summary *s = &t->summary;
    const kolo_evaluation *e = &t->evaluation;
    const bool boxes = t->session.detector, tags = kolo_session_tags(&t->session);
    snprintf(s->metric, sizeof s->metric, "%s", kolo_session_metric(&t->session));
    s->top1 = s->top5 = s->ap = s->ap50 = s->map = s->ap_micro = s->best_top1 = s->best_ap = s->best_map = -1;
    *(boxes ? &s->best_ap : tags ? &s->best_map : &s->best_top1) = t->position.best;
    if (!evaluated) return;
    if (boxes) s->ap = e->line[0], s->ap50 = e->line[1], s->map = e->openimages;
    else if (tags) s->map = e->map, s->ap_micro = e->ap_micro;
    else s->top1 = e->top1, s->top5 = e->top5;
}

static void fill_summary(trainer *t, const char *state, const char *next)
{
    kolo_summary *s = &t->summary;
    const kolo_session *session = &t->session;
    double seconds = kolo_time() - t->started, wall = t->position.wall_seconds + seconds;
    int64_t steps = t->position.step - t->first_step;
    snprintf(s->run_id, sizeof s->run_id, "%s", t->position.run);
    snprintf(s->state, sizeof s->state, "%s", state);
    snprintf(s->model, sizeof s->model, "%s", t->options->model);
    snprintf(s->next, sizeof s->next, "%.255s", next);
    s->steps = t->position.step;
    s->restarts = t->position.restarts;
    int64_t within;
    kolo_session_at(session, t->position.step, &s->epochs, &within);
    bool evaluated = t->evaluation.rows > 0;
    /* detectors have no validation loss */
    s->loss = evaluated && !session->detector ? t->evaluation.loss : t->loss;
    fill_scores(t, evaluated);
    if (t->reported > 0) s->step_seconds = t->reported_seconds / (double)t->reported;
    if (steps > 0) s->img_per_s = (double)t->images / seconds, s->wait_share = t->waited / seconds;
    s->wall_seconds = wall;
    s->ranks = t->launch->size;
    s->nodes = t->launch->nodes;
    s->threads = (int)t->options->threads;
    s->peak_bytes = kolo_session_peak_bytes(session);
    s->planned_bytes = kolo_session_planned_bytes(session, true);
    s->stages = t->planned_by_rank ? session->grid.stages : 0;
    s->replicas = session->grid.replicas;
    s->planned_by_rank = t->planned_by_rank;
    s->peak_by_rank = t->peak_by_rank;
    if (t->epoch.seconds > 0) s->mb_per_s = (double)t->epoch.bytes / t->epoch.seconds / 1e6;
    s->cache_hits = t->epoch.hits;
    s->bad_samples = t->epoch.bad;
    s->useful_batch = kolo_noise_batch(&t->noise);
    s->node_hours = wall / 3600 * t->launch->nodes;
}

/* How steps count from here on. */
static void count_phase(trainer *t)
{
    const kolo_session *s = &t->session;
    const kolo_phase *p = &s->phase[s->now], *last = &s->phase[s->phases - 1];
    const int64_t epochs =
        last->epoch + (s->steps - last->step + last->steps_per_epoch - 1) / last->steps_per_epoch;
    kolo_progress_phase(t->progress, p->step, p->epoch, epochs, p->steps_per_epoch, p->batch);
}

/* before: the summary that the last start left, or NULL. One that says "running" was killed. */
static int report_begin(trainer *t, const kolo_summary *before)
{
    const kolo_session *s = &t->session;
    const kolo_phase *p = &s->phase[s->now];
    const bool killed = before && !strcmp(before->state, "running");
    char host[256] = "", *host_text, *after_text, *why_text;
    gethostname(host, sizeof host - 1);
    host_text = kolo_json_quote(host);
    after_text = kolo_json_quote(!before ? NULL : killed ? "killed" : before->state);
    why_text = kolo_json_quote(before && !strcmp(before->state, "failed") ? before->next : NULL);
    int rc = KOLO_ENOMEM;
    if (host_text && after_text && why_text)
        rc = kolo_events_write(
            t->events, "start",
            "\"step\":%ld,\"restarts\":%ld,\"ranks\":%d,\"nodes\":%d,\"threads\":%ld,"
            "\"version\":\"%s\",\"launch\":\"%s\",\"plan_hash\":\"%016lx\",\"run_id\":\"%s\",\"steps\":%ld,"
            "\"epoch_steps\":%ld,\"batch\":%ld,\"images\":%ld,\"host\":%s,\"device\":\"%s\",\"job\":\"%s\","
            "\"load_seconds\":%.3f,\"after\":%s,\"why\":%s,\"late_weights\":\"%s\"",
            (long)t->position.step, (long)t->position.restarts, t->launch->size, t->launch->nodes,
            (long)t->options->threads, KOLO_VERSION, t->launch->method, (unsigned long)s->plan->hash,
            t->position.run, (long)s->steps, (long)p->steps_per_epoch, (long)p->batch, (long)s->samples,
            host_text, s->cuda ? s->device.name : "cpu", t->summary.job, t->load_seconds, after_text,
            why_text, t->position.late);
    free(host_text);
    free(after_text);
    free(why_text);
    return rc;
}

/* What a step should take, where its operations were measured here (`kolo bench --tune kernels`). */
static int predict(trainer *t)
{
    kolo_play *play = NULL;
    t->summary.predicted_step_seconds = -1;
    if (!kolo_session_is_measured(&t->session)) return 0;
    KOLO_TRY(kolo_session_play(&t->session, &play, NULL));
    t->summary.predicted_step_seconds = play->step;
    kolo_play_destroy(&play);
    return 0;
}

int trainer_report_start(trainer *t)
{
    if (!is_root(t)) return 0;
    int64_t repeated = 0;
    kolo_summary before;
    int had = kolo_summary_read(t->options->run, &before);
    KOLO_TRY(had);
    if (had) t->summary.repeated_steps = before.repeated_steps, t->position.restarts = before.restarts + 1;
    /* steps under way are reported when they are applied, also if the start before reported them */
    const int64_t reported = t->position.step - t->unreported;
    KOLO_TRY(kolo_events_open(&t->events, t->options->run, reported, &repeated));
    t->summary.repeated_steps += repeated;
    kolo_summary_environment(&t->summary);
    KOLO_TRY(kolo_progress_create(&t->progress, t->options, t->session.steps));
    count_phase(t);
    KOLO_TRY(predict(t));
    fill_summary(t, "running", "wait, or stop it: it goes on from its last checkpoint");
    KOLO_TRY(kolo_summary_write(t->options->run, &t->summary)); /* what is counted here survives a kill */
    kolo_slurm_comment_begin(&t->comment, t->options->slurm_comment);
    KOLO_TRY(trainer_board_open(t));
    return report_begin(t, had ? &before : NULL);
}

int trainer_report(trainer *t, const kolo_metrics *m)
{
    if (m->step < 0) return 0;
    const step_record *i = record_of(t, m->step);
    double now = kolo_time(), seconds = now - t->reported_at; /* where steps overlap: its share */
    t->reported_at = now;
    t->reported_seconds += seconds;
    t->reported++;
    t->unreported--;
    double rows = m->rows > 0 ? m->rows : 1;
    t->loss = m->loss / rows;
    if (!is_root(t)) return 0;
    if (t->options->noise_scale && t->session.replicas * t->session.slots > 1 && i->whole && m->square > 0)
        kolo_noise_add(&t->noise, t->session.replicas * t->session.slots, t->session.rows, m->square,
                       m->grad_norm);
    kolo_step_event event = {
        .step = i->step + 1,
        .epoch = i->epoch,
        .loss = t->loss,
        .lr = i->lr,
        .top1 = t->session.detector || kolo_session_tags(&t->session) ? -1 : m->top1 / rows,
        .grad_norm = m->grad_norm,
        .useful_batch = kolo_noise_batch(&t->noise),
        .seconds = seconds,
        .wait = i->wait,
        .dropped = t->dropped,
        .drops = t->dropped ? kolo_exec_dropped(t->session.exec, m->step, t->dropped) : 0,
        .stale = t->stale,
        .stales = t->stale ? kolo_session_workers(&t->session) : 0,
        .comm = i->comm};
    kolo_progress_step(t->progress, i->step + 1, t->loss, i->lr, t->waited / (now - t->started),
                       event.useful_batch);
    if (kolo_slurm_comment_due(&t->comment))
        kolo_slurm_comment_set(&t->comment, kolo_progress_text(t->progress));
    KOLO_TRY(kolo_events_step(t->events, &event));
    t->scale[0] = t->scale[1];
    t->scale[1] = m->loss_scale;
    if (m->loss_scale == t->loss_scale) return 0;
    t->loss_scale = m->loss_scale;
    return kolo_events_write(t->events, "loss_scale", "\"step\":%ld,\"scale\":%.9g,\"skipped\":%ld",
                             (long)i->step + 1, m->loss_scale, (long)m->skipped);
}

int trainer_report_epoch(trainer *t)
{
    kolo_data_event event;
    KOLO_TRY(kolo_epoch_end(&t->epoch, &t->session, t->position.step, &event));
    return is_root(t) ? kolo_events_data(t->events, &event) : 0;
}

int trainer_report_phase(trainer *t)
{
    const kolo_session *s = &t->session;
    const kolo_phase *p = &s->phase[s->now];
    const long side = p->sides.high, width = side ? side : s->width, height = side ? side : s->height;
    if (!is_root(t)) return 0;
    kolo_progress_pause(t->progress);
    kolo_progress_note(t->progress, "epoch %ld: batches of %ld, images of %s%ld x %ld", (long)p->epoch + 1,
                       (long)p->batch, p->sides.low < side ? "at most " : "", width, height);
    count_phase(t);
    return kolo_events_write(t->events, "phase",
                             "\"step\":%ld,\"epoch\":%ld,\"batch\":%ld,\"width\":%ld,\"height\":%ld",
                             (long)t->position.step, (long)p->epoch, (long)p->batch, width, height);
}

/* [a, b, ...] of numbers */
static void put_numbers(FILE *f, const char *name, const double *number, size_t apart, int n)
{
    fprintf(f, ",\"%s\":[", name);
    for (int i = 0; i < n; i++) {
        if (i) fputc(',', f);
        kolo_json_number(f, *(const double *)((const char *)number + (size_t)i * apart), 9);
    }
    fputc(']', f);
}

/* Who met whom, and who won: the first of a pair is its winner. */
static void put_pairs(FILE *f, const kolo_tournament *t)
{
    fprintf(f, ",\"pairs\":[");
    for (int i = 0; i + 1 < t->members; i += 2) {
        const int winner = kolo_tournament_winner(t, i);
        fprintf(f, "%s[%d,%d]", i ? "," : "", winner, t->order[i] + t->order[i + 1] - winner);
    }
    fputc(']', f);
    if (t->members % 2) fprintf(f, ",\"out\":%d", t->order[t->members - 1]);
}

int trainer_report_meeting(trainer *t)
{
    const kolo_tournament *k = t->session.tournament;
    const long step = (long)t->position.step;
    const bool last = step == t->session.steps;
    char *text = NULL;
    size_t length = 0;
    if (!is_root(t)) return 0;
    FILE *f = open_memstream(&text, &length);
    if (!f) return kolo_no_memory(sizeof *f);
    fprintf(f, "\"step\":%ld,\"group\":%d,\"best\":%d,\"best_loss\":%.9g", step, k->group, k->best,
            k->loss[k->best]);
    if (!last) put_pairs(f, k);
    put_numbers(f, "losses", k->loss, sizeof *k->loss, k->members);
    put_numbers(f, "lr", &k->own[0].lr, sizeof *k->own, k->members);
    put_numbers(f, "momentum", &k->own[0].momentum, sizeof *k->own, k->members);
    put_numbers(f, "weight_decay", &k->own[0].decay, sizeof *k->own, k->members);
    int rc = fclose(f) == 0 ? kolo_events_write(t->events, "tournament", "%s", text) : kolo_no_memory(length);
    free(text);
    kolo_progress_pause(t->progress);
    kolo_progress_note(t->progress, "step %ld: %s, %s %d has the lowest loss, %.4f, with lr %g", step,
                       last           ? "the end of the tournament"
                       : k->group > 1 ? "groups met"
                                      : "ranks met",
                       k->group > 1 ? "group" : "rank", k->best, k->loss[k->best], k->own[k->best].lr);
    return rc;
}

/* COCO's figures, and those of other rules where they were asked for. */
static int report_boxes(trainer *t, long step, const char *so_far)
{
    const kolo_evaluation *e = &t->evaluation;
    char said[64] = "", fields[128] = "";
    if (e->openimages >= 0) {
        snprintf(said, sizeof said, ", Open Images mAP %.4f", e->openimages);
        snprintf(fields, sizeof fields, "\"map_openimages\":%.9g,", e->openimages);
    } else if (e->voc[1] >= 0) {
        snprintf(said, sizeof said, ", VOC mAP %.4f", e->voc[1]);
        snprintf(fields, sizeof fields, "\"map_voc\":%.9g,", e->voc[1]);
    }
    kolo_progress_note(
        t->progress, "step %ld: AP %.4f, AP50 %.4f, AP75 %.4f, AR100 %.4f%s (%ld images, %.1f s)%s", step,
        e->line[0], e->line[1], e->line[2], e->line[8], said, (long)e->rows, e->seconds, so_far);
    return kolo_events_write(
        t->events, "eval",
        "\"step\":%ld,\"ap\":%.9g,\"ap50\":%.9g,\"ap75\":%.9g,\"ar100\":%.9g,%s\"ap_raw\":%.9g,\"rows\":%ld,"
        "\"seconds\":%.6g",
        step, e->line[0], e->line[1], e->line[2], e->line[8], fields, t->raw_metric, (long)e->rows,
        e->seconds);
}

static int report_image_labels(trainer *t, long step, const char *so_far)
{
    const kolo_evaluation *e = &t->evaluation;
    kolo_progress_note(t->progress,
                       "step %ld: validation loss %.4f, mAP %.4f, micro AP %.4f (%ld images, %.1f s)%s", step,
                       e->loss, e->map, e->ap_micro, (long)e->rows, e->seconds, so_far);
    return kolo_events_write(
        t->events, "eval",
        "\"step\":%ld,\"loss\":%.9g,\"map\":%.9g,\"ap_micro\":%.9g,\"map_raw\":%.9g,\"rows\":%ld,"
        "\"seconds\":%.6g",
        step, e->loss, e->map, e->ap_micro, t->raw_metric, (long)e->rows, e->seconds);
}

static int report_classes(trainer *t, long step, const char *so_far)
{
    const kolo_evaluation *e = &t->evaluation;
    kolo_progress_note(t->progress,
                       "step %ld: validation loss %.4f, top-1 %.4f, top-5 %.4f (%ld images, %.1f s)%s", step,
                       e->loss, e->top1, e->top5, (long)e->rows, e->seconds, so_far);
    return kolo_events_write(
        t->events, "eval",
        "\"step\":%ld,\"loss\":%.9g,\"top1\":%.9g,\"top5\":%.9g,\"top1_raw\":%.9g,\"rows\":%ld,"
        "\"seconds\":%.6g",
        step, e->loss, e->top1, e->top5, t->raw_metric, (long)e->rows, e->seconds);
}

int trainer_report_evaluation(trainer *t, bool best)
{
    const char *so_far = best ? ", the best so far" : "";
    const long step = (long)t->position.step;
    if (!is_root(t)) return 0;
    KOLO_TRY((t->session.detector              ? report_boxes
              : kolo_session_tags(&t->session) ? report_image_labels
                                               : report_classes)(t, step, so_far));
    return kolo_by_class_report(&t->by_class, step, t->events);
}

static const char nothing[] = "nothing: the run is complete",
                  nothing_early[] =
                      "nothing: early_stop= has ended the run; checkpoint=best has its best weights";

int trainer_report_complete(const trainer *t)
{
    kolo_summary s;
    if (!is_root(t)) return 0;
    const int found = kolo_summary_read(t->options->run, &s);
    KOLO_TRY(found);
    if (!found || !strcmp(s.state, "done")) return 0;
    snprintf(s.state, sizeof s.state, "done");
    snprintf(s.next, sizeof s.next, "%s", nothing);
    return kolo_summary_write(t->options->run, &s);
}

static void comment_end(trainer *t, const char *state)
{
    char best[64] = "", text[640];
    if (!t->comment.on) return;
    if (t->position.best >= 0)
        snprintf(best, sizeof best, ", best %s %.4f", kolo_session_metric(&t->session), t->position.best);
    snprintf(text, sizeof text, "%s%s: %s", state, best, kolo_progress_text(t->progress));
    kolo_slurm_comment_end(&t->comment, text);
}

/* With what rank 0 has sent to other stages and parts, as comm counted it. */
static void write_end(const trainer *t, const char *state)
{
    kolo_comm_stats stats = {0};
    if (!t->events) return;
    if (t->session.comm) kolo_comm_get_stats(t->session.comm, &stats);
    kolo_events_write(t->events, state, "\"step\":%ld,\"transfers\":%ld,\"transfer_bytes\":%ld",
                      (long)t->position.step, (long)stats.sent, (long)stats.sent_bytes);
}

/* Of all starts, as the events say. */
static int count_late(const trainer *t, kolo_late_counts *late)
{
    KOLO_TRY(kolo_late_counts_open(late, t->dropped ? t->session.ranks : 0));
    if (t->options->sync != KOLO_sync_async && t->options->sync != KOLO_sync_backup) return 0;
    KOLO_TRY(kolo_events_flush(t->events));
    return kolo_late_counts_read(late, t->options->run);
}

int trainer_report_end(trainer *t, int rc)
{
    kolo_failure reason;
    kolo_error_keep(&reason);
    const char *state = rc == 0                        ? "done"
                        : rc != KOLO_EREQUEUE          ? "failed"
                        : t->stop == KOLO_STOP_REQUEUE ? "requeue"
                                                       : "stopped";
    const char *next = rc == 0 && t->early   ? nothing_early
                       : rc == 0             ? nothing
                       : rc != KOLO_EREQUEUE ? reason.text
                       : t->stop == KOLO_STOP_REQUEUE
                           ? "run the same command (or let Slurm requeue the job)"
                           : "run the same command: it goes on from its last checkpoint";
    fill_summary(t, state, next);
    kolo_late_counts late;
    if (count_late(t, &late) == 0) t->summary.late = &late;
    kolo_summary_write(t->options->run, &t->summary);
    t->summary.late = NULL;
    kolo_late_counts_close(&late);
    write_end(t, state);
    trainer_board_close(t, state);
    comment_end(t, state);
    return kolo_error_restore(&reason, rc);
}
