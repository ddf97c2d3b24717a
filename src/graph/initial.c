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

float kolo_initial_value(const kolo_tensor *tensor, uint64_t seed, int64_t i)
{
    if (tensor->init.kind == KOLO_INIT_CONSTANT) return (float)tensor->init.a;
    const uint64_t name = tensor->slab.runs
                              ? kolo_hash_bytes(KOLO_HASH, tensor->name, (size_t)tensor->slab.named)
                              : kolo_hash_text(tensor->name);
    kolo_philox4 r = kolo_philox(kolo_random_key(seed, KOLO_RANDOM_INIT), name,
                                 (uint64_t)kolo_slab_element(tensor, i));
    double u = open_uniform(r.v[0], r.v[1]);
    if (tensor->init.kind == KOLO_INIT_UNIFORM) return (float)(tensor->init.a * (2 * u - 1));
    double angle = 2 * M_PI * open_uniform(r.v[2], r.v[3]);
    return (float)(tensor->init.a * sqrt(-2 * log(u)) * cos(angle)); /* Box-Muller */
}
