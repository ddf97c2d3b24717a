/* The choice of a GPU for each rank (launch/device.h). */
#include "launch/device.h"

#include <hwloc.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/failure.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/plugin.h"

int kolo_device_granted(void)
{
    static const char *const lists[] = {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "GPU_DEVICE_ORDINAL"};
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *count = getenv("SLURM_GPUS_ON_NODE");
    if (visible) return *visible && strcmp(visible, "NoDevFiles") != 0 && strncmp(visible, "-1", 2) != 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        const char *list = getenv(lists[i]);
        if (list && strpbrk(list, "0123456789") && strncmp(list, "-1", 2) != 0) return 1;
    }
    return count && atoi(count) > 0;
}

/* ---- the rule ------------------------------------------------------------------------------------------ */

/* How many of the first picks lie on that GPU. */
static int uses_of(const kolo_device_view *view, const int *pick, int ranks, uint32_t uuid)
{
    int uses = 0;
    for (int r = 0; r < ranks; r++) uses += pick[r] >= 0 && view[r].uuid[pick[r]] == uuid;
    return uses;
}

/* Again and again the best pair of a rank without a GPU and a GPU that it sees: least used, then of the rank
 * that has the smallest choice, then nearest, then in order of rank and list. */
void kolo_device_assign(const kolo_device_view *view, int ranks, int *pick)
{
    for (int r = 0; r < ranks; r++) pick[r] = -1;
    for (;;) {
        int rank = -1, index = -1;
        int64_t best = INT64_MAX;
        for (int r = 0; r < ranks; r++)
            for (int i = 0; pick[r] < 0 && i < view[r].status; i++) {
                int64_t uses = uses_of(view, pick, ranks, view[r].uuid[i]);
                int64_t cost = (uses << 32) + ((int64_t)view[r].status << 16) + view[r].distance[i];
                if (cost < best) best = cost, rank = r, index = i;
            }
        if (rank < 0) return;
        pick[rank] = index;
    }
}

/* ---- distance ------------------------------------------------------------------------------------------ */

/* Only what /sys says: hwloc's own plug-ins for GPUs would load drivers and make contexts. */
static hwloc_topology_t load_topology(void)
{
    static const char *const unwanted[] = {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"};
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0) return NULL;
    hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    for (size_t i = 0; i < sizeof unwanted / sizeof *unwanted; i++)
        hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, unwanted[i]);
    if (hwloc_topology_load(topology) == 0) return topology;
    hwloc_topology_destroy(topology);
    return NULL;
}

/* Steps up the tree from the place where the GPU is plugged in, until all of this process's cores are
 * below. */
static uint8_t distance_of(hwloc_topology_t topology, hwloc_const_bitmap_t mine, const char *bus)
{
    hwloc_obj_t gpu = hwloc_get_pcidev_by_busidstring(topology, bus);
    hwloc_obj_t place = gpu ? hwloc_get_non_io_ancestor_obj(topology, gpu) : NULL;
    int hops = 1;
    for (; place && !hwloc_bitmap_isincluded(mine, place->cpuset); place = place->parent) hops++;
    return (uint8_t)(place ? hops : 0);
}

void kolo_device_distances(const kolo_device *list, int n, uint8_t *distance)
{
    hwloc_topology_t topology = load_topology();
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    bool known = topology && mine && hwloc_get_cpubind(topology, mine, HWLOC_CPUBIND_PROCESS) == 0;
    if (known) hwloc_bitmap_and(mine, mine, hwloc_topology_get_topology_cpuset(topology));
    known = known && !hwloc_bitmap_iszero(mine);
    for (int i = 0; i < n; i++) {
        distance[i] = known ? distance_of(topology, mine, list[i].bus) : 0;
        known = known && distance[i];
    }
    for (int i = 0; i < n && !known; i++) distance[i] = 0;
    hwloc_bitmap_free(mine);
    if (topology) hwloc_topology_destroy(topology);
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

/* This rank's own list, and what it publishes of it. */
static void list_devices(kolo_device *list, kolo_device_view *view)
{
    int driver = 0, runtime = 0;
    void *symbol = kolo_cuda_symbol("kolo_cuda_devices");
    kolo_device_list devices;
    memcpy(&devices, &symbol, sizeof devices); /* ISO C knows no cast from object to function */
    int n = symbol ? devices(list, &driver, &runtime) : KOLO_ELAUNCH;
    if (n == 0)
        n = kolo_fail(KOLO_ELAUNCH,
                      "this rank sees no GPU (CUDA_VISIBLE_DEVICES=%s): ask for some (--gpus-per-node=N), or "
                      "use device=cpu",
                      getenv("CUDA_VISIBLE_DEVICES") ? getenv("CUDA_VISIBLE_DEVICES") : "");
    for (int i = 0; i < n; i++) view->uuid[i] = (uint32_t)kolo_hash_text(list[i].uuid);
    if (n > 1) kolo_device_distances(list, n, view->distance);
    view->status = n;
}

/* The views of this node's ranks, in order, and which of them is this one's. */
static int views_of_node(const kolo_launch *l, const kolo_device_view *all, kolo_device_view *here, int *me)
{
    int ranks = 0;
    for (int r = 0; r < l->size; r++) {
        if (l->node_of[r] != l->node) continue;
        if (r == l->rank) *me = ranks;
        here[ranks++] = all[r];
    }
    return ranks;
}

static int pick_one(const kolo_launch *l, const kolo_device_view *all, const kolo_device *list, int *index)
{
    int me = 0, ranks = 0;
    kolo_device_view *here = kolo_alloc((size_t)l->local_size * sizeof *here);
    int *pick = kolo_alloc((size_t)l->local_size * sizeof *pick);
    if (here && pick) {
        ranks = views_of_node(l, all, here, &me);
        kolo_device_assign(here, ranks, pick);
        *index = pick[me];
        kolo_debug("GPU %d of %d: %s %s", *index, here[me].status, list[*index].name, list[*index].bus);
    }
    int rc = here && pick ? 0 : KOLO_ENOMEM;
    free(here);
    free(pick);
    return rc;
}

/* A rank that cannot go on publishes that as well, or the others would wait for it. */
static int exchange_views(kolo_launch *l, const kolo_device_view *mine, kolo_device_view *all)
{
    if (mine->status < 0) {
        kolo_fail_in(mine->status, "node %s: ", l->host);
        kolo_failure own;
        kolo_error_keep(&own);
        KOLO_TRY(kolo_launch_exchange(l, mine, sizeof *mine, all));
        return kolo_error_restore(&own, mine->status);
    }
    KOLO_TRY(kolo_launch_exchange(l, mine, sizeof *mine, all));
    for (int r = 0; r < l->size; r++)
        if (all[r].status < 0)
            return kolo_fail(KOLO_ELAUNCH, "node %s: rank %d there can use no GPU; its own message says why",
                             l->host_of[l->node_of[r]], r);
    return 0;
}

int kolo_device_choose(kolo_launch *l, int *index, kolo_device *device)
{
    kolo_device list[KOLO_MAX_DEVICES];
    kolo_device_view mine = {0}, *all = kolo_alloc((size_t)l->size * sizeof *all);
    *index = -1;
    if (!all) return KOLO_ENOMEM;
    list_devices(list, &mine);
    int rc = exchange_views(l, &mine, all);
    if (rc >= 0) rc = pick_one(l, all, list, index);
    if (rc >= 0 && device) *device = list[*index];
    free(all);
    return rc < 0 ? rc : 0;
}
