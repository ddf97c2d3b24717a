/* MPI_Iallreduce: a generalized request, which a thread completes that waits for all of a communicator in their order. */
#include <stdio.h>
#include <stdlib.h>

#include "comm/pmpi/pmpi.h"

/* One under way. */
typedef struct pmpi_ticket {
    kolo_handle handle;
    MPI_Request request;
    struct pmpi_ticket *next;
} pmpi_ticket;

static int query(void *of, MPI_Status *status)
{
    (void)of;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}
static int forget(void *of)
{
    (void)of;
    return MPI_SUCCESS;
}
static int cancel(void *of, int complete)
{
    (void)of, (void)complete;
    return MPI_SUCCESS;
}

static void *wait_for_all(void *of)
{
    pmpi_queue *q = of;
    pmpi_inside++;
    for (;;) {
        pthread_mutex_lock(&q->lock);
        while (!q->first && !q->stop) pthread_cond_wait(&q->more, &q->lock);
        pmpi_ticket *t = q->first;
        if (t && !(q->first = t->next)) q->last = NULL;
        pthread_mutex_unlock(&q->lock);
        if (!t) return NULL;
        if (kolo_wait(pmpi_shim.world, t->handle) < 0) {
            fprintf(stderr, "libkolo_pmpi: %s\n", kolo_error_text());
            PMPI_Abort(MPI_COMM_WORLD, 69);
        }
        PMPI_Grequest_complete(t->request);
        free(t);
    }
}

void pmpi_queue_open(pmpi_queue *q)
{
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more, NULL);
}

void pmpi_queue_close(pmpi_queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->more);
    pthread_mutex_unlock(&q->lock);
    if (q->waiting) pthread_join(q->waiter, NULL);
    pthread_cond_destroy(&q->more);
    pthread_mutex_destroy(&q->lock);
}

static int enqueue(pmpi_queue *q, pmpi_ticket *t)
{
    pthread_mutex_lock(&q->lock);
    if (!q->waiting) q->waiting = pthread_create(&q->waiter, NULL, wait_for_all, q) == 0;
    bool sound = q->waiting;
    if (sound) {
        if (q->last) q->last->next = t;
        else q->first = t;
        q->last = t;
        pthread_cond_signal(&q->more);
    }
    pthread_mutex_unlock(&q->lock);
    return sound ? 0 : kolo_fail(KOLO_EINTERNAL, "no thread for MPI_Iallreduce; raise the limit of processes (ulimit -u)");
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    kolo_request r = {.what = KOLO_ALLREDUCE, .in = in == MPI_IN_PLACE ? NULL : in, .out = out, .dims = 1, .dim = {count}};
    bool known = pmpi_reduction(in, out, count, type, op, &r.type, &r.reduce);
    pmpi_carrier *c = pmpi_serves(PMPI_IALLREDUCE, comm, known, false);
    if (!c) return PMPI_Iallreduce(in, out, count, type, op, comm, request);
    pmpi_enter();
    pmpi_ticket *t = calloc(1, sizeof *t);
    int rc = t ? kolo_submit(c->group, &r, &t->handle) : kolo_fail(KOLO_ECONFIG, "no memory for MPI_Iallreduce");
    if (rc < 0) {
        free(t);
        return pmpi_end(comm, rc);
    }
    PMPI_Grequest_start(query, forget, cancel, NULL, &t->request);
    *request = t->request;
    return pmpi_end(comm, enqueue(&c->queue, t));
}
