/* What the loaders of all ranks did in an epoch, as one event and added up for the summary. */
#ifndef KOLO_TRAIN_EPOCH_H
#define KOLO_TRAIN_EPOCH_H

#include "report/report.h"
#include "train/session.h"

typedef struct kolo_epoch {
    kolo_loader_stats before; /* of this rank, when the epoch began */
    double began;
    int64_t first; /* step */
    /* of this start, all ranks */
    double seconds;
    int64_t bytes, hits, bad;
} kolo_epoch;

/* The next step is the first of an epoch, or of a start, and begins now. */
void kolo_epoch_begin(kolo_epoch *epoch, const kolo_session *session, int64_t step);
/* Steps [first, step) are done: fills *event. Collective; no step is under way. */
int kolo_epoch_end(kolo_epoch *epoch, kolo_session *session, int64_t step, kolo_data_event *event);

#endif
