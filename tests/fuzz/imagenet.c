/* ImageNet: the input is a tar of images or of class tars; if it has no zero byte, the labels of
 * a tar of one image. */
#include <stdio.h>
#include <string.h>

#include "input.h"

/* A member of no bytes, and the end of the tar. */
static const char *one_image(void)
{
    static char tar[3 * 512];
    unsigned sum = 0;
    memset(tar, 0, sizeof tar);
    memcpy(tar, "ILSVRC2012_val_00000001.JPEG", 28);
    memcpy(tar + 124, "00000000000", 11);
    tar[156] = '0';
    memset(tar + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += (unsigned char)tar[i];
    snprintf(tar + 148, 8, "%06o", sum);
    return fuzz_put("one.tar", tar, sizeof tar);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *image, *map, *ids;
    static const char synset[] = "ILSVRC2012_val_00000001 n01440764\n";
    if (!image) {
        image = one_image();
        map = fuzz_put("map.txt", synset, strlen(synset));
        ids = fuzz_put("ids.txt", "1 n01440764\n", 12);
    }
    if (bytes && memchr(data, 0, bytes))
        fuzz_source("imagenet-tar", fuzz_put("n01440764.tar", data, bytes), map);
    else fuzz_source_of_two("imagenet-tar", image, fuzz_put("labels.txt", data, bytes), ids);
    return 0;
}
