/* Convolutions and their gradients with the norms around them: one after the other. */
#include "ops/compose.h"
#include "ops/cpu/cpu.h"

const kolo_op_row kolo_cpu_conv_stats = {kolo_compose_layout, kolo_compose_prepare};
const kolo_op_row kolo_cpu_conv_grad_norm = {kolo_compose_layout, kolo_compose_prepare};
const kolo_op_row kolo_cpu_norms_grad_apply = {kolo_compose_layout, kolo_compose_prepare};
const kolo_op_row kolo_cpu_norm_conv_stats = {kolo_compose_layout, kolo_compose_prepare};
const kolo_op_row kolo_cpu_norm_conv_grad_weight = {kolo_compose_layout, kolo_compose_prepare};
