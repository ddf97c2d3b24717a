#include "data/sampler.h"

#include "base/philox.h"
#include "data/loader.h"

/* Fisher-Yates, from the last position down; the draw for position i is word i % 4 of Philox block i / 4. */
void kolo_shuffle_values(uint64_t key, uint64_t high, int64_t n, int64_t *values)
{
    for (int64_t block = (n - 1) >> 2; block >= 0; block--) {
        const kolo_philox4 words = kolo_philox(key, high, (uint64_t)block);
        for (int lane = 3; lane >= 0; lane--) {
            const int64_t i = block * 4 + lane;
            if (i < 1 || i >= n) continue;
            const int64_t j = (int64_t)(((uint64_t)words.v[lane] * (uint64_t)(i + 1)) >> 32); /* [0, i] */
            const int64_t swap = values[i];
            values[i] = values[j];
            values[j] = swap;
        }
    }
}

void kolo_shuffle(uint64_t key, uint64_t high, int64_t n, int64_t *order)
{
    for (int64_t i = 0; i < n; i++) order[i] = i;
    kolo_shuffle_values(key, high, n, order);
}

void kolo_permutation(uint64_t seed, int64_t epoch, int64_t n, int64_t *order)
{
    kolo_shuffle(kolo_random_key(seed, KOLO_RANDOM_PERMUTE), (uint64_t)epoch, n, order);
}
