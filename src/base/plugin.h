/* The CUDA half of the program: one library, libkolo_cuda.so, opened when a GPU is chosen, so that a start on
 * a CPU node loads none of cuDNN, cuBLASLt and NCCL, and one installation serves login, CPU and GPU nodes. It
 * takes what it needs of this program's rooms from the program itself (linked with -rdynamic). Each room asks
 * it for its own table by name:
 *
 *   kolo_cuda_backend     const kolo_backend_type    ops/kernel.h
 *   kolo_cuda_updater     const kolo_updater_type    optim/optim.h
 *   kolo_cuda_reducer     const kolo_reducer_type *const []   comm/buckets/reducer.h
 *   kolo_cuda_channel     const comm_gpu_channel_type    comm/core/gpu_channel.h
 *   kolo_cuda_devices     kolo_device_list           launch/device.h
 *   kolo_cuda_peer        kolo_device_peer           launch/device.h
 *   kolo_cuda_health      kolo_device_ask            launch/device.h
 *
 * libkolo_comm.so (and libkolo_pmpi.so), of whose rooms other programs hold nothing, has libkolo_comm_cuda.so
 * beside it in its place: the channel alone. */
#ifndef KOLO_BASE_PLUGIN_H
#define KOLO_BASE_PLUGIN_H

/* The symbol, or NULL with the error text saying which library is missing and what to do. Opened once. A
 * library of another build is refused. */
void *kolo_cuda_symbol(const char *name);
/* The file that is or would be opened, or NULL where there is none; opens nothing. It is the one that
 * KOLO_CUDA_LIBRARY names, else libkolo_cuda.so in ../lib or in . beside the program (libkolo_comm_cuda.so
 * beside libkolo_comm.so). */
const char *kolo_cuda_library(void);

#endif
