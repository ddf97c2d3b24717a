/* Shards: how many parts the ranks of a stage have of what shard= names. */
#ifndef KOLO_TRAIN_SHARD_H
#define KOLO_TRAIN_SHARD_H

#include "plan/shard.h"
#include "train/session.h"

/* After the grid: session->shards; refuses what shards cannot do. */
int session_open_shards(kolo_session *session);
/* KOLO_OFFLOAD_*: what offload= puts into a file. */
int session_offloads(const kolo_options *options);
/* After the device is chosen: offload= can be done here. */
int session_check_offload(const kolo_session *session);

#endif
