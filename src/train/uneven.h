/* Uneven: what stages of unequally many ranks would be worth to a training on a cluster (plan/replicate.h).
 * They are priced, not made: a pipeline of Kolo has equally many ranks a stage. */
#ifndef KOLO_TRAIN_UNEVEN_H
#define KOLO_TRAIN_UNEVEN_H

#include <stddef.h>

#include "train/session.h"

/* The best division in words, and what copies take by the same objective; empty where equally many ranks a
 * stage are the best, without a cluster, and on more than 64 ranks. session: of plain data parallel. */
int session_uneven(const kolo_session *session, char *text, size_t size);

#endif
