/* Calls of the CUDA runtime as this folder makes them. Nothing here needs the program but kolo_fail. */
#ifndef KOLO_COMM_CUDA_CALLS_H
#define KOLO_COMM_CUDA_CALLS_H

#include <cuda_runtime_api.h>

/* 0, or what CUDA says with the call and its place. */
int comm_cuda_check(cudaError_t rc, const char *call, const char *file, int line);
#define COMM_CUDA(call) comm_cuda_check((call), #call, __FILE__, __LINE__)
int comm_cuda_event(cudaEvent_t *event); /* for order alone */
/* A rest between two polls: brief at first. */
void comm_cuda_rest(int polls);

#endif
