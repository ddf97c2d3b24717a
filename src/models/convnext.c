/* ConvNeXt: a stem of 4x4 patches, then blocks of a 7x7 depthwise convolution, layer norm and two linear
 * layers over each pixel's channels. Names and initialisation as in torchvision; layer scale begins at 1e-6,
 * and stochastic depth grows with the block. */
#include "models/layers.h"

typedef struct convnext {
    kolo_graph *g;
    double drop_path;
    int block, blocks; /* the next one, of so many */
} convnext;

static int conv(const convnext *c, const char *name, int x, int64_t out, int64_t kernel, int64_t stride,
                int64_t pad, int64_t groups)
{
    kolo_conv_spec spec = {.out = out,
                           .kernel = {kernel, kernel},
                           .stride = {stride, stride},
                           .pad = {pad, pad},
                           .groups = groups,
                           .bias = true,
                           .weight = kolo_normal(0.02),
                           .bias_init = kolo_constant(0)};
    return kolo_conv(c->g, name, x, &spec);
}

static int norm(const convnext *c, const char *name, int x) { return kolo_layer_norm(c->g, name, x, 1e-6); }

static int linear(const convnext *c, const char *name, int x, int64_t out)
{
    return kolo_linear(c->g, name, x, out, true, kolo_normal(0.02), kolo_constant(0));
}

/* name: of the block; output: of what it gives */
static int block(convnext *c, const char *name, const char *output, int x)
{
    const int64_t channels = kolo_channels(c->g, x), dim[] = {channels, 1, 1};
    const kolo_part inner = kolo_part_of(name, "block");
    int scale = kolo_param(c->g, kolo_part_of(name, "layer_scale").text, 3, dim, kolo_constant(1e-6), false);
    if (scale < 0) return scale;
    int y = conv(c, kolo_numbered(inner.text, 0).text, x, channels, 7, 1, 3, channels);
    y = norm(c, kolo_numbered(inner.text, 2).text, y);
    y = linear(c, kolo_numbered(inner.text, 3).text, y, 4 * channels);
    y = kolo_activate(c->g, kolo_numbered(inner.text, 4).text, y, KOLO_GELU, 0);
    y = linear(c, kolo_numbered(inner.text, 5).text, y, channels);
    return kolo_residual(c->g, output, x, y, scale, kolo_drop_at(c->drop_path, c->block++, c->blocks));
}

int kolo_build_convnext(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    convnext c = {.g = g, .drop_path = config->drop_path};
    for (int s = 0; s < 4; s++) c.blocks += model->blocks[s];
    x = norm(&c, "features.0.1", conv(&c, "features.0.0", x, model->planes, 4, 4, 0, 1));
    for (int s = 0; s < 4; s++) {
        const kolo_part stage = kolo_numbered("features", 2 * s + 1),
                        before = kolo_numbered("features", 2 * s);
        if (s > 0) {
            x = norm(&c, kolo_numbered(before.text, 0).text, x);
            x = conv(&c, kolo_numbered(before.text, 1).text, x, (int64_t)model->planes << s, 2, 2, 0, 1);
        }
        for (int b = 0; b < model->blocks[s]; b++) { /* the last block's output bears the name of the stage */
            const kolo_part name = kolo_numbered(stage.text, b);
            x = block(&c, name.text, b == model->blocks[s] - 1 ? stage.text : name.text, x);
        }
    }
    x = kolo_global_avg_pool(g, "avgpool", x);
    x = norm(&c, "classifier.0", x);
    return linear(&c, "classifier.2", x, config->classes);
}
