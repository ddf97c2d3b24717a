/* Lists of images, with tabs. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_source("list", fuzz_put("list.tsv", data, bytes), NULL);
    return 0;
}
