/* Carrier: collectives of vectors that lie in a GPU's memory, for the library half (library/gpu.c,
 * library/execute_gpu.c). One carrier is one communicator of NCCL with a CUDA stream: what is begun on it is
 * enqueued in that order, which therefore must be the same on all of its ranks. Nothing of it waits but
 * `close`. The calls of one carrier come one at a time, from any thread. `kolo_cuda_carrier`, of
 * libkolo_cuda.so in the program and of libkolo_comm_cuda.so beside libkolo_comm.so. */
#ifndef KOLO_COMM_CARRIER_H
#define KOLO_COMM_CARRIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kolo/world.h"

enum { COMM_CARRIER_ID = 128, COMM_CARRIER_TRACKS = 2 };

/* What a rank tells the others before they join. */
typedef struct comm_carrier_info {
    int32_t status; /* 0, or negative: this rank cannot, and `note` says why */
    char note[200]; /* "NCCL 2.28.9": the same on all */
    char uuid[48];  /* of its GPU: NCCL wants one for every rank */
} comm_carrier_info;

/* A list of these is done from its beginning to its end. Neighbours that move between ranks are one group of
 * NCCL's, whose order means nothing. */
enum comm_cargo_kind {
    COMM_CARGO_SCALE, /* to = from / divisor * factor, as comm_scale; from may be to. Both 1: a copy */
    COMM_CARGO_FILL,  /* `to`: elements that change nothing under `op` */
    COMM_CARGO_MOVES, /* from here on between ranks */
    COMM_CARGO_ALLREDUCE = COMM_CARGO_MOVES,
    COMM_CARGO_REDUCE,         /* to rank `peer` */
    COMM_CARGO_REDUCE_SCATTER, /* count: of one rank's part */
    COMM_CARGO_BROADCAST,      /* from rank `peer` */
    COMM_CARGO_ALLGATHER,      /* count: of one rank's part */
    COMM_CARGO_SEND,           /* to rank `peer` */
    COMM_CARGO_RECEIVE         /* from rank `peer` */
};

typedef struct comm_cargo {
    enum comm_cargo_kind kind;
    enum kolo_dtype type; /* moved alone, U8 */
    enum kolo_reduce op;  /* sum, min, max, product */
    int peer;
    const void *from; /* of this rank's GPU, as `to` */
    void *to;
    int64_t count; /* elements, not 0 */
    int64_t divisor;
    double factor;
} comm_cargo;

typedef struct comm_carrier comm_carrier;
typedef struct comm_carrier_type {
    const char *name;
    /* Can this process use that GPU by it? */
    void (*ready)(int gpu, comm_carrier_info *card);
    int (*make_id)(char id[COMM_CARRIER_ID]); /* on one rank, of which all get it */
    /* Begins to join the ranks. On all of them, with one id. */
    int (*open)(comm_carrier **carrier, int gpu, const char id[COMM_CARRIER_ID], int rank, int size);
    int (*joined)(comm_carrier *carrier); /* 1, 0: not yet, negative */
    /* At least so many bytes of the track's own memory on the GPU, until more are asked for. Nothing of
     * the track is under way. */
    int (*stage)(comm_carrier *carrier, int track, size_t bytes, void **memory);
    /* The list stays the caller's, as it is, until the track's poll has returned 1. */
    int (*begin)(comm_carrier *carrier, int track, const comm_cargo *cargo, int count);
    /* 1: the GPU has done it all; 0: not yet; negative */
    int (*poll)(comm_carrier *carrier, int track);
    /* at once: what is under way ends on the GPU, with results that mean nothing */
    void (*abort)(comm_carrier *carrier);
    void (*close)(comm_carrier **carrier, bool orderly); /* orderly: all ranks do; else as after abort */
} comm_carrier_type;

extern const comm_carrier_type kolo_cuda_carrier;

#endif
