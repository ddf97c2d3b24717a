/* Builders: one call a layer, parameters included. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/rules.h"
#include "kolo/error.h"

/* The first output of a new node. */
int kolo_build_output(kolo_graph *g, enum kolo_op op, int n_in, const int *in, int n_out,
                      const kolo_attributes *a, const char *name)
{
    int node = kolo_graph_node(g, op, n_in, in, n_out, a, name);
    return node < 0 ? node : g->node[node].out[0];
}

/* NAME + suffix; the text lives in `text`. */
static const char *suffixed(char text[256], const char *name, const char *suffix)
{
    snprintf(text, 256, "%s%s", name, suffix);
    return text;
}

int kolo_input(kolo_graph *g, int64_t rows, int64_t height, int64_t width, int64_t channels, int64_t words)
{
    if (g->input >= 0) return kolo_fail(KOLO_EINTERNAL, "graph %s has an input already", g->name);
    int64_t dim[] = {rows, height, width, channels};
    int input = kolo_graph_tensor(g, "input", KOLO_ROLE_INPUT, KOLO_U8, 4, dim);
    if (input < 0) return input;
    int64_t label_dim[] = {rows, words};
    int label = kolo_graph_tensor(g, "label", KOLO_ROLE_LABEL, KOLO_I32, words > 1 ? 2 : 1, label_dim);
    if (label < 0) return label;
    g->rows = rows;
    g->image[0] = height;
    g->image[1] = width;
    g->input = input;
    g->label = label;
    return input;
}

int kolo_image_label_input(kolo_graph *g, int64_t classes)
{
    if (g->label < 0)
        return kolo_fail(KOLO_EINTERNAL, "graph %s has no labels: kolo_input comes first", g->name);
    kolo_tensor *label = &g->tensor[g->label];
    label->dtype = KOLO_F32;
    label->rank = 3;
    label->dim[1] = 2;
    label->dim[2] = classes;
    return g->label;
}

static int stored(kolo_graph *g, const char *name, enum kolo_role role, int rank, const int64_t *dim,
                  kolo_init init, bool decay)
{
    int made = kolo_graph_tensor(g, name, role, KOLO_F32, rank, dim);
    if (made < 0) return made;
    g->tensor[made].init = init;
    g->tensor[made].decay = decay;
    return made;
}

int kolo_param(kolo_graph *g, const char *name, int rank, const int64_t *dim, kolo_init init, bool decay)
{
    return stored(g, name, KOLO_ROLE_PARAM, rank, dim, init, decay);
}

int kolo_normalize(kolo_graph *g, int x, const float *mean, const float *std)
{
    if (x < 0) return x;
    kolo_attributes a = {0};
    if (g->tensor[x].rank == 4 && g->tensor[x].dim[3] <= 4) {
        size_t bytes = (size_t)g->tensor[x].dim[3] * sizeof *mean;
        memcpy(a.mean, mean, bytes);
        memcpy(a.std, std, bytes);
    }
    return kolo_build_output(g, KOLO_OP_normalize, 1, &x, 1, &a, "normalize");
}

/* NAME.weight and, where asked for, NAME.bias; bias: -1 without. */
int kolo_build_weights(kolo_graph *g, const char *name, int rank, const int64_t *dim, kolo_init weight_init,
                       bool bias, kolo_init bias_init, int in[3])
{
    char text[256];
    in[1] = kolo_param(g, suffixed(text, name, ".weight"), rank, dim, weight_init, true);
    if (in[1] < 0 || !bias) return in[1];
    return in[2] = kolo_param(g, suffixed(text, name, ".bias"), 1, dim, bias_init, false);
}

/* 1 2 1 by 1 2 1, a sixteenth: two averages of 2 x 2 pixels, of which the first reaches over the border. */
static int blur(kolo_graph *g, const char *name, int x)
{
    char text[256];
    x = kolo_avg_pool(g, suffixed(text, name, ".blur.0"), x, 2, 1, 1, true);
    g->blurred = true;
    return kolo_avg_pool(g, suffixed(text, name, ".blur.1"), x, 2, 1, 0, true);
}

int kolo_conv(kolo_graph *g, const char *name, int x, const kolo_conv_spec *spec)
{
    const bool strides = spec->stride[0] > 1 || spec->stride[1] > 1;
    if (g->blur && strides && x >= 0 && g->tensor[x].rank == 4 && g->tensor[x].dim[1] >= 16)
        x = blur(g, name, x);
    if (x < 0) return x;
    int64_t groups = spec->groups ? spec->groups : 1;
    const kolo_tensor *input = &g->tensor[x];
    if (input->rank != 4)
        return kolo_fail(KOLO_ECONFIG, "%s: a convolution takes (N,C,H,W), but %s has %d dimensions", name,
                         input->name, input->rank);
    if (groups < 1 || input->dim[1] % groups)
        return kolo_fail(KOLO_ECONFIG, "%s: %" PRId64 " groups do not divide %" PRId64 " input channels",
                         name, groups, input->dim[1]);
    int64_t dim[] = {spec->out, input->dim[1] / groups, spec->kernel[0], spec->kernel[1]};
    int in[3] = {x, -1, -1};
    KOLO_TRY(kolo_build_weights(g, name, 4, dim, spec->weight, spec->bias, spec->bias_init, in));
    kolo_attributes a = {.groups = groups};
    for (int axis = 0; axis < 2; axis++) {
        a.kernel[axis] = spec->kernel[axis];
        a.stride[axis] = spec->stride[axis];
        a.pad[axis] = spec->pad[axis];
        a.dilation[axis] = 1;
    }
    return kolo_build_output(g, KOLO_OP_conv, spec->bias ? 3 : 2, in, 1, &a, name);
}

/* The weight is (out, F), or as a 1x1 convolution's. */
static int linear(kolo_graph *g, const char *name, int x, int64_t out, int weight_rank, bool bias,
                  kolo_init weight, kolo_init bias_init)
{
    if (x < 0) return x;
    if (g->tensor[x].rank != 2 && g->tensor[x].rank != 4)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: a linear layer takes (N,F) or (N,C,H,W), but %s has %d dimensions", name,
                         g->tensor[x].name, g->tensor[x].rank);
    int64_t dim[] = {out, g->tensor[x].dim[1], 1, 1};
    int in[3] = {x, -1, -1};
    KOLO_TRY(kolo_build_weights(g, name, weight_rank, dim, weight, bias, bias_init, in));
    return kolo_build_output(g, KOLO_OP_linear, bias ? 3 : 2, in, 1, NULL, name);
}

int kolo_linear(kolo_graph *g, const char *name, int x, int64_t out, bool bias, kolo_init weight,
                kolo_init bias_init)
{
    return linear(g, name, x, out, 2, bias, weight, bias_init);
}

int kolo_linear_of(kolo_graph *g, const char *name, int x, int weight, int bias)
{
    if (x < 0) return x;
    if (weight < 0) return weight;
    const int in[] = {x, weight, bias};
    return kolo_build_output(g, KOLO_OP_linear, bias >= 0 ? 3 : 2, in, 1, NULL, name);
}

int kolo_pointwise(kolo_graph *g, const char *name, int x, int64_t out, bool bias, kolo_init weight,
                   kolo_init bias_init)
{
    return linear(g, name, x, out, 4, bias, weight, bias_init);
}

/* weight, bias, running mean, running variance, in the order of a state dict and one after the other */
static int norm_vectors(kolo_graph *g, const char *name, int64_t channels, double weight_init, int vector[4])
{
    static const char *const suffix[4] = {".weight", ".bias", ".running_mean", ".running_var"};
    double value[4] = {weight_init, 0, 0, 1};
    char text[256];
    for (int i = 0; i < 4; i++) {
        kolo_init init = {KOLO_INIT_CONSTANT, value[i]};
        vector[i] = stored(g, suffixed(text, name, suffix[i]), i < 2 ? KOLO_ROLE_PARAM : KOLO_ROLE_BUFFER, 1,
                           &channels, init, false);
        if (vector[i] < 0) return vector[i];
    }
    return 0;
}

int kolo_batch_norm(kolo_graph *g, const char *name, int x, double epsilon, double momentum,
                    double weight_init)
{
    if (x < 0) return x;
    if (g->tensor[x].rank != 2 && g->tensor[x].rank != 4)
        return kolo_fail(KOLO_ECONFIG, "%s: batch norm takes (N,C,H,W) or (N,C), but %s has %d dimensions",
                         name, g->tensor[x].name, g->tensor[x].rank);
    if (!(epsilon > 0))
        return kolo_fail(KOLO_ECONFIG, "%s: epsilon is %g; it must be positive", name, epsilon);
    int v[4];
    KOLO_TRY(norm_vectors(g, name, g->tensor[x].dim[1], weight_init, v));
    kolo_attributes a = {.epsilon = epsilon, .momentum = momentum};
    if (!g->train) {
        int in[] = {x, v[0], v[1], v[2], v[3]};
        return kolo_build_output(g, KOLO_OP_norm_infer, 5, in, 1, &a, name);
    }
    char text[256];
    int sums = kolo_build_output(g, KOLO_OP_norm_stats, 1, &x, 1, &a, suffixed(text, name, ":sums"));
    if (sums < 0) return sums;
    int in[] = {x, sums, v[0], v[1]};
    int node = kolo_graph_node(g, KOLO_OP_norm_apply, 4, in, 2, &a, name);
    if (node < 0) return node;
    g->tensor[g->node[node].out[1]].of = v[2];
    return g->node[node].out[0];
}

int kolo_relu(kolo_graph *g, const char *name, int x)
{
    return x < 0 ? x : kolo_build_output(g, KOLO_OP_relu, 1, &x, 1, NULL, name);
}

int kolo_add(kolo_graph *g, const char *name, int a, int b)
{
    if (a < 0) return a;
    if (b < 0) return b;
    int in[] = {a, b};
    return kolo_build_output(g, KOLO_OP_add, 2, in, 1, NULL, name);
}

static int pool(kolo_graph *g, enum kolo_op op, const char *name, int x, int64_t kernel, int64_t stride,
                int64_t pad, int64_t beyond, bool count_pad)
{
    if (x < 0) return x;
    kolo_attributes a = {.kernel = {kernel, kernel},
                         .stride = {stride, stride},
                         .pad = {pad, pad},
                         .dilation = {1, 1},
                         .beyond = {beyond, beyond},
                         .count_pad = count_pad};
    return kolo_build_output(g, op, 1, &x, op == KOLO_OP_max_pool ? 2 : 1, &a, name);
}

int kolo_max_pool(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad)
{
    return pool(g, KOLO_OP_max_pool, name, x, kernel, stride, pad, 0, false);
}

int kolo_avg_pool(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride, int64_t pad,
                  bool count_pad)
{
    return pool(g, KOLO_OP_avg_pool, name, x, kernel, stride, pad, 0, count_pad);
}

int kolo_max_pool_same(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride)
{
    return pool(g, KOLO_OP_max_pool, name, x, kernel, stride, (kernel - 1) / 2, (kernel - 1) % 2, false);
}

int kolo_avg_pool_same(kolo_graph *g, const char *name, int x, int64_t kernel, int64_t stride)
{
    return pool(g, KOLO_OP_avg_pool, name, x, kernel, stride, (kernel - 1) / 2, (kernel - 1) % 2, false);
}

int kolo_global_avg_pool(kolo_graph *g, const char *name, int x)
{
    return x < 0 ? x : kolo_build_output(g, KOLO_OP_global_avg_pool, 1, &x, 1, NULL, name);
}

int kolo_adaptive_avg_pool(kolo_graph *g, const char *name, int x, int64_t height, int64_t width)
{
    return x < 0 ? x
                 : kolo_build_output(g, KOLO_OP_adaptive_avg_pool, 1, &x, 1,
                                     &(kolo_attributes){.kernel = {height, width}}, name);
}

int kolo_flatten(kolo_graph *g, const char *name, int x)
{
    return x < 0 ? x : kolo_build_output(g, KOLO_OP_flatten, 1, &x, 1, NULL, name);
}

int kolo_shortcut_a(kolo_graph *g, const char *name, int x, int64_t channels)
{
    if (x < 0) return x;
    int64_t more = g->tensor[x].rank == 4 ? channels - g->tensor[x].dim[1] : 0;
    if (more < 0 || more % 2)
        return kolo_fail(KOLO_ECONFIG,
                         "%s: %" PRId64 " channels cannot be padded to %" PRId64 " evenly on both sides",
                         name, g->tensor[x].dim[1], channels);
    kolo_attributes a = {.stride = {2, 2}, .pad = {more / 2, 0}};
    return kolo_build_output(g, KOLO_OP_shortcut_a, 1, &x, 1, &a, name);
}
