/* kolo doctor: the nodes of a job against each other: which one is slow, and whose clock is wrong. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/thread.h"
#include "cmd/doctor.h"
#include "comm/buckets/trainer.h"
#include "kolo/error.h"

enum { CLOCK_ROUNDS = 15 };
static const double far = 0.5, near = 0.85, skew_seconds = 0.5;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double doctor_median(const double *values, int n)
{
    double *sorted = kolo_alloc((size_t)(n ? n : 1) * sizeof *sorted), median = 0;
    int used = 0;
    for (int i = 0; sorted && i < n; i++)
        if (values[i] > 0) sorted[used++] = values[i];
    if (used) {
        qsort(sorted, (size_t)used, sizeof *sorted, by_value);
        median = sorted[used / 2];
    }
    free(sorted);
    return median;
}

void doctor_add_slow(doctor *d, const char *host)
{
    const size_t n = strlen(host);
    for (const char *p = strstr(d->slow, host); p; p = strstr(p + 1, host))
        if ((p == d->slow || p[-1] == ',') && (!p[n] || p[n] == ',')) return;
    kolo_append(d->slow, sizeof d->slow, "%s%s", *d->slow ? "," : "", host);
}

/* ---- figures ------------------------------------------------------------------------------------------- */

/* Of a node's ranks the least, as the slowest of them is waited for. */
static void fold_nodes(const doctor *d, const doctor_figures *all, size_t offset, double *node)
{
    for (int i = 0; i < d->launch->nodes; i++) node[i] = 0;
    for (int r = 0; r < d->launch->size; r++) {
        const double value = *(const double *)((const char *)&all[r] + offset);
        double *n = &node[d->launch->node_of[r]];
        if (value > 0 && (*n == 0 || value < *n)) *n = value;
    }
}

/* own: the figure is of the node alone; else, as of a shared file system, a low one convicts nobody. */
static void compare(doctor *d, const char *check, const char *what, const char *unit, bool own,
                    const double *node)
{
    const int n = d->launch->nodes;
    const double median = doctor_median(node, n);
    int slowest = -1;
    for (int i = 0; i < n; i++) {
        if (node[i] <= 0) continue;
        if (slowest < 0 || node[i] < node[slowest]) slowest = i;
        if (own && n > 2 && node[i] < far * median) {
            doctor_add(d, BAD, KOLO_ELAUNCH, check,
                       "node %s %s %.3g %s, the nodes' median is %.3g: it is slow\tleave it out (sbatch "
                       "--exclude=%s) and have it looked at: heat, power, other processes",
                       d->launch->host_of[i], what, node[i], unit, median, d->launch->host_of[i]);
            doctor_add_slow(d, d->launch->host_of[i]);
        }
    }
    if (slowest >= 0 && n == 1) doctor_add(d, GOOD, 0, check, "a thread %s %.3g %s", what, median, unit);
    if (slowest < 0 || n == 1) return;
    doctor_add(d, node[slowest] < near * median ? WARN : GOOD, 0, check,
               "a thread %s %.3g %s, median of %d nodes; slowest node %s with %.3g", what, median, unit, n,
               d->launch->host_of[slowest], node[slowest]);
}

int doctor_compare_nodes(doctor *d)
{
    static const struct {
        const char *check, *what, *unit;
        size_t offset;
        bool own;
    } figure[] = {{"compute", "computes", "GFLOP/s", offsetof(doctor_figures, compute), true},
                  {"memory", "copies", "GB/s", offsetof(doctor_figures, copy), true},
                  {"data", "reads", "MB/s", offsetof(doctor_figures, read), false}};
    const kolo_launch *l = d->launch;
    doctor_figures *all = kolo_alloc((size_t)l->size * sizeof *all);
    double *node = kolo_alloc((size_t)l->nodes * sizeof *node);
    int rc = all && node ? kolo_launch_exchange(d->launch, &d->figures, sizeof *all, all) : KOLO_ENOMEM;
    for (size_t i = 0; rc >= 0 && l->rank == 0 && i < sizeof figure / sizeof *figure; i++) {
        fold_nodes(d, all, figure[i].offset, node);
        compare(d, figure[i].check, figure[i].what, figure[i].unit, figure[i].own, node);
    }
    free(all);
    free(node);
    return rc < 0 ? rc : 0;
}

/* ---- clocks -------------------------------------------------------------------------------------------- */

static double wall_time(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* All leave a barrier at about one time, so the clocks that they then read should agree: the median of some
 * rounds. */
static void report_clocks(doctor *d, const double *all, double barrier)
{
    const kolo_launch *l = d->launch;
    double worst = 0;
    int wrong = 0;
    for (int r = 0; r < l->size; r++) {
        double apart[CLOCK_ROUNDS];
        if (l->local_of[r] != 0) continue;
        for (int i = 0; i < CLOCK_ROUNDS; i++) apart[i] = all[r * CLOCK_ROUNDS + i] - all[i];
        qsort(apart, CLOCK_ROUNDS, sizeof *apart, by_value);
        const double skew = apart[CLOCK_ROUNDS / 2];
        if (fabs(skew) > fabs(worst)) worst = skew;
        if (fabs(skew) < skew_seconds) continue;
        wrong++;
        doctor_add(d, WARN, 0, "clock",
                   "the clock of node %s is %.3f s %s that of node %s\tstart chronyd or ntpd there: times of "
                   "files and logs, and Slurm's credentials, go by it",
                   l->host_of[l->node_of[r]], fabs(skew), skew > 0 ? "ahead of" : "behind",
                   l->host_of[l->node_of[0]]);
    }
    if (!wrong && l->nodes > 1)
        doctor_add(d, GOOD, 0, "clock", "clocks of %d nodes agree to %.1f ms (measured to %.1f ms)", l->nodes,
                   fabs(worst) * 1e3, barrier * 1e3);
}

int doctor_check_clocks(doctor *d, kolo_comm *comm)
{
    double mine[CLOCK_ROUNDS], *all = kolo_alloc((size_t)d->launch->size * sizeof mine);
    int rc = kolo_comm_agree(comm, all ? 0 : KOLO_ENOMEM);
    const double begin = kolo_time();
    for (int i = 0; rc == 0 && i < CLOCK_ROUNDS; i++) {
        rc = kolo_comm_barrier(comm);
        mine[i] = wall_time();
    }
    const double barrier = (kolo_time() - begin) / CLOCK_ROUNDS;
    if (rc == 0) rc = kolo_comm_gather(comm, mine, sizeof mine, all, 0);
    if (rc == 0 && d->launch->rank == 0) report_clocks(d, all, barrier);
    free(all);
    return rc;
}
