/* PyTorch's files: the archive and the older form; every tensor's name, shape and data. */
#include <stdlib.h>

#include "ckpt/weights.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    kolo_weights *weights = NULL;
    if (!fuzz_taken(kolo_weights_open(&weights, fuzz_put("a.pth", data, bytes), NULL))) return 0;
    for (int i = 0; i < kolo_weights_count(weights); i++) {
        const kolo_weight *w = kolo_weights_at(weights, i);
        int64_t count = 1;
        for (int k = 0; k < w->rank; k++) count *= w->dim[k];
        fuzz_require(count >= 0 && (size_t)count * kolo_dtype_size(w->type) == w->bytes,
                     "as long as its shape says");
        fuzz_require(w->stride || w->bytes <= 64 * bytes, "no more than the file can hold");
        fuzz_require(kolo_weights_find(weights, w->name) == w, "found by its name");
        if (w->bytes > 64 * bytes) continue; /* expanded: read where a network has as many */
        float *values = malloc(sizeof *values * (size_t)count + 1);
        kolo_weight_to_f32(w, values, count);
        free(values);
    }
    kolo_weights_close(&weights);
    return 0;
}
