/* A file of pairs of Labeled Faces in the Wild; two people are there. */
#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static bool ready;
    if (!ready) {
        fuzz_put("lfw/A/A_0001.jpg", "", 0);
        fuzz_put("lfw/A/A_0002.jpg", "", 0);
        fuzz_put("lfw/B/B_0001.jpg", "", 0);
        fuzz_put("lfw/B/B_0002.jpg", "", 0);
    }
    ready = true;
    fuzz_source("lfw", fuzz_folder(), fuzz_put("pairsDevTrain.txt", data, bytes));
    return 0;
}
