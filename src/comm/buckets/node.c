#include "comm/buckets/node.h"

#include <string.h>

#include "base/thread.h"
#include "comm/core/adasum.h"
#include "comm/core/claim.h"
#include "comm/core/schedule.h"

int comm_bucket_slices(int64_t count, int rails)
{
    int64_t most = count / 1024; /* a slice below 4 KiB is not worth another thread */
    return most < 1 ? 1 : most < rails ? (int)most : rails;
}

int64_t comm_bucket_slice(const comm_bucket *b, int s)
{
    if (b->part) return b->part[s * (b->parts / b->slices)];
    return b->tensor ? b->tensor[b->first[s]] : comm_part(b->count, b->slices, s);
}

int64_t comm_bucket_slice_end(const comm_bucket *b, int s)
{
    if (!b->part) return comm_bucket_slice(b, s + 1);
    const int last = (s + 1) * (b->parts / b->slices) - 1;
    return b->part[last] + b->part[b->parts + last];
}

void comm_bucket_part(const comm_bucket *b, int nodes, int node, int local, int64_t *first, int64_t *count)
{
    *first = *count = 0;
    if (local >= b->slices) return;
    if (b->part) {
        *first = b->part[local * nodes + node];
        *count = b->part[b->parts + local * nodes + node];
        return;
    }
    const int64_t from = comm_bucket_slice(b, local), all = comm_bucket_slice_end(b, local) - from,
                  at = comm_part(all, nodes, node);
    *first = from + at;
    *count = comm_part(all, nodes, node + 1) - at;
}

static comm_shared_bucket *shared(const comm_node *node, const comm_bucket *b)
{
    return &node->control[0]->slot[b->index].bucket;
}

static comm_slice *slice_of(const comm_node *node, const comm_bucket *b, int s)
{
    return &node->control[s]->slot[b->index].slice;
}

/* Blocks of work that a slice is on its node. */
static int64_t slice_blocks(const comm_node *node, const comm_bucket *b, int s)
{
    if (node->nodes > 1 && b->what != KOLO_ALLREDUCE && b->what != KOLO_REDUCE_SCATTER) return 0;
    if (b->tensor) return b->first[s + 1] - b->first[s];
    int64_t count = comm_bucket_slice_end(b, s) - comm_bucket_slice(b, s);
    return (count + COMM_BLOCK - 1) / COMM_BLOCK;
}

bool comm_node_arrived(const comm_node *node, const comm_bucket *b, uint64_t round)
{
    return atomic_load(&shared(node, b)->arrived) >= round * (uint64_t)node->ranks;
}

bool comm_node_arrive(comm_node *node, comm_bucket *b, uint64_t round)
{
    atomic_store_explicit(&slice_of(node, b, node->me)->started, round, memory_order_relaxed);
    return atomic_fetch_add(&shared(node, b)->arrived, 1) + 1 == round * (uint64_t)node->ranks;
}

bool comm_node_reduced(const comm_node *node, const comm_bucket *b, uint64_t round, int s)
{
    return atomic_load_explicit(&slice_of(node, b, s)->finished, memory_order_acquire) >=
           round * (uint64_t)slice_blocks(node, b, s);
}

bool comm_node_done(const comm_node *node, const comm_bucket *b, uint64_t round)
{
    uint32_t done = atomic_load_explicit(&shared(node, b)->done, memory_order_acquire);
    return (int32_t)(done - (uint32_t)round) >= 0;
}

void comm_node_release(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers)
{
    atomic_store(word, value);
    if (atomic_load(sleepers)) kolo_futex_wake(word);
}

void comm_node_slice_done(comm_node *node, const comm_bucket *b, uint64_t round)
{
    comm_shared_bucket *s = shared(node, b);
    int slices = b->slices; /* an empty one has no last block, but its turn between nodes */
    for (int i = 0; i < b->slices && b->part && node->nodes == 1; i++)
        slices -= comm_bucket_slice(b, i) == comm_bucket_slice_end(b, i);
    if (atomic_fetch_add(&s->slices, 1) + 1 == round * (uint64_t)slices)
        comm_node_release(&s->done, (uint32_t)round, &s->sleepers);
}

void comm_node_ring(comm_node *node, int local)
{
    comm_control *c = node->control[local];
    atomic_fetch_add(&c->doorbell, 1);
    if (atomic_load(&c->asleep)) kolo_futex_wake(&c->doorbell);
}

int comm_node_sum_rank(const comm_node *node, int f, int slice)
{
    return node->fragments == 1 ? slice : node->fragment[f].first;
}

/* What one local rank has goes to the others. */
static void copy_block(const comm_node *node, const comm_bucket *b, int s, int64_t from, int64_t count)
{
    const size_t width = kolo_dtype_size(b->type), at = (size_t)from * width, bytes = (size_t)count * width;
    if (b->what == KOLO_BROADCAST) {
        memcpy(node->arena[1] + b->to + at, node->arena[0] + b->offset + at, bytes);
        return;
    }
    for (int l = 0; l < node->ranks; l++)
        if (l != s) memcpy(node->arena[l] + b->offset + at, node->arena[s] + b->offset + at, bytes);
}

/* Elements from .. from + count - 1 of slice s: one node pushes the sum into every arena; of several, each
 * fragment's sum goes to one rank, from where the network takes it. */
static void reduce_block(const comm_node *node, const comm_bucket *b, int s, int64_t from, int64_t count)
{
    const comm_folding sum = {.type = b->type, .op = KOLO_SUM, .tree = node->tree};
    const void *source[COMM_MAX_LOCAL];
    void *out[COMM_MAX_LOCAL];
    size_t width = kolo_dtype_size(b->type), at = b->offset + (size_t)from * width;
    for (int f = 0; f < node->fragments; f++) {
        const comm_members *m = &node->fragment[f];
        int outs = 1;
        for (int i = 0; i < m->n; i++) source[i] = node->arena[m->first + i] + at;
        if (node->nodes > 1 || b->what == KOLO_REDUCE_SCATTER)
            out[0] = node->arena[comm_node_sum_rank(node, f, s)] + at;
        else
            for (outs = 0; outs < m->n; outs++) out[outs] = node->arena[m->first + outs] + at;
        comm_fold(&sum, out, outs, source, m->n, count);
    }
}

/* A tensor of slice s, whole: one node pushes the result into every arena; of several, it goes
 * to the slice's owner. */
static void combine_tensor(const comm_node *node, const comm_bucket *b, int s, int tensor)
{
    const size_t at = b->offset + (size_t)b->tensor[tensor] * kolo_dtype_size(b->type);
    const int64_t count = b->tensor[tensor + 1] - b->tensor[tensor];
    const comm_folding average = {.type = b->type, .op = KOLO_SUM, .divisor = node->ranks};
    void *vector[COMM_MAX_LOCAL];
    for (int l = 0; l < node->ranks; l++) vector[l] = node->arena[l] + at;
    if (b->average) comm_fold(&average, vector, 1, (const void *const *)vector, node->ranks, count);
    else comm_adasum_members(vector, node->ranks, b->type, count);
    for (int l = 1; l < node->ranks; l++)
        if (node->nodes == 1 || l == s)
            memcpy(vector[l], vector[0], (size_t)count * kolo_dtype_size(b->type));
}

static void reduce_claimed(const comm_node *node, const comm_bucket *b, int s, int64_t block)
{
    if (b->tensor) {
        combine_tensor(node, b, s, b->first[s] + (int)block);
        return;
    }
    int64_t from = comm_bucket_slice(b, s) + block * COMM_BLOCK, end = comm_bucket_slice_end(b, s);
    const int64_t count = end - from < COMM_BLOCK ? end - from : COMM_BLOCK;
    if (b->what == KOLO_ALLREDUCE || b->what == KOLO_REDUCE_SCATTER) reduce_block(node, b, s, from, count);
    else copy_block(node, b, s, from, count);
}

bool comm_node_work(comm_node *node, const comm_bucket *b, uint64_t round)
{
    if (!comm_node_arrived(node, b, round)) return false;
    for (int i = 0; i < b->slices; i++) {
        int s = (node->me + i) % b->slices;
        int64_t blocks = slice_blocks(node, b, s),
                block = comm_claim(&slice_of(node, b, s)->claimed, (uint32_t)round, blocks);
        if (block < 0) continue;
        reduce_claimed(node, b, s, block);
        if (atomic_fetch_add(&slice_of(node, b, s)->finished, 1) + 1 == round * (uint64_t)blocks) {
            if (node->nodes == 1) comm_node_slice_done(node, b, round);
            else comm_node_ring(node, s); /* the owner takes it to the other nodes */
        }
        return true;
    }
    return false;
}
