/* Phases: stretches of a run between which the batch or the image size changes (batch_ramp,
 * size_ramp), at borders of epochs. A run without ramps has one. Within a phase the side may change from
 * step to step (multi_scale). */
#ifndef KOLO_TRAIN_PHASE_H
#define KOLO_TRAIN_PHASE_H

#include <stdint.h>

#include "base/option.h"
#include "data/sides.h"

typedef struct kolo_phase {
    int64_t epoch;           /* its first */
    int64_t batch;           /* global */
    kolo_sides sides;        /* of the training image; none: it is as the session says */
    int64_t steps_per_epoch; /* from here on known only with the data */
    int64_t step;            /* its first, of the run */
} kolo_phase;

/* From the options: at least one, the first at epoch 0; the caller frees. KOLO_ECONFIG: a ramp that is no
 * list of EPOCH:NUMBER with rising epochs, or of a run that is not given in epochs; a multi_scale that is no
 * LOW-HIGH[:STEP[:EVERY]], or beside a size_ramp. */
int kolo_phases_parse(const kolo_options *options, kolo_phase **phase, int *phases);
/* Fills steps_per_epoch and step. KOLO_ECONFIG: a batch larger than the data. */
int kolo_phases_lay(kolo_phase *phase, int phases, int64_t samples, bool pad);
/* The phase that step number `step` (0, 1, ...) belongs to, its epoch, and how many steps of that
 * epoch come before it. */
int kolo_phase_at(const kolo_phase *phase, int phases, int64_t step, int64_t *epoch, int64_t *within);
/* When that is for schedules: in steps of the first phase. */
double kolo_phase_time(const kolo_phase *phase, int phases, int64_t step);

#endif
