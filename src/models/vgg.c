/* VGG-11, 13, 16, 19: stages of 3x3 convolutions, each halved by max pooling; averaged to 7x7 pixels,
 * whatever the size, before three linear layers. Variant "bn": batch norm after every convolution. Names
 * (modules of one list, counted) and initialisation as in torchvision. */
#include "models/layers.h"

/* convolution, [norm,] relu: modules *at, ... of the list */
static int unit(kolo_graph *g, int x, int64_t out, bool norm, int *at)
{
    kolo_conv_spec spec = {.out = out,
                           .kernel = {3, 3},
                           .stride = {1, 1},
                           .pad = {1, 1},
                           .bias = true,
                           .weight = kolo_kaiming_normal(9 * out),
                           .bias_init = kolo_constant(0)};
    x = kolo_conv(g, kolo_numbered("features", (*at)++).text, x, &spec);
    if (norm) x = kolo_batch_norm(g, kolo_numbered("features", (*at)++).text, x, 1e-5, 0.1, 1);
    return kolo_relu(g, kolo_numbered("features", (*at)++).text, x);
}

static int linear(kolo_graph *g, const char *name, int x, int64_t out)
{
    return kolo_linear(g, name, x, out, true, kolo_normal(0.01), kolo_constant(0));
}

int kolo_build_vgg(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    int at = 0;
    for (int s = 0; s < 5; s++) {
        for (int b = 0; b < model->blocks[s]; b++)
            x = unit(g, x, s < 3 ? INT64_C(64) << s : 512, kolo_is_variant(model, "bn"), &at);
        x = kolo_max_pool(g, kolo_numbered("features", at++).text, x, 2, 2, 0);
    }
    x = kolo_flatten(g, "flatten", kolo_adaptive_avg_pool(g, "avgpool", x, 7, 7));
    x = kolo_relu(g, "classifier.1", linear(g, "classifier.0", x, 4096));
    x = kolo_dropout(g, "classifier.2", x, config->dropout);
    x = kolo_relu(g, "classifier.4", linear(g, "classifier.3", x, 4096));
    x = kolo_dropout(g, "classifier.5", x, config->dropout);
    return linear(g, "classifier.6", x, config->classes);
}
