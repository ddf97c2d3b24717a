/* The operation table as data. */
#include "graph/rules.h"

#define kolo_shape_NULL NULL
#define kolo_gradient_NULL NULL
#define kolo_flops_NULL NULL

const kolo_op_info kolo_op_table[KOLO_OP_COUNT] = {
#define OP(name, min_in, max_in, min_out, max_out, overwrite, shape, gradient, flops, kind, bytes, cut, \
           channels)                                                                                    \
    {#name,                                                                                             \
     min_in,                                                                                            \
     max_in,                                                                                            \
     min_out,                                                                                           \
     max_out,                                                                                           \
     overwrite,                                                                                         \
     kolo_shape_##shape,                                                                                \
     kolo_gradient_##gradient,                                                                          \
     kolo_flops_##flops,                                                                                \
     KOLO_CLASS_##kind,                                                                                 \
     kolo_bytes_##bytes,                                                                                \
     KOLO_CUT_##cut,                                                                                    \
     KOLO_CHANNELS_##channels},
#include "graph/ops.def"
#undef OP
};

bool kolo_op_reads_sign(enum kolo_op op, int input)
{
    switch (op) {
    case KOLO_OP_relu_grad: return input == 1;
    case KOLO_OP_norm_grad_stats:
    case KOLO_OP_norm_grad_apply:
    case KOLO_OP_norms_grad_apply: return input == 2;
    default: return false;
    }
}
