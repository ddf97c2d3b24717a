/* Spike compensation: SGD whose gradients come some updates late, against a recurrence in f64 that adds up
 * what each gradient would have done by now (Kosson et al., arXiv 2003.11666, section 3.2). */
#include <math.h>

#include "optim/optim.h"
#include "tap.h"

enum { COUNT = 100, STEPS = 12 };

static float gradient(int t, int i) { return (float)(sin(.7 * t + i) + .1 * i / COUNT); }

/* The impulse response of momentum: D updates late, a gradient has missed 1 + m + .. + m^(D-1) of its own,
 * which it gets at once; from then on it goes on as if it had come in time. */
static double worst(double momentum, double decay, int late)
{
    float w[COUNT], g[COUNT], b[COUNT] = {0};
    double x[COUNT], v[COUNT] = {0}, far = 0;
    kolo_options options;
    kolo_options_default(&options);
    for (int i = 0; i < COUNT; i++) w[i] = (float)(x[i] = .01 * i);
    for (int i = 0; i < COUNT; i++) x[i] = (double)w[i];
    const kolo_slice slice = {
        .param = w, .grad = g, .state = {b}, .count = COUNT, .decay = true, .rate = 1, .late = late};
    for (int t = 0; t < STEPS; t++) {
        const kolo_step step = {
            .step = t, .lr = .05F, .momentum = (float)momentum, .weight_decay = (float)decay, .clip = 1};
        for (int i = 0; i < COUNT; i++) {
            g[i] = gradient(t, i);
            const double d = (double)g[i] + (double)(float)decay * x[i];
            double missed = 0;
            for (int k = 0; k < late; k++) missed += pow((double)(float)momentum, k);
            v[i] = (double)(float)momentum * v[i] + d;
            x[i] -= (double).05F * (missed * d + pow((double)(float)momentum, late) * v[i]);
        }
        kolo_optimizer_find("sgd")->update(&slice, &options, &step);
    }
    for (int i = 0; i < COUNT; i++) far = fmax(far, fabs((double)w[i] - x[i]));
    kolo_options_free(&options);
    return far;
}

int main(void)
{
    const double momentum[] = {0, .5, .9, .99};
    for (int m = 0; m < 4; m++)
        for (int late = 0; late <= 6; late += 2) {
            const double far = worst(momentum[m], .01, late);
            ok(far < 1e-5, "momentum %g, %d updates late: apart by %.2g", momentum[m], late, far);
        }
    return done_testing();
}
