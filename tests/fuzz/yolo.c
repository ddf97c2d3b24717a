/* A YOLO data set: the input is data.yaml if it has the word `names`, else the file of labels of one
 * image. */
#include <string.h>

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char config[] = "path: .\ntrain: images/train\nnames: {0: a, 1: b, 7: c}\n",
                      row[] = "0 .5 .5 .25 .25\n";
    const bool is_config = bytes && memmem(data, bytes, "names", 5);
    fuzz_put("images/train/0.jpg", "", 0);
    fuzz_put("data.yaml", is_config ? (const void *)data : config, is_config ? bytes : strlen(config));
    fuzz_put("labels/train/0.txt", is_config ? (const void *)row : data, is_config ? strlen(row) : bytes);
    fuzz_source("yolo-txt", fuzz_folder(), NULL);
    return 0;
}
