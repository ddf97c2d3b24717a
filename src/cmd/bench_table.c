#include "cmd/bench_table.h"

#include <inttypes.h>
#include <stdio.h>

void kolo_bench_head(const kolo_bench_table *t)
{
    if (t->launch->rank != 0) return;
    if (t->osu) printf("# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations\n");
    else if (t->both)
        printf("#\n#                                                        out-of-place                     "
               " in-place\n"
               "#       size         count    type   redop    root     time   algbw   busbw  #wrong     time "
               "  algbw   busbw  #wrong\n"
               "#        (B)    (elements)                             (us)  (GB/s)  (GB/s)             (us) "
               " (GB/s)  (GB/s)        \n");
    else
        printf("#\n#       size         count    type   redop    root     time   algbw   busbw  #wrong\n"
               "#        (B)    (elements)                             (us)  (GB/s)  (GB/s)        \n");
}

static void print_timing(kolo_bench_table *t, const kolo_bench_row *row, const kolo_bench_timing *timing)
{
    const double algbw = (double)row->bytes / timing->mean / 1e9, busbw = algbw * row->factor;
    t->busbw += busbw;
    t->timings++;
    if (timing->wrong > 0) t->wrong += timing->wrong;
    if (t->launch->rank != 0 || t->osu) return;
    printf(" %8.2f %7.2f %7.2f", timing->mean * 1e6, algbw, busbw);
    if (timing->wrong < 0) printf("     N/A");
    else printf(" %7" PRId64, timing->wrong);
}

void kolo_bench_line(kolo_bench_table *t, const kolo_bench_row *row, const kolo_bench_timing *timing,
                     const kolo_bench_timing *other)
{
    const bool prints = t->launch->rank == 0;
    if (prints && t->osu)
        printf("%-10" PRId64 "%18.2f%18.2f%18.2f%12" PRId64, row->bytes, timing->mean * 1e6,
               timing->least * 1e6, timing->most * 1e6, row->calls);
    else if (prints)
        printf("%12" PRId64 "%14" PRId64 "%8s%8s%8d", row->bytes, row->count, row->type, row->sum, row->root);
    print_timing(t, row, timing);
    if (other) print_timing(t, row, other);
    if (prints) printf("\n");
    fflush(stdout);
}

void kolo_bench_tail(const kolo_bench_table *t)
{
    if (t->launch->rank != 0 || t->osu) return;
    printf("# Out of bounds values : %" PRId64 " %s\n# Avg bus bandwidth    : %g\n", t->wrong,
           t->wrong    ? "FAILED"
           : t->checks ? "OK"
                       : "not checked",
           t->busbw / (t->timings ? t->timings : 1));
    fflush(stdout);
}
