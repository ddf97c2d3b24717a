/* Inside ops/: an operation as others one after another. A backend that has no kernel for a fused operation
 * of the graph carries it out by those that it was made of; their tensors are the fused one's. */
#ifndef KOLO_OPS_COMPOSE_H
#define KOLO_OPS_COMPOSE_H

#include "ops/kernel.h"

enum { KOLO_COMPOSED = 2 };

/* The operations that node `n` was made of, in order; their number, 0 where it is none of those. */
int kolo_compose_nodes(const kolo_node *n, kolo_node part[KOLO_COMPOSED]);
/* Rows of a fused operation: the parts' rows of the backend do the work. */
int kolo_compose_layout(const kolo_kernel_request *request, kolo_layout *layout);
int kolo_compose_prepare(const kolo_kernel_request *request, kolo_kernel *kernel);
/* Part i of a kernel that kolo_compose_prepare made. */
const kolo_kernel *kolo_composed_part(const kolo_kernel *kernel, int i);
int kolo_composed_run(const kolo_kernel *kernel, int i, void *const *args, void *workspace,
                      const kolo_step *step, int slot);

#endif
