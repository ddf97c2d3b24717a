#include "train/rank_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"
#include "train/tournament.h"

static size_t state_bytes(const kolo_session *s)
{
    return s->plan->config.adasum || s->plan->config.local
               ? (size_t)kolo_exec_state_count(s->exec) * sizeof(float)
               : 0;
}

/* What steps under way have summed, the same on all ranks. */
static size_t late_bytes(const kolo_session *s)
{
    return (size_t)kolo_exec_late_count(s->exec) * sizeof(float);
}

size_t kolo_rank_state_bytes(const kolo_session *s)
{
    const size_t state = state_bytes(s), late = late_bytes(s); /* options allow one of them */
    return state ? state + kolo_tournament_bytes(s) : late ? late : kolo_comm_rank_state_bytes(s->comm);
}

int kolo_rank_state_parts(const kolo_session *s, int *part)
{
    const bool of_replica = state_bytes(s);
    *part = 0;
    if (late_bytes(s)) return 1;
    *part = of_replica ? s->grid.replica : s->launch->rank;
    return of_replica ? s->replicas : s->ranks;
}

/* Replica after replica. */
static int gather_state(kolo_session *s, void *all, size_t bytes)
{
    int rc = 0;
    for (int r = 0; rc == 0 && r < s->replicas; r++)
        rc = kolo_exec_state_read(s->exec, r, all ? (float *)((char *)all + (size_t)r * bytes) : NULL);
    return rc;
}

/* Of this rank. */
static int read_own(kolo_session *s, void *to)
{
    if (late_bytes(s)) return kolo_exec_late_read(s->exec, to);
    if (!state_bytes(s)) {
        kolo_comm_rank_state_save(s->comm, to);
        return 0;
    }
    kolo_tournament_save(s, (char *)to + state_bytes(s));
    return kolo_exec_state_read(s->exec, s->grid.replica, to);
}

int kolo_rank_state_gather(kolo_session *s, void *all)
{
    const size_t bytes = kolo_rank_state_bytes(s);
    const bool root = s->launch->rank == 0;
    if (!bytes) return 0;
    if (s->program && state_bytes(s)) return gather_state(s, root ? all : NULL, bytes);
    if (late_bytes(s)) return root ? read_own(s, all) : 0;
    void *mine = root ? all : kolo_alloc(bytes); /* rank 0's part is the first */
    int rc = mine ? read_own(s, mine) : KOLO_ENOMEM;
    if (rc == 0) rc = kolo_comm_gather(s->comm, mine, bytes, all, 0);
    if (!root) free(mine);
    return rc;
}

enum { PIECE = 1 << 20 }; /* bytes that go from rank to rank at a time */

int kolo_rank_state_bring(void *context, int part, void *to)
{
    kolo_session *s = context;
    const size_t bytes = kolo_rank_state_bytes(s);
    const bool own = s->launch->rank == part;
    if (s->program && state_bytes(s)) return kolo_exec_state_read(s->exec, part, to);
    if (part == 0) return own && to ? read_own(s, to) : 0;
    char *memory = to ? to : kolo_alloc(own ? bytes : PIECE);
    int rc = !memory ? KOLO_ENOMEM : own ? read_own(s, memory) : 0;
    rc = kolo_comm_agree(s->comm, rc);
    for (size_t at = 0; rc == 0 && at < bytes; at += PIECE)
        rc = kolo_comm_broadcast(s->comm, to || own ? memory + at : memory,
                                 bytes - at < PIECE ? bytes - at : PIECE, part);
    if (!to) free(memory);
    return rc;
}

int kolo_rank_state_load(kolo_session *s, const void *from)
{
    if (!state_bytes(s)) return kolo_comm_rank_state_load(s->comm, from);
    kolo_tournament_load(s, (const char *)from + state_bytes(s));
    return kolo_exec_state_write(s->exec, from);
}
