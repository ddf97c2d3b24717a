/* Verification of the pairs of a validation set by a network's features: what its last layer takes. */
#ifndef KOLO_TRAIN_VERIFY_H
#define KOLO_TRAIN_VERIFY_H

#include "metrics/roc.h"
#include "train/session.h"

/* Each image's features and its mirror image's, added and divided by their length; a pair's score is the
 * cosine. set: name of the pairs in the shards (data/shard/targets.h). scores: kolo_pair_scores_free,
 * whatever is returned. The same on all ranks. Collective. */
int kolo_verify(kolo_session *session, bool ema, const char *set, kolo_pair_scores *scores,
                kolo_verification *result);

#endif
