/* Report: what a run tells: events (JSON lines), the summary, the progress line. Rank 0 only. */
#ifndef KOLO_REPORT_H
#define KOLO_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "launch/launch.h"
#include "report/late_counts.h"
#include "report/slurm_comment.h"
#include "report/tensorboard.h"

/* RUN/events.jsonl: one JSON object a line, "event" first. Buffered, flushed at least every second and at
 * each non-step event. */
typedef struct kolo_events kolo_events;
/* On resume the file is cut back to the first event of a step beyond `step` (and a torn last line is
 * dropped); step 0: kept from nothing. *repeated: number of step events cut. */
int kolo_events_open(kolo_events **events, const char *run_folder, int64_t step, int64_t *repeated);
void kolo_events_close(kolo_events **events);
/* From here on the numbers of events go to `board`, too, as NAME/MEMBER (train/MEMBER of a step's). Borrowed;
 * NULL: no more. */
void kolo_events_mirror(kolo_events *events, kolo_tensorboard *board);
/* What is buffered goes to the disk. Before a checkpoint is begun: no event of a step that it holds may be
 * lost with the machine. */
int kolo_events_flush(kolo_events *events);
typedef struct kolo_step_event {
    int64_t step, epoch;
    double loss, lr, grad_norm, seconds, wait, /* loss: mean over the global batch; wait: s in the loader */
        comm,           /* s that this rank waited for others; negative: not measured, not printed */
        top1,           /* negative: classes are not what it learns; not printed */
        useful_batch;   /* by the gradient noise scale; printed if above 0 */
    const int *dropped; /* [drops] ranks whose gradients did not count (sync=backup); NULL: not printed */
    int drops;
    /* [stales] updates that the weights of each rank's rows lacked (sync=async); NULL: not printed */
    const int64_t *stale;
    int stales;
} kolo_step_event;
int kolo_events_step(kolo_events *events, const kolo_step_event *event);
/* "data": what reading was like since the last one, over all ranks; once an epoch. */
typedef struct kolo_data_event {
    int64_t step, epoch, steps; /* the last step, its epoch, how many steps */
    double img_per_s, mb_per_s; /* of stored bytes */
    /* compute / (compute + wait); wait: s in the loader, of a rank on average */
    double busy, wait;
    double read_p50, read_p99, sample_p50, sample_p99; /* s; written in microseconds */
    int64_t samples, cache_hits, bad_samples;
} kolo_data_event;
int kolo_events_data(kolo_events *events, const kolo_data_event *event);
/* Any other event: the members of the object behind "event": NAME, as JSON text: "\"step\":%ld,\"path\":%s"
 * (strings by kolo_json_quote of base/json.h where they may hold quotes). nan and inf become null. "time" is
 * put behind them: s since 1970. At most 64 KiB. */
int kolo_events_write(kolo_events *events, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* RUN/summary.json, atomically. Read back by later starts to add up. */
typedef struct kolo_summary {
    char run_id[40]; /* which run of all this is (ckpt/identity.h) */
    char state[16];  /* running, done, requeue (by SIGUSR1), stopped (by who wants it to end), failed */
    char model[64], version[32], account[64], partition[64], job[32];
    int64_t steps, repeated_steps, restarts, epochs;
    char metric[8]; /* by which the best checkpoint is chosen: top1, ap (detectors), map (image labels) */
    double loss, top1, top5;        /* of the last validation (or training loss); fractions; negative: none */
    double ap, ap50, map, ap_micro; /* likewise, of detectors and of image labels */
    double best_top1, best_ap, best_map; /* of that metric; the others are none */
    /* step_seconds: of this start, mean; predicted: played before it (train/times.h), negative: not known */
    double step_seconds, predicted_step_seconds;
    double img_per_s, wait_share, wall_seconds;
    double useful_batch;             /* by the gradient noise scale; negative: not measured */
    double mb_per_s;                 /* read, in the epochs of this start */
    int64_t cache_hits, bad_samples; /* likewise */
    int ranks, nodes, threads;
    uint64_t peak_bytes, planned_bytes;
    double node_hours;
    char next[256]; /* what to do now, in words */
    /* of a pipeline: its grid, and what every rank planned and took; 0 stages: none. Written, never read */
    int stages, replicas;
    const uint64_t *planned_by_rank, *peak_by_rank; /* [stages * replicas] the caller's */
    /* of late gradients, the caller's; NULL: none, or not known yet. Written, never read */
    const kolo_late_counts *late;
} kolo_summary;
int kolo_summary_write(const char *run_folder, const kolo_summary *summary);
int kolo_summary_read(const char *run_folder, kolo_summary *summary); /* 1 read, 0 none */
/* account, partition, job from Slurm's environment; version */
void kolo_summary_environment(kolo_summary *summary);

/* Progress on stderr: at a terminal one line rewritten in place with a bar; in a log a line every ten
 * `interval`s, the first within a second. */
typedef struct kolo_progress kolo_progress;
int kolo_progress_create(kolo_progress **progress, const kolo_options *options, int64_t steps_total);
/* From step `first` (0, 1, ...) on, which begins epoch number `epoch` (0, 1, ...) of `epochs`, an epoch has
 * so many steps of `batch` images. Before the first step. */
void kolo_progress_phase(kolo_progress *progress, int64_t first, int64_t epoch, int64_t epochs,
                         int64_t steps_per_epoch, int64_t batch);
void kolo_progress_destroy(kolo_progress **progress);
/* useful_batch: by the gradient noise scale; printed if above 0. */
void kolo_progress_step(kolo_progress *progress, int64_t step, double loss, double lr, double wait_share,
                        double useful_batch);
/* The time until the next step belongs to something else (validation): it counts for the ETA, not for
 * img/s. */
void kolo_progress_pause(kolo_progress *progress);
/* What the line says, or would say now. In `progress`. */
const char *kolo_progress_text(const kolo_progress *progress);
/* a line of its own */
void kolo_progress_note(kolo_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
