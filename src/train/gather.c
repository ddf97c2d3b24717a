#include "train/gather.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* count: [ranks] */
static int gather_collect(kolo_session *s, const int64_t *count, const void *mine, char *all, size_t element)
{
    for (int r = 0; r < s->ranks; all += (size_t)count[r++] * element) {
        const size_t bytes = (size_t)count[r] * element;
        if (r == s->launch->rank && bytes) memcpy(all, mine, bytes);
        if (bytes) KOLO_TRY(kolo_comm_broadcast(s->comm, all, bytes, r));
    }
    return 0;
}

int session_gather(kolo_session *s, void *list, int64_t *n, size_t element)
{
    void *mine;
    int64_t all = 0;
    memcpy(&mine, list, sizeof mine);
    if (s->ranks == 1) return 0;
    int64_t *count = kolo_alloc((size_t)s->ranks * sizeof *count);
    if (!count) return KOLO_ENOMEM;
    count[s->launch->rank] = *n;
    int rc = kolo_comm_allreduce(s->comm, count, s->ranks, KOLO_I64, KOLO_SUM);
    for (int r = 0; r < s->ranks; r++) all += count[r];
    char *together = rc == 0 ? kolo_alloc((size_t)(all + 1) * element) : NULL;
    if (rc == 0) rc = together ? gather_collect(s, count, mine, together, element) : KOLO_ENOMEM;
    free(count);
    if (rc < 0) {
        free(together);
        return rc;
    }
    free(mine);
    memcpy(list, &together, sizeof together);
    *n = all;
    return 0;
}
