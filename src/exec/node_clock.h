/* What a node takes for what is no operation: moving memory, waking a thread. */
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

#endif
