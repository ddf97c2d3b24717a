/* The square of a long vector's norm, formed in a fixed number of parts, so that it does not
 * depend on the threads. */
#include "optim/optim.h"
#include "base/wide.h"

enum { PARTS = 256, LANES = 16 };

KOLO_CLONES static double squares(const float *x, int64_t n)
{
    double lane[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++) lane[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++) sum += (double)x[i] * (double)x[i];
    for (int l = 0; l < LANES; l++) sum += lane[l];
    return sum;
}

double kolo_square_leaf(const float *x, int64_t count) { return squares(x, count); }

double kolo_square_sum(const float *x, int64_t count)
{
    double part[PARTS] = {0}, sum = 0;
    int64_t size = ((count + PARTS - 1) / PARTS + LANES - 1) / LANES * LANES;
#pragma omp parallel for schedule(static) if (count > 8192)
    for (int64_t p = 0; p < PARTS; p++) {
        int64_t first = p * size, n = count - first < size ? count - first : size;
        if (n > 0) part[p] = squares(x + first, n);
    }
    for (int p = 0; p < PARTS; p++) sum += part[p];
    return sum;
}
