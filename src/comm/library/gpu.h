/* Vectors in a GPU's memory, which NCCL carries: where vectors lie, and the lanes of a stream that carry
 * them (comm/core/gpu_channel.h). */
#ifndef COMM_LIBRARY_GPU_H
#define COMM_LIBRARY_GPU_H

#include "base/failure.h"
#include "comm/core/gpu_channel.h"
#include "comm/library/parts.h"

/* A stream's lane over NCCL, made when its first batch of such vectors comes: that is the
 * same one on all members. */
typedef struct lib_gpu {
    const comm_gpu_channel_type *type;
    comm_gpu_channel *channel;
    comm_gpu_info *info; /* [members] while it is made */
    int64_t *counts;     /* [members] of their bytes */
    char id[COMM_GPU_ID];
    double began, failed; /* failed: when NCCL said `fault`, or 0 */
    kolo_failure fault;
} lib_gpu;

/* As a part of lib_check: whether the vectors lie on a GPU, and what is wrong with that (text, empty
 * before). */
bool lib_gpu_check(const kolo_group *group, const kolo_request *request, char *text, size_t bytes);
/* A step that makes the lane; then comes lib_gpu_execute_batch again, or the end of the batch on all members,
 * where one of them cannot. */
int lib_gpu_open(lib_execution *x);
/* rc: what the channel returned, with its text. Steps that wait return this: 0 as long as nothing is wrong,
 * or the one at fault is still looked for. */
int lib_gpu_excuse(lib_execution *x, int rc);
void lib_gpu_abort(lib_stream *stream); /* what is under way ends on the GPU; the turn is held */
void lib_gpu_close(lib_stream *stream, bool orderly);

/* ---- execute_gpu.c ------------------------------------------------------------------------------------- */

int lib_gpu_execute_batch(lib_execution *x); /* the step of a batch of such vectors */

#endif
