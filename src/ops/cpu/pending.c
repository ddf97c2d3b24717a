/* Operations that this backend does not have yet: refused when the plan is made. */
#include "kolo/error.h"
#include "ops/cpu/cpu.h"

static int refuse(const kolo_kernel_request *r, kolo_kernel *k)
{
    (void)k;
    return kolo_fail(KOLO_ECONFIG, "device=cpu: no %s yet", kolo_op_table[r->node->op].name);
}

#define PENDING(name) const kolo_op_row kolo_cpu_##name = {NULL, refuse};
PENDING(cosine)
PENDING(arc_margin)
PENDING(bce)
PENDING(cosine_grad)
PENDING(arc_margin_grad)
PENDING(bce_grad)
