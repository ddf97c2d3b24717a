/* Rates: what one GPU is taken to do, as the tables of share/gpus say it (flat YAML, key: number). A plan is
 * priced by them. */
#ifndef KOLO_PLAN_RATES_H
#define KOLO_PLAN_RATES_H

#include "graph/graph.h"

/* The keys that a table must have: KEY(name, least, most, what). */
#define KOLO_RATES(KEY)                                              \
    KEY(memory, 1e6, 1e15, "bytes")                                  \
    KEY(bandwidth, 1e-3, 1e7, "GB/s of its memory")                  \
    KEY(f32, 1e-3, 1e7, "TFLOP/s")                                   \
    KEY(tf32, 1e-3, 1e7, "TFLOP/s")                                  \
    KEY(bf16, 1e-3, 1e7, "TFLOP/s")                                  \
    KEY(fp16, 1e-3, 1e7, "TFLOP/s")                                  \
    KEY(launch, 0, 1e6, "microseconds of a kernel beside its work")  \
    KEY(gpus, 1, 1e6, "GPUs of a node")                              \
    KEY(link, 1e-3, 1e6, "GB/s each way between GPUs of a node")     \
    KEY(network, 1e-3, 1e6, "GB/s each way of a GPU to other nodes") \
    KEY(latency, 0, 1e6, "microseconds of a small allreduce")        \
    KEY(link_share, 1e-3, 1, "of link or network that sums reach")   \
    KEY(bytes, 1e-3, 1, "of the bandwidth that is reached")          \
    KEY(flops, 1e-3, 1, "of the rate that is reached")

typedef struct kolo_rates {
#define KEY(name, ...) double name;
    KOLO_RATES(KEY)
#undef KEY
    /* bytes_CLASS, flops_CLASS, launch_CLASS; 0: as all */
    double bytes_of[KOLO_CLASSES], flops_of[KOLO_CLASSES], launch_of[KOLO_CLASSES];
    double
        winograd; /* its library has Winograd's convolutions of 3x3 in f32, of tiles up to so many pixels */
} kolo_rates;

void kolo_rates_begin(kolo_rates *rates); /* nothing is known */
/* Sets the keys that the file has; the others stay. KOLO_ECONFIG names file, line and key: no such key (the
 * nearest is offered), no number, one out of its range. */
int kolo_rates_read(kolo_rates *rates, const char *path);
/* Whether all keys are there; KOLO_ECONFIG names file and key. */
int kolo_rates_check(const kolo_rates *rates, const char *path);

#endif
