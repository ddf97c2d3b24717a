/* A run as its folder tells it, whether it is done, still going, or was killed in the middle of a line. For
 * `kolo report` and `kolo runs`. Reads only. */
#ifndef KOLO_REPORT_RUN_H
#define KOLO_REPORT_RUN_H

#include <cjson/cJSON.h>

#include "report/report.h"

enum report_table_id {
#define TABLE(event, members) REPORT_##event,
#include "report/tables.def"
#undef TABLE
    REPORT_TABLES
};
#define MEMBER(event, member) REPORT_##event##_##member,
#define TABLE(event, members) enum { members REPORT_##event##_COLUMNS };
#include "report/tables.def"
#undef TABLE
#undef MEMBER

typedef struct report_table {
    double *cell; /* [rows][columns of its kind]; NaN: the event has no such member */
    int64_t rows, capacity;
} report_table;

typedef struct report_columns {
    const char *event;
    int count;
    const char *const *key; /* [count] */
} report_columns;
extern const report_columns report_columns_of[REPORT_TABLES];

enum report_state {
    REPORT_QUEUED,  /* it waits in Slurm's queue to go on */
    REPORT_RUNNING, /* its process lives, or nobody here can say that it does not */
    REPORT_STOPPED, /* by request, with a checkpoint */
    REPORT_DONE,
    REPORT_FAILED, /* with an error, or without a word */
    REPORT_BEGUN,  /* there is a recipe, and no step yet */
};
extern const char *const report_state_name[];

typedef struct report_run {
    char *folder;     /* as given, without slashes at its end */
    const char *name; /* its last part, in `folder` */
    report_table table[REPORT_TABLES];
    double *epoch;             /* [step rows] how many epochs were done after the step */
    cJSON *start;              /* array of the start events */
    cJSON *classes, *examples; /* the last event of each; NULL: none */
    int64_t lines, torn;       /* lines of events.jsonl; those of them that are no event */
    kolo_summary summary;
    bool has_summary, has_options;
    kolo_late_counts late; /* of its steps */
    cJSON *memory[2];      /* bytes by rank, planned and resident: arrays; NULL: not known */
    kolo_options options;  /* by recipe.yaml */
    char *recipe_error;    /* why it cannot be read; NULL: it can */
    char **class_name;
    char *class_text; /* what class_name points into */
    int64_t class_names;
    cJSON *roc, *timeline; /* RUN/roc.json, RUN/timeline.json; NULL: none */
    enum report_state state;
    char why[512], next[512], job[32];
    double began, changed; /* s since 1970: its first event, or its recipe; the last change of its files */
} report_run;

/* KOLO_EINPUT: no such folder, or it is none of a run (neither events.jsonl, summary.json nor recipe.yaml);
 * KOLO_EIO: they may not be read. Damage within its files is no error: what can be read is there. Freed by
 * the caller, after an error too. */
int report_run_read(report_run *run, const char *folder);
/* Likewise, but only when it began and by which recipe: of a run of any length in no time. */
int report_run_read_start(report_run *run, const char *folder);
void report_run_free(report_run *run);
/* It holds events.jsonl, or summary.json and recipe.yaml. */
bool report_run_is(const char *folder);
/* When its files changed last, s since 1970; NaN: it has none. */
double report_run_changed(const char *folder);
/* What state it is in, by its summary, its lock and Slurm; of report_run_read, for `kolo runs --watch`. */
int report_run_state(report_run *run);

static inline double report_cell(const report_run *run, int table, int64_t row, int column)
{
    return run->table[table].cell[row * report_columns_of[table].count + column];
}
/* Of the last row that has it; NaN: none. */
double report_last(const report_run *run, int table, int column);
/* The row of a step in the table of steps; -1: the run did not say anything of it. */
int64_t report_row_of(const report_run *run, double step);
/* Epochs that were done after a step; NaN: not known. */
double report_epoch_of(const report_run *run, double step);
/* Images of a step: of the start, then of the last phase before it; NaN: not known. */
double report_batch_at(const report_run *run, double step);
/* The column of evaluations that the best checkpoint is chosen by, and how people call it. */
int report_metric(const report_run *run);
const char *report_metric_text(const report_run *run);
/* The row of evaluations that has the best of it; -1: there is none. */
int64_t report_best(const report_run *run);
/* The best first: by the best evaluation, those without behind them by their last training loss. */
void report_sort(report_run *runs, int n);
const char *report_class_name(const report_run *run, int64_t cls, char *number, size_t size);

/* What is derived of the last `steps` steps (0: of all). NaN: not known. */
typedef struct report_speed {
    double img_per_s;
    double wait, comm; /* shares of a step's time: for data, for other ranks */
    double eta;        /* seconds until the end, evaluations counted */
    double total;      /* steps of the run */
    double batch;
} report_speed;
void report_run_speed(const report_run *run, int64_t steps, report_speed *speed);

#endif
