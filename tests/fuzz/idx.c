/* IDX: the input is the file of images or of labels, told by its number of axes; the
 * other one is made to fit. */
#include <stdlib.h>

#include "input.h"

static uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static uint8_t other[16 + 4096];
    const bool labels = bytes >= 4 && data[3] == 1;
    /* of packed files it is not seen */
    const uint32_t told = bytes >= 8 && data[0] == 0 ? big32(data + 4) : 16;
    const uint32_t n = told < 4096 ? told : 4096;
    other[2] = 8, other[3] = labels ? 3 : 1;
    other[4] = other[5] = 0, other[6] = (uint8_t)(n >> 8), other[7] = (uint8_t)n;
    for (int i = 8; i < 16; i++) other[i] = labels && i % 4 == 3;
    for (uint32_t i = 0; i < n; i++) other[(labels ? 16 : 8) + i] = (uint8_t)(i % 10);
    fuzz_put(labels ? "train-labels-idx1-ubyte" : "train-images-idx3-ubyte", data, bytes);
    fuzz_put(labels ? "train-images-idx3-ubyte" : "train-labels-idx1-ubyte", other, (labels ? 16 : 8) + n);
    fuzz_source("mnist-idx", fuzz_folder(), NULL);
    return 0;
}
