#include "ops/cuda/dnn.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

typedef cudnnBackendDescriptor_t descriptor;

static int cuda_dnn_make(descriptor *d, cudnnBackendDescriptorType_t type)
{
    *d = NULL;
    return KOLO_DNN(cudnnBackendCreateDescriptor(type, d));
}

static int cuda_dnn_set(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        int64_t n, const void *values)
{
    return KOLO_DNN(cudnnBackendSetAttribute(d, name, type, n, values));
}

static int set_descriptor(descriptor d, cudnnBackendAttributeName_t name, descriptor value)
{
    return cuda_dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static int set_int64(descriptor d, cudnnBackendAttributeName_t name, int64_t n, const int64_t *values)
{
    return cuda_dnn_set(d, name, CUDNN_TYPE_INT64, n, values);
}

static int get(descriptor d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
               int64_t *n, void *values)
{
    return KOLO_DNN(cudnnBackendGetAttribute(d, name, type, room, n, values));
}

static int finalize(descriptor d) { return KOLO_DNN(cudnnBackendFinalize(d)); }

static void destroy(descriptor *d)
{
    if (*d) cudnnBackendDestroyDescriptor(*d);
    *d = NULL;
}

/* For every plan without a handle cuDNN 9.19 opens NVRTC, 100 MB, and closes it again, which takes most of
 * the time of a plan. It is held open as long as the process lives; where it is missing nothing changes. */
static void hold_compiler(void)
{
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", CUDART_VERSION / 1000);
    (void)dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

int kolo_dnn_profile(descriptor *profile, const char *json)
{
    static pthread_once_t held = PTHREAD_ONCE_INIT;
    int rc;
    pthread_once(&held, hold_compiler);
    KOLO_TRY_GOTO(rc, cuda_dnn_make(profile, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR));
    KOLO_TRY_GOTO(rc, cuda_dnn_set(*profile, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                   (int64_t)strlen(json) + 1, json));
    KOLO_TRY_GOTO(rc, finalize(*profile));
    return 0;
fail:
    destroy(profile);
    return rc;
}

/* ---- the graph ----------------------------------------------------------------------------------------- */

/* Tensors between operations, which never lie in memory. */
enum { BETWEEN = KOLO_DNN_PARTS, TENSORS = BETWEEN + 12 };
enum { OPERATIONS = 14, MODES = 11 };

struct kolo_dnn_graph {
    cudnnHandle_t handle;
    descriptor profile;                  /* borrowed; used where there is no handle */
    descriptor tensor[TENSORS];          /* unique id: index + 1 */
    descriptor convolution, mode[MODES]; /* pointwise modes */
    descriptor operation[OPERATIONS], graph;
    int operations, modes, between;
};

/* A descriptor whose content depends on the GPU is given which one; negative: it has no such attribute. */
static int set_gpu(const kolo_dnn_graph *g, descriptor d, int by_handle, int by_profile)
{
    if (g->handle)
        return by_handle < 0 ? 0
                             : cuda_dnn_set(d, (cudnnBackendAttributeName_t)by_handle, CUDNN_TYPE_HANDLE, 1,
                                            &g->handle);
    return by_profile < 0 ? 0 : set_descriptor(d, (cudnnBackendAttributeName_t)by_profile, g->profile);
}

static int make_tensor(kolo_dnn_graph *g, int at, enum kolo_dtype dtype, const int64_t dim[4])
{
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]}, align = 16,
                  uid = at + 1;
    const cudnnDataType_t type = dtype == KOLO_BF16  ? CUDNN_DATA_BFLOAT16
                                 : dtype == KOLO_F16 ? CUDNN_DATA_HALF
                                                     : CUDNN_DATA_FLOAT;
    const bool between = at >= KOLO_DNN_PARTS;
    descriptor *d = &g->tensor[at];
    KOLO_TRY(cuda_dnn_make(d, CUDNN_BACKEND_TENSOR_DESCRIPTOR));
    KOLO_TRY(cuda_dnn_set(*d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(set_int64(*d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dim));
    KOLO_TRY(set_int64(*d, CUDNN_ATTR_TENSOR_STRIDES, 4, stride));
    KOLO_TRY(set_int64(*d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid));
    KOLO_TRY(set_int64(*d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align));
    if (between) KOLO_TRY(cuda_dnn_set(*d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between));
    return finalize(*d);
}

static int make_convolution(descriptor *out, const kolo_dnn_conv *c)
{
    const int64_t axes = 2;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    KOLO_TRY(cuda_dnn_make(out, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
    KOLO_TRY(set_int64(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &axes));
    KOLO_TRY(cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    KOLO_TRY(set_int64(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, c->pad));
    KOLO_TRY(set_int64(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, c->pad));
    KOLO_TRY(set_int64(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, c->dilation));
    KOLO_TRY(set_int64(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, c->stride));
    return finalize(*out);
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
    KOLO_TRY(cuda_dnn_make(o, table[pass].type));
    KOLO_TRY(cuda_dnn_set(*o, table[pass].alpha, CUDNN_TYPE_FLOAT, 1, &one));
    KOLO_TRY(cuda_dnn_set(*o, table[pass].beta, CUDNN_TYPE_FLOAT, 1, &beta));
    KOLO_TRY(set_descriptor(*o, table[pass].convolution, g->convolution));
    KOLO_TRY(set_descriptor(*o, table[pass].x, g->tensor[x]));
    KOLO_TRY(set_descriptor(*o, table[pass].w, g->tensor[KOLO_DNN_W]));
    KOLO_TRY(set_descriptor(*o, table[pass].y, g->tensor[KOLO_DNN_Y]));
    return finalize(*o);
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
    KOLO_TRY(cuda_dnn_make(m, CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
    KOLO_TRY(cuda_dnn_set(*m, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    KOLO_TRY(cuda_dnn_set(*m, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(finalize(*m));
    KOLO_TRY(cuda_dnn_make(*o, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    return set_descriptor(**o, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, *m);
}

/* A new tensor x (mode) b; b < 0: a function of x alone */
static int add_pointwise(kolo_dnn_graph *g, cudnnPointwiseMode_t mode, int x, int b, enum kolo_dtype dtype,
                         const int64_t dim[4], int *y)
{
    descriptor *o;
    KOLO_TRY(make_between(g, dtype, dim, y));
    KOLO_TRY(make_pointwise(g, mode, &o));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->tensor[x]));
    if (b >= 0) KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, g->tensor[b]));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, g->tensor[*y]));
    return finalize(*o);
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
    KOLO_TRY(cuda_dnn_make(o, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR));
    KOLO_TRY(cuda_dnn_set(*o, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode));
    KOLO_TRY(cuda_dnn_set(*o, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, g->tensor[KOLO_DNN_Y]));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, g->tensor[KOLO_DNN_SUM]));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, g->tensor[KOLO_DNN_SQUARE]));
    return finalize(*o);
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
    KOLO_TRY(cuda_dnn_make(o, CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR));
    KOLO_TRY(cuda_dnn_set(*o, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    for (int i = 0; i < KOLO_DNN_NORM_TENSORS; i++) /* g stands where the bias does */
        KOLO_TRY(set_descriptor(*o, name[i], g->tensor[i == KOLO_DNN_NORM_B ? (int)KOLO_DNN_X : first + i]));
    return finalize(*o);
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
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, g->tensor[result]));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, g->tensor[y]));
    KOLO_TRY(set_descriptor(*o, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, g->tensor[KOLO_DNN_X]));
    KOLO_TRY(finalize(*o));
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
    KOLO_TRY(cuda_dnn_make(&g->graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    KOLO_TRY(set_gpu(g, g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, -1));
    KOLO_TRY(cuda_dnn_set(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          g->operations, g->operation));
    return finalize(g->graph);
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
    destroy(&g->graph);
    for (int i = 0; i < OPERATIONS; i++) destroy(&g->operation[i]);
    for (int i = 0; i < MODES; i++) destroy(&g->mode[i]);
    destroy(&g->convolution);
    for (int i = 0; i < TENSORS; i++) destroy(&g->tensor[i]);
    free(g);
    *graph = NULL;
}

/* ---- choices ------------------------------------------------------------------------------------------- */

void kolo_dnn_choice_write(const kolo_dnn_choice *c, char text[KOLO_DNN_TEXT])
{
    int n = snprintf(text, KOLO_DNN_TEXT, "%lld", (long long)c->engine);
    for (int i = 0; i < c->knobs && n < KOLO_DNN_TEXT; i++)
        n += snprintf(text + n, (size_t)(KOLO_DNN_TEXT - n), " %d:%lld", (int)c->knob[i].type,
                      (long long)c->knob[i].value);
}

bool kolo_dnn_choice_read(kolo_dnn_choice *c, const char *text)
{
    int n = 0, type;
    long long value;
    memset(c, 0, sizeof *c);
    if (sscanf(text, "%lld%n", &value, &n) != 1 || value < 0) return false;
    c->engine = value;
    for (text += n; *text; text += n) {
        if (c->knobs == KOLO_DNN_KNOBS || sscanf(text, " %d:%lld%n", &type, &value, &n) != 2 || type < 0)
            return false;
        c->knob[c->knobs].type = (cudnnBackendKnobType_t)type;
        c->knob[c->knobs++].value = value;
    }
    return true;
}

static bool choice_same(const kolo_dnn_choice *a, const kolo_dnn_choice *b)
{
    bool same = a->engine == b->engine && a->knobs == b->knobs;
    for (int i = 0; same && i < a->knobs; i++)
        same = a->knob[i].type == b->knob[i].type && a->knob[i].value == b->knob[i].value;
    return same;
}

/* The content of a configuration that the heuristics made. */
static int read_knobs(descriptor config, kolo_dnn_choice *c)
{
    descriptor knob[KOLO_DNN_KNOBS] = {NULL};
    int64_t n = 0, one;
    int rc = 0;
    for (int i = 0; i < KOLO_DNN_KNOBS && rc >= 0; i++)
        rc = cuda_dnn_make(&knob[i], CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    if (rc >= 0) /* asked for the number alone, cuDNN says 0 */
        rc = get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, KOLO_DNN_KNOBS, &n,
                 knob);
    for (int i = 0; i < n && rc >= 0; i++) {
        rc = get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one, &c->knob[i].type);
        if (rc >= 0)
            rc =
                get(knob[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one, &c->knob[i].value);
    }
    c->knobs = (int)n;
    for (int i = 0; i < KOLO_DNN_KNOBS; i++) destroy(&knob[i]);
    return rc;
}

static int read_choice(descriptor config, kolo_dnn_choice *c)
{
    descriptor engine;
    int64_t n = 0;
    memset(c, 0, sizeof *c);
    int rc = cuda_dnn_make(&engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (rc >= 0) rc = get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
    if (rc >= 0) rc = get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n, &c->engine);
    destroy(&engine);
    return rc < 0 ? rc : read_knobs(config, c);
}

typedef struct proposals {
    kolo_dnn_choice *list;
    int64_t count, capacity;
} proposals;

static int add_proposal(proposals *p, descriptor config)
{
    kolo_dnn_choice c;
    KOLO_TRY(read_choice(config, &c));
    for (int64_t i = 0; i < p->count; i++)
        if (choice_same(&p->list[i], &c)) return 0;
    KOLO_TRY(kolo_grow(&p->list, &p->capacity, p->count, sizeof *p->list));
    p->list[p->count++] = c;
    return 0;
}

static int add_results(descriptor heuristic, proposals *p)
{
    int64_t most = 0, n = 0;
    KOLO_TRY(get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &most, NULL));
    descriptor *config = kolo_alloc((size_t)(most + 1) * sizeof *config);
    if (!config) return KOLO_ENOMEM;
    int rc = 0;
    for (int64_t i = 0; i < most && rc >= 0; i++)
        rc = cuda_dnn_make(&config[i], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (rc >= 0 && most)
        rc = get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &n, config);
    for (int64_t i = 0; i < n && rc >= 0; i++) rc = add_proposal(p, config[i]);
    for (int64_t i = 0; i < most; i++) destroy(&config[i]);
    free(config);
    return rc;
}

static int cuda_dnn_query(const kolo_dnn_graph *g, cudnnBackendHeurMode_t mode, proposals *p)
{
    descriptor h;
    int rc;
    KOLO_TRY_GOTO(rc, cuda_dnn_make(&h, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
    KOLO_TRY_GOTO(rc, set_descriptor(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph));
    KOLO_TRY_GOTO(rc, cuda_dnn_set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    KOLO_TRY_GOTO(rc, set_gpu(g, h, -1, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP));
    KOLO_TRY_GOTO(rc, finalize(h));
    KOLO_TRY_GOTO(rc, add_results(h, p));
fail:
    destroy(&h);
    return rc;
}

int kolo_dnn_proposals(const kolo_dnn_graph *graph, kolo_dnn_choice **list, int64_t *count)
{
    static const cudnnBackendHeurMode_t mode[] = {CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_A,
                                                  CUDNN_HEUR_MODE_FALLBACK};
    proposals p = {NULL, 0, 0};
    int rc = 0;
    for (size_t i = 0; i < sizeof mode / sizeof *mode; i++) {
        rc = cuda_dnn_query(graph, mode[i], &p);
        if (rc < 0) kolo_debug("cuDNN's heuristic %d proposes nothing: %s", (int)mode[i], kolo_error_text());
    }
    *list = p.list;
    *count = p.count;
    return p.count ? 0 : rc; /* one mode may fail, not all */
}

/* ---- plans --------------------------------------------------------------------------------------------- */

/* Notes of an engine as bits. Those that this header does not know yet are left out: a rule cannot name
 * them. */
static int read_notes(descriptor engine, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                      uint32_t *bits)
{
    int note[32]; /* cuDNN's enumerations are ints */
    int64_t n = 0;
    *bits = 0;
    KOLO_TRY(get(engine, name, type, 32, &n, note));
    for (int64_t i = 0; i < n; i++)
        if (note[i] >= 0 && note[i] < 32) *bits |= 1u << note[i];
    return 0;
}

static int make_engine(const kolo_dnn_graph *g, kolo_dnn_plan *p)
{
    KOLO_TRY(cuda_dnn_make(&p->engine, CUDNN_BACKEND_ENGINE_DESCRIPTOR));
    KOLO_TRY(set_descriptor(p->engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, g->graph));
    KOLO_TRY(set_int64(p->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 1, &p->choice.engine));
    KOLO_TRY(set_gpu(g, p->engine, -1, CUDNN_ATTR_ENGINE_DEVICEPROP));
    KOLO_TRY(finalize(p->engine));
    KOLO_TRY(read_notes(p->engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, &p->notes));
    return read_notes(p->engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, &p->behaviours);
}

static int make_knob(descriptor *out, cudnnBackendKnobType_t type, int64_t value)
{
    KOLO_TRY(cuda_dnn_make(out, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR));
    KOLO_TRY(cuda_dnn_set(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type));
    KOLO_TRY(set_int64(*out, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 1, &value));
    return finalize(*out);
}

static int make_config(kolo_dnn_plan *p)
{
    const kolo_dnn_choice *c = &p->choice;
    descriptor knob[KOLO_DNN_KNOBS] = {NULL};
    int rc = cuda_dnn_make(&p->config, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    if (rc >= 0) rc = set_descriptor(p->config, CUDNN_ATTR_ENGINECFG_ENGINE, p->engine);
    for (int i = 0; i < c->knobs && rc >= 0; i++) rc = make_knob(&knob[i], c->knob[i].type, c->knob[i].value);
    if (rc >= 0 && c->knobs)
        rc = cuda_dnn_set(p->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          c->knobs, knob);
    if (rc >= 0) rc = finalize(p->config);
    for (int i = 0; i < c->knobs; i++) destroy(&knob[i]);
    return rc;
}

/* 0 or 1. Asked first with what the engine is, because to make the plan may mean to compile it. */
static int check_rules(const kolo_dnn_plan *p, const kolo_dnn_rules *rules)
{
    uint32_t notes = p->notes & rules->notes, behaviours = p->behaviours & rules->behaviours;
    if (!notes && !behaviours && p->workspace <= rules->workspace) return 0;
    kolo_fail(KOLO_ECONFIG,
              "cuDNN's engine %lld is excluded: notes 0x%x, behaviours 0x%x, workspace %zu bytes",
              (long long)p->choice.engine, notes, behaviours, p->workspace);
    return 1;
}

static int make_plan(const kolo_dnn_graph *g, kolo_dnn_plan *p, const kolo_dnn_rules *rules)
{
    int64_t bytes = 0, n;
    KOLO_TRY(make_engine(g, p));
    if (check_rules(p, rules)) return 1;
    KOLO_TRY(make_config(p));
    KOLO_TRY(cuda_dnn_make(&p->plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    KOLO_TRY(set_gpu(g, p->plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP));
    KOLO_TRY(set_descriptor(p->plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, p->config));
    KOLO_TRY(finalize(p->plan));
    KOLO_TRY(get(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes));
    p->workspace = (size_t)bytes;
    return check_rules(p, rules);
}

int kolo_dnn_plan_create(kolo_dnn_plan **out, const kolo_dnn_graph *graph, const kolo_dnn_choice *choice,
                         const kolo_dnn_rules *rules)
{
    kolo_dnn_plan *p = *out = kolo_alloc(sizeof *p);
    if (!p) return KOLO_ENOMEM;
    p->handle = graph->handle;
    p->choice = *choice;
    int rc = make_plan(graph, p, rules);
    if (rc) kolo_dnn_plan_destroy(out);
    return rc ? 1 : 0; /* whatever cuDNN says against it, another engine may do */
}

void kolo_dnn_plan_destroy(kolo_dnn_plan **plan)
{
    kolo_dnn_plan *p = *plan;
    if (!p) return;
    destroy(&p->plan);
    destroy(&p->config);
    destroy(&p->engine);
    free(p);
    *plan = NULL;
}

static int fill_pack(descriptor pack, void *const part[KOLO_DNN_PARTS], void *workspace)
{
    int64_t uid[KOLO_DNN_PARTS];
    void *pointer[KOLO_DNN_PARTS];
    int n = 0;
    for (int i = 0; i < KOLO_DNN_PARTS; i++) {
        if (!part[i]) continue;
        uid[n] = i + 1;
        pointer[n++] = part[i];
    }
    KOLO_TRY(set_int64(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, n, uid));
    KOLO_TRY(cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointer));
    KOLO_TRY(cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    return finalize(pack);
}

/* A finalized pack cannot be changed, so each run has its own: half a microsecond, and none
 * when a step is replayed. */
int kolo_dnn_plan_run(const kolo_dnn_plan *p, void *const part[KOLO_DNN_PARTS], void *workspace)
{
    descriptor pack;
    int rc = cuda_dnn_make(&pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    if (rc >= 0) rc = fill_pack(pack, part, workspace);
    if (rc >= 0) rc = KOLO_DNN(cudnnBackendExecute(p->handle, p->plan, pack));
    destroy(&pack);
    return rc;
}

void kolo_dnn_plan_name(const kolo_dnn_plan *p, char *text, size_t size)
{
    static const struct {
        uint32_t bits;
        const char *name;
    } note[] = {{1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE, "tensor cores"},
                {1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, "rounds inputs"},
                {1u << CUDNN_NUMERICAL_NOTE_FFT, "FFT"},
                {1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                     1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                     1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13,
                 "Winograd"},
                {1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, "not deterministic"}};
    char choice[KOLO_DNN_TEXT];
    kolo_dnn_choice_write(&p->choice, choice);
    size_t n = (size_t)snprintf(text, size, "cuDNN %.60s", choice);
    for (size_t i = 0; i < sizeof note / sizeof *note; i++)
        if (p->notes & note[i].bits && n < size)
            n += (size_t)snprintf(text + n, size - n, ", %s", note[i].name);
}
