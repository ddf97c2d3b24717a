/* What was measured on this machine and is kept in $KOLO_CACHE/kernels: two numbers by a key, alone and with
 * all cores busy: seconds of a kernel, of other actions those of a byte; and what is true of the node,
 * whatever is trained on it. */
#ifndef KOLO_TRAIN_KNOWN_TIMES_H
#define KOLO_TRAIN_KNOWN_TIMES_H

#include "exec/node_clock.h"
#include "ops/choices.h"
#include "plan/play.h"
#include "train/session.h"

/* To be closed in any case. KOLO_ENOMEM. */
int known_times_open(const kolo_session *session, kolo_choices *known);
bool known_times_find(kolo_choices *known, const char *key, kolo_play_time *time);
int known_times_keep(kolo_choices *known, const char *key, kolo_play_time time);
void known_kernel_key(const kolo_plan *plan, int64_t node, char *key, size_t size);
void known_action_key(const kolo_plan *plan, enum kolo_action_kind kind, char *key, size_t size);

/* A byte read or written, and a wake from one rank to another, which all messages of a node go by: measured
 * once and kept, so that all plans are priced by the same. */
typedef struct node_times {
    kolo_byte_seconds byte;
    double wake;
} node_times;

/* As it is kept, or measured now where it is not, or `again`; assumed where the session times nothing. */
int node_times_measure(const kolo_session *session, kolo_choices *known, bool again, node_times *node);
/* All of it is kept. */
bool node_times_known(kolo_choices *known);
/* Ranks that compute beside one, where they fill the cores. */
int node_times_beside(const kolo_session *session);

#endif
