/* Messages between nodes over MPI, on a communicator of our own. */
#include "comm/core/transport.h"

#include <limits.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kolo/error.h"

#ifdef KOLO_MPI
#include <mpi.h>

/* MPI counts in int: a longer message goes as so many blocks and a rest, each a message of
 * MPI's, in this order. */
enum { BLOCK = 1 << 20 };

typedef struct network {
    kolo_launch *launch;
    MPI_Comm world;
    MPI_Datatype block;
} network;

typedef struct message {
    MPI_Request part[2]; /* all of it, or the rest; blocks or none */
    int rank;
    bool sends;
} message;

typedef struct lane {
    const network *network;
    message *message;
    int64_t posted, first, capacity; /* requests before `first` are complete */
} lane;

static int mpi_check(int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (rc == MPI_SUCCESS) return 0;
    MPI_Error_string(rc, text, &length);
    return kolo_fail(KOLO_ELAUNCH, "%s failed: %s", what, text);
}

static int lane_make(void *state, int64_t requests, void **out)
{
    lane *l = kolo_alloc(sizeof *l);
    if (!l) return KOLO_ENOMEM;
    l->network = state;
    l->capacity = requests;
    l->message = kolo_alloc((size_t)(requests + 1) * sizeof *l->message);
    *out = l;
    return l->message ? 0 : KOLO_ENOMEM;
}

/* Whether MPI is done with the request's buffer. A receive without a matching message is try_cancel at once,
 * whether or not its sender is alive; one that is matched, and a send, may still be in progress. */
static bool try_cancel(MPI_Request *request, bool sends)
{
    int over = 0;
    if (*request == MPI_REQUEST_NULL) return true;
    if (sends || MPI_Cancel(request) != MPI_SUCCESS) return false;
    return MPI_Test(request, &over, MPI_STATUS_IGNORE) == MPI_SUCCESS && over;
}

void comm_mpi_give_up(void *of)
{
    lane *l = of;
    for (int64_t i = l->first; i < l->posted; i++)
        for (int part = 0; part < 2; part++) try_cancel(&l->message[i].part[part], l->message[i].sends);
}

static void lane_free(void **out, bool *busy)
{
    lane *l = *out;
    if (!l) return;
    comm_mpi_give_up(l);
    for (int64_t i = l->first; i < l->posted; i++) /* only when the job is failing */
        for (int part = 0; part < 2; part++) {
            MPI_Request *request = &l->message[i].part[part];
            if (*request == MPI_REQUEST_NULL) continue;
            *busy = true;
            MPI_Request_free(request);
        }
    free(l->message);
    free(l);
    *out = NULL;
}

static void reset(void *of)
{
    lane *l = of;
    l->posted = l->first = 0;
}

static int post_part(const lane *l, int rank, int tag, void *data, size_t count, MPI_Datatype type,
                     bool sends, MPI_Request *request)
{
    const MPI_Comm world = l->network->world;
    if (sends) return mpi_check(MPI_Isend(data, (int)count, type, rank, tag, world, request), "MPI_Isend");
    return mpi_check(MPI_Irecv(data, (int)count, type, rank, tag, world, request), "MPI_Irecv");
}

/* A message that MPI's int cannot count goes as whole blocks and what is left. */
static int post(void *of, bool sends, int rank, int tag, void *data, size_t bytes)
{
    lane *l = of;
    const size_t blocks = bytes / BLOCK;
    if (l->posted >= l->capacity)
        return kolo_fail(KOLO_EINTERNAL, "comm: more messages than the schedule declared");
    message *m = &l->message[l->posted++];
    *m = (message){{MPI_REQUEST_NULL, MPI_REQUEST_NULL}, rank, sends};
    if (bytes <= INT_MAX) return post_part(l, rank, tag, data, bytes, MPI_BYTE, sends, &m->part[0]);
    KOLO_TRY(post_part(l, rank, tag, data, blocks, l->network->block, sends, &m->part[1]));
    return post_part(l, rank, tag, (char *)data + blocks * BLOCK, bytes % BLOCK, MPI_BYTE, sends,
                     &m->part[0]);
}

static int done(void *of, int64_t serial)
{
    lane *l = of;
    while (l->first <= serial) {
        for (int part = 0; part < 2; part++) {
            int flag = 1;
            MPI_Request *request = &l->message[l->first].part[part];
            if (*request != MPI_REQUEST_NULL)
                KOLO_TRY(mpi_check(MPI_Test(request, &flag, MPI_STATUS_IGNORE), "MPI_Test"));
            if (!flag) return 0;
        }
        l->first++;
    }
    return 1;
}

static int lagging(void *of)
{
    lane *l = of;
    return l->first < l->posted ? l->message[l->first].rank : -1;
}

const comm_transport comm_mpi = {lane_make, lane_free, reset, post, done, lagging};

int comm_mpi_open(kolo_launch *launch, int status, void **state)
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
    network *n = kolo_alloc(sizeof *n);
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
    if (rc == 0) rc = mpi_check(MPI_Type_contiguous(BLOCK, MPI_BYTE, &n->block), "MPI_Type_contiguous");
    if (rc == 0) rc = mpi_check(MPI_Type_commit(&n->block), "MPI_Type_commit");
    if (rc < 0) {
        free(n);
        return rc;
    }
    n->launch = launch;
    *state = n;
    MPI_Comm_set_errhandler(n->world, MPI_ERRORS_RETURN);
    MPI_Comm_rank(n->world, &rank);
    if (rank != launch->rank)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: MPI calls this rank %d, the launcher %d; start with one of them only", rank,
                         launch->rank);
    return 0;
}

int comm_mpi_exchange(void *state, const void *mine, size_t bytes, void *all)
{
    const network *n = state;
    kolo_launch_wait_begin(n->launch, "an exchange");
    const int rc = mpi_check(MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, n->world),
                             "MPI_Allgather");
    kolo_launch_wait_end(n->launch);
    return rc;
}

void comm_mpi_close(void **state, bool orderly)
{
    network *n = *state;
    if (n && orderly) MPI_Comm_free(&n->world);
    if (n && orderly) MPI_Type_free(&n->block);
    free(n);
    *state = NULL;
}

#else

const comm_transport comm_mpi = {.post = NULL};

int comm_mpi_open(kolo_launch *launch, int status, void **state)
{
    (void)state;
    return status < 0 ? status
                      : kolo_fail(KOLO_ELAUNCH,
                                  "comm: %d nodes, but this program was built without MPI; build with MPI=1",
                                  launch->nodes);
}

void comm_mpi_give_up(void *lane) { (void)lane; }

int comm_mpi_exchange(void *state, const void *mine, size_t bytes, void *all)
{
    (void)state, (void)mine, (void)bytes, (void)all;
    return kolo_fail(KOLO_EINTERNAL, "comm: an exchange without MPI");
}

void comm_mpi_close(void **state, bool orderly)
{
    (void)orderly;
    *state = NULL;
}
#endif
