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
/* Parts that maps, their channels too, are cut into. */
int session_parts(const kolo_session *session);
/* Ranks load the parts of the images that they compute, instead of being sent them by the first. */
bool session_loads_parts(const kolo_session *session);
/* "spatial=2x2 tensor=2": what says so. */
void session_parts_text(const kolo_session *session, char text[64]);
int session_cut_parts(const kolo_session *session); /* stages x chunks */
/* The plans of the whole network become those of this rank's stage, and a program with the others'. */
int session_place(kolo_session *session, const int *cut);
/* What the second part begins with, the third ..., quoted and in commas, as cut= takes it; with one part
 * nothing. */
void session_cut_names(const kolo_session *session, char *text, size_t size);
void session_free_programs(kolo_session *session);

#endif
