/* compression=: sums of gradients that are sent in fewer bytes. */
#ifndef KOLO_TRAIN_COMPRESSION_H
#define KOLO_TRAIN_COMPRESSION_H

#include "comm/buckets/trainer.h"
#include "train/session.h"

comm_compress kolo_compression(const kolo_options *options, int64_t steps_per_epoch);
/* KOLO_ECONFIG: options that contradict it. */
int kolo_compression_check(const kolo_options *options);
/* compression_within: the launch as if every rank were a node of its own; *flat is made of `launch`, which it
 * must not outlive, and is given back by kolo_compression_flat_free. */
int kolo_compression_flat(const kolo_launch *launch, kolo_launch *flat);
void kolo_compression_flat_free(kolo_launch *flat);
/* Between the communicator's create and the executor's. */
int kolo_compression_apply(kolo_session *session);
/* What a rank of this plan holds for sums between nodes beside its arenas: *bytes; and of it what a
 * compression carries from step to step. */
int kolo_compression_bytes(const kolo_session *session, const kolo_plan *plan, size_t *bytes,
                           size_t *carried);

#endif
