#include "train/compression.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "kolo/error.h"
#include "plan/matrices.h"

comm_compress kolo_compression(const kolo_options *o, int64_t steps_per_epoch)
{
    static const int kind[] = {
        [KOLO_compression_none] = COMM_NONE, [KOLO_compression_bf16] = COMM_BF16,
        [KOLO_compression_fp16] = COMM_FP16, [KOLO_compression_int8] = COMM_INT8,
        [KOLO_compression_topk] = COMM_TOPK, [KOLO_compression_powersgd] = COMM_POWERSGD};
    bool owes = comm_compress_owes(kind[o->compression]);
    return (comm_compress){.kind = kind[o->compression],
                           .density = o->compression_density,
                           .momentum = o->compression_momentum,
                           .clip = o->compression_clip,
                           .warmup = o->compression_warmup * steps_per_epoch,
                           .rank = (int)o->compression_rank,
                           .start = owes ? llround(o->compression_start * (double)steps_per_epoch) : 0,
                           .seed = (uint64_t)o->seed};
}

int kolo_compression_check(const kolo_options *o)
{
    if (o->compression == KOLO_compression_none) return 0;
    if (o->reduce == KOLO_reduce_canonical)
        return kolo_fail(KOLO_ECONFIG, "compression changes the bits with the number of nodes, "
                                       "reduce=canonical does not: leave one of them out");
    if (o->noise_scale && o->compression != KOLO_compression_bf16 && o->compression != KOLO_compression_fp16)
        return kolo_fail(KOLO_ECONFIG,
                         "noise_scale=true compares the gradients of micro-batches with their mean, of which "
                         "compression=%s sends only a part; leave one of them out, or set compression=bf16",
                         kolo_option_find("compression")->choices[o->compression]);
    if (o->compression == KOLO_compression_topk && o->compression_momentum > 0 && o->momentum > 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "compression_momentum=%g is the momentum of this run, accumulated before elements are chosen: "
            "give momentum=0 with it",
            o->compression_momentum);
    return 0;
}

int kolo_compression_flat(const kolo_launch *launch, kolo_launch *flat)
{
    size_t size = (size_t)launch->size;
    *flat = *launch;
    flat->node_of = kolo_alloc(size * sizeof *flat->node_of);
    flat->local_of = kolo_alloc(size * sizeof *flat->local_of);
    flat->host_of = kolo_alloc(size * sizeof *flat->host_of);
    if (!flat->node_of || !flat->local_of || !flat->host_of) {
        kolo_compression_flat_free(flat);
        return KOLO_ENOMEM;
    }
    flat->node = launch->rank;
    flat->nodes = launch->size;
    flat->local_rank = 0;
    flat->local_size = 1;
    for (int r = 0; r < launch->size; r++) {
        flat->node_of[r] = r;
        flat->host_of[r] = launch->host_of ? launch->host_of[launch->node_of[r]] : flat->host;
    }
    return 0;
}

void kolo_compression_flat_free(kolo_launch *flat)
{
    free(flat->node_of);
    free(flat->local_of);
    free(flat->host_of);
    *flat = (kolo_launch){0};
}

int kolo_compression_apply(kolo_session *s)
{
    comm_compress compress = kolo_compression(s->options, s->phase[0].steps_per_epoch);
    comm_matrix *matrix = NULL;
    int matrices, rc;
    if (compress.kind == COMM_NONE) return 0;
    if (s->launch->size == 1 || (s->launch->nodes == 1 && !s->options->compression_within))
        kolo_log0(KOLO_LOG_WARN,
                  "compression=%s is between nodes, and this job has one: nothing is compressed%s",
                  comm_compress_name(compress.kind),
                  s->launch->size > 1 ? "; compression_within=true compresses between its ranks" : "");
    rc = kolo_plan_matrices(s->plan, s->backend, &matrix, &matrices);
    if (rc == 0) rc = kolo_comm_compress(s->comm, &compress, matrix, matrices);
    free(matrix);
    return rc;
}
