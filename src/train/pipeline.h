/* Pipelines: the network is cut into stages, each on ranks of its own. */
#ifndef KOLO_TRAIN_PIPELINE_H
#define KOLO_TRAIN_PIPELINE_H

#include "plan/partition.h"
#include "train/session.h"

/* What belongs to stages= beside one another's plans. */
int session_open_grid(
    kolo_session *session); /* ranks to stages and replicas; refuses what stages cannot do */
/* Where the network is cut, chosen by this rank's clock: cut[parts - 1] forward operations that end a part.
 * Needs the plan of the whole network. Nothing with one stage. */
int session_choose_cut(kolo_session *session, int *cut);
int session_cut_parts(const kolo_session *session); /* stages x chunks */
/* The plans of the whole network become those of this rank's stage, and a program with the others'. */
int session_place(kolo_session *session, const int *cut);
void session_free_programs(kolo_session *session);

#endif
