/* How long every operation of a plan takes here, alone: what a partition into stages goes by. */
#ifndef KOLO_EXEC_CLOCK_H
#define KOLO_EXEC_CLOCK_H

#include "plan/plan.h"

/* Those operations whose seconds are 0 are timed, each kernel once, the best of `times`: seconds:
 * [graph->nodes], of one micro-batch. After two seconds of that the rest is estimated by bytes and
 * arithmetic, as long as those of its class that were timed took; so are all with times 0, and on a device
 * that is not the host. timed: [graph->nodes] which ones were, or NULL. Backend memory for the largest
 * operation that is timed is allocated meanwhile. */
int kolo_exec_clock(const kolo_plan *plan, kolo_backend *backend, int times, double *seconds, bool *timed);

#endif
