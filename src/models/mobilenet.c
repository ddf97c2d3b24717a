/* MobileNetV2 and V3: inverted residuals (1x1 to more channels, depthwise, 1x1 back), in V3 with squeeze and
 * excitation and hard activations. Names and initialisation as in torchvision: a block is "conv" in V2,
 * "block" in V3, and its last part in V2 is a convolution and a norm without a module of their own. */
#include "models/layers.h"

enum { RELU, RELU6, HARD_SWISH };

typedef struct mobilenet {
    kolo_graph *g;
    double epsilon, momentum; /* of norms */
} mobilenet;

static int activate(const mobilenet *m, const char *name, int x, int activation)
{
    if (activation == RELU) return kolo_relu(m->g, name, x);
    return kolo_activate(m->g, name, x, activation == RELU6 ? KOLO_RELU6 : KOLO_HARD_SWISH, 0);
}

static int norm(const mobilenet *m, const char *name, int x)
{
    return kolo_batch_norm(m->g, name, x, m->epsilon, m->momentum, 1);
}

/* NAME.0 convolution, NAME.1 norm, NAME.2 activation; activation -1: none */
static int unit(const mobilenet *m, const char *name, int x, int64_t out, int64_t kernel, int64_t stride,
                int64_t groups, int activation)
{
    x = kolo_plain_conv(m->g, kolo_numbered(name, 0).text, x, out, kernel, stride, groups);
    x = norm(m, kolo_numbered(name, 1).text, x);
    return activation < 0 ? x : activate(m, kolo_numbered(name, 2).text, x, activation);
}

static int join(const mobilenet *m, const char *name, int x, int y, int64_t stride)
{
    return stride == 1 && kolo_channels(m->g, x) == kolo_channels(m->g, y) ? kolo_add(m->g, name, x, y) : y;
}

static kolo_init classifier_init(void) { return kolo_normal(0.01); }

/* ---- V2: Sandler et al., table 2 ----------------------------------------------------------------------- */

static const struct {
    int expand, out, blocks, stride;
} v2[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
          {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

static int v2_block(const mobilenet *m, const char *name, int x, int expand, int64_t out, int64_t stride)
{
    const kolo_part inner = kolo_part_of(name, "conv");
    const int64_t inside = kolo_channels(m->g, x) * expand;
    int part = 0, y = x;
    if (expand > 1) y = unit(m, kolo_numbered(inner.text, part++).text, y, inside, 1, 1, 1, RELU6);
    y = unit(m, kolo_numbered(inner.text, part++).text, y, inside, 3, stride, inside, RELU6);
    y = kolo_plain_conv(m->g, kolo_numbered(inner.text, part++).text, y, out, 1, 1, 1);
    y = norm(m, kolo_numbered(inner.text, part).text, y);
    return join(m, name, x, y, stride);
}

int kolo_build_mobilenet_v2(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    (void)model;
    const mobilenet m = {g, 1e-5, 0.1};
    int number = 1;
    x = unit(&m, "features.0", x, 32, 3, 2, 1, RELU6);
    for (size_t s = 0; s < sizeof v2 / sizeof *v2; s++)
        for (int b = 0; b < v2[s].blocks; b++)
            x = v2_block(&m, kolo_numbered("features", number++).text, x, v2[s].expand, v2[s].out,
                         b == 0 ? v2[s].stride : 1);
    x = unit(&m, kolo_numbered("features", number).text, x, 1280, 1, 1, 1, RELU6);
    x = kolo_dropout(g, "classifier.0", kolo_global_avg_pool(g, "avgpool", x), config->dropout);
    return kolo_linear(g, "classifier.1", x, config->classes, true, classifier_init(), kolo_constant(0));
}

/* ---- V3: Howard et al., tables 1 and 2 ----------------------------------------------------------------- */

typedef struct v3_row {
    int kernel, inside, out;
    bool squeeze;
    int activation, stride;
} v3_row;

static const v3_row large[] = {
    {3, 16, 16, false, RELU, 1},        {3, 64, 24, false, RELU, 2},
    {3, 72, 24, false, RELU, 1},        {5, 72, 40, true, RELU, 2},
    {5, 120, 40, true, RELU, 1},        {5, 120, 40, true, RELU, 1},
    {3, 240, 80, false, HARD_SWISH, 2}, {3, 200, 80, false, HARD_SWISH, 1},
    {3, 184, 80, false, HARD_SWISH, 1}, {3, 184, 80, false, HARD_SWISH, 1},
    {3, 480, 112, true, HARD_SWISH, 1}, {3, 672, 112, true, HARD_SWISH, 1},
    {5, 672, 160, true, HARD_SWISH, 2}, {5, 960, 160, true, HARD_SWISH, 1},
    {5, 960, 160, true, HARD_SWISH, 1},
};
static const v3_row small[] = {
    {3, 16, 16, true, RELU, 2},        {3, 72, 24, false, RELU, 2},       {3, 88, 24, false, RELU, 1},
    {5, 96, 40, true, HARD_SWISH, 2},  {5, 240, 40, true, HARD_SWISH, 1}, {5, 240, 40, true, HARD_SWISH, 1},
    {5, 120, 48, true, HARD_SWISH, 1}, {5, 144, 48, true, HARD_SWISH, 1}, {5, 288, 96, true, HARD_SWISH, 2},
    {5, 576, 96, true, HARD_SWISH, 1}, {5, 576, 96, true, HARD_SWISH, 1},
};

/* The nearest multiple of 8, but not less than nine tenths. */
static int64_t eights(int64_t want)
{
    int64_t channels = (want + 4) / 8 * 8;
    if (channels < 8) channels = 8;
    return 10 * channels < 9 * want ? channels + 8 : channels;
}

/* A factor for each channel from the means of all. */
static int squeeze_excite(const mobilenet *m, const char *name, int x)
{
    const int64_t channels = kolo_channels(m->g, x), squeezed = eights(channels / 4);
    int s = kolo_global_avg_pool(m->g, kolo_part_of(name, "avgpool").text, x);
    s = kolo_pointwise(m->g, kolo_part_of(name, "fc1").text, s, squeezed, true, kolo_kaiming_normal(squeezed),
                       kolo_constant(0));
    s = kolo_relu(m->g, kolo_part_of(name, "activation").text, s);
    s = kolo_pointwise(m->g, kolo_part_of(name, "fc2").text, s, channels, true, kolo_kaiming_normal(channels),
                       kolo_constant(0));
    s = kolo_activate(m->g, kolo_part_of(name, "scale_activation").text, s, KOLO_HARD_SIGMOID, 0);
    return kolo_gate(m->g, name, x, s);
}

static int v3_block(const mobilenet *m, const char *name, int x, const v3_row *row)
{
    const kolo_part inner = kolo_part_of(name, "block");
    int part = 0, y = x;
    if (row->inside != kolo_channels(m->g, x))
        y = unit(m, kolo_numbered(inner.text, part++).text, y, row->inside, 1, 1, 1, row->activation);
    y = unit(m, kolo_numbered(inner.text, part++).text, y, row->inside, row->kernel, row->stride, row->inside,
             row->activation);
    if (row->squeeze) y = squeeze_excite(m, kolo_numbered(inner.text, part++).text, y);
    y = unit(m, kolo_numbered(inner.text, part).text, y, row->out, 1, 1, 1, -1);
    return join(m, name, x, y, row->stride);
}

int kolo_build_mobilenet_v3(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    const mobilenet m = {g, 1e-3, 0.01};
    const bool is_small = kolo_is_variant(model, "small");
    const v3_row *row = is_small ? small : large;
    const int rows = (int)(is_small ? sizeof small : sizeof large) / (int)sizeof *row;
    x = unit(&m, "features.0", x, 16, 3, 2, 1, HARD_SWISH);
    for (int i = 0; i < rows; i++) x = v3_block(&m, kolo_numbered("features", i + 1).text, x, &row[i]);
    x = unit(&m, kolo_numbered("features", rows + 1).text, x, 6 * kolo_channels(g, x), 1, 1, 1, HARD_SWISH);
    x = kolo_global_avg_pool(g, "avgpool", x);
    x = kolo_linear(g, "classifier.0", x, is_small ? 1024 : 1280, true, classifier_init(), kolo_constant(0));
    x = kolo_activate(g, "classifier.1", x, KOLO_HARD_SWISH, 0);
    x = kolo_dropout(g, "classifier.2", x, config->dropout);
    return kolo_linear(g, "classifier.3", x, config->classes, true, classifier_init(), kolo_constant(0));
}
