/* recompute= and memory=: which activations the plans of a session drop, to make them again in the backward
 * half (plan/recompute.h). */
#ifndef KOLO_TRAIN_RECOMPUTE_H
#define KOLO_TRAIN_RECOMPUTE_H

#include "train/session.h"

/* memory= in bytes a rank; 0: not given. KOLO_ECONFIG: not such a text. */
int session_memory(const kolo_session *session, size_t *bytes);
/* The plans of the whole network become such as drop what recompute= says. The choice is this rank's, by the
 * times of operations here, unless it was given by another one (session->dropped_given). */
int session_recompute(kolo_session *session);
/* With stages: each for its own memory. Needs the placement of the shape, whose plan of the whole network
 * becomes one of which the stages' are made. */
int session_recompute_stages(kolo_session *session, kolo_shape *shape);
/* The least bytes that a rank needs with recompute=all, where there are no stages and nothing is recomputed
 * yet; else 0. */
int session_recompute_least(const kolo_session *session, size_t *bytes);
/* Arrays for the choices, [graph->tensors] of every shape. */
int session_open_dropped(kolo_session *session);

#endif
