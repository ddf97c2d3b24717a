/* ResNet-18, 34, 50, 101, 152 for pictures of about 224 pixels. Names, initialisation and version 1.5 (the stride of a
 * bottleneck is in its 3x3 convolution) as in torchvision, so that weights can be exchanged. */
#include "kolo/error.h"
#include "models/layers.h"

typedef struct resnet {
    kolo_graph *g;
    bool bottleneck;
    double last_norm; /* initial weight of the norm before a block's addition */
} resnet;

static int conv(const resnet *r, const char *name, int x, int64_t out, int64_t kernel, int64_t stride)
{
    kolo_conv_spec spec = {.out = out,
                           .kernel = {kernel, kernel},
                           .stride = {stride, stride},
                           .pad = {kernel / 2, kernel / 2},
                           .weight = kolo_kaiming_normal(kernel * kernel * out)};
    return kolo_conv(r->g, name, x, &spec);
}

static int norm(const resnet *r, const char *name, int x, double weight)
{
    return kolo_batch_norm(r->g, name, x, 1e-5, 0.1, weight);
}

/* convN, bnN, relu */
static int unit(const resnet *r, const char *block, int n, int x, int64_t out, int64_t kernel, int64_t stride)
{
    char part[3][16];
    snprintf(part[0], sizeof part[0], "conv%d", n);
    snprintf(part[1], sizeof part[1], "bn%d", n);
    snprintf(part[2], sizeof part[2], "relu%d", n);
    x = conv(r, kolo_part_of(block, part[0]).text, x, out, kernel, stride);
    x = norm(r, kolo_part_of(block, part[1]).text, x, 1);
    return kolo_relu(r->g, kolo_part_of(block, part[2]).text, x);
}

/* Adds the block's input (x, through a 1x1 convolution where the shape changes) to its branch y. */
static int join(const resnet *r, const char *block, const char *output, int x, int y, int64_t out, int64_t stride)
{
    if (x < 0 || y < 0) return x < 0 ? x : y;
    if (stride != 1 || r->g->tensor[x].dim[1] != out) {
        x = conv(r, kolo_part_of(block, "downsample.0").text, x, out, 1, stride);
        x = norm(r, kolo_part_of(block, "downsample.1").text, x, 1);
    }
    return kolo_relu(r->g, output, kolo_add(r->g, kolo_part_of(block, "add").text, y, x));
}

static int basic_block(const resnet *r, const char *block, const char *output, int x, int64_t planes, int64_t stride)
{
    int y = unit(r, block, 1, x, planes, 3, stride);
    y = conv(r, kolo_part_of(block, "conv2").text, y, planes, 3, 1);
    y = norm(r, kolo_part_of(block, "bn2").text, y, r->last_norm);
    return join(r, block, output, x, y, planes, stride);
}

static int bottleneck_block(const resnet *r, const char *block, const char *output, int x, int64_t planes,
                            int64_t stride)
{
    int y = unit(r, block, 1, x, planes, 1, 1);
    y = unit(r, block, 2, y, planes, 3, stride);
    y = conv(r, kolo_part_of(block, "conv3").text, y, 4 * planes, 1, 1);
    y = norm(r, kolo_part_of(block, "bn3").text, y, r->last_norm);
    return join(r, block, output, x, y, 4 * planes, stride);
}

/* layerS: its last block's output bears the name of the stage */
static int stage(const resnet *r, int s, int x, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        char block[32], output[32];
        snprintf(block, sizeof block, "layer%d.%d", s, b);
        snprintf(output, sizeof output, b == blocks - 1 ? "layer%d" : "layer%d.%d", s, b);
        int64_t planes = INT64_C(32) << s, stride = b == 0 && s > 1 ? 2 : 1;
        x = (r->bottleneck ? bottleneck_block : basic_block)(r, block, output, x, planes, stride);
    }
    return x;
}

int kolo_build_resnet(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    static const struct {
        int depth;
        bool bottleneck;
        int blocks[4];
    } shape[] = {
        {18, false, {2, 2, 2, 2}},  {34, false, {3, 4, 6, 3}},  {50, true, {3, 4, 6, 3}},
        {101, true, {3, 4, 23, 3}}, {152, true, {3, 8, 36, 3}},
    };
    int i = 0, depths = sizeof shape / sizeof *shape;
    while (i < depths && shape[i].depth != model->argument) i++;
    if (i == depths) return kolo_fail(KOLO_EINTERNAL, "no ResNet of depth %d is described", model->argument);
    resnet r = {g, shape[i].bottleneck, config->zero_init_residual ? 0 : 1};
    x = conv(&r, "conv1", x, 64, 7, 2);
    x = kolo_relu(g, "relu", norm(&r, "bn1", x, 1));
    x = kolo_max_pool(g, "maxpool", x, 3, 2, 1);
    for (int s = 1; s <= 4; s++) x = stage(&r, s, x, shape[i].blocks[s - 1]);
    x = kolo_global_avg_pool(g, "avgpool", x);
    kolo_init init = kolo_uniform_fan_in(kolo_features(g, x));
    return kolo_linear(g, "fc", x, config->classes, true, init, init);
}
