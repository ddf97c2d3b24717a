/* Messages between nodes over MPI, on a communicator of our own. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "comm/core/transport/inside.h"
#include "kolo/error.h"

#ifdef KOLO_MPI
#include <mpi.h>

struct comm_network {
    kolo_launch *launch;
    MPI_Comm world;
};

static int mpi_check(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (rc == MPI_SUCCESS) return 0;
    MPI_Error_string(rc, text, &length);
    return kolo_fail(KOLO_ELAUNCH, "%s failed: %s", what, text);
}

_Static_assert(sizeof(MPI_Request) <= sizeof((router_request *)0)->mpi, "a request has room for MPI's");
static MPI_Request request_of(const router_request *r)
{
    MPI_Request of;
    memcpy(&of, r->mpi, sizeof of);
    return of;
}

/* Schedules cut what they send into messages that MPI's int can count. */
int mpi_post(const comm_network *n, router_request *r)
{
    MPI_Request of = MPI_REQUEST_NULL;
    if (r->bytes > INT_MAX)
        return kolo_fail(KOLO_EINTERNAL, "comm: a message of %zu bytes, more than MPI counts", r->bytes);
    const int bytes = (int)r->bytes;
    r->by_mpi = true;
    int rc =
        r->sends
            ? mpi_check(MPI_Isend(r->data, bytes, MPI_BYTE, r->rank, r->tag, n->world, &of), "MPI_Isend")
            : mpi_check(MPI_Irecv(r->data, bytes, MPI_BYTE, r->rank, r->tag, n->world, &of), "MPI_Irecv");
    memcpy(r->mpi, &of, sizeof of);
    return rc;
}

int mpi_done(router_request *r)
{
    MPI_Request of = request_of(r);
    int flag = 0;
    KOLO_TRY(mpi_check(MPI_Test(&of, &flag, MPI_STATUS_IGNORE), "MPI_Test"));
    memcpy(r->mpi, &of, sizeof of);
    r->complete = flag;
    return flag;
}

/* A receive without a matching message is cancelled at once, whether or not its sender is alive; one that is
 * matched, and a send, may still be in progress. */
bool mpi_cancel(router_request *r)
{
    MPI_Request of = request_of(r);
    if (of == MPI_REQUEST_NULL) return true;
    if (r->sends || MPI_Cancel(&of) != MPI_SUCCESS) return false;
    return mpi_done(r) > 0;
}

int mpi_open(kolo_launch *launch, int status, comm_network **out)
{
    int mine, worst = 0, rank = -1;
    if (!launch->mpi && launch->mpi_comm && status == 0)
        return kolo_fail(KOLO_ELAUNCH, "comm: the program's MPI has less than thread level MULTIPLE, so "
                                       "nobody else may call it; ask MPI_Init_thread for that, "
                                       "or leave transport to auto, which takes sockets then");
    if (!launch->mpi)
        return status < 0
                   ? status
                   : kolo_fail(KOLO_ELAUNCH,
                               "comm: %d nodes, but MPI was not started by launch method \"%s\"; use srun "
                               "--mpi=pmix, srun --mpi=pmi2 or mpiexec",
                               launch->nodes, launch->method ? launch->method : "?");
    comm_network *n = kolo_alloc(sizeof *n);
    if (!n && status == 0) status = KOLO_ENOMEM;
    mine = status < 0 ? status : 0;
    MPI_Comm ranks = launch->mpi_comm ? *(const MPI_Comm *)launch->mpi_comm : MPI_COMM_WORLD;
    kolo_launch_wait_begin(launch, "setting up communication");
    int rc = mpi_check(MPI_Allreduce(&mine, &worst, 1, MPI_INT, MPI_MIN, ranks), "MPI_Allreduce");
    if (rc == 0) rc = mine;
    if (rc == 0 && worst < 0)
        rc = kolo_fail(KOLO_ELAUNCH, "comm: another rank could not set up; its own message says why");
    if (rc == 0) rc = mpi_check(MPI_Comm_dup(ranks, &n->world), "MPI_Comm_dup");
    kolo_launch_wait_end(launch);
    if (rc < 0) {
        free(n);
        return rc;
    }
    n->launch = launch;
    *out = n;
    MPI_Comm_set_errhandler(n->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(n->world, &rank);
    if (rank != launch->rank)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: MPI calls this rank %d, the launcher %d; start with one of them only", rank,
                         launch->rank);
    return 0;
}

int mpi_exchange(const comm_network *n, const void *mine, size_t bytes, void *all)
{
    kolo_launch_wait_begin(n->launch, "an exchange");
    const int rc = mpi_check(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, n->world),
                             "MPI_Allgather");
    kolo_launch_wait_end(n->launch);
    return rc;
}

void mpi_close(comm_network **network, bool orderly)
{
    comm_network *n = *network;
    if (n && orderly) MPI_Comm_free(&n->world);
    free(n);
    *network = NULL;
}

#else

/* None is ever opened. */
int mpi_open(kolo_launch *launch, int status, comm_network **network)
{
    (void)network;
    return status < 0 ? status
                      : kolo_fail(KOLO_ELAUNCH,
                                  "comm: %d nodes, but this program was built without MPI; build with MPI=1",
                                  launch->nodes);
}

int mpi_post(const comm_network *network, router_request *r)
{
    (void)network;
    return mpi_done(r);
}

int mpi_done(router_request *r)
{
    return kolo_fail(KOLO_EINTERNAL, "comm: a message to rank %d without MPI", r->rank);
}

bool mpi_cancel(router_request *r) { return r->complete; }

int mpi_exchange(const comm_network *network, const void *mine, size_t bytes, void *all)
{
    (void)network, (void)mine, (void)bytes, (void)all;
    return kolo_fail(KOLO_EINTERNAL, "comm: an exchange without MPI");
}

void mpi_close(comm_network **network, bool orderly)
{
    (void)orderly;
    *network = NULL;
}
#endif
