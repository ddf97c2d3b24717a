/* The forward half of a training graph of convolutions in f64, written as plainly as can be: which side of 0
 * every input of a ReLU lies on, so that a test can tell rounding near 0 from a mistake. */
#ifndef TESTS_REFERENCE_F64_H
#define TESTS_REFERENCE_F64_H

#include "exec/exec.h"

/* An input of a ReLU that is nearer to 0, in root mean squares of its tensor, may have either sign in f32:
 * the README's margin, several times f32 noise. */
static const double F64_NEAR = 1e-5;

/* Of every tensor its f64 values, or NULL; near: where a ReLU has made it, whether each of its inputs was
 * near 0, else NULL. */
typedef struct f64_values {
    double **value;
    bool **near;
    double margin; /* smallest |input of a ReLU| over the root of the mean square of its tensor */
} f64_values;

static int64_t f64_dim(const kolo_graph *g, int t, int k)
{
    return k < g->tensor[t].rank ? g->tensor[t].dim[k] : 1;
}

static void f64_conv(const kolo_graph *g, const kolo_node *n, double *const *v)
{
    const int x = n->in[0], w = n->in[1], y = n->out[0];
    const int64_t ci = f64_dim(g, x, 1), h = f64_dim(g, x, 2), wd = f64_dim(g, x, 3), co = f64_dim(g, y, 1),
                  oh = f64_dim(g, y, 2), ow = f64_dim(g, y, 3), kh = n->a.kernel[0], kw = n->a.kernel[1];
    double *out = v[y];
    for (int64_t b = 0; b < f64_dim(g, y, 0); b++)
        for (int64_t o = 0; o < co; o++)
            for (int64_t i = 0; i < oh; i++)
                for (int64_t j = 0; j < ow; j++, out++) {
                    *out = n->n_in > 2 && n->in[2] >= 0 ? v[n->in[2]][o] : 0;
                    for (int64_t c = 0; c < ci; c++)
                        for (int64_t p = 0; p < kh; p++)
                            for (int64_t q = 0; q < kw; q++) {
                                const int64_t r = i * n->a.stride[0] + p - n->a.pad[0],
                                              s = j * n->a.stride[1] + q - n->a.pad[1];
                                if (r < 0 || s < 0 || r >= h || s >= wd) continue;
                                *out += v[x][((b * ci + c) * h + r) * wd + s] *
                                        v[w][((o * ci + c) * kh + p) * kw + q];
                            }
                }
}

static void f64_norm(const kolo_graph *g, const kolo_node *n, double *const *v)
{
    const double *x = v[n->in[0]], *more = n->n_in > 4 && n->in[4] >= 0 ? v[n->in[4]] : NULL;
    const int64_t rows = f64_dim(g, n->in[0], 0), channels = f64_dim(g, n->in[0], 1),
                  area = f64_dim(g, n->in[0], 2) * f64_dim(g, n->in[0], 3);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, square = 0;
        for (int64_t i = 0; i < rows * area; i++) sum += x[(i / area * channels + c) * area + i % area];
        const double mean = sum / (double)(rows * area);
        for (int64_t i = 0; i < rows * area; i++) {
            const double d = x[(i / area * channels + c) * area + i % area] - mean;
            square += d * d;
        }
        const double scale = v[n->in[2]][c] / sqrt(square / (double)(rows * area) + n->a.epsilon);
        for (int64_t i = 0; i < rows * area; i++) {
            const int64_t at = (i / area * channels + c) * area + i % area;
            v[n->out[0]][at] = (x[at] - mean) * scale + v[n->in[3]][c] + (more ? more[at] : 0);
        }
    }
}

static void f64_linear(const kolo_graph *g, const kolo_node *n, double *const *v)
{
    const int64_t in = f64_dim(g, n->in[1], 1), out = f64_dim(g, n->in[1], 0);
    for (int64_t i = 0; i < f64_dim(g, n->in[0], 0) * out; i++) {
        v[n->out[0]][i] = n->n_in > 2 && n->in[2] >= 0 ? v[n->in[2]][i % out] : 0;
        for (int64_t k = 0; k < in; k++)
            v[n->out[0]][i] += v[n->in[0]][i / out * in + k] * v[n->in[1]][i % out * in + k];
    }
}

static void f64_pool(const kolo_graph *g, const kolo_node *n, double *const *v) /* global average */
{
    const int64_t area = f64_dim(g, n->in[0], 2) * f64_dim(g, n->in[0], 3);
    for (int64_t i = 0; i < kolo_tensor_count(&g->tensor[n->out[0]]); i++) {
        v[n->out[0]][i] = 0;
        for (int64_t k = 0; k < area; k++) v[n->out[0]][i] += v[n->in[0]][i * area + k] / (double)area;
    }
}

static void f64_shortcut(const kolo_graph *g, const kolo_node *n, double *const *v)
{
    const int x = n->in[0], y = n->out[0];
    const int64_t ci = f64_dim(g, x, 1), h = f64_dim(g, x, 2), w = f64_dim(g, x, 3), co = f64_dim(g, y, 1),
                  oh = f64_dim(g, y, 2), ow = f64_dim(g, y, 3), front = (co - ci) / 2;
    for (int64_t i = 0; i < f64_dim(g, y, 0) * co * oh * ow; i++) {
        const int64_t b = i / (co * oh * ow), c = i / (oh * ow) % co - front, r = i / ow % oh * 2,
                      s = i % ow * 2;
        v[y][i] = c >= 0 && c < ci ? v[x][((b * ci + c) * h + r) * w + s] : 0;
    }
}

static void f64_relu(double *x, int64_t count, double *margin, bool *near)
{
    double square = 0;
    for (int64_t i = 0; i < count; i++) square += x[i] * x[i];
    for (int64_t i = 0; i < count; i++) {
        const double distance = fabs(x[i]) / sqrt(square / (double)count);
        *margin = fmin(*margin, distance);
        near[i] = distance < F64_NEAR;
        if (x[i] < 0) x[i] = 0;
    }
}

static bool f64_node(const kolo_graph *g, const kolo_node *n, f64_values *f)
{
    double *const *v = f->value;
    bool relu = false;
    switch (n->op) {
    case KOLO_OP_conv: f64_conv(g, n, v); break;
    case KOLO_OP_norm_stats: break;
    case KOLO_OP_norm_apply:
        f64_norm(g, n, v);
        relu = n->a.relu;
        break;
    case KOLO_OP_linear: f64_linear(g, n, v); break;
    case KOLO_OP_global_avg_pool: f64_pool(g, n, v); break;
    case KOLO_OP_shortcut_a: f64_shortcut(g, n, v); break;
    case KOLO_OP_cross_entropy: break;
    default: return false;
    }
    if (!relu) return true;
    const int64_t count = kolo_tensor_count(&g->tensor[n->out[0]]);
    bool *near = f->near[n->out[0]] = calloc((size_t)count + 1, sizeof *near);
    f64_relu(v[n->out[0]], count, &f->margin, near);
    return true;
}

static void f64_free(const kolo_graph *g, f64_values *f)
{
    for (int t = 0; f->value && t < g->tensors; t++) {
        free(f->value[t]);
        free(f->near[t]);
    }
    free(f->value);
    free(f->near);
}

/* From the executor's weights and this input (N,C,H,W). False: an operation that is not known here. */
static bool f64_forward(kolo_exec *e, const kolo_graph *g, const float *input, f64_values *f)
{
    bool known = true;
    f->margin = INFINITY;
    f->value = calloc((size_t)g->tensors, sizeof *f->value);
    f->near = calloc((size_t)g->tensors, sizeof *f->near);
    for (int t = 0; t < g->tensors; t++) {
        const enum kolo_role role = g->tensor[t].role;
        const int64_t count = kolo_tensor_count(&g->tensor[t]);
        if (role != KOLO_ROLE_PARAM && role != KOLO_ROLE_INPUT && role != KOLO_ROLE_ACTIVATION) continue;
        float *single = calloc((size_t)count + 1, sizeof *single);
        f->value[t] = calloc((size_t)count + 1, sizeof **f->value);
        if (role == KOLO_ROLE_PARAM && kolo_exec_get(e, "param", t, single) < 0) known = false;
        for (int64_t i = 0; i < count; i++)
            f->value[t][i] = (double)(role == KOLO_ROLE_INPUT ? input[i] : single[i]);
        free(single);
    }
    for (int64_t i = 0; i < g->nodes && known && !g->node[i].backward; i++)
        known = f64_node(g, &g->node[i], f);
    return known;
}

/* Inputs of ReLUs on whose sign the executor's last step and f64 differ; rounding: but for those near 0. The
 * plan must keep its activations. */
static int64_t f64_flips(kolo_exec *e, const kolo_graph *g, const f64_values *f, bool rounding)
{
    int64_t flips = 0;
    for (int t = 0; t < g->tensors; t++) {
        if (!f->near[t]) continue;
        const int64_t count = kolo_tensor_count(&g->tensor[t]);
        float *got = malloc((size_t)count * sizeof *got);
        if (kolo_exec_get(e, "activation", t, got) < 0) got[0] = NAN;
        for (int64_t i = 0; i < count; i++)
            flips += (got[i] > 0) != (f->value[t][i] > 0) && !(rounding && f->near[t][i]);
        free(got);
    }
    return flips;
}

#endif
