/* Inside the stand-in for NCCL: the memory that the ranks of one communicator share, processes of one machine
 * or threads of one process. */
#ifndef TESTS_STANDIN_NCCL_SEGMENT_H
#define TESTS_STANDIN_NCCL_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { NCCL_RANKS = 64, NCCL_CHUNK = 32 << 10, NCCL_LETTER = 16 << 10 };

typedef struct nccl_piece { /* what a rank says of the chunk it put down */
    uint64_t call, count;
    uint32_t type, operation;
} nccl_piece;

typedef struct nccl_slot {
    _Atomic int32_t pid; /* 0: has not come */
    char uuid[48];
    _Atomic uint64_t posted, taken; /* chunks put down; chunks that this rank has read from all */
    nccl_piece piece[2];
    _Alignas(64) unsigned char data[2][NCCL_CHUNK];
} nccl_slot;

typedef struct nccl_box { /* letters from one rank to another */
    _Atomic uint64_t posted, taken;
    uint64_t bytes; /* of the whole message */
    unsigned char data[NCCL_LETTER];
} nccl_box;

typedef struct nccl_segment {
    _Atomic int32_t size;   /* ranks, as the first one said */
    _Atomic int32_t broken; /* some rank has given up */
    nccl_slot slot[NCCL_RANKS];
    nccl_box box[NCCL_RANKS][NCCL_RANKS]; /* from, to; pages are taken as they are touched */
} nccl_segment;

/* Maps the segment of this name, which the maker of the id has created. NULL: not there. */
nccl_segment *nccl_segment_create(const char *name);
nccl_segment *nccl_segment_open(const char *name);
void nccl_segment_close(nccl_segment *segment);
void nccl_segment_remove(const char *name);
bool nccl_alive(int32_t pid);

#endif
