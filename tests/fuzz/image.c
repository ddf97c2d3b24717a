/* Picture files of every kind: in their colours, gray and RGB; a part of a JPEG at a quarter of its size. */
#include <stdlib.h>
#include <string.h>

#include "data/picture/jpeg.h"
#include "input.h"
#include "kolo/error.h"

#define MOST_PIXELS (1 << 22) /* larger ones only cost time */

static int64_t sum_of(const kolo_picture *p)
{
    int64_t sum = 0;
    for (size_t i = 0; i < (size_t)p->height * (size_t)p->width * (size_t)p->channels; i++)
        sum += p->pixels[i];
    return sum;
}

static void part(kolo_jpeg *jpeg, const uint8_t *data, size_t bytes, const kolo_jpeg_info *info,
                 kolo_picture *picture)
{
    const kolo_jpeg_window window = {info->height / 4, info->width / 3, (info->height + 1) / 2,
                                     (info->width + 1) / 2};
    kolo_jpeg_window origin;
    if (!fuzz_taken(kolo_jpeg_decode(jpeg, data, bytes, 3, 4, &window, picture, &origin))) return;
    fuzz_require(origin.top >= 0 && origin.left >= 0 && origin.top + picture->height <= origin.height &&
                     origin.left + picture->width <= origin.width,
                 "the part lies in the picture");
}

/* Its library was not there when this was built. */
static bool left_out(const uint8_t *data, size_t bytes)
{
    static kolo_picture picture;
    const enum kolo_picture_kind kind = kolo_picture_sniff(data, bytes);
    return (kind == KOLO_PICTURE_TIFF || kind == KOLO_PICTURE_WEBP) &&
           !fuzz_tried(kolo_picture_decode(NULL, data, bytes, 0, &picture)) &&
           strstr(kolo_error_text(), "this program was built without");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static kolo_jpeg *jpeg;
    static kolo_picture picture;
    kolo_jpeg_info info;
    if (!jpeg) fuzz_require(kolo_jpeg_create(&jpeg) == 0, "a decoder");
    if (kolo_picture_sniff(data, bytes) == KOLO_PICTURE_JPEG) {
        if (!fuzz_taken(kolo_jpeg_inspect(jpeg, data, bytes, &info))) return 0;
        if ((int64_t)info.height * info.width > MOST_PIXELS) return 0;
        part(jpeg, data, bytes, &info, &picture);
    }
    if (left_out(data, bytes)) return 0;
    for (int channels = 0; channels < 4; channels += channels ? 2 : 1) {
        if (!fuzz_taken(kolo_picture_decode(jpeg, data, bytes, channels, &picture))) continue;
        fuzz_require(channels == 0 || picture.channels == channels, "so many channels as were asked for");
        fuzz_require(sum_of(&picture) >= 0, "pixels that can be read");
    }
    return 0;
}
