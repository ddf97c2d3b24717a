#include "train/carry.h"

#include <stdlib.h>

#include "base/memory.h"
#include "comm/buckets/compressed.h"
#include "kolo/error.h"

static size_t state_bytes(const kolo_session *s)
{
    return s->plan->config.adasum ? (size_t)kolo_exec_state_count(s->exec) * sizeof(float) : 0;
}

size_t kolo_rank_state_bytes(const kolo_session *s)
{
    size_t state = state_bytes(s);
    return state ? state : kolo_comm_rank_state_bytes(s->comm); /* options allow one of them */
}

int kolo_rank_state_gather(kolo_session *s, void *all)
{
    size_t bytes = kolo_rank_state_bytes(s);
    if (!bytes) return 0;
    void *mine = kolo_alloc(bytes);
    int rc = mine ? 0 : KOLO_ENOMEM;
    if (rc == 0 && state_bytes(s)) rc = kolo_exec_state_read(s->exec, mine);
    else if (rc == 0) kolo_comm_rank_state_save(s->comm, mine);
    if (rc == 0) rc = kolo_comm_gather(s->comm, mine, bytes, all, 0);
    free(mine);
    return rc;
}

int kolo_rank_state_load(kolo_session *s, const void *from)
{
    return state_bytes(s) ? kolo_exec_state_write(s->exec, from) : kolo_comm_rank_state_load(s->comm, from);
}
