/* A norm and the max pool behind it: one after the other. */
#include "ops/compose.h"
#include "ops/cpu/cpu.h"

const kolo_op_row kolo_cpu_norm_max_pool = {kolo_compose_layout, kolo_compose_prepare};
const kolo_op_row kolo_cpu_norm_max_pool_grad_stats = {kolo_compose_layout, kolo_compose_prepare};
const kolo_op_row kolo_cpu_norm_max_pool_grad_apply = {kolo_compose_layout, kolo_compose_prepare};
