/* A failure as a value: what the calling thread failed with, kept while something else may fail.
 *
 *     fail:
 *         kolo_error_keep(&first);                 the text of what went wrong
 *         close_and_remove(...);                   may fail too, and set a text of its own
 *         return kolo_error_restore(&first, rc);   the first text again
 *
 * A destructor that closes what may fail restores with the status that was kept, so that it leaves no text of
 * its own behind. A worker's failure goes the same way to the thread that waits for it. */
#ifndef KOLO_BASE_FAILURE_H
#define KOLO_BASE_FAILURE_H

#include "kolo/error.h"

enum { KOLO_FAILURE_BYTES = 4096 };

typedef struct kolo_failure {
    int status;
    char text[KOLO_FAILURE_BYTES];
} kolo_failure;

void kolo_error_keep(kolo_failure *kept);
/* Returns rc. If that is negative, it and the kept text become those of the calling thread; otherwise
 * nothing changes. */
int kolo_error_restore(const kolo_failure *kept, int rc);

/* The status of the calling thread's last kolo_fail, always negative: for callers of a function that returns
 * NULL for several reasons. */
int kolo_error_status(void);

#endif
