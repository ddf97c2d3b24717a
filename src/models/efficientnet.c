/* EfficientNet-B0 to B4: inverted bottlenecks (1x1 to more channels, depthwise, squeeze and excitation, 1x1
 * back), the same in all but for factors on channels and blocks. Names and initialisation as in torchvision;
 * stochastic depth grows with the block. */
#include "models/layers.h"

typedef struct efficientnet {
    kolo_graph *g;
    double width_factor, depth_factor, drop_path;
    int block, blocks; /* the next one, of so many */
} efficientnet;

/* Table 1 of the paper, without the first and last convolution. */
static const struct {
    int expand, kernel, stride, in, out, blocks;
} table[] = {
    {1, 3, 1, 32, 16, 1},  {6, 3, 2, 16, 24, 2},   {6, 5, 2, 24, 40, 2},   {6, 3, 2, 40, 80, 3},
    {6, 5, 1, 80, 112, 3}, {6, 5, 2, 112, 192, 4}, {6, 3, 1, 192, 320, 1},
};
enum { STAGES = sizeof table / sizeof *table };

/* The nearest multiple of 8, but not less than nine tenths. */
static int64_t channels_of(const efficientnet *e, int base)
{
    const double want = base * e->width_factor;
    int64_t channels = (int64_t)(want + 4) / 8 * 8;
    if (channels < 8) channels = 8;
    return (double)channels < 0.9 * want ? channels + 8 : channels;
}

static int blocks_of(const efficientnet *e, int base) { return (int)ceil(base * e->depth_factor); }

/* NAME.0 convolution, NAME.1 norm, NAME.2 SiLU unless it is linear */
static int unit(const efficientnet *e, const char *name, int x, int64_t out, int64_t kernel, int64_t stride,
                int64_t groups, bool silu)
{
    x = kolo_plain_conv(e->g, kolo_numbered(name, 0).text, x, out, kernel, stride, groups);
    x = kolo_batch_norm(e->g, kolo_numbered(name, 1).text, x, 1e-5, 0.1, 1);
    return silu ? kolo_activate(e->g, kolo_numbered(name, 2).text, x, KOLO_SILU, 0) : x;
}

/* A factor for each channel from the means of all. */
static int squeeze_excite(const efficientnet *e, const char *name, int x, int64_t squeezed)
{
    const int64_t channels = kolo_channels(e->g, x);
    int s = kolo_global_avg_pool(e->g, kolo_part_of(name, "avgpool").text, x);
    s = kolo_pointwise(e->g, kolo_part_of(name, "fc1").text, s, squeezed, true, kolo_kaiming_normal(squeezed),
                       kolo_constant(0));
    s = kolo_activate(e->g, kolo_part_of(name, "activation").text, s, KOLO_SILU, 0);
    s = kolo_pointwise(e->g, kolo_part_of(name, "fc2").text, s, channels, true, kolo_kaiming_normal(channels),
                       kolo_constant(0));
    s = kolo_activate(e->g, kolo_part_of(name, "scale_activation").text, s, KOLO_SIGMOID, 0);
    return kolo_gate(e->g, name, x, s);
}

static int block(efficientnet *e, const char *name, int x, int expand, int64_t kernel, int64_t stride,
                 int64_t out)
{
    const kolo_part inner = kolo_part_of(name, "block");
    const int64_t in = kolo_channels(e->g, x), inside = in * expand;
    const double drop = e->drop_path * e->block++ / e->blocks;
    int part = 0, y = x;
    if (expand > 1) y = unit(e, kolo_numbered(inner.text, part++).text, y, inside, 1, 1, 1, true);
    y = unit(e, kolo_numbered(inner.text, part++).text, y, inside, kernel, stride, inside, true);
    y = squeeze_excite(e, kolo_numbered(inner.text, part++).text, y, in / 4 > 1 ? in / 4 : 1);
    y = unit(e, kolo_numbered(inner.text, part++).text, y, out, 1, 1, 1, false);
    return stride == 1 && in == out ? kolo_residual(e->g, name, x, y, -1, drop) : y;
}

int kolo_build_efficientnet(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    efficientnet e = {.g = g,
                      .width_factor = model->width_factor,
                      .depth_factor = model->depth_factor,
                      .drop_path = config->drop_path};
    for (int s = 0; s < STAGES; s++) e.blocks += blocks_of(&e, table[s].blocks);
    x = unit(&e, "features.0", x, channels_of(&e, table[0].in), 3, 2, 1, true);
    for (int s = 0; s < STAGES; s++) {
        const kolo_part stage = kolo_numbered("features", s + 1);
        for (int b = 0; b < blocks_of(&e, table[s].blocks); b++)
            x = block(&e, kolo_numbered(stage.text, b).text, x, table[s].expand, table[s].kernel,
                      b == 0 ? table[s].stride : 1, channels_of(&e, table[s].out));
    }
    x = unit(&e, kolo_numbered("features", STAGES + 1).text, x, 4 * channels_of(&e, table[STAGES - 1].out), 1,
             1, 1, true);
    x = kolo_dropout(g, "classifier.0", kolo_global_avg_pool(g, "avgpool", x), config->dropout);
    const kolo_init uniform = {KOLO_INIT_UNIFORM, 1 / sqrt((double)config->classes)};
    return kolo_linear(g, "classifier.1", x, config->classes, true, uniform, kolo_constant(0));
}
