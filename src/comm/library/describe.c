/* What a request is: whether it is right in itself, in words, and as a number by which members compare. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "comm/library/parts.h"

static const char *const reduce_names[KOLO_REDUCE_COUNT] = {"sum", "average", "min",
                                                            "max", "product", "adasum"};

bool lib_is(enum kolo_collective what, unsigned trait)
{
    enum { PARTS = LIB_VECTOR | LIB_FREE_FIRST | LIB_ROWS };
    static const unsigned char traits[KOLO_COLLECTIVE_COUNT] = {
        [KOLO_ALLREDUCE] = LIB_VECTOR | LIB_REDUCES | LIB_FUSES,
        [KOLO_REDUCE_SCATTER] = LIB_VECTOR | LIB_REDUCES | LIB_ROWS | LIB_FUSES,
        [KOLO_ALLGATHER] = PARTS | LIB_GATHERS | LIB_FUSES,
        [KOLO_BROADCAST] = LIB_VECTOR | LIB_ROOT | LIB_FUSES,
        [KOLO_GATHER] = PARTS | LIB_GATHERS | LIB_ROOT,
        [KOLO_SCATTER] = PARTS | LIB_ROOT,
        [KOLO_ALLTOALL] = PARTS,
        [KOLO_SPARSE_ALLREDUCE] = PARTS | LIB_REDUCES,
    };
    return (unsigned)what < KOLO_COLLECTIVE_COUNT && traits[what] & trait;
}

int64_t lib_elements(const kolo_request *r, int from)
{
    int64_t n = 1;
    for (int d = from; d < r->dims; d++) n *= r->dim[d];
    return n;
}

/* ---- right in itself ----------------------------------------------------------------------------------- */

static bool too_large(const kolo_request *r)
{
    int64_t n = (int64_t)kolo_dtype_size(r->type);
    for (int d = 0; d < r->dims; d++)
        if (__builtin_mul_overflow(n, r->dim[d] ? r->dim[d] : 1, &n)) return true;
    return r->what == KOLO_SPARSE_ALLREDUCE &&
           n > LIB_BYTES_MAX; /* beside rows lie their numbers, and rows of f32 */
}

static void check_shape(const kolo_request *r, char *text, size_t bytes)
{
    if ((unsigned)r->type >= KOLO_DTYPES) snprintf(text, bytes, "there is no type %d", (int)r->type);
    else if (r->dims < 0 || r->dims > KOLO_REQUEST_DIMS)
        snprintf(text, bytes, "%d dimensions; at most %d", r->dims, KOLO_REQUEST_DIMS);
    for (int d = 0; d < r->dims && !text[0]; d++)
        if (r->dim[d] < 0) snprintf(text, bytes, "dimension %d is %lld", d, (long long)r->dim[d]);
    if (text[0]) return;
    if (too_large(r)) snprintf(text, bytes, "more bytes than a number of 64 bits counts");
    else if (lib_is(r->what, LIB_ROWS) && r->dims == 0)
        snprintf(text, bytes, "a scalar has no rows; bring it as one row");
    else if (r->what == KOLO_SPARSE_ALLREDUCE && r->dims != 2)
        snprintf(text, bytes, "sparse rows have 2 dimensions, not %d", r->dims);
}

static void check_reduce(const kolo_request *r, char *text, size_t bytes)
{
    comm_compress compression;
    if ((unsigned)r->reduce >= KOLO_REDUCE_COUNT)
        snprintf(text, bytes, "there is no reduction %d", (int)r->reduce);
    else if (r->what == KOLO_REDUCE_SCATTER && r->reduce == KOLO_ADASUM)
        snprintf(text, bytes, "there is no reduce_scatter with adasum");
    else if (r->what == KOLO_SPARSE_ALLREDUCE && r->reduce != KOLO_SUM && r->reduce != KOLO_AVERAGE)
        snprintf(text, bytes, "sparse rows are summed or averaged, not reduced by %s",
                 reduce_names[r->reduce]);
    else if (r->reduce == KOLO_ADASUM && !kolo_dtype_is_real(r->type))
        snprintf(text, bytes, "adasum is of floats, not of %s", kolo_dtype_name(r->type));
    else if (r->compression && (r->what != KOLO_ALLREDUCE || r->type != KOLO_F32 ||
                                (r->reduce != KOLO_SUM && r->reduce != KOLO_AVERAGE)))
        snprintf(text, bytes, "compression \"%s\" is for sums and averages of f32 by allreduce",
                 r->compression);
    else if (r->compression && comm_compress_parse(&compression, r->compression) < 0)
        snprintf(text, bytes, "%s", kolo_error_text());
    else if (r->compression && !r->name && comm_compress_has_error_feedback(compression.kind))
        snprintf(text, bytes,
                 "compression \"%s\" sends later what it leaves out now: the request needs a name",
                 r->compression);
}

static void check_splits(const kolo_request *r, const kolo_group *group, char *text, size_t bytes)
{
    const int members = group->size, me = group->rank;
    int64_t sum = 0;
    bool bad = false;
    if (!r->splits) {
        if (r->what == KOLO_ALLTOALL && r->dim[0] % members)
            snprintf(text, bytes, "%lld rows cannot be cut evenly for %d members; give splits",
                     (long long)r->dim[0], members);
        return;
    }
    for (int m = 0; m < members; m++)
        bad |= r->splits[m] < 0 || __builtin_add_overflow(sum, r->splits[m], &sum);
    if (bad) snprintf(text, bytes, "splits are negative, or sum up to more than 64 bits count");
    else if ((r->what == KOLO_ALLTOALL || (r->what == KOLO_SCATTER && me == r->root)) && sum > r->dim[0])
        snprintf(text, bytes, "splits sum up to %lld rows of %lld", (long long)sum, (long long)r->dim[0]);
    else if (lib_is(r->what, LIB_GATHERS) && r->splits[me] != r->dim[0])
        snprintf(text, bytes, "splits say %lld rows of this member, which brings %lld",
                 (long long)r->splits[me], (long long)r->dim[0]);
}

bool lib_fits_dense(const kolo_request *r)
{
    int64_t n;
    return !__builtin_mul_overflow(r->rows, r->dim[1] * (int64_t)kolo_dtype_size(r->type), &n) &&
           n <= LIB_BYTES_MAX;
}

static void check_index(const kolo_request *r, char *text, size_t bytes)
{
    if (r->rows < 0 || (!r->index && r->dim[0]))
        snprintf(text, bytes, "no row numbers, or a negative number of rows");
    else if (r->out && !lib_fits_dense(r))
        snprintf(text, bytes,
                 "no memory can hold all %lld rows of %lld %s, as `out` asks for; leave it NULL for pairs",
                 (long long)r->rows, (long long)r->dim[1], kolo_dtype_name(r->type));
    for (int64_t i = 0; !text[0] && i < r->dim[0]; i++)
        if (r->index[i] < 0 || r->index[i] >= r->rows)
            snprintf(text, bytes, "row number %lld of a matrix of %lld rows", (long long)r->index[i],
                     (long long)r->rows);
}

bool lib_check(const kolo_group *group, const kolo_request *r, char *text, size_t bytes)
{
    text[0] = 0;
    if ((unsigned)r->what >= KOLO_COLLECTIVE_COUNT)
        snprintf(text, bytes, "there is no collective %d", (int)r->what);
    if (text[0] || !lib_is(r->what, LIB_VECTOR)) return false;
    check_shape(r, text, bytes);
    if (!text[0] && lib_is(r->what, LIB_REDUCES)) check_reduce(r, text, bytes);
    if (!text[0] && lib_is(r->what, LIB_ROOT) && (r->root < 0 || r->root >= group->size))
        snprintf(text, bytes, "root %d is no member of a group of %d", r->root, group->size);
    if (!text[0] && lib_is(r->what, LIB_FREE_FIRST)) check_splits(r, group, text, bytes);
    if (text[0]) return false;
    bool brings = r->what == KOLO_SCATTER || r->what == KOLO_BROADCAST ? r->root == group->rank : true;
    if (brings && lib_elements(r, 0) > 0 && !r->in && !r->out)
        snprintf(text, bytes, "neither in nor out is given");
    if (!text[0] && lib_gpu_check(group, r, text, bytes)) return true;
    if (!text[0] && r->what == KOLO_SPARSE_ALLREDUCE) check_index(r, text, bytes);
    return false;
}

/* ---- in words ------------------------------------------------------------------------------------------ */

enum { COUNTS_SHOWN = 12 };

static bool counts_alike(const kolo_request *r, int members)
{
    int m = 0;
    while (m < members && r->splits[m] == r->dim[0]) m++;
    return m == members;
}

bool lib_describes_part(const kolo_request *r, int members)
{
    return lib_is(r->what, LIB_GATHERS) && r->splits && members > COUNTS_SHOWN && !counts_alike(r, members);
}

/* Splits that every member knows: ", counts 1, 3, 2"; ", counts given" where they are all alike. */
static void add_counts(char *text, size_t bytes, const kolo_request *r, int members)
{
    int64_t sum = 0;
    if (counts_alike(r, members)) {
        kolo_append(text, bytes, ", counts given");
        return;
    }
    for (int m = 0; m < members; m++) {
        sum += r->splits[m];
        if (m < COUNTS_SHOWN)
            kolo_append(text, bytes, "%s%lld", m ? ", " : ", counts ", (long long)r->splits[m]);
    }
    if (members > COUNTS_SHOWN) kolo_append(text, bytes, ", ... (%lld in all)", (long long)sum);
}

/* With as many digits as it takes to be distinguished from any other. */
static void add_factor(char *text, size_t bytes, const char *before, double factor)
{
    char word[32];
    snprintf(word, sizeof word, "%g", factor);
    if (strtod(word, NULL) != factor) snprintf(word, sizeof word, "%.17g", factor);
    kolo_append(text, bytes, "%s%s", before, word);
}

void lib_describe(const lib_entry *entry, char *text, size_t bytes)
{
    const kolo_request *r = &entry->r;
    text[0] = 0;
    if (entry->note) kolo_append(text, bytes, "%s", entry->note);
    else if ((unsigned)r->what < KOLO_COLLECTIVE_COUNT)
        kolo_append(text, bytes, "%s", comm_collective_name(r->what));
    else kolo_append(text, bytes, "collective %d", (int)r->what);
    if (lib_is(r->what, LIB_VECTOR) && (unsigned)r->type < KOLO_DTYPES && r->dims >= 0 &&
        r->dims <= KOLO_REQUEST_DIMS) {
        for (int d = 0; d < r->dims; d++)
            kolo_append(text, bytes, "%s%lld", d ? " x " : " of ", (long long)r->dim[d]);
        kolo_append(text, bytes, "%s %s", r->dims ? "" : " of one", kolo_dtype_name(r->type));
        if (lib_is(r->what, LIB_REDUCES) && (unsigned)r->reduce < KOLO_REDUCE_COUNT)
            kolo_append(text, bytes, ", %s", reduce_names[r->reduce]);
        if (lib_is(r->what, LIB_ROOT)) kolo_append(text, bytes, ", root %d", r->root);
        if (r->splits && lib_is(r->what, LIB_GATHERS)) add_counts(text, bytes, r, entry->group->size);
        if (lib_is(r->what, LIB_REDUCES) && (r->prescale != 1 || r->postscale != 1)) {
            add_factor(text, bytes, ", scaled by ", r->prescale);
            add_factor(text, bytes, " and ", r->postscale);
        }
        if (r->what == KOLO_SPARSE_ALLREDUCE) kolo_append(text, bytes, ", of %lld rows", (long long)r->rows);
        if (r->compression) kolo_append(text, bytes, ", compression %s", r->compression);
        if (entry->gpu) kolo_append(text, bytes, ", on a GPU");
    }
    if (entry->bundle_size > 1) kolo_append(text, bytes, ", one of %d grouped", entry->bundle_size);
    if (entry->fault) kolo_append(text, bytes, " (%s)", entry->fault);
}

/* ---- as a number --------------------------------------------------------------------------------------- */

static uint64_t mix_text(uint64_t hash, const char *text)
{
    return text ? kolo_hash_bytes(hash, text, strlen(text) + 1) : hash;
}

uint64_t lib_signature(const lib_entry *entry)
{
    const kolo_request *r = &entry->r;
    uint64_t hash = kolo_hash_word(0x6b6f6c6f, (uint64_t)r->what);
    hash = mix_text(mix_text(hash, entry->fault), entry->note);
    if (entry->gpu) hash = kolo_hash_word(hash, 0x677075);
    if (!lib_is(r->what, LIB_VECTOR) || r->dims < 0 || r->dims > KOLO_REQUEST_DIMS) return hash | 1;
    hash = kolo_hash_word(kolo_hash_word(hash, (uint64_t)r->type), (uint64_t)r->dims);
    for (int d = lib_is(r->what, LIB_FREE_FIRST) ? 1 : 0; d < r->dims; d++)
        hash = kolo_hash_word(hash, (uint64_t)r->dim[d]);
    if (lib_is(r->what, LIB_REDUCES)) {
        uint64_t factors[2];
        memcpy(factors, (const double[]){r->prescale, r->postscale}, sizeof factors);
        hash =
            kolo_hash_word(kolo_hash_word(kolo_hash_word(hash, (uint64_t)r->reduce), factors[0]), factors[1]);
    }
    if (lib_is(r->what, LIB_ROOT)) hash = kolo_hash_word(hash, (uint64_t)r->root);
    if (r->what == KOLO_SPARSE_ALLREDUCE) hash = kolo_hash_word(hash, (uint64_t)r->rows);
    if (lib_is(r->what, LIB_GATHERS)) {
        hash = kolo_hash_word(hash, r->splits != NULL);
        for (int m = 0; r->splits && m < entry->group->size; m++)
            hash = kolo_hash_word(hash, (uint64_t)r->splits[m]);
    }
    hash = kolo_hash_word(hash, (uint64_t)entry->bundle_size);
    return mix_text(hash, r->compression) | 1;
}
