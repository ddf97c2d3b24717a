/* Inside libkolo_pmpi.so: LD_PRELOAD it, and an MPI program's collectives run on the algorithms of
 * libkolo_comm. It stands in MPI's profiling interface: what it serves goes to a world opened inside
 * MPI_Init, what it does not know (own operations, pairs, ...) falls through to PMPI_.
 *
 *   MPI_Allreduce, MPI_Iallreduce, MPI_Reduce_scatter_block   sum, product, min, max of the types of types.c
 *   MPI_Allgather, MPI_Bcast                                  any type, up to 2 GiB; ones of the program's
 *       own, or with holes, are packed
 *
 *   communicators   MPI_COMM_WORLD, and those that communicators.c can have a group for
 *   calls.c         the blocking ones           iallreduce.c   the other
 *   progress.c      MPI's messages go on while a rank waits in a collective
 *   worth.c         which sizes are worth it
 *   life.c          MPI_Init and MPI_Finalize, of C and of Fortran; what is counted
 *
 * Ranks must decide alike: an operation and its type are the same on all ranks by MPI's rules; the types of
 * MPI_Bcast and MPI_Allgather may differ from rank to rank, their bytes may not.
 *
 * On one node with a core for every rank, what a clock at MPI_Init finds MPI to do sooner is left to it
 * (worth.c), but for sums of floats of more than two ranks; KOLO_PMPI=all: nothing is. KOLO_PMPI=0: serves
 * nothing. A late rank is waited for as MPI does, for ever, unless KOLO_COMM_TIMEOUT says otherwise.
 * KOLO_PMPI_REPORT=1: rank 0 says at the end, function by function, how many calls were served. */
#ifndef COMM_PMPI_H
#define COMM_PMPI_H

#include <mpi.h>
#include <stdatomic.h>

#include "kolo/world.h"

/* What carries the collectives of a communicator: a group with the same ranks in the same order. */
typedef struct pmpi_comm {
    kolo_group *group;
    int rank, size;
    int *rank_of;      /* [size] in MPI_COMM_WORLD; NULL: all */
    _Atomic bool used; /* by a communicator that is not freed */
} pmpi_comm;

enum { PMPI_COMMS = 64 }; /* bits of the word in which ranks agree on one */

enum pmpi_call {
    PMPI_ALLREDUCE,
    PMPI_IALLREDUCE,
    PMPI_REDUCE_SCATTER_BLOCK,
    PMPI_ALLGATHER,
    PMPI_BCAST,
    PMPI_CALLS
};

struct pmpi_shim {
    kolo_world *world;                   /* NULL: nothing is served */
    int rank, size;                      /* in MPI_COMM_WORLD */
    bool one_node, all;                  /* all: every size is served */
    pmpi_comm *_Atomic comm[PMPI_COMMS]; /* by the group's id; 0: of MPI_COMM_WORLD */
};
extern struct pmpi_shim pmpi_shim;
extern _Thread_local int pmpi_inside; /* positive: the library's own MPI calls come by here too */

/* ---- communicators.c ----------------------------------------------------------------------------------- */

/* The pmpi_comm of `comm`, or NULL: left to MPI. known: that the call is one of ours in all but its
 * communicator. blocks: the call may wait for the others, as it must where one is yet to be made.
 * Counts. Collective over `comm`, as the call is. */
pmpi_comm *pmpi_serves(enum pmpi_call call, MPI_Comm comm, bool known, bool blocks);
int pmpi_comms_open(void);
void pmpi_comms_close(void); /* in front of the world's end: no rank is in a collective any more */
void pmpi_report(void);
void pmpi_forget_counts(void); /* of what was served until now */

/* ---- worth.c ------------------------------------------------------------------------------------------- */

/* Collective over MPI_COMM_WORLD, once the library serves it: times both, for some 20 ms at most. */
void pmpi_worth_open(void);
/* Whether a call that moves `count` elements in all (of allgather and reduce_scatter: the whole vector) is
 * worth it. rounds: of more than two ranks the last bits of its result depend on who makes it, so that no
 * clock may decide it, which might decide otherwise in the next run. The same on all ranks, as these
 * arguments are. */
bool pmpi_worth(enum pmpi_call call, MPI_Datatype type, int64_t count, bool rounds);

/* ---- types.c ------------------------------------------------------------------------------------------- */

/* Sums and products of floating point: the order decides the last bits. */
bool pmpi_rounds(enum kolo_dtype wire, enum kolo_reduce reduce);
/* False: not one of ours. */
bool pmpi_reduction(const void *in, const void *out, int count, MPI_Datatype type, MPI_Op op,
                    enum kolo_dtype *wire, enum kolo_reduce *reduce);
/* What is flattened has so many bytes that MPI_Pack can count them, and one at least. The bytes are the same
 * on all ranks by MPI's rules, so these decide alike. */
bool pmpi_countable(MPI_Datatype type, int count, int times);

/* A vector of any type as bytes: where it lies if it is of a type of MPI's own without holes, else packed
 * into memory of its own. */
typedef struct pmpi_flat {
    char *data;
    int bytes; /* of all */
    bool own;
} pmpi_flat;
int pmpi_flatten(pmpi_flat *flat, const void *memory, int count, MPI_Datatype type, bool fill);
void pmpi_unflatten(pmpi_flat *flat, void *memory, int count, MPI_Datatype type, bool write);

/* ---- progress.c, calls.c, iallreduce.c ----------------------------------------------------------------- */

/* Around what may wait for other ranks. */
void pmpi_enter(void);
void pmpi_leave(void);
void pmpi_look(void); /* MPI sees to its messages */
int pmpi_pump_open(void);
void pmpi_pump_close(void);
/* The end of a call that was begun with pmpi_enter: what MPI returns for it. */
int pmpi_end(MPI_Comm comm, int rc);

#endif
