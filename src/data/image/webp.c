/* WebP by libwebp, where that was found when this program was built. Alpha is dropped, not blended. */
#include "data/picture/picture.h"

#include "kolo/error.h"

#ifndef KOLO_WEBP

int kolo_picture_decode_webp(const void *data, size_t bytes, int channels, kolo_picture *picture)
{
    (void)data, (void)bytes, (void)channels, (void)picture;
    return kolo_fail(KOLO_EINPUT,
                     "is a WebP, and this program was built without libwebp; build it again where libwebp's "
                     "headers are, or convert the picture");
}

#else

#include <webp/decode.h>

int kolo_picture_decode_webp(const void *data, size_t bytes, int channels, kolo_picture *picture)
{
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(data, bytes, &features) != VP8_STATUS_OK)
        return kolo_fail(KOLO_EINPUT, "WebP: damaged or truncated header");
    if (features.has_animation)
        return kolo_fail(KOLO_EINPUT, "WebP: an animation; convert a picture of it first");
    KOLO_TRY(kolo_picture_shape(picture, features.height, features.width, 3));
    const int stride = 3 * picture->width;
    if (!WebPDecodeRGBInto(data, bytes, picture->pixels, (size_t)stride * (size_t)picture->height, stride))
        return kolo_fail(KOLO_EINPUT, "WebP: damaged or truncated");
    return kolo_picture_convert(picture, channels);
}

#endif
