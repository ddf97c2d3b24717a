/* What is said when the world breaks: who kept it from going on, how, and how far each rank came. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/core/rank_list.h"
#include "comm/core/transport/lines.h"

static const double CLAIM = 3; /* seconds that a rank of this node has to ask the other nodes */
enum { HOW = 256, LIST = 600, SAID = 128 };

void comm_router_describe(comm_router *router, int rank, char *text, size_t bytes)
{
    comm_position position;
    int pid;
    router_position(router, rank, &position, &pid);
    snprintf(text, bytes, "rank %d on host %s", rank, kolo_launch_host(router->launch, rank));
    if (pid) kolo_append(text, bytes, " (pid %d)", pid);
    if (position.age >= 0)
        kolo_append(text, bytes, ", which began %s number %llu %.1f s ago", position.operation,
                    (unsigned long long)position.sequence, position.age);
    else kolo_append(text, bytes, ", of which no operation is known");
}

/* "allreduce number 12", "nothing yet", "no word" */
static void say(const comm_router *router, int rank, const comm_position *said, char *text)
{
    comm_position position;
    int pid;
    const bool local = router_local(router, rank) >= 0, answered = !local && said && said[rank].rank == rank;
    router_position(router, rank, &position, &pid);
    if (answered) position = said[rank];
    if (position.age >= 0)
        snprintf(text, SAID, "%.95s number %llu", position.operation, (unsigned long long)position.sequence);
    else snprintf(text, SAID, local || answered ? "nothing yet" : "no word");
}

int router_failure_report(comm_router *router, int rank, const char *how, const comm_position *said)
{
    char text[COMM_TEXT + LIST], peer[320], list[LIST] = "";
    int size = router->launch->size;
    char *words = kolo_alloc((size_t)size * SAID);
    for (int r = 0; words && r < size; r++) say(router, r, said, words + (size_t)r * SAID);
    if (words) comm_rank_list(list, sizeof list, NULL, size, words, SAID);
    free(words);
    comm_router_describe(router, rank, peer, sizeof peer);
    snprintf(
        text, sizeof text,
        "%s, %s; rank %d on host %s found it; last begun: %s; see that rank's own message, or its node's log",
        peer, how, router->launch->rank, router->launch->host, list);
    return comm_router_break(router, text);
}

int router_report_failed(comm_router *router, int rank, const char *how)
{
    _Atomic int64_t *claim = &router->life[0]->suspected_at;
    int64_t before = atomic_load(claim), now = (int64_t)(1e9 * kolo_time());
    uint32_t none = 0;
    if (!router->lines) return router_failure_report(router, rank, how, NULL);
    if (before && now - before < (int64_t)(1e9 * CLAIM)) return 0; /* a rank of this node is at it */
    if (!atomic_compare_exchange_strong(claim, &before, now)) return 0;
    if (before) return router_failure_report(router, rank, how, NULL); /* and did not come to an end */
    if (!atomic_compare_exchange_strong(&router->suspected.state, &none, 1)) return 0;
    router->suspected.rank = rank;
    snprintf(router->suspected.how, sizeof router->suspected.how, "%s", how);
    atomic_store(&router->suspected.state, 2);
    return 0;
}

int router_report_silent(comm_router *router, int rank, double silent)
{
    char how[HOW];
    snprintf(how, sizeof how,
             "gave no sign of life for %.0f s: it is stopped, suspended, swapped out or in a debugger, or "
             "its node is; heartbeat_timeout=SECONDS (KOLO_COMM_HEARTBEAT_TIMEOUT for programs with "
             "libkolo_comm.so) waits longer",
             silent);
    return router_report_failed(router, rank, how);
}

/* It has not come for that long: because it is stopped, or because it does something else? */
int router_report_late(comm_router *router, int rank, double late)
{
    char how[HOW];
    int local = router_local(router, rank);
    double now = kolo_time(), heard = local < 0
                                          ? lines_heard(router, rank)
                                          : 1e-9 * (double)atomic_load_explicit(&router->life[local]->beat,
                                                                                memory_order_relaxed);
    const double silent = router_since(router, now, heard);
    if (heard > 0 && silent > router->config.heartbeat_timeout / 2)
        return router_report_silent(router, rank, silent);
    snprintf(how, sizeof how, "%sdid not come for %.0f s", heard > 0 ? "is alive but " : "", late);
    return router_report_failed(router, rank, how);
}

int router_inquire(comm_router *router)
{
    const comm_position *said;
    if (atomic_load_explicit(&router->suspected.state, memory_order_acquire) != 2) return 0;
    if (!lines_inquire(router, router->suspected.rank, &said)) return 0;
    return router_failure_report(router, router->suspected.rank, router->suspected.how, said);
}
