/* Submitting: a request becomes an entry of its group's queue, or of its group's negotiator. */
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/parts.h"

int lib_check_group(const kolo_group *group)
{
    if (!group) return kolo_fail(KOLO_EINPUT, "comm: no group is given");
    if (group->rank < 0)
        return kolo_fail(KOLO_EINPUT,
                         "comm: rank %d is no member of group %d (%d ranks): it may only free it",
                         group->world->launch->rank, group->id, group->size);
    return lib_broken(group->world) ? kolo_error_status() : 0;
}

kolo_request lib_plain(const kolo_request *request)
{
    kolo_request r = *request;
    if (r.prescale == 0) r.prescale = 1;
    if (r.postscale == 0) r.postscale = 1;
    if (r.compression && (!*r.compression || strcmp(r.compression, "none") == 0)) r.compression = NULL;
    return r;
}

const int64_t lib_alike[1];

/* An entry that holds the request; faults are kept in it. world->lock is held. */
static int submit_fill(kolo_group *group, const kolo_request *request, lib_entry **out)
{
    char fault[LIB_TEXT];
    lib_entry *e;
    KOLO_TRY(lib_entry_take(group->world, &e));
    e->group = group;
    kolo_request r = lib_plain(request);
    for (int m = 0; r.splits == lib_alike && m < group->size; m++) group->counts[m] = r.dim[0];
    if (r.splits == lib_alike) r.splits = group->counts;
    e->gpu = lib_check(group, &r, fault, sizeof fault);
    bool wrong = fault[0] != 0;
    if (wrong) r.splits = r.index = NULL;
    int rc = lib_entry_keep(e, &r, group->size);
    if (rc == 0 && wrong && !(e->fault = kolo_strdup(fault))) rc = KOLO_ENOMEM;
    if (rc < 0) lib_entry_free(group->world, e);
    *out = e;
    return rc;
}

/* world->lock is held. */
static int hand_on(lib_entry *entry)
{
    kolo_group *g = entry->group;
    if (lib_is_negotiated(&entry->r)) return lib_negotiator_add(g->negotiator, &entry, 1);
    entry->sequence = ++g->submitted;
    if (g->last) g->last->next = entry;
    else g->first = entry;
    g->last = entry;
    return 0;
}

int lib_entry_make(kolo_group *group, const kolo_request *request, lib_entry **out)
{
    pthread_mutex_lock(&group->world->lock);
    int rc = submit_fill(group, request, out);
    pthread_mutex_unlock(&group->world->lock);
    return rc;
}

int lib_agree(kolo_group *group, const char *note, const char *fault)
{
    const kolo_request barrier = {.what = KOLO_BARRIER};
    return lib_do(group, &barrier, note, fault, NULL);
}

/* As lib_submit, of a group that was checked. world->lock is held. */
static int begin(kolo_group *group, const kolo_request *request, const char *note, const char *fault,
                 lib_entry **out)
{
    int rc = 0;
    KOLO_TRY(submit_fill(group, request, out));
    lib_entry *e = *out;
    /* without its note it would say something else */
    if (note && !(e->note = kolo_strdup(note))) rc = KOLO_ENOMEM;
    if (fault && fault[0] && !e->fault && !(e->fault = kolo_strdup(fault))) rc = KOLO_ENOMEM;
    if (rc == 0) rc = hand_on(e);
    if (rc < 0) lib_entry_free(group->world, e);
    return rc;
}

int lib_submit(kolo_group *group, const kolo_request *request, const char *note, const char *fault,
               lib_entry **out)
{
    KOLO_TRY(lib_check_group(group));
    pthread_mutex_lock(&group->world->lock);
    const int rc = begin(group, request, note, fault, out);
    pthread_mutex_unlock(&group->world->lock);
    return rc;
}

int lib_agree_within(kolo_group *group, const char *note, double seconds, const char *otherwise)
{
    const kolo_request barrier = {.what = KOLO_BARRIER};
    lib_entry *e;
    KOLO_TRY(lib_submit(group, &barrier, note, NULL, &e));
    lib_engine_wake(group->world);
    for (const double end = kolo_time() + seconds; atomic_load(&e->state) != LIB_DONE && kolo_time() < end;)
        usleep(1000);
    if (atomic_load(&e->state) != LIB_DONE) kolo_world_abort(group->world, otherwise);
    return lib_wait_and_free(group->world, e, NULL);
}

static bool has_result(const kolo_request *r) { return r->what != KOLO_BARRIER; }

int kolo_submit(kolo_group *group, const kolo_request *request, kolo_handle *handle)
{
    lib_entry *e;
    KOLO_TRY(lib_check_group(group));
    if (!request) return kolo_fail(KOLO_EINPUT, "comm: no request is given");
    if (!handle && has_result(request))
        return kolo_fail(KOLO_EINPUT, "comm: a request with a result needs a handle");
    kolo_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    const int rc = begin(group, request, NULL, NULL, &e);
    if (rc == 0) e->detached = !handle;
    if (rc == 0 && handle) *handle = lib_entry_handle(e);
    pthread_mutex_unlock(&world->lock);
    if (rc == 0) lib_engine_wake(world);
    return rc;
}

/* The entries of a bundle, taken or given back together. world->lock is held. */
static int fill_grouped(kolo_group *group, const kolo_request *request, int count)
{
    kolo_world *world = group->world;
    KOLO_TRY(kolo_grow(&world->bundle, &world->bundle_room, count, sizeof *world->bundle));
    lib_entry **entry = world->bundle;
    for (int i = 0; i < count; i++) {
        int rc = submit_fill(group, &request[i], &entry[i]);
        while (rc < 0 && --i >= 0) lib_entry_free(group->world, entry[i]);
        KOLO_TRY(rc);
        entry[i]->bundle_size = count;
    }
    int rc = lib_negotiator_add(group->negotiator, entry, count);
    for (int i = 0; rc < 0 && i < count; i++) lib_entry_free(group->world, entry[i]);
    return rc;
}

int kolo_submit_grouped(kolo_group *group, const kolo_request *request, int count, kolo_handle *handle)
{
    KOLO_TRY(lib_check_group(group));
    if (count < 1 || !handle || !request)
        return kolo_fail(KOLO_EINPUT, "comm: %d grouped requests, %s; handles %s", request ? count : 0,
                         request ? "given" : "not given", handle ? "given" : "not given");
    for (int i = 0; i < count; i++) {
        if (!request[i].name)
            return kolo_fail(KOLO_EINPUT, "comm: grouped request %d of %d has no name", i, count);
        if (request[i].what != request[0].what || !lib_is(request[i].what, LIB_FUSES))
            return kolo_fail(
                KOLO_EINPUT,
                "comm: grouped requests are all allreduces, all allgathers, all reduce_scatters or all "
                "broadcasts (\"%s\" is another)",
                request[i].name);
    }
    kolo_world *world = group->world;
    pthread_mutex_lock(&world->lock);
    int rc = fill_grouped(group, request, count);
    for (int i = 0; rc == 0 && i < count; i++) handle[i] = lib_entry_handle(world->bundle[i]);
    pthread_mutex_unlock(&world->lock);
    if (rc == 0) lib_engine_wake(world);
    return rc;
}
