/* Swin transformer: 4x4 patches, then blocks of attention within windows of 7x7 pixels, which every second
 * block shifts by 3; between stages four pixels become one. Maps of any size: they are padded to whole
 * windows below and on the right as in torchvision, and where one window covers an axis that axis is not
 * shifted. Names and initialisation as in torchvision. */
#include "models/layers.h"

enum { WINDOW = 7, HEAD = 32 /* channels */ };

typedef struct swin {
    kolo_graph *g;
    double drop_path;
    int block, blocks; /* the next one, of so many */
} swin;

static int norm(const swin *s, const char *name, int x) { return kolo_layer_norm(s->g, name, x, 1e-5); }

static int linear(const swin *s, const char *name, int x, int64_t out, bool bias)
{
    return kolo_linear(s->g, name, x, out, bias, kolo_normal(0.02), kolo_constant(0));
}

/* x is padded after its norm, so that a pixel outside is a zero; its keys are then the bias of the layer. */
static int attention(const swin *s, const char *name, int x, bool shifted)
{
    if (x < 0) return x;
    kolo_graph *g = s->g;
    const int64_t channels = kolo_channels(g, x);
    int64_t more[2], shift[2];
    for (int axis = 0; axis < 2; axis++) {
        const int64_t size = g->tensor[x].dim[2 + axis];
        more[axis] = (WINDOW - size % WINDOW) % WINDOW;
        shift[axis] = shifted && size > WINDOW ? WINDOW / 2 : 0;
    }
    const bool pads = more[0] || more[1];
    if (pads) x = kolo_pad(g, kolo_part_of(name, "pad").text, x, more[0], more[1]);
    x = linear(s, kolo_part_of(name, "qkv").text, x, 3 * channels, true);
    x = kolo_window_attention(g, name, x, channels / HEAD, WINDOW, shift);
    x = linear(s, kolo_part_of(name, "proj").text, x, channels, true);
    return pads ? kolo_crop(g, kolo_part_of(name, "crop").text, x, more[0], more[1]) : x;
}

static int mlp(const swin *s, const char *name, int x)
{
    const int64_t channels = kolo_channels(s->g, x);
    x = linear(s, kolo_numbered(name, 0).text, x, 4 * channels, true);
    x = kolo_activate(s->g, kolo_numbered(name, 1).text, x, KOLO_GELU, 0);
    return linear(s, kolo_numbered(name, 3).text, x, channels, true);
}

/* name: of the block; output: of what it gives */
static int block(swin *s, const char *name, const char *output, int x, bool shifted)
{
    const double drop = kolo_drop_at(s->drop_path, s->block++, s->blocks);
    int y = norm(s, kolo_part_of(name, "norm1").text, x);
    y = attention(s, kolo_part_of(name, "attn").text, y, shifted);
    x = kolo_residual(s->g, kolo_part_of(name, "add").text, x, y, -1, drop);
    y = norm(s, kolo_part_of(name, "norm2").text, x);
    y = mlp(s, kolo_part_of(name, "mlp").text, y);
    return kolo_residual(s->g, output, x, y, -1, drop);
}

/* Half of the rows and columns, twice the channels. */
static int merge(const swin *s, const char *name, int x, int64_t channels)
{
    x = kolo_space_to_depth(s->g, kolo_part_of(name, "gather").text, x);
    x = norm(s, kolo_part_of(name, "norm").text, x);
    return linear(s, kolo_part_of(name, "reduction").text, x, channels, false);
}

static int embed(const swin *s, int x, int64_t channels)
{
    const kolo_init init = kolo_uniform_fan_in(16 * kolo_channels(s->g, x));
    kolo_conv_spec spec = {
        .out = channels, .kernel = {4, 4}, .stride = {4, 4}, .bias = true, .weight = init, .bias_init = init};
    return norm(s, "features.0.2", kolo_conv(s->g, "features.0.0", x, &spec));
}

int kolo_build_swin(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    swin s = {.g = g, .drop_path = config->drop_path};
    for (int i = 0; i < 4; i++) s.blocks += model->blocks[i];
    x = embed(&s, x, model->planes);
    for (int i = 0; i < 4; i++) {
        if (i > 0) x = merge(&s, kolo_numbered("features", 2 * i).text, x, (int64_t)model->planes << i);
        const kolo_part stage = kolo_numbered("features", 2 * i + 1);
        for (int b = 0; b < model->blocks[i]; b++) { /* the last block's output bears the name of the stage */
            const kolo_part name = kolo_numbered(stage.text, b);
            x = block(&s, name.text, b == model->blocks[i] - 1 ? stage.text : name.text, x, b % 2);
        }
    }
    x = kolo_global_avg_pool(g, "avgpool", norm(&s, "norm", x));
    return linear(&s, "head", x, config->classes, true);
}
