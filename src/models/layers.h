/* What the networks share: declarations of their builders, names of parts, usual initialisations. */
#ifndef KOLO_MODELS_LAYERS_H
#define KOLO_MODELS_LAYERS_H

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/models.h"

#define MODEL(name, build, ...) \
    int kolo_build_##build(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config);
#include "models/models.def"
#undef MODEL

typedef struct kolo_part {
    char text[128];
} kolo_part;

/* "layer1.0" and "conv1": "layer1.0.conv1" */
static inline kolo_part kolo_part_of(const char *module, const char *part)
{
    kolo_part name;
    snprintf(name.text, sizeof name.text, "%.90s.%.30s", module, part);
    return name;
}

/* "features" and 3: "features.3" */
static inline kolo_part kolo_numbered(const char *module, int number)
{
    kolo_part name;
    snprintf(name.text, sizeof name.text, "%.100s.%d", module, number);
    return name;
}

static inline bool kolo_is_variant(const kolo_model *model, const char *word)
{
    return model->variant && !strcmp(model->variant, word);
}

/* Of item i of n, where the first drops nothing and the last as much as `most`: stochastic depth grows with
 * depth. Huang et al., arXiv:1603.09382 */
static inline double kolo_drop_at(double most, int i, int n) { return n > 1 ? most * i / (n - 1) : most; }

/* N(0, 2 / fan): keeps the variance through a ReLU, forward (fan_in) or backward (fan_out). He et
 * al., arXiv:1502.01852 */
static inline kolo_init kolo_kaiming_normal(int64_t fan)
{
    return (kolo_init){KOLO_INIT_NORMAL, sqrt(2.0 / (double)fan)};
}

/* U(-1/sqrt(fan_in), 1/sqrt(fan_in)): PyTorch's default for weight and bias of
 * convolutions and linear layers. */
static inline kolo_init kolo_uniform_fan_in(int64_t fan_in)
{
    return (kolo_init){KOLO_INIT_UNIFORM, 1 / sqrt((double)fan_in)};
}

/* kernel x kernel, the map's size divided by the stride, no bias, weights for a ReLU behind (fan_out):
 * ResNet's and its relatives'. groups 0: 1 */
static inline int kolo_plain_conv(kolo_graph *g, const char *name, int x, int64_t out, int64_t kernel,
                                  int64_t stride, int64_t groups)
{
    const kolo_conv_spec spec = {.out = out,
                                 .kernel = {kernel, kernel},
                                 .stride = {stride, stride},
                                 .pad = {kernel / 2, kernel / 2},
                                 .groups = groups,
                                 .weight = kolo_kaiming_normal(kernel * kernel * out)};
    return kolo_conv(g, name, x, &spec);
}

static inline kolo_init kolo_normal(double deviation) { return (kolo_init){KOLO_INIT_NORMAL, deviation}; }
static inline kolo_init kolo_constant(double value) { return (kolo_init){KOLO_INIT_CONSTANT, value}; }

/* Channels of a map; 1 where x is a status. */
static inline int64_t kolo_channels(const kolo_graph *g, int x) { return x < 0 ? 1 : g->tensor[x].dim[1]; }

/* Features that a linear layer would see in x, (N,F); 1 where x is a status, which the next layer passes
 * on. */
static inline int64_t kolo_features(const kolo_graph *g, int x) { return x < 0 ? 1 : g->tensor[x].dim[1]; }

#endif
