/* The comment of the Slurm job that this process runs in, which `squeue -o %k` and, where the site keeps
 * comments, sacct show. Set by scontrol, which is started and not waited for. */
#ifndef KOLO_REPORT_SLURM_COMMENT_H
#define KOLO_REPORT_SLURM_COMMENT_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct kolo_slurm_comment {
    char job[64];
    double set;  /* when it was set last */
    pid_t child; /* scontrol, as long as it runs; else 0 */
    bool on;     /* wanted, in a job, and could be set so far */
} kolo_slurm_comment;

/* wanted: by an option; else, or outside of a job, nothing is ever done. */
void kolo_slurm_comment_begin(kolo_slurm_comment *comment, bool wanted);
/* It is a minute since the last one. */
bool kolo_slurm_comment_due(kolo_slurm_comment *comment);
void kolo_slurm_comment_set(kolo_slurm_comment *comment, const char *text);
/* The last one, waited for. */
void kolo_slurm_comment_end(kolo_slurm_comment *comment, const char *text);

#endif
