#include "data/augment.h"

#include <string.h>

void kolo_augment_cutout(uint8_t *pixels, int height, int width, int channels, kolo_random *random)
{
    const int side = (height < width ? height : width) / 2;
    const int y = (int)kolo_random_below(random, (uint32_t)height) - side / 2;
    const int x = (int)kolo_random_below(random, (uint32_t)width) - side / 2;
    const int left = x > 0 ? x : 0, right = x + side < width ? x + side : width;
    for (int row = y > 0 ? y : 0; row < y + side && row < height; row++)
        memset(pixels + ((size_t)row * (size_t)width + (size_t)left) * (size_t)channels, 128,
               (size_t)(right - left) * (size_t)channels);
}
