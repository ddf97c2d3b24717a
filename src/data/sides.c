#include "data/sides.h"

#include "base/philox.h"

int kolo_sides_count(const kolo_sides *s) { return s->low ? (s->high - s->low) / s->step + 1 : 0; }

int kolo_sides_draw(const kolo_sides *s, uint64_t seed, int64_t epoch, int64_t step)
{
    if (!s->low) return 0;
    kolo_random random =
        kolo_random_at(kolo_random_key(seed, KOLO_RANDOM_SIDE), (uint64_t)epoch, (uint64_t)(step / s->every));
    return (int)kolo_random_below(&random, (uint32_t)kolo_sides_count(s));
}
