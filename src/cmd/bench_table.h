/* The tables of `kolo bench gradients` and of the collectives: the columns of nccl-tests, or OSU's. */
#ifndef KOLO_CMD_BENCH_TABLE_H
#define KOLO_CMD_BENCH_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "launch/launch.h"

typedef struct kolo_bench_timing {
    double mean, least, most; /* over ranks, seconds of a call */
    int64_t wrong;            /* values over all ranks; negative: nobody looked */
} kolo_bench_timing;

typedef struct kolo_bench_row {
    int64_t bytes, count, calls;
    const char *type, *sum; /* sum: "sum", "max", ...; "none" */
    int root;               /* -1: it has none */
    double factor;          /* of the bus' bandwidth over the algorithm's */
} kolo_bench_row;

typedef struct kolo_bench_table {
    const kolo_launch *launch; /* rank 0 prints */
    bool osu, checks, both;    /* both: out of place and in place */
    int64_t wrong;
    double busbw; /* sum over `timings` */
    int timings;
} kolo_bench_table;

void kolo_bench_head(const kolo_bench_table *table);
/* other: NULL, or of the same in place. */
void kolo_bench_line(kolo_bench_table *table, const kolo_bench_row *row, const kolo_bench_timing *timing,
                     const kolo_bench_timing *other);
void kolo_bench_tail(const kolo_bench_table *table);

#endif
