#include "train/shard.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"
#include "train/parts.h"

static const char *shard_name(const kolo_options *o) { return kolo_option_find("shard")->choices[o->shard]; }

static int check_shards(const kolo_options *o)
{
    const char *idle = *o->shard_group && o->shard == KOLO_shard_none    ? "shard_group="
                       : !o->reshard && o->shard < KOLO_shard_parameters ? "reshard=false"
                                                                         : NULL;
    if (idle)
        return kolo_fail(
            KOLO_ECONFIG, "%s says how parts are shared, and shard=%s leaves nothing to it: give %s", idle,
            shard_name(o), *idle == 'r' ? "shard=parameters, or leave it out" : "shard=, or leave it out");
    if (o->shard == KOLO_shard_none) return 0;
    if (kolo_is_adasum(o))
        return kolo_fail(
            KOLO_ECONFIG,
            "reduce=%s has every rank form a step of its own, shard=%s leaves it a part: take one of "
            "them",
            kolo_option_find("reduce")->choices[o->reduce], shard_name(o));
    const char *compression = kolo_option_find("compression")->choices[o->compression];
    const bool rounds = o->compression == KOLO_compression_bf16 || o->compression == KOLO_compression_fp16;
    if (o->compression != KOLO_compression_none &&
        (!rounds || o->compression_within || o->shard > KOLO_shard_optimizer))
        return kolo_fail(
            KOLO_ECONFIG,
            "compression=%s%s goes by where gradients lie, and with shard=%s they have no place of their "
            "own: give shard=optimizer with compression=bf16 or fp16 between nodes, or shard=none",
            compression, o->compression_within ? " with compression_within=true" : "", shard_name(o));
    return 0;
}

/* Ranks of a group as shard_group= says; 0: all. */
static int parse_group(const kolo_session *s, int *ranks)
{
    const char *text = s->options->shard_group;
    char *end;
    *ranks = 0;
    if (!*text) return 0;
    if (!strcmp(text, "node")) {
        if (s->elsewhere)
            return kolo_fail(
                KOLO_ECONFIG,
                "shard_group=node with ranks=: nobody knows how many ranks its nodes have; give the "
                "number");
        *ranks = -1;
        return 0;
    }
    const long number = strtol(text, &end, 10);
    if (*end || number < 1 || number > s->replicas)
        return kolo_fail(
            KOLO_ECONFIG,
            "shard_group=%s is neither node nor a number of ranks from 1 to %d, those that share a "
            "batch",
            text, s->replicas);
    *ranks = (int)number;
    return 0;
}

/* Those of a stage's ranks that are on the node of the first. */
static int ranks_of_node(const kolo_launch *l, const int *rank, int count)
{
    int n = 0;
    for (int i = 0; i < count; i++) n += l->node_of[rank[i]] == l->node_of[rank[0]];
    return n;
}

/* Parts that the ranks of a stage can have. */
static int count_shards(kolo_session *s, const int *rank, int *owner, int group)
{
    const kolo_launch *l = s->launch;
    const bool node = group < 0;
    if (node) group = l->size > 1 ? ranks_of_node(l, rank, s->replicas) : 1;
    if (group == 1) return 1;
    if (group == 0 || group == s->replicas) return kolo_comm_owners(l, rank, s->replicas, owner);
    if (s->replicas % group && !node)
        return kolo_fail(KOLO_ECONFIG, "shard_group=%d does not divide %d ranks that share a batch", group,
                         s->replicas);
    s->shard_groups = kolo_shard_groups(l, rank, s->replicas, group, true, owner);
    return s->shard_groups < 0 ? s->shard_groups : group;
}

static int count_all(kolo_session *s, int group)
{
    int *rank = kolo_alloc((size_t)s->replicas * sizeof *rank),
        *owner = kolo_alloc((size_t)s->replicas * sizeof *owner);
    int rc = rank && owner ? 0 : KOLO_ENOMEM;
    for (int k = 0; rc >= 0 && k < s->grid.stages; k++) {
        for (int r = 0; r < s->replicas; r++)
            rank[r] = s->grid.stages > 1 ? kolo_grid_rank(&s->grid, k, r) : r;
        rc = count_shards(s, rank, owner, group);
        if (rc > 0 && k > 0 && rc != s->shards)
            rc = kolo_fail(
                KOLO_ECONFIG,
                "shard=%s: the ranks of stage %d lie on the nodes so that they can have %d parts, those "
                "of stage 0 %d; start as many ranks on every node",
                shard_name(s->options), k, rc, s->shards);
        if (rc > 0) s->shards = rc;
    }
    free(rank);
    free(owner);
    return rc < 0 ? rc : 0;
}

int session_offloads(const kolo_options *o)
{
    switch (o->offload) {
    case KOLO_offload_optimizer: return KOLO_OFFLOAD_STATE;
    case KOLO_offload_parameters: return KOLO_OFFLOAD_PARAM;
    case KOLO_offload_all: return KOLO_OFFLOAD_STATE | KOLO_OFFLOAD_PARAM;
    default: return 0;
    }
}

int session_check_offload(const kolo_session *s)
{
    const kolo_options *o = s->options;
    const bool trains = s->parts & KOLO_SESSION_TRAIN;
    if (trains && o->shard != KOLO_shard_none && (session_offloads(o) & KOLO_OFFLOAD_PARAM))
        return kolo_fail(
            KOLO_ECONFIG,
            "offload=%s and %s: what ranks share of parameters is brought together in memory; give "
            "offload=optimizer or activations, or leave shard= out",
            kolo_option_find("offload")->choices[o->offload], shard_name(o));
    if (o->offload == KOLO_offload_none && *o->offload_path)
        return kolo_fail(KOLO_ECONFIG,
                         "offload_path= is of offload=, which is none: give both, or leave it out");
    if (o->offload == KOLO_offload_none || !s->cuda || !(s->parts & KOLO_SESSION_TRAIN)) return 0;
    if (*o->offload_path)
        return kolo_fail(
            KOLO_ECONFIG,
            "offload_path=%s is for CPUs: a GPU's activations go to the host's memory; leave it out",
            o->offload_path);
    if (o->offload == KOLO_offload_activations) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "offload=%s is for CPUs: on GPUs give offload=activations, or shard=optimizer on several "
        "ranks",
        kolo_option_find("offload")->choices[o->offload]);
}

int session_open_shards(kolo_session *s)
{
    const kolo_options *o = s->options;
    int group;
    s->shards = s->shard_groups = 1;
    if (!(s->parts & KOLO_SESSION_TRAIN)) return 0;
    KOLO_TRY(check_shards(o));
    if (o->shard == KOLO_shard_none) return 0;
    KOLO_TRY(parse_group(s, &group));
    if (s->replicas == 1) {
        kolo_log0(KOLO_LOG_INFO, "shard=%s: one rank has all of %s, there is nobody to share it with",
                  shard_name(o), s->grid.stages > 1 ? "its stage" : "the network");
        return 0;
    }
    if (!s->elsewhere) return count_all(s, group);
    s->shards = group ? group : s->replicas;
    s->shard_groups = s->replicas / s->shards;
    if (s->replicas % s->shards)
        return kolo_fail(KOLO_ECONFIG, "shard_group=%d does not divide %d ranks that share a batch", group,
                         s->replicas);
    return 0;
}
