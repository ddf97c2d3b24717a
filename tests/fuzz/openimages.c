/* Comma separated values of Open Images: the input is the file of classes if it names no ImageID,
 * else boxes or labels. */
#include <string.h>

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char classes[] = "/m/a,Cat\n/m/b,Dog\n",
                      labels[] = "ImageID,Source,LabelName,Confidence\n0,x,/m/a,1\n";
    const bool is_table = bytes && memmem(data, bytes, "ImageID", 7);
    fuzz_put("train/0.jpg", "", 0);
    fuzz_put("class-descriptions-boxable.csv", is_table ? (const void *)classes : data,
             is_table ? strlen(classes) : bytes);
    fuzz_put("train-annotations-bbox.csv", is_table ? (const void *)data : labels,
             is_table ? bytes : strlen(labels));
    fuzz_source("openimages-csv", fuzz_folder(), NULL);
    return 0;
}
