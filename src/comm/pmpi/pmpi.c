/* libkolo_pmpi.so: LD_PRELOAD it, and an MPI program's collectives on MPI_COMM_WORLD run on the algorithms of libkolo_comm. It stands in MPI's profiling interface: what it
 * serves goes to a world opened inside MPI_Init, what it does not know (other communicators, own operations, pairs, ...) falls through to PMPI_.
 *
 *   MPI_Allreduce, MPI_Iallreduce, MPI_Reduce_scatter_block   sum, product, min, max of the types of `types` below
 *   MPI_Allgather, MPI_Bcast                                  any type, up to 2 GiB; ones of the program's own, or with holes, are packed
 *
 * Ranks must decide alike: an operation and its type are the same on all ranks by MPI's rules; the types of MPI_Bcast and
 * MPI_Allgather may differ from rank to rank, their bytes may not. KOLO_PMPI=0: serves nothing. A late rank is
 * waited for as MPI does, for ever, unless KOLO_COMM_TIMEOUT says otherwise. KOLO_PMPI_REPORT=1: rank 0 says at the end how many calls were served. */
#include <limits.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kolo/comm.h"

#define FOREVER 3e7 /* seconds: the longest that a world waits */

/* A nonblocking one under way; ended by the thread that waits for them in their order. */
typedef struct ticket {
    kolo_handle handle;
    MPI_Request request;
    struct ticket *next;
} ticket;

static struct {
    kolo_world *world;
    kolo_group *all;
    int rank, size;
    bool threads; /* MPI_THREAD_MULTIPLE */
    long long served, passed;
    pthread_t waiter;
    bool waiting, stop;
    pthread_mutex_t lock;
    pthread_cond_t more;
    ticket *first, *last;
} shim = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER};

/* The library's own MPI calls come by here too. */
static _Thread_local int inside;

static bool serves(MPI_Comm comm, bool known)
{
    if (inside || !shim.world || comm != MPI_COMM_WORLD) return false;
    __atomic_add_fetch(known ? &shim.served : &shim.passed, 1, __ATOMIC_RELAXED);
    return known;
}

static int end(int rc)
{
    inside--;
    if (rc >= 0) return MPI_SUCCESS;
    fprintf(stderr, "libkolo_pmpi: %s\n", kolo_error_text());
    return PMPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER) == MPI_SUCCESS ? MPI_ERR_OTHER : MPI_ERR_INTERN;
}

/* ---- types and operations ---------------------------------------------------------------------------------------------- */

/* -1: unknown. compares: min and max are asked for, which need the sign. */
static int wire_of(MPI_Datatype type, bool compares)
{
    const struct {
        MPI_Datatype type;
        int wire, unlike; /* unlike: of the same width, for sums and products only */
    } types[] = {
        {MPI_FLOAT, KOLO_WIRE_F32, -1},      {MPI_DOUBLE, KOLO_WIRE_F64, -1},        {MPI_INT, KOLO_WIRE_I32, -1},
        {MPI_LONG, KOLO_WIRE_I64, -1},       {MPI_LONG_LONG, KOLO_WIRE_I64, -1},     {MPI_SHORT, KOLO_WIRE_I16, -1},
        {MPI_SIGNED_CHAR, KOLO_WIRE_I8, -1}, {MPI_UNSIGNED_CHAR, KOLO_WIRE_U8, -1},  {MPI_UNSIGNED_SHORT, KOLO_WIRE_U16, -1},
        {MPI_INT8_T, KOLO_WIRE_I8, -1},      {MPI_INT16_T, KOLO_WIRE_I16, -1},       {MPI_INT32_T, KOLO_WIRE_I32, -1},
        {MPI_INT64_T, KOLO_WIRE_I64, -1},    {MPI_UINT8_T, KOLO_WIRE_U8, -1},        {MPI_UINT16_T, KOLO_WIRE_U16, -1},
        {MPI_UNSIGNED, -1, KOLO_WIRE_I32},   {MPI_UINT32_T, -1, KOLO_WIRE_I32},      {MPI_UNSIGNED_LONG, -1, KOLO_WIRE_I64},
        {MPI_UINT64_T, -1, KOLO_WIRE_I64},   {MPI_UNSIGNED_LONG_LONG, -1, KOLO_WIRE_I64},
    };
    _Static_assert(sizeof(long) == 8 && sizeof(int) == 4, "an LP64 machine");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return types[i].wire >= 0 || compares ? types[i].wire : types[i].unlike;
    return -1;
}

/* False: not one of ours. */
static bool reduction(MPI_Datatype type, MPI_Op op, int count, enum kolo_wire *wire, enum kolo_reduce *reduce)
{
    if (op == MPI_SUM) *reduce = KOLO_SUM;
    else if (op == MPI_PROD) *reduce = KOLO_PRODUCT;
    else if (op == MPI_MIN) *reduce = KOLO_MIN;
    else if (op == MPI_MAX) *reduce = KOLO_MAX;
    else return false;
    int found = wire_of(type, op == MPI_MIN || op == MPI_MAX);
    if (found < 0 || count <= 0) return false;
    *wire = (enum kolo_wire)found;
    return true;
}

/* What is flattened has so many bytes that MPI_Pack can count them. The bytes are the same on all ranks by MPI's rules, so these decide alike. */
static bool countable(MPI_Datatype type, int count, int times)
{
    int size;
    const int64_t all = (int64_t)count * times;
    return count >= 0 && all <= INT_MAX && PMPI_Type_size(type, &size) == MPI_SUCCESS && (size == 0 || all <= INT_MAX / size);
}

/* A vector of any type as bytes: where it lies if it is of a type of MPI's own without holes, else packed into memory of its own. */
typedef struct flat {
    char *data;
    int bytes; /* of all */
    bool own;
} flat;

static int flatten(flat *f, const void *memory, int count, MPI_Datatype type, bool fill)
{
    MPI_Aint low, extent, true_low, true_extent;
    int size, at = 0, numbers[3], combiner; /* a type of the program's may have any order */
    PMPI_Type_size(type, &size);
    PMPI_Type_get_envelope(type, &numbers[0], &numbers[1], &numbers[2], &combiner);
    PMPI_Type_get_extent(type, &low, &extent);
    PMPI_Type_get_true_extent(type, &true_low, &true_extent);
    f->bytes = size * count;
    f->own = combiner != MPI_COMBINER_NAMED || true_low != 0 || extent != size || true_extent != size;
    f->data = f->own ? malloc((size_t)f->bytes + 1) : (char *)(uintptr_t)memory;
    if (!f->data && f->own) return kolo_fail(KOLO_ECONFIG, "no memory to pack %d bytes", f->bytes);
    if (f->own && fill) PMPI_Pack(memory, count, type, f->data, f->bytes, &at, MPI_COMM_WORLD);
    return 0;
}

static void unflatten(flat *f, void *memory, int count, MPI_Datatype type, bool write)
{
    int at = 0;
    if (!f->own) return;
    if (write) PMPI_Unpack(f->data, f->bytes, &at, memory, count, type, MPI_COMM_WORLD);
    free(f->data);
}

/* ---- the collectives ---------------------------------------------------------------------------------------------------- */

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    enum kolo_wire wire;
    enum kolo_reduce reduce;
    if (!serves(comm, reduction(type, op, count, &wire, &reduce))) return PMPI_Allreduce(in, out, count, type, op, comm);
    inside++;
    return end(kolo_allreduce(shim.all, in == MPI_IN_PLACE ? NULL : in, out, count, wire, reduce));
}

int MPI_Reduce_scatter_block(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    enum kolo_wire wire;
    enum kolo_reduce reduce;
    if (!serves(comm, in != MPI_IN_PLACE && reduction(type, op, count, &wire, &reduce)))
        return PMPI_Reduce_scatter_block(in, out, count, type, op, comm);
    inside++;
    return end(kolo_reduce_scatter(shim.all, in, out, (int64_t)count * shim.size, wire, reduce));
}

int MPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    flat f;
    if (!serves(comm, root >= 0 && root < shim.size && countable(type, count, 1))) return PMPI_Bcast(data, count, type, root, comm);
    inside++;
    int rc = flatten(&f, data, count, type, shim.rank == root);
    if (rc < 0) return end(rc);
    if (f.bytes > 0) rc = kolo_broadcast(shim.all, f.data, f.bytes, KOLO_WIRE_U8, root);
    unflatten(&f, data, count, type, rc >= 0 && shim.rank != root);
    return end(rc);
}

int MPI_Allgather(const void *in, int in_count, MPI_Datatype in_type, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
    flat mine, all;
    MPI_Aint low, extent;
    if (!serves(comm, countable(type, count, shim.size))) return PMPI_Allgather(in, in_count, in_type, out, count, type, comm);
    inside++;
    PMPI_Type_get_extent(type, &low, &extent);
    if (in == MPI_IN_PLACE) {
        in = (char *)out + (size_t)shim.rank * (size_t)count * (size_t)extent;
        in_count = count;
        in_type = type;
    }
    int rc = flatten(&mine, in, in_count, in_type, true);
    if (rc < 0) return end(rc);
    rc = flatten(&all, out, count * shim.size, type, false);
    if (rc >= 0 && all.bytes > 0) {
        char *own = all.data + (size_t)shim.rank * (size_t)(all.bytes / shim.size);
        if (own != mine.data) memmove(own, mine.data, (size_t)mine.bytes);
        rc = kolo_allgather(shim.all, own, all.data, mine.bytes, NULL, KOLO_WIRE_U8);
    }
    unflatten(&mine, NULL, 0, in_type, false);
    if (all.data) unflatten(&all, out, count * shim.size, type, rc >= 0);
    return end(rc);
}

/* ---- MPI_Iallreduce: a generalized request that the waiting thread completes ------------------------------------------------ */

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

static void *wait_for_all(void *unused)
{
    inside++;
    for (;;) {
        pthread_mutex_lock(&shim.lock);
        while (!shim.first && !shim.stop) pthread_cond_wait(&shim.more, &shim.lock);
        ticket *t = shim.first;
        if (t && !(shim.first = t->next)) shim.last = NULL;
        pthread_mutex_unlock(&shim.lock);
        if (!t) return unused;
        if (kolo_wait(shim.world, t->handle) < 0) {
            fprintf(stderr, "libkolo_pmpi: %s\n", kolo_error_text());
            PMPI_Abort(MPI_COMM_WORLD, 69);
        }
        PMPI_Grequest_complete(t->request);
        free(t);
    }
}

static int enqueue(ticket *t)
{
    pthread_mutex_lock(&shim.lock);
    if (!shim.waiting) shim.waiting = pthread_create(&shim.waiter, NULL, wait_for_all, NULL) == 0;
    bool sound = shim.waiting;
    if (sound) {
        if (shim.last) shim.last->next = t;
        else shim.first = t;
        shim.last = t;
        pthread_cond_signal(&shim.more);
    }
    pthread_mutex_unlock(&shim.lock);
    return sound ? 0 : kolo_fail(KOLO_EINTERNAL, "no thread for MPI_Iallreduce; raise the limit of processes (ulimit -u)");
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    kolo_request r = {.what = KOLO_ALLREDUCE, .in = in == MPI_IN_PLACE ? NULL : in, .out = out, .dims = 1, .dim = {count}};
    if (!serves(comm, shim.threads && reduction(type, op, count, &r.type, &r.reduce)))
        return PMPI_Iallreduce(in, out, count, type, op, comm, request);
    inside++;
    ticket *t = calloc(1, sizeof *t);
    int rc = t ? kolo_submit(shim.all, &r, &t->handle) : KOLO_ECONFIG;
    if (rc < 0) {
        free(t);
        return end(rc);
    }
    PMPI_Grequest_start(query, forget, cancel, NULL, &t->request);
    *request = t->request;
    return end(enqueue(t));
}

/* ---- life ------------------------------------------------------------------------------------------------------------------- */

static void open_world(void)
{
    const char *wanted = getenv("KOLO_PMPI");
    int level, rc = 0, worst;
    if (wanted && !strcmp(wanted, "0")) return;
    PMPI_Query_thread(&level);
    PMPI_Comm_rank(MPI_COMM_WORLD, &shim.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &shim.size);
    shim.threads = level == MPI_THREAD_MULTIPLE;
    MPI_Comm all = MPI_COMM_WORLD;
    /* the program calls MPI whenever it likes: without MULTIPLE the library must not */
    /* and a rank of it may compute or read for hours before it comes to the next collective, as MPI allows */
    const char *patience = getenv("KOLO_COMM_TIMEOUT");
    const kolo_world_config config = {
        .mpi_comm = &all, .transport = shim.threads ? NULL : "tcp", .timeout = patience && *patience ? 0 : FOREVER};
    inside++;
    kolo_world *world = NULL;
    rc = kolo_world_open(&world, &config);
    PMPI_Allreduce(&rc, &worst, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rc < 0) fprintf(stderr, "libkolo_pmpi: %s; MPI does the work itself\n", kolo_error_text());
    if (worst < 0) kolo_world_close(&world);
    inside--;
    shim.all = world ? kolo_world_group(world) : NULL;
    shim.world = world;
}

static void close_world(void)
{
    const char *report = getenv("KOLO_PMPI_REPORT");
    if (!shim.world) return;
    pthread_mutex_lock(&shim.lock);
    shim.stop = true;
    pthread_cond_signal(&shim.more);
    pthread_mutex_unlock(&shim.lock);
    if (shim.waiting) pthread_join(shim.waiter, NULL);
    inside++;
    kolo_world_close(&shim.world);
    inside--;
    if (report && *report && strcmp(report, "0") && shim.rank == 0)
        fprintf(stderr, "libkolo_pmpi: %lld collectives of MPI_COMM_WORLD served, %lld left to MPI\n", shim.served, shim.passed);
}

/* More threads than the program asks for: the library has one of its own. */
int MPI_Init(int *argc, char ***argv)
{
    int provided;
    int rc = PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    if (rc == MPI_SUCCESS) open_world();
    return rc;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)required;
    int rc = PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
    if (rc == MPI_SUCCESS) open_world();
    return rc;
}

int MPI_Finalize(void)
{
    close_world();
    return PMPI_Finalize();
}
