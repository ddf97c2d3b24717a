#include "data/synthetic.h"

#include <string.h>

#include "base/philox.h"

int32_t kolo_synthetic_label(const kolo_loader_config *config, int64_t sample)
{
    const uint64_t key = kolo_random_key(config->seed, KOLO_RANDOM_SYNTHETIC);
    kolo_random random = kolo_random_at(key, 1, (uint64_t)(sample % config->batch));
    return config->classes > 0 ? (int32_t)kolo_random_below(&random, (uint32_t)config->classes) : 0;
}

void kolo_synthetic_boxes(const kolo_loader_config *config, int64_t sample, int32_t *label)
{
    const uint64_t key = kolo_random_key(config->seed, KOLO_RANDOM_SYNTHETIC);
    kolo_random random = kolo_random_at(key, 2, (uint64_t)(sample % config->batch));
    const int64_t most = (config->words - 1) / 5;
    memset(label, 0, sizeof *label * (size_t)config->words);
    label[0] = most < 7 ? (int32_t)most : 7;
    for (int i = 0; i < label[0]; i++) {
        const float side[2] = {(float)config->width, (float)config->height};
        float box[4];
        for (int k = 0; k < 2; k++) box[2 + k] = (0.1f + 0.4f * kolo_random_uniform(&random)) * side[k];
        for (int k = 0; k < 2; k++)
            box[k] = box[2 + k] / 2 + (side[k] - box[2 + k]) * kolo_random_uniform(&random);
        label[1 + 5 * i] = (int32_t)kolo_random_below(&random, (uint32_t)config->classes);
        memcpy(&label[2 + 5 * i], box, sizeof box);
    }
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
