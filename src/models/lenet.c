/* LeNet-5 in its present form: ReLU and max pooling; the first convolution keeps 28 pixels. PyTorch's
 * default initialisation. */
#include "models/layers.h"

/* convolution, relu, 2x2 max pool */
static int stage(kolo_graph *g, const char *name, int x, int64_t out, int64_t pad)
{
    if (x < 0) return x;
    kolo_init init = kolo_uniform_fan_in(25 * g->tensor[x].dim[1]);
    kolo_conv_spec spec = {.out = out,
                           .kernel = {5, 5},
                           .stride = {1, 1},
                           .pad = {pad, pad},
                           .bias = true,
                           .weight = init,
                           .bias_init = init};
    x = kolo_relu(g, kolo_part_of(name, "relu").text, kolo_conv(g, name, x, &spec));
    return kolo_max_pool(g, kolo_part_of(name, "pool").text, x, 2, 2, 0);
}

static int linear(kolo_graph *g, const char *name, int x, int64_t out)
{
    kolo_init init = kolo_uniform_fan_in(kolo_features(g, x));
    return kolo_linear(g, name, x, out, true, init, init);
}

int kolo_build_lenet(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    (void)model;
    x = stage(g, "conv1", x, 6, 2);
    x = stage(g, "conv2", x, 16, 0);
    x = kolo_flatten(g, "flatten", x);
    x = kolo_relu(g, "fc1.relu", linear(g, "fc1", x, 120));
    x = kolo_relu(g, "fc2.relu", linear(g, "fc2", x, 84));
    return linear(g, "fc3", x, config->classes);
}
