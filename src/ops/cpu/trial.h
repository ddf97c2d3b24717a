/* Trial runs: the clock that chooses between algorithms when a plan is made. */
#ifndef KOLO_OPS_CPU_TRIAL_H
#define KOLO_OPS_CPU_TRIAL_H

#include <stdbool.h>
#include <stddef.h>

#define KOLO_TRIAL_BUFFERS 5
/* Memory filled with small numbers; freed by kolo_trial_close. */
typedef struct kolo_trial {
    void *buffer[KOLO_TRIAL_BUFFERS];
    size_t bytes[KOLO_TRIAL_BUFFERS];
} kolo_trial;

/* Whether this machine has the memory for them now. */
bool kolo_trial_fits(const size_t bytes[KOLO_TRIAL_BUFFERS]);
int kolo_trial_open(kolo_trial *trial, const size_t bytes[KOLO_TRIAL_BUFFERS]);
void kolo_trial_close(kolo_trial *trial);
/* Seconds of the fastest of a few runs; negative status if a run fails. best: of the rival so far, 0 if none:
 * one that is far behind it after its first run gets no other. */
double kolo_trial_seconds(int (*run)(void *context), void *context, double best);

#endif
