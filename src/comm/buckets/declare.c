/* What is declared before the first step: groups, their buckets, transfers; and commit, which makes the
 * schedules and lanes that carry them. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "comm/algorithm/build.h"
#include "comm/buckets/inside.h"
#include "kolo/error.h"

/* ---- groups -------------------------------------------------------------------------------------------- */

static int add_group(kolo_comm *comm, comm_group *group)
{
    KOLO_TRY(kolo_grow(&comm->group, &comm->groups_room, comm->groups, sizeof *comm->group));
    comm->group[comm->groups++] = group;
    return 0;
}

int comm_declare_open(kolo_comm *comm)
{
    comm->slot = kolo_alloc((size_t)comm->launch->size * sizeof *comm->slot);
    return comm->slot ? add_group(comm, &comm->world) : KOLO_ENOMEM;
}

void comm_declare_close_lanes(kolo_comm *comm, bool *busy)
{
    for (int64_t g = 0; g < comm->groups; g++)
        for (int i = 0; i < COMM_LANES; i++) comm_lane_close(&comm->group[g]->lane[i].lane, busy);
}

void comm_declare_close(kolo_comm *comm)
{
    for (int64_t i = 0; i < comm->buckets; i++) {
        comm_bucket *b = &comm->bucket[i];
        comm_schedule_free(&b->schedule);
        comm_codec_free(&b->codec);
        free(b->part);
        free(b->tensor);
        free(b->first);
    }
    comm_group_free(&comm->world);
    for (int64_t g = 1; g < comm->groups; g++) {
        comm_group_free(comm->group[g]);
        free(comm->group[g]);
    }
    free(comm->group);
    free(comm->bucket);
    free(comm->slot);
}

static bool is_of(const comm_group *group, const int *rank, int count, bool pair)
{
    return group->pair == pair && group->launch->size == count &&
           memcmp(group->rank, rank, (size_t)count * sizeof *rank) == 0;
}

/* The group of these ranks; its number or negative. */
static int find_group(kolo_comm *comm, const int *rank, int count, bool pair)
{
    for (int64_t g = 0; g < comm->groups; g++)
        if (is_of(comm->group[g], rank, count, pair)) return (int)g;
    comm_group *group = kolo_alloc(sizeof *group);
    if (!group) return KOLO_ENOMEM;
    group->pair = pair;
    int rc = comm_group_make(group, &comm->world, rank, count);
    if (rc == 0) rc = add_group(comm, group);
    if (rc == 0) return (int)comm->groups - 1;
    comm_group_free(group);
    free(group);
    return rc;
}

static int check_open(const kolo_comm *comm, const char *what)
{
    return comm->committed ? kolo_fail(KOLO_EINTERNAL, "comm: %s is declared after commit", what) : 0;
}

const kolo_launch *kolo_comm_launch(const kolo_comm *comm) { return comm->launch; }

int kolo_comm_group_ranks(const kolo_comm *comm, int group, const int **ranks)
{
    *ranks = comm->group[group]->rank;
    return comm->group[group]->launch->size;
}

static int check_ranks(const kolo_launch *launch, const int *ranks, int count)
{
    for (int i = 0; i < count; i++)
        if (ranks[i] < 0 || ranks[i] >= launch->size || (i > 0 && ranks[i] <= ranks[i - 1]))
            return kolo_fail(KOLO_EINTERNAL,
                             "comm: rank %d, number %d of a group of %d, is not above the one before, "
                             "or not below %d",
                             ranks[i], i, count, launch->size);
    return count > 0 ? 0 : kolo_fail(KOLO_EINTERNAL, "comm: a group of %d ranks", count);
}

int kolo_comm_group(kolo_comm *comm, const int *ranks, int count)
{
    KOLO_TRY(check_open(comm, "a group"));
    KOLO_TRY(check_ranks(comm->launch, ranks, count));
    return find_group(comm, ranks, count, false);
}

/* ---- buckets ------------------------------------------------------------------------------------------- */

/* The slot that is free in all members, the same for all of them. */
static int take_slot(kolo_comm *comm, const comm_group *group)
{
    int slot = 0;
    for (int r = 0; r < group->launch->size; r++)
        if (comm->slot[group->rank[r]] > slot) slot = comm->slot[group->rank[r]];
    for (int r = 0; r < group->launch->size; r++) comm->slot[group->rank[r]] = slot + 1;
    return slot;
}

static int add_bucket(kolo_comm *comm, int group, const comm_bucket *like)
{
    comm_group *of = comm->group[group];
    KOLO_TRY(kolo_grow(&comm->bucket, &comm->capacity, comm->buckets, sizeof *comm->bucket));
    comm_bucket *b = &comm->bucket[comm->buckets];
    *b = *like;
    b->number = (int)comm->buckets++;
    b->index = take_slot(comm, of);
    b->declared = group;
    b->group = of->mine ? of : NULL;
    b->slices = of->mine && of->launch->size > 1 ? comm_bucket_slices(b->count, of->node.rails) : 1;
    if (b->part && of->mine && of->launch->size > 1) b->slices = of->node.rails;
    return 0;
}

static bool is_within(const kolo_comm *comm, const comm_bucket *b, size_t offset)
{
    const size_t width = kolo_dtype_size(b->type);
    return offset % width == 0 && offset <= comm->used_bytes &&
           (size_t)b->count <= (comm->used_bytes - offset) / width;
}

/* Elements that member r of its group owns of a bucket. */
static void member_part(const kolo_comm *comm, const comm_bucket *b, int r, int64_t *first, int64_t *count)
{
    const kolo_launch *l = comm->group[b->declared]->launch;
    if (l->size > 1 && (b->part || !(comm->device.type && comm->device.type->equal_parts))) {
        comm_bucket_part(b, l->nodes, l->node_of[r], l->local_of[r], first, count);
        return;
    }
    *first = kolo_comm_equal_part(b->count, l->size, r);
    *count = kolo_comm_equal_part(b->count, l->size, r + 1) - *first;
}

/* As reducers see it. */
static kolo_reducer_bucket show_bucket(const kolo_comm *comm, int number)
{
    const comm_bucket *b = &comm->bucket[number];
    const kolo_launch *l = comm->group[b->declared]->launch;
    const size_t width = kolo_dtype_size(b->type), bytes = (size_t)b->count * width;
    const bool transfer = b->what == KOLO_BROADCAST;
    kolo_reducer_bucket shown = {.what = b->what,
                                 .group = b->declared,
                                 .members = l->size,
                                 .member = b->group ? l->rank : -1,
                                 .offset = transfer && l->rank > 0 ? b->to : b->offset,
                                 .type = transfer ? KOLO_U8 : b->type,
                                 .count = transfer ? (int64_t)bytes : b->count,
                                 .parts = b->parts,
                                 .owner = comm->group[b->declared]->owner,
                                 .first = b->part,
                                 .size = b->part ? b->part + b->parts : NULL};
    int64_t first = 0, count = 0;
    if (!b->group) return shown;
    shown.in.offset = shown.out.offset = shown.offset;
    shown.in.bytes = transfer && l->rank > 0 ? 0 : bytes;
    shown.out.bytes = transfer && l->rank == 0 ? 0 : bytes;
    if (b->what != KOLO_REDUCE_SCATTER && b->what != KOLO_ALLGATHER) return shown;
    member_part(comm, b, l->rank, &first, &count);
    if (b->what == KOLO_ALLGATHER) {
        shown.in.offset += (size_t)first * width;
        shown.in.bytes = (size_t)count * width;
    } else {
        shown.out.offset += (size_t)first * width;
        shown.out.bytes = (size_t)count * width;
    }
    return shown;
}

/* Its number, or negative. */
static int declare(kolo_comm *comm, int group, const comm_bucket *like)
{
    const int64_t number = comm->buckets;
    const comm_group *of = comm->group[group];
    const bool receives = like->what == KOLO_BROADCAST && of->launch->rank > 0;
    if (like->count < 0 || (of->mine && !is_within(comm, like, receives ? like->to : like->offset)))
        return kolo_fail(KOLO_EINTERNAL,
                         "comm: bucket %lld (offset %zu, %lld elements) is not within the arena of %zu bytes",
                         (long long)number, receives ? like->to : like->offset, (long long)like->count,
                         comm->used_bytes);
    KOLO_TRY(add_bucket(comm, group, like));
    if (comm->bucket[number].index >= comm->slots || number >= COMM_MAX_DECLARED)
        return kolo_fail(
            KOLO_ECONFIG,
            "comm: more than %d buckets and transfers of one rank; raise bucket_mb, with stages= or "
            "spatial= micro_batch, or have fewer sizes of batches and images",
            comm->slots);
    if (comm->device.type) {
        const kolo_reducer_bucket shown = show_bucket(comm, (int)number);
        KOLO_TRY(comm->device.type->bucket(comm->device.reducer, (int)number, &shown));
    }
    return (int)number;
}

int kolo_comm_bucket(kolo_comm *comm, size_t offset, int64_t count)
{
    const int number = kolo_comm_bucket_of(comm, 0, KOLO_ALLREDUCE, offset, count);
    return number < 0 ? number : 0;
}

static int check_bucket(const kolo_comm *comm, int group, enum kolo_collective what)
{
    if (group >= 0 && group < comm->groups && !comm->group[group]->pair &&
        (what == KOLO_ALLREDUCE || what == KOLO_REDUCE_SCATTER || what == KOLO_ALLGATHER))
        return 0;
    return kolo_fail(KOLO_EINTERNAL, "comm: a bucket of group %d of %lld, collective %d", group,
                     (long long)comm->groups, (int)what);
}

int kolo_comm_bucket_of(kolo_comm *comm, int group, enum kolo_collective what, size_t offset, int64_t count)
{
    KOLO_TRY(check_open(comm, "a bucket"));
    KOLO_TRY(check_bucket(comm, group, what));
    return declare(comm, group,
                   &(comm_bucket){.what = what, .offset = offset, .count = count, .type = KOLO_F32});
}

static int check_part(int64_t first, int64_t size, int part, int64_t count)
{
    if (size >= 0 && first >= 0 && first <= count - size) return 0;
    return kolo_fail(KOLO_EINTERNAL, "comm: part %d of a bucket of %lld elements: %lld from %lld on", part,
                     (long long)count, (long long)size, (long long)first);
}

/* Slices, whose parts follow one another, are all of the bucket, and none of it twice. */
static int check_cut(const int64_t *first, const int64_t *size, int owners, int nodes, int64_t count)
{
    int64_t covered = 0;
    for (int i = 0; i < owners; i++) {
        KOLO_TRY(check_part(first[i], size[i], i, count));
        if (i % nodes && first[i] != first[i - 1] + size[i - 1])
            return kolo_fail(KOLO_EINTERNAL, "comm: part %d of a bucket does not follow part %d", i, i - 1);
    }
    for (int s = 0; s < owners; s += nodes) {
        const comm_range slice = {first[s], first[s + nodes - 1] + size[s + nodes - 1]};
        for (int t = 0; t < s; t += nodes) {
            const comm_range other = {first[t], first[t + nodes - 1] + size[t + nodes - 1]};
            if (comm_length(comm_both(slice, other)))
                return kolo_fail(KOLO_EINTERNAL, "comm: parts %d and %d of a bucket, or later ones, overlap",
                                 t, s);
        }
        covered += comm_length(slice);
    }
    if (covered == count) return 0;
    return kolo_fail(KOLO_EINTERNAL, "comm: the parts of a bucket have %lld of %lld elements",
                     (long long)covered, (long long)count);
}

int kolo_comm_owners(const kolo_launch *launch, const int *ranks, int count, int *owner)
{
    kolo_launch part;
    KOLO_TRY(check_ranks(launch, ranks, count));
    if (count == 1) return owner[0] = ranks[0], 1;
    KOLO_TRY(kolo_launch_part(&part, launch, ranks, count, launch->job));
    const int owners = comm_group_owners(&part, owner);
    for (int i = 0; i < owners; i++) owner[i] = ranks[owner[i]];
    kolo_launch_finish(&part);
    return owners;
}

int kolo_comm_bucket_cut(kolo_comm *comm, int group, enum kolo_collective what, size_t offset, int64_t count,
                         const int64_t *first, const int64_t *size)
{
    KOLO_TRY(check_open(comm, "a bucket"));
    if (what == KOLO_ALLREDUCE)
        return kolo_fail(KOLO_EINTERNAL, "comm: parts of an allreduce, which has none");
    KOLO_TRY(check_bucket(comm, group, what));
    comm_group *of = comm->group[group];
    const int parts = comm_group_own(of);
    KOLO_TRY(parts);
    KOLO_TRY(check_cut(first, size, parts, of->launch->size > 1 ? of->launch->nodes : 1, count));
    int64_t *part = kolo_alloc(2 * (size_t)parts * sizeof *part);
    if (!part) return KOLO_ENOMEM;
    memcpy(part, first, (size_t)parts * sizeof *part);
    memcpy(part + parts, size, (size_t)parts * sizeof *part);
    const int64_t before = comm->buckets;
    const int number = declare(
        comm, group,
        &(comm_bucket){
            .what = what, .offset = offset, .count = count, .type = KOLO_F32, .part = part, .parts = parts});
    if (comm->buckets == before) free(part);
    return number;
}

int kolo_comm_bucket_f64(kolo_comm *comm, int group, size_t offset, int64_t count)
{
    KOLO_TRY(check_open(comm, "a bucket of f64"));
    return declare(
        comm, group,
        &(comm_bucket){.what = KOLO_ALLREDUCE, .offset = offset, .count = count, .type = KOLO_F64});
}

int kolo_comm_transfer(kolo_comm *comm, int from, int to, size_t from_offset, size_t to_offset, size_t bytes)
{
    const int pair[] = {from, to}, size = comm->launch->size;
    KOLO_TRY(check_open(comm, "a transfer"));
    if (from < 0 || from >= size || to < 0 || to >= size || from == to || bytes > (size_t)INT64_MAX)
        return kolo_fail(KOLO_EINTERNAL, "comm: a transfer of %zu bytes from rank %d to rank %d of %d", bytes,
                         from, to, size);
    const bool words = (bytes | from_offset | to_offset) % sizeof(float) == 0;
    const int group = find_group(comm, pair, 2, true);
    if (group < 0) return group;
    return declare(comm, group,
                   &(comm_bucket){.what = KOLO_BROADCAST,
                                  .offset = from_offset,
                                  .to = to_offset,
                                  .count = (int64_t)(words ? bytes / sizeof(float) : bytes),
                                  .type = words ? KOLO_F32 : KOLO_U8});
}

int kolo_comm_part(const kolo_comm *comm, int bucket, int rank, int64_t *first, int64_t *count)
{
    *first = *count = 0;
    const comm_bucket *b = bucket >= 0 && bucket < comm->buckets ? &comm->bucket[bucket] : NULL;
    if (!b || !b->group)
        return kolo_fail(KOLO_EINTERNAL, "comm: bucket %d is not one of this rank's", bucket);
    const kolo_launch *l = b->group->launch;
    for (int r = 0; r < l->size; r++) {
        if (b->group->rank[r] != rank) continue;
        member_part(comm, b, r, first, count);
        return 0;
    }
    return kolo_fail(KOLO_EINTERNAL, "comm: rank %d does not share bucket %d", rank, bucket);
}

/* ---- commit -------------------------------------------------------------------------------------------- */

/* How this rank's slice, `count` elements from `from` on, goes between the nodes of its group. */
static int make_schedule(kolo_comm *comm, comm_bucket *b, int64_t from, int64_t count)
{
    const size_t width = kolo_dtype_size(b->type);
    const comm_group *group = b->group;
    if (b->tensor) return comm_combined_make(b);
    if (b->what == KOLO_BROADCAST) return comm_choice_transfer(&b->schedule, group->launch->rank == 0, count);
    const bool sums = b->what == KOLO_ALLREDUCE || b->what == KOLO_REDUCE_SCATTER;
    if (group->matrix && sums && b->type == KOLO_F32 && count > 0)
        return comm_compressed_make(comm, b, (int64_t)(b->offset / width) + from, count);
    b->apart = b->what == KOLO_REDUCE_SCATTER && group->tree.plain;
    const enum kolo_collective what = b->what == KOLO_REDUCE_SCATTER && !b->apart ? KOLO_ALLREDUCE : b->what;
    const int64_t *sizes = b->part ? b->part + b->parts + group->node.me * group->node.nodes : NULL;
    return comm_choice_make(comm, group, what, &b->schedule, count, sizes, width);
}

/* Schedules of the slices that this rank owns, and lanes that fit the largest. */
static int make_group(kolo_comm *comm, comm_group *group)
{
    int64_t posts = 0;
    size_t scratch = 0, result = 0;
    const int me = group->node.me;
    for (int64_t i = 0; i < comm->buckets; i++) {
        comm_bucket *b = &comm->bucket[i];
        if (b->group != group || me >= b->slices) continue;
        int64_t from = comm_bucket_slice(b, me), count = comm_bucket_slice_end(b, me) - from;
        size_t width = kolo_dtype_size(b->type);
        KOLO_TRY(make_schedule(comm, b, from, count));
        const comm_schedule *s = b->codec ? comm_codec_schedule(b->codec) : &b->schedule;
        if (s->posts > posts) posts = s->posts;
        if ((size_t)s->scratch * width > scratch) scratch = (size_t)s->scratch * width;
        if (b->apart && (size_t)count * width > result) result = (size_t)count * width;
    }
    const size_t result_at = kolo_round_up(scratch + KOLO_ALIGN, KOLO_ALIGN);
    for (int i = 0; i < COMM_LANES; i++) {
        comm_slice_lane *slice = &group->lane[i];
        KOLO_TRY(comm_lane_open(&slice->lane, comm->router, group->node.ranks));
        KOLO_TRY(comm_lane_reserve(&slice->lane, posts, result_at + result));
        slice->result = slice->lane.scratch + result_at;
    }
    return 0;
}

static int make_groups(kolo_comm *comm)
{
    for (int64_t g = 0; g < comm->groups; g++)
        if (comm->group[g]->mine && comm->group[g]->launch->nodes > 1)
            KOLO_TRY(make_group(comm, comm->group[g]));
    return 0;
}

uint64_t comm_declaration(const kolo_comm *comm)
{
    uint64_t hash = kolo_hash_number(kolo_hash_number(KOLO_HASH, comm->arena_bytes), comm->canonical);
    hash = kolo_hash_number(kolo_hash_number(hash, comm_selector_digest(comm->choice.selector)),
                            (uint64_t)comm->buckets);
    for (int64_t g = 1; g < comm->groups; g++) {
        const comm_group *group = comm->group[g];
        hash = kolo_hash_number(hash, group->pair);
        hash = kolo_hash_bytes(hash, group->rank, (size_t)group->launch->size * sizeof *group->rank);
    }
    for (int64_t i = 0; i < comm->buckets; i++) {
        const comm_bucket *b = &comm->bucket[i];
        hash = kolo_hash_number(kolo_hash_number(hash, b->offset), (uint64_t)b->count);
        if (b->declared > 0 || b->what != KOLO_ALLREDUCE) {
            hash = kolo_hash_number(kolo_hash_number(hash, (uint64_t)b->declared), (uint64_t)b->what);
            hash = kolo_hash_number(kolo_hash_number(hash, b->to), (uint64_t)b->type);
        }
        if (b->part) hash = kolo_hash_bytes(hash, b->part, 2 * (size_t)b->parts * sizeof *b->part);
        if (b->tensor) hash = kolo_hash_number(hash, b->average);
        for (int t = 0; t < b->tensors; t++) hash = kolo_hash_number(hash, (uint64_t)b->tensor[t]);
    }
    return comm_compressed_hash(comm, hash);
}

int comm_declarations_compare(kolo_comm *comm)
{
    int size = comm->launch->size;
    int64_t other = -1;
    uint64_t mine = comm_declaration(comm), *all = kolo_alloc((size_t)size * sizeof *all);
    int rc = all ? kolo_comm_gather(comm, &mine, sizeof mine, all, 0) : KOLO_ENOMEM;
    for (int r = size - 1; rc == 0 && comm->launch->rank == 0 && r > 0; r--)
        if (all[r] != mine) other = r;
    free(all);
    KOLO_TRY(rc);
    KOLO_TRY(kolo_comm_broadcast(comm, &other, sizeof other, 0));
    if (other < 0) return 0;
    return kolo_fail(
        KOLO_ECONFIG,
        "comm: rank %lld declared another arena, algorithm, table or list of buckets than rank 0 (rank "
        "%d has %lld buckets): all ranks must run the same program with the same recipe",
        (long long)other, comm->launch->rank, (long long)comm->buckets);
}

int kolo_comm_commit(kolo_comm *comm)
{
    if (comm->committed) return kolo_fail(KOLO_EINTERNAL, "comm: committed twice");
    if (!comm_alone(comm)) {
        comm->engine.bucket = comm->bucket;
        int rc = comm->launch->nodes > 1 && comm_on_host(comm) ? make_groups(comm) : 0;
        if (rc == 0) rc = comm_declarations_compare(comm);
        if (rc == 0) rc = comm_compressed_agree(comm);
        else rc = kolo_comm_host_fail(comm, rc); /* others may wait for this rank; its error is its own */
        KOLO_TRY(rc);
    }
    comm->committed = true;
    return comm->device.type ? comm_device_commit(comm) : 0;
}
