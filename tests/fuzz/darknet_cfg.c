/* cfg files of darknet: what is taken is a network, for training and for evaluation. */
#include "input.h"
#include "kolo/error.h"
#include "models/models.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *path = fuzz_put("net.cfg", data, bytes);
    for (int train = 0; train < 2; train++) {
        const kolo_model_config config = {.rows = 1, .std = {1, 1, 1, 1}, .train = train};
        kolo_graph *g = NULL;
        if (fuzz_taken_or(kolo_model_graph(&g, path, &config), KOLO_ECONFIG)) kolo_graph_destroy(&g);
    }
    return 0;
}
