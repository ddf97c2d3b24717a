#include "shards/tally.h"

#include <math.h>

void shards_tally_add(shards_tally *t, const uint8_t *p, size_t n, int channels)
{
    if (channels == 1)
        for (size_t i = 0; i < n; i++) t->value[0][p[i]]++;
    else
        for (size_t i = 0; i < n; i++, p += 3) t->value[0][p[0]]++, t->value[1][p[1]]++, t->value[2][p[2]]++;
}

void shards_tally_join(shards_tally *to, const shards_tally *from)
{
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++) to->value[c][v] += from->value[c][v];
}

void shards_tally_stats(const shards_tally *t, int channels, kolo_shard_stats *stats)
{
    for (int c = 0; c < channels; c++) {
        unsigned __int128 sum = 0, square = 0;
        uint64_t n = 0;
        int low = 255, high = 0;
        for (int v = 0; v < 256; v++) {
            const uint64_t k = t->value[c][v];
            if (!k) continue;
            n += k, sum += (unsigned __int128)k * (unsigned)v,
                square += (unsigned __int128)k * (unsigned)(v * v);
            low = v < low ? v : low, high = v > high ? v : high;
        }
        if (!n) continue;
        const double mean = (double)sum / (double)n, variance = (double)square / (double)n - mean * mean;
        stats->mean[c] = mean / 255;
        stats->std[c] = sqrt(variance > 0 ? variance : 0) / 255;
        stats->min[c] = low / 255.0, stats->max[c] = high / 255.0;
        stats->count[c] = (double)n;
    }
}
