#include "comm/library/negotiate.h"

#include <string.h>

#include "comm/compress/compress.h"

static double factor(double x) { return x == 0 ? 1 : x; }
static const char *word(const char *text) { return text ? text : ""; }

/* Others than these have scales of blocks, or keep by name what they leave out. */
static bool compressed_alike(const char *x, const char *y)
{
    comm_compress config;
    return strcmp(x, y) == 0 &&
           (!*x || (comm_compress_parse(&config, x) == 0 && comm_compress_is_elementwise(config.kind)));
}

/* Adasum has coefficients for every tensor, so two of them are no longer vector. */
static bool fuse_together(const lib_begin *a, const lib_begin *b)
{
    const kolo_request *x = a->r, *y = b->r;
    if (!lib_is(x->what, LIB_FUSES) || x->what != y->what || a->contributors != b->contributors ||
        a->gpu != b->gpu)
        return false;
    if (x->what == KOLO_BROADCAST) return x->root == y->root; /* of bytes */
    if (x->type != y->type) return false;
    if (x->what == KOLO_ALLGATHER) return true;
    return x->reduce == y->reduce && x->reduce != KOLO_ADASUM && factor(x->prescale) == factor(y->prescale) &&
           factor(x->postscale) == factor(y->postscale) &&
           compressed_alike(word(x->compression), word(y->compression));
}

enum { OPEN_MAX = 32 }; /* kinds gathered at a time; a further one takes the place of the oldest */

typedef struct open_batch {
    int64_t first, batch, bytes; /* first: request that stands for its kind */
} open_batch;

typedef struct fusing {
    open_batch open[OPEN_MAX];
    int opens, oldest;
    int64_t batches, limit;
} fusing;

static open_batch *fuse_find(fusing *f, const lib_begin *begin, int64_t i, int64_t bytes)
{
    open_batch *found = NULL;
    for (int o = 0; o < f->opens && !found; o++)
        if (fuse_together(&begin[f->open[o].first], &begin[i])) found = &f->open[o];
    if (found && found->bytes + bytes <= f->limit) return found;
    if (!found && f->opens < OPEN_MAX) found = &f->open[f->opens++];
    if (!found) found = &f->open[f->oldest++ % OPEN_MAX];
    *found = (open_batch){i, f->batches++, 0};
    return found;
}

/* Requests i ... end - 1 begin together; of_batch[i] < 0: not dealt yet. */
static void deal(fusing *f, const lib_begin *begin, int64_t i, int64_t end, int64_t *of_batch)
{
    for (; i < end; i++) {
        if (of_batch[i] >= 0) continue;
        if (!fuse_together(&begin[i], &begin[i])) {
            of_batch[i] = f->batches++;
            continue;
        }
        int64_t bytes = begin[i].bytes;
        for (int64_t j = i + 1; j < end; j++)
            if (of_batch[j] < 0 && fuse_together(&begin[i], &begin[j])) bytes += begin[j].bytes;
        open_batch *open = fuse_find(f, begin, i, bytes);
        for (int64_t j = end - 1; j >= i; j--) /* i last: the others are compared with it */
            if (of_batch[j] < 0 && fuse_together(&begin[i], &begin[j])) of_batch[j] = open->batch;
        open->bytes += bytes;
    }
}

int64_t lib_fuse(const lib_begin *begin, int64_t begins, size_t fusion_bytes, bool fixed, int64_t *order,
                 int64_t *start, int64_t *scratch)
{
    fusing f = {.limit = (int64_t)fusion_bytes};
    for (int64_t i = 0; i < begins; i++) scratch[i] = -1;
    for (int64_t i = 0, end; i < begins; i = end) {
        for (end = i + 1; end < begins && begin[end].unit == begin[i].unit;) end++;
        deal(&f, begin, i, end, scratch);
        if (fixed) f.opens = 0;
    }
    memset(start, 0, (size_t)(f.batches + 1) * sizeof *start);
    for (int64_t i = 0; i < begins; i++) start[scratch[i] + 1]++;
    for (int64_t b = 0; b < f.batches; b++) start[b + 1] += start[b];
    int64_t *next = scratch + begins;
    memcpy(next, start, (size_t)f.batches * sizeof *next);
    for (int64_t i = 0; i < begins; i++) order[next[scratch[i]]++] = i;
    return f.batches;
}
