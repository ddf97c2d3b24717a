/* Groups: made and freed by all ranks of the world together. Every rank keeps the list of every group,
 * members or not, so that all see the same mistakes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(KOLO_MPI) && KOLO_MPI
#include <mpi.h>
#endif

#include "base/failure.h"
#include "base/memory.h"
#include "comm/library/parts.h"

/* ---- one group of this rank ---------------------------------------------------------------------------- */

static int group_fill(kolo_group *g, const int *rank, int count)
{
    const kolo_launch *l = g->world->launch;
    g->rank = -1;
    g->size = count;
    g->one_node = true;
    g->rank_of = kolo_alloc(((size_t)count + 1) * sizeof *g->rank_of);
    g->node_of = kolo_alloc(((size_t)count + 1) * sizeof *g->node_of);
    g->counts = kolo_alloc(((size_t)count + 1) * sizeof *g->counts);
    if (!g->rank_of || !g->node_of || !g->counts) return KOLO_ENOMEM;
    for (int m = 0; m < count; m++) { /* count 0: this rank is in none of several groups of one id */
        g->rank_of[m] = rank[m];
        g->node_of[m] = l->node_of ? l->node_of[rank[m]] : 0;
        if (rank[m] == l->rank) g->rank = m;
        if (g->node_of[m] != g->node_of[0]) g->one_node = false;
    }
    return 0;
}

int lib_group_tag(kolo_group *g)
{
    if (g->channels == LIB_CHANNELS)
        return kolo_fail(KOLO_EINTERNAL, "comm: more than %d lanes in a group", LIB_CHANNELS);
    return g->id * LIB_CHANNELS + g->channels++;
}

/* The table has room for an id; the turn is held, as turns go through the table. */
static int make_room(kolo_world *world, int id)
{
    if (id < world->groups) return 0;
    kolo_group **more = kolo_alloc((size_t)(id + 16) * sizeof *more);
    if (!more) return KOLO_ENOMEM;
    memcpy(more, world->group, (size_t)world->groups * sizeof *more);
    free(world->group);
    world->group = more;
    world->groups = id + 16;
    return 0;
}

/* The turn is held: lanes are its. */
static int furnish(kolo_group *g)
{
    KOLO_TRY(make_room(g->world, g->id));
    if (g->rank < 0) return 0;
    KOLO_TRY(lib_stream_open(&g->unnamed, g, 0));
    KOLO_TRY(lib_stream_open(&g->named, g, 1));
    g->asks = comm_selector_asks(g->world->selector, KOLO_ALLREDUCE, g->size, 1);
    return 0;
}

int lib_group_open(kolo_world *world, const int *rank, int count, int id, kolo_group **out)
{
    kolo_group *g = *out = kolo_alloc(sizeof *g);
    if (!g) return KOLO_ENOMEM;
    g->world = world;
    g->id = id;
    lib_turn_take(world);
    int rc = group_fill(g, rank, count);
    if (rc == 0) rc = furnish(g);
    if (rc < 0) lib_group_close(out);
    lib_turn_give(world);
    return rc;
}

int lib_group_join(kolo_group *g)
{
    if (g->rank < 0) return 0;
    lib_turn_take(g->world);
    int rc = lib_negotiator_open(&g->negotiator, g); /* whose end is the members' own matter */
    lib_turn_give(g->world);
    /* the others rely on this one */
    if (rc < 0) return comm_router_break_by(g->world->router, rc);
    KOLO_TRY(lib_stream_join(g->unnamed));
    return lib_stream_join(g->named);
}

void lib_group_place(kolo_group *g)
{
    lib_turn_take(g->world);
    g->world->group[g->id] = g;
    lib_turn_give(g->world);
}

void lib_group_drop(kolo_group **out)
{
    kolo_world *world = *out ? (*out)->world : NULL;
    if (!world) return;
    lib_turn_take(world);
    lib_group_close(out);
    lib_turn_give(world);
}

/* The turn is held, or no turns are taken any more. */
void lib_group_close(kolo_group **out)
{
    kolo_group *g = *out;
    if (!g) return;
    kolo_failure before;
    kolo_error_keep(&before);
    if (g->negotiator) lib_negotiator_close(&g->negotiator);
    lib_stream_close(&g->unnamed);
    lib_stream_close(&g->named);
    free(g->counts);
    free(g->rank_of);
    free(g->node_of);
    free(g);
    *out = NULL;
    kolo_error_restore(&before, before.status);
}

int lib_ascending(const void *left, const void *right) { return *(const int *)left - *(const int *)right; }

/* ---- making one ---------------------------------------------------------------------------------------- */

static bool same_members(const kolo_group *g, const int *rank, int count)
{
    return g && g->size == count && memcmp(g->rank_of, rank, (size_t)count * sizeof *rank) == 0;
}

/* rank: sorted. */
static void group_check(const kolo_world *world, const int *rank, int count, char *fault, size_t bytes)
{
    fault[0] = 0;
    for (int i = 0; i < count; i++) {
        if (rank[i] < 0 || rank[i] >= world->launch->size)
            snprintf(fault, bytes, "there is no rank %d in a world of %d", rank[i], world->launch->size);
        if (i && rank[i] == rank[i - 1]) snprintf(fault, bytes, "rank %d is named twice", rank[i]);
    }
    for (int id = 0; id < world->groups; id++)
        if (same_members(world->group[id], rank, count))
            snprintf(fault, bytes, "group %d has these members", id);
}

/* "the group of ranks 0, 2-5" */
static char *note_of(const int *rank, int count)
{
    size_t bytes = (size_t)count * 12 + 64, at = 0;
    char *note = kolo_alloc(bytes);
    if (!note) return NULL;
    at += (size_t)snprintf(note, bytes, "the group of ranks ");
    for (int i = 0; i < count; i++) {
        int to = i;
        while (to + 1 < count && rank[to + 1] == rank[to] + 1) to++;
        at += (size_t)snprintf(note + at, bytes - at, to > i ? "%s%d-%d" : "%s%d", i ? ", " : "", rank[i],
                               rank[to]);
        i = to;
    }
    return note;
}

/* The lowest free id, the same on all ranks. */
static int free_id(kolo_world *world)
{
    int id = 0;
    lib_turn_take(world);
    while (id < world->groups && world->group[id]) id++;
    lib_turn_give(world);
    return id;
}

/* rank: sorted. When all ranks have agreed what goes wrong on one goes wrong on all, and is forgotten: they
 * learn of it before anybody waits for a part of it. */
static int agree_and_make(kolo_group **out, kolo_world *world, const int *rank, int count, const char *note,
                          const char *fault)
{
    char text[32], own_fault[LIB_TEXT] = "";
    kolo_failure own;
    KOLO_TRY(lib_agree(world->all, note, fault));
    const int id = free_id(world), opened = lib_group_open(world, rank, count, id, out);
    kolo_error_keep(&own);
    if (opened < 0) snprintf(own_fault, sizeof own_fault, "%.*s", LIB_TEXT - 1, own.text);
    snprintf(text, sizeof text, "group %d", id);
    int rc = lib_agree(world->all, text, own_fault);
    /* where it was this rank's memory; the others have the text behind its name */
    if (rc < 0 && opened == KOLO_ENOMEM) rc = kolo_error_restore(&own, opened);
    if (rc == 0) rc = lib_group_join(*out);
    if (rc < 0) lib_group_drop(out);
    else lib_group_place(*out);
    return rc;
}

int kolo_group_create(kolo_group **out, kolo_world *world, const int *ranks, int count)
{
    char fault[LIB_TEXT];
    if (out) *out = NULL;
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    int given = count;
    if (count < 0 || !ranks) count = 0;
    int *rank = kolo_alloc(((size_t)count + 1) * sizeof *rank);
    if (!rank) return KOLO_ENOMEM;
    if (count) memcpy(rank, ranks, (size_t)count * sizeof *rank);
    qsort(rank, (size_t)count, sizeof *rank, lib_ascending);
    group_check(world, rank, count, fault, sizeof fault);
    /* the others have to learn of it */
    if (given < 1) snprintf(fault, sizeof fault, "a group of %d ranks", given);
    else if (!ranks || !out)
        snprintf(fault, sizeof fault, "no %s is given", ranks ? "place for the group" : "list of ranks");
    char *note = note_of(rank, count);
    int rc = note ? agree_and_make(out, world, rank, count, note, fault) : KOLO_ENOMEM;
    free(note);
    free(rank);
    return rc;
}

/* ---- those that an MPI communicator cuts out of the world ---------------------------------------------- */

/* One id for all of them: their members are disjoint. */

#if defined(KOLO_MPI) && KOLO_MPI

/* World ranks of the communicator's processes, ascending; those outside of the world are -1. */
static int members_of(const kolo_launch *launch, MPI_Comm comm, int **rank, int *count)
{
    MPI_Group members = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
    MPI_Comm world = launch->mpi_comm ? *(const MPI_Comm *)launch->mpi_comm : MPI_COMM_WORLD;
    *count = 0;
    *rank = NULL;
    if (comm == MPI_COMM_NULL) return 0;
    MPI_Comm_group(comm, &members);
    MPI_Comm_group(world, &all);
    MPI_Group_size(members, count);
    int *own = kolo_alloc((size_t)*count * 2 * sizeof *own);
    *rank = own;
    if (own) {
        for (int i = 0; i < *count; i++) own[*count + i] = i;
        MPI_Group_translate_ranks(members, *count, own + *count, all, own);
        for (int i = 0; i < *count; i++)
            if (own[i] == MPI_UNDEFINED) own[i] = -1;
        qsort(own, (size_t)*count, sizeof *own, lib_ascending);
    }
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    return own ? 0 : KOLO_ENOMEM;
}

/* lowest[rank of the world]: every rank's lowest fellow, -1: none. All members of a group must name the same,
 * and be as many as the group has. */
static void group_mpi_check(const int32_t *lowest, const int *rank, int count, int size, char *fault,
                            size_t bytes)
{
    int same = 0;
    fault[0] = 0;
    for (int r = 0; count && r < size; r++) same += lowest[r] == rank[0];
    if (count && rank[0] < 0) snprintf(fault, bytes, "the communicator has processes outside of the world");
    else if (count && same != count)
        snprintf(fault, bytes, "the communicator with rank %d has %d processes, but %d ranks brought it",
                 rank[0], count, same);
}

int kolo_group_create_mpi(kolo_group **out, kolo_world *world, const void *mpi_comm)
{
    char fault[LIB_TEXT] = "";
    int *rank = NULL, count = 0, rc;
    if (out) *out = NULL;
    if (!world) return kolo_fail(KOLO_EINPUT, "comm: no world is open");
    const kolo_launch *l = world->launch;
    if (!l->mpi && !l->mpi_comm)
        return kolo_fail(KOLO_EINPUT, "comm: groups of MPI communicators need a world whose ranks are MPI's");
    int32_t *lowest = kolo_alloc((size_t)l->size * sizeof *lowest);
    if (!lowest) return KOLO_ENOMEM;
    lib_turn_take(world); /* as all calls of MPI */
    rc = members_of(l, mpi_comm ? *(const MPI_Comm *)mpi_comm : MPI_COMM_NULL, &rank, &count);
    lib_turn_give(world);
    if (rc < 0) goto fail;
    lowest[l->rank] = count ? rank[0] : -1;
    KOLO_TRY_GOTO(rc, kolo_allgather(world->all, NULL, lowest, 1, NULL, KOLO_I32));
    group_mpi_check(lowest, rank, count, l->size, fault, sizeof fault);
    if (!mpi_comm)
        snprintf(fault, sizeof fault, "no communicator is given; a rank without one gives MPI_COMM_NULL");
    if (!out) snprintf(fault, sizeof fault, "no place for the group is given");
    rc = agree_and_make(out, world, rank, count, "groups of communicators", fault);
fail:
    free(rank);
    free(lowest);
    return rc;
}

#else

int kolo_group_create_mpi(kolo_group **out, kolo_world *world, const void *mpi_comm)
{
    (void)world;
    (void)mpi_comm;
    if (out) *out = NULL;
    return kolo_fail(KOLO_ECONFIG, "comm: this library was built without MPI; build it with MPI=1");
}
#endif

/* ---- freeing it ---------------------------------------------------------------------------------------- */

int kolo_group_free(kolo_group **out)
{
    kolo_group *g = out ? *out : NULL;
    char note[64], fault[64] = "";
    if (!out) return kolo_fail(KOLO_EINPUT, "comm: no group is given");
    if (!g) return 0;
    kolo_world *world = g->world;
    lib_group_drain(g);
    snprintf(note, sizeof note, "the end of group %d", g->id);
    if (g->id == 0) snprintf(fault, sizeof fault, "the group of all ranks ends with the world");
    KOLO_TRY(lib_agree(world->all, note, fault));
    lib_turn_take(world);
    world->group[g->id] = NULL;
    lib_group_close(out);
    lib_turn_give(world);
    return lib_agree(world->all, note, fault); /* the id is free on all ranks */
}

static int none(void) { return kolo_fail(KOLO_EINPUT, "comm: no group is given"); }
int kolo_group_rank(const kolo_group *group) { return group ? group->rank : none(); }
int kolo_group_size(const kolo_group *group) { return group ? group->size : none(); }
int kolo_group_id(const kolo_group *group) { return group ? group->id : none(); }
kolo_group *kolo_world_group(kolo_world *world) { return world ? world->all : NULL; }
