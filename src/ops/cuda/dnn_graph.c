/* The graph of a pass: its tensors and operations, as cuDNN wants them described. */
#include "ops/cuda/dnn_descriptor.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static int make_tensor(kolo_dnn_graph *g, int at, enum kolo_dtype dtype, const int64_t dim[4])
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]}, align = 16,
                  uid = at + 1;
    const cudnnDataType_t type = dtype == KOLO_BF16  ? CUDNN_DATA_BFLOAT16
                                 : dtype == KOLO_F16 ? CUDNN_DATA_HALF
                                                     : CUDNN_DATA_FLOAT;
    const bool between = at >= KOLO_DNN_PARTS;
    descriptor *d = &g->tensor[at];
    KOLO_TRY(dnn_make(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    KOLO_TRY(dnn_set(*d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(dnn_set_int64(*d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dim));
    KOLO_TRY(dnn_set_int64(*d, CUDNN_ATTR_TENSOR_STRIDES, 4, stride));
    KOLO_TRY(dnn_set_int64(*d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid));
    KOLO_TRY(dnn_set_int64(*d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align));
    if (between) KOLO_TRY(dnn_set(*d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between));
    return dnn_finalize(*d);
}

static int make_convolution(descriptor *out, const kolo_dnn_conv *c)
{
    const int64_t axes = 2;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    KOLO_TRY(dnn_make(out, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
    KOLO_TRY(dnn_set_int64(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &axes));
    KOLO_TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    KOLO_TRY(dnn_set_int64(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, c->pad));
    KOLO_TRY(dnn_set_int64(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, c->pad));
    KOLO_TRY(dnn_set_int64(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, c->dilation));
    KOLO_TRY(dnn_set_int64(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, c->stride));
    return dnn_finalize(*out);
}

/* Of tensor `x`: X, or what a prologue makes of it. */
static int add_convolution(kolo_dnn_graph *g, enum kolo_dnn_pass pass, bool add, int x)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t alpha, beta, convolution, x, w, y;
    } table[] = {[KOLO_DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                                       CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
                 [KOLO_DNN_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
                 [KOLO_DNN_WEIGHT] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};
    const float one = 1, beta = add;
    descriptor *o = &g->operation[g->operations++];
    KOLO_TRY(dnn_make(o, table[pass].type));
    KOLO_TRY(dnn_set(*o, table[pass].alpha, CUDNN_TYPE_FLOAT, 1, &one));
    KOLO_TRY(dnn_set(*o, table[pass].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    KOLO_TRY(dnn_set_descriptor(*o, table[pass].convolution, g->convolution));
    KOLO_TRY(dnn_set_descriptor(*o, table[pass].x, g->tensor[x]));
    KOLO_TRY(dnn_set_descriptor(*o, table[pass].w, g->tensor[KOLO_DNN_W]));
    KOLO_TRY(dnn_set_descriptor(*o, table[pass].y, g->tensor[KOLO_DNN_Y]));
    return dnn_finalize(*o);
}

/* A new tensor between operations, in f32 or as `dtype` says; its index goes to *at. */
static int make_between(kolo_dnn_graph *g, enum kolo_dtype dtype, const int64_t dim[4], int *at)
{
    *at = BETWEEN + g->between++;
    return make_tensor(g, *at, dtype, dim);
}

static int make_pointwise(kolo_dnn_graph *g, cudnnPointwiseMode_t mode, descriptor **o)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor *m = &g->mode[g->modes++];
    *o = &g->operation[g->operations++];
    KOLO_TRY(dnn_make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    KOLO_TRY(dnn_set(*m, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    KOLO_TRY(dnn_set(*m, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(dnn_finalize(*m));
    KOLO_TRY(dnn_make(*o, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    return dnn_set_descriptor(**o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *m);
}

/* A new tensor x (mode) b; b < 0: a function of x alone */
static int add_pointwise(kolo_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, enum kolo_dtype dtype,
                         const int64_t dim[4], int *y)
{
    descriptor *o;
    KOLO_TRY(make_between(g, dtype, dim, y));
    KOLO_TRY(make_pointwise(g, mode, &o));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->tensor[x]));
    if (b >= 0) KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, g->tensor[b]));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, g->tensor[*y]));
    return dnn_finalize(*o);
}

static int add_prologue(kolo_dnn_graph *g, const kolo_dnn_conv *c, const int64_t x[4], int *y)
{
    const int64_t channel[4] = {1, c->in, 1, 1};
    KOLO_TRY(make_tensor(g, KOLO_DNN_SCALE, c->dtype, channel));
    KOLO_TRY(make_tensor(g, KOLO_DNN_BIAS, c->dtype, channel));
    KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_MUL, KOLO_DNN_X, KOLO_DNN_SCALE, c->dtype, x, y));
    KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_ADD, *y, KOLO_DNN_BIAS, c->dtype, x, y));
    return add_pointwise(g, CUDNN_POINTWISE_RELU_FWD, *y, -1, c->dtype, x, y);
}

static int add_statistics(kolo_dnn_graph *g, const kolo_dnn_conv *c)
{
    const int64_t channel[4] = {1, c->out, 1, 1};
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor *o = &g->operation[g->operations++];
    KOLO_TRY(make_tensor(g, KOLO_DNN_SUM, KOLO_F32, channel));
    KOLO_TRY(make_tensor(g, KOLO_DNN_SQUARE, KOLO_F32, channel));
    KOLO_TRY(dnn_make(o, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR));
    KOLO_TRY(dnn_set(*o, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode));
    KOLO_TRY(dnn_set(*o, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, g->tensor[KOLO_DNN_Y]));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, g->tensor[KOLO_DNN_SUM]));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, g->tensor[KOLO_DNN_SQUARE]));
    return dnn_finalize(*o);
}

/* A norm's tensors from `first` on; what it makes goes to *y. */
static int add_norm(kolo_dnn_graph *g, const kolo_dnn_conv *c, const int64_t x[4], int first, int *y)
{
    const int64_t channel[4] = {1, c->in, 1, 1};
    KOLO_TRY(make_tensor(g, first + KOLO_DNN_NORM_X, c->dtype, x));
    for (int i = KOLO_DNN_NORM_MEAN; i < KOLO_DNN_NORM_TENSORS; i++)
        KOLO_TRY(make_tensor(g, first + i, KOLO_F32, channel));
    KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_SUB, first + KOLO_DNN_NORM_X, first + KOLO_DNN_NORM_MEAN,
                           KOLO_F32, x, y));
    KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_MUL, *y, first + KOLO_DNN_NORM_INVERSE, KOLO_F32, x, y));
    KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_MUL, *y, first + KOLO_DNN_NORM_W, KOLO_F32, x, y));
    return add_pointwise(g, CUDNN_POINTWISE_ADD, *y, first + KOLO_DNN_NORM_B, KOLO_F32, x, y);
}

/* The gradients of its weight and bias. */
static int add_norm_gradients(kolo_dnn_graph *g, int first)
{
    static const cudnnBackendAttributeName_t name[KOLO_DNN_NORM_TENSORS] = {
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    descriptor *o = &g->operation[g->operations++];
    KOLO_TRY(dnn_make(o, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR));
    KOLO_TRY(dnn_set(*o, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    for (int i = 0; i < KOLO_DNN_NORM_TENSORS; i++) /* g stands where the bias does */
        KOLO_TRY(
            dnn_set_descriptor(*o, name[i], g->tensor[i == KOLO_DNN_NORM_B ? (int)KOLO_DNN_X : first + i]));
    return dnn_finalize(*o);
}

/* X = dx [+ other] where the relu let something through; dx is tensor `result`. */
static int add_mask(kolo_dnn_graph *g, const kolo_dnn_conv *c, const int64_t x[4], int result)
{
    descriptor *o;
    int y, second;
    if (c->add) {
        KOLO_TRY(make_tensor(g, KOLO_DNN_OTHER, c->dtype, x));
        KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_ADD, result, KOLO_DNN_OTHER, KOLO_F32, x, &result));
    }
    KOLO_TRY(add_norm(g, c, x, KOLO_DNN_NORM, &y));
    if (c->mask == KOLO_DNN_MASK_RESIDUAL) {
        KOLO_TRY(make_tensor(g, KOLO_DNN_RESIDUAL, c->dtype, x));
        KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_ADD, y, KOLO_DNN_RESIDUAL, KOLO_F32, x, &y));
    }
    if (c->mask == KOLO_DNN_MASK_NORMS) {
        KOLO_TRY(add_norm(g, c, x, KOLO_DNN_SECOND, &second));
        KOLO_TRY(add_pointwise(g, CUDNN_POINTWISE_ADD, y, second, KOLO_F32, x, &y));
    }
    KOLO_TRY(make_pointwise(g, CUDNN_POINTWISE_RELU_BWD, &o));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, g->tensor[result]));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->tensor[y]));
    KOLO_TRY(dnn_set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, g->tensor[KOLO_DNN_X]));
    KOLO_TRY(dnn_finalize(*o));
    KOLO_TRY(add_norm_gradients(g, KOLO_DNN_NORM));
    return c->mask == KOLO_DNN_MASK_NORMS ? add_norm_gradients(g, KOLO_DNN_SECOND) : 0;
}

static int make_graph(kolo_dnn_graph *g, const kolo_dnn_conv *c)
{
    const int64_t x[4] = {c->rows, c->in, c->x[0], c->x[1]}, y[4] = {c->rows, c->out, c->y[0], c->y[1]};
    const int64_t w[4] = {c->out, c->in / c->group, c->kernel[0], c->kernel[1]};
    int of = KOLO_DNN_X;
    KOLO_TRY(make_tensor(g, KOLO_DNN_X, c->dtype, x));
    KOLO_TRY(make_tensor(g, KOLO_DNN_W, c->dtype, w));
    KOLO_TRY(make_tensor(g, KOLO_DNN_Y, c->dtype, y));
    KOLO_TRY(make_convolution(&g->convolution, c));
    if (c->prologue) KOLO_TRY(add_prologue(g, c, x, &of));
    if (c->mask) KOLO_TRY(make_between(g, KOLO_F32, x, &of));
    KOLO_TRY(add_convolution(g, c->pass, c->add && !c->mask, of));
    if (c->mask) KOLO_TRY(add_mask(g, c, x, of));
    if (c->statistics) KOLO_TRY(add_statistics(g, c));
    KOLO_TRY(dnn_make(&g->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    KOLO_TRY(dnn_set_gpu(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, -1));
    KOLO_TRY(dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operations,
                     g->operation));
    return dnn_finalize(g->graph);
}

int kolo_dnn_graph_create(kolo_dnn_graph **out, const kolo_cuda *cuda, const kolo_dnn_conv *conv)
{
    kolo_dnn_graph *g = *out = kolo_alloc(sizeof *g);
    if (!g) return KOLO_ENOMEM;
    g->handle = cuda->dnn;
    g->profile = cuda->dnn_profile;
    int rc = make_graph(g, conv);
    if (rc < 0) kolo_dnn_graph_destroy(out);
    return rc;
}

void kolo_dnn_graph_destroy(kolo_dnn_graph **graph)
{
    kolo_dnn_graph *g = *graph;
    if (!g) return;
    dnn_destroy(&g->graph);
    for (int i = 0; i < OPERATIONS; i++) dnn_destroy(&g->operation[i]);
    for (int i = 0; i < MODES; i++) dnn_destroy(&g->mode[i]);
    dnn_destroy(&g->convolution);
    for (int i = 0; i < TENSORS; i++) dnn_destroy(&g->tensor[i]);
    free(g);
    *graph = NULL;
}
