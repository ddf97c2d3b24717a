/* kolo doctor: the node of this rank: network, processors, memory's control group, libraries, own speed. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"
#include "base/machine.h"
#include "base/memory.h"
#include "base/thread.h"
#include "cmd/doctor.h"
#include "kolo/error.h"

enum { INTERFACES = 64, LEAST_GBITS = 10 };

/* ---- network ------------------------------------------------------------------------------------------- */

static void add_interface(doctor *d, const kolo_interface *i)
{
    char speed[40] = "speed not stated";
    if (i->gbits > 0) snprintf(speed, sizeof speed, "%g Gb/s", i->gbits);
    if (i->rdma && !i->up)
        doctor_add(d, WARN, 0, "network",
                   "%s (%s) is not active\tsee its cable and its port at the switch, or leave it out "
                   "(NCCL_IB_HCA)",
                   i->name, i->kind);
    else
        doctor_add(d, GOOD, 0, "network", "%s: %s, %s, %s%s", i->name, i->kind, i->up ? "up" : "down", speed,
                   i->route ? ", default route" : "");
}

/* NCCL_SOCKET_IFNAME: a list of prefixes; of whole names behind =; of what is not meant behind ^. */
static bool is_chosen(const char *list, const char *name)
{
    const bool not = *list == '^', whole = list[*list == '^'] == '=';
    bool found = false;
    for (list += not +whole; *list && !found; list += strcspn(list, ","), list += *list == ',') {
        const size_t n = strcspn(list, ",:");
        found = n && !strncmp(list, name, n) && (!whole || !name[n]);
    }
    return found != not ;
}

static void check_chosen(doctor *d, const char *key, const kolo_interface *list, int n)
{
    const char *value = getenv(key);
    bool up = !value || !*value;
    for (int i = 0; i < n && !up; i++) up = !list[i].rdma && list[i].up && is_chosen(value, list[i].name);
    if (!up)
        doctor_add(d, BAD, KOLO_ECONFIG, "network",
                   "%s=%s: no interface of node %s that is up has such a name\tname one of those above, or "
                   "unset it",
                   key, value, d->launch->host);
}

void doctor_check_network(doctor *d)
{
    kolo_interface list[INTERFACES];
    const int n = kolo_machine_interfaces("", list, INTERFACES);
    double fastest = 0;
    bool stated = false;
    if (d->launch->local_rank != 0) return;
    for (int i = 0; i < n; i++) {
        add_interface(d, &list[i]);
        if (!list[i].up || (!list[i].rdma && !strcmp(list[i].kind, "virtual"))) continue;
        stated |= list[i].gbits > 0;
        if (list[i].gbits > fastest) fastest = list[i].gbits;
    }
    if (n == 0)
        doctor_add(d, d->launch->nodes > 1 ? WARN : GOOD, 0, "network", "no interface but loopback is shown");
    if (stated && fastest < LEAST_GBITS && d->launch->nodes > 1)
        doctor_add(d, WARN, 0, "network",
                   "the fastest interface has %g Gb/s\tgradients between nodes will be slow over it: is the "
                   "fast network's driver loaded, or its device hidden from this container?",
                   fastest);
    check_chosen(d, "NCCL_SOCKET_IFNAME", list, n);
    check_chosen(d, "KOLO_COMM_INTERFACE", list, n);
}

/* ---- processors ---------------------------------------------------------------------------------------- */

static void check_frequency(doctor *d, const kolo_processors *p)
{
    if (p->throttled > 0)
        doctor_add(d, WARN, 0, "thermal",
                   "heat has slowed the processors of node %s %ld times since it was started\tsee its fans "
                   "and filters if its figures below are low",
                   d->launch->host, (long)p->throttled);
    if (p->mhz && p->most_mhz && p->mhz < p->most_mhz)
        doctor_add(d, WARN, 0, "power",
                   "processors are held to %d of %d MHz\tthe site's power limit, or srun --cpu-freq=high",
                   p->mhz, p->most_mhz);
    if (!strcmp(p->governor, "powersave") || !strcmp(p->governor, "conservative"))
        doctor_add(d, WARN, 0, "power",
                   "the processors' governor is %s\tsrun --cpu-freq=performance, where the site allows it "
                   "(with intel_pstate powersave may be harmless)",
                   p->governor);
    if (p->throttled <= 0 && p->mhz == p->most_mhz)
        doctor_add(d, GOOD, 0, "thermal", "processors: %s%s%s",
                   p->throttled < 0 ? "times of throttling are not stated" : "never throttled by heat",
                   *p->governor ? ", governor " : "", p->governor);
}

void doctor_check_processors(doctor *d)
{
    cpu_set_t allowed;
    kolo_processors p;
    CPU_ZERO(&allowed);
    sched_getaffinity(0, sizeof allowed, &allowed);
    kolo_machine_processors("", &allowed, &p);
    doctor_add(d, GOOD, 0, "cores", "%d processors of %d cores%s, on %d NUMA nodes", p.cpus, p.cores,
               p.threads > 1    ? ", which have hyper-threads"
               : p.threads == 1 ? ", without hyper-threads"
                                : "",
               p.numa);
    if (p.threads > 1 && p.cpus < p.cores * p.threads && p.cpus > p.cores)
        doctor_add(d, WARN, 0, "cores",
                   "of %d cores this rank has only some of the hyper-threads (%d processors)\tlet srun give "
                   "whole cores: --hint=nomultithread, or a --cpus-per-task that %d divides",
                   p.cores, p.cpus, p.threads);
    if (d->launch->local_rank == 0) check_frequency(d, &p);
}

int doctor_check_binding(doctor *d)
{
    bool overlap;
    int sharers, local = d->launch->local_size;
    KOLO_TRY(kolo_launch_overlap(d->launch, &overlap, &sharers));
    if (overlap)
        doctor_add(d, WARN, 0, "binding",
                   "this rank shares some of its processors with others of the node, but not all: none can "
                   "be bound to cores\tsrun --cpu-bind=cores --exact");
    else if (local > 1 && sharers == local)
        doctor_add(d, GOOD, 0, "binding",
                   "the launcher binds no rank; kolo divides the node's cores among %d", local);
    else
        doctor_add(d, GOOD, 0, "binding", "%s",
                   sharers > 1 ? "the launcher binds some ranks to the same cores, which kolo divides"
                               : "the launcher gives this rank processors of its own");
    return 0;
}

/* ---- memory, libraries --------------------------------------------------------------------------------- */

void doctor_check_cgroup(doctor *d)
{
    const int64_t limit = kolo_cgroup_memory(""), kills = kolo_cgroup_kills("");
    const char *slurm = getenv("SLURM_MEM_PER_NODE");
    if (d->launch->local_rank != 0) return;
    if (limit < INT64_MAX)
        doctor_add(d, GOOD, 0, "cgroup", "memory is limited to %.1f GiB by this job's control group",
                   (double)limit / 0x1p30);
    else if (slurm && atoll(slurm) > 0)
        doctor_add(d, WARN, 0, "cgroup",
                   "Slurm gave %s MiB and no control group holds the job to it: a job that takes more makes "
                   "others of the node fail\tConstrainRAMSpace=yes in cgroup.conf",
                   slurm);
    else doctor_add(d, GOOD, 0, "cgroup", "no control group limits memory");
    if (kills > 0)
        doctor_add(d, WARN, 0, "cgroup",
                   "%ld processes of this job were killed on node %s for its limit of memory\tsbatch "
                   "--mem=..., or a smaller micro_batch=",
                   (long)kills, d->launch->host);
}

void doctor_check_libraries(doctor *d)
{
    kolo_library list[2];
    const int n = kolo_launch_libraries(list);
    for (int i = 0; i < n; i++) {
        const kolo_library *l = &list[i];
        doctor_add(d, l->differs ? WARN : GOOD, 0, l->name, "built with %s, runs with %s%s%s%s", l->built,
                   l->loaded, *l->server ? ", the launcher's server is " : "", l->server,
                   l->differs ? "\tload the module that it was built with; where it is meant, both must have "
                                "one binary interface (MPICH's, or the same major version)"
                              : "");
    }
}

/* ---- its own speed ------------------------------------------------------------------------------------- */

enum { CHUNKS = 150, PATIENCE = 40, LANES = 64, ROUNDS = 700000, COPY_BYTES = 16 << 20 };

/* The best of many short tries, of a millisecond: what the node can do, whatever else runs there, too. Ends
 * when so many in a row were no better, by 1 %. */
static double best_of(double (*once)(void *), void *of)
{
    double best = 0;
    for (int i = 0, vain = 0; i < CHUNKS && vain < PATIENCE; i++) {
        const double value = once(of);
        vain = value > 1.01 * best ? 0 : vain + 1;
        if (value > best) best = value;
    }
    return best;
}

static double compute_once(void *of)
{
    float *x = of, scale = 0.999f;
    const double begin = kolo_time();
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < LANES; i++) x[i] = x[i] * scale + 1;
    return 2.0 * ROUNDS * LANES / (kolo_time() - begin) / 1e9;
}

static double copy_once(void *of)
{
    char *memory = of;
    const double begin = kolo_time();
    memcpy(memory, memory + COPY_BYTES, COPY_BYTES);
    return COPY_BYTES / (kolo_time() - begin) / 1e9;
}

void doctor_measure(doctor *d)
{
    _Alignas(KOLO_ALIGN) float x[LANES] = {1};
    char *memory = kolo_pages_alloc(2 * COPY_BYTES);
    d->figures.compute = best_of(compute_once, x);
    if (x[0] < 0) d->figures.compute = 0; /* so that it is computed */
    if (memory) d->figures.copy = best_of(copy_once, memory);
    if (memory) kolo_pages_free(&memory, 2 * COPY_BYTES);
}
