/* Rows of YFCC100M: metadata of 23 or 25 columns, or, by the first line, autotags of the photo 1.jpg. */
#include <string.h>

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char *photo;
    static const char row[] = "0\t1\tab\tu\tn\td\tc\tT\tx\ty\tred+car,%41b\tm\t1\t2\t3\tp\thttp://a/"
                              "1.jpg\tl\tL\ts\tf\tS\to\tjpg\t0\n";
    if (!photo) photo = fuzz_put("photos/1.jpg", "", 0), fuzz_put("rows", row, strlen(row));
    const char *rows = fuzz_put("rows", row, strlen(row)), *input = fuzz_put("input", data, bytes);
    char folder[320];
    memcpy(folder, photo, strlen(photo) + 1);
    *strrchr(folder, '/') = 0;
    const uint8_t *end = bytes ? memchr(data, '\n', bytes) : NULL;
    int tabs = 0;
    for (const uint8_t *p = data; p < (end ? end : data + bytes); p++) tabs += *p == '\t';
    if (tabs == 1) fuzz_source_of_two("yfcc100m", folder, rows, input);
    else fuzz_source("yfcc100m", folder, input);
    return 0;
}
