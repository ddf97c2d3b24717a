/* Buckets whose tensors are combined by Adasum: on a node a tensor is the piece of work that a thread takes
 * (node.c), between nodes the owners of a slice run adasum.h's schedule. */
#include <stdlib.h>

#include "base/memory.h"
#include "comm/buckets/inside.h"
#include "kolo/error.h"

/* Whole tensors to slices, about equal and none empty. slices <= tensors. */
static void cut(const int64_t *tensor, int tensors, int slices, int *first)
{
    first[0] = 0;
    for (int s = 1; s <= slices; s++) {
        int t = first[s - 1] + 1, most = tensors - (slices - s);
        while (t < most && tensor[t] * slices < tensor[tensors] * s) t++;
        first[s] = t;
    }
    first[slices] = tensors;
}

int kolo_comm_bucket_adasum(kolo_comm *comm, int group, size_t offset, const int64_t *count, int tensors,
                            bool average)
{
    int64_t all = 0;
    for (int t = 0; t < tensors; t++) all += count[t];
    if (tensors < 1 || comm->canonical || (comm->device.type && !comm_on_host(comm) && !comm_alone(comm)))
        return kolo_fail(KOLO_EINTERNAL, "comm: Adasum of %d tensors, %s", tensors,
                         comm->canonical ? "which has no canonical order" : "by a reducer that only sums");
    const int number = kolo_comm_bucket_of(comm, group, KOLO_ALLREDUCE, offset, all);
    KOLO_TRY(number);
    comm_bucket *b = &comm->bucket[number];
    b->tensor = kolo_alloc((size_t)(tensors + 1) * sizeof *b->tensor);
    b->slices = b->slices < tensors ? b->slices : tensors;
    b->first = kolo_alloc((size_t)(b->slices + 1) * sizeof *b->first);
    if (!b->tensor || !b->first) return KOLO_ENOMEM;
    for (int t = 0; t < tensors; t++) b->tensor[t + 1] = b->tensor[t] + count[t];
    b->tensors = tensors;
    b->average = average;
    cut(b->tensor, tensors, b->slices, b->first);
    return number;
}

int comm_combined_make(comm_bucket *b)
{
    const kolo_launch *l = b->group->launch;
    int first = b->first[l->local_rank], tensors = b->first[l->local_rank + 1] - first;
    int64_t *count = kolo_alloc((size_t)tensors * sizeof *count);
    if (!count) return KOLO_ENOMEM;
    for (int t = 0; t < tensors; t++) count[t] = b->tensor[first + t + 1] - b->tensor[first + t];
    const comm_adasum_problem problem = {l->node, l->nodes, b->type, count, tensors};
    int rc = comm_adasum_make(&b->schedule, &problem);
    free(count);
    return rc;
}
