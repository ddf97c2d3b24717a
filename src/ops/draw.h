/* What dropout and stochastic depth leave out: a function of the run's seed, the step, the row's number in
 * the global batch, the operation's number in its graph and the element, so it does not depend on ranks,
 * threads, layouts or backends. */
#ifndef KOLO_OPS_DRAW_H
#define KOLO_OPS_DRAW_H

#include <stdbool.h>
#include <stdint.h>

#include "base/philox.h"

/* Four draws: of elements 4 quad .. 4 quad + 3 of the row. */
KOLO_INLINE kolo_philox4 kolo_draw4(uint64_t seed, int64_t step, int64_t row, int32_t draw, int64_t quad)
{
    return kolo_philox(kolo_random_key(seed, KOLO_RANDOM_DROPOUT), (uint64_t)step | (uint64_t)draw << 40,
                       (uint64_t)row << 32 | (uint64_t)quad);
}

/* Whether a draw keeps what is left out with probability `drop`. */
KOLO_INLINE bool kolo_draw_keeps(uint32_t bits, double drop) { return (double)bits >= drop * 4294967296.0; }

/* Stochastic depth: whether the branch of this row is kept. */
KOLO_INLINE bool kolo_row_kept(uint64_t seed, int64_t step, int64_t row, int32_t draw, double drop)
{
    return !(drop > 0) || kolo_draw_keeps(kolo_draw4(seed, step, row, draw, 0).v[0], drop);
}

#endif
