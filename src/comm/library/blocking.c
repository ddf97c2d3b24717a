/* The blocking calls. A small allreduce or barrier of a group on one node is done by its caller where nothing
 * of the group is under way; everything else is a request like any other, whose caller takes the turns. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/thread.h"
#include "comm/library/parts.h"

enum { BY_CALLER_BYTES = 64 << 10 };

/* NULL: not now. Otherwise the track of the request's number is this caller's until it gives it back. */
static lib_track *blocking_claim(kolo_group *g, uint64_t *number, double *began)
{
    lib_track *t = NULL;
    pthread_mutex_lock(&g->world->lock);
    if (g->submitted == g->finished) {
        *began = g->world->timeline ? kolo_time() : 0;
        *number = ++g->submitted;
        t = &g->unnamed->track[*number % LIB_TRACKS];
        t->claimed = true;
    }
    pthread_mutex_unlock(&g->world->lock);
    return t;
}

/* began: 0 where no timeline was written then. */
static void give(kolo_group *g, lib_track *t, const kolo_request *r, double began, int64_t bytes)
{
    pthread_mutex_lock(&g->world->lock);
    if (began > 0)
        lib_timeline_carried(g->world->timeline, comm_collective_name(r->what), NULL, "push", began,
                             kolo_time(), bytes);
    t->claimed = false;
    g->finished++;
    bool more = g->first != NULL;
    pthread_mutex_unlock(&g->world->lock);
    if (more) lib_engine_wake(g->world);
}

/* 1: done. 0: it has to go the common way. */
static int by_caller(kolo_group *g, const kolo_request *request)
{
    uint64_t number;
    double began;
    char fault[LIB_TEXT];
    lib_entry *e;
    const bool barrier = request->what == KOLO_BARRIER;
    if (!g->one_node || g->size == 1 || request->name || (!barrier && request->what != KOLO_ALLREDUCE))
        return 0;
    const kolo_request plain = lib_plain(request), *r = &plain;
    if (!barrier && (!lib_pushes(r) || lib_check(g, r, fault, sizeof fault) || fault[0])) return 0;
    const int64_t count = barrier ? 0 : lib_elements(r, 0),
                  bytes = barrier ? 0 : (int64_t)lib_request_bytes(r);
    if (bytes > BY_CALLER_BYTES || (!barrier && !lib_takes_push(g, r, count))) return 0;
    lib_track *t = blocking_claim(g, &number, &began);
    if (!t) return 0;
    lib_entry probe = {.r = *r, .group = g};
    /* as lib_signature_check's */
    comm_folding how = barrier ? (comm_folding){.type = KOLO_I64} : lib_folding(r, g->size);
    comm_router_report(g->world->router, comm_collective_name(r->what), number);
    int rc = comm_push_start(t->push, lib_input(r), r->out, count, &how, lib_signature(&probe));
    if (rc == 0) rc = comm_push_wait(t->push);
    give(g, t, r, rc == 1 ? began : 0, bytes);
    if (rc != COMM_PUSH_DIFFERS) return rc;
    if ((rc = lib_entry_make(g, r, &e)) == 0) {
        e->sequence = number;
        rc = lib_negotiator_differs(e);
    }
    if (rc < 0) return comm_router_break_by(g->world->router, rc); /* the others wait for this one */
    return lib_wait_and_free(g->world, e, NULL);
}

int lib_do(kolo_group *group, const kolo_request *request, const char *note, const char *fault,
           kolo_output *output)
{
    lib_entry *e;
    KOLO_TRY(lib_check_group(group));
    int rc = note || fault ? 0 : by_caller(group, request);
    if (rc != 0) return rc < 0 ? rc : 0;
    rc = lib_submit(group, request, note, fault, &e);
    /* the others wait for this rank's word */
    if (rc == KOLO_ENOMEM) return comm_router_break_by(group->world->router, rc);
    KOLO_TRY(rc);
    return lib_wait_and_free(group->world, e, output);
}

/* ---- the calls ----------------------------------------------------------------------------------------- */

static kolo_request vector(enum kolo_collective what, const void *in, void *out, int64_t count,
                           enum kolo_dtype type)
{
    return (kolo_request){.what = what, .in = in, .out = out, .type = type, .dims = 1, .dim = {count}};
}

/* receives: elements come to this member. Without an `out` its caller could not get at them: the library's
 * own memory is for submitted requests. */
static int blocking_take(kolo_group *group, const kolo_request *r, bool receives)
{
    return lib_do(group, r, NULL, receives && !r->out ? "there is no memory for the result" : NULL, NULL);
}

int kolo_allreduce(kolo_group *group, const void *in, void *out, int64_t count, enum kolo_dtype type,
                   enum kolo_reduce reduce)
{
    kolo_request r = vector(KOLO_ALLREDUCE, in, out, count, type);
    r.reduce = reduce;
    return blocking_take(group, &r, count > 0);
}

int kolo_reduce_scatter(kolo_group *group, const void *in, void *out, int64_t count, enum kolo_dtype type,
                        enum kolo_reduce reduce)
{
    KOLO_TRY(lib_check_group(group));
    kolo_request r = vector(KOLO_REDUCE_SCATTER, in, out, count, type);
    r.reduce = reduce;
    return blocking_take(group, &r, count > group->rank);
}

/* Where every member knows all counts they are `splits`; a member's own dim[0] follows from them. */
static int gather(kolo_group *group, enum kolo_collective what, const void *in, void *out, int64_t count,
                  const int64_t *counts, enum kolo_dtype type, int root)
{
    KOLO_TRY(lib_check_group(group));
    kolo_request r = vector(what, in, out, counts ? counts[group->rank] : count, type);
    int64_t any = counts ? 0 : count;
    for (int m = 0; counts && m < group->size; m++) any |= counts[m];
    r.splits = counts ? counts : lib_alike;
    r.root = root;
    return blocking_take(group, &r, any && (what == KOLO_ALLGATHER || root == group->rank));
}

int kolo_allgather(kolo_group *group, const void *in, void *out, int64_t count, const int64_t *counts,
                   enum kolo_dtype type)
{
    return gather(group, KOLO_ALLGATHER, in, out, count, counts, type, 0);
}

int kolo_gather(kolo_group *group, const void *in, void *out, int64_t count, const int64_t *counts,
                enum kolo_dtype type, int root)
{
    return gather(group, KOLO_GATHER, in, out, count, counts, type, root);
}

int kolo_broadcast(kolo_group *group, void *data, int64_t count, enum kolo_dtype type, int root)
{
    kolo_request r = vector(KOLO_BROADCAST, NULL, data, count, type);
    r.root = root;
    return blocking_take(group, &r, count > 0);
}

int kolo_scatter(kolo_group *group, const void *in, void *out, int64_t count, const int64_t *counts,
                 enum kolo_dtype type, int root)
{
    KOLO_TRY(lib_check_group(group));
    int64_t total = 0;
    for (int m = 0; m < group->size; m++)
        if (__builtin_add_overflow(total, counts ? counts[m] : count, &total)) total = INT64_MIN;
    kolo_request r = vector(KOLO_SCATTER, in, out, total, type);
    r.splits = counts;
    r.root = root;
    return blocking_take(group, &r, (counts ? counts[group->rank] : count) > 0);
}

static uint64_t weight(int from, int to)
{
    uint64_t w = ((uint64_t)from << 32 | (uint64_t)to) * 0x9e3779b97f4a7c15ull;
    return (w ^ w >> 29) * 0xbf58476d1ce4e5b9ull | 1;
}

/* Which pairs do not agree: the sum over members of what is sent less what is awaited. */
static int name_pairs(kolo_group *g, const int64_t *send, const int64_t *receive)
{
    int members = g->size, me = g->rank, pairs = 0;
    int64_t n = (int64_t)members * members, *all = kolo_alloc((size_t)n * 2 * sizeof *all),
            *awaited = all + n;
    if (!all) return KOLO_ENOMEM;
    for (int m = 0; m < members; m++) {
        all[(int64_t)me * members + m] = send[m];
        awaited[(int64_t)m * members + me] = receive[m];
    }
    int rc = kolo_allreduce(g, NULL, all, 2 * n, KOLO_I64, KOLO_SUM);
    for (int64_t i = n - 1; rc >= 0 && i >= 0; i--) {
        if (all[i] == awaited[i]) continue;
        pairs++;
        kolo_fail(KOLO_EINPUT,
                  "alltoall: rank %d sends %lld elements to rank %d, which awaits %lld (%d such pairs); "
                  "nothing was sent",
                  g->rank_of[i / members], (long long)all[i], g->rank_of[i % members], (long long)awaited[i],
                  pairs);
    }
    free(all);
    return rc < 0 ? rc : KOLO_EINPUT;
}

/* One number says whether all pairs agree: what is sent and what is awaited, each pair with a weight of its
 * own, cancel in the sum. */
int kolo_alltoall(kolo_group *group, const void *in, const int64_t *send, void *out, const int64_t *receive,
                  enum kolo_dtype type)
{
    KOLO_TRY(lib_check_group(group));
    int64_t total = 0, awaited = 0;
    uint64_t sum = 0;
    for (int m = 0; receive && m < group->size; m++) awaited |= receive[m];
    if (!send || !receive || (awaited && !out))
        return lib_agree(group, "alltoall",
                         send && receive ? "there is no memory for the result" : "no counts are given");
    for (int m = 0; m < group->size; m++) {
        total += send[m];
        sum += weight(group->rank, m) * (uint64_t)send[m] - weight(m, group->rank) * (uint64_t)receive[m];
    }
    KOLO_TRY(kolo_allreduce(group, NULL, &sum, 1, KOLO_I64, KOLO_SUM));
    if (sum) return name_pairs(group, send, receive);
    kolo_request r = vector(KOLO_ALLTOALL, in, out, total, type);
    r.splits = send;
    return lib_do(group, &r, NULL, NULL, NULL);
}

int kolo_barrier(kolo_group *group) { return lib_agree(group, NULL, NULL); }

int kolo_join(kolo_group *group, int *last)
{
    kolo_request r = {.what = KOLO_JOIN};
    kolo_output output = {.last = -1};
    KOLO_TRY(lib_do(group, &r, NULL, NULL, &output));
    if (last) *last = output.last;
    return 0;
}

/* ---- objects: bytes whose number only the root knows --------------------------------------------------- */

int kolo_broadcast_object(kolo_group *group, const void *mine, size_t bytes, int root, void **data,
                          size_t *got)
{
    if (data) *data = NULL;
    if (got) *got = 0;
    KOLO_TRY(lib_check_group(group));
    int64_t size = group->rank != root ? 0 : mine || !bytes ? (int64_t)bytes : -1;
    KOLO_TRY(kolo_broadcast(group, &size, 1, KOLO_I64, root));
    if (size < 0)
        return kolo_fail(KOLO_EINPUT, "comm: rank %d, the root, gives no object", group->rank_of[root]);
    char *object = kolo_alloc((size_t)size + 1);
    int64_t bad[2] = {object == NULL, !data || !got};
    int rc = kolo_allreduce(group, NULL, bad, 2, KOLO_I64, KOLO_SUM);
    if (rc == 0 && bad[1])
        rc = kolo_fail(KOLO_EINPUT, "comm: %lld of %d ranks give no place for an object", (long long)bad[1],
                       group->size);
    else if (rc == 0 && bad[0])
        rc = kolo_fail(KOLO_ENOMEM, "comm: %lld of %d ranks have no memory for an object of %lld bytes",
                       (long long)bad[0], group->size, (long long)size);
    if (rc == 0) {
        kolo_request r = vector(KOLO_BROADCAST, group->rank == root ? mine : NULL, object, size, KOLO_U8);
        r.root = root;
        rc = lib_do(group, &r, NULL, NULL, NULL);
    }
    if (rc < 0) {
        free(object);
        return rc;
    }
    *data = object;
    *got = (size_t)size;
    return 0;
}

void kolo_release_object(void **data)
{
    if (!data) return;
    free(*data);
    *data = NULL;
}
