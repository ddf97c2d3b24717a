/* What a session steps by: communicators and executors, of training and of evaluation. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/buckets/reducer.h"
#include "kolo/error.h"
#include "optim/optim.h"
#include "plan/servers.h"
#include "train/compression.h"
#include "train/parts.h"

/* Beside transfers: sums of gradients and of f64. */
enum { BUCKETS = 4096 };

int session_open_comm(kolo_session *s, kolo_launch *launch, size_t arena_bytes, size_t used_bytes,
                      int64_t transfers, kolo_comm **comm)
{
    const kolo_options *o = s->options;
    const kolo_comm_device device = {
        .compute = s->cuda ? kolo_backend_stream(s->backend, KOLO_LANE_COMPUTE) : NULL,
        .comm = s->cuda ? kolo_backend_stream(s->backend, KOLO_LANE_COMM) : NULL,
        .uuid = s->device.uuid,
        .deterministic = o->deterministic,
        .reducer = o->reducer,
        .host = kolo_is_adasum(o) || (o->compression != KOLO_compression_none && launch->nodes > 1)};
    const kolo_comm_config config = {.size = sizeof(kolo_comm_config),
                                     .arena_bytes = arena_bytes,
                                     .used_bytes = used_bytes,
                                     .buckets = (int)(transfers > 0 ? BUCKETS + transfers : 0),
                                     .canonical = o->reduce == KOLO_reduce_canonical,
                                     .timeout = o->comm_timeout,
                                     .heartbeat_timeout = o->heartbeat_timeout,
                                     .algorithm = o->comm_algorithm,
                                     .table = o->comm_table,
                                     .spin = -1};
    return kolo_comm_create_on(comm, launch, &config, s->cuda ? &device : NULL);
}

static int make_training_executor(kolo_session *s)
{
    kolo_plan **plan = kolo_alloc((size_t)(s->shapes * KOLO_EXCHANGES) * sizeof *plan);
    int rc = plan ? 0 : KOLO_ENOMEM, n = 0;
    for (int i = 0; rc == 0 && i < s->shapes; i++) plan[n++] = s->shape[i].plan;
    for (int i = 0; rc == 0 && i < s->shapes; i++)
        for (int x = 0; x < KOLO_EXCHANGES; x++)
            if (s->shape[i].exchange[x]) plan[n++] = s->shape[i].exchange[x];
    if (rc == 0) rc = kolo_exec_create(&s->exec, plan, n, s->backend, s->comm, s->options, NULL);
    free(plan);
    return rc;
}

/* For programs in one memory. */
static int open_comm_for(kolo_session *s, kolo_launch *launch, const kolo_program *p, int64_t transfers,
                         kolo_comm **comm)
{
    const size_t used = p->sum_bytes + kolo_plan_comm_bytes(p->plan[s->grid.stage]);
    return session_open_comm(s, launch, p->comm_bytes, used, transfers, comm);
}

int session_make_executors(kolo_session *s)
{
    const kolo_options *o = s->options;
    bool flat = o->compression != KOLO_compression_none && o->compression_within;
    if (flat) KOLO_TRY(kolo_compression_flat(s->launch, &s->flat));
    const size_t own = s->shards > 1 || kolo_plan_versions(s->plan) > 1 || s->plan->config.servers
                           ? kolo_plan_comm_bytes(s->plan)
                           : s->plan->arena_bytes[KOLO_ARENA_GRADIENT];
    const size_t used = own - (s->plan->config.servers ? kolo_plan_spared(s->plan, s->launch->rank) : 0);
    kolo_launch *launch = flat ? &s->flat : s->launch;
    const kolo_plan_config *c = &s->plan->config; /* backup: sums of every version, arrivals and decisions */
    int64_t transfers = c->lag ? (int64_t)c->lag * s->plan->buckets + 2 * c->ranks : 0;
    if (c->servers) transfers = 8 * (int64_t)s->replicas; /* to and from each as a server, and rank 0's */
    for (int i = 0; s->program && i < s->shapes; i++)
        transfers += kolo_program_transfers(s->shape[i].program);
    if (s->plan->config.pairs) transfers = 4 * (int64_t)s->replicas; /* whole pieces and rests, to and from */
    KOLO_TRY(s->program ? open_comm_for(s, launch, s->program, transfers, &s->comm)
                        : session_open_comm(s, launch, own, used, transfers, &s->comm));
    if (s->plan->config.optimizer) KOLO_TRY(kolo_compression_apply(s));
    /* an executor that trains, or has transfers, does it when it has added its buckets and those */
    else if (!s->program) KOLO_TRY(kolo_comm_commit(s->comm));
    s->staged = s->cuda && !strncmp(kolo_comm_name(s->comm), "staged", 6);
    KOLO_TRY(make_training_executor(s));
    if (s->eval_program)
        KOLO_TRY(open_comm_for(s, s->launch, s->eval_program, kolo_program_transfers(s->eval_program),
                               &s->eval_comm));
    else if (s->eval_plan && s->eval_plan->arena_bytes[KOLO_ARENA_GATHERED])
        KOLO_TRY(session_open_comm(s, s->launch, kolo_plan_comm_bytes(s->eval_plan),
                                   kolo_plan_comm_bytes(s->eval_plan), 0, &s->eval_comm));
    if (s->eval_plan)
        KOLO_TRY(kolo_exec_create(&s->eval_exec, &s->eval_plan, 1, s->backend, s->eval_comm, o, s->exec));
    session_report_device(s);
    return 0;
}
