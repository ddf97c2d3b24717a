/* Core binding: ranks that were given the same processors divide its cores among them, in rank order. */
#include "launch/bind.h"

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "kolo/error.h"
#include "launch/launch.h"

#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

static bool masks_overlap(const kolo_cpuset *a, const kolo_cpuset *b)
{
    for (int w = 0; w < KOLO_MASK_WORDS; w++)
        if (a->mask[w] & b->mask[w]) return true;
    return false;
}

static bool same_machine(const kolo_cpuset *a, const kolo_cpuset *b)
{
    return strncmp(a->machine, b->machine, sizeof a->machine) == 0;
}

bool kolo_cpuset_share(const kolo_cpuset *all, int rank, int size, int *index, int *sharers)
{
    bool clean = true;
    *index = *sharers = 0;
    for (int r = 0; r < size; r++) {
        if (!same_machine(&all[r], &all[rank])) continue;
        if (memcmp(all[r].mask, all[rank].mask, sizeof all[r].mask) == 0) {
            *index += r < rank;
            ++*sharers;
        } else {
            clean &= !masks_overlap(&all[r], &all[rank]);
        }
    }
    return clean;
}

int kolo_cpuset_count(const kolo_cpuset *all, int rank, int size)
{
    int count = 0;
    for (int w = 0; w < KOLO_MASK_WORDS; w++) {
        uint64_t any = 0;
        for (int r = 0; r < size; r++)
            if (same_machine(&all[r], &all[rank])) any |= all[r].mask[w];
        count += __builtin_popcountll(any);
    }
    return count;
}

/* What plans are priced by. A quota that is tighter than this process's mask is the job's on this node. */
static void count_node(const kolo_launch *launch, const kolo_cpuset *all, int given)
{
    const int quota = kolo_cpu_count(), node = kolo_cpuset_count(all, launch->rank, launch->size);
    if (launch->size > 1) kolo_node_set_cpu_count(quota < given ? quota : node);
}

static int load_topology(hwloc_topology_t *topology, hwloc_bitmap_t given)
{
    if (hwloc_topology_init(topology) != 0)
        return kolo_fail(KOLO_EINTERNAL, "bind: hwloc cannot be initialised");
    if (hwloc_topology_load(*topology) != 0 ||
        hwloc_get_cpubind(*topology, given, HWLOC_CPUBIND_PROCESS) != 0) {
        hwloc_topology_destroy(*topology);
        return kolo_fail(KOLO_EINTERNAL, "bind: hwloc cannot read this machine; bind=false goes without it");
    }
    hwloc_bitmap_and(given, given, hwloc_topology_get_topology_cpuset(*topology));
    return 0;
}

static void bind_fill_cpuset(kolo_cpuset *cpuset, hwloc_const_bitmap_t given)
{
    char *boot = NULL;
    memset(cpuset, 0, sizeof *cpuset);
    if (kolo_file_read("/proc/sys/kernel/random/boot_id", &boot, NULL) == 0)
        memcpy(cpuset->machine, boot, strnlen(boot, sizeof cpuset->machine - 1));
    free(boot);
    unsigned cpu;
    hwloc_bitmap_foreach_begin(cpu, given) if (cpu < 64 * KOLO_MASK_WORDS) cpuset->mask[cpu / 64] |=
        1ull << cpu % 64;
    hwloc_bitmap_foreach_end();
}

/* Cores (processors where hwloc sees none) that lie, if only partly, in the given set. */
static hwloc_obj_type_t core_type(hwloc_topology_t topology, hwloc_const_bitmap_t given, int *cores)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    for (;;) {
        *cores = 0;
        for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, type, core));)
            *cores += hwloc_bitmap_intersects(core->cpuset, given);
        if (*cores > 0 || type == HWLOC_OBJ_PU) return type;
        type = HWLOC_OBJ_PU;
    }
}

/* Processors of cores low .. high-1 among the given ones. */
static void pick_cores(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_const_bitmap_t given, int low,
                       int high, hwloc_bitmap_t mine)
{
    int i = 0;
    hwloc_bitmap_zero(mine);
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(topology, type, core));) {
        if (!hwloc_bitmap_intersects(core->cpuset, given)) continue;
        if (i >= low && i < high) hwloc_bitmap_or(mine, mine, core->cpuset);
        i++;
    }
    hwloc_bitmap_and(mine, mine, given);
}

/* Cores of this rank: its share of `cores`; binds to them where that is asked for and clean. */
static int choose_cores(hwloc_topology_t topology, hwloc_const_bitmap_t given, int index, int sharers,
                        bool bind)
{
    int cores;
    hwloc_obj_type_t type = core_type(topology, given, &cores);
    if (cores < sharers) {
        if (bind && index == 0)
            kolo_warn("%d ranks share %d cores of this machine: they are not bound, and will be slow; give "
                      "each rank a core (srun --cpus-per-task)",
                      sharers, cores);
        return 1;
    }
    int low = (int)((int64_t)cores * index / sharers), high = (int)((int64_t)cores * (index + 1) / sharers);
    hwloc_bitmap_t mine = bind && sharers > 1 ? hwloc_bitmap_alloc() : NULL;
    if (mine) {
        pick_cores(topology, type, given, low, high, mine);
        if (hwloc_set_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) != 0)
            kolo_warn("cores %d to %d could not be bound: %m", low, high - 1);
        hwloc_bitmap_free(mine);
    }
    return high - low;
}

/* The processors that this rank and all others were given. Collective. */
static int gather(kolo_launch *launch, hwloc_topology_t *topology, hwloc_bitmap_t given, kolo_cpuset *all)
{
    kolo_cpuset mine;
    if (!given || !all) return kolo_fail(KOLO_ENOMEM, "bind: out of memory");
    KOLO_TRY(load_topology(topology, given));
    bind_fill_cpuset(&mine, given);
    KOLO_TRY(kolo_launch_exchange(launch, &mine, sizeof mine, all));
    count_node(launch, all, hwloc_bitmap_weight(given));
    return 0;
}

int kolo_launch_overlap(kolo_launch *launch, bool *overlap, int *sharers)
{
    hwloc_topology_t topology = NULL;
    hwloc_bitmap_t given = hwloc_bitmap_alloc();
    kolo_cpuset *all = kolo_alloc((size_t)launch->size * sizeof *all);
    int index, rc = gather(launch, &topology, given, all);
    if (rc == 0) *overlap = !kolo_cpuset_share(all, launch->rank, launch->size, &index, sharers);
    if (topology) hwloc_topology_destroy(topology);
    hwloc_bitmap_free(given);
    free(all);
    return rc;
}

int kolo_launch_bind(kolo_launch *launch, int threads, bool bind)
{
    hwloc_topology_t topology = NULL;
    int index, sharers, rc, cpus = kolo_cpu_count(); /* of all sharers, before binding */
    hwloc_bitmap_t given = hwloc_bitmap_alloc();
    kolo_cpuset *all = kolo_alloc((size_t)launch->size * sizeof *all);
    KOLO_TRY_GOTO(rc, gather(launch, &topology, given, all));
    bool clean = kolo_cpuset_share(all, launch->rank, launch->size, &index, &sharers);
    if (!clean && bind && index == 0)
        kolo_warn(
            "ranks of this machine were given overlapping processors: not bound; let srun give whole cores "
            "(--cpu-bind=cores, --exact)");
    rc = choose_cores(topology, given, index, sharers, bind && clean);
    cpus = cpus / sharers > 1 ? cpus / sharers : 1;
    if (rc > cpus) rc = cpus; /* a cgroup's quota may be tighter than the mask */
    if (threads > 0) rc = threads;
fail:
    if (topology) hwloc_topology_destroy(topology);
    hwloc_bitmap_free(given);
    free(all);
    return rc;
}
