/* Safetensors: every tensor's name, shape and data. */
#include "ckpt/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "input.h"

static void look_at(const kolo_weights *weights, const kolo_weight *w, size_t bytes)
{
    int64_t count = 1;
    for (int k = 0; k < w->rank; k++) count *= w->dim[k];
    fuzz_require(w->bytes <= bytes && (size_t)count * kolo_dtype_size(w->type) == w->bytes,
                 "as long as its shape says");
    fuzz_require(kolo_weights_find(weights, w->name) == w, "found by its name");
    if (w->type == KOLO_I64) return;
    float *values = malloc(sizeof *values * (size_t)count + 1);
    kolo_weight_to_f32(w, values, count);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    kolo_weights *weights = NULL;
    if (!fuzz_taken(kolo_weights_open(&weights, fuzz_put("a.safetensors", data, bytes), NULL))) return 0;
    for (int i = 0; i < kolo_weights_count(weights); i++)
        look_at(weights, kolo_weights_at(weights, i), bytes);
    kolo_weights_close(&weights);
    return 0;
}
