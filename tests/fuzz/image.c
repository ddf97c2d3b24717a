/* Image files of every kind: in their colours, gray and RGB; a part of a JPEG at a quarter of its size. */
#include <stdlib.h>
#include <string.h>

#include "data/image/jpeg.h"
#include "input.h"
#include "kolo/error.h"

#define MOST_PIXELS (1 << 22) /* larger ones only cost time */

static int64_t sum_of(const kolo_image *p)
{
    int64_t sum = 0;
    for (size_t i = 0; i < (size_t)p->height * (size_t)p->width * (size_t)p->channels; i++)
        sum += p->pixels[i];
    return sum;
}

static void part(kolo_jpeg *jpeg, const uint8_t *data, size_t bytes, const kolo_jpeg_info *info,
                 kolo_image *image)
{
    const kolo_jpeg_window window = {info->height / 4, info->width / 3, (info->height + 1) / 2,
                                     (info->width + 1) / 2};
    kolo_jpeg_window origin;
    if (!fuzz_taken(kolo_jpeg_decode(jpeg, data, bytes, 3, 4, &window, image, &origin))) return;
    fuzz_require(origin.top >= 0 && origin.left >= 0 && origin.top + image->height <= origin.height &&
                     origin.left + image->width <= origin.width,
                 "the part lies in the image");
}

/* Its library was not there when this was built. */
static bool left_out(const uint8_t *data, size_t bytes)
{
    static kolo_image image;
    const enum kolo_image_kind kind = kolo_image_sniff(data, bytes);
    return (kind == KOLO_IMAGE_TIFF || kind == KOLO_IMAGE_WEBP) &&
           !fuzz_tried(kolo_image_decode(NULL, data, bytes, 0, &image)) &&
           strstr(kolo_error_text(), "this program was built without");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static kolo_jpeg *jpeg;
    static kolo_image image;
    kolo_jpeg_info info;
    if (!jpeg) fuzz_require(kolo_jpeg_create(&jpeg) == 0, "a decoder");
    if (kolo_image_sniff(data, bytes) == KOLO_IMAGE_JPEG) {
        if (!fuzz_taken(kolo_jpeg_inspect(jpeg, data, bytes, &info))) return 0;
        if ((int64_t)info.height * info.width > MOST_PIXELS) return 0;
        part(jpeg, data, bytes, &info, &image);
    }
    if (left_out(data, bytes)) return 0;
    for (int channels = 0; channels < 4; channels += channels ? 2 : 1) {
        if (!fuzz_taken(kolo_image_decode(jpeg, data, bytes, channels, &image))) continue;
        fuzz_require(channels == 0 || image.channels == channels, "so many channels as were asked for");
        fuzz_require(sum_of(&image) >= 0, "pixels that can be read");
    }
    return 0;
}
