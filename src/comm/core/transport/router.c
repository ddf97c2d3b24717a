#include "comm/core/transport/router.h"

#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "comm/core/transport/framing.h"
#include "kolo/error.h"

/* ---- lanes --------------------------------------------------------------------------------------------- */

int comm_router_lane_make(comm_router *router, int64_t requests, void **out)
{
    router_lane *lane = kolo_alloc(sizeof *lane);
    if (!lane) return KOLO_ENOMEM;
    *lane = (router_lane){.router = router, .capacity = requests};
    lane->request = kolo_alloc((size_t)(requests + 1) * sizeof *lane->request);
    if (!lane->request) {
        free(lane);
        return KOLO_ENOMEM;
    }
    pthread_mutex_lock(&router->turn);
    lane->next = router->lanes;
    router->lanes = lane;
    pthread_mutex_unlock(&router->turn);
    *out = lane;
    return 0;
}

/* Only when the job is failing is there something to drop; *busy: MPI may still use some of it. */
static void drop(router_lane *lane, bool *busy)
{
    for (int64_t i = lane->first; i < lane->posted; i++) {
        router_request *r = &lane->request[i], *before = NULL;
        if (r->by_mpi && !mpi_cancel(r)) *busy = true;
        if (!r->in) continue;
        for (router_request *at = r->in->first; at != r; at = at->next) before = at;
        queue_cut(r->in, before, r);
    }
}

void comm_router_give_up(comm_router *router)
{
    bool busy = false;
    pthread_mutex_lock(&router->turn);
    for (router_lane *lane = router->lanes; lane; lane = lane->next) drop(lane, &busy);
    pthread_mutex_unlock(&router->turn);
}

void comm_router_lane_free(void **out, bool *busy)
{
    router_lane *lane = *out;
    if (!lane) return;
    comm_router *router = lane->router;
    pthread_mutex_lock(&router->turn);
    drop(lane, busy);
    router->mpi_busy |= *busy;
    for (router_lane **at = &router->lanes; *at; at = &(*at)->next)
        if (*at == lane) {
            *at = lane->next;
            break;
        }
    pthread_mutex_unlock(&router->turn);
    free(lane->request);
    free(lane);
    *out = NULL;
}

void comm_router_lane_reset(void *of)
{
    router_lane *lane = of;
    pthread_mutex_lock(&lane->router->turn); /* who rests looks at all lanes */
    lane->posted = lane->first = 0;
    pthread_mutex_unlock(&lane->router->turn);
}

/* A rank to itself: one copy, as soon as both ends are posted. */
static int self_post(comm_router *router, router_request *r)
{
    router_request *other = queue_take_tag(r->sends ? &router->to_self : &router->from_self, r->tag);
    if (!other) {
        queue_put(r->sends ? &router->from_self : &router->to_self, r);
        return 0;
    }
    if (other->bytes != r->bytes)
        return kolo_fail(KOLO_EINTERNAL, "comm: rank %d sends itself %zu bytes where %zu are expected",
                         r->rank, r->sends ? r->bytes : other->bytes, r->sends ? other->bytes : r->bytes);
    if (r->bytes) memmove(r->sends ? other->data : r->data, r->sends ? r->data : other->data, r->bytes);
    r->complete = other->complete = true;
    router_moved(router, r);
    return 0;
}

/* By the means that fits the peer. */
static int router_post(comm_router *router, router_request *r)
{
    const int local = router_local(router, r->rank);
    if (r->rank == router->launch->rank) return self_post(router, r);
    if (local >= 0) return channel_post(router, local, r);
    return router->mpi ? mpi_post(router->mpi, r) : lines_post(router, r);
}

static int lane_post(void *of, bool sends, int rank, int tag, void *data, size_t bytes)
{
    router_lane *lane = of;
    int rc;
    pthread_mutex_lock(&lane->router->turn);
    if (lane->posted >= lane->capacity) {
        rc = kolo_fail(KOLO_EINTERNAL, "comm: more messages than the schedule declared");
    } else {
        router_request *r = &lane->request[lane->posted++];
        *r = (router_request){
            .lane = lane, .rank = rank, .tag = tag, .data = data, .bytes = bytes, .sends = sends};
        if (lane->first == lane->posted - 1) lane->moved_at = kolo_time();
        rc = router_post(lane->router, r);
    }
    pthread_mutex_unlock(&lane->router->turn);
    return rc;
}

static int advance(router_lane *lane, int64_t serial)
{
    while (lane->first <= serial) {
        router_request *r = &lane->request[lane->first];
        int rc = r->by_mpi && !r->complete ? mpi_done(r) : r->complete;
        if (rc <= 0) return rc;
        lane->first++;
        router_moved(lane->router, r);
    }
    return 1;
}

static int done(void *of, int64_t serial)
{
    router_lane *lane = of;
    pthread_mutex_lock(&lane->router->turn);
    int rc = advance(lane, serial);
    if (rc == 0) {
        rc = router_turn(lane->router);
        if (rc == 0) rc = advance(lane, serial);
    }
    pthread_mutex_unlock(&lane->router->turn);
    return rc;
}

const comm_transport comm_routed = {lane_post, done};

int comm_router_lane_lagging(const void *of)
{
    const router_lane *lane = of;
    int64_t i = lane->first;
    while (i < lane->posted && lane->request[i].complete) i++;
    return i < lane->posted ? lane->request[i].rank : -1;
}

void comm_router_no_timeout(void *of)
{
    router_lane *lane = of;
    pthread_mutex_lock(&lane->router->turn);
    lane->no_timeout = true;
    pthread_mutex_unlock(&lane->router->turn);
}

int router_turn(comm_router *router)
{
    router->now = kolo_time();
    if (router->control) KOLO_TRY(channel_turn(router));
    KOLO_TRY(lines_turn(router));
    return router_watch(router);
}

/* ---- opening ------------------------------------------------------------------------------------------- */

enum { RING_MOST = 1 << 18, RING_LEAST = 1 << 15, RINGS = 16 << 20, SETS = 1 << 30 };

static const char SEGMENTS[] = "-r";

void comm_router_forget(const kolo_launch *launch) { comm_segments_forget(launch, SEGMENTS); }

/* What can be done without the others: memory of this process. */
static int describe_segments(comm_router *router)
{
    const kolo_launch *l = router->launch;
    size_t head = kolo_round_up(router_small_ring(router->ranks), 4096);
    for (router->ring_bytes = RING_MOST; router->ring_bytes > RING_LEAST; router->ring_bytes /= 2)
        if (router->ring_bytes * (size_t)router->ranks <= RINGS) break;
    size_t inner = (size_t)router->ranks * (router->ring_bytes + 4096) + SETS;
    size_t shared = kolo_round_up(router->config.shared_bytes, 4096);
    router->own =
        (comm_segments){.launch = l,
                        .kind = SEGMENTS,
                        .me = router->me,
                        .ranks = router->ranks,
                        .rank_of = router->rank_of,
                        .timeout = router->config.within > 0 ? router->config.within : router->config.timeout,
                        .bytes = head + inner + shared,
                        .head = head,
                        .used = head};
    router->control = kolo_alloc((size_t)router->ranks * sizeof(router_control *));
    if (!router->control) return KOLO_ENOMEM;
    KOLO_TRY(heap_open(&router->inner, head, inner));
    return heap_open(&router->heap, head + inner, shared);
}

static int open_own_segments(comm_router *router)
{
    KOLO_TRY(comm_segments_open(&router->own));
    for (int i = 0; i < router->ranks; i++)
        router->control[i] = (router_control *)(void *)router->own.base[i];
    router->spin = comm_segments_spin(&router->own);
    router->crowded = router->spin < 100;
    return 0;
}

static int open_segments(comm_router *router)
{
    if (!router->config.segments) KOLO_TRY(open_own_segments(router));
    router->segments = router->config.segments ? router->config.segments : &router->own;
    for (int i = 0; i < router->ranks; i++) router->life[i] = (comm_life *)(void *)router->segments->base[i];
    atomic_store(&router->life[router->me]->waits_for, -1);
    return 0;
}

static int find_node(comm_router *router)
{
    const kolo_launch *l = router->launch;
    router->me = l->local_rank;
    router->ranks = l->local_size;
    if (router->ranks > ROUTER_MAX_LOCAL)
        return kolo_fail(KOLO_ECONFIG, "comm: %d ranks on host %s; at most %d are served", router->ranks,
                         l->host, ROUTER_MAX_LOCAL);
    router->rank_of = kolo_alloc((size_t)router->ranks * sizeof *router->rank_of);
    router->life = kolo_alloc((size_t)router->ranks * sizeof(comm_life *));
    if (!router->rank_of || !router->life) return KOLO_ENOMEM;
    for (int r = 0; r < l->size; r++)
        if (l->node_of[r] == l->node) router->rank_of[l->local_of[r]] = r;
    return 0;
}

int comm_router_between(const kolo_launch *launch, const char *name, bool *mpi)
{
    bool any = !name || !*name || strcmp(name, "auto") == 0;
    *mpi = launch->nodes > 1 && (any ? launch->mpi : strcmp(name, "mpi") == 0);
    if (any || strcmp(name, "mpi") == 0 || strcmp(name, "tcp") == 0) return 0;
    return kolo_fail(KOLO_ECONFIG, "comm: transport \"%s\" is not known; use auto, mpi or tcp", name);
}

static int prepare(comm_router *router)
{
    KOLO_TRY(find_node(router));
    if (!router->config.segments) KOLO_TRY(describe_segments(router));
    return channel_open(router);
}

static int open_all(comm_router *router)
{
    bool mpi;
    KOLO_TRY(comm_router_between(router->launch, router->config.between, &mpi));
    int rc = router->config.status < 0 ? router->config.status : open_segments(router);
    if (mpi) KOLO_TRY(rc = mpi_open(router->launch, rc, &router->mpi));
    if (router->launch->nodes > 1) rc = lines_open(router, rc);
    KOLO_TRY(rc);
    return router_pulse_start(router);
}

int comm_router_make(comm_router **out, kolo_launch *launch, const comm_router_config *config)
{
    comm_router *router = kolo_alloc(sizeof *router);
    if (!router) return KOLO_ENOMEM;
    router->launch = launch;
    router->config = *config;
    if (!(router->config.timeout > 0)) router->config.timeout = 300;
    if (!(router->config.heartbeat_timeout > 0)) router->config.heartbeat_timeout = 8;
    if (router->config.heartbeat_timeout > router->config.timeout)
        router->config.heartbeat_timeout = router->config.timeout;
    const double now = kolo_time();
    router->now = now;
    router->turned_at = now;
    router->stood_up_at = now;
    pthread_mutex_init(&router->turn, NULL);
    pthread_mutex_init(&router->look, NULL);
    pthread_mutex_init(&router->sets, NULL);
    int rc = prepare(router);
    if (rc < 0) comm_router_close(&router, false);
    *out = router;
    return rc;
}

int comm_router_join(comm_router **router)
{
    const int rc = open_all(*router);
    if (rc < 0) comm_router_close(router, false);
    return rc;
}

int comm_router_open(comm_router **out, kolo_launch *launch, const comm_router_config *config)
{
    KOLO_TRY(comm_router_make(out, launch, config));
    return comm_router_join(out);
}

void comm_router_close(comm_router **out, bool orderly)
{
    comm_router *router = *out;
    if (!router) return;
    kolo_failure before;
    kolo_error_keep(&before);
    /* its heartbeat ends here */
    if (router->segments) atomic_store(&router->life[router->me]->head.departed, 1);
    router_pulse_stop(router);
    lines_close(router, orderly);
    channel_close(router);
    mpi_close(&router->mpi, orderly);
    if (!router->config.segments) comm_segments_close(&router->own, !orderly && router->mpi_busy);
    heap_close(&router->inner);
    heap_close(&router->heap);
    pthread_mutex_destroy(&router->turn);
    pthread_mutex_destroy(&router->look);
    pthread_mutex_destroy(&router->sets);
    free(router->rank_of);
    free(router->control);
    free(router->life);
    free(router);
    *out = NULL;
    kolo_error_restore(&before, before.status);
}
