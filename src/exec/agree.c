/* All ranks must hold the same plan: hashes are compared before the first step, and where they differ the
 * first action that does is found by halving, each half one small reduction. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "exec/parts.h"
#include "kolo/error.h"

/* 1: this number is the same on all ranks. Collective. */
static int same(kolo_comm *comm, uint64_t value)
{
    int64_t low = (int64_t)value, high = (int64_t)value;
    KOLO_TRY(kolo_comm_allreduce(comm, &low, 1, KOLO_I64, KOLO_MIN));
    KOLO_TRY(kolo_comm_allreduce(comm, &high, 1, KOLO_I64, KOLO_MAX));
    return low == high;
}

static int report(const kolo_plan *plan, int64_t action)
{
    char text[256];
    if (action < 0)
        return kolo_fail(
            KOLO_ECONFIG,
            "the ranks made different plans: layouts, memory or buckets differ before the first action; "
            "start all ranks with the same options and the same kolo on equal machines");
    kolo_plan_action_text(plan, action, text, sizeof text);
    return kolo_fail(KOLO_ECONFIG,
                     "the ranks made different plans: the first difference is action %" PRId64
                     ", here \"%s\"; start all "
                     "ranks with the same options and the same kolo on equal machines",
                     action, text);
}

static int find_difference(kolo_exec *e, const kolo_plan *plan, const uint64_t *cumulative)
{
    int64_t low = 0, high = plan->actions; /* equal before low, different at high */
    KOLO_TRY(kolo_comm_allreduce(e->comm, &high, 1, KOLO_I64, KOLO_MIN));
    int rc = same(e->comm, cumulative[0]);
    if (rc <= 0) return rc < 0 ? rc : report(plan, -1);
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        rc = same(e->comm, cumulative[middle]);
        if (rc < 0) return rc;
        if (rc) low = middle;
        else high = middle;
    }
    return report(plan, low);
}

int exec_agree(kolo_exec *e, const kolo_plan *plan)
{
    int rc = same(e->comm, plan->program ? plan->program->hash : plan->hash);
    if (rc != 0) return rc < 0 ? rc : 0;
    if (plan->program) return report(plan, -1); /* other stages have other actions */
    uint64_t *cumulative = kolo_alloc((size_t)(plan->actions + 1) * sizeof *cumulative);
    if (!cumulative) return KOLO_ENOMEM;
    kolo_plan_hashes(plan, cumulative);
    rc = find_difference(e, plan, cumulative);
    free(cumulative);
    return rc;
}
