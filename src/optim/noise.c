#include "optim/noise.h"

static const double decay = 0.99; /* of a step; the paper smooths over some 100 */

void kolo_noise_add(kolo_noise *noise, int parts, int64_t rows, double square, double norm)
{
    const double small = (double)rows, big = small * parts;
    /* mean of the parts' |mean gradient|^2, and of the whole */
    const double small2 = square * parts, big2 = norm * norm;
    const double gradient = (big * big2 - small * small2) / (big - small),
                 trace = (small2 - big2) / (1 / small - 1 / big);
    noise->gradient = decay * noise->gradient + (1 - decay) * gradient;
    noise->trace = decay * noise->trace + (1 - decay) * trace;
    noise->steps++;
}

double kolo_noise_batch(const kolo_noise *noise)
{
    return noise->steps > 0 && noise->gradient > 0 && noise->trace >= 0 ? noise->trace / noise->gradient : -1;
}
