/* Many vectors into one, in a fixed order. */
#include "comm/core/kernel_wide.h"

#include <string.h>

enum { TILE = 4096, LEVELS = 12 }; /* bytes: source tiles and partial sums stay in the first cache */
_Static_assert(COMM_FOLD_MAX < 1 << (LEVELS - 2), "a partial sum for every level of the tree");

/* How one fold goes: 16-bit types widen to f32 where they are read. */
typedef struct plan {
    comm_folding how;
    enum kolo_dtype type; /* in which it is folded */
    size_t width;         /* of that */
    comm_combine combine;
    bool load, store; /* what is read, what is written passes a conversion or a factor */
} plan;

static plan plan_of(const comm_folding *how)
{
    plan p = {.how = *how, .type = how->type};
    bool half = how->type == KOLO_F16 || how->type == KOLO_BF16;
    if (!p.how.divisor) p.how.divisor = 1;
    if (p.how.prescale == 0) p.how.prescale = 1;
    if (p.how.postscale == 0) p.how.postscale = 1;
    if (half) p.type = KOLO_F32;
    p.width = kolo_dtype_size(p.type);
    p.combine = comm_combine_of(p.type, how->op);
    p.load = half || p.how.prescale != 1;
    p.store = half || p.how.postscale != 1 || p.how.divisor != 1;
    return p;
}

/* A tile of a source as it is folded: where it lies, or in `into`. */
static const void *kernel_fold_load(const plan *p, void *into, const void *source, int64_t first,
                                    int64_t count)
{
    const char *from = (const char *)source + (size_t)first * kolo_dtype_size(p->how.type);
    if (!p->load) return from;
    if (p->type != p->how.type) {
        comm_widen(into, from, count, p->how.type);
        comm_scale(into, into, count, p->type, 1, p->how.prescale);
    } else {
        comm_scale(into, from, count, p->type, 1, p->how.prescale);
    }
    return into;
}

static void store(const plan *p, void *out, void *total, int64_t count)
{
    if (p->type != p->how.type) {
        comm_scale(total, total, count, p->type, p->how.divisor, p->how.postscale);
        comm_narrow(out, total, count, p->how.type);
    } else {
        comm_scale(out, total, count, p->type, p->how.divisor, p->how.postscale);
    }
}

static void chain_tile(const plan *p, void *total, const void *const *source, int n, int64_t first,
                       int64_t count)
{
    _Alignas(64) char a[TILE], b[TILE];
    const void *sum = kernel_fold_load(p, a, source[0], first, count);
    for (int i = 1; i < n; i++, sum = total)
        p->combine(total, sum, kernel_fold_load(p, b, source[i], first, count), count);
    if (n == 1) memcpy(total, sum, (size_t)count * p->width);
}

/* Leaves come from left to right; a finished pair of equal blocks merges at once, the uneven rest at the
 * end. */
static void tree_tile(const plan *p, void *total, const void *const *source, int n, int64_t first,
                      int64_t count)
{
    _Alignas(64) char partial[LEVELS][TILE];
    const void *stack[LEVELS];
    int depth = 0;
    for (int i = 0; i < n; i++, depth++) {
        stack[depth] = kernel_fold_load(p, partial[depth], source[i], first, count);
        bool last = i == n - 1;
        for (int bits = i; depth > 0 && (last || (bits & 1)); bits >>= 1, depth--) {
            void *into = last && depth == 1 ? total : partial[depth - 1];
            p->combine(into, stack[depth - 1], stack[depth], count);
            stack[depth - 1] = into;
        }
    }
    if (n == 1) memcpy(total, stack[0], (size_t)count * p->width);
}

static void copy_tile(void *const *out, int outs, const void *from, size_t at, size_t bytes)
{
    for (int i = 0; i < outs; i++)
        if ((const char *)out[i] + at != from) memcpy((char *)out[i] + at, from, bytes);
}

void comm_fold(const comm_folding *how, void *const *out, int outs, const void *const *source, int n,
               int64_t count)
{
    plan p = plan_of(how);
    size_t width = kolo_dtype_size(how->type);
    int64_t step = (int64_t)(TILE / p.width);
    bool copy = n == 1 && p.how.prescale == 1 && p.how.postscale == 1 && p.how.divisor == 1;
    /* the chain writes its target early, which must not be a source still to be read; a tree's last
     * step is its only one */
    bool aside = p.store || (!how->tree && n > 2 && out[0] != source[0]);
    for (int64_t first = 0; first < count; first += step) {
        int64_t some = count - first < step ? count - first : step;
        size_t at = (size_t)first * width, bytes = (size_t)some * width;
        _Alignas(64) char total[TILE];
        void *target = (char *)out[0] + at;
        if (copy) {
            copy_tile(out, outs, (const char *)source[0] + at, at, bytes);
            continue;
        }
        (how->tree ? tree_tile : chain_tile)(&p, aside ? total : target, source, n, first, some);
        if (p.store) store(&p, target, total, some);
        else if (aside) memcpy(target, total, bytes);
        copy_tile(out + 1, outs - 1, target, at, bytes);
    }
}
