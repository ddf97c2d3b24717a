/* Whether a request's vectors lie on a GPU, and how the lane that carries them comes about: at the first
 * batch of a stream that needs it, which is the same on all members, they tell each other of their GPUs and
 * join. Where one of them cannot, the batch fails on all and the world goes on; the next one asks again. */
#include "comm/library/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/thread.h"

/* ---- where vectors lie --------------------------------------------------------------------------------- */

/* Whose memory is whose. What lies on a GPU alone goes another way (execute_gpu.c): a processor that reached
 * for it would end the program. Pinned and managed memory are the host's, too. Nothing of CUDA is needed to
 * build or run this: the driver is asked only where the program has loaded it, and whether it has is looked
 * at again only when something else was loaded. */

/* CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer), of
 * CUDA's driver interface. */
typedef int pointer_attribute(void *data, int attribute, unsigned long long pointer);
enum { MEMORY_TYPE = 2, IS_MANAGED = 8, ORDINAL = 9, DEVICE = 2 };

static _Atomic(pointer_attribute *) ask;
static _Atomic unsigned long long loads; /* of shared objects by this process, when it was looked at last */

static int count_loads(struct dl_phdr_info *info, size_t bytes, void *count)
{
    (void)bytes;
    *(unsigned long long *)count = info->dlpi_adds;
    return 1; /* the first knows it */
}

/* Some 20 ns where nothing was loaded since. */
static void look(void)
{
    unsigned long long now = 0;
    dl_iterate_phdr(count_loads, &now);
    if (atomic_exchange(&loads, now) == now) return;
    void *driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY); /* kept, so it stays */
    if (driver) atomic_store(&ask, (pointer_attribute *)dlsym(driver, "cuPointerGetAttribute"));
}

/* The program has loaded CUDA's driver. */
static bool gpu_any(void)
{
    if (!atomic_load_explicit(&ask, memory_order_acquire)) look();
    return atomic_load_explicit(&ask, memory_order_acquire) != NULL;
}

/* Number of the GPU that alone reaches this memory, or -1: the processor does. After gpu_any. */
static int gpu_of(const void *memory)
{
    uint64_t type = 0, managed = 0, number = 0; /* of 32 bits, or fewer */
    pointer_attribute *driver = atomic_load_explicit(&ask, memory_order_acquire);
    if (!memory || !driver) return -1;
    const unsigned long long at = (unsigned long long)(uintptr_t)memory;
    /* an error: the driver does not know it */
    if (driver(&type, MEMORY_TYPE, at) != 0 || type != DEVICE) return -1;
    if (driver(&managed, IS_MANAGED, at) == 0 && managed) return -1;
    return driver(&number, ORDINAL, at) == 0 ? (int)number : 0;
}

/* What NCCL does not do. */
static void check_kind(const kolo_group *group, const kolo_request *r, char *text, size_t bytes)
{
    const bool gets = r->what != KOLO_GATHER || r->root == group->rank;
    if (r->what == KOLO_SPARSE_ALLREDUCE)
        snprintf(text, bytes, "memory of a GPU, and sparse rows are summed in the host's: copy them");
    else if (lib_is(r->what, LIB_REDUCES) && r->reduce == KOLO_ADASUM)
        snprintf(text, bytes, "memory of a GPU, where Adasum is not: copy it to the host's");
    else if (r->compression)
        snprintf(text, bytes, "memory of a GPU, where compression is not: copy it to the host's");
    else if (lib_is(r->what, LIB_REDUCES) && (r->type == KOLO_U16 || r->type == KOLO_I16))
        snprintf(text, bytes,
                 "memory of a GPU, where NCCL knows no whole numbers of 16 bits: copy it to the host's");
    else if (gets && !r->out)
        snprintf(text, bytes, "memory of a GPU, and no `out`: the library makes no memory there");
}

/* The first vector says which GPU is this rank's. */
static bool is_own(kolo_world *world, int gpu)
{
    int none = 0;
    return atomic_compare_exchange_strong(&world->gpu, &none, gpu + 1) || none == gpu + 1;
}

bool lib_gpu_check(const kolo_group *group, const kolo_request *r, char *text, size_t bytes)
{
    if (!gpu_any()) return false;
    const bool root = r->root == group->rank;
    const void *in = (r->what != KOLO_BROADCAST && r->what != KOLO_SCATTER) || root ? r->in : NULL;
    const void *out = r->what != KOLO_GATHER || root || !r->in ? r->out : NULL;
    const int from = gpu_of(in), to = gpu_of(out), gpu = from >= 0 ? from : to;
    const bool index = r->what == KOLO_SPARSE_ALLREDUCE && gpu_of(r->index) >= 0;
    if (gpu < 0 && !index) return false;
    check_kind(group, r, text, bytes);
    if (text[0]) return true;
    if (in && out && from != to)
        snprintf(text, bytes, "memory of a GPU for the one of in and out, %s for the other",
                 from >= 0 && to >= 0 ? "of another GPU" : "the host's");
    else if (!is_own(group->world, gpu))
        snprintf(text, bytes,
                 "memory of GPU %d, and this rank has brought that of GPU %d: it is served on one alone", gpu,
                 atomic_load(&group->world->gpu) - 1);
    else if (!kolo_cuda_symbol("kolo_cuda_channel"))
        snprintf(text, bytes, "memory of a GPU, and %s", kolo_error_text());
    return true;
}

/* ---- joining ------------------------------------------------------------------------------------------- */

static int joined(lib_execution *x)
{
    kolo_world *world = x->group->world;
    lib_gpu *g = x->stream->gpu;
    int rc = g->type->joined(g->channel);
    if (rc == 0 && kolo_time() - g->began > world->config.timeout)
        return kolo_fail(KOLO_ELAUNCH,
                         "comm: NCCL did not join the %d ranks of group %d within %.0f s: is the network "
                         "that it takes the right one (NCCL_SOCKET_IFNAME, "
                         "NCCL_IB_HCA)? NCCL_DEBUG=INFO says more",
                         x->group->size, x->group->id, world->config.timeout);
    if (rc <= 0 || g->failed > 0) return lib_gpu_excuse(x, rc);
    kolo_debug("group %d: vectors on %d GPUs by %s", x->group->id, x->group->size, g->card[0].note);
    return x->step = lib_gpu_execute_batch, 1;
}

/* Every member sees the same infos. text[0] = 0: they can join. */
static void gpu_compare(const lib_execution *x, char *text, size_t bytes)
{
    const comm_gpu_info *card = x->stream->gpu->card;
    const int *rank_of = x->group->rank_of, n = x->group->size;
    text[0] = 0;
    for (int m = 0; m < n && !text[0]; m++) {
        const comm_gpu_info *mine = &card[m], *first = &card[0];
        if (mine->status < 0)
            snprintf(text, bytes, "rank %d cannot use NCCL for vectors on GPUs: %.180s", rank_of[m],
                     mine->note);
        else if (strcmp(mine->note, first->note))
            snprintf(text, bytes, "vectors on GPUs: rank %d has %.60s, rank %d has %.60s", rank_of[0],
                     first->note, rank_of[m], mine->note);
        for (int k = 0; k < m && !text[0]; k++)
            if (!strcmp(card[k].uuid, mine->uuid))
                snprintf(text, bytes,
                         "vectors on GPUs: ranks %d and %d share one (%s), and NCCL wants one for each",
                         rank_of[k], rank_of[m], mine->uuid);
    }
}

static int gpu_join(lib_execution *x)
{
    lib_gpu *g = x->stream->gpu;
    g->began = kolo_time();
    KOLO_TRY(g->type->open(&g->channel, atomic_load(&x->group->world->gpu) - 1, g->id, x->group->rank,
                           x->group->size));
    return x->step = joined, 1;
}

/* An id is made when all can join: NCCL listens for those that it is for. */
static int gpu_reported(lib_execution *x)
{
    char text[LIB_TEXT + 64];
    lib_gpu *g = x->stream->gpu;
    gpu_compare(x, text, sizeof text);
    if (text[0]) {
        lib_fail_all(x, KOLO_ECONFIG, text);
        return x->step = NULL, 1;
    }
    if (x->group->rank == 0) KOLO_TRY(g->type->make_id(g->id));
    comm_problem problem = lib_problem(x->group, KOLO_BROADCAST);
    problem.in_place = true;
    problem.count = sizeof g->id;
    return lib_run(x, &problem, g->id, g->id, KOLO_U8, KOLO_SUM, gpu_join);
}

static void gpu_fill_info(const lib_execution *x, comm_gpu_info *info)
{
    const lib_gpu *g = x->stream->gpu;
    const int gpu = atomic_load(&x->group->world->gpu) - 1;
    memset(info, 0, sizeof *info);
    if (gpu >= 0 && g->type) g->type->ready(gpu, info);
    else
        info->status = g->type
                           ? kolo_fail(KOLO_EINPUT,
                                       "it joined before it brought any, so it is not known which GPU is its")
                           : KOLO_ELAUNCH;
    if (info->status < 0 && !info->note[0]) snprintf(info->note, sizeof info->note, "%s", kolo_error_text());
}

int lib_gpu_open(lib_execution *x)
{
    const int me = x->group->rank, n = x->group->size;
    lib_gpu *g = x->stream->gpu;
    if (!g && !(g = x->stream->gpu = kolo_alloc(sizeof *g))) return KOLO_ENOMEM;
    g->type = kolo_cuda_symbol("kolo_cuda_channel");
    if (!g->card && !(g->card = kolo_alloc((size_t)n * sizeof *g->card))) return KOLO_ENOMEM;
    gpu_fill_info(x, &g->card[me]);
    for (int m = 0; m < n; m++) x->number[m] = sizeof *g->card;
    comm_problem problem = lib_problem(x->group, KOLO_ALLGATHER);
    problem.in_place = true;
    problem.counts = x->number;
    return lib_run(x, &problem, g->card, &g->card[me], KOLO_U8, KOLO_SUM, gpu_reported);
}

/* ---- faults and the end -------------------------------------------------------------------------------- */

/* NCCL often notices first that a process is gone, but not which: that shows a moment later (every turn
 * asks), and is the better reason. */
int lib_gpu_excuse(lib_execution *x, int rc)
{
    const double moment = x->group->size == 1 ? 0 : x->group->one_node ? 2 : 4;
    lib_gpu *g = x->stream->gpu;
    if (rc >= 0 && g->failed == 0) return rc;
    if (g->failed == 0) {
        kolo_error_keep(&g->fault);
        g->failed = kolo_time();
    }
    return kolo_time() - g->failed < moment ? 0 : kolo_error_restore(&g->fault, KOLO_ELAUNCH);
}

void lib_gpu_abort(lib_stream *stream)
{
    if (stream && stream->gpu && stream->gpu->channel) stream->gpu->type->abort(stream->gpu->channel);
}

void lib_gpu_close(lib_stream *stream, bool orderly)
{
    lib_gpu *g = stream->gpu;
    if (g->channel) g->type->close(&g->channel, orderly);
    free(g->card);
    free(g);
    stream->gpu = NULL;
}
