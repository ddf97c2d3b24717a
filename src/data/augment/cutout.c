#include "data/augment/augment.h"

#include <string.h>

void kolo_augment_cutout(kolo_canvas *c, const double *parameter, kolo_random *random)
{
    const int side = (c->height < c->width ? c->height : c->width) / 2;
    const int y = (int)kolo_random_below(random, (uint32_t)c->height) - side / 2;
    const int x = (int)kolo_random_below(random, (uint32_t)c->width) - side / 2;
    const int left = x > 0 ? x : 0, right = x + side < c->width ? x + side : c->width;
    const size_t channels = (size_t)c->channels;
    (void)parameter;
    for (int row = y > 0 ? y : 0; row < y + side && row < c->height; row++)
        memset(c->pixels + ((size_t)row * (size_t)c->width + (size_t)left) * channels, 128,
               (size_t)(right - left) * channels);
}
