/* Negotiation of one group: what was submitted goes to its core, what the core says goes over
 * the lines of the tree. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/negotiate.h"
#include "comm/library/parts.h"
#include "kolo/error.h"

struct lib_negotiator {
    kolo_group *group;
    lib_core *core;
    lib_line *up, **down; /* to the parent, to the children */

    /* under world->lock: */
    lib_entry **inbox;
    int64_t inbox_count, inbox_capacity;
    lib_map names;   /* entries */
    lib_entry *join; /* that is under way; or NULL */

    _Atomic uint32_t came; /* something lies in the inbox */
    lib_entry **taken;     /* of the turn */
    int64_t taken_capacity;
    char begun[128]; /* last name of the batches that began last */
};

/* ---- opening ------------------------------------------------------------------------------------------- */

static int open_lines(lib_negotiator *n, int tag)
{
    const kolo_group *g = n->group;
    comm_router *router = g->world->router;
    n->down = kolo_alloc((size_t)(n->core->children + 1) * sizeof *n->down);
    if (!n->down) return KOLO_ENOMEM;
    if (n->core->parent >= 0) KOLO_TRY(lib_line_open(&n->up, router, g->rank_of[n->core->parent], tag));
    for (int c = 0; c < n->core->children; c++)
        KOLO_TRY(lib_line_open(&n->down[c], router, g->rank_of[n->core->child[c]], tag));
    return 0;
}

static void lines_close(lib_negotiator *n)
{
    lib_line_close(&n->up);
    for (int c = 0; n->down && c < n->core->children; c++) lib_line_close(&n->down[c]);
}

static void negotiator_free(lib_negotiator **out)
{
    lib_negotiator *n = *out;
    if (n->core) lines_close(n);
    lib_core_close(&n->core);
    free(n->down);
    free(n->inbox);
    free(n->taken);
    lib_map_free(&n->names);
    free(n);
    *out = NULL;
}

int lib_negotiator_open(lib_negotiator **out, kolo_group *group)
{
    const kolo_world_config *c = &group->world->config;
    lib_negotiator *n = *out = kolo_alloc(sizeof *n);
    if (!n) return KOLO_ENOMEM;
    n->group = group;
    const int tag = lib_group_tag(group);
    KOLO_TRY(tag);
    lib_core_config config = {.me = group->rank,
                              .members = group->size,
                              .group = group->id,
                              .node_of = group->node_of,
                              .rank_of = group->rank_of,
                              .host = group->world->launch->host,
                              .capacity = c->cache < 0 ? 0 : c->cache,
                              .fusion_bytes = c->fusion_bytes,
                              .cycle = c->cycle,
                              .stall_warning = c->stall_warning,
                              .stall_end = c->stall_end,
                              .fixed_order = c->fixed_order,
                              .autotune = c->autotune,
                              .complete = lib_complete};
    int rc = lib_core_open(&n->core, &config);
    if (rc == 0) rc = open_lines(n, tag);
    if (rc < 0) negotiator_free(out);
    return rc;
}

/* ---- submitting: any thread, world->lock is held ------------------------------------------------------- */

static int name_take(lib_negotiator *n, lib_entry *entry)
{
    const char *name = entry->r.name;
    if (lib_map_find(&n->names, name, strlen(name)))
        return kolo_fail(KOLO_EINPUT,
                         "comm: \"%.200s\" is under way on rank %d; wait for it before it is submitted again",
                         name, n->group->world->launch->rank);
    return lib_map_add(&n->names, &entry->link, name, strlen(name));
}

void lib_negotiator_over(lib_negotiator *n, lib_entry *entry)
{
    if (entry->r.what == KOLO_JOIN) n->join = NULL;
    else lib_map_remove(&n->names, &entry->link);
}

static int put_into_inbox(lib_negotiator *n, lib_entry *const *entry, int entries)
{
    int rc = 0, taken = 0;
    /* there is room for as many as ever were under way: how many come between turns is chance */
    const int64_t need = n->inbox_count + entries, ever = n->names.buckets;
    KOLO_TRY(kolo_grow(&n->inbox, &n->inbox_capacity, need > ever ? need : ever, sizeof *n->inbox));
    if (entry[0]->r.what == KOLO_JOIN) n->join = entry[0];
    for (; taken < entries && rc == 0 && entry[0] != n->join; taken++) rc = name_take(n, entry[taken]);
    if (rc < 0) { /* the names that were taken are free again */
        for (int i = 0; i < taken - 1; i++) lib_map_remove(&n->names, &entry[i]->link);
        return rc;
    }
    memcpy(n->inbox + n->inbox_count, entry, (size_t)entries * sizeof *entry);
    n->inbox_count += entries;
    atomic_store(&n->came, 1);
    return 0;
}

int lib_negotiator_add(lib_negotiator *n, lib_entry *const *entry, int entries)
{
    if (n->join)
        return kolo_fail(KOLO_EINPUT, "comm: rank %d has joined group %d: it submits nothing until all have",
                         n->group->world->launch->rank, n->group->id);
    return put_into_inbox(n, entry, entries);
}

int lib_negotiator_differs(lib_entry *entry)
{
    kolo_world *world = entry->group->world;
    snprintf(entry->word, sizeof entry->word, "%crequest %llu", LIB_UNNAMED,
             (unsigned long long)entry->sequence);
    pthread_mutex_lock(&world->lock);
    entry->r.name = entry->word;
    const int rc = put_into_inbox(entry->group->negotiator, &entry, 1);
    if (rc < 0) entry->r.name = NULL;
    pthread_mutex_unlock(&world->lock);
    return rc;
}

/* ---- turns --------------------------------------------------------------------------------------------- */

static int fetch(lib_negotiator *n, double now)
{
    pthread_mutex_t *lock = &n->group->world->lock;
    if (!atomic_load(&n->came)) return 0;
    pthread_mutex_lock(lock);
    lib_entry **swap = n->taken;
    int64_t capacity = n->taken_capacity, count = n->inbox_count;
    n->taken = n->inbox;
    n->taken_capacity = n->inbox_capacity;
    n->inbox = swap;
    n->inbox_capacity = capacity;
    n->inbox_count = 0;
    atomic_store(&n->came, 0);
    pthread_mutex_unlock(lock);
    for (int64_t i = 0; i < count;) {
        int64_t entries = n->taken[i]->bundle_size ? n->taken[i]->bundle_size : 1;
        KOLO_TRY(lib_core_add(n->core, n->taken + i, entries, now));
        i += entries;
    }
    return 0;
}

static int send_to_children(lib_negotiator *n)
{
    lib_core *core = n->core;
    for (int c = 0; c < core->children && core->down.size; c++)
        KOLO_TRY(lib_line_put(n->down[c], &core->down));
    core->down.size = 0;
    return 0;
}

/* A message of a child, or of the parent (-1). 1: there was one. */
static int receive(lib_negotiator *n, lib_line *line, int child, double now)
{
    lib_core *core = n->core;
    const void *message;
    int64_t bytes;
    int rc = lib_line_take(line, &message, &bytes);
    if (rc <= 0) return rc;
    KOLO_TRY(lib_core_receive(core, child, message, bytes, now));
    if (child < 0) KOLO_TRY(send_to_children(n));
    if (child < 0 ? core->closed : core->edge[child].closing) lib_line_end(line);
    return 1;
}

/* Of the parent up to the first agreement with which something begins. */
static int receive_all(lib_negotiator *n, double now)
{
    int rc = 0;
    n->core->batches = 0;
    while (n->up && !n->core->batches && (rc = receive(n, n->up, -1, now)) > 0) continue;
    for (int c = 0; rc >= 0 && c < n->core->children; c++)
        while ((rc = receive(n, n->down[c], c, now)) > 0) continue;
    return rc < 0 ? rc : 0;
}

/* Returns whether messages of this member are still under way. */
static int exchange(lib_negotiator *n, double now, bool idle)
{
    lib_core *core = n->core;
    KOLO_TRY(receive_all(n, now));
    int64_t heard = core->batches;
    KOLO_TRY(lib_core_send(core, now, idle));
    if (!core->root) core->batches = heard; /* they began by what the parent said */
    if (core->up.size) KOLO_TRY(lib_line_put(n->up, &core->up));
    core->up.size = 0;
    KOLO_TRY(send_to_children(n));
    int rc = n->up ? lib_line_send(n->up) : 1;
    bool sends = rc == 0;
    for (int c = 0; rc >= 0 && c < core->children; c++) {
        rc = lib_line_send(n->down[c]);
        sends |= rc == 0;
    }
    return rc < 0 ? rc : sends;
}

static bool tracks_idle(const lib_stream *s, bool all)
{
    int busy = 0;
    for (int i = 0; i < LIB_TRACKS; i++) busy += s->track[i].execution != NULL;
    return !s->first && busy < (all ? 1 : LIB_TRACKS);
}

static void note_batches(lib_negotiator *n, double now)
{
    enum { SHOWN = 16 }; /* of larger batches the first name stands for all */
    lib_core *core = n->core;
    struct lib_timeline *timeline = n->group->world->timeline;
    for (int64_t b = 0; b < core->batches; b++) {
        const lib_beginning *batch = &core->batch[b];
        const lib_entry *entry = NULL;
        for (int i = 0; timeline && i < (batch->entries > SHOWN ? 1 : batch->entries); i++)
            if ((entry = batch->begin[i].entry))
                lib_timeline_add(timeline, "negotiate", entry->r.name, entry->submitted, now, 0);
        entry = batch->begin[batch->entries - 1].entry;
        if (entry) snprintf(n->begun, sizeof n->begun, "%s", entry->r.name);
    }
}

static void note_finished(lib_negotiator *n, double now)
{
    if (!n->begun[0] || !tracks_idle(n->group->named, true)) return;
    memcpy(n->core->finished, n->begun, sizeof n->begun);
    n->core->finished_at = now;
    n->begun[0] = 0;
}

int lib_negotiator_turn(lib_negotiator *n, const lib_beginning **batch, bool *busy)
{
    double now = kolo_time();
    lib_core *core = n->core;
    note_finished(n, now);
    KOLO_TRY(fetch(n, now));
    int sends = exchange(n, now, tracks_idle(n->group->named, false));
    KOLO_TRY(sends);
    /* who waits for messages of its node is woken by them; between nodes somebody has to look */
    *busy = sends || (core->root && core->root->readies) || (core->first && !n->group->one_node);
    note_batches(n, now);
    *batch = core->batch;
    return (int)core->batches;
}

/* ---- closing ------------------------------------------------------------------------------------------- */

/* Good-byes, so that no message is expected any more: up the tree when all below have said it, then down. */
static int send_goodbye(lib_negotiator *n)
{
    comm_router *router = n->group->world->router;
    double begin = kolo_time(),
           /* where nothing was ever agreed on, others may not even be there */
        most = n->core->seen ? n->group->world->config.timeout : 10;
    lib_core_end(n->core);
    for (;;) {
        double now = kolo_time();
        KOLO_TRY(comm_router_status(router));
        int sends = exchange(n, now, true);
        KOLO_TRY(sends);
        if (n->core->closed && !sends) return 0;
        if (now > begin + most)
            return kolo_fail(KOLO_ELAUNCH, "comm: group %d ended without an answer of all its members",
                             n->group->id);
        comm_router_rest(router, 1e-3);
    }
}

void lib_negotiator_close(lib_negotiator **out)
{
    if (!*out) return;
    if (comm_router_status((*out)->group->world->router) == 0) send_goodbye(*out);
    negotiator_free(out);
}
