/* Lists of which every rank has a part. */
#ifndef KOLO_TRAIN_GATHER_H
#define KOLO_TRAIN_GATHER_H

#include "train/session.h"

/* list: T **, of *count elements, from kolo_alloc; afterwards the parts of all ranks, rank by rank,
 * on each. Collective. */
int session_gather(kolo_session *session, void *list, int64_t *count, size_t element);

#endif
