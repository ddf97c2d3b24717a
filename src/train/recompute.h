/* recompute= and memory=: which activations the plans of a session drop, to make them again in the backward
 * half (plan/recompute.h). */
#ifndef KOLO_TRAIN_RECOMPUTE_H
#define KOLO_TRAIN_RECOMPUTE_H

#include "train/session.h"

/* memory= in bytes a rank; 0: not given. KOLO_ECONFIG: not such a text. */
int session_memory(const kolo_session *session, size_t *bytes);
/* What activations may take where the rest of a rank needs `rest` bytes. */
int session_activation_budget(const kolo_session *session, size_t rest, size_t *budget);
/* shape->form, of the plan of the whole network, by the times of operations here; reported where this is no
 * trial. With stages: each for its own memory; the shape has its placement. */
int session_recompute(kolo_session *session, kolo_shape *shape);
int session_recompute_stages(kolo_session *session, kolo_shape *shape);
/* The least bytes that a rank needs with recompute=all, where there are no stages and activations are kept as
 * they are; else 0. */
int session_recompute_least(const kolo_session *session, size_t *bytes);

#endif
