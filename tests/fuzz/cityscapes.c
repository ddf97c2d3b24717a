/* The polygons of one image of Cityscapes. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    if (!ready) fuzz_put("leftImg8bit/train/a/a_0_leftImg8bit.png", "", 0);
    ready = true;
    fuzz_put("gtFine/train/a/a_0_gtFine_polygons.json", data, bytes);
    fuzz_source("cityscapes", fuzz_folder(), NULL);
    return 0;
}
