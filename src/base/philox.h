/* Philox 4x32-10: counter-based random numbers (Salmon et al., "Parallel random numbers: as easy as 1,
 * 2, 3", SC'11). A draw is a pure function of (key, counter), so results do not depend on threads,
 * ranks or restarts. Shared by C and CUDA. Key: (seed, purpose). Counter: (epoch or step, global sample
 * id, operation, index). */
#ifndef KOLO_BASE_PHILOX_H
#define KOLO_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define KOLO_INLINE static inline __host__ __device__
#else
#define KOLO_INLINE static inline
#endif

typedef struct {
    uint32_t v[4];
} kolo_philox4;

/* What a stream of numbers is for; part of the key, so streams never meet. Append only. */
enum kolo_random_purpose {
    KOLO_RANDOM_INIT = 1,      /* parameter initialisation */
    KOLO_RANDOM_PERMUTE = 2,   /* epoch permutation        */
    KOLO_RANDOM_AUGMENT = 3,   /* augmentation             */
    KOLO_RANDOM_PACK = 4,      /* shuffle while packing    */
    KOLO_RANDOM_SHAPES = 5,    /* procedural images      */
    KOLO_RANDOM_SYNTHETIC = 6, /* synthetic batches        */
    KOLO_RANDOM_DROPOUT = 7,
    KOLO_RANDOM_WINDOW = 8,      /* mixing within a window of an epoch's order */
    KOLO_RANDOM_EXCHANGE = 9,    /* samples that change nodes for an epoch     */
    KOLO_RANDOM_COMPRESS = 10,   /* rounding and start matrices of compressed sums */
    KOLO_RANDOM_SIDE = 11,       /* sides of training images               */
    KOLO_RANDOM_TOURNAMENT = 12, /* pairs of ranks, and what losers go on with */
};

KOLO_INLINE kolo_philox4 kolo_philox(uint64_t key, uint64_t counter_high, uint64_t counter_low)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    kolo_philox4 c = {{(uint32_t)counter_low, (uint32_t)(counter_low >> 32), (uint32_t)counter_high,
                       (uint32_t)(counter_high >> 32)}};
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c.v[0], b = (uint64_t)0xCD9E8D57u * c.v[2];
        kolo_philox4 n = {
            {(uint32_t)(b >> 32) ^ c.v[1] ^ k0, (uint32_t)b, (uint32_t)(a >> 32) ^ c.v[3] ^ k1, (uint32_t)a}};
        c = n;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

KOLO_INLINE uint64_t kolo_random_key(uint64_t seed, enum kolo_random_purpose purpose)
{
    return (seed * 0x9E3779B97F4A7C15ull) ^ ((uint64_t)purpose << 56);
}

/* [0, 1), 24 bits. */
KOLO_INLINE float kolo_uniform(uint32_t bits) { return (float)(bits >> 8) * 0x1p-24f; }

/* A stream for code that draws a varying count: words come one by one from successive counters. */
typedef struct {
    uint64_t key, high, low;
    kolo_philox4 block;
    int used;
} kolo_random;

KOLO_INLINE kolo_random kolo_random_at(uint64_t key, uint64_t high, uint64_t low)
{
    kolo_random r = {key, high, low, {{0, 0, 0, 0}}, 4};
    return r;
}

/* The stream's own index lives in the top 16 bits of `low`; leave them 0 when you make the stream. */
KOLO_INLINE uint32_t kolo_random_u32(kolo_random *r)
{
    if (r->used == 4) {
        r->block = kolo_philox(r->key, r->high, r->low);
        r->low += 1ull << 48;
        r->used = 0;
    }
    return r->block.v[r->used++];
}

KOLO_INLINE float kolo_random_uniform(kolo_random *r) { return kolo_uniform(kolo_random_u32(r)); }

/* [0, n), n >= 1, n < 2^32; bias below n / 2^32 (Lemire's multiply). */
KOLO_INLINE uint32_t kolo_random_below(kolo_random *r, uint32_t n)
{
    return (uint32_t)(((uint64_t)kolo_random_u32(r) * n) >> 32);
}

#endif
