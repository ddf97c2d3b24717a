/* CIFAR binary records. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_source("cifar-bin", fuzz_put("train.bin", data, bytes), NULL);
    return 0;
}
