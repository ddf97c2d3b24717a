/* Initial values: element i of a tensor depends on the seed, the tensor's name and i, and on nothing else; a
 * slab has those of the whole tensor. */
#include <math.h>

#include "base/hash.h"
#include "base/philox.h"
#include "graph/graph.h"

/* (0, 1), 53 bits: never 0, so that its logarithm is finite. */
static double open_uniform(uint32_t high, uint32_t low)
{
    uint64_t bits = ((uint64_t)high << 32 | low) >> 12;
    return ((double)bits + 0.5) * 0x1p-52;
}

/* Box-Muller */
static float normal(double a, const kolo_philox4 *r)
{
    const double u = open_uniform(r->v[0], r->v[1]), angle = 2 * M_PI * open_uniform(r->v[2], r->v[3]);
    return (float)(a * sqrt(-2 * log(u)) * cos(angle));
}

void kolo_initial_values(const kolo_tensor *tensor, uint64_t seed, int64_t first, int64_t count,
                         float *values)
{
    const double a = tensor->init.a;
    const uint64_t name = tensor->slab.runs
                              ? kolo_hash_bytes(KOLO_HASH, tensor->name, (size_t)tensor->slab.named)
                              : kolo_hash_text(tensor->name),
                   key = kolo_random_key(seed, KOLO_RANDOM_INIT);
    for (int64_t i = 0; i < count; i++) {
        if (tensor->init.kind == KOLO_INIT_CONSTANT) {
            values[i] = (float)a;
            continue;
        }
        const kolo_philox4 r = kolo_philox(key, name, (uint64_t)kolo_slab_element(tensor, first + i));
        values[i] = tensor->init.kind == KOLO_INIT_UNIFORM
                        ? (float)(a * (2 * open_uniform(r.v[0], r.v[1]) - 1))
                        : normal(a, &r);
    }
}

float kolo_initial_value(const kolo_tensor *tensor, uint64_t seed, int64_t i)
{
    float value;
    kolo_initial_values(tensor, seed, i, 1, &value);
    return value;
}
