/* What the checklists of the library half share: numbers of any type that are exact, what a reduction of them
 * must be, reports of all ranks in one line. */
#ifndef TESTS_COMM_CHECKLIST_H
#define TESTS_COMM_CHECKLIST_H

#include <mpi.h>
#include <stdint.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/philox.h"
#include "base/thread.h"
#include "comm/library/parts.h"
#include "kolo/world.h"
#include "tap.h"

enum { LIST_MAX = 70000 }; /* elements */

static kolo_world *world;
static kolo_group *all;
static int rank, size;
static const char *place; /* of the world: "one node" */
static _Alignas(64) char list_in[LIST_MAX * 8 + 64], list_out[LIST_MAX * 8 + 64],
    list_want[LIST_MAX * 8 + 64];

/* A line a check: the first rank that is not content says why. */
static inline void report(int64_t bad, const char *what)
{
    long long mine = bad, sum = 0;
    if (bad)
        fprintf(stderr, "# rank %d of %d, %s: %s: %lld wrong; last error: %s\n", rank, size, place, what,
                (long long)bad, kolo_error_text());
    MPI_Allreduce(&mine, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) is_int(sum, 0, "%d ranks, %s: %s", size, place, what);
}

static inline float half_value(enum kolo_dtype type, uint16_t bits)
{
    if (type == KOLO_BF16) {
        uint32_t wide = (uint32_t)bits << 16;
        float value;
        memcpy(&value, &wide, 4);
        return value;
    }
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    float value = exponent ? ldexpf((float)(mantissa + 1024), exponent - 25) : ldexpf((float)mantissa, -24);
    return bits >> 15 ? -value : value;
}

/* Rounded to nearest, ties to even, by looking for the nearest: independent of the conversions under test.
 * Finite and in range. */
static inline uint16_t half_bits(enum kolo_dtype type, double value)
{
    uint16_t low = 0, high = type == KOLO_BF16 ? 0x7f7f : 0x7bff, sign = signbit(value) ? 0x8000 : 0;
    double v = fabs(value);
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (half_value(type, middle) <= v) low = middle;
        else high = middle;
    }
    double below = v - half_value(type, low), above = half_value(type, high) - v;
    return sign | (below < above || (below == above && !(low & 1)) ? low : high);
}

static inline void put(enum kolo_dtype type, void *at, int64_t i, double value)
{
    switch (type) {
    case KOLO_U8: ((uint8_t *)at)[i] = (uint8_t)(int64_t)value; break;
    case KOLO_I8: ((int8_t *)at)[i] = (int8_t)(int64_t)value; break;
    case KOLO_U16: ((uint16_t *)at)[i] = (uint16_t)(int64_t)value; break;
    case KOLO_I16: ((int16_t *)at)[i] = (int16_t)(int64_t)value; break;
    case KOLO_I32: ((int32_t *)at)[i] = (int32_t)(int64_t)value; break;
    case KOLO_I64: ((int64_t *)at)[i] = (int64_t)value; break;
    case KOLO_F16:
    case KOLO_BF16: ((uint16_t *)at)[i] = half_bits(type, (double)(float)value); break;
    case KOLO_F32: ((float *)at)[i] = (float)value; break;
    case KOLO_F64: ((double *)at)[i] = value; break;
    default: ((uint8_t *)at)[i] = value != 0;
    }
}

static inline double get(enum kolo_dtype type, const void *at, int64_t i)
{
    switch (type) {
    case KOLO_U8: return ((const uint8_t *)at)[i];
    case KOLO_I8: return ((const int8_t *)at)[i];
    case KOLO_U16: return ((const uint16_t *)at)[i];
    case KOLO_I16: return ((const int16_t *)at)[i];
    case KOLO_I32: return ((const int32_t *)at)[i];
    case KOLO_I64: return (double)((const int64_t *)at)[i];
    case KOLO_F16:
    case KOLO_BF16: return half_value(type, ((const uint16_t *)at)[i]);
    case KOLO_F32: return ((const float *)at)[i];
    case KOLO_F64: return ((const double *)at)[i];
    default: return ((const uint8_t *)at)[i] != 0;
    }
}

/* Small whole numbers, of the rank and the place: sums and products of seven are exact in 8 bits
 * of mantissa, or wrap. */
static inline double value(int of, int64_t i, int seed, enum kolo_reduce op, enum kolo_dtype type)
{
    kolo_philox4 r = kolo_philox(77 + (uint64_t)seed, (uint64_t)of, (uint64_t)i);
    int v = op == KOLO_PRODUCT ? (int)(r.v[0] % 3) - 1 + (r.v[1] % 4 == 0) : (int)(r.v[0] % 17) - 8;
    if (type == KOLO_BOOL) return r.v[0] % 3 == 0;
    return type == KOLO_U8 || type == KOLO_U16 ? abs(v) : v;
}

static inline void fill(void *at, int of, int64_t count, int seed, enum kolo_reduce op, enum kolo_dtype type)
{
    for (int64_t i = 0; i < count; i++) put(type, at, i, value(of, i, seed, op, type));
}

/* Of ranks in [0, size) whose bit is set. before, after: factors; divisor: of an average. */
static inline double wanted(uint32_t ranks, int64_t i, int seed, enum kolo_reduce op, enum kolo_dtype type)
{
    double sum = 0;
    int n = 0;
    for (int r = 0; r < 32; r++) {
        if (!(ranks >> r & 1)) continue;
        double v = value(r, i, seed, op, type);
        if (n++ == 0) sum = v;
        else if (op == KOLO_MIN || (type == KOLO_BOOL && op == KOLO_PRODUCT)) sum = v < sum ? v : sum;
        else if (op == KOLO_MAX || type == KOLO_BOOL) sum = v > sum ? v : sum;
        else sum = op == KOLO_PRODUCT ? sum * v : sum + v;
    }
    if (op != KOLO_AVERAGE || type == KOLO_BOOL) return sum;
    bool whole = type != KOLO_F16 && type != KOLO_BF16 && type != KOLO_F32 && type != KOLO_F64;
    return whole ? trunc(sum / n) : sum / n;
}

static inline int64_t differ(const void *got, int64_t count, uint32_t ranks, int seed, enum kolo_reduce op,
                             enum kolo_dtype type)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < count; i++) put(type, list_want, i, wanted(ranks, i, seed, op, type));
    for (int64_t i = 0; i < count; i++) bad += get(type, got, i) != get(type, list_want, i);
    return bad;
}

static inline uint32_t everybody(void) { return (1u << size) - 1; }

static inline kolo_request request(enum kolo_collective what, void *in, void *out, enum kolo_dtype type,
                                   int64_t rows, int64_t columns)
{
    return (kolo_request){
        .what = what, .in = in, .out = out, .type = type, .dims = columns ? 2 : 1, .dim = {rows, columns}};
}

/* Submits and waits. */
static inline int run(kolo_group *group, const kolo_request *r, kolo_output *output)
{
    kolo_handle h = 0;
    KOLO_TRY(kolo_submit(group, r, &h));
    int rc = kolo_wait(world, h);
    if (rc == 0 && output) rc = kolo_result(world, h, output);
    if (!output && !r->out) kolo_release(world, h);
    return rc;
}

/* 0: the request failed with KOLO_EINPUT and a text that holds both words. */
static inline int refused(int rc, const char *one, const char *other)
{
    bool right = rc == KOLO_EINPUT && strstr(kolo_error_text(), one) && strstr(kolo_error_text(), other);
    if (!right)
        fprintf(stderr, "# rank %d: status %d: %s (wanted \"%s\" and \"%s\")\n", rank, rc, kolo_error_text(),
                one, other);
    return !right;
}

/* World ranks of the members, as bits. */
static inline uint32_t bits_of(const kolo_group *g)
{
    uint32_t bits = 0;
    for (int m = 0; m < g->size; m++) bits |= 1u << g->rank_of[m];
    return bits;
}

/* 0: all ranks of the world have the same bytes. */
static inline int64_t differs_between_ranks(const void *data, size_t bytes)
{
    uint64_t hash = kolo_hash_bytes(KOLO_HASH, data, bytes), most, least;
    MPI_Allreduce(&hash, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&hash, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    return most != least;
}

/* Nothing is left over: an allreduce still works. */
static inline int64_t still_works(kolo_group *group)
{
    int64_t one = 1;
    return kolo_allreduce(group, NULL, &one, 1, KOLO_I64, KOLO_SUM) < 0 || one != kolo_group_size(group);
}

#endif
