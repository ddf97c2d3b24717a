#include "comm/kernel.h"

#include <string.h>

/* Wider code is chosen at load time; the thread sanitizer does not survive the resolvers that do it. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NO_CLONES 1
#endif
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(NO_CLONES)
#define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDE
#endif

/* out may equal left or right exactly, which hinders no vector code, but the compiler cannot know it. */
#if defined(__clang__)
#define FREE_LOOP _Pragma("clang loop vectorize(assume_safety)")
#else
#define FREE_LOOP _Pragma("GCC ivdep")
#endif

#define COMBINE(name, type, expression)                                                  \
    WIDE static void name(void *out, const void *left, const void *right, int64_t count) \
    {                                                                                    \
        type *o = out;                                                                   \
        const type *l = left, *r = right;                                                \
        FREE_LOOP                                                                        \
        for (int64_t i = 0; i < count; i++) {                                            \
            type a = l[i], b = r[i];                                                     \
            o[i] = (type)(expression);                                                   \
        }                                                                                \
    }

COMBINE(sum_f32, float, a + b)
COMBINE(max_f32, float, a > b || a != a ? a : b)
COMBINE(min_f32, float, a < b || a != a ? a : b)
COMBINE(sum_f64, double, a + b)
COMBINE(max_f64, double, a > b || a != a ? a : b)
COMBINE(min_f64, double, a < b || a != a ? a : b)
COMBINE(sum_i64, int64_t, (uint64_t)a + (uint64_t)b)
COMBINE(max_i64, int64_t, a > b ? a : b)
COMBINE(min_i64, int64_t, a < b ? a : b)
COMBINE(sum_u8, uint8_t, a + b)
COMBINE(max_u8, uint8_t, a > b ? a : b)
COMBINE(min_u8, uint8_t, a < b ? a : b)

static const struct row {
    size_t width;
    comm_combine combine[KOLO_REDUCE_COUNT];
} table[KOLO_WIRE_COUNT] = {
    [KOLO_WIRE_F32] = {4, {[KOLO_SUM] = sum_f32, [KOLO_MAX] = max_f32, [KOLO_MIN] = min_f32}},
    [KOLO_WIRE_F64] = {8, {[KOLO_SUM] = sum_f64, [KOLO_MAX] = max_f64, [KOLO_MIN] = min_f64}},
    [KOLO_WIRE_I64] = {8, {[KOLO_SUM] = sum_i64, [KOLO_MAX] = max_i64, [KOLO_MIN] = min_i64}},
    [KOLO_WIRE_U8] = {1, {[KOLO_SUM] = sum_u8, [KOLO_MAX] = max_u8, [KOLO_MIN] = min_u8}},
};

comm_combine comm_combine_of(enum kolo_wire type, enum kolo_reduce op)
{
    return (unsigned)type < KOLO_WIRE_COUNT && (unsigned)op < KOLO_REDUCE_COUNT ? table[type].combine[op] : NULL;
}

size_t comm_width(enum kolo_wire type) { return table[type].width; }

enum { TILE = 4096, LEVELS = 12 }; /* bytes: source tiles and partial sums stay in the first cache */
_Static_assert(COMM_FOLD_MAX < 1 << (LEVELS - 2), "a partial sum for every level of the tree");

static void chain_tile(comm_combine combine, void *out, const void *const *source, int n, size_t at, int64_t count)
{
    combine(out, (const char *)source[0] + at, (const char *)source[1] + at, count);
    for (int i = 2; i < n; i++) combine(out, out, (const char *)source[i] + at, count);
}

/* Leaves come from left to right; a finished pair of equal blocks merges at once, the uneven rest at the end. */
static void tree_tile(comm_combine combine, void *out, const void *const *source, int n, size_t at, int64_t count)
{
    _Alignas(64) char partial[LEVELS][TILE];
    const void *stack[LEVELS];
    int depth = 0;
    for (int i = 0; i < n; i++) {
        stack[depth++] = (const char *)source[i] + at;
        bool last = i == n - 1;
        for (int bits = i; depth > 1 && (last || (bits & 1)); bits >>= 1) {
            void *into = last && depth == 2 ? out : partial[depth - 2];
            combine(into, stack[depth - 2], stack[depth - 1], count);
            stack[--depth - 1] = into;
        }
    }
}

void comm_fold(comm_combine combine, size_t width, bool tree, void *const *out, int outs, const void *const *source,
               int n, int64_t count)
{
    int64_t step = (int64_t)(TILE / width);
    for (int64_t first = 0; first < count; first += step) {
        int64_t some = count - first < step ? count - first : step;
        size_t at = (size_t)first * width, bytes = (size_t)some * width;
        void *total = (char *)out[0] + at;
        /* the chain writes its target early: that must not be a source still to be read */
        _Alignas(64) char aside[TILE];
        bool safe = tree || n <= 2 || out[0] == source[0];
        if (n == 1) {
            if (total != (const char *)source[0] + at) memmove(total, (const char *)source[0] + at, bytes);
        } else if (tree) {
            tree_tile(combine, total, source, n, at, some);
        } else {
            chain_tile(combine, safe ? total : aside, source, n, at, some);
        }
        if (!safe) memcpy(total, aside, bytes);
        for (int i = 1; i < outs; i++)
            if ((char *)out[i] + at != (char *)total) memcpy((char *)out[i] + at, total, bytes);
    }
}
