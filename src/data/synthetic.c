#include "data/synthetic.h"

#include <string.h>

#include "base/philox.h"

int32_t kolo_synthetic_label(const kolo_loader_config *config, int64_t sample)
{
    const uint64_t key = kolo_random_key(config->seed, KOLO_RANDOM_SYNTHETIC);
    kolo_random random = kolo_random_at(key, 1, (uint64_t)(sample % config->batch));
    return config->classes > 0 ? (int32_t)kolo_random_below(&random, (uint32_t)config->classes) : 0;
}

/* Philox gives the start of a row, a 64-bit mixer (splitmix64) the rest: noise at memory speed. */
void kolo_synthetic_fill(const kolo_loader_config *config, int64_t rows, uint8_t *pixels)
{
    const uint64_t key = kolo_random_key(config->seed, KOLO_RANDOM_SYNTHETIC);
    const size_t bytes = (size_t)config->height * (size_t)config->width * (size_t)config->channels;
    for (int64_t row = 0; row < rows; row++, pixels += bytes) {
        const kolo_philox4 start = kolo_philox(key, 0, (uint64_t)(config->rank * rows + row));
        uint64_t state = (uint64_t)start.v[1] << 32 | start.v[0];
        for (size_t at = 0; at < bytes; at += 8) {
            uint64_t z = state += 0x9E3779B97F4A7C15ull;
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
            z = (z ^ z >> 27) * 0x94D049BB133111EBull;
            z ^= z >> 31;
            memcpy(pixels + at, &z, bytes - at < 8 ? bytes - at : 8);
        }
    }
}
