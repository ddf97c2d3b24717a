/* kolo plan: what a step takes, on a cluster that is not there or on a node like this one. */
#ifndef KOLO_CMD_PLAN_FORECAST_H
#define KOLO_CMD_PLAN_FORECAST_H

#include "cmd/gpu.h"
#include "plan/fabric.h"
#include "train/session.h"

typedef struct kolo_cluster {
    kolo_fabric fabric;
    kolo_gpu_table gpu; /* as the cluster has it */
    char *name, *path;
} kolo_cluster;

/* options: ranks= (which may be left out where several numbers are planned for: scaled), cluster=; device
 * becomes cuda. KOLO_ECONFIG: no such table, nonsense in it, more ranks
 * than it has GPUs, options that say otherwise. */
int kolo_cluster_open(kolo_cluster *cluster, kolo_options *options, bool scaled);
void kolo_cluster_close(kolo_cluster *cluster);

/* Step, communication, bubble, memory of ranks, node hours, energy, as text or as one object of JSON; and the
 * files of timeline= and svg=; the plan itself to the file `write`, if not NULL. cluster: NULL: one node like
 * this. KOLO_ECONFIG: the plan does not fit its GPUs. */
int kolo_plan_forecast(const kolo_session *session, const kolo_cluster *cluster, bool json,
                       const char *write);

#endif
