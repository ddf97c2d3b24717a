/* The margin of ArcFace (Deng et al., arXiv:1801.07698) for one cosine, shared by C and CUDA: cos(angle +
 * margin). Beyond angle + margin = pi, where that would rise again, it goes on as cos - margin sin(margin),
 * as insightface has it. */
#ifndef KOLO_OPS_MARGIN_H
#define KOLO_OPS_MARGIN_H

#include <math.h>

#include "ops/element.h"

typedef struct kolo_arc_margin1 {
    float angle, cosine, sine;
} kolo_arc_margin1;
static inline kolo_arc_margin1 kolo_arc_margin1_of(float angle)
{
    const kolo_arc_margin1 m = {angle, cosf(angle), sinf(angle)};
    return m;
}

/* angle + margin < pi */
KOLO_INLINE bool kolo_arc_falls1(const kolo_arc_margin1 *m, float cosine) { return cosine > -m->cosine; }

KOLO_INLINE float kolo_arc1(const kolo_arc_margin1 *m, float cosine)
{
    const float square = (1 - cosine) * (1 + cosine), sine = sqrtf(square > 0 ? square : 0);
    return kolo_arc_falls1(m, cosine) ? cosine * m->cosine - sine * m->sine : cosine - m->angle * m->sine;
}

/* Its derivative; bounded where the angle is 0. */
KOLO_INLINE float kolo_arc_slope1(const kolo_arc_margin1 *m, float cosine)
{
    const float square = (1 - cosine) * (1 + cosine), sine = sqrtf(square > 1e-6f ? square : 1e-6f);
    return kolo_arc_falls1(m, cosine) ? m->cosine + cosine * m->sine / sine : 1;
}

#endif
