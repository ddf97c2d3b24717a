/* Three linear layers with ReLU between. PyTorch's default initialisation. */
#include "models/layers.h"

static int linear(kolo_graph *g, const char *name, int x, int64_t out)
{
    kolo_init init = kolo_uniform_fan_in(kolo_features(g, x));
    return kolo_linear(g, name, x, out, true, init, init);
}

int kolo_build_mlp(kolo_graph *g, int x, const kolo_model *model, const kolo_model_config *config)
{
    (void)model;
    x = kolo_flatten(g, "flatten", x);
    x = kolo_relu(g, "fc1.relu", linear(g, "fc1", x, 512));
    x = kolo_relu(g, "fc2.relu", linear(g, "fc2", x, 512));
    return linear(g, "fc3", x, config->classes);
}
