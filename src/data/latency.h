/* How long something took, counted in bins of a quarter of an octave: adds up over threads and ranks, tells
 * percentiles to 10 %. */
#ifndef KOLO_DATA_LATENCY_H
#define KOLO_DATA_LATENCY_H

#include <stdint.h>

#define KOLO_LATENCY_BINS 160 /* 16 ns to 16 * 2^40 ns */

typedef struct kolo_latency {
    int64_t bin[KOLO_LATENCY_BINS];
} kolo_latency;

static inline void kolo_latency_add(kolo_latency *l, double seconds)
{
    const double ns = seconds * 1e9;
    const uint64_t n = ns < 16 ? 16 : ns > 1e13 ? (uint64_t)1e13 : (uint64_t)ns;
    const int top = 63 - __builtin_clzll(n); /* at least 4 */
    l->bin[(top - 4) * 4 + (int)(n >> (top - 2) & 3)]++;
}

static inline void kolo_latency_merge(kolo_latency *to, const kolo_latency *from)
{
    for (int i = 0; i < KOLO_LATENCY_BINS; i++) to->bin[i] += from->bin[i];
}

/* Seconds that a share of `share` (0 to 1) did not exceed: the middle of its bin. 0 if nothing was
 * counted. */
static inline double kolo_latency_quantile(const kolo_latency *l, double share)
{
    int64_t all = 0, below = 0;
    for (int i = 0; i < KOLO_LATENCY_BINS; i++) all += l->bin[i];
    for (int i = 0; i < KOLO_LATENCY_BINS; i++) {
        below += l->bin[i];
        if (all > 0 && (double)below >= share * (double)all)
            return (double)(UINT64_C(1) << (i / 4 + 4)) * (1 + (i % 4 + 0.5) / 4) * 1e-9;
    }
    return 0;
}

#endif
