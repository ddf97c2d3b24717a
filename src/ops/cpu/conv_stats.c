/* A convolution and the sums of its result: one after the other. */
#include "ops/compose.h"
#include "ops/cpu/cpu.h"

const kolo_op_row kolo_cpu_conv_stats = {kolo_compose_layout, kolo_compose_prepare};
