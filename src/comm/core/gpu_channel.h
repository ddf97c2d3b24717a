/* GPU channel: collectives of vectors that lie in a GPU's memory, for the library half (library/gpu.c,
 * library/execute_gpu.c). One channel is one communicator of NCCL with a CUDA stream: what is begun on it is
 * enqueued in that order, which therefore must be the same on all of its ranks. Nothing of it waits but
 * `close`. The calls of one channel come one at a time, from any thread. `kolo_cuda_channel`, of
 * libkolo_cuda.so in the program and of libkolo_comm_cuda.so beside libkolo_comm.so. */
#ifndef KOLO_COMM_GPU_CHANNEL_H
#define KOLO_COMM_GPU_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kolo/world.h"

enum { COMM_GPU_ID = 128, COMM_GPU_TRACKS = 2 };

/* What a rank tells the others before they join. */
typedef struct comm_gpu_info {
    int32_t status; /* 0, or negative: this rank cannot, and `note` says why */
    char note[200]; /* "NCCL 2.28.9": the same on all */
    char uuid[48];  /* of its GPU: NCCL wants one for every rank */
} comm_gpu_info;

/* A list of these is done from its beginning to its end. Neighbours that move between ranks are one group of
 * NCCL's, whose order means nothing. */
enum comm_gpu_op_kind {
    COMM_GPU_SCALE, /* to = from / divisor * factor, as comm_scale; from may be to. Both 1: a copy */
    COMM_GPU_FILL,  /* `to`: elements that change nothing under `op` */
    COMM_GPU_MOVES, /* from here on between ranks */
    COMM_GPU_ALLREDUCE = COMM_GPU_MOVES,
    COMM_GPU_REDUCE,         /* to rank `peer` */
    COMM_GPU_REDUCE_SCATTER, /* count: of one rank's part */
    COMM_GPU_BROADCAST,      /* from rank `peer` */
    COMM_GPU_ALLGATHER,      /* count: of one rank's part */
    COMM_GPU_SEND,           /* to rank `peer` */
    COMM_GPU_RECEIVE         /* from rank `peer` */
};

typedef struct comm_gpu_op {
    enum comm_gpu_op_kind kind;
    enum kolo_dtype type; /* moved alone, U8 */
    enum kolo_reduce op;  /* sum, min, max, product */
    int peer;
    const void *from; /* of this rank's GPU, as `to` */
    void *to;
    int64_t count; /* elements, not 0 */
    int64_t divisor;
    double factor;
} comm_gpu_op;

typedef struct comm_gpu_channel comm_gpu_channel;
typedef struct comm_gpu_channel_type {
    const char *name;
    /* Can this process use that GPU by it? */
    void (*ready)(int gpu, comm_gpu_info *info);
    int (*make_id)(char id[COMM_GPU_ID]); /* on one rank, of which all get it */
    /* Begins to join the ranks. On all of them, with one id. */
    int (*open)(comm_gpu_channel **channel, int gpu, const char id[COMM_GPU_ID], int rank, int size);
    int (*joined)(comm_gpu_channel *channel); /* 1, 0: not yet, negative */
    /* At least so many bytes of the track's own memory on the GPU, until more are asked for. Nothing of
     * the track is under way. */
    int (*stage)(comm_gpu_channel *channel, int track, size_t bytes, void **memory);
    /* The list stays the caller's, as it is, until the track's poll has returned 1. */
    int (*begin)(comm_gpu_channel *channel, int track, const comm_gpu_op *op, int count);
    /* 1: the GPU has done it all; 0: not yet; negative */
    int (*poll)(comm_gpu_channel *channel, int track);
    /* at once: what is under way ends on the GPU, with results that mean nothing */
    void (*abort)(comm_gpu_channel *channel);
    void (*close)(comm_gpu_channel **channel, bool orderly); /* orderly: all ranks do; else as after abort */
} comm_gpu_channel_type;

extern const comm_gpu_channel_type kolo_cuda_channel;

#endif
