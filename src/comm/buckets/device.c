/* The device half of a communicator: which of the CUDA library's reducers serves it, and the
 * calls that go there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "comm/buckets/trainer.h"
#include "comm/buckets/inside.h"

enum { ROWS = 8, NOTE = 96, REASON = 256 };

/* What a rank tells rank 0 about itself. */
typedef struct device_info {
    char uuid[48];
    struct {
        int32_t usable;
        char note[NOTE]; /* of a row that is usable; why not, of one that is not */
    } row[ROWS];
} device_info;

/* What rank 0 tells all. */
typedef struct decision {
    int32_t row; /* -1: none fits */
    char note[NOTE], why[REASON];
} decision;

/* ---- which one ----------------------------------------------------------------------------------------- */

/* Two ranks with one GPU: their numbers, or false. */
static bool find_shared(const device_info *all, int size, int *first, int *second)
{
    for (int a = 0; a < size; a++)
        for (int b = a + 1; b < size; b++)
            if (strcmp(all[a].uuid, all[b].uuid) == 0) return *first = a, *second = b, true;
    return false;
}

/* Why the row cannot serve these ranks; "": it can. */
static void find_reason(const kolo_comm *comm, const kolo_reducer_type *type, int row, bool host,
                        const device_info *all, char *why)
{
    int size = comm->launch->size, a, b;
    why[0] = 0;
    if (type->most && size > type->most) snprintf(why, REASON, "it serves at most %d rank", type->most);
    else if (comm->canonical && size > 1 && !type->ordered)
        snprintf(why, REASON, "it does not sum in the order that reduce=canonical states");
    else if (host && size > 1 && !type->through_host)
        snprintf(why, REASON, "it only sums; what reduce=adasum and compression= do is done in host memory");
    for (int r = 0; r < size && !why[0]; r++) {
        const char *note = all[r].row[row].note, *first = all[0].row[row].note;
        if (!all[r].row[row].usable) snprintf(why, REASON, "rank %d: %s", r, note);
        else if (strcmp(note, first)) snprintf(why, REASON, "rank 0 has %s, rank %d has %s", first, r, note);
    }
    if (!why[0] && type->own_gpu && find_shared(all, size, &a, &b))
        snprintf(why, REASON, "ranks %d and %d share %s", a, b, all[a].uuid);
}

/* On rank 0: the first row that fits; why: what is said against the last one before it that
 * was meant for as many. */
static decision decide(const kolo_comm *comm, const kolo_reducer_type *const *type, const char *name,
                       bool host, const device_info *all)
{
    decision d = {.row = -1};
    char why[REASON];
    for (int i = 0; type[i] && i < ROWS; i++) {
        if (name && strcmp(type[i]->name, name)) continue;
        find_reason(comm, type[i], i, host, all, why);
        if (!why[0]) {
            d.row = i;
            memcpy(d.note, all[0].row[i].note, sizeof d.note);
            break;
        }
        if (name || !type[i]->most)
            snprintf(d.why, sizeof d.why, "%s: %.*s", type[i]->name, REASON - 32, why);
    }
    return d;
}

/* Rows that are candidates are asked, no others: that may open a library. */
static void device_fill_info(device_info *mine, const kolo_comm *comm, const kolo_reducer_type *const *type,
                             const char *name, const char *uuid)
{
    snprintf(mine->uuid, sizeof mine->uuid, "%s", uuid ? uuid : "");
    for (int i = 0; type[i] && i < ROWS; i++) {
        if (name && strcmp(type[i]->name, name)) continue;
        mine->row[i].usable = !type[i]->ready || type[i]->ready(mine->row[i].note, NOTE) == 0;
        if (mine->row[i].usable && comm_alone(comm)) return;
        if (!mine->row[i].usable) snprintf(mine->row[i].note, NOTE, "%s", kolo_error_text());
    }
}

static int check_name(const kolo_reducer_type *const *type, const char *name)
{
    char names[128] = "auto";
    for (int i = 0; type[i]; i++) {
        if (strcmp(type[i]->name, name) == 0) return 0;
        kolo_append(names, sizeof names, ", %s", type[i]->name);
    }
    return kolo_fail(KOLO_ECONFIG, "reducer=%s is not known; use one of: %s", name, names);
}

static int agree_on_row(kolo_comm *control, kolo_comm *comm, const kolo_comm_device *device, decision *d)
{
    bool first = comm->launch->rank == 0;
    const char *name = device->reducer && strcmp(device->reducer, "auto") ? device->reducer : NULL;
    const kolo_reducer_type *const *type = kolo_cuda_symbol("kolo_cuda_reducer");
    device_info mine = {.uuid = ""}, *all = NULL;
    int rc = !type ? KOLO_ELAUNCH : name ? check_name(type, name) : 0;
    if (rc == 0) device_fill_info(&mine, comm, type, name, device->uuid);
    if (rc == 0 && first && !(all = kolo_alloc((size_t)comm->launch->size * sizeof *all))) rc = KOLO_ENOMEM;
    KOLO_TRY_GOTO(rc, kolo_comm_agree(control, rc));
    KOLO_TRY_GOTO(rc, kolo_comm_gather(control, &mine, sizeof mine, all, 0));
    if (first) *d = decide(comm, type, name, device->host, all);
    KOLO_TRY_GOTO(rc, kolo_comm_broadcast(control, d, sizeof *d, 0));
    if (d->row < 0)
        rc = kolo_fail(KOLO_ECONFIG, "no reducer can sum the gradients of these ranks; %s; use reducer=auto",
                       d->why);
    else comm->device.type = type[d->row];
fail:
    free(all);
    return rc;
}

int comm_device_choose(kolo_comm *comm, const kolo_comm_config *config, const kolo_comm_device *device)
{
    kolo_comm *control = NULL;
    kolo_comm_config small = {.size = sizeof(kolo_comm_config),
                              .timeout = config->timeout,
                              .heartbeat_timeout = config->heartbeat_timeout,
                              .spin = config->spin};
    decision d = {.row = -1};
    KOLO_TRY(kolo_comm_create(&control, comm->launch, &small));
    int rc = agree_on_row(control, comm, device, &d);
    if (rc == 0) rc = kolo_comm_barrier(control);
    kolo_comm_destroy(&control);
    KOLO_TRY(rc);
    const char *name = comm->device.type->name;
    snprintf(comm->device.name, sizeof comm->device.name, "%s%s%.40s", name, *d.note ? " " : "", d.note);
    if (comm_alone(comm)) kolo_debug("gradients of the only rank: %s", comm->device.name);
    else if (comm_on_host(comm))
        kolo_info("gradients travel through host memory (%s)%s%s", name, *d.why ? "; " : "", d.why);
    else kolo_info("gradients are summed by %s between %d GPUs", comm->device.name, comm->launch->size);
    return 0;
}

/* ---- life ---------------------------------------------------------------------------------------------- */

/* All or none: where one rank fails, what the others have opened is ended without waiting for it. */
static int all_or_none(kolo_comm *comm, int rc)
{
    kolo_failure first;
    bool own = rc < 0;
    rc = kolo_comm_agree(comm, rc);
    if (rc == 0) return 0;
    if (own) rc = kolo_comm_host_fail(comm, rc);
    kolo_error_keep(&first);
    comm_device_abort(comm, first.text);
    return kolo_error_restore(&first, rc);
}

int comm_device_open(kolo_comm *comm, const kolo_comm_config *config, const kolo_comm_device *device)
{
    comm_device *d = &comm->device;
    double timeout = config->timeout > 0 ? config->timeout : 300;
    int rc = d->type->open(&d->reducer, comm, device, comm->used_bytes, timeout);
    KOLO_TRY(all_or_none(comm, rc));
    return comm_alone(comm) ? 0 : comm_watch_start(comm);
}

/* The arena is zero, and so are all its sums, also of buckets that lie on the same bytes. */
static int reduce_once(kolo_comm *comm)
{
    comm_device *d = &comm->device;
    for (int b = 0; b < comm->buckets; b++)
        if (comm->bucket[b].group) KOLO_TRY(kolo_comm_start(comm, b));
    for (int b = 0; b < comm->buckets; b++)
        if (comm->bucket[b].group) KOLO_TRY(kolo_comm_wait(comm, b));
    if (comm->used_bytes >= sizeof(double)) KOLO_TRY(kolo_comm_sum(comm, d->type->arena(d->reducer), 1));
    KOLO_TRY(d->type->finish(d->reducer));
    return kolo_comm_status(comm);
}

/* Codecs begin as if they had seen nothing. */
static int warm_up(kolo_comm *comm)
{
    void *state = comm->carried_bytes ? kolo_alloc(comm->carried_bytes) : NULL;
    if (!comm->carried_bytes) return reduce_once(comm);
    if (!state) return KOLO_ENOMEM;
    kolo_comm_rank_state_save(comm, state);
    int rc = reduce_once(comm);
    if (rc == 0) rc = kolo_comm_rank_state_load(comm, state);
    free(state);
    return rc;
}

int comm_device_commit(kolo_comm *comm)
{
    const comm_device *d = &comm->device;
    int rc = d->type->commit && !comm_alone(comm) ? d->type->commit(d->reducer) : 0;
    if (rc == 0) rc = warm_up(comm);
    if (rc < 0) rc = kolo_comm_host_fail(comm, rc); /* others may wait for this rank's part */
    return all_or_none(comm, rc);
}

void comm_device_close(kolo_comm *comm, bool orderly)
{
    comm_device *d = &comm->device;
    comm_watch_stop(comm);
    if (!d->reducer) return;
    orderly = orderly && d->type->status(d->reducer) == 0;
    if (!orderly)
        comm_device_abort(comm, "a rank closed its communicator after a failure; see its own message");
    d->type->close(&d->reducer, orderly);
}

void comm_device_abort(kolo_comm *comm, const char *text)
{
    if (!comm_alone(comm)) comm_node_break(&comm->world.node, text);
    if (comm->device.reducer) comm->device.type->abort(comm->device.reducer, text);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

int kolo_comm_sum(kolo_comm *comm, double *data, int64_t count)
{
    const comm_device *d = &comm->device;
    if (!d->type) return kolo_comm_allreduce(comm, data, count, KOLO_F64, KOLO_SUM);
    if (count < 0 || !comm->committed)
        return kolo_fail(KOLO_EINTERNAL, "kolo_comm_sum: count %lld%s", (long long)count,
                         comm->committed ? "" : " before commit");
    return count && !comm_alone(comm) ? d->type->sum(d->reducer, data, count) : d->type->status(d->reducer);
}

int kolo_comm_status(kolo_comm *comm)
{
    const comm_device *d = &comm->device;
    int rc = kolo_comm_host_status(comm);
    if (rc == 0 && d->reducer && (rc = d->type->status(d->reducer)) < 0) rc = kolo_comm_host_fail(comm, rc);
    if (rc == 0) return 0;
    kolo_failure first;
    kolo_error_keep(&first);
    comm_device_abort(comm, first.text);
    /* the first one */
    return comm_alone(comm) ? kolo_error_restore(&first, rc) : comm_node_check(&comm->world.node);
}

int kolo_comm_abort(kolo_comm *comm, int rc)
{
    kolo_failure first;
    kolo_error_keep(&first);
    kolo_comm_host_fail(comm, rc); /* the others read whose text it is */
    if (comm->device.reducer) comm_device_abort(comm, first.text);
    return kolo_error_restore(&first, rc);
}

const char *kolo_comm_name(const kolo_comm *comm)
{
    if (comm->device.type) return comm->device.name;
    if (comm_alone(comm)) return "none";
    return comm->launch->nodes > 1 ? "shared memory + MPI" : "shared memory";
}

bool kolo_comm_host_waits(const kolo_comm *comm) { return comm_on_host(comm); }

/* ---- what reducers ask of the host half ---------------------------------------------------------------- */

int kolo_comm_agree(kolo_comm *comm, int status)
{
    struct {
        int32_t status;
        char text[COMM_TEXT];
    } word = {.status = status};
    if (status < 0) snprintf(word.text, sizeof word.text, "%s", kolo_error_text());
    if (comm_alone(comm)) return status;
    int64_t none = comm->launch->size, first = status < 0 ? comm->launch->rank : none;
    kolo_failure own;
    kolo_error_keep(&own);
    int rc = kolo_comm_allreduce(comm, &first, 1, KOLO_I64, KOLO_MIN);
    if (rc == 0 && first < none) rc = kolo_comm_broadcast(comm, &word, sizeof word, (int)first);
    if (status < 0) return kolo_error_restore(&own, status);
    KOLO_TRY(rc);
    if (first == none) return 0;
    return kolo_fail(word.status, "rank %lld on host %s: %s", (long long)first,
                     kolo_launch_host(comm->launch, (int)first), word.text);
}

int kolo_comm_host_fail(kolo_comm *comm, int status)
{
    char report[COMM_TEXT + 320];
    kolo_failure own;
    if (comm_alone(comm)) return status;
    kolo_error_keep(&own);
    snprintf(report, sizeof report, "rank %d on host %s: %.*s", comm->launch->rank, comm->launch->host,
             COMM_TEXT - 1, own.text);
    comm_node_break(&comm->world.node, report);
    return kolo_error_restore(&own, status);
}
