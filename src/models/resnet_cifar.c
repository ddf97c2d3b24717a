/* ResNet-20, 32, 44, 56, 110 for images of 32 pixels: three stages of basic blocks with 16, 32, 64
 * channels. Where the shape changes, the shortcut takes every second pixel and pads with zero channels ("a",
 * the paper's), or is a 1x1 convolution with batch norm ("b"). Names and initialisation as in
 * akamaster/pytorch_resnet_cifar10. */
#include "kolo/error.h"
#include "models/layers.h"

typedef struct resnet_cifar {
    kolo_graph *g;
    bool projection;  /* shortcut b */
    double last_norm; /* initial weight of the norm before a block's addition */
} resnet_cifar;

static int conv(const resnet_cifar *r, const char *name, int x, int64_t out, int64_t kernel, int64_t stride)
{
    if (x < 0) return x;
    kolo_conv_spec spec = {.out = out,
                           .kernel = {kernel, kernel},
                           .stride = {stride, stride},
                           .pad = {kernel / 2, kernel / 2},
                           .weight = kolo_kaiming_normal(kernel * kernel * r->g->tensor[x].dim[1])};
    return kolo_conv(r->g, name, x, &spec);
}

static int norm(const resnet_cifar *r, const char *name, int x, double weight)
{
    return kolo_batch_norm(r->g, name, x, 1e-5, 0.1, weight);
}

static int shortcut(const resnet_cifar *r, const char *block, int x, int64_t planes, int64_t stride)
{
    if (x < 0 || (stride == 1 && r->g->tensor[x].dim[1] == planes)) return x;
    if (!r->projection) return kolo_shortcut_a(r->g, kolo_part_of(block, "shortcut").text, x, planes);
    x = conv(r, kolo_part_of(block, "shortcut.0").text, x, planes, 1, stride);
    return norm(r, kolo_part_of(block, "shortcut.1").text, x, 1);
}

static int basic_block(const resnet_cifar *r, const char *block, const char *output, int x, int64_t planes,
                       int64_t stride)
{
    int y = conv(r, kolo_part_of(block, "conv1").text, x, planes, 3, stride);
    y = norm(r, kolo_part_of(block, "bn1").text, y, 1);
    y = kolo_relu(r->g, kolo_part_of(block, "relu1").text, y);
    y = conv(r, kolo_part_of(block, "conv2").text, y, planes, 3, 1);
    y = norm(r, kolo_part_of(block, "bn2").text, y, r->last_norm);
    x = shortcut(r, block, x, planes, stride);
    return kolo_relu(r->g, output, kolo_add(r->g, kolo_part_of(block, "add").text, y, x));
}

static int choose_shortcut(const char *word, bool *projection)
{
    *projection = word && !strcmp(word, "b");
    if (!word || !*word || *projection || !strcmp(word, "a")) return 0;
    return kolo_fail(KOLO_ECONFIG, "shortcut=%s: a (no parameters) and b (1x1 convolution) are possible",
                     word);
}

int kolo_build_resnet_cifar(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    resnet_cifar r = {.g = g, .last_norm = config->zero_init_residual ? 0 : 1};
    KOLO_TRY(choose_shortcut(config->shortcut, &r.projection));
    x = kolo_relu(g, "relu", norm(&r, "bn1", conv(&r, "conv1", x, 16, 3, 1), 1));
    for (int s = 1; s <= 3; s++) {
        const int blocks = model->blocks[s - 1];
        for (int b = 0; b < blocks; b++) { /* the last block's output bears the name of the stage */
            char block[32], output[32];
            snprintf(block, sizeof block, "layer%d.%d", s, b);
            snprintf(output, sizeof output, b == blocks - 1 ? "layer%d" : "layer%d.%d", s, b);
            x = basic_block(&r, block, output, x, INT64_C(8) << s, b == 0 && s > 1 ? 2 : 1);
        }
    }
    x = kolo_global_avg_pool(g, "avgpool", x);
    int64_t features = kolo_features(g, x);
    return kolo_linear(g, "linear", x, config->classes, true, kolo_kaiming_normal(features),
                       kolo_uniform_fan_in(features));
}
