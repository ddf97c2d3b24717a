/* How long every operation of a plan takes here, alone: what a partition into stages goes by. */
#ifndef KOLO_EXEC_CLOCK_H
#define KOLO_EXEC_CLOCK_H

#include "plan/plan.h"

/* seconds: [graph->nodes] of one micro-batch, the best of `times`. Backend memory for the largest operation
 * is allocated meanwhile. times 0, or a device that is not the host: estimated from bytes and arithmetic. */
int kolo_exec_clock(const kolo_plan *plan, kolo_backend *backend, int times, double *seconds);

/* The same of those operations alone whose seconds are 0. */
int kolo_exec_clock_rest(const kolo_plan *plan, kolo_backend *backend, int times, double *seconds);

/* Bytes a second, read and written, of an addition of arrays that no cache holds; times, devices as above. */
double kolo_exec_memory_rate(kolo_backend *backend, int times);

/* Seconds until a thread that sleeps goes on when another wakes it; 0: it could not be measured. */
double kolo_exec_wake_seconds(void);

#endif
