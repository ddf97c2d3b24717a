/* A tar file of WebDataset: groups of members, their labels, the images' bytes. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_source("webdataset-tar", fuzz_put("a.tar", data, bytes), NULL);
    return 0;
}
