/* The compiled half with compressed sums between nodes: what a rank's slice of a bucket becomes on its
 * node is summed over nodes by a codec (compress/compress.h). Within a node nothing changes. It covers the
 * allreduces and reduce_scatters of f32 of the groups that ask for it (these send as many bytes as those), no
 * allgathers and no transfers. A communicator without it takes none of these paths. */
#ifndef KOLO_COMM_COMPRESSED_H
#define KOLO_COMM_COMPRESSED_H

#include "comm/buckets/trainer.h"
#include "comm/compress/compress.h"

/* Before commit, with the same arguments on all ranks, for any number of groups (0: all ranks) with one
 * config. matrix: elements of the whole arena of the group's members, ascending; copied. KOLO_ECONFIG:
 * sums that are canonical, or of a reducer that does not go through host memory, between nodes. COMM_NONE:
 * nothing happens. */
int kolo_comm_compress(kolo_comm *comm, int group, const comm_compress *config, const comm_matrix *matrix,
                       int matrices);

/* After commit, while no bucket is under way. Bytes of what a rank carries from step to step, the same on
 * all ranks; 0: nothing. */
size_t kolo_comm_rank_state_bytes(const kolo_comm *comm);
void kolo_comm_rank_state_save(const kolo_comm *comm, void *to);
/* KOLO_EINPUT: it is of another rank, grid or recipe; nothing was changed. */
int kolo_comm_rank_state_load(kolo_comm *comm, const void *from);

#endif
