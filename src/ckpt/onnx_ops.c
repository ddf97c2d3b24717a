/* Each operation in those of ONNX's opset 20. */
#include "ckpt/onnx.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "ops/adaptive.h"

#if KOLO_ONNX

static const kolo_tensor *tensor_of(const onnx_writer *w, int tensor)
{
    return &onnx_graph(w)->tensor[tensor];
}

/* kernel_shape, strides, pads; beyond: so much more at the end */
static void window(onnx_writer *w, const kolo_attributes *a, int64_t beyond)
{
    onnx_ints(w, "kernel_shape", 2, a->kernel);
    onnx_ints(w, "strides", 2, a->stride);
    onnx_ints(w, "pads", 4, (int64_t[]){a->pad[0], a->pad[1], a->pad[0] + beyond, a->pad[1] + beyond});
}

static const char *conv(onnx_writer *w, const onnx_operation *o)
{
    const kolo_attributes *a = &o->node->a;
    const char *y = onnx_node(w, "Conv", o->out, o->n_in, o->in);
    window(w, a, 0);
    onnx_ints(w, "dilations", 2, a->dilation);
    onnx_int(w, "group", a->groups);
    return y;
}

/* x, w, b, mean, variance[, residual]; relu */
static const char *norm_infer(onnx_writer *w, const onnx_operation *o)
{
    const bool relu = o->node->a.relu, add = o->n_in > 5 && o->in[5];
    const char *y = onnx_node(w, "BatchNormalization", relu || add ? NULL : o->out, 5, o->in);
    onnx_real(w, "epsilon", o->node->a.epsilon);
    if (add) y = onnx_two(w, "Add", relu ? NULL : o->out, y, o->in[5]);
    return relu ? onnx_one(w, "Relu", o->out, y) : y;
}

static const char *relu(onnx_writer *w, const onnx_operation *o)
{
    return onnx_one(w, "Relu", o->out, o->in[0]);
}
static const char *onnx_ops_add(onnx_writer *w, const onnx_operation *o)
{
    return onnx_two(w, "Add", o->out, o->in[0], o->in[1]);
}
static const char *same(onnx_writer *w, const onnx_operation *o)
{
    return onnx_one(w, "Identity", o->out, o->in[0]);
}

static const char *max_pool(onnx_writer *w, const onnx_operation *o)
{
    const char *y = onnx_one(w, "MaxPool", o->out, o->in[0]);
    window(w, &o->node->a, o->node->a.beyond[0]);
    return y;
}

static const char *avg_pool(onnx_writer *w, const onnx_operation *o)
{
    const char *y = onnx_one(w, "AveragePool", o->out, o->in[0]);
    window(w, &o->node->a, o->node->a.beyond[0]);
    onnx_int(w, "count_include_pad", o->node->a.count_pad);
    return y;
}

static const char *flat(onnx_writer *w, const char *out, const char *x)
{
    const char *y = onnx_one(w, "Flatten", out, x);
    onnx_int(w, "axis", 1);
    return y;
}

static const char *flatten(onnx_writer *w, const onnx_operation *o) { return flat(w, o->out, o->in[0]); }

static const char *global_avg_pool(onnx_writer *w, const onnx_operation *o)
{
    return flat(w, o->out, onnx_one(w, "GlobalAveragePool", NULL, o->in[0]));
}

/* A y-by-x matrix whose product with an axis of x pixels is the means of its windows; or, turned, one that
 * the axis is multiplied by. */
static const char *means(onnx_writer *w, int y, int x, bool turned)
{
    float *value = kolo_alloc((size_t)y * (size_t)x * sizeof *value);
    if (!value) return NULL;
    for (int i = 0; i < y; i++) {
        const kolo_span s = kolo_span_of(i, y, x);
        for (int j = s.begin; j < s.end; j++)
            value[turned ? j * y + i : i * x + j] = 1.0f / (float)(s.end - s.begin);
    }
    const char *made = onnx_floats(w, 2, turned ? (int64_t[]){x, y} : (int64_t[]){y, x}, value);
    free(value);
    return made;
}

/* Where windows are equal an AveragePool, else rows and columns are averaged by products: ONNX has nothing
 * for windows that differ. */
static const char *adaptive_avg_pool(onnx_writer *w, const onnx_operation *o)
{
    const int64_t *x = &tensor_of(w, o->node->in[0])->dim[2], *y = o->node->a.kernel;
    if (x[0] % y[0] || x[1] % y[1])
        return onnx_two(w, "MatMul", o->out,
                        onnx_two(w, "MatMul", NULL, means(w, (int)y[0], (int)x[0], false), o->in[0]),
                        means(w, (int)y[1], (int)x[1], true));
    const char *made = onnx_one(w, "AveragePool", o->out, o->in[0]);
    const int64_t side[] = {x[0] / y[0], x[1] / y[1]};
    onnx_ints(w, "kernel_shape", 2, side);
    onnx_ints(w, "strides", 2, side);
    return made;
}

/* Of rows a matrix product, of the pixels of a map a convolution. */
static const char *linear(onnx_writer *w, const onnx_operation *o)
{
    const kolo_tensor *x = tensor_of(w, o->node->in[0]), *t = tensor_of(w, o->node->in[1]);
    const int rank = x->rank == 4 ? 4 : 2;
    const char *weight = t->rank == rank
                             ? o->in[1]
                             : onnx_reshape(w, NULL, o->in[1], rank, (int64_t[]){t->dim[0], t->dim[1], 1, 1});
    const char *in[] = {o->in[0], weight, o->in[2]},
               *y = onnx_node(w, rank == 4 ? "Conv" : "Gemm", o->out, o->n_in, in);
    if (rank == 2) onnx_int(w, "transB", 1);
    return y;
}

/* pads: start of each axis, then end of each */
static const char *padded(onnx_writer *w, const char *out, const char *x, const int64_t pads[8])
{
    return onnx_two(w, "Pad", out, x, onnx_whole(w, 8, pads));
}

static const char *every_second(onnx_writer *w, const char *x, int64_t row, int64_t column)
{
    return onnx_slice(w, NULL, x, 2, (int64_t[]){2, 3}, (int64_t[]){row, column},
                      (int64_t[]){INT64_MAX, INT64_MAX}, (int64_t[]){2, 2});
}

static const char *shortcut_a(onnx_writer *w, const onnx_operation *o)
{
    const int64_t more = o->node->a.pad[0];
    const char *x = o->node->a.stride[0] == 2 ? every_second(w, o->in[0], 0, 0) : o->in[0];
    return padded(w, o->out, x, (int64_t[]){0, more, 0, 0, 0, more, 0, 0});
}

static const char *layer_norm(onnx_writer *w, const onnx_operation *o)
{
    const bool map = tensor_of(w, o->node->in[0])->rank == 4;
    const char *x = map ? onnx_transpose(w, NULL, o->in[0], 4, (int64_t[]){0, 2, 3, 1}) : o->in[0];
    const char *y =
        onnx_node(w, "LayerNormalization", map ? NULL : o->out, 3, (const char *[]){x, o->in[1], o->in[2]});
    onnx_int(w, "axis", -1);
    onnx_real(w, "epsilon", o->node->a.epsilon);
    return map ? onnx_transpose(w, o->out, y, 4, (int64_t[]){0, 3, 1, 2}) : y;
}

static const char *activation(onnx_writer *w, const onnx_operation *o)
{
    static const char *const name[] = {[KOLO_GELU] = "Gelu",
                                       [KOLO_GELU_TANH] = "Gelu",
                                       [KOLO_LEAKY_RELU] = "LeakyRelu",
                                       [KOLO_HARD_SWISH] = "HardSwish",
                                       [KOLO_HARD_SIGMOID] = "HardSigmoid",
                                       [KOLO_SIGMOID] = "Sigmoid",
                                       [KOLO_TANH] = "Tanh"};
    const enum kolo_activation which = o->node->a.activation;
    if (which == KOLO_SILU)
        return onnx_two(w, "Mul", o->out, o->in[0], onnx_one(w, "Sigmoid", NULL, o->in[0]));
    if (which == KOLO_RELU6) {
        const float low = 0, high = 6;
        const char *in[] = {o->in[0], onnx_floats(w, 0, NULL, &low), onnx_floats(w, 0, NULL, &high)};
        return onnx_node(w, "Clip", o->out, 3, in);
    }
    const char *y = onnx_one(w, name[which], o->out, o->in[0]);
    if (which == KOLO_GELU_TANH) onnx_text(w, "approximate", "tanh");
    if (which == KOLO_LEAKY_RELU) onnx_real(w, "alpha", o->node->a.slope);
    if (which == KOLO_HARD_SIGMOID) onnx_real(w, "alpha", 1. / 6);
    return y;
}

/* branch[, scale (C)][, x] */
static const char *residual(onnx_writer *w, const onnx_operation *o)
{
    const char *scale = o->n_in > 1 ? o->in[1] : NULL, *x = o->n_in > 2 ? o->in[2] : NULL, *y = o->in[0];
    const kolo_tensor *t = tensor_of(w, o->node->out[0]);
    if (scale && t->rank == 4) scale = onnx_reshape(w, NULL, scale, 3, (int64_t[]){t->dim[1], 1, 1});
    if (scale) y = onnx_two(w, "Mul", x ? NULL : o->out, y, scale);
    if (x) return onnx_two(w, "Add", o->out, y, x);
    return scale ? y : onnx_one(w, "Identity", o->out, y);
}

static const char *pad(onnx_writer *w, const onnx_operation *o)
{
    return padded(w, o->out, o->in[0], (int64_t[]){0, 0, 0, 0, 0, 0, o->node->a.pad[0], o->node->a.pad[1]});
}

/* A zero token in front of the pixels, then the positions, then the first one. */
static const char *embed(onnx_writer *w, const onnx_operation *o)
{
    const kolo_tensor *y = tensor_of(w, o->node->out[0]);
    const int64_t channels = y->dim[1], tokens = y->dim[2];
    const char *x = onnx_reshape(w, NULL, o->in[0], 4, (int64_t[]){-1, channels, tokens - 1, 1});
    x = padded(w, NULL, x, (int64_t[]){0, 0, 1, 0, 0, 0, 0, 0});
    const char *first = onnx_reshape(w, NULL, o->in[1], 4, (int64_t[]){1, channels, 1, 1});
    first = padded(w, NULL, first, (int64_t[]){0, 0, 0, 0, 0, 0, tokens - 1, 0});
    const char *position = onnx_transpose(w, NULL, o->in[2], 3, (int64_t[]){0, 2, 1});
    position = onnx_reshape(w, NULL, position, 4, (int64_t[]){1, channels, tokens, 1});
    return onnx_two(w, "Add", o->out, onnx_two(w, "Add", NULL, x, first), position);
}

static const char *crop(onnx_writer *w, const onnx_operation *o)
{
    const kolo_tensor *y = tensor_of(w, o->node->out[0]);
    return onnx_slice(w, o->out, o->in[0], 2, (int64_t[]){2, 3}, (int64_t[]){0, 0}, &y->dim[2],
                      (int64_t[]){1, 1});
}

static const char *space_to_depth(onnx_writer *w, const onnx_operation *o)
{
    const kolo_tensor *t = tensor_of(w, o->node->in[0]);
    const int64_t rows = t->dim[2] % 2, columns = t->dim[3] % 2;
    const char *x =
        rows || columns ? padded(w, NULL, o->in[0], (int64_t[]){0, 0, 0, 0, 0, 0, rows, columns}) : o->in[0];
    const char *part[4];
    for (int i = 0; i < 4; i++) part[i] = every_second(w, x, i % 2, i / 2);
    const char *y = onnx_node(w, "Concat", o->out, 4, part);
    onnx_int(w, "axis", 1);
    return y;
}

static const char *upsample(onnx_writer *w, const onnx_operation *o)
{
    const float times[] = {1, 1, (float)o->node->a.stride[0], (float)o->node->a.stride[1]};
    const char *in[] = {o->in[0], "", onnx_floats(w, 1, (int64_t[]){4}, times)},
               *y = onnx_node(w, "Resize", o->out, 3, in);
    onnx_text(w, "mode", "nearest");
    onnx_text(w, "coordinate_transformation_mode", "asymmetric");
    onnx_text(w, "nearest_mode", "floor");
    return y;
}

static const char *concat(onnx_writer *w, const onnx_operation *o)
{
    const char *y = onnx_node(w, "Concat", o->out, o->n_in, o->in);
    onnx_int(w, "axis", 1);
    return y;
}

static const char *slice(onnx_writer *w, const onnx_operation *o)
{
    const int64_t first = o->node->a.first, end = first + o->node->a.count;
    return onnx_slice(w, o->out, o->in[0], 1, (int64_t[]){1}, &first, &end, (int64_t[]){1});
}

static const char *gate(onnx_writer *w, const onnx_operation *o)
{
    const char *s = onnx_two(w, "Unsqueeze", NULL, o->in[1], onnx_whole(w, 2, (int64_t[]){2, 3}));
    return onnx_two(w, "Mul", o->out, o->in[0], s);
}

static const char *unit(onnx_writer *w, const char *x)
{
    const char *y = onnx_one(w, "LpNormalization", NULL, x);
    onnx_int(w, "axis", 1);
    onnx_int(w, "p", 2);
    return y;
}

static const char *cosine(onnx_writer *w, const onnx_operation *o)
{
    const char *x = unit(w, o->in[0]), *t = unit(w, o->in[1]), *y = onnx_two(w, "Gemm", o->out, x, t);
    onnx_int(w, "transB", 1);
    return y;
}

onnx_emit *const onnx_table[KOLO_OP_COUNT] = {
    [KOLO_OP_conv] = conv,
    [KOLO_OP_norm_infer] = norm_infer,
    [KOLO_OP_relu] = relu,
    [KOLO_OP_add] = onnx_ops_add,
    [KOLO_OP_max_pool] = max_pool,
    [KOLO_OP_avg_pool] = avg_pool,
    [KOLO_OP_global_avg_pool] = global_avg_pool,
    [KOLO_OP_adaptive_avg_pool] = adaptive_avg_pool,
    [KOLO_OP_flatten] = flatten,
    [KOLO_OP_linear] = linear,
    [KOLO_OP_shortcut_a] = shortcut_a,
    [KOLO_OP_layer_norm] = layer_norm,
    [KOLO_OP_activation] = activation,
    [KOLO_OP_residual] = residual,
    [KOLO_OP_dropout] = same,
    [KOLO_OP_window_attention] = onnx_window_attention,
    [KOLO_OP_embed] = embed,
    [KOLO_OP_pad] = pad,
    [KOLO_OP_crop] = crop,
    [KOLO_OP_space_to_depth] = space_to_depth,
    [KOLO_OP_upsample] = upsample,
    [KOLO_OP_concat] = concat,
    [KOLO_OP_slice] = slice,
    [KOLO_OP_gate] = gate,
    [KOLO_OP_cosine] = cosine,
};

#endif
