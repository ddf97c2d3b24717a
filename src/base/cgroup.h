/* What the control group of this process allows (cgroup v1 and v2, the tightest of all ancestors). */
#ifndef KOLO_BASE_CGROUP_H
#define KOLO_BASE_CGROUP_H

#include <stdint.h>

/* root: "" for this machine, or a folder that holds a recorded proc/self/cgroup and sys/fs/cgroup. */
int64_t kolo_cgroup_memory(const char *root); /* bytes; INT64_MAX: no limit */
double kolo_cgroup_cpus(const char *root);    /* CPUs' worth of time per period; 0: no limit */
/* Processes of this group, or of the Slurm job that it is of, that were killed for its memory limit; -1: not
 * stated. */
int64_t kolo_cgroup_kills(const char *root);

#endif
