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
    bool feedback = comm_compress_has_error_feedback(kind[o->compression]);
    return (comm_compress){.kind = kind[o->compression],
                           .density = o->compression_density,
                           .momentum = o->compression_momentum,
                           .clip = o->compression_clip,
                           .warmup = o->compression_warmup * steps_per_epoch,
                           .rank = (int)o->compression_rank,
                           .start = feedback ? llround(o->compression_start * (double)steps_per_epoch) : 0,
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

/* Sums of a plan's gradients over a group of ranks. */
static int compress_group(kolo_session *s, int group, const kolo_plan *plan, const comm_compress *compress)
{
    comm_matrix *matrix = NULL;
    int matrices, rc = group < 0 ? group : kolo_plan_matrices(plan, s->backend, &matrix, &matrices);
    const int64_t front = s->program ? (int64_t)(s->program->sum_bytes / sizeof(float)) : 0;
    for (int i = 0; rc == 0 && i < matrices; i++) matrix[i].at += front;
    if (rc == 0) rc = kolo_comm_compress(s->comm, group, compress, matrix, matrices);
    free(matrix);
    return rc;
}

/* Some ranks that sum together are on different nodes. */
static bool between_nodes(const kolo_session *s)
{
    if (s->options->compression_within) return s->replicas > 1;
    if (!s->program) return s->launch->nodes > 1;
    const int *node = s->launch->node_of;
    for (int k = 0; k < s->grid.stages; k++)
        for (int r = 1; r < s->replicas; r++)
            if (node[kolo_grid_rank(&s->grid, k, r)] != node[kolo_grid_rank(&s->grid, k, 0)]) return true;
    return false;
}

int kolo_compression_apply(kolo_session *s)
{
    comm_compress compress = kolo_compression(s->options, s->phase[0].steps_per_epoch);
    if (compress.kind == COMM_NONE) return 0;
    if (!between_nodes(s))
        kolo_log0(KOLO_LOG_WARN, "compression=%s is between nodes, and %s: nothing is compressed%s",
                  comm_compress_name(compress.kind),
                  s->program && s->launch->nodes > 1 ? "the replicas of every stage are on one"
                                                     : "this job has one",
                  s->replicas > 1 ? "; compression_within=true compresses between its ranks" : "");
    if (!s->program) return compress_group(s, 0, s->plan, &compress);
    for (int k = 0; k < s->grid.stages; k++)
        KOLO_TRY(compress_group(s, kolo_comm_group(s->comm, &s->grid.rank[k * s->replicas], s->replicas),
                                s->program->plan[k], &compress));
    return 0;
}

int kolo_compression_bytes(const kolo_session *s, const kolo_plan *plan, size_t *bytes, size_t *carried)
{
    const comm_compress compress = kolo_compression(s->options, s->phase[0].steps_per_epoch);
    const int here = s->elsewhere ? 1 : s->launch->nodes,
              nodes = s->options->compression_within && compress.kind != COMM_NONE ? s->replicas
                      : here < s->replicas                                         ? here
                                                                                   : s->replicas;
    comm_matrix *matrix = NULL;
    int matrices = 0;
    *bytes = *carried = 0;
    if (nodes < 2 || plan->config.servers) return 0;
    int64_t *at = kolo_alloc(2 * (size_t)(plan->buckets + 1) * sizeof *at), *count = at + plan->buckets;
    int rc = !at                          ? KOLO_ENOMEM
             : compress.kind == COMM_NONE ? 0
                                          : kolo_plan_matrices(plan, NULL, &matrix, &matrices);
    for (int b = 0; rc == 0 && b < plan->buckets; b++) {
        at[b] = (int64_t)(plan->bucket[b].offset / sizeof(float));
        count[b] = plan->bucket[b].count;
    }
    if (rc == 0)
        rc = kolo_comm_plan_own_bytes(&compress, s->replicas / nodes, nodes, at, count, plan->buckets, matrix,
                                      matrices, bytes, carried);
    free(matrix);
    free(at);
    return rc;
}
