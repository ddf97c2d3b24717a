/* A PMI-1 server for this process's own MPI library: Debian's MPICH knows no PMIx, so under srun
 * --mpi=pmix it would call every rank 0 of 1. The bridge hands it one end of a socket pair as PMI_FD and
 * answers from a thread. */
#ifndef KOLO_LAUNCH_PMI_BRIDGE_H
#define KOLO_LAUNCH_PMI_BRIDGE_H

#include "launch/pmi_store.h"

typedef struct kolo_pmi_bridge kolo_pmi_bridge;

/* Starts the thread and sets PMI_FD, PMI_RANK, PMI_SIZE for the MPI_Init that follows. */
int kolo_pmi_bridge_open(kolo_pmi_bridge **bridge, int rank, int size, const char *mapping,
                         kolo_pmi_below below);
/* After MPI_Init: takes the variables away again, so that no child process believes it is this rank. */
void kolo_pmi_bridge_hide(kolo_pmi_bridge *bridge);
/* After MPI_Finalize. */
void kolo_pmi_bridge_close(kolo_pmi_bridge **bridge);

#endif
