/* Phases: stretches of a run between which the batch or the picture size changes (batch_ramp, size_ramp), at borders of epochs. A run without ramps has one. Each has a
 * graph, a plan, a communicator, an executor and loaders of its own; weights, averages, optimizer state and position go over. */
#ifndef KOLO_TRAIN_PHASE_H
#define KOLO_TRAIN_PHASE_H

#include <stdint.h>

#include "base/option.h"

typedef struct kolo_phase {
    int64_t epoch;           /* its first */
    int64_t batch;           /* global */
    int64_t size;            /* side of the training picture; 0: the session's */
    int64_t steps_per_epoch; /* from here on known only with the data */
    int64_t step;            /* its first, of the run */
} kolo_phase;

/* From the options: at least one, the first at epoch 0; the caller frees. KOLO_ECONFIG: a ramp that is no list of EPOCH:NUMBER with rising epochs, or a run that is not given in epochs. */
int kolo_phases_parse(const kolo_options *options, kolo_phase **phase, int *phases);
/* Fills steps_per_epoch and step. KOLO_ECONFIG: a batch larger than the data. */
int kolo_phases_lay(kolo_phase *phase, int phases, int64_t samples, bool pad);
/* The phase that step number `step` (0, 1, ...) belongs to, its epoch, and how many steps of that epoch come before it. */
int kolo_phase_at(const kolo_phase *phase, int phases, int64_t step, int64_t *epoch, int64_t *within);
/* When that is for schedules: in steps of the first phase. */
double kolo_phase_time(const kolo_phase *phase, int phases, int64_t step);

#endif
