/* The inside of a training run, for train.c (the loop), train_resume.c (how it begins), train_report.c and
 * board.c (what it reports), and for what other modes do in its place: async.c, backup.c, late.c. */
#ifndef KOLO_TRAIN_TRAINER_H
#define KOLO_TRAIN_TRAINER_H

#include "ckpt/ckpt.h"
#include "optim/noise.h"
#include "report/report.h"
#include "train/epoch.h"
#include "train/train.h"

/* What is known of a step before its metrics are. */
typedef struct step_record {
    int64_t step, epoch;
    double lr, wait, comm; /* seconds for its batch, and for other ranks (negative: not measured) */
    bool whole;            /* no row of its batch is without weight */
} step_record;

enum { TRAINER_RECORDS = KOLO_EXEC_AHEAD + 1 + KOLO_MOST_LATE };

typedef struct trainer {
    kolo_session session;
    kolo_options *options;
    kolo_launch *launch;
    enum kolo_stop (*asked)(void);
    enum kolo_stop stop; /* all ranks agreed on it */
    kolo_position position;
    kolo_evaluation evaluation; /* the last; rows 0: none yet */
    kolo_by_class by_class;     /* of it; zeros: none yet */
    double raw_metric;          /* of the weights themselves when the averaged ones are evaluated too */
    /* rank 0 only */
    kolo_run *run;
    kolo_events *events;
    kolo_tensorboard *board; /* NULL: without tensorboard= */
    kolo_progress *progress;
    kolo_slurm_comment comment;
    kolo_summary summary;
    /* [ranks], at rank 0, when something was last saved, in one allocation that the first owns: else NULL */
    uint64_t *planned_by_rank, *peak_by_rank;
    /* agreement to stop */
    int64_t next_poll, last_poll;
    double last_poll_time;
    double started;       /* this start, seconds */
    double waited;        /* loader wait of this start until the last step, seconds */
    double waited_before; /* of it, in the loaders of earlier phases */
    int64_t images;       /* of this start's steps */
    kolo_noise noise;
    step_record *issued; /* [records] step number i in [i % records] */
    int64_t records;
    int unreported; /* steps issued whose metrics are not reported yet */
    /* time: when the last step was reported, or the first of a row was started */
    double reported_at;
    double reported_seconds; /* of all steps of this start that were reported */
    int64_t reported;        /* so many */
    double loss;             /* of the last reported step, mean */
    double loss_scale;       /* after it, as events know it */
    double scale[2];         /* with tensorboard=: what the loss was times in that step, and is in the next */
    int64_t first_step;      /* of this start */
    /* that its checkpoint took to read; 0: it had none */
    double load_seconds;
    int64_t saved;       /* the step of the newest checkpoint, -1: there is none */
    kolo_epoch epoch;    /* what its loaders did */
    int64_t local_start; /* the first step that ranks do by themselves; INT64_MAX: none */
    int *dropped;        /* [backup + 1] ranks whose gradients a step did without; NULL: all count */
    uint64_t *counted;   /* at rank 0 with backup_replay=: [steps][words], which ranks count */
    /* at rank 0 with sync=async: [ranks] staleness of the gradients of the step that is reported */
    const int64_t *stale;
    double comm;   /* likewise: seconds that were waited for others when a step was last reported */
    bool early;    /* early_stop= ended the run */
    bool complete; /* the run was complete already: its figures stand */
} trainer;

static inline bool is_root(const trainer *t) { return t->launch->rank == 0; }

/* train.c: what changes from step to step, for step number `step` of the run; epoch: of its batch. */
kolo_step trainer_step(const trainer *t, int64_t step, int64_t epoch);

/* train_resume.c: weights and position, of the run's newest checkpoint or as a run begins; rank 0 holds the
 * folder then. Collective. */
int trainer_begin(trainer *t);

/* board.c: rank 0 but where stated. state: how the run ended, NULL: nothing is said of that. */
int trainer_board_open(trainer *t);
void trainer_board_close(trainer *t, const char *state);
/* With step number `step` (1, 2, ...) images and histograms are written. Of all ranks. */
bool trainer_board_due(const trainer *t, int64_t step);
int trainer_board_images(trainer *t, const kolo_batch *batch, int64_t step);
/* All steps are done and reported. Collective; rank 0 writes. */
int trainer_board_histograms(trainer *t, int64_t step);

/* train_report.c: rank 0 writes, all may call; but for the first two every step is done and reported. */
static inline step_record *record_of(trainer *t, int64_t step) { return &t->issued[step % t->records]; }
int trainer_report(trainer *t, const kolo_metrics *m); /* metrics of a step, which may lie some steps back */
int trainer_report_start(trainer *t);
int trainer_report_epoch(trainer *t);
int trainer_report_phase(trainer *t);
int trainer_report_meeting(trainer *t); /* of a tournament */
int trainer_report_evaluation(trainer *t, bool best);
/* it was before this start; who ended it may have been killed before he could say so */
int trainer_report_complete(const trainer *t);
int trainer_report_end(trainer *t, int rc); /* rc: how it ended; its text is kept */

#endif
