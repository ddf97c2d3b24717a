/* The gradient noise scale ("An empirical model of large-batch training", McCandlish et al. 2018,
 * appendix A.1): from gradients of two batch sizes, unbiased estimates of |G|^2, the squared norm of the
 * true gradient, and of S, the trace of the covariance of one image's gradient. S / |G|^2 is the batch
 * at which noise and gradient weigh the same: far below it more images a step save steps, far above
 * they do not. Both are averaged over steps before they are divided, because a quotient of single
 * estimates is not their mean's. */
#ifndef KOLO_OPTIM_NOISE_H
#define KOLO_OPTIM_NOISE_H

#include <stdint.h>

typedef struct kolo_noise {
    double gradient, trace; /* fading sums of the estimates */
    int64_t steps;
} kolo_noise;

/* One step: `parts` micro-batches of `rows` images each (at least 2 of them). square: sum of the squared
 * norms of their parts of the gradient, a part being the micro-batch's mean gradient divided by parts; norm:
 * of their sum, the step's gradient. */
void kolo_noise_add(kolo_noise *noise, int parts, int64_t rows, double square, double norm);
/* The useful batch S / |G|^2; negative: not known (yet), as noise still covers the gradient. */
double kolo_noise_batch(const kolo_noise *noise);

#endif
