/* ResNet and its relatives for images of about 224 pixels: basic blocks or bottlenecks (version 1.5: the
 * stride is in the 3x3 convolution), grouped (ResNeXt) or widened (Wide-ResNet). Names and initialisation as
 * in torchvision, so that weights can be exchanged. Variant "d": a stem of three 3x3 convolutions, and an
 * average pool before a shortcut's 1x1 convolution; names as in timm. */
#include "models/layers.h"

typedef struct resnet {
    kolo_graph *g;
    bool d;
    int64_t group_planes, groups; /* group_planes 0: basic blocks */
    double last_norm;             /* initial weight of the norm before a block's addition */
} resnet;

static int norm(const resnet *r, const char *name, int x, double weight)
{
    return kolo_batch_norm(r->g, name, x, 1e-5, 0.1, weight);
}

/* convN, bnN, relu */
static int unit(const resnet *r, const char *block, int n, int x, int64_t out, int64_t kernel, int64_t stride,
                int64_t groups)
{
    char part[3][16];
    snprintf(part[0], sizeof part[0], "conv%d", n);
    snprintf(part[1], sizeof part[1], "bn%d", n);
    snprintf(part[2], sizeof part[2], "relu%d", n);
    x = kolo_plain_conv(r->g, kolo_part_of(block, part[0]).text, x, out, kernel, stride, groups);
    x = norm(r, kolo_part_of(block, part[1]).text, x, 1);
    return kolo_relu(r->g, kolo_part_of(block, part[2]).text, x);
}

/* A block's input in the shape of its output. */
static int shortcut(const resnet *r, const char *block, int x, int64_t out, int64_t stride)
{
    if (stride == 1 && kolo_channels(r->g, x) == out) return x;
    const char *const conv_name = r->d ? "downsample.1" : "downsample.0",
                      *norm_name = r->d ? "downsample.2" : "downsample.1";
    if (r->d && stride > 1) {
        x = kolo_avg_pool_same(r->g, kolo_part_of(block, "downsample.0").text, x, 2, stride);
        stride = 1;
    }
    x = kolo_plain_conv(r->g, kolo_part_of(block, conv_name).text, x, out, 1, stride, 1);
    return norm(r, kolo_part_of(block, norm_name).text, x, 1);
}

static int resnet_join(const resnet *r, const char *block, const char *output, int x, int y)
{
    return kolo_relu(r->g, output, kolo_add(r->g, kolo_part_of(block, "add").text, y, x));
}

static int basic_block(const resnet *r, const char *block, const char *output, int x, int64_t planes,
                       int64_t stride)
{
    int y = unit(r, block, 1, x, planes, 3, stride, 1);
    y = kolo_plain_conv(r->g, kolo_part_of(block, "conv2").text, y, planes, 3, 1, 1);
    y = norm(r, kolo_part_of(block, "bn2").text, y, r->last_norm);
    return resnet_join(r, block, output, shortcut(r, block, x, planes, stride), y);
}

static int bottleneck_block(const resnet *r, const char *block, const char *output, int x, int64_t planes,
                            int64_t stride)
{
    int64_t inside = planes * r->group_planes / 64 * r->groups;
    int y = unit(r, block, 1, x, inside, 1, 1, 1);
    y = unit(r, block, 2, y, inside, 3, stride, r->groups);
    y = kolo_plain_conv(r->g, kolo_part_of(block, "conv3").text, y, 4 * planes, 1, 1, 1);
    y = norm(r, kolo_part_of(block, "bn3").text, y, r->last_norm);
    return resnet_join(r, block, output, shortcut(r, block, x, 4 * planes, stride), y);
}

/* layerS: its last block's output bears the name of the stage */
static int stage(const resnet *r, int s, int x, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        char block[32], output[32];
        snprintf(block, sizeof block, "layer%d.%d", s, b);
        snprintf(output, sizeof output, b == blocks - 1 ? "layer%d" : "layer%d.%d", s, b);
        int64_t planes = INT64_C(32) << s, stride = b == 0 && s > 1 ? 2 : 1;
        x = (r->group_planes ? bottleneck_block : basic_block)(r, block, output, x, planes, stride);
    }
    return x;
}

static int stem(const resnet *r, int x)
{
    if (r->d) {
        x = kolo_relu(r->g, "conv1.2",
                      norm(r, "conv1.1", kolo_plain_conv(r->g, "conv1.0", x, 32, 3, 2, 1), 1));
        x = kolo_relu(r->g, "conv1.5",
                      norm(r, "conv1.4", kolo_plain_conv(r->g, "conv1.3", x, 32, 3, 1, 1), 1));
        x = kolo_plain_conv(r->g, "conv1.6", x, 64, 3, 1, 1);
    } else {
        x = kolo_plain_conv(r->g, "conv1", x, 64, 7, 2, 1);
    }
    x = kolo_relu(r->g, "relu", norm(r, "bn1", x, 1));
    return kolo_max_pool(r->g, "maxpool", x, 3, 2, 1);
}

int kolo_build_resnet(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    const resnet r = {.g = g,
                      .d = kolo_is_variant(model, "d"),
                      .group_planes = model->planes,
                      .groups = model->groups ? model->groups : 1,
                      .last_norm = config->zero_init_residual ? 0 : 1};
    x = stem(&r, x);
    for (int s = 1; s <= 4; s++) x = stage(&r, s, x, model->blocks[s - 1]);
    x = kolo_global_avg_pool(g, "avgpool", x);
    kolo_init init = kolo_uniform_fan_in(kolo_features(g, x));
    return kolo_linear(g, "fc", x, config->classes, true, init, init);
}
