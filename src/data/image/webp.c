/* WebP by libwebp, where that was found when this program was built. Alpha is dropped, not blended. */
#include "data/image/image.h"

#include "kolo/error.h"

#ifndef KOLO_WEBP

int kolo_image_decode_webp(const void *data, size_t bytes, int channels, kolo_image *image)
{
    (void)data, (void)bytes, (void)channels, (void)image;
    return kolo_fail(KOLO_EINPUT,
                     "is a WebP, and this program was built without libwebp; build it again where libwebp's "
                     "headers are, or convert the image");
}

#else

#include <webp/decode.h>

int kolo_image_decode_webp(const void *data, size_t bytes, int channels, kolo_image *image)
{
    WebPBitstreamFeatures features;
    if (WebPGetFeatures(data, bytes, &features) != VP8_STATUS_OK)
        return kolo_fail(KOLO_EINPUT, "WebP: damaged or truncated header");
    if (features.has_animation)
        return kolo_fail(KOLO_EINPUT, "WebP: an animation; convert an image of it first");
    KOLO_TRY(kolo_image_shape(image, features.height, features.width, 3));
    const int stride = 3 * image->width;
    if (!WebPDecodeRGBInto(data, bytes, image->pixels, (size_t)stride * (size_t)image->height, stride))
        return kolo_fail(KOLO_EINPUT, "WebP: damaged or truncated");
    return kolo_image_convert(image, channels);
}

#endif
