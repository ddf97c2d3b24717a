/* Inside ops/: an operation as others one after another. A backend that has no kernel for a fused operation
 * of the graph carries it out by those that it was made of; their tensors are the fused one's, and one that
 * the fused operation does without lies in the workspace. */
#ifndef KOLO_OPS_COMPOSE_H
#define KOLO_OPS_COMPOSE_H

#include "ops/kernel.h"

enum { KOLO_COMPOSED = 4 };

typedef struct kolo_part {
    kolo_node node;
    /* bit i: argument i (inputs, then outputs) lies in the workspace, and is only shaped like the
     * tensor that stands there */
    unsigned between;
} kolo_part;

/* The operations that node `n` was made of, in order; their number, 0 where it is none of those. */
int kolo_compose_parts(const kolo_node *n, kolo_part part[KOLO_COMPOSED]);
/* Rows of a fused operation: the parts' rows of the backend do the work. */
int kolo_compose_layout(const kolo_kernel_request *request, kolo_layout *layout);
int kolo_compose_prepare(const kolo_kernel_request *request, kolo_kernel *kernel);
/* The part of a kernel that kolo_compose_prepare made which does `op`; NULL: none does. */
const kolo_kernel *kolo_composed_part(const kolo_kernel *kernel, enum kolo_op op);

#endif
