/* The orientation that an image states, in EXIF or (a TIFF) in its header: never an error, one of 1 to 8. */
#include "data/image/exif.h"

#include "input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const int orientation = kolo_exif_orientation(data, bytes);
    fuzz_require(orientation >= 1 && orientation <= 8, "an orientation");
    fuzz_taken(orientation);
    return 0;
}
