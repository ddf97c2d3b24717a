/* Inside the stand-in for NCCL: a communicator. */
#ifndef TESTS_STANDIN_NCCL_COMM_H
#define TESTS_STANDIN_NCCL_COMM_H

#include <nccl.h>

#include "standin/nccl_segment.h"
#include "standin/standin.h"

typedef struct registration {
    struct registration *next;
} registration;

struct ncclComm {
    nccl_segment *segment;
    registration *registered;
    char name[64];
    int rank, size, references;
    bool blocking, joined, finalizing;
    _Atomic int error; /* ncclResult_t that the communicator ended with */
    _Atomic bool aborted;
    int polls; /* still to come before something that has happened is said */
    standin_chain chain;
    standin_work late; /* a call that is under way: run NULL: none */
    cudaStream_t late_stream;
    _Atomic int busy;     /* calls begun and not done */
    _Atomic int captured; /* calls that graphs hold */
    /* of the device thread: calls begun (a group is one), collectives and their chunks done */
    uint64_t calls, rounds, turn;
};

/* nccl.c */
ncclResult_t nccl_enter(const char *call, enum standin_kind kind);
#define ENTER(kind)                                         \
    do {                                                    \
        ncclResult_t enter_ = nccl_enter(__func__, (kind)); \
        if (enter_ != ncclSuccess) return enter_;           \
    } while (0)
int64_t nccl_fault(const char *what, int rank);
bool nccl_known(ncclComm_t c);
bool nccl_is_dead(const struct ncclComm *c, int rank);
void nccl_set_error(struct ncclComm *c, ncclResult_t error, const char *words);
void nccl_comm_drop(struct ncclComm *c); /* with the lock */

/* nccl_work.c: what is late goes onto its stream */
ncclResult_t nccl_give(struct ncclComm *c);

#endif
