/* The checks of `kolo doctor`, a file for each kind. Those that say collective are called by all ranks in one
 * order, and return a negative status only where the others did not answer. */
#ifndef KOLO_CMD_DOCTOR_H
#define KOLO_CMD_DOCTOR_H

#include "base/option.h"
#include "comm/buckets/trainer.h"
#include "launch/launch.h"

enum doctor_verdict { GOOD, WARN, BAD };

/* What this rank has measured of itself; 0: it has not. */
typedef struct doctor_figures {
    double compute; /* multiplications and additions a second of one thread, 10^9 */
    double copy;    /* bytes a second that one thread copies in memory, 10^9 */
    double read;    /* bytes a second from the data folder, 10^6, all ranks at a time */
} doctor_figures;

typedef struct doctor {
    kolo_launch *launch;
    const kolo_options *options;
    bool json, offline;
    int worst, status; /* status: of the first failure */
    int failures;      /* of this rank */
    bool gpu_failed;   /* one of its GPU's checks */
    doctor_figures figures;
    char data_type[64]; /* file system of the data; "": none was named */
    bool data_shared;   /* many nodes share it */
    char slow[2048];    /* nodes that are far slower than the others, with commas; on rank 0 */
} doctor;

/* One line. What follows a TAB in the formatted text is the cure. Ranks other than 0 report trouble only. */
void doctor_add(doctor *d, enum doctor_verdict verdict, int status, const char *check, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

/* doctor_node.c */
void doctor_check_network(doctor *d);
void doctor_check_processors(doctor *d);
void doctor_check_cgroup(doctor *d);
void doctor_check_libraries(doctor *d);
void doctor_measure(doctor *d);      /* compute, copy */
int doctor_check_binding(doctor *d); /* collective */
/* doctor_data.c: key: "data" or "val" */
void doctor_check_data(doctor *d, const char *key, const char *folder);
void doctor_check_run(doctor *d, const char *folder);
/* doctor_gpu.c, collective */
int doctor_check_gpus(doctor *d);
/* doctor_pairs.c, collective: an allreduce on GPUs, by what NCCL connects them, and with `pairs` how fast
 * every two nodes, and every two ranks of a node, send to each other */
int doctor_check_traffic(doctor *d, bool pairs);
/* doctor_nodes.c, collective: which node's figures are far from the others'; which clock is wrong */
int doctor_compare_nodes(doctor *d);
int doctor_check_clocks(doctor *d, kolo_comm *comm);
/* The upper median of those of values[0..n) that are > 0; 0: none is. */
double doctor_median(const double *values, int n);
void doctor_add_slow(doctor *d, const char *host);
/* doctor_site.c: a file of options for KOLO_SITE, of what was found; on rank 0. */
int doctor_write_site(const doctor *d, const char *path);

#endif
