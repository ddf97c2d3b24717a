#include "comm/core/transport/push.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/core/claim.h"
#include "kolo/error.h"

static const double NAP = 0.1; /* seconds between two looks at who is dead */

/* ---- the set ------------------------------------------------------------------------------------------- */

/* Where the first member puts up the set. 0: its tables do not reach so far yet; it makes more of them
 * itself. */
static int find_entry(comm_push *p)
{
    comm_router *router = p->router;
    router_sets *table = &router->control[p->local[0]]->sets;
    int id = p->id;
    for (; id >= ROUTER_SETS; id -= ROUTER_SETS) {
        uint64_t more = atomic_load(&table->more);
        if (!more && p->me > 0) return 0;
        if (!more) {
            KOLO_TRY(heap_take(router, &router->inner, sizeof *table, &more));
            memset(push_at(p, 0, more), 0, sizeof *table);
            atomic_store(&table->more, more);
        }
        table = (router_sets *)(void *)push_at(p, 0, more);
    }
    p->entry = &table->set[id];
    return 1;
}

/* The first member makes the memory and puts it up under the set's id. */
static int put_up(comm_push *p)
{
    comm_router *router = p->router;
    size_t head = sizeof(push_set) + (size_t)p->members * sizeof(push_member),
           bytes = head + (size_t)p->members * 2 * p->copied;
    KOLO_TRY(heap_take(router, &router->inner, bytes, &p->set_at));
    p->set = (push_set *)(void *)push_at(p, 0, p->set_at);
    memset(p->set, 0, head); /* it may have been used before */
    for (int i = 0; i < p->members; i++) p->set->member[i].copies = head + (size_t)i * 2 * p->copied;
    pthread_mutex_lock(&router->sets);
    const int rc = find_entry(p);
    if (rc > 0) atomic_store(p->entry, p->name = p->set_at | router->sets_made++ % PUSH_PAGE);
    pthread_mutex_unlock(&router->sets);
    if (rc < 0) heap_give(&router->inner, p->set_at);
    return rc < 0 ? rc : 0;
}

static bool push_find(comm_push *p)
{
    p->name = find_entry(p) > 0 ? atomic_load(p->entry) : 0;
    p->set = (push_set *)(void *)push_at(p, 0, p->name / PUSH_PAGE * PUSH_PAGE);
    return p->name != 0;
}

/* Waits for the others while the set is opened or closed. */
static int await(comm_push *p, bool (*there)(comm_push *p), int rank)
{
    double begin = kolo_time();
    for (int i = 0; !there(p); i++) {
        if (i > 100) usleep(100);
        else sched_yield();
        KOLO_TRY(router_check(p->router));
        KOLO_TRY(router_check_peers(p->router));
        if (router_since(p->router, kolo_time(), begin) > p->router->config.timeout)
            return router_failure_report(p->router, rank, "did not come to open or close a group", NULL);
    }
    return 0;
}

static bool all_opened(comm_push *p) { return atomic_load(&p->set->opened) == (uint32_t)p->members; }
static bool all_closed(comm_push *p) { return atomic_load(&p->set->closed) == (uint32_t)p->members; }
/* The first member has taken the name down: it may be used again. */
static bool is_gone(comm_push *p) { return atomic_load(p->entry) != p->name; }

static void take_down(comm_push *p)
{
    atomic_store(p->entry, 0);
    heap_give(&p->router->inner, p->set_at);
}

static int members_of(comm_push *p, const int *rank)
{
    const comm_router *router = p->router;
    p->me = -1;
    for (int i = 0; i < p->members; i++) {
        p->local[i] = rank[i] >= 0 && rank[i] < router->launch->size ? router_local(router, rank[i]) : -1;
        if (p->local[i] < 0 || (i > 0 && rank[i] <= rank[i - 1]))
            return kolo_fail(KOLO_EINTERNAL, "comm: rank %d cannot push with rank %d", router->launch->rank,
                             rank[i]);
        if (rank[i] == router->launch->rank) p->me = i;
    }
    return p->me >= 0 ? 0 : kolo_fail(KOLO_EINTERNAL, "comm: rank %d is no member", router->launch->rank);
}

/* A list as "0-7,16-23"; the lowest CPU, and whether every CPU of `wanted` is in it. */
static bool covers(const char *list, const cpu_set_t *wanted, int *lowest)
{
    int found = 0;
    *lowest = (int)strtol(list, NULL, 10);
    for (const char *at = list; *at >= '0' && *at <= '9'; at += *at == ',') {
        char *end;
        const long from = strtol(at, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
        for (long cpu = from; cpu <= to && cpu < CPU_SETSIZE; cpu++) found += CPU_ISSET(cpu, wanted) != 0;
        at = end;
    }
    return found == CPU_COUNT(wanted);
}

/* The last-level cache of the CPUs that this thread may use: 1 + the lowest CPU that shares it; 0: they have
 * several, or it is not known. */
static uint32_t find_cache(void)
{
    enum { LEVELS = 8 };
    cpu_set_t mine;
    char path[96], list[4096];
    int cpu = 0, lowest = -1;
    if (sched_getaffinity(0, sizeof mine, &mine) != 0) return 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &mine)) cpu++;
    for (int index = LEVELS - 1; index >= 0 && lowest < 0; index--) { /* the largest cache is listed last */
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cache/index%d/shared_cpu_list", cpu,
                 index);
        FILE *file = fopen(path, "re");
        if (!file) continue;
        if (!fgets(list, sizeof list, file) || !covers(list, &mine, &lowest)) lowest = -1, index = 0;
        fclose(file);
    }
    return (uint32_t)(lowest + 1);
}

static void push_free(comm_push **out)
{
    comm_push *p = *out;
    free(p->local);
    free(p->source);
    free(p->target);
    free(p);
    *out = NULL;
}

int comm_push_make(comm_push **out, comm_router *router, int id, const int *rank, int members)
{
    int rc;
    comm_push *p = *out = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->router = router;
    p->id = id;
    p->members = members;
    /* all fold all: the more they are, the sooner it is dear */
    p->copied = kolo_round_up(PUSH_COPIED / (size_t)members, 4096);
    if (p->copied > PUSH_COPIED / 2) p->copied = PUSH_COPIED / 2;
    p->local = kolo_alloc((size_t)members * sizeof *p->local);
    p->source = kolo_alloc((size_t)members * sizeof *p->source);
    p->target = kolo_alloc((size_t)(members + 1) * sizeof *p->target);
    if (!p->local || !p->source || !p->target) KOLO_TRY_GOTO(rc, KOLO_ENOMEM);
    KOLO_TRY_GOTO(rc, members_of(p, rank));
    if (p->me == 0) KOLO_TRY_GOTO(rc, put_up(p));
    return 0;
fail:
    push_free(out);
    return rc;
}

int comm_push_join(comm_push *p)
{
    const int *rank_of = p->router->rank_of;
    if (p->me > 0) KOLO_TRY(await(p, push_find, rank_of[p->local[0]]));
    p->set->member[p->me].cache = find_cache();
    atomic_fetch_add(&p->set->opened, 1);
    p->joined = true;
    KOLO_TRY(await(p, all_opened, rank_of[p->local[p->me == p->members - 1 ? 0 : p->members - 1]]));
    for (int i = 0; i < p->members; i++) {
        const uint32_t cache = p->set->member[i].cache;
        p->apart |= cache == 0 || cache != p->set->member[0].cache;
    }
    return 0;
}

int comm_push_open(comm_push **out, comm_router *router, int id, const int *rank, int members)
{
    int rc = comm_push_make(out, router, id, rank, members);
    if (rc < 0) return comm_router_break_by(router, rc); /* the others wait */
    rc = comm_push_join(*out);
    if (rc < 0) comm_push_close(out);
    return rc;
}

/* A rank that has joined waits until all have closed, so that the memory and the name may be used again. */
static void part(comm_push *p)
{
    const int *rank_of = p->router->rank_of;
    uint64_t stage = atomic_load(&p->set->member[p->me].stage);
    atomic_fetch_add(&p->set->closed, 1);
    if (p->me > 0) await(p, is_gone, rank_of[p->local[0]]);
    else if (await(p, all_closed, rank_of[p->local[p->members - 1]]) == 0) take_down(p);
    if (stage) heap_give(&p->router->inner, stage);
}

void comm_push_close(comm_push **out)
{
    comm_push *p = *out;
    if (!p) return;
    if (p->joined) part(p);
    else if (p->me == 0) take_down(p);
    push_free(out);
}

void push_publish(comm_push *p)
{
    router_fence(); /* either we see that somebody wants to be woken, or it sees what we did */
    for (int i = 0; i < p->members; i++)
        if (i != p->me && atomic_load_explicit(&p->set->member[i].wants, memory_order_relaxed))
            router_ring(p->router, p->local[i]);
}

/* ---- a round ------------------------------------------------------------------------------------------- */

static int64_t part_of_block(const comm_push *p, int member) { return p->blocks * member / p->members; }

static void begin_direct(comm_push *p)
{
    int64_t grain = (int64_t)(4096 / p->width), most = (int64_t)(PUSH_BLOCK / p->width);
    p->block = (p->count + p->members - 1) / p->members;
    p->block = p->block > most ? most : (p->block + grain - 1) / grain * grain;
    p->blocks = (p->count + p->block - 1) / p->block;
    p->finished += (uint64_t)p->blocks;
}

/* -1: nothing is left of this slice. */
static int64_t push_claim(comm_push *p, int member)
{
    const int64_t first = part_of_block(p, member), blocks = part_of_block(p, member + 1) - first,
                  block = comm_claim(&p->set->member[member].claimed, p->round, blocks);
    return block < 0 ? block : first + block;
}

static void fold_block(comm_push *p, int64_t block)
{
    int64_t from = block * p->block, count = p->count - from < p->block ? p->count - from : p->block;
    size_t at = (size_t)from * p->width;
    for (int i = 0; i < p->members; i++) {
        const push_line *line = push_line_of(p, i);
        p->source[i] = i == p->me ? p->in + at : push_at(p, i, line->in) + at;
        p->target[i] = i == p->me ? p->out + at : push_at(p, i, line->out) + at;
    }
    comm_fold(&p->how, p->target, p->members, p->source, p->members, count);
}

static int step_direct(comm_push *p)
{
    if (atomic_load_explicit(&p->set->done, memory_order_acquire) == p->round) return PUSH_COMPLETE;
    for (int i = 0; i < p->members; i++) {
        int64_t block = push_claim(p, (p->me + i) % p->members);
        if (block < 0) continue;
        fold_block(p, block);
        if (atomic_fetch_add(&p->set->finished, 1) + 1 == p->finished) {
            atomic_store(&p->set->done, p->round);
            push_publish(p);
        }
        return PUSH_WORKED;
    }
    return PUSH_IDLE;
}

static const char *bytes_of(const comm_push *p, int member)
{
    if (member == p->me) return p->in;
    const push_line *line = push_line_of(p, member);
    return (size_t)p->count * p->width <= PUSH_INLINE ? line->bytes : push_copy(p, member);
}

static void fold_small(comm_push *p)
{
    void *out = p->out;
    for (int i = 0; i < p->members; i++) p->source[i] = bytes_of(p, i);
    if (p->count) comm_fold(&p->how, &out, 1, p->source, p->members, p->count);
}

/* All lines stand and agree: which way? */
static void push_begin(comm_push *p)
{
    bool direct = true, copied = (size_t)p->count * p->width <= p->copied;
    p->poor = false;
    for (int i = 0; i < p->members; i++) {
        const push_line *line = push_line_of(p, i);
        direct = direct && line->in_shared && line->out_shared;
        copied = copied && !line->in_shared;
        p->poor |= line->poor;
    }
    p->way = copied ? PUSH_SMALLEST : direct ? PUSH_DIRECT : PUSH_STAGED;
    if (p->way == PUSH_DIRECT) begin_direct(p);
    if (p->way == PUSH_STAGED) push_staged_begin(p);
}

/* All lines stand, and all bring the same; or not. */
static int meet(comm_push *p)
{
    for (; p->seen < p->members; p->seen++)
        if (atomic_load_explicit(&push_line_of(p, p->seen)->round, memory_order_acquire) != p->round)
            return PUSH_IDLE;
    const push_line *a = push_line_of(p, 0);
    for (int i = 1; i < p->members; i++) {
        const push_line *b = push_line_of(p, i);
        if (a->signature != b->signature || a->count != b->count || a->width != b->width)
            return COMM_PUSH_DIFFERS;
    }
    push_begin(p);
    return PUSH_WORKED;
}

static void put_line(comm_push *p, uint64_t signature)
{
    push_line *line = push_line_of(p, p->me);
    size_t bytes = (size_t)p->count * p->width, at = 0;
    line->width = (uint8_t)p->width;
    line->count = p->count;
    line->signature = signature;
    line->in_shared = bytes > PUSH_SMALL && comm_router_shared(p->router, p->in, bytes, &at);
    line->in = at;
    line->out_shared = bytes > PUSH_SMALL && comm_router_shared(p->router, p->out, bytes, &at);
    line->out = at;
    /* where all lie in shared memory nobody stages */
    const bool staged = bytes > p->copied && !(line->in_shared && line->out_shared);
    line->poor = staged ? !push_staged_ready(p)
                        : atomic_load_explicit(&p->set->member[p->me].stage, memory_order_relaxed) == 0;
    if (bytes > 0 && bytes <= PUSH_INLINE) memcpy(line->bytes, p->in, bytes);
    else if (bytes > 0 && bytes <= PUSH_CACHED) memcpy(push_copy(p, p->me), p->in, bytes);
    else if (bytes > 0 && bytes <= p->copied && !line->in_shared)
        push_stream(p, push_copy(p, p->me), p->in, bytes);
    atomic_store_explicit(&line->round, p->round, memory_order_release);
}

int comm_push_start(comm_push *p, const void *in, void *out, int64_t count, const comm_folding *how,
                    uint64_t signature)
{
    KOLO_TRY(router_check(p->router));
    if (p->way != PUSH_NONE) return kolo_fail(KOLO_EINTERNAL, "comm: a push began before the last one's end");
    if (count < 0 || !kolo_dtype_size(how->type) || !comm_combine_of(how->type, how->op))
        return kolo_fail(KOLO_EINTERNAL, "comm: a push of %lld elements of type %d with operation %d",
                         (long long)count, (int)how->type, (int)how->op);
    p->how = *how;
    p->round++;
    p->in = in;
    p->out = out;
    p->count = count;
    p->width = kolo_dtype_size(how->type);
    p->seen = p->polls = 0;
    p->moved_at = 0;
    p->way = PUSH_MEETING;
    put_line(p, signature);
    /* the last to come wakes those that sleep: the others would wake them for nothing */
    /* rounds wrap */
    if ((uint32_t)atomic_fetch_add(&p->set->arrived, 1) + 1 == (uint32_t)p->members * p->round)
        push_publish(p);
    return 0;
}

static int step(comm_push *p)
{
    switch (p->way) {
    case PUSH_MEETING: return meet(p);
    case PUSH_SMALLEST: fold_small(p); return PUSH_COMPLETE;
    case PUSH_DIRECT: return step_direct(p);
    case PUSH_STAGED: return push_staged_step(p);
    case PUSH_NONE: break;
    }
    return kolo_fail(KOLO_EINTERNAL, "comm: no push is under way");
}

/* As step, but a small vector in one go. */
static int poll(comm_push *p)
{
    int rc = step(p);
    if (rc == PUSH_WORKED && p->way == PUSH_SMALLEST) rc = step(p);
    if (rc == PUSH_COMPLETE || rc == COMM_PUSH_DIFFERS) {
        p->way = PUSH_NONE;
        if (p->polls > 0) atomic_store_explicit(&p->set->member[p->me].wants, 0, memory_order_relaxed);
    }
    return rc;
}

/* ---- waiting ------------------------------------------------------------------------------------------- */

/* The member furthest behind. */
static int latest(const comm_push *p)
{
    int last = p->me;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < p->members; i++) {
        const push_member *m = &p->set->member[i];
        uint64_t came = atomic_load(&m->line[p->round & 1].round) != p->round
                            ? 0
                            : 1 + atomic_load(&m->copied) + atomic_load(&m->folded) + atomic_load(&m->taken);
        if (i == p->me || came >= least) continue;
        least = came;
        last = i;
    }
    return last;
}

static int push_look(comm_push *p)
{
    comm_router *router = p->router;
    KOLO_TRY(router_check(router));
    KOLO_TRY(router_check_peers(router));
    int late = latest(p), rank = router->rank_of[p->local[late]];
    double waited = router_since(router, kolo_time(), p->moved_at);
    if (atomic_load(&router->life[p->local[late]]->head.departed)) {
        const int rc = poll(p); /* what it did before it left can be seen now */
        return rc == PUSH_IDLE ? router_report_failed(router, rank, "left before the end") : rc;
    }
    return waited < router->config.timeout ? 0 : router_report_late(router, rank, waited);
}

static int sleep_once(comm_push *p)
{
    comm_life *own = p->router->life[p->router->me];
    push_member *mine = &p->set->member[p->me];
    uint32_t bell = atomic_load(&own->doorbell);
    atomic_fetch_add(&own->asleep, 1);
    atomic_store(&mine->wants, 1);
    router_fence();
    int rc = poll(p);
    if (rc == PUSH_IDLE && !kolo_futex_wait(&own->doorbell, bell, NAP, 0)) rc = push_look(p);
    atomic_fetch_sub(&own->asleep, 1);
    atomic_store_explicit(&mine->wants, 0, memory_order_relaxed);
    return rc;
}

enum { AT_ONCE = 8, LOOK_EVERY = 64 }; /* blocks or pieces of one poll; idle polls */

int comm_push_poll(comm_push *p)
{
    int rc = PUSH_WORKED, done = 0;
    while (rc == PUSH_WORKED && done++ < AT_ONCE) rc = poll(p);
    if (rc == PUSH_IDLE && (done > 1 || p->moved_at == 0)) p->moved_at = kolo_time();
    else if (rc == PUSH_IDLE && p->polls % LOOK_EVERY == LOOK_EVERY - 1) rc = push_look(p);
    if (rc == PUSH_IDLE) KOLO_TRY(router_check(p->router));
    if (rc == PUSH_IDLE && p->polls++ == 0) {
        atomic_store(&p->set->member[p->me].wants, 1);
        router_fence(); /* the caller may sleep before it polls again */
        rc = poll(p);   /* what was done before they knew */
    }
    if (rc != PUSH_WORKED) return rc;
    atomic_store_explicit(&p->router->restless, true, memory_order_relaxed); /* there may be more to do */
    return PUSH_IDLE;
}

int comm_push_wait(comm_push *p)
{
    int spin = p->router->spin;
    p->moved_at = kolo_time();
    for (int i = 0;;) {
        int rc = poll(p);
        if (rc == PUSH_IDLE && i++ < spin) {
            kolo_pause();
            continue;
        }
        if (rc == PUSH_IDLE) {
            rc = sleep_once(p);
            if (rc == PUSH_WORKED) p->moved_at = kolo_time();
        }
        if (rc == PUSH_WORKED) i = 0;
        else if (rc != PUSH_IDLE) return rc;
    }
}
