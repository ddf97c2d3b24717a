/* A value of LMDB: Caffe's Datum. */
#include "readers/datum.h"

#include <stdlib.h>

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    datum d;
    if (!fuzz_taken(datum_read(data, bytes, &d))) return 0;
    fuzz_require(d.data >= data && d.data + d.bytes <= data + bytes, "its data lies in the message");
    fuzz_require(d.label >= -1 && d.label <= INT32_MAX, "a label, or none");
    if (d.encoded) return 0;
    uint8_t *pixels = malloc(d.bytes);
    datum_pixels(&d, data[0] & 1, pixels);
    uint64_t sums[2] = {0, 0};
    for (size_t i = 0; i < d.bytes; i++) sums[0] += pixels[i], sums[1] += d.data[i];
    fuzz_require(sums[0] == sums[1], "the same values in another order");
    free(pixels);
    return 0;
}
