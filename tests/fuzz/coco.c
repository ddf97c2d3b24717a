/* COCO's file of instances. The image 0.jpg is there. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    if (!ready) fuzz_put("0.jpg", "", 0);
    ready = true;
    fuzz_source("coco-json", fuzz_folder(), fuzz_put("instances_train.json", data, bytes));
    return 0;
}
