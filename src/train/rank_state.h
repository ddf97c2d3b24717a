/* What a rank has for itself alone from step to step: what compressed sums held back, or with reduce=adasum
 * the state of its optimizer; with local steps that and its weights;
 * with sync=stale, the same for all, what steps under way have summed. */
#ifndef KOLO_TRAIN_RANK_STATE_H
#define KOLO_TRAIN_RANK_STATE_H

#include "train/session.h"

size_t kolo_rank_state_bytes(const kolo_session *session); /* the same on all ranks; 0: nothing */
/* Parts of so many bytes that all ranks have together, and which one is this rank's: the optimizer's state is
 * of a replica, whatever its stages, what compressed sums held back is of a rank. */
int kolo_rank_state_parts(const kolo_session *session, int *part);
/* Collective, between steps: all of it comes to rank 0, part after part, into `all` (kolo_rank_state_bytes
 * each); `all` is read at rank 0 only. */
int kolo_rank_state_gather(kolo_session *session, void *all);
/* The same a part at a time, for rank 0 that has no room for all: part `part` comes to `to` there, and `to`
 * is NULL elsewhere. context: the session. */
int kolo_rank_state_bring(void *context, int part, void *to);
/* Not of steps under way (late.h). KOLO_EINPUT: of another grid or recipe; nothing was changed. */
int kolo_rank_state_load(kolo_session *session, const void *from);

#endif
