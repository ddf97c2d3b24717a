/* recompute=, stash=, offload=: in which forms the plans of a session keep activations for the backward half
 * (ops/form.h). */
#ifndef KOLO_TRAIN_FORMS_H
#define KOLO_TRAIN_FORMS_H

#include "train/session.h"

/* Some activations are not kept as they are. */
bool session_has_forms(const kolo_session *session);
/* Arrays for the choices, [graph->tensors] of every shape. KOLO_ECONFIG: options that do not go together. */
int session_open_forms(kolo_session *session);
/* The plans of the whole network become such as keep activations as these options say. The choice is this
 * rank's, unless it was given by another one (session->forms_given). */
int session_choose_forms(kolo_session *session);
/* With stages. Needs the placement of the shape, whose plan of the whole network becomes one of which the
 * stages' are made. */
int session_choose_stage_forms(kolo_session *session, kolo_shape *shape);

#endif
