/* Graphs of several operations that the stand-in for cuDNN carries out, beside plain loops; and those that it
 * has no engine for, as the real one has none. */
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <math.h>
#include <stdbool.h>

#include "cuda_rig.h"
#include "ops/element.h"
#include "standin/ask.h"

#define CALLS(X)                     \
    X(cudaMalloc)                    \
    X(cudaFree)                      \
    X(cudaMemcpyAsync)               \
    X(cudnnCreate)                   \
    X(cudnnDestroy)                  \
    X(cudaStreamCreateWithFlags)     \
    X(cudaStreamSynchronize)         \
    X(cudaStreamDestroy)             \
    X(cudnnSetStream)                \
    X(cudnnBackendCreateDescriptor)  \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendSetAttribute)      \
    X(cudnnBackendGetAttribute)      \
    X(cudnnBackendFinalize)          \
    X(cudnnBackendExecute)
static struct {
#define CALL(name) __typeof__(name) *name;
    CALLS(CALL)
#undef CALL
} gpu;
typedef cudnnBackendDescriptor_t descriptor;
static cudnnHandle_t handle;
static cudaStream_t stream;

static void must(int rc, const char *what)
{
    if (!rc) return;
    printf("Bail out! %s: %d\n", what, rc);
    exit(1);
}
#define MUST(call) must((int)(gpu.call), #call)

static void open_all(void)
{
    void *library = dlopen(getenv("KOLO_CUDA_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    if (!library || !dlsym(library, "standin_count")) skip_all("KOLO_CUDA_LIBRARY is not the stand-in");
#define CALL(name) *(void **)&gpu.name = dlsym(library, #name);
    CALLS(CALL)
#undef CALL
    MUST(cudnnCreate(&handle));
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudnnSetStream(handle, stream));
}

static void copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    MUST(cudaMemcpyAsync(to, from, bytes, kind, stream));
    MUST(cudaStreamSynchronize(stream));
}

/* ---- descriptors ---- */

enum { MOST = 100 };
static descriptor made[MOST];
static int count;

static descriptor make(cudnnBackendDescriptorType_t type)
{
    if (count == MOST) must(1, "descriptors");
    MUST(cudnnBackendCreateDescriptor(type, &made[count]));
    return made[count++];
}

static void set(descriptor d, int name, cudnnBackendAttributeType_t type, int64_t n, const void *v)
{
    MUST(cudnnBackendSetAttribute(d, (cudnnBackendAttributeName_t)name, type, n, v));
}

static void set_ints(descriptor d, int name, int64_t n, const int64_t *v)
{
    set(d, name, CUDNN_TYPE_INT64, n, v);
}
static void set_child(descriptor d, int name, descriptor v)
{
    set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &v);
}

/* ---- tensors: each with its values ---- */

enum { ROWS = 2, IN = 16, OUT = 24, SIDE = 5, TAPS = 9, TENSORS = 40 };
enum shape { X, Y, W, CHANNEL, SUMS }; /* SUMS: a number for each channel of y */

typedef struct tensor {
    enum shape shape;
    bool wide, between; /* wide: f32 */
    float *value;       /* as it is in memory */
    void *device;
    descriptor d;
} tensor;
static tensor tensors[TENSORS];
static int tensor_count;
static cudnnDataType_t narrow;

static void dims_of(enum shape s, int64_t dim[4])
{
    const int64_t all[][4] = {[X] = {ROWS, IN, SIDE, SIDE},
                              [Y] = {ROWS, OUT, SIDE, SIDE},
                              [W] = {OUT, IN, 3, 3},
                              [CHANNEL] = {1, IN, 1, 1},
                              [SUMS] = {1, OUT, 1, 1}};
    memcpy(dim, all[s], sizeof all[s]);
}

static int64_t size_of(enum shape s)
{
    int64_t d[4];
    dims_of(s, d);
    return d[0] * d[1] * d[2] * d[3];
}

static tensor *make_tensor(enum shape shape, bool wide, bool between)
{
    tensor *t = &tensors[tensor_count++];
    int64_t dim[4], align = 16, uid = tensor_count;
    const cudnnDataType_t type = wide ? CUDNN_DATA_FLOAT : narrow;
    *t = (tensor){shape, wide, between, NULL, NULL, make(CUDNN_BACKEND_TENSOR_DESCRIPTOR)};
    dims_of(shape, dim);
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], 1, dim[1] * dim[3], dim[1]};
    set(t->d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_ints(t->d, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, dim);
    set_ints(t->d, CUDNN_ATTR_TENSOR_STRIDES, 4, stride);
    set_ints(t->d, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &uid);
    set_ints(t->d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &align);
    if (between) set(t->d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &between);
    MUST(cudnnBackendFinalize(t->d));
    return t;
}

/* In memory; its values are what its type holds of numbers between -1 and 1. */
static tensor *stored(enum shape shape, bool wide)
{
    static uint64_t state = 7;
    tensor *t = make_tensor(shape, wide, false);
    const int64_t n = size_of(shape);
    uint16_t *half = calloc((size_t)n, sizeof *half);
    t->value = calloc((size_t)n, sizeof *t->value);
    for (int64_t i = 0; i < n; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        half[i] = kolo_to_f16((float)(state >> 40) * 0x1p-23f - 1);
        t->value[i] = kolo_from_f16(half[i]);
    }
    const size_t bytes = (size_t)n * (wide ? 4 : 2);
    MUST(cudaMalloc(&t->device, bytes));
    copy(t->device, wide ? (void *)t->value : (void *)half, bytes, cudaMemcpyHostToDevice);
    free(half);
    return t;
}
static tensor *between(enum shape shape) { return make_tensor(shape, true, true); }

/* How far what was written is from what was expected, relative to its largest number. */
static double distance(const tensor *t, const double *want)
{
    const int64_t n = size_of(t->shape);
    double far = 0, most = 0;
    void *got = calloc((size_t)n, 4);
    copy(got, t->device, (size_t)n * (t->wide ? 4 : 2), cudaMemcpyDeviceToHost);
    for (int64_t i = 0; i < n; i++) {
        const float g = t->wide ? ((float *)got)[i] : kolo_from_f16(((uint16_t *)got)[i]);
        const double d = fabs((double)g - want[i]);
        if (!(d <= far)) far = d;
        if (fabs(want[i]) > most) most = fabs(want[i]);
    }
    free(got);
    return far / most;
}

/* ---- operations ---- */

static descriptor operations[16];
static int operation_count;

static void end_operation(descriptor d)
{
    MUST(cudnnBackendFinalize(d));
    operations[operation_count++] = d;
}

static descriptor pointwise(cudnnPointwiseMode_t mode)
{
    descriptor m = make(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
               d = make(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(m, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(m, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    MUST(cudnnBackendFinalize(m));
    set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, m);
    return d;
}

/* x (mode) b; b NULL: of x alone */
static tensor *apply(cudnnPointwiseMode_t mode, tensor *x, tensor *b)
{
    descriptor d = pointwise(mode);
    tensor *y = between(x->shape);
    set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->d);
    if (b) set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b->d);
    set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y->d);
    end_operation(d);
    return y;
}

static void where(tensor *dy, tensor *x, tensor *dx)
{
    descriptor d = pointwise(CUDNN_POINTWISE_RELU_BWD);
    set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy->d);
    set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x->d);
    set_child(d, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx->d);
    end_operation(d);
}

static descriptor geometry(void)
{
    descriptor d = make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t axes = 2, one[2] = {1, 1};
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    set_ints(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &axes);
    set(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_ints(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, one);
    set_ints(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, one);
    set_ints(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, one);
    set_ints(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, one);
    MUST(cudnnBackendFinalize(d));
    return d;
}

static void convolution(cudnnBackendDescriptorType_t type, tensor *x, tensor *w, tensor *y)
{
    descriptor d = make(type);
    int name[4] = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                   CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
    const int data[4] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
    const int filter[4] = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) memcpy(name, data, sizeof name);
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)
        memcpy(name, filter, sizeof name);
    set_child(d, name[0], geometry());
    set_child(d, name[1], x->d);
    set_child(d, name[2], w->d);
    set_child(d, name[3], y->d);
    end_operation(d);
}

static void statistics(tensor *x, tensor *const sum[2])
{
    descriptor d = make(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(d, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set(d, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_child(d, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, x->d);
    set_child(d, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, sum[0]->d);
    set_child(d, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, sum[1]->d);
    end_operation(d);
}

/* A norm: what it is of, its mean, deviation, scale and bias; what its gradient is made of. */
typedef struct norm {
    tensor *x, *mean, *inverse, *scale, *bias, *made[5];
} norm;

static norm make_norm(void)
{
    norm n = {.x = stored(X, false)};
    tensor **part[] = {&n.mean, &n.inverse, &n.scale, &n.bias};
    for (int i = 0; i < 4; i++) *part[i] = stored(CHANNEL, true);
    for (int i = 0; i < 5; i++) n.made[i] = stored(CHANNEL, true);
    return n;
}

static tensor *normed(const norm *n)
{
    tensor *t = apply(CUDNN_POINTWISE_SUB, n->x, n->mean);
    t = apply(CUDNN_POINTWISE_MUL, t, n->inverse);
    t = apply(CUDNN_POINTWISE_MUL, t, n->scale);
    return apply(CUDNN_POINTWISE_ADD, t, n->bias);
}

static void norm_weights(const norm *n, tensor *g)
{
    static const int name[] = {
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DBN_BIAS_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_DY_SCALE_DESC,
        CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_X_SCALE_DESC, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_EQ_BIAS};
    descriptor d = make(CUDNN_BACKEND_OPERATION_BN_BWD_WEIGHTS_DESCRIPTOR);
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    set(d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set_child(d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_MEAN_DESC, n->mean->d);
    set_child(d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_INVSTD_DESC, n->inverse->d);
    set_child(d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_BN_SCALE_DESC, n->scale->d);
    set_child(d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_X_DESC, n->x->d);
    set_child(d, CUDNN_ATTR_OPERATION_BN_BWD_WEIGHTS_DY_DESC, g->d);
    for (int i = 0; i < 5; i++) set_child(d, name[i], n->made[i]->d);
    end_operation(d);
}

/* ---- a graph ---- */

/* The first engine that is proposed; NULL: none is. */
static descriptor propose(descriptor graph)
{
    descriptor h = make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR),
               config = make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    int64_t n = 0;
    set_child(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    MUST(cudnnBackendFinalize(h));
    MUST(cudnnBackendGetAttribute(h, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                  &config));
    return n ? config : NULL;
}

static descriptor pack_of(void *workspace)
{
    descriptor pack = make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    int64_t uid[TENSORS], n = 0;
    void *pointer[TENSORS];
    for (int i = 0; i < tensor_count; i++)
        if (tensors[i].device) uid[n] = i + 1, pointer[n++] = tensors[i].device;
    set_ints(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, n, uid);
    set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, n, pointer);
    set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    MUST(cudnnBackendFinalize(pack));
    return pack;
}

/* Runs what the operations are; false: there is no engine for it. */
static bool run(void)
{
    descriptor graph = make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), plan;
    int64_t bytes = 0, n;
    void *workspace = NULL;
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, operation_count, operations);
    MUST(cudnnBackendFinalize(graph));
    descriptor config = propose(graph);
    if (!config) return false;
    plan = make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    MUST(cudnnBackendFinalize(plan));
    MUST(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n,
                                  &bytes));
    MUST(cudaMalloc(&workspace, (size_t)bytes));
    MUST(cudnnBackendExecute(handle, plan, pack_of(workspace)));
    MUST(cudaStreamSynchronize(stream));
    MUST(cudaFree(workspace));
    return true;
}

static void clear(void)
{
    while (count) MUST(cudnnBackendDestroyDescriptor(made[--count]));
    for (int i = 0; i < tensor_count; i++) {
        if (tensors[i].device) MUST(cudaFree(tensors[i].device));
        free(tensors[i].value);
    }
    tensor_count = operation_count = 0;
}

/* ---- plain loops; maps are NHWC, weights KRSC ---- */

enum pass { FORWARD, DATA, FILTER };

/* Of x, w and y, whichever the pass makes. */
static void convolve(enum pass pass, double *x, double *w, double *y)
{
    for (int64_t i = 0; i < ROWS * SIDE * SIDE * (int64_t)TAPS; i++) {
        const int64_t tap = i % TAPS, pixel = i / TAPS, row = pixel / (SIDE * SIDE);
        const int64_t h = pixel / SIDE % SIDE + tap / 3 - 1, v = pixel % SIDE + tap % 3 - 1;
        if (h < 0 || h >= SIDE || v < 0 || v >= SIDE) continue;
        for (int64_t k = 0; k < OUT; k++)
            for (int64_t c = 0; c < IN; c++) {
                double *a = &x[((row * SIDE + h) * SIDE + v) * IN + c], *b = &w[(k * TAPS + tap) * IN + c],
                       *o = &y[pixel * OUT + k];
                if (pass == FORWARD) *o += *a * *b;
                if (pass == DATA) *a += *b * *o;
                if (pass == FILTER) *b += *a * *o;
            }
    }
}

static double *values(const tensor *t)
{
    const int64_t n = size_of(t->shape);
    double *v = calloc((size_t)n, sizeof *v);
    for (int64_t i = 0; i < n; i++) v[i] = (double)t->value[i];
    return v;
}

static double *zeros(enum shape s) { return calloc((size_t)size_of(s), sizeof(double)); }

static double norm_at(const norm *n, int64_t i)
{
    const int64_t c = i % IN;
    const float d = n->x->value[i] - n->mean->value[c];
    return (double)(d * n->inverse->value[c] * n->scale->value[c] + n->bias->value[c]);
}

/* ---- cases ---- */

static void test_prologue(bool forward)
{
    tensor *x = stored(X, false), *scale = stored(CHANNEL, false), *bias = stored(CHANNEL, false);
    tensor *w = stored(W, false), *y = stored(Y, false), *sum[2] = {stored(SUMS, true), stored(SUMS, true)};
    tensor *t = apply(CUDNN_POINTWISE_ADD, apply(CUDNN_POINTWISE_MUL, x, scale), bias);
    t = apply(CUDNN_POINTWISE_RELU_FWD, t, NULL);
    convolution(forward ? CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
                        : CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                t, w, y);
    if (forward) statistics(y, sum);
    double *a = values(x), *b = forward ? values(w) : zeros(W), *c = forward ? zeros(Y) : values(y);
    double *s = zeros(SUMS), *q = zeros(SUMS);
    for (int64_t i = 0; i < size_of(X); i++)
        a[i] = fmax(0, a[i] * (double)scale->value[i % IN] + (double)bias->value[i % IN]);
    convolve(forward ? FORWARD : FILTER, a, b, c);
    for (int64_t i = 0; i < size_of(Y); i++) s[i % OUT] += c[i], q[i % OUT] += c[i] * c[i];
    ok(run(), "%s behind scale, bias and relu has an engine",
       forward ? "a convolution with sums" : "a weight's gradient");
    const double far = forward ? distance(y, c) : distance(w, b);
    ok(far < 1e-3, "and it is that of a plain loop (%.1e)", far);
    if (forward) ok(distance(sum[0], s) < 1e-5 && distance(sum[1], q) < 1e-5, "and so are its sums");
    free(a), free(b), free(c), free(s), free(q);
    clear();
}

/* g, dscale and dbias of one or two norms; added: another gradient comes to dx; residual:
 * 0, 1 plain, 2 a norm's */
static void test_gradient(bool added, int residual)
{
    tensor *dy = stored(Y, false), *w = stored(W, false), *other = stored(X, false),
           *plain = stored(X, false);
    tensor *g = stored(X, false), *dx = between(X), *sum;
    const norm own = make_norm(), second = make_norm();
    convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, dx, w, dy);
    if (added) dx = apply(CUDNN_POINTWISE_ADD, dx, other);
    sum = normed(&own);
    if (residual) sum = apply(CUDNN_POINTWISE_ADD, sum, residual == 1 ? plain : normed(&second));
    where(dx, sum, g);
    norm_weights(&own, g);
    if (residual == 2) norm_weights(&second, g);
    double *a = zeros(X), *b = values(w), *c = values(dy), *want[2][2];
    for (int i = 0; i < 4; i++) want[i / 2][i % 2] = zeros(CHANNEL);
    convolve(DATA, a, b, c);
    for (int64_t i = 0; i < size_of(X); i++) {
        const double v = norm_at(&own, i) + (residual == 1   ? (double)plain->value[i]
                                             : residual == 2 ? norm_at(&second, i)
                                                             : 0);
        a[i] = v > 0 ? a[i] + (added ? (double)other->value[i] : 0) : 0;
        for (int k = 0; k < 2; k++) {
            const norm *n = k ? &second : &own;
            const double d = (double)n->x->value[i] - (double)n->mean->value[i % IN];
            want[k][0][i % IN] += a[i] * d * (double)n->inverse->value[i % IN];
            want[k][1][i % IN] += a[i];
        }
    }
    static const char *const residuals[] = {"", ", a residual", ", a residual's norm"};
    ok(run(), "a data gradient%s, relu%s and a norm's sums have an engine", added ? ", an addend" : "",
       residuals[residual]);
    ok(distance(g, a) < 1e-3, "g is that of a plain loop (%.1e)", distance(g, a));
    double far = 0;
    for (int i = 0; i < (residual == 2 ? 4 : 2); i++) {
        const double d = distance((i / 2 ? second : own).made[i % 2], want[i / 2][i % 2]);
        if (!(d <= far)) far = d;
    }
    ok(far < 1e-5, "and so are the gradients of scale and bias (%.1e)", far);
    for (int i = 0; i < 4; i++) free(want[i / 2][i % 2]);
    free(a), free(b), free(c);
    clear();
}

/* What the rest of the gradient is made of, too. */
static void test_equation(void)
{
    tensor *dy = stored(Y, false), *w = stored(W, false), *g = stored(X, false), *dx = between(X);
    const norm n = make_norm();
    const double lines = ROWS * SIDE * SIDE;
    double *of[5], *want[3] = {zeros(CHANNEL), zeros(CHANNEL), zeros(CHANNEL)};
    convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, dx, w, dy);
    where(dx, normed(&n), g);
    norm_weights(&n, g);
    run();
    for (int i = 0; i < 5; i++) {
        copy(n.made[i]->value, n.made[i]->device, IN * sizeof(float), cudaMemcpyDeviceToHost);
        of[i] = values(n.made[i]);
    }
    /* dx = scale / deviation (g - dbias / lines - xhat dscale / lines), as a line in g and x */
    for (int c = 0; c < IN; c++) {
        const double i = (double)n.inverse->value[c], k = (double)n.scale->value[c] * i;
        want[0][c] = k;
        want[1][c] = -k * i * of[0][c] / lines;
        want[2][c] = -k * (of[1][c] - (double)n.mean->value[c] * i * of[0][c]) / lines;
    }
    bool same = true;
    for (int i = 0; i < 3; i++) same &= distance(n.made[2 + i], want[i]) < 1e-5;
    ok(same, "the factors of g, of x and of 1 in dx follow from them");
    for (int i = 0; i < 5; i++) free(of[i]);
    for (int i = 0; i < 3; i++) free(want[i]);
    clear();
}

static void test_refused(void)
{
    tensor *dy = stored(Y, false), *w = stored(W, false), *g = stored(X, false), *dx = between(X);
    norm n = make_norm();
    convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, dx, w, dy);
    where(dx, stored(X, false), g);
    norm_weights(&n, g);
    ok(!run(), "a relu by another tensor than the norm's has no engine");
    clear();
    narrow = CUDNN_DATA_BFLOAT16;
    dy = stored(Y, false), w = stored(W, false), g = stored(X, false), dx = between(X), n = make_norm();
    convolution(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, dx, w, dy);
    where(dx, normed(&n), g);
    norm_weights(&n, g);
    ok(!run(), "nor has bf16");
    clear();
    narrow = CUDNN_DATA_HALF;
}

int main(void)
{
    cuda_rig();
    open_all();
    narrow = CUDNN_DATA_HALF;
    test_prologue(true);
    test_prologue(false);
    test_gradient(false, 0);
    test_gradient(true, 0);
    test_gradient(false, 1);
    test_gradient(true, 1);
    test_gradient(true, 2);
    test_equation();
    test_refused();
    MUST(cudnnDestroy(handle));
    MUST(cudaStreamDestroy(stream));
    is_int(ask_count("defects"), 0, "nothing that cuDNN would punish");
    if (ask_defect(0)) diag("%s", ask_defect(0));
    return done_testing();
}
