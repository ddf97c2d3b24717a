#include "comm/compress/codec.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { STRETCH = 4096, SLACK = 16 }; /* elements scanned between two looks at the room; a vector's store */

static uint32_t magnitude(const float *x, int64_t i)
{
    return ((const uint32_t *)(const void *)x)[i] & 0x7fffffff;
}

int64_t comm_select_room(int64_t k) { return 2 * k + STRETCH + SLACK; }

/* The k-th largest of v, 1 <= k <= count; v is reordered. Three-way partitions: many are equal. */
static uint32_t kth_largest(uint32_t *v, int64_t count, int64_t k)
{
    for (;;) {
        uint32_t a = v[0], b = v[count / 2], c = v[count - 1];
        uint32_t pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        int64_t above = 0, at = 0, below = count;
        while (at < below) {
            uint32_t value = v[at];
            if (value > pivot) v[at++] = v[above], v[above++] = value;
            else if (value < pivot) v[at] = v[--below], v[below] = value;
            else at++;
        }
        if (k <= above) {
            count = above;
        } else if (k <= below) {
            return pivot;
        } else {
            v += below;
            count -= below;
            k -= below;
        }
    }
}

/* Of what was collected the k largest stay, of equal ones the first; returns the least of them. */
static uint32_t keep_largest(uint32_t *index, uint32_t *spare, const float *x, int64_t *count, int64_t k)
{
    for (int64_t i = 0; i < *count; i++) spare[i] = magnitude(x, index[i]);
    uint32_t least = kth_largest(spare, *count, k);
    int64_t equal = k, kept = 0;
    for (int64_t i = 0; i < *count; i++) equal -= magnitude(x, index[i]) > least;
    for (int64_t i = 0; i < *count; i++) {
        uint32_t m = magnitude(x, index[i]);
        if (m > least || (m == least && equal-- > 0)) index[kept++] = index[i];
    }
    *count = kept;
    return least;
}

static int64_t scan_plain(uint32_t *index, const float *x, int64_t from, int64_t to, uint32_t least)
{
    int64_t n = 0;
    for (int64_t i = from; i < to; i++) {
        index[n] = (uint32_t)i; /* written always, kept if it counts: no branch to guess */
        n += magnitude(x, i) >= least;
    }
    return n;
}

#if defined(__x86_64__)
__attribute__((target("avx512f,popcnt"))) static int64_t scan_512(uint32_t *index, const float *x,
                                                                  int64_t from, int64_t to, uint32_t least)
{
    const __m512i step = _mm512_set1_epi32(16), mask = _mm512_set1_epi32(0x7fffffff),
                  limit = _mm512_set1_epi32((int)least);
    __m512i number = _mm512_add_epi32(_mm512_set1_epi32((int)from),
                                      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    int64_t n = 0, i = from;
    for (; i + 16 <= to; i += 16, number = _mm512_add_epi32(number, step)) {
        __mmask16 hit = _mm512_cmpge_epu32_mask(_mm512_and_epi32(_mm512_loadu_si512(x + i), mask), limit);
        if (!hit) continue;
        _mm512_storeu_si512(index + n, _mm512_maskz_compress_epi32(hit, number));
        n += __builtin_popcount(hit);
    }
    return n + scan_plain(index + n, x, i, to, least);
}
#endif

static int64_t scan(uint32_t *index, const float *x, int64_t from, int64_t to, uint32_t least)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) return scan_512(index, x, from, to, least);
#endif
    return scan_plain(index, x, from, to, least);
}

/* All that reach `least`, or the k largest of them. Whenever the room is full, `least` rises. */
static int64_t select_collect(uint32_t *index, uint32_t *spare, const float *x, int64_t count, int64_t k,
                              uint32_t least)
{
    int64_t n = 0;
    for (int64_t at = 0; at < count; at += STRETCH) {
        int64_t end = at + STRETCH < count ? at + STRETCH : count;
        if (n > 2 * k) least = keep_largest(index, spare, x, &n, k);
        n += scan(index + n, x, at, end, least);
    }
    if (n > k) keep_largest(index, spare, x, &n, k);
    return n;
}

/* What about 1.1 k elements reach: from so many that 256 of them lie above, where the room allows. */
static uint32_t sampled(uint32_t *spare, const float *x, int64_t count, int64_t k, uint64_t salt)
{
    int64_t stride = k / 256 > 1 ? k / 256 : 1, room = comm_select_room(k), n = 0, rank;
    if ((count + stride - 1) / stride > room) stride = (count + room - 1) / room;
    stride |= 1; /* vectors are rows of powers of two */
    for (int64_t i = (int64_t)(salt % (uint64_t)stride); i < count && n < room; i += stride)
        spare[n++] = magnitude(x, i);
    rank = (int64_t)(1.1 * (double)k * (double)n / (double)count) + 1;
    if (rank >= n) return 1;
    uint32_t least = kth_largest(spare, n, rank);
    return least > 1 ? least : 1;
}

int64_t comm_select(uint32_t *index, uint32_t *spare, const float *x, int64_t count, int64_t k, uint64_t salt)
{
    if (k > count) k = count;
    if (k < 1) return 0;
    uint32_t least = sampled(spare, x, count, k, salt);
    for (int again = 0;; again++) {
        int64_t n = select_collect(index, spare, x, count, k, least);
        if (n >= k - k / 4 || least == 1) return n;
        /* half of it; at last whatever is not 0 */
        least = again < 2 && least > 0x800000 ? least - 0x800000 : 1;
    }
}
