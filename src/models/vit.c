/* Vision transformer: 16x16 patches as tokens behind one of their own, whose last value is classified. Names
 * as in torchvision; initialisation as DeiT trained it (Touvron et al., arXiv:2012.12877): N(0, 0.02).
 * Positions are a parameter for each token, so weights are for one size of image. */
#include "models/layers.h"

enum { HEAD = 64 /* channels */ };

typedef struct vit {
    kolo_graph *g;
    double drop_path;
    int block, blocks; /* the next one, of so many */
} vit;

static int norm(const vit *v, const char *name, int x) { return kolo_layer_norm(v->g, name, x, 1e-6); }

static int linear(const vit *v, const char *name, int x, int64_t out)
{
    return kolo_linear(v->g, name, x, out, true, kolo_normal(0.02), kolo_constant(0));
}

/* Queries, keys and values are one product, whose parameters are called as in torch's MultiheadAttention. */
static int attention(const vit *v, const char *name, int x)
{
    kolo_graph *g = v->g;
    const int64_t channels = kolo_channels(g, x), dim[] = {3 * channels, channels};
    if (x < 0) return x;
    const int weight =
        kolo_param(g, kolo_part_of(name, "in_proj_weight").text, 2, dim, kolo_normal(0.02), true);
    if (weight < 0) return weight;
    const int bias = kolo_param(g, kolo_part_of(name, "in_proj_bias").text, 1, dim, kolo_constant(0), false);
    if (bias < 0) return bias;
    x = kolo_linear_of(g, kolo_part_of(name, "in_proj").text, x, weight, bias);
    x = kolo_attention_of_all(g, kolo_part_of(name, "heads").text, x, channels / HEAD);
    return linear(v, kolo_part_of(name, "out_proj").text, x, channels);
}

static int mlp(const vit *v, const char *name, int x)
{
    const int64_t channels = kolo_channels(v->g, x);
    x = linear(v, kolo_numbered(name, 0).text, x, 4 * channels);
    x = kolo_activate(v->g, kolo_numbered(name, 1).text, x, KOLO_GELU, 0);
    return linear(v, kolo_numbered(name, 3).text, x, channels);
}

static int block(vit *v, const char *name, int x)
{
    const double drop = kolo_drop_at(v->drop_path, v->block++, v->blocks);
    int y = norm(v, kolo_part_of(name, "ln_1").text, x);
    y = attention(v, kolo_part_of(name, "self_attention").text, y);
    x = kolo_residual(v->g, kolo_part_of(name, "add").text, x, y, -1, drop);
    y = norm(v, kolo_part_of(name, "ln_2").text, x);
    y = mlp(v, kolo_part_of(name, "mlp").text, y);
    return kolo_residual(v->g, name, x, y, -1, drop);
}

static int embed(const vit *v, int x, int64_t channels)
{
    kolo_graph *g = v->g;
    const kolo_conv_spec spec = {.out = channels,
                                 .kernel = {16, 16},
                                 .stride = {16, 16},
                                 .bias = true,
                                 .weight = kolo_normal(0.02),
                                 .bias_init = kolo_constant(0)};
    x = kolo_conv(g, "conv_proj", x, &spec);
    if (x < 0) return x;
    const int64_t one[] = {1, 1, channels},
                  all[] = {1, 1 + g->tensor[x].dim[2] * g->tensor[x].dim[3], channels};
    const int first = kolo_param(g, "class_token", 3, one, kolo_normal(0.02), false);
    if (first < 0) return first;
    const int position = kolo_param(g, "encoder.pos_embedding", 3, all, kolo_normal(0.02), false);
    return kolo_embed(g, "encoder.tokens", x, first, position);
}

/* The first token's channels. */
static int first_token(const vit *v, int x)
{
    if (x < 0) return x;
    x = kolo_crop(v->g, "class", x, v->g->tensor[x].dim[2] - 1, 0);
    return kolo_flatten(v->g, "class.flat", x);
}

int kolo_build_vit(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    vit v = {.g = g, .drop_path = config->drop_path, .blocks = model->blocks[0]};
    x = embed(&v, x, model->planes);
    for (int b = 0; b < v.blocks; b++) {
        kolo_part name;
        snprintf(name.text, sizeof name.text, "encoder.layers.encoder_layer_%d", b);
        x = block(&v, name.text, x);
    }
    x = first_token(&v, norm(&v, "encoder.ln", x));
    return linear(&v, "heads.head", x, config->classes);
}
