/* darknet's weights for a small network: two convolutions, one with a norm, and a linear layer. */
#include <stdlib.h>

#include "ckpt/weights.h"
#include "input.h"

static kolo_graph *network(void)
{
    static const float mean[4] = {.5f}, std[4] = {.5f};
    const kolo_conv_spec spec = {.out = 2, .kernel = {3, 3}, .stride = {2, 2}, .pad = {1, 1}};
    kolo_conv_spec biased = spec;
    biased.bias = true;
    kolo_graph *g;
    fuzz_require(kolo_graph_create(&g, "small", false, KOLO_F32) == 0, "a graph");
    int x = kolo_normalize(g, kolo_input(g, 1, 4, 4, 1, 1), mean, std);
    x = kolo_batch_norm(g, "norm", kolo_conv(g, "conv", x, &spec), 1e-5, .1, 1);
    x = kolo_flatten(g, "flatten", kolo_conv(g, "biased", x, &biased));
    x = kolo_linear(g, "linear", x, 3, true, (kolo_init){0}, (kolo_init){0});
    fuzz_require(kolo_cross_entropy(g, x, 0) >= 0, "a network");
    return g;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static kolo_graph *g;
    kolo_weights *weights = NULL;
    if (!g) g = network();
    if (!fuzz_taken(kolo_weights_open(&weights, fuzz_put("a.weights", data, bytes), g))) return 0;
    for (int i = 0; i < kolo_weights_count(weights); i++) {
        const kolo_weight *w = kolo_weights_at(weights, i);
        fuzz_require(w->bytes <= bytes, "no more than the file has");
        float *values = malloc(w->bytes);
        fuzz_require(values != NULL, "memory for the values");
        kolo_weight_to_f32(w, values, (int64_t)(w->bytes / sizeof *values));
        free(values);
    }
    kolo_weights_close(&weights);
    return 0;
}
