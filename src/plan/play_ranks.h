/* For play.c: the ranks of a step that is played, and which of them are on one node. */
#ifndef KOLO_PLAN_PLAY_RANKS_H
#define KOLO_PLAN_PLAY_RANKS_H

#include "plan/play.h"

/* The number of a rank, by its stage and replica. */
int kolo_play_rank_of(const kolo_play_input *in, int stage, int replica);
/* `count` replicas of a stage, side by side, from `first` on; others of the stage on their nodes sum beside
 * them. */
kolo_fabric_group kolo_play_group(const kolo_play_input *in, int stage, int first, int count);
/* The most ranks of a stage on one node. */
int kolo_play_here(const kolo_play_input *in, int stage, int replicas);
bool kolo_play_same_node(const kolo_play_input *in, int from, int to);

#endif
