#include "data/augment/augment.h"

#include <math.h>
#include <string.h>

/* Ten bits of one word a channel: a place in the table of quantiles. */
static void fill_noise(const kolo_canvas *c, uint8_t *to, int width, kolo_random *random)
{
    for (int x = 0; x < width; x++) {
        uint32_t bits = kolo_random_u32(random);
        for (int k = 0; k < c->channels; k++, bits >>= 10) *to++ = c->noise[k][bits & 1023];
    }
}

static void fill_mean(const kolo_canvas *c, uint8_t *to, int width)
{
    for (int x = 0; x < width; x++)
        for (int k = 0; k < c->channels; k++) *to++ = c->mean[k];
}

static void erase(kolo_canvas *c, int top, int left, int height, int width, bool noise, kolo_random *random)
{
    const size_t stride = (size_t)c->width * (size_t)c->channels;
    uint8_t *row = c->pixels + (size_t)top * stride + (size_t)left * (size_t)c->channels;
    for (int y = 0; y < height; y++, row += stride) {
        if (noise) fill_noise(c, row, width, random);
        else fill_mean(c, row, width);
    }
}

/* probability, area_min, area_max, aspect_min, aspect_max, noise: Zhong et al. 2017 in torchvision's form
 * (RandomErasing); ten tries at a box that fits. */
void kolo_augment_erase(kolo_canvas *c, const double *p, kolo_random *random)
{
    const double pixels = (double)c->height * c->width, low = log(p[3]), high = log(p[4]);
    if (!(kolo_random_uniform(random) < (float)p[0])) return;
    for (int i = 0; i < 10; i++) {
        const double area = pixels * (p[1] + (p[2] - p[1]) * (double)kolo_random_uniform(random));
        const double aspect = exp(low + (high - low) * (double)kolo_random_uniform(random));
        const int height = (int)nearbyint(sqrt(area * aspect)), width = (int)nearbyint(sqrt(area / aspect));
        if (height >= c->height || width >= c->width) continue;
        const int top = (int)kolo_random_below(random, (uint32_t)(c->height - height + 1));
        const int left = (int)kolo_random_below(random, (uint32_t)(c->width - width + 1));
        erase(c, top, left, height, width, p[5] > 0, random);
        return;
    }
}
