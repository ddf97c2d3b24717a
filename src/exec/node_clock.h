/* What a node takes for what is no operation: moving memory, waking a thread, letting more ranks compute than
 * there are processors. */
#ifndef KOLO_EXEC_NODE_CLOCK_H
#define KOLO_EXEC_NODE_CLOCK_H

#include "ops/backend.h"

/* Seconds a byte, read and written, of an addition of arrays that no cache holds, the best of `times`: alone,
 * and with `beside` others at the same. Assumed with times 0, and on a device that is not the host. */
typedef struct kolo_byte_seconds {
    double alone, crowded;
} kolo_byte_seconds;
kolo_byte_seconds kolo_exec_byte_seconds(kolo_backend *backend, int times, int beside);

/* Seconds until a thread that sleeps goes on when another wakes it; 0: it could not be measured. */
double kolo_exec_wake_seconds(void);

/* How processors are divided among more threads that compute than there are of them: 0: evenly, so that
 * (processors + 1) threads take (1 + 1 / processors) times as long as one; 1: two of them share one processor
 * and take twice as long, though another falls idle. work: seconds of each between two meetings of all; the
 * median of `rounds` of them. */
double kolo_exec_sharing(int processors, double work, int rounds);

#endif
