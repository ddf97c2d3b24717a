/* comm_scale and comm_fill_neutral (comm/core/kernel.h) in a GPU's memory, with the bits of the host's,
 * enqueued on a stream. */
#ifndef KOLO_COMM_CUDA_SCALE_H
#define KOLO_COMM_CUDA_SCALE_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "kolo/world.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to may be from. divisor and factor 1: a copy, of every type; otherwise not of u16 and i16. */
int comm_gpu_scale(void *to, const void *from, int64_t count, enum kolo_dtype type, int64_t divisor,
                   double factor, cudaStream_t stream);
int comm_gpu_fill(void *to, int64_t count, enum kolo_dtype type, enum kolo_reduce op, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
