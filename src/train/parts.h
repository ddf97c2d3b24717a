/* The parts in which a session is opened; each file is one. */
#ifndef KOLO_TRAIN_PARTS_H
#define KOLO_TRAIN_PARTS_H

#include "train/session.h"

/* device.c: fills cuda, device, device_index, gpu_ranks; refuses what the device cannot compute. Collective. */
int session_choose_device(kolo_session *session);
enum kolo_dtype session_dtype(const kolo_session *session); /* of activations */
const char *session_precision(const kolo_session *session);
int session_check_memory(kolo_session *session); /* before any arena is allocated */
void session_tell_device(const kolo_session *session);

/* session.c: graph, plans, memory, loaders, executors of the phase that s->now says. */
int session_open_phase(kolo_session *s);
void session_close_phase(kolo_session *s);
int session_plan_trial(kolo_session *s); /* its graphs, backend and plans alone, by this rank alone */

/* session_phase.c */
int session_lay_phases(kolo_session *s); /* with the data known: phases, steps */
int session_resolve_batch(kolo_session *s);

/* auto_batch.c: the largest batch that fits, to options->batch; nothing where it is given. Collective. */
int session_choose_batch(kolo_session *s);
/* session_data.c */
int session_open_data(kolo_session *s, int parts);
int session_make_loaders(kolo_session *s, int parts);
void session_close_loaders(kolo_session *s);
void session_close_data(kolo_session *s);

#endif
