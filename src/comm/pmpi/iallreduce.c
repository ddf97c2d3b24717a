/* MPI_Iallreduce: a generalized request that MPI asks, when the program waits for it or tests it, whether it
 * is complete (MPICH's extension of them). So the thread that waits takes the library's turns itself, and no
 * thread has to be woken; while the program computes the library's own thread takes them. With an MPI that
 * does not ask, nothing is served. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/library/parts.h"
#include "comm/pmpi/pmpi.h"

#ifdef MPICH_VERSION

/* One under way. */
typedef struct ticket {
    kolo_handle handle;
    MPI_Request request;
    bool done;
} ticket;

static int query(void *of, MPI_Status *status)
{
    (void)of;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int cancel(void *of, int complete)
{
    (void)of, (void)complete;
    return MPI_SUCCESS;
}

/* MPI forbids to give up a collective's request before it is complete. */
static int iallreduce_forget(void *of)
{
    free(of);
    return MPI_SUCCESS;
}

static void iallreduce_complete(ticket *t)
{
    if (kolo_wait(pmpi_shim.world, t->handle) < 0) {
        fprintf(stderr, "libkolo_pmpi: %s\n", kolo_error_text());
        PMPI_Abort(MPI_COMM_WORLD, 69);
    }
    t->done = true;
    PMPI_Grequest_complete(t->request);
}

/* MPI asks this alone, and looks after nothing else meanwhile. */
static int iallreduce_ask(void *of, MPI_Status *status)
{
    enum { VAIN = 16 };
    static _Thread_local unsigned vain;
    ticket *t = of;
    (void)status;
    if (t->done) return MPI_SUCCESS;
    pmpi_inside++;
    int there = lib_poll(pmpi_shim.world, t->handle);
    if (there) iallreduce_complete(t);
    else if (++vain % VAIN == 0) pmpi_look();
    pmpi_inside--;
    return MPI_SUCCESS;
}

static int ask_all(int count, void **of, double timeout, MPI_Status *status)
{
    (void)timeout;
    for (int i = 0; i < count; i++) iallreduce_ask(of[i], status);
    return MPI_SUCCESS;
}

static int iallreduce_begin(const pmpi_comm *c, const kolo_request *r, MPI_Request *request)
{
    ticket *t = calloc(1, sizeof *t);
    int rc =
        t ? kolo_submit(c->group, r, &t->handle) : kolo_fail(KOLO_ENOMEM, "no memory for MPI_Iallreduce");
    if (rc < 0) free(t);
    KOLO_TRY(rc);
    PMPIX_Grequest_start(query, iallreduce_forget, cancel, iallreduce_ask, ask_all, t, &t->request);
    *request = t->request;
    return 0;
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request)
{
    kolo_request r = {
        .what = KOLO_ALLREDUCE, .in = in == MPI_IN_PLACE ? NULL : in, .out = out, .dims = 1, .dim = {count}};
    bool known = pmpi_reduction(in, out, count, type, op, &r.type, &r.reduce) &&
                 pmpi_worth(PMPI_IALLREDUCE, type, count, pmpi_rounds(r.type, r.reduce));
    pmpi_comm *c = pmpi_serves(PMPI_IALLREDUCE, comm, known, false);
    if (!c) return PMPI_Iallreduce(in, out, count, type, op, comm, request);
    pmpi_enter();
    return pmpi_end(comm, iallreduce_begin(c, &r, request));
}

#endif
