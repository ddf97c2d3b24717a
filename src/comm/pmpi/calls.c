/* The blocking collectives. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/core/kernel.h"
#include "comm/pmpi/pmpi.h"

int pmpi_end(MPI_Comm comm, int rc)
{
    pmpi_leave();
    if (rc >= 0) return MPI_SUCCESS;
    fprintf(stderr, "libkolo_pmpi: %s\n", kolo_error_text());
    return PMPI_Comm_call_errhandler(comm, MPI_ERR_OTHER) == MPI_SUCCESS ? MPI_ERR_OTHER : MPI_ERR_INTERN;
}

static int64_t ranks(MPI_Comm comm)
{
    int size = 0;
    if (comm != MPI_COMM_NULL) PMPI_Comm_size(comm, &size);
    return size;
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    enum kolo_dtype wire;
    enum kolo_reduce reduce;
    bool known = pmpi_reduction(in, out, count, type, op, &wire, &reduce) &&
                 pmpi_worth(PMPI_ALLREDUCE, type, count, pmpi_rounds(wire, reduce));
    const pmpi_comm *c = pmpi_serves(PMPI_ALLREDUCE, comm, known, true);
    if (!c) return PMPI_Allreduce(in, out, count, type, op, comm);
    pmpi_enter();
    return pmpi_end(comm, kolo_allreduce(c->group, in == MPI_IN_PLACE ? NULL : in, out, count, wire, reduce));
}

/* On a node everybody sees all sums anyway. */
static int part_of_sum(const pmpi_comm *c, const void *in, void *out, int count, enum kolo_dtype wire,
                       enum kolo_reduce reduce)
{
    _Alignas(64) char small[2048];
    const size_t part = (size_t)count * kolo_dtype_size(wire), all = part * (size_t)c->size;
    char *sum = all <= sizeof small ? small : malloc(all);
    if (!sum) return kolo_fail(KOLO_ENOMEM, "no memory for MPI_Reduce_scatter_block of %zu bytes", all);
    int rc = kolo_allreduce(c->group, in ? in : out, sum, (int64_t)count * c->size, wire, reduce);
    if (rc >= 0) memcpy(out, sum + (size_t)c->rank * part, part);
    if (sum != small) free(sum);
    return rc;
}

int MPI_Reduce_scatter_block(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm)
{
    enum kolo_dtype wire;
    enum kolo_reduce reduce;
    bool known = pmpi_reduction(in, out, count, type, op, &wire, &reduce) &&
                 pmpi_worth(PMPI_REDUCE_SCATTER_BLOCK, type, count * ranks(comm), pmpi_rounds(wire, reduce));
    const pmpi_comm *c = pmpi_serves(PMPI_REDUCE_SCATTER_BLOCK, comm, known, true);
    if (!c) return PMPI_Reduce_scatter_block(in, out, count, type, op, comm);
    pmpi_enter();
    if (in == MPI_IN_PLACE) in = NULL;
    if (pmpi_shim.one_node) return pmpi_end(comm, part_of_sum(c, in, out, count, wire, reduce));
    return pmpi_end(comm, kolo_reduce_scatter(c->group, in, out, (int64_t)count * c->size, wire, reduce));
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    pmpi_flat f;
    const pmpi_comm *c = pmpi_serves(
        PMPI_BCAST, comm,
        root >= 0 && pmpi_countable(type, count, 1) && pmpi_worth(PMPI_BCAST, type, count, false), true);
    if (!c || root >= c->size) return PMPI_Bcast(data, count, type, root, comm);
    pmpi_enter();
    int rc = pmpi_flatten(&f, data, count, type, c->rank == root);
    if (rc < 0) return pmpi_end(comm, rc);
    rc = kolo_broadcast(c->group, f.data, f.bytes, KOLO_U8, root);
    pmpi_unflatten(&f, data, count, type, rc >= 0 && c->rank != root);
    return pmpi_end(comm, rc);
}

/* What a rank sends must be what it awaits of every rank. Where it is not, the library tells all ranks so, as
 * long as only some are wrong. */
static int gather(const pmpi_comm *c, const pmpi_flat *mine, const pmpi_flat *all)
{
    const int each = all->bytes / c->size;
    char *own = all->data + (size_t)c->rank * (size_t)each;
    if (mine->bytes != each) {
        KOLO_TRY(kolo_allgather(c->group, mine->data, NULL, mine->bytes, NULL, KOLO_U8));
        return kolo_fail(KOLO_EINPUT, "MPI_Allgather: rank %d sends %d bytes and awaits %d of every rank",
                         c->rank, mine->bytes, each);
    }
    if (own != mine->data) memmove(own, mine->data, (size_t)each);
    return kolo_allgather(c->group, own, all->data, each, NULL, KOLO_U8);
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count, MPI_Datatype type,
                  MPI_Comm comm)
{
    pmpi_flat mine, all;
    MPI_Aint low, extent;
    bool known = in != out && pmpi_countable(type, count, pmpi_shim.size) &&
                 pmpi_worth(PMPI_ALLGATHER, type, count * ranks(comm), false);
    const pmpi_comm *c = pmpi_serves(PMPI_ALLGATHER, comm, known, true);
    if (!c) return PMPI_Allgather(in, in_count, in_type, out, count, type, comm);
    pmpi_enter();
    PMPI_Type_get_extent(type, &low, &extent);
    if (in == MPI_IN_PLACE) {
        in = (char *)out + (size_t)c->rank * (size_t)count * (size_t)extent;
        in_count = count;
        in_type = type;
    }
    int rc = pmpi_flatten(&mine, in, in_count, in_type, true);
    if (rc < 0) return pmpi_end(comm, rc);
    rc = pmpi_flatten(&all, out, count * c->size, type, false);
    if (rc >= 0) rc = gather(c, &mine, &all);
    pmpi_unflatten(&mine, NULL, 0, in_type, false);
    if (all.data) pmpi_unflatten(&all, out, count * c->size, type, rc >= 0);
    return pmpi_end(comm, rc);
}
