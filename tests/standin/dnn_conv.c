/* Convolutions as sums over plain loops, in f32. An engine's flavour decides how inputs are rounded and in
 * which order is summed. */
#include <stdlib.h>
#include <string.h>

#include "standin/dnn.h"

enum { X = DNN_X, W = DNN_W, Y = DNN_Y };

int64_t dnn_tensor_elements(const dnn_tensor *t) { return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3]; }

/* One pixel of y and one tap of the kernel meet at one pixel of x: a product of small matrices. */
typedef struct meeting {
    float *x, *w, *y; /* x (C/g), w (K/g, stride) (C/g), y (K/g) of one group */
    int64_t channels, outputs, w_stride;
} meeting;

/* Four outputs at a time: each sum keeps its order, and none waits for itself. */
static void multiply_forward(const dnn_conv *c, const meeting *m)
{
    const float *restrict x = m->x;
    for (int64_t k = 0; k < m->outputs; k += 4) {
        const int64_t some = m->outputs - k < 4 ? m->outputs - k : 4;
        const float *w[4];
        float sum[4] = {0};
        for (int64_t o = 0; o < 4; o++) w[o] = m->w + (k + (o < some ? o : 0)) * m->w_stride;
        for (int64_t i = 0; i < m->channels; i++) {
            sum[0] += x[i] * w[0][i];
            sum[1] += x[i] * w[1][i];
            sum[2] += x[i] * w[2][i];
            sum[3] += x[i] * w[3][i];
        }
        for (int64_t o = 0; o < some; o++) {
            float *y = &m->y[k + o];
            *y += sum[o];
            if (c->flavour == DNN_HALF_SUMS) *y = standin_from_half(standin_to_half(*y));
        }
    }
}

static void multiply(const dnn_conv *c, const meeting *m)
{
    if (c->pass == DNN_FORWARD) {
        multiply_forward(c, m);
        return;
    }
    for (int64_t k = 0; k < m->outputs; k++) {
        float *restrict w = m->w + k * m->w_stride, *restrict x = m->x;
        float y = m->y[k];
        if (c->pass == DNN_DATA)
            for (int64_t i = 0; i < m->channels; i++) x[i] += w[i] * y;
        if (c->pass == DNN_WEIGHT)
            for (int64_t i = 0; i < m->channels; i++) w[i] += x[i] * y;
        if (c->flavour == DNN_HALF_SUMS && c->pass == DNN_WEIGHT)
            for (int64_t i = 0; i < m->channels; i++) w[i] = standin_from_half(standin_to_half(w[i]));
    }
}

static void row(const dnn_conv *c, float *const p[3], int64_t n, int64_t i, int64_t j, bool backwards)
{
    const int64_t *x = c->tensor[X].dim, *w = c->tensor[W].dim, *y = c->tensor[Y].dim, taps = w[2] * w[3];
    for (int64_t t = 0; t < taps; t++) {
        int64_t tap = backwards ? taps - 1 - t : t, r = tap / w[3], s = tap % w[3];
        int64_t h = i * c->stride[0] + r * c->dilation[0] - c->pre[0],
                v = j * c->stride[1] + s * c->dilation[1] - c->pre[1];
        if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
        int64_t outputs = y[1] / c->groups;
        for (int64_t g = 0; g < c->groups; g++)
            multiply(c, &(meeting){p[X] + ((n * x[2] + h) * x[3] + v) * x[1] + g * w[1],
                                   p[W] + (g * outputs * taps + tap) * w[1],
                                   p[Y] + ((n * y[2] + i) * y[3] + j) * y[1] + g * outputs, w[1], outputs,
                                   taps * w[1]});
    }
}

void dnn_conv_run(const dnn_conv *c, float *const p[3], bool backwards)
{
    const int64_t *y = c->tensor[Y].dim, pixels = y[0] * y[2] * y[3];
    for (int64_t k = 0; k < pixels; k++) {
        int64_t at = backwards ? pixels - 1 - k : k;
        row(c, p, at / (y[2] * y[3]), at / y[3] % y[2], at % y[3], backwards);
    }
}

/* ---- from descriptors ---- */

void dnn_tensor_describe(const dnn_object *o, dnn_tensor *t)
{
    t->type = (cudnnDataType_t)dnn_int(o, CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
    t->uid = dnn_int(o, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    t->align = dnn_int(o, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    for (int d = 0; d < 4; d++) {
        t->dim[d] = dnn_int(o, CUDNN_ATTR_TENSOR_DIMENSIONS, d);
        t->stride[d] = dnn_int(o, CUDNN_ATTR_TENSOR_STRIDES, d);
    }
    const dnn_value *between = dnn_find(o, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    t->between = between && *(const bool *)between->data;
}

static float scalar(const dnn_object *o, cudnnBackendAttributeName_t name, float otherwise)
{
    const dnn_value *v = dnn_find(o, name);
    if (!v) return otherwise;
    return v->type == CUDNN_TYPE_DOUBLE ? (float)*(const double *)v->data : *(const float *)v->data;
}

void dnn_conv_describe(const dnn_object *o, dnn_conv *c)
{
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t alpha, beta, convolution, tensor[3];
    } pass[] = {
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY}},
        {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
         {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
          CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}}};
    memset(c, 0, sizeof *c);
    while (pass[c->pass].type != o->type) c->pass++;
    const dnn_object *geometry = dnn_child(o, pass[c->pass].convolution, 0);
    for (int i = 0; i < 3; i++) dnn_tensor_describe(dnn_child(o, pass[c->pass].tensor[i], 0), &c->tensor[i]);
    for (int d = 0; d < 2; d++) {
        c->pre[d] = dnn_int(geometry, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, d);
        c->post[d] = dnn_int(geometry, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, d);
        c->stride[d] = dnn_int(geometry, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, d);
        c->dilation[d] = dnn_int(geometry, CUDNN_ATTR_CONVOLUTION_DILATIONS, d);
    }
    c->alpha = scalar(o, pass[c->pass].alpha, 1);
    c->beta = scalar(o, pass[c->pass].beta, 0);
    c->groups = c->tensor[W].dim[1] ? c->tensor[X].dim[1] / c->tensor[W].dim[1] : 0;
}

const char *dnn_conv_wrong(const dnn_conv *c)
{
    const int64_t *x = c->tensor[X].dim, *w = c->tensor[W].dim, *y = c->tensor[Y].dim;
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < 4; d++)
            if (c->tensor[i].dim[d] < 1) return "a dimension is not positive";
    if (x[1] % w[1] || w[0] % c->groups) return "the channels of x are not those of w";
    if (x[0] != y[0] || w[0] != y[1]) return "y has not the rows of x and the outputs of w";
    for (int d = 0; d < 2; d++) {
        if (c->stride[d] < 1 || c->dilation[d] < 1) return "a stride or dilation is not positive";
        int64_t room = x[2 + d] + c->pre[d] + c->post[d] - c->dilation[d] * (w[2 + d] - 1) - 1;
        if (room < 0 || room / c->stride[d] + 1 != y[2 + d])
            return "is_valid_spatial_dim: y has another size";
    }
    return NULL;
}
