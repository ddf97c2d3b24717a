/* What is decided once a step from the norm of all gradients: is the update sound, how are the
 * gradients scaled. The same few lines run on the host and in a CUDA kernel; all ranks hold the same
 * gradients and so decide the same. */
#ifndef KOLO_OPTIM_GRAD_SCALER_H
#define KOLO_OPTIM_GRAD_SCALER_H

#include <math.h>

#include "base/philox.h" /* KOLO_INLINE */
#include "ops/backend.h"

/* Dynamic loss scaling as in mixed precision training (arXiv 1710.03740) with
 * torch.amp.GradScaler's constants. */
#define KOLO_SCALE_START 65536.0f
#define KOLO_SCALE_GROWTH_INTERVAL 2000 /* good steps before the scale doubles */

typedef struct kolo_grad_scaler_rule {
    float clip_norm; /* 0: no clipping */
    int dynamic;     /* the scale follows */
} kolo_grad_scaler_rule;

/* sum: of the squares of the scaled gradients. A sum that is not finite: without a dynamic scale the step is
 * still skipped (the weights stay sound, the caller reports it), norm is its root. */
KOLO_INLINE void kolo_grad_scaler(const kolo_grad_scaler_rule *rule, double sum, kolo_step *step)
{
    kolo_scaler *s = &step->scaler;
    double norm = sqrt(sum) / (double)s->scale;
    bool finite = norm <= 1.7976931348623157e308; /* false for a NaN too */
    float clip = rule->clip_norm > 0 && finite ? (float)((double)rule->clip_norm / (norm + 1e-6)) : 1.0f;
    step->norm = norm;
    step->square /= (double)s->scale * (double)s->scale;
    step->skip = !finite;
    step->clip = (clip < 1.0f ? clip : 1.0f) / s->scale;
    if (!finite) s->skipped++;
    if (!rule->dynamic) return;
    if (!finite) {
        s->scale = s->scale > 1.0f ? s->scale * 0.5f : 1.0f;
        s->good = 0;
    } else if (++s->good >= KOLO_SCALE_GROWTH_INTERVAL) {
        if (s->scale < 16777216.0f) s->scale *= 2.0f;
        s->good = 0;
    }
}

#endif
