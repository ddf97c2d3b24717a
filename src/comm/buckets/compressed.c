#include "comm/buckets/trainer.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "comm/buckets/inside.h"
#include "kolo/error.h"

int kolo_comm_compress(kolo_comm *comm, int group, const comm_compress *config, const comm_matrix *matrix,
                       int matrices)
{
    KOLO_TRY(comm_compress_check(config));
    if (config->kind == COMM_NONE) return 0;
    if (comm->committed) return kolo_fail(KOLO_EINTERNAL, "comm: compression asked for after commit");
    if (comm->canonical)
        return kolo_fail(KOLO_ECONFIG,
                         "comm: %s changes the bits with the grid, canonical sums do not: take one of them",
                         comm_compress_name(config->kind));
    if (!comm_on_host(comm) && comm->launch->nodes > 1)
        return kolo_fail(KOLO_ECONFIG,
                         "comm: %s is done in host memory, through which reducer %s does not go: "
                         "reducer=staged, or no compression",
                         comm_compress_name(config->kind), comm->device.type->name);
    if (group < 0 || group >= comm->groups)
        return kolo_fail(KOLO_EINTERNAL, "comm: compression of group %d of %lld", group,
                         (long long)comm->groups);
    comm_group *of = comm->group[group];
    free(of->matrix);
    of->matrix = kolo_alloc((size_t)(matrices + 1) * sizeof *of->matrix);
    if (!of->matrix) return KOLO_ENOMEM;
    memcpy(of->matrix, matrix, (size_t)matrices * sizeof *matrix);
    of->matrices = matrices;
    comm->compress = *config;
    return 0;
}

int comm_compressed_make(const kolo_comm *comm, comm_bucket *b, int64_t from, int64_t count)
{
    comm_compress config = comm->compress;
    const comm_group *of = b->group;
    comm_matrix *part = kolo_alloc((size_t)(of->matrices + 1) * sizeof *part);
    if (!part) return KOLO_ENOMEM;
    int parts = comm_matrix_cut(of->matrix, of->matrices, from, count, part);
    config.seed += (uint64_t)from; /* every slice draws for itself */
    int rc = comm_codec_make(&b->codec, &config, of->launch->node, of->launch->nodes, count, part, parts);
    free(part);
    return rc;
}

uint64_t comm_compressed_hash(const kolo_comm *comm, uint64_t hash)
{
    const comm_compress *c = &comm->compress;
    const double share[] = {c->density, c->momentum, c->clip};
    const uint64_t how[] = {(uint64_t)c->kind, (uint64_t)c->warmup, (uint64_t)c->rank,
                            c->seed,           (uint64_t)c->start,  (uint64_t)comm->world.matrices};
    hash = kolo_hash_bytes(kolo_hash_bytes(hash, share, sizeof share), how, sizeof how);
    for (int64_t g = 0; g < comm->groups; g++)
        for (int i = 0; i < comm->group[g]->matrices; i++) {
            const comm_matrix *m = &comm->group[g]->matrix[i];
            const uint64_t shape[] = {(uint64_t)m->at, (uint64_t)m->groups, (uint64_t)m->columns,
                                      (uint64_t)m->lanes};
            hash = kolo_hash_bytes(hash, shape, sizeof shape);
        }
    return hash;
}

/* ---- what it takes ------------------------------------------------------------------------------------- */

/* Lanes have room for the largest slice of all each, but write to what passes through them: about the
 * largest slices, one a lane. */
typedef struct lanes {
    size_t scratch[COMM_LANES]; /* the largest, descending */
} lanes;

static void add_scratch(lanes *l, size_t bytes)
{
    for (int i = 0; i < COMM_LANES; i++) {
        if (bytes <= l->scratch[i]) continue;
        const size_t was = l->scratch[i];
        l->scratch[i] = bytes;
        bytes = was;
    }
}

static size_t lanes_bytes(const lanes *l)
{
    size_t bytes = 0;
    for (int i = 0; i < COMM_LANES; i++) bytes += l->scratch[i];
    return bytes;
}

static size_t group_bytes(const kolo_comm *comm, const comm_group *group)
{
    const int me = group->node.me;
    lanes l = {{0}};
    if (!group->mine || group->launch->nodes < 2) return 0;
    for (int64_t i = 0; i < comm->buckets; i++) {
        const comm_bucket *b = &comm->bucket[i];
        if (b->group != group || me >= b->slices) continue;
        const size_t width = kolo_dtype_size(b->type);
        const int64_t count = comm_bucket_slice_end(b, me) - comm_bucket_slice(b, me);
        add_scratch(&l,
                    (b->codec ? comm_codec_scratch_bytes(b->codec) : (size_t)b->schedule.scratch * width) +
                        (b->apart ? (size_t)count * width : 0));
    }
    return lanes_bytes(&l);
}

size_t kolo_comm_own_bytes(const kolo_comm *comm)
{
    size_t bytes = 0;
    for (int64_t g = 0; g < comm->groups; g++) bytes += group_bytes(comm, comm->group[g]);
    for (int64_t b = 0; b < comm->buckets; b++)
        if (comm->bucket[b].codec) bytes += comm_codec_bytes(comm->bucket[b].codec);
    return bytes;
}

typedef struct slices {
    size_t state, codecs;
    lanes lanes;
} slices;

/* The first slice of a bucket; others are as large, but for 16 elements. */
static int add_slice(slices *all, const comm_compress *config, int nodes, int64_t from, int64_t count,
                     const comm_matrix *matrix, int matrices)
{
    comm_codec *codec = NULL;
    comm_matrix *part = kolo_alloc((size_t)(matrices + 1) * sizeof *part);
    int rc = part ? 0 : KOLO_ENOMEM;
    if (rc == 0 && config->kind != COMM_NONE && count > 0) {
        const int parts = comm_matrix_cut(matrix, matrices, from, count, part);
        rc = comm_codec_make(&codec, config, 0, nodes, count, part, parts);
    }
    all->state += codec ? comm_codec_state_bytes(codec) : 0;
    all->codecs += codec ? comm_codec_bytes(codec) : 0;
    add_scratch(&all->lanes, codec ? comm_codec_scratch_bytes(codec) : (size_t)count * sizeof(float));
    comm_codec_free(&codec);
    free(part);
    return rc;
}

int kolo_comm_plan_own_bytes(const comm_compress *config, int local, int nodes, const int64_t *at,
                             const int64_t *count, int buckets, const comm_matrix *matrix, int matrices,
                             size_t *bytes, size_t *state)
{
    slices all = {0};
    *bytes = *state = 0;
    if (nodes < 2) return 0;
    for (int b = 0; b < buckets; b++)
        KOLO_TRY(add_slice(&all, config, nodes, at[b],
                           comm_part(count[b], comm_bucket_slices(count[b], local), 1), matrix, matrices));
    *bytes = all.codecs + lanes_bytes(&all.lanes);
    *state = all.state;
    return 0;
}

/* ---- what a rank carries ------------------------------------------------------------------------------- */

typedef struct carried_head {
    uint64_t declaration, bytes;
    int64_t rank, size;
} carried_head;

static size_t own_bytes(const kolo_comm *comm)
{
    size_t bytes = 0;
    for (int64_t b = 0; b < comm->buckets; b++)
        if (comm->bucket[b].codec) bytes += comm_codec_state_bytes(comm->bucket[b].codec);
    return bytes;
}

int comm_compressed_agree(kolo_comm *comm)
{
    int64_t most = (int64_t)own_bytes(comm);
    if (comm->compress.kind == COMM_NONE || comm->launch->nodes == 1) return 0;
    KOLO_TRY(kolo_comm_allreduce(comm, &most, 1, KOLO_I64, KOLO_MAX));
    if (most) comm->carried_bytes = kolo_round_up((size_t)most + sizeof(carried_head), 64);
    return 0;
}

size_t kolo_comm_rank_state_bytes(const kolo_comm *comm) { return comm->carried_bytes; }

static carried_head head_of(const kolo_comm *comm)
{
    return (carried_head){comm_declaration(comm), own_bytes(comm), comm->launch->rank, comm->launch->size};
}

void kolo_comm_rank_state_save(const kolo_comm *comm, void *to)
{
    carried_head head = head_of(comm);
    char *at = to;
    memset(to, 0, comm->carried_bytes);
    memcpy(at, &head, sizeof head);
    at += sizeof head;
    for (int64_t b = 0; b < comm->buckets; b++) {
        const comm_codec *codec = comm->bucket[b].codec;
        if (!codec) continue;
        comm_codec_save(codec, at);
        at += comm_codec_state_bytes(codec);
    }
}

int kolo_comm_rank_state_load(kolo_comm *comm, const void *from)
{
    carried_head head, own = head_of(comm);
    const char *at = from;
    memcpy(&head, at, sizeof head);
    at += sizeof head;
    if (memcmp(&head, &own, sizeof head))
        return kolo_fail(KOLO_EINPUT,
                         "what compression carried is of another grid (rank %lld of %lld, this one is %d of "
                         "%d) or another plan",
                         (long long)head.rank, (long long)head.size, comm->launch->rank, comm->launch->size);
    for (int64_t b = 0; b < comm->buckets; b++) {
        comm_codec *codec = comm->bucket[b].codec;
        if (!codec) continue;
        size_t bytes = comm_codec_state_bytes(codec);
        KOLO_TRY(comm_codec_restore(codec, at, bytes));
        at += bytes;
    }
    return 0;
}
