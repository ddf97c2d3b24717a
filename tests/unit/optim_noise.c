/* The noise scale against problems whose true value is known. */
#include "optim/noise.h"

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "tap.h"

enum { SIZE = 2000 };

/* Every image's gradient is (mean, ..., mean) plus independent noise of the given deviation: |G|^2 = SIZE
 * mean^2, S = SIZE deviation^2. */
static double measured(double mean, double deviation, int parts, int64_t rows, int steps)
{
    static double part[SIZE], whole[SIZE];
    kolo_noise noise = {0};
    for (int s = 0; s < steps; s++) {
        double square = 0, norm2 = 0;
        for (int i = 0; i < SIZE; i++) whole[i] = 0;
        for (int p = 0; p < parts; p++)
            for (int i = 0; i < SIZE; i++) {
                kolo_philox4 r = kolo_philox(5, (uint64_t)(s * 64 + p), (uint64_t)i);
                double u = ((double)r.v[0] + 0.5) * 0x1p-32, v = (double)r.v[1] * 0x1p-32;
                /* the mean over rows of normal numbers is one with deviation / sqrt(rows) */
                double normal = sqrt(-2 * log(u)) * cos(2 * M_PI * v);
                part[i] = (mean + deviation / sqrt((double)rows) * normal) / parts;
                square += part[i] * part[i];
                whole[i] += part[i];
            }
        for (int i = 0; i < SIZE; i++) norm2 += whole[i] * whole[i];
        kolo_noise_add(&noise, parts, rows, square, sqrt(norm2));
    }
    return kolo_noise_batch(&noise);
}

int main(void)
{
    static const struct {
        double mean, deviation;
        int parts;
        int64_t rows;
    } kase[] = {{1, 8, 4, 16}, {1, 8, 2, 32}, {0.5, 20, 8, 64}, {2, 2, 2, 4}};
    kolo_noise none = {0};
    for (size_t i = 0; i < sizeof kase / sizeof *kase; i++) {
        double want = kase[i].deviation * kase[i].deviation / (kase[i].mean * kase[i].mean),
               got = measured(kase[i].mean, kase[i].deviation, kase[i].parts, kase[i].rows, 100);
        ok(fabs(got / want - 1) < 0.1, "%d micro-batches of %ld: noise scale %.4g, measured %.4g",
           kase[i].parts, (long)kase[i].rows, want, got);
    }
    ok(kolo_noise_batch(&none) < 0, "nothing measured, nothing known");
    kolo_noise_add(&none, 2, 4, 1, 0.5);
    ok(kolo_noise_batch(&none) < 0, "parts without anything in common: not known yet");
    kolo_noise same = {0};
    kolo_noise_add(&same, 4, 8, 4 * 0.0625, 1);
    ok(fabs(kolo_noise_batch(&same)) < 1e-12, "equal parts: no noise");
    return done_testing();
}
