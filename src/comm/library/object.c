/* Objects: bytes whose number only the root knows. */
#include <stdlib.h>

#include "base/memory.h"
#include "comm/library/parts.h"

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
        kolo_request r = {.what = KOLO_BROADCAST,
                          .in = group->rank == root ? mine : NULL,
                          .out = object,
                          .type = KOLO_U8,
                          .dims = 1,
                          .dim = {size},
                          .root = root};
        rc = lib_do(group, &r, NULL);
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
