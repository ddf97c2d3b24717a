/* An LMDB of images or of Datums: its pages, keys and values. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_source("lmdb", fuzz_put("data.mdb", data, bytes), NULL);
    return 0;
}
