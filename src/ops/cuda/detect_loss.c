/* The loss of a detector and its gradient: the one that the graph names. */
#include <string.h>

#include "kolo/error.h"
#include "ops/cuda/cuda.h"

static int cuda_detect_loss_prepare(const kolo_kernel_request *r, kolo_kernel *k)
{
    const char *name = r->node->a.detector;
#define DETECTOR(id, ...) \
    if (!strcmp(name, #id)) return kolo_cuda_##id##_loss(r, k);
#include "ops/detectors.def"
#undef DETECTOR
    return kolo_fail(KOLO_EINTERNAL, "no detector is called \"%s\"", name);
}

const kolo_op_row kolo_cuda_detect_loss = {NULL, cuda_detect_loss_prepare};
const kolo_op_row kolo_cuda_detect_loss_grad = {NULL, cuda_detect_loss_prepare};
