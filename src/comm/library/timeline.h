/* The timeline, for timeline*.c. */
#ifndef KOLO_COMM_TIMELINE_H
#define KOLO_COMM_TIMELINE_H

#include "comm/library/library.h"

/* `offset` seconds, known to within `error`, make this rank's times rank 0's. Right after open: it stands in front of all events. */
void lib_timeline_clock(struct lib_timeline *timeline, double offset, double error);

#endif
